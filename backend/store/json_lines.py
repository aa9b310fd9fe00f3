"""A growing JSON Lines file in, each complete object once out (by byte offset; a torn last line waits for its rest)."""

from __future__ import annotations

from pathlib import Path

import orjson

_CHUNK = 4 << 20


class JsonLines:
    """Remembers how far it has read. A file that shrank (truncated, replaced) is read again from its start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self._rest = b""

    def read_new(self) -> list[dict[str, object]]:
        """Objects appended since the last call. Lines that are no JSON object are left out."""
        try:
            with self.path.open("rb") as file:
                if file.seek(0, 2) < self.offset:
                    self.offset, self._rest = 0, b""
                file.seek(self.offset)
                found: list[dict[str, object]] = []
                while chunk := file.read(_CHUNK):
                    self.offset += len(chunk)
                    *lines, self._rest = (self._rest + chunk).split(b"\n")
                    found += [record for line in lines if (record := _parse(line)) is not None]
                return found
        except FileNotFoundError:
            return []


def _parse(line: bytes) -> dict[str, object] | None:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None
