"""A growing JSON Lines file in, each complete object once out; a file that was replaced is read again from its start."""

from __future__ import annotations

from pathlib import Path

from backend.store.record_file import Record, RecordFile, Replaced


class JsonLines:
    """A RecordFile for readers that keep no picture of what they read: to them a new file is just new records."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = RecordFile(path)

    def read_new(self) -> list[Record]:
        """Objects appended since the last call. Lines that are no JSON object are left out."""
        try:
            return self._read()
        except Replaced:
            self._file = RecordFile(self.path)
            return self._read()

    def _read(self) -> list[Record]:
        return [record for chunk in self._file.read_new() for record in chunk]
