"""A log file in, windows of its lines out, by byte offset and without reading the whole file.

A line is what stands between two line feeds; a progress bar that redraws itself with carriage returns is one (long, growing)
line. Of a line above `KEPT_BYTES` only the end is kept: that is what a terminal shows after the last carriage return.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

BLOCK = 1 << 20
KEPT_BYTES = 64 << 10
WINDOW_BYTES = 4 << 20
BACKWARD_BYTES = 64 << 20
"""How far one call looks back for the start of a line before it takes what it has for the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawLine:
    """`at` is the byte offset of the line's start, its identity; `data` has no line feed."""

    at: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWindow:
    """Finished lines that start in [offset, next); `unfinished` is the last line while no line feed has ended it.

    `next` is where to read on: the start of the unfinished line if there is one. `size` is the file's size in bytes.
    """

    offset: int
    next: int
    size: int
    lines: tuple[RawLine, ...] = ()
    unfinished: RawLine | None = None


def read_from(path: Path, offset: int, limit: int) -> LogWindow:
    """At most `limit` lines from byte `offset` on; inside a line, from the next one. A missing file is an empty log."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = _line_start_after(file, min(offset, size), size)
            return _forward(file, start, size, limit)
    except FileNotFoundError:
        return LogWindow(offset=0, next=0, size=0)


def read_last(path: Path, limit: int) -> LogWindow:
    """The last `limit` lines, the unfinished one not counted."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            return _forward(file, _start_of_last(file, size, limit), size, limit)
    except FileNotFoundError:
        return LogWindow(offset=0, next=0, size=0)


def read_before(path: Path, before: int, limit: int) -> LogWindow:
    """The `limit` lines ahead of the line that starts at byte `before`: what scrolling up shows."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            end = min(before, size)
            window = _forward(file, _start_of_last(file, end, limit), end, limit)
            return LogWindow(offset=window.offset, next=window.next, size=size, lines=window.lines)
    except FileNotFoundError:
        return LogWindow(offset=0, next=0, size=0)


def end_of_lines(path: Path) -> int:
    """Where the unfinished line starts: the end of the last finished one. 0 for a missing file."""
    try:
        with path.open("rb") as file:
            at = os.fstat(file.fileno()).st_size
            while at > 0:
                low = max(0, at - BLOCK)
                file.seek(low)
                feed = file.read(at - low).rfind(b"\n")
                if feed >= 0:
                    return low + feed + 1
                at = low
    except FileNotFoundError:
        pass
    return 0


def _line_start_after(file: BinaryIO, offset: int, end: int) -> int:
    """`offset` itself when a line starts there, else the start of the next line (`end` when there is none)."""
    if offset <= 0:
        return 0
    file.seek(offset - 1)
    at = offset - 1
    while at < end:
        block = file.read(min(BLOCK, end - at))
        if not block:
            break
        found = block.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(block)
    return end


def _start_of_last(file: BinaryIO, end: int, limit: int) -> int:
    """Start of the `limit`-th finished line that ends at or ahead of `end`, bounded by WINDOW_BYTES of kept text."""
    stop = max(0, end - BACKWARD_BYTES)
    at, found, kept, line_end = end, 0, 0, -1
    start = stop
    while at > stop:
        low = max(stop, at - BLOCK)
        file.seek(low)
        block = file.read(at - low)
        position = len(block)
        while (position := block.rfind(b"\n", 0, position)) >= 0:
            feed = low + position
            if line_end >= 0:
                found += 1
                kept += min(line_end - feed, KEPT_BYTES)
                if found == limit or kept > WINDOW_BYTES:
                    return feed + 1
            line_end = feed
        at = low
    return start


def _forward(file: BinaryIO, start: int, end: int, limit: int) -> LogWindow:
    """Lines from `start` (a line's start) up to `end`, at most `limit` and about WINDOW_BYTES of text."""
    lines: list[RawLine] = []
    kept, carry = 0, b""
    file.seek(start)
    position = line_at = start
    while position < end:
        block = file.read(min(BLOCK, end - position))
        if not block:
            break
        begin = 0
        while (feed := block.find(b"\n", begin)) >= 0:
            if len(lines) >= limit or kept >= WINDOW_BYTES:
                return LogWindow(offset=start, next=line_at, size=end, lines=tuple(lines))
            data = (carry + block[max(begin, feed - KEPT_BYTES) : feed])[-KEPT_BYTES:]
            lines.append(RawLine(at=line_at, data=data))
            kept, carry = kept + len(data), b""
            begin = feed + 1
            line_at = position + begin
        carry = (carry + block[max(begin, len(block) - KEPT_BYTES) :])[-KEPT_BYTES:]
        position += len(block)
    unfinished = RawLine(at=line_at, data=carry) if line_at < end else None
    return LogWindow(offset=start, next=line_at, size=end, lines=tuple(lines), unfinished=unfinished)


class LineNumbers:
    """Line numbers of one growing log file: counts line feeds a block at a time and remembers the count at each block.

    Each call counts at most `budget` new bytes, so that asking for the end of a huge log answers at once: None until
    enough calls have counted up to there. Not for use by two threads at once.
    """

    def __init__(self, path: Path, budget: int = 64 << 20) -> None:
        self.path, self.budget = path, budget
        self._feeds = [0]

    def number_at(self, offset: int) -> int | None:
        """Number (from 1) of the line that starts at byte `offset`, or None when not counted that far yet."""
        try:
            with self.path.open("rb") as file:
                return self._number_at(file, offset)
        except FileNotFoundError:
            self._feeds = [0]
            return None

    def _number_at(self, file: BinaryIO, offset: int) -> int | None:
        size = os.fstat(file.fileno()).st_size
        if size < (len(self._feeds) - 1) * BLOCK:
            self._feeds = [0]
        block_index = offset // BLOCK
        self._count_blocks(file, min(block_index, size // BLOCK))
        if block_index >= len(self._feeds) or offset > size:
            return None
        file.seek(block_index * BLOCK)
        return self._feeds[block_index] + file.read(offset - block_index * BLOCK).count(b"\n") + 1

    def _count_blocks(self, file: BinaryIO, wanted: int) -> None:
        """Count whole blocks until `wanted` blocks are known or the budget is spent."""
        spent = 0
        file.seek((len(self._feeds) - 1) * BLOCK)
        while len(self._feeds) <= wanted and spent < self.budget:
            block = file.read(BLOCK)
            if len(block) < BLOCK:
                return
            self._feeds.append(self._feeds[-1] + block.count(b"\n"))
            spent += BLOCK
