"""A run's console log and a search in, its hits out: counted, with the lines around them, in portions of about a second.

A portion says where it ended; the reader asks on from there, so a log of any size is searched without holding it in memory,
every answer comes soon, and a search that nobody wants any more simply is not continued. Expressions are RE2: their time is
linear in the text, whatever the expression.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np
import re2

from backend.errors import InvalidInput
from backend.services.log_windows import LogLine, decode
from backend.store.tail import KEPT_BYTES, RawLine, read_before, read_from

BLOCK = 1 << 20
PORTION_SECONDS = 1.0
LONGEST_QUERY = 1000
LONGEST_TEXT = 4000
MOST_SPANS = 50
LEVELS = ("error", "warning")

_CODES = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[PX^_][^\x1b\n]*(?:\x1b\\)?|[ -/]*[0-~]?)|\0+"
)
_MAY_BE = {
    "error": rb"(?i)error|fatal|critical|exception|interrupt|fault|killed|traceback|\[?[ef]\d{3,4} \d\d:",
    "warning": rb"(?i)warn|error|fatal|critical|exception|interrupt|fault|killed|traceback|\[?[efw]\d{3,4} \d\d:",
}
"""What a line of such a level holds somewhere: cheap to look for, decoding the line decides."""


class Pattern(Protocol):
    """The part of a compiled RE2 expression that is used here."""

    def search(self, text: bytes, pos: int | None = None) -> Match | None: ...


class Match(Protocol):
    """Where it was found, in bytes."""

    def span(self) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """What to look for. `level`: "error", "warning" (errors too) or "" for all; `rank` None: all ranks."""

    text: str = ""
    is_regex: bool = False
    match_case: bool = False
    level: str = ""
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHit:
    """One line. `end`: where the next line starts. `spans`: what matched, in UTF-16 units of the text, as a browser counts."""

    line: LogLine
    end: int
    spans: tuple[tuple[int, int], ...]
    before: tuple[LogLine, ...]
    after: tuple[LogLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFinds:
    """One portion: bytes [start, next) of `size` were searched and `count` lines match, of which `hits` holds the first ones.

    `line`: number of the line at `next` when that of `start` was given. `done`: the end of the log is reached.
    """

    start: int
    next: int
    size: int
    line: int | None
    count: int
    hits: tuple[LogHit, ...]
    done: bool


class _Block(NamedTuple):
    """Whole lines. Byte i of `data` is byte `shift + i` of the log, but for the first line, which starts at `at`."""

    at: int
    shift: int
    data: bytes


class _Needle:
    """A query made ready: is this line one of those?"""

    def __init__(self, query: LogQuery) -> None:
        self.query = query
        self.pattern = compile_query(query) if query.text else None
        self._level = _compile(_MAY_BE[query.level]) if query.level else None
        self._rank = _compile(rb"(?:^|\D)0*%d(?:\D|$)" % query.rank) if query.rank is not None else None
        self.quickest = self.pattern or self._level or self._rank

    def fits(self, raw: bytes, shown: bytes) -> bool:
        """`shown` is the line as a terminal shows it; what `quickest` found is not looked at again."""
        if self.pattern and (
            (self._level and not self._level.search(shown)) or (self._rank and not self._rank.search(shown))
        ):
            return False
        if not self.query.level and self.query.rank is None:
            return True
        line = decode(RawLine(at=1, data=raw[-KEPT_BYTES:]), None)
        return self._has_level(line.level) and self.query.rank in (None, line.rank)

    def _has_level(self, level: str) -> bool:
        return not self.query.level or level == "error" or (self.query.level == "warning" and level == "warning")

    def spans(self, text: str) -> tuple[tuple[int, int], ...]:
        found: list[tuple[int, int]] = []
        data, at = text.encode(), 0
        while self.pattern and len(found) < MOST_SPANS and (match := self.pattern.search(data, at)):
            start, at = match.span()
            if at == start:
                break
            found.append((_units(data[:start]), _units(data[:at])))
        return tuple(found)


def compile_query(query: LogQuery) -> Pattern:
    """Raises InvalidInput for what is no expression or too long."""
    if len(query.text) > LONGEST_QUERY:
        raise InvalidInput("q", found=f"{len(query.text)} characters", expected=f"at most {LONGEST_QUERY}")
    text = query.text if query.is_regex else re2.escape(query.text)
    try:
        return _compile(f"(?m){text}".encode(), match_case=query.match_case)
    except re2.error as error:
        words = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
        raise InvalidInput(
            "q", found=words, expected="a regular expression of RE2 (no look-around, no back-references)"
        ) from error


def _compile(pattern: bytes, *, match_case: bool = True) -> Pattern:
    options = re2.Options()
    options.case_sensitive, options.never_nl, options.log_errors = match_case, True, False
    compiled: Pattern = re2.compile(pattern, options)
    return compiled


def search_log(
    path: Path,
    query: LogQuery,
    *,
    start: int = 0,
    line: int | None = None,
    limit: int = 100,
    context: int = 2,
    first_only: bool = False,
    seconds: float = PORTION_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> LogFinds:
    """Search from byte `start` (a line's start, whose number is `line`) for about `seconds`; a missing file is an empty log.

    Of `limit` hits the lines are given, the rest is counted; `first_only` ends at that many. Raises InvalidInput.
    """
    needle = _Needle(query)
    search = _Search(path, needle, limit, context, first_only=first_only)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            place, until, line = min(start, size), clock() + seconds, line or (1 if start == 0 else None)
            for block in _blocks(file, place, size):
                place, line = search.take(block, line)
                if search.is_full or clock() > until:
                    break
    except FileNotFoundError:
        size, place = 0, 0
    return LogFinds(
        start=start, next=place, size=size, line=line, count=search.count, hits=tuple(search.hits), done=place >= size
    )  # fmt: skip


class _Search:
    """Takes blocks in order, gathers hits."""

    def __init__(self, path: Path, needle: _Needle, limit: int, context: int, *, first_only: bool) -> None:
        self.path, self.needle, self.limit, self.context, self.first_only = path, needle, limit, context, first_only
        self.count = 0
        self.hits: list[LogHit] = []

    @property
    def is_full(self) -> bool:
        return self.first_only and len(self.hits) >= self.limit

    def take(self, block: _Block, number: int | None) -> tuple[int, int | None]:
        """Where the next block starts, and the number of its first line."""
        lines = _Lines(block, number)
        for at in _matching_lines(lines, self.needle):
            self.count += 1
            if len(self.hits) < self.limit:
                self.hits.append(self._hit(lines, at))
            if self.is_full:
                return lines.start(at + 1), None if number is None else number + at + 1
        return block.shift + len(block.data), None if number is None else number + block.data.count(b"\n")

    def _hit(self, lines: _Lines, at: int) -> LogHit:
        line, end = lines.decoded(at), lines.start(at + 1)
        first, last = at - self.context, at + 1 + self.context
        before = [lines.decoded(index) for index in range(max(0, first), at)]
        after = [lines.decoded(index) for index in range(at + 1, min(last, lines.count))]
        if first < 0 and lines.block.at > 0:
            raws = read_before(self.path, lines.block.at, -first).lines
            before = [*_numbered(raws, lines.number, -len(raws)), *before]
        if last > lines.count:
            raws = read_from(self.path, lines.start(lines.count), last - lines.count).lines
            after += _numbered(raws, lines.number, lines.count)
        return LogHit(
            line=line, end=end, spans=self.needle.spans(line.text), before=tuple(before), after=tuple(after)
        )  # fmt: skip


class _Lines:
    """The lines of one block, raw and as shown; places are found only when a hit asks for them."""

    def __init__(self, block: _Block, number: int | None) -> None:
        self.block, self.number = block, number
        data = block.data
        if b"\x1b" in data or b"\0" in data:
            data = _CODES.sub(b"", data)
        self.shown = _as_shown(data)
        self._starts: list[int] | None = None

    @property
    def starts(self) -> list[int]:
        """Where each line begins in the block's data, and the end of the last one."""
        if self._starts is None:
            feeds = np.flatnonzero(np.frombuffer(self.block.data, np.uint8) == 10) + 1
            self._starts = [0, *feeds.tolist()]
            if self._starts[-1] != len(self.block.data):
                self._starts.append(len(self.block.data))
        return self._starts

    @property
    def count(self) -> int:
        return len(self.starts) - 1

    def start(self, index: int) -> int:
        return self.block.at if index == 0 else self.block.shift + self.starts[index]

    def raw(self, index: int) -> bytes:
        return self.block.data[self.starts[index] : self.starts[index + 1]].rstrip(b"\n")

    def decoded(self, index: int) -> LogLine:
        number = None if self.number is None else self.number + index
        return _short(decode(RawLine(at=self.start(index), data=self.raw(index)[-KEPT_BYTES:]), number))


def _as_shown(data: bytes) -> bytes:
    """Of each line what its last carriage return left; line feeds stay."""
    parts, at = [], 0
    while (drawn := data.find(b"\r", at)) >= 0:
        begin = data.rfind(b"\n", at, drawn) + 1 or at
        end = data.find(b"\n", drawn)
        end = len(data) if end < 0 else end
        parts += [data[at:begin], data[begin:end].rstrip(b"\r").rpartition(b"\r")[2]]
        at = end
    return b"".join((*parts, data[at:])) if parts else data


def _matching_lines(lines: _Lines, needle: _Needle) -> Iterator[int]:
    """Indices of the lines that fit, ascending."""
    if needle.quickest is None:
        yield from range(lines.count)
        return
    shown, at, index = lines.shown, 0, 0
    while at < len(shown) and (match := needle.quickest.search(shown, at)) is not None:
        where = match.span()[0]
        index += shown.count(b"\n", at, where)
        begin = shown.rfind(b"\n", at, where) + 1 or at
        end = shown.find(b"\n", where)
        end = len(shown) if end < 0 else end
        if where < len(shown) and needle.fits(lines.raw(index), shown[begin:end]):
            yield index
        at, index = end + 1, index + 1


def _blocks(file: BinaryIO, start: int, size: int) -> Iterator[_Block]:
    """Portions that end at a line's end; of a line longer than a block only its end is kept, as the log view shows it."""
    file.seek(start)
    at, carry, position = start, b"", start
    while position < size:
        chunk = file.read(min(BLOCK, size - position))
        if not chunk:
            return
        begin, position = position, position + len(chunk)
        cut = chunk.rfind(b"\n") + 1 if position < size else len(chunk)
        if cut == 0:
            carry = (carry + chunk)[-KEPT_BYTES:]
            continue
        yield _Block(at, begin - len(carry), carry + chunk[:cut])
        at, carry = begin + cut, chunk[cut:]


def _numbered(raws: Sequence[RawLine], number: int | None, first: int) -> list[LogLine]:
    return [_short(decode(raw, None if number is None else number + first + at)) for at, raw in enumerate(raws)]


def _short(line: LogLine) -> LogLine:
    if len(line.text) <= LONGEST_TEXT:
        return line
    return LogLine(at=line.at, n=line.n, text=line.text[:LONGEST_TEXT] + "…", level=line.level, rank=line.rank)


def _units(data: bytes) -> int:
    """UTF-16 units of UTF-8 bytes."""
    return len(data.decode("utf-8", "replace").encode("utf-16-le")) // 2
