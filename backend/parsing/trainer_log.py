"""LLaMA-Factory's `trainer_log.jsonl` into one series: resumes, jobs that write to one file, nulls and final rows.

Incremental: feed bytes, read the fields. Only the current rows and one small record per writer are kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from backend.parsing.lines import LineSplitter
from backend.parsing.progress import parse_clock
from backend.parsing.trainer_rows import logging_interval, read_number

_PLAIN = {"current_steps", "total_steps", "epoch", "percentage", "elapsed_time", "remaining_time"}
_RENAMED = {"lr": "learning_rate"}
_RIVALS = 64
"""Processes that a row may belong to: older ones have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """One line. Times are seconds; `values` holds what the trainer logged: loss, eval_loss, learning_rate, throughput ..."""

    step: int
    total: int | None
    epoch: float | None
    elapsed: float | None
    remaining: float | None
    values: Mapping[str, float]
    offset: int

    @property
    def is_train(self) -> bool:
        """A point of the training loss."""
        return "loss" in self.values or "reward" in self.values

    @property
    def is_end(self) -> bool:
        """The closing line of a training: progress without any value."""
        return not self.values.keys() & {"loss", "eval_loss", "predict_loss", "reward"}


@dataclass(slots=True)
class Track:
    """The rows that one process wrote."""

    first_row: int
    last_row: int
    step: int
    first_step: int
    elapsed: float
    first_elapsed: float


@dataclass(slots=True)
class TrainerLog:
    """Takes the bytes of the file in order."""

    rows: list[LogRow] = field(default_factory=list)
    tracks: list[Track] = field(default_factory=list)
    bad_lines: int = 0
    cut_line: bool = False
    lr_key: str | None = None
    has_nulls: bool = False
    _splitter: LineSplitter = field(default_factory=LineSplitter)

    def feed(self, data: bytes) -> list[LogRow]:
        """Rows that these bytes complete, in the order of the file."""
        return [row for raw in self._splitter.feed(data) if (row := self._take(raw.data, raw.offset, last=False))]

    def flush(self) -> list[LogRow]:
        """The last line when it has no end: kept when it is complete JSON."""
        return [row for raw in self._splitter.flush() if (row := self._take(raw.data, raw.offset, last=True))]

    @property
    def offset(self) -> int:
        """Start of the line that is still open."""
        return self._splitter.offset

    def _take(self, data: bytes, offset: int, *, last: bool) -> LogRow | None:
        data = data.strip(b"\xef\xbb\xbf\0 \t")
        if not data:
            return None
        try:
            found = json.loads(data)
        except ValueError:
            self.cut_line |= last
            self.bad_lines += not last
            return None
        row = self._row(found, offset) if isinstance(found, dict) else None
        if row is None:
            self.bad_lines += 1
            return None
        self._assign(row)
        self.rows.append(row)
        return row

    def _row(self, found: Mapping[str, object], offset: int) -> LogRow | None:
        step = read_number(found.get("current_steps"))
        if step is None:
            return None
        self.has_nulls |= any(value is None for value in found.values())
        self.lr_key = next((key for key in ("lr", "learning_rate") if key in found), self.lr_key)
        total = read_number(found.get("total_steps"))
        values = {
            _RENAMED.get(key, key): number
            for key, value in found.items()
            if key not in _PLAIN and (number := read_number(value)) is not None
        }
        return LogRow(
            step=int(step), total=int(total) if total is not None else None, epoch=read_number(found.get("epoch")),
            elapsed=_clock(found.get("elapsed_time")), remaining=_clock(found.get("remaining_time")), values=values,
            offset=offset,
        )  # fmt: skip

    def _assign(self, row: LogRow) -> None:
        """Each row continues one process (later step, later time) or begins another one."""
        index, elapsed = len(self.rows), row.elapsed or 0.0
        fitting = [one for one in self.tracks[-_RIVALS:] if _continues(one, row, elapsed)]
        if not fitting:
            self.tracks.append(Track(index, index, row.step, row.step, elapsed, elapsed))
            return
        track = max(fitting, key=lambda one: (one.step, one.elapsed))
        track.last_row, track.step, track.elapsed = index, row.step, elapsed

    @property
    def groups(self) -> list[list[Track]]:
        """Processes that wrote at the same time, one group after another: a new group is a new start."""
        groups: list[list[Track]] = []
        reach = -1
        for track in sorted(self.tracks, key=lambda one: one.first_row):
            if track.first_row > reach or not groups:
                groups.append([])
            groups[-1].append(track)
            reach = max(reach, track.last_row)
        return groups

    @property
    def writers(self) -> int:
        """Jobs that wrote to the file at the same time."""
        return max((len(group) for group in self.groups), default=0)

    def current(self) -> list[LogRow]:
        """Train and eval rows that still count: one per step, the newest start wins."""
        starts = {min(track.first_row for track in group) for group in self.groups}
        kept: dict[tuple[int, bool], LogRow] = {}
        for index, row in enumerate(self.rows):
            if index in starts:
                kept = {key: one for key, one in kept.items() if key[0] < row.step}
            if not row.is_end:
                kept.setdefault((row.step, row.is_train), row)
        return sorted(kept.values(), key=lambda row: (row.step, not row.is_train))

    def superseded(self) -> list[int]:
        """Steps whose older values were replaced by a later start."""
        groups = self.groups
        if len(groups) < 2:
            return []
        first_row = min(track.first_row for track in groups[-1])
        first_step = min(track.first_step for track in groups[-1])
        older = {row.step for row in self.rows[:first_row] if row.is_train}
        return sorted(step for step in older if step >= first_step)

    def resumed_from(self, save_steps: int | None = None) -> int | None:
        """Step of the checkpoint that the last start continues from: one interval before its first row."""
        groups = self.groups
        first = min(track.first_step for track in groups[-1]) if groups else 0
        if len(groups) < 2 and not self._starts_late():
            return None
        interval = self.interval() or 0
        guess = first - interval
        if save_steps and guess > 0:
            guess = (
                (first - 1) // save_steps * save_steps
                if (first - 1) // save_steps * save_steps >= guess - interval
                else guess
            )
        return guess if guess > 0 else None

    def _starts_late(self) -> bool:
        """The file begins in the middle although the clock has just started: a resume into a new file."""
        first = self.rows[0] if self.rows else None
        interval = self.interval()
        if first is None or not interval or first.elapsed is None or len(self.rows) < 2:
            return False
        later = next((row for row in self.rows if row.step > first.step), None)
        if later is None or later.elapsed is None:
            return False
        per_step = (later.elapsed - first.elapsed) / (later.step - first.step)
        return first.step > interval and per_step > 0 and first.elapsed < per_step * first.step / 2

    def interval(self) -> int | None:
        """Steps between two rows."""
        return logging_interval(sorted({row.step for row in self.rows if row.is_train}))

    def remaining_is_wrong(self) -> bool:
        """A resumed trainer divides its elapsed time by all steps: the remaining time is then far too small."""
        for group in self.groups:
            for track in group:
                rows = [row for row in self.rows[track.first_row : track.last_row + 1] if row.is_train][:8]
                if any(_wrong(rows[0], row) for row in rows[1:]):
                    return True
        return False


def _continues(track: Track, row: LogRow, elapsed: float) -> bool:
    if elapsed < track.elapsed:
        return False
    return row.step > track.step or (row.step == track.step and (not row.is_train or row.is_end))


def _wrong(first: LogRow, row: LogRow) -> bool:
    if None in (first.elapsed, row.elapsed, row.remaining, row.total) or row.step <= first.step:
        return False
    assert first.elapsed is not None and row.elapsed is not None and row.remaining is not None and row.total is not None
    if row.elapsed <= first.elapsed:
        return False
    expected = (row.elapsed - first.elapsed) / (row.step - first.step) * (row.total - row.step)
    return expected > 120 and (row.remaining < expected / 3 or row.remaining > expected * 3)


def _clock(value: object) -> float | None:
    if isinstance(value, str):
        return parse_clock(value)
    return read_number(value)
