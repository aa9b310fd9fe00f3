"""Files in, something that can be sent from any byte on out: one file as it is, or many as a tar that exists nowhere.

A tar's layout is a pure function of names, sizes and times, so its length and every part of it are known without reading
data: downloads can be resumed, nothing is copied, and memory stays at one block.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from backend.errors import Conflict

BLOCK = 1 << 20
_TAR_BLOCK = 512
_TAR_END = bytes(2 * _TAR_BLOCK)


class Content(Protocol):
    """What a download needs. `etag` is strong: equal tags mean equal bytes."""

    @property
    def size(self) -> int: ...

    @property
    def etag(self) -> str: ...

    @property
    def modified_at(self) -> float: ...

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Bytes [start, stop). Raises Conflict when a file is no longer what it was."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file of a tar: `name` inside the tar; size and time as found when the tar was planned."""

    name: str
    path: Path
    size: int
    modified_ns: int


class FileContent:
    """One file, up to the size it has now (a log may grow meanwhile)."""

    def __init__(self, path: Path) -> None:
        status = path.stat()
        self.path, self.size, self._modified_ns = path, status.st_size, status.st_mtime_ns
        self.modified_at = status.st_mtime
        self.etag = _tag(f"{status.st_ino} {status.st_size} {status.st_mtime_ns}")

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        with self.path.open("rb", buffering=0) as file:
            file.seek(start)
            while start < stop:
                block = file.read(min(BLOCK, stop - start))
                if not block:
                    raise Conflict(f"{self.path.name} became shorter while it was sent.")
                start += len(block)
                yield block


class TarContent:
    """The tar of `sources`, in their order."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = tuple(sources)
        self._headers = [_header(source) for source in self._sources]
        self._starts: list[int] = []
        at = 0
        for source, header in zip(self._sources, self._headers, strict=True):
            self._starts.append(at)
            at += len(header) + source.size + _padding(source.size)
        self._starts.append(at)
        self.size = at + len(_TAR_END)
        self.modified_at = max((source.modified_ns for source in sources), default=0) / 1e9
        self.etag = _tag("\n".join(f"{s.name} {s.size} {s.modified_ns}" for s in self._sources))

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        index = max(0, bisect_right(self._starts, start) - 1)
        while start < stop and index < len(self._sources):
            for block in self._read_member(index, start - self._starts[index], stop - self._starts[index]):
                start += len(block)
                yield block
            index += 1
        if start < stop:
            begin = start - self._starts[-1]
            yield _TAR_END[begin : begin + stop - start]

    def _read_member(self, index: int, start: int, stop: int) -> Iterator[bytes]:
        """Bytes [start, stop) of one member, as far as it reaches: header, data, padding."""
        source, header = self._sources[index], self._headers[index]
        yield from _part(header, start, stop)
        yield from _read_unchanged(source, start - len(header), stop - len(header))
        data_end = len(header) + source.size
        yield from _part(bytes(_padding(source.size)), start - data_end, stop - data_end)


def _read_unchanged(source: Source, start: int, stop: int) -> Iterator[bytes]:
    start, stop = max(0, start), min(stop, source.size)
    if start >= stop:
        return
    with source.path.open("rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if (status.st_size, status.st_mtime_ns) != (source.size, source.modified_ns):
            raise Conflict(f"{source.name} changed while the archive was sent.")
        file.seek(start)
        while start < stop:
            block = file.read(min(BLOCK, stop - start))
            if not block:
                raise Conflict(f"{source.name} became shorter while the archive was sent.")
            start += len(block)
            yield block


def _part(data: bytes, start: int, stop: int) -> Iterator[bytes]:
    part = data[max(0, start) : max(0, stop)]
    if part:
        yield part


def _header(source: Source) -> bytes:
    """A header of the POSIX format, which has room for names and sizes of any length."""
    entry = tarfile.TarInfo(source.name)
    entry.size, entry.mtime, entry.mode = source.size, source.modified_ns // 1_000_000_000, 0o644
    return entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _padding(size: int) -> int:
    return -size % _TAR_BLOCK


def _tag(text: str) -> str:
    return f'"{hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]}"'
