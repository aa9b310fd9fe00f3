"""Bytes of a console into raw lines, with long runs of redrawn progress bars reduced to their last state.

A console is mostly bars: tqdm draws one ten times a second and only the last one before other output says anything. A run is
recognised in one regular expression match, which is many times faster than looking at each bar.
"""

from __future__ import annotations

import re

from backend.parsing.lines import LineSplitter, RawLine, cut_long

_BAR = rb"[^\r\n]*%\|[^\r\n]*\r++(?=[^\n])"
_TOKEN = re.compile(rb"(?P<run>(?:" + _BAR + rb"){3,})|[^\r\n]*+(?P<end>\r*+\n|\r++(?=[^\n]))")
_STATE = re.compile(
    rb"(?P<desc>[^|\r\n]*?)\s*\d{1,3}%\|[^|\r\n]*\|\s*(?P<done>[\d.,]+[kMG]?)/(?P<total>[\d.,]+[kMG]?)\s"
)


class BarRunSplitter(LineSplitter):
    """A LineSplitter that leaves out bars which the next bar of the same kind replaces. Offsets stay those of the log."""

    def _cut(self, data: bytes) -> list[RawLine]:
        lines: list[RawLine] = []
        base, at = self._start, 0
        for match in _TOKEN.finditer(data):
            if match["run"] is not None:
                _take_run(lines, data, base, at, match.end())
            else:
                start = cut_long(lines, data, base, at, match.start("end"))
                ended = data[match.end() - 1] == 13
                lines.append(RawLine(base + start, data[start : match.start("end")], base + match.end(), ended))
            at = match.end()
        at = cut_long(lines, data, base, at, len(data))
        self._start = base + at
        if at < len(data):
            self._hold(data[at:])
        return lines


def _take_run(lines: list[RawLine], data: bytes, base: int, at: int, stop: int) -> None:
    """Bars of one kind: the first (drawn again behind a dict, it has the dict's step), the last one, and the last unfinished
    one before it (a finished bar shows a mean instead of a rate)."""
    spans = _last_bars(data, at, stop)
    if spans is None or b"loss=" in data[at:stop]:  # bars of several kinds, or bars that carry points
        spans = [(found.start(), found.end()) for found in re.finditer(rb"[^\r]+\r+", data[at:stop])]
        spans = [(at + start, at + end) for start, end in spans]
    for start, end in spans:
        lines.append(RawLine(base + start, data[start:end].rstrip(b"\r"), base + end, True))


def _last_bars(data: bytes, at: int, stop: int) -> list[tuple[int, int]] | None:
    first = _STATE.match(data, at)
    start, end = _bar_before(data, at, stop)
    last = _STATE.match(data, start)
    if first is None or last is None or first.group("desc", "total") != last.group("desc", "total"):
        return None
    spans = [(start, end)]
    first_end = data.find(b"\r", at, stop)
    while data[first_end : first_end + 1] == b"\r":
        first_end += 1
    while last is not None and last["done"] == last["total"] and start > at:
        start, end = _bar_before(data, at, start)
        last = _STATE.match(data, start)
        if last is not None and last["done"] != last["total"]:
            spans.insert(0, (start, end))
    return spans if spans[0][0] == at else [(at, first_end), *spans]


def _bar_before(data: bytes, at: int, stop: int) -> tuple[int, int]:
    """Start and end (behind its carriage returns) of the bar that ends at `stop`."""
    text_end = stop
    while text_end > at and data[text_end - 1] == 13:
        text_end -= 1
    return max(at, data.rfind(b"\r", at, text_end) + 1), stop
