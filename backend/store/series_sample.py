"""Recorder files too long to wait for in, a run made of evenly spread records of them out: first and last ones whole.

Windows are looked at from coarse to fine until PATIENCE is over, so a slow disk gives a coarser picture, not a later one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from math import inf
from pathlib import Path

from backend.store.record_file import Record, RecordFile, parse_lines
from backend.store.series import RunSeries

WINDOWS = 600
WINDOW = 4 << 10
HEAD = 64 << 10
TAIL = 128 << 10
LOG_REACH = 64 << 10
"""How far beyond a window without logged values the next ones are looked for."""
STEPS_SHARED = 8
"""Steps of a window that are looked for in the files of the other ranks."""
GUESSES = 5
PATIENCE_SECONDS = 0.4

Window = dict[int, list[Record]]
"""Records by rank."""


def sample_run(recorder: Path, *, clock: Callable[[], float] = time.perf_counter) -> RunSeries:
    """A run that goes on with what is appended to its files from now on.

    Restarts between two windows are not seen as such: steps that were taken again may be shown as they were at first, as far
    as one window is from the next.
    """
    sources = {
        int(number): _Source(path)
        for path in recorder.glob("rank-*.jsonl")
        if (number := path.stem.removeprefix("rank-")).isdigit()
    }
    try:
        windows = _take_windows(sources, clock) if 0 in sources else []
    finally:
        for source in sources.values():
            source.close()
    files = {rank: RecordFile(source.path) for rank, source in sources.items()}
    for rank, file in files.items():
        file.skip_to(sources[rank].end)
    run = RunSeries(recorder)
    run.take_sample(files, {rank: [each for window in windows for each in window.get(rank, ())] for rank in files})
    return run


class _Source:
    """One rank's file as it is now. `head` and `tail` are whole records; `begin` and `tail_begin` lie around the rest."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb", buffering=0)
        self._handle = self._file.fileno()
        size = os.fstat(self._handle).st_size
        head = self._lines(0, min(HEAD, size))
        self.begin = len(head)
        start = self.begin if size <= HEAD + TAIL else size - TAIL
        tail = self._lines(start, size - start)
        self.end = start + len(tail)
        if start > self.begin:
            tail = tail[tail.find(b"\n") + 1 :]
        self.tail_begin = self.end - len(tail)
        self.head, self.tail = _parse(head), _parse(tail)

    def window(self, place: int, size: int) -> list[Record]:
        """The records that lie whole between `place` and `place + size`, of the part between head and tail."""
        return _parse(self._window_lines(place, size))

    def window_with_log(self, place: int) -> list[Record]:
        """Like `window`, and the next logged values if there are none in it."""
        lines = self._window_lines(place, WINDOW)
        if b'"k":"log"' not in lines:
            further = self._window_lines(place + WINDOW, LOG_REACH)
            at = further.find(b'"k":"log"')
            if at >= 0:
                lines += further[further.rfind(b"\n", 0, at) + 1 : further.find(b"\n", at) + 1]
        return _parse(lines)

    def around(self, first: float, last: float) -> list[Record]:
        """Records of about these times (Unix seconds): a rank's file grows evenly, or nearly so."""
        low, high = (self.begin, _time(self.head, -1)), (self.tail_begin, _time(self.tail, 0))
        records: list[Record] = []
        for _ in range(GUESSES):
            if high[1] <= low[1]:
                break
            share = min(1.0, max(0.0, (first - low[1]) / (high[1] - low[1])))
            place = max(self.begin, int(low[0] + share * (high[0] - low[0])) - WINDOW // 2)
            records = self.window(place, 2 * WINDOW)
            if not records:
                break
            if _time(records, 0) > first and place > low[0]:
                high = (place, _time(records, 0))
            elif _time(records, -1) < last and place < high[0]:
                low = (place, _time(records, 0))
            else:
                break
        return records

    def close(self) -> None:
        self._file.close()

    def _window_lines(self, place: int, size: int) -> bytes:
        lines = self._lines(place, max(0, min(size, self.tail_begin - place)))
        return lines[lines.find(b"\n") + 1 :] if place > self.begin else lines

    def _lines(self, place: int, size: int) -> bytes:
        data = os.pread(self._handle, size, place)
        return data[: data.rfind(b"\n") + 1]


def _parse(lines: bytes) -> list[Record]:
    """What is no record is counted when the file is read."""
    return parse_lines(lines.rstrip(b"\n"))[0] if lines else []


def _take_windows(sources: Mapping[int, _Source], clock: Callable[[], float]) -> list[Window]:
    main, others = sources[0], {rank: source for rank, source in sources.items() if rank}
    until = clock() + PATIENCE_SECONDS
    between: dict[int, Window] = {}
    for place in _places(main.begin, main.tail_begin):
        between[place] = _take_window(main, others, place)
        if clock() > until:
            break
    head = _shared({rank: source.head for rank, source in sources.items()})
    windows = [head, *(between[place] for place in sorted(between)), _tails(sources)]
    return _present_line(windows)


def _places(begin: int, end: int) -> Iterator[int]:
    """Evenly spread offsets, each further one in the largest gap."""
    count = max(0, min(WINDOWS, (end - begin) // (4 * WINDOW)))
    bits = max(1, (count - 1).bit_length())
    for number in range(1 << bits):
        place = int(f"{number:0{bits}b}"[::-1], 2)
        if place < count:
            yield begin + (end - begin) * place // count


def _take_window(main: _Source, others: Mapping[int, _Source], place: int) -> Window:
    """Only steps and logged values: what surrounds them is told by head and tail."""
    records = [record for record in main.window_with_log(place) if record.get("k") in ("step", "log")]
    if not others:
        return {0: records}
    steps = [record for record in records if record["k"] == "step"][:STEPS_SHARED]
    logs = [record for record in records if record["k"] == "log"]
    if not steps:
        return {0: logs}
    found = {rank: source.around(_time(steps, 0), _time(steps, -1)) for rank, source in others.items()}
    only_steps = {rank: [each for each in part if each.get("k") == "step"] for rank, part in found.items()}
    return _shared({0: steps + logs, **only_steps})


def _shared(window: Window) -> Window:
    """Without the steps that not every rank has here."""
    if len(window) == 1:
        return window
    common = set.intersection(
        *({str(each.get("s")) for each in part if each.get("k") == "step"} for part in window.values())
    )
    return {
        rank: [each for each in part if each.get("k") != "step" or str(each.get("s")) in common]
        for rank, part in window.items()
    }


def _tails(sources: Mapping[int, _Source]) -> Window:
    """Every rank from the first step on that the tail of rank 0 has."""
    tails = {rank: source.tail for rank, source in sources.items()}
    first = next((record for record in tails[0] if record.get("k") == "step"), None)
    if first is None:
        return tails
    return {rank: tail if rank == 0 else tail[_nearest(tail, first) :] for rank, tail in tails.items()}


def _nearest(records: list[Record], wanted: Record) -> int:
    """Place of the same step in another rank's records; after a restart there may be two of a number."""
    same = [i for i, each in enumerate(records) if each.get("k") == "step" and each.get("s") == wanted.get("s")]
    return min(same, key=lambda i: abs(_time(records, i) - _time([wanted], 0)), default=0)


def _present_line(windows: list[Window]) -> list[Window]:
    """Without the steps that a later start of the trainer went back behind."""
    lowest = {"step": inf, "log": inf}  # apart: a window may begin between a step and its logged values
    kept: list[Window] = []
    for window in reversed(windows):
        kept.append({rank: [each for each in part if _is_before(each, lowest)] for rank, part in window.items()})
        for each in chain.from_iterable(window.values()):
            if (step := _step(each)) is not None:
                lowest[str(each["k"])] = min(lowest[str(each["k"])], step)
    return kept[::-1]


def _is_before(record: Record, lowest: Mapping[str, float]) -> bool:
    step = _step(record)
    return step is None or step < lowest[str(record["k"])]


def _step(record: Record) -> int | None:
    """None for records that are no point of a curve."""
    step = record.get("s")
    return step if record.get("k") in ("step", "log") and isinstance(step, int) else None


def _time(records: list[Record], at: int) -> float:
    found = records[at].get("t") if records else None
    return float(found) if isinstance(found, int | float) else 0.0
