"""A line that was redrawn into its pieces, and a long run of one progress bar into the few states that matter.

A console is mostly bars: tqdm draws one ten times a second and only the last one before other output says anything. That all
pieces between two places are states of one bar is proved by their few distinct shapes, many times faster than reading each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from backend.parsing.lines import RawLine
from backend.parsing.shapes import DIGITS, ShapeCache

_PIECE = re.compile(rb"([^\r]*+)(\r*+)")
_FEWEST = 3
_STATE = re.compile(
    rb"([^|%\r\x1b]*?) *%\|[^|\r\x1b]*\| *[.,kMG]*/[.,kMG]* \["
    rb"(?: days?, )?:*<(?: days?, )?[:?]*(?:, *[.?]*(?:s/)?[A-Za-z ]+(?:/s)?)?\] *"
)
"""The shape of a state without values behind the rate: bars that carry points are read one by one."""
_NO_BAR = b"\r"
_PERCENT = b"0123456789 "


class BarRun(NamedTuple):
    """`kept`: places in the line of the states that matter, in order; from `start` to `stop` there are `states` of them."""

    start: int
    stop: int
    states: int
    kept: list[tuple[int, int]]


def pieces_of(line: bytes, at: int, start: int, stop: int, *, is_open: bool) -> Iterator[RawLine]:
    """What stood in the row one after the other, from `start` to `stop` of a line that begins at byte `at` of the log.

    `is_open`: the line goes on, so that its last piece is drawn over too.
    """
    for match in _PIECE.finditer(line, start, stop):
        if match.end() > match.start():
            overwritten = is_open or match.end() < len(line)
            yield RawLine(at + match.start(), match[1], at + match.end(), overwritten)


def find_run(line: bytes) -> BarRun | None:
    """The run of states of one bar that a line holds, None when there is none or when it may be more than that."""
    first, last = line.find(b"%|"), line.rfind(b"%|")
    start, stop = line.rfind(b"\r", 0, max(first, 0)) + 1, line.find(b"\r", last)
    if stop < 0:  # the last state ends the line: nothing was drawn over it
        stop = line.rfind(b"\r", 0, last)
    if first < 0 or stop <= first:
        return None
    run = line[start:stop]
    count = run.count(b"\r") + 1
    total = _total_of(run, first - start)
    if (
        count < _FEWEST
        or not total
        or run.count(b"/" + total + b" [") != count
        or not _is_one_bar(run, first - start, count)
    ):
        return None
    return BarRun(start, stop + 1, count, [(start + a, start + b) for a, b in _kept(run, total)])


def _total_of(run: bytes, percent: int) -> bytes:
    """`1000` of `10/1000 [`."""
    bar_end = run.find(b"|", percent + 2)
    slash = run.find(b"/", bar_end)
    end = run.find(b" [", slash)
    return run[slash + 1 : end] if 0 < bar_end < slash < end < slash + 16 else b""


def _is_one_bar(run: bytes, percent: int, count: int) -> bool:
    """Every piece is a state of a bar of the same name, and nothing else stands in it."""
    name = _RUNS.of(run.translate(None, DIGITS))
    return not name or (name != _NO_BAR and run.count(b"\r" + run[:percent].rstrip(_PERCENT)) == count - 1)


def _name_of(shape: bytes) -> bytes:
    found = _STATE.fullmatch(shape)
    return found[1] if found else _NO_BAR


def _common_name(shape: bytes) -> bytes:
    """The name that all pieces of a run's shape have, `_NO_BAR` when they differ or one is no state of a bar."""
    names = {_NAMES.of(piece) for piece in set(shape.split(b"\r"))}
    return names.pop() if len(names) == 1 else _NO_BAR


_NAMES = ShapeCache(_name_of)
_RUNS = ShapeCache(_common_name)


def _kept(run: bytes, total: bytes) -> list[tuple[int, int]]:
    """The first state (drawn again behind a dict, it has the dict's step), the last one, and the last unfinished one before it
    (a finished bar shows a mean instead of a rate)."""
    finished = b" " + total + b"/" + total + b" ["
    first_end = run.index(b"\r")
    spans: list[tuple[int, int]] = []
    stop = len(run)
    while stop > first_end:
        start = run.rfind(b"\r", 0, stop) + 1
        is_finished = run.find(finished, start, stop) >= 0
        if not spans or not is_finished:
            spans.insert(0, (start, stop))
        if not is_finished:
            break
        stop = start - 1
    return [(0, first_end), *spans]
