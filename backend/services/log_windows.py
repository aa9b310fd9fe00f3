"""A run's console log in, windows of decoded lines out: numbered, with level and rank."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from backend.parsing import lines as decoding
from backend.store.tail import LineNumbers, LogWindow, RawLine, read_before, read_from, read_last

MAX_NUMBERED_LOGS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """`at`: byte offset of its start; `n`: number from 1, None while not counted; `text` as a terminal would show it."""

    at: int
    n: int | None
    text: str
    level: str
    rank: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """See LogWindow (backend/store/tail.py); `open` is its unfinished line."""

    offset: int
    next: int
    size: int
    lines: tuple[LogLine, ...]
    open: LogLine | None


class LogWindows:
    """Reads windows and remembers line counts. Thread-safe."""

    def __init__(self) -> None:
        self._numbers: OrderedDict[Path, LineNumbers] = OrderedDict()
        self._lock = threading.Lock()

    def from_offset(self, path: Path, offset: int, limit: int) -> LogView:
        return self._decode(path, read_from(path, offset, limit))

    def last(self, path: Path, limit: int) -> LogView:
        return self._decode(path, read_last(path, limit))

    def before(self, path: Path, before: int, limit: int) -> LogView:
        return self._decode(path, read_before(path, before, limit))

    def _decode(self, path: Path, window: LogWindow) -> LogView:
        raw = (*window.lines, *((window.unfinished,) if window.unfinished else ()))
        first = self._number(path, raw[0].at) if raw else None
        decoded = [decode(line, None if first is None else first + index) for index, line in enumerate(raw)]
        unfinished = decoded.pop() if window.unfinished else None
        return LogView(
            offset=window.offset, next=window.next, size=window.size, lines=tuple(decoded), open=unfinished
        )  # fmt: skip

    def _number(self, path: Path, offset: int) -> int | None:
        with self._lock:
            numbers = self._numbers.pop(path, None) or LineNumbers(path)
            self._numbers[path] = numbers
            if len(self._numbers) > MAX_NUMBERED_LOGS:
                self._numbers.popitem(last=False)
            return numbers.number_at(offset)


def decode(raw: RawLine, number: int | None) -> LogLine:
    """Of a line that redrew itself, what its last carriage return left."""
    shown = raw.data.rstrip(b"\r").rpartition(b"\r")[2]
    line = decoding.decode_line(decoding.RawLine(raw.at, shown, raw.at + len(raw.data), False))
    return LogLine(
        at=raw.at, n=number, text=line.text, level="" if line.level is None else line.level.value, rank=line.rank
    )  # fmt: skip
