"""One growing recorder file in, its new records out, each once: by byte offset, a half last line waits for its rest."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

import orjson

CHUNK = 192 << 10
"""Small enough that the objects of one chunk stay in the processor's cache: four times faster than the file at once."""
HEAD = 64

Record = dict[str, object]


class Replaced(Exception):
    """The file is another one than before, or shorter: everything read from it is void."""


class RecordFile:
    """Reads on where it stopped. `skipped` counts lines that were no JSON object (torn by a full disk or a kill)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.skipped = 0
        self._last: tuple[int, int, int] = (0, 0, 0)
        self._head = b""
        self._half = b""

    @classmethod
    def near_end(cls, path: Path, tail_bytes: int) -> RecordFile:
        """Begins at most `tail_bytes` before the present end, in the middle of a line (counted as skipped)."""
        file = cls(path)
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            file.offset = max(0, status.st_size - tail_bytes)
            file._last = (status.st_ino, 0, 0)
        return file

    def read_new(self) -> Iterator[list[Record]]:
        """Records appended since the last call, chunk by chunk. Raises Replaced."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            if self.offset:
                raise Replaced(str(self.path)) from None
            return
        state = (status.st_ino, status.st_size, status.st_mtime_ns)
        if state == self._last:
            return
        with self.path.open("rb", buffering=0) as file:
            self._check(file, status)
            self._last = state
            file.seek(self.offset)
            while chunk := file.read(CHUNK):
                self.offset += len(chunk)
                whole, feed, rest = (self._half + chunk).rpartition(b"\n")
                self._half = rest
                if feed:
                    yield self._parse(whole)

    def describe(self) -> dict[str, object]:
        """Where it stands, as JSON."""
        return {
            "offset": self.offset, "skipped": self.skipped, "last": list(self._last),
            "head": self._head.hex(), "half": self._half.hex(),
        }  # fmt: skip

    def restore(self, record: Mapping[str, Any]) -> bool:
        """Go on from a described place; False when the file is not the very one that was described."""
        status = self.path.stat()
        if record["last"] != [status.st_ino, status.st_size, status.st_mtime_ns]:
            return False
        self.offset, self.skipped = int(record["offset"]), int(record["skipped"])
        self._last = (status.st_ino, status.st_size, status.st_mtime_ns)
        self._head, self._half = bytes.fromhex(record["head"]), bytes.fromhex(record["half"])
        return True

    def _check(self, file: FileIO, status: os.stat_result) -> None:
        """The head tells a file that was emptied and written again: every record starts with its own time."""
        if self.offset and (status.st_ino != self._last[0] or status.st_size < self.offset):
            raise Replaced(str(self.path))
        head = file.read(len(self._head) or HEAD)
        if self._head and head != self._head:
            raise Replaced(str(self.path))
        self._head = head if len(head) == HEAD else b""

    def _parse(self, lines: bytes) -> list[Record]:
        try:
            records = orjson.loads(b"[" + lines.replace(b"\n", b",") + b"]")
            if set(map(type, records)) == {dict}:
                return list(records)
        except orjson.JSONDecodeError:
            pass
        return [record for line in lines.split(b"\n") if (record := self._parse_line(line)) is not None]

    def _parse_line(self, line: bytes) -> Record | None:
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            record = None
        if isinstance(record, dict):
            return record
        self.skipped += bool(line.strip())
        return None
