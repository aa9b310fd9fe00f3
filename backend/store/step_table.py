"""Step records of every rank in, one row a step out: slowest rank, sum of tokens, highest memory, each rank's seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from backend.store.columns import Column, Curve, Floats, build_curve

MAX_LAG = 600
"""Steps one rank may be behind the others (the recorder holds back at most 256) before rows are made without it."""

RANK_SECONDS = "rank_seconds."
DERIVED = (
    "tokens_per_second",
    "seconds_per_step",
    "data_seconds",
    "memory_bytes",
    "padding_share",
    "tokens",
    "elapsed_seconds",
)
FIELDS = ("s", "t", "dt", "data", "tok", "pad", "mem")
_BASE = ("step", "at", "seconds", "data", "tokens", "padding", "memory", "total")


@dataclass(slots=True)
class Waiting:
    """Rows (FIELDS) of one segment, by rank, that are not merged yet. `merged_to` is the last step merged."""

    rows: dict[int, list[Floats]] = field(default_factory=dict)
    merged_to: float = -1.0
    silent: set[int] = field(default_factory=set)
    """Ranks that fell behind by more than MAX_LAG and are not waited for until they report again."""

    def add(self, rank: int, rows: Floats) -> None:
        self.silent.discard(rank)
        self.rows.setdefault(rank, []).append(rows)

    def newest(self) -> dict[int, float]:
        """Last step of each rank that has unmerged rows."""
        return {rank: float(parts[-1][-1, 0]) for rank, parts in self.rows.items() if parts}

    def ready_to(self, expected: int, closed: bool) -> float:
        """Last step that every rank has reported; when the segment is closed, that any rank has."""
        newest = self.newest()
        last = max(newest.values(), default=self.merged_to)
        if closed:
            return last
        waited_for = [newest.get(rank, self.merged_to) for rank in range(expected) if rank not in self.silent]
        behind = min(waited_for, default=last)
        if last - behind <= MAX_LAG:
            return behind
        self.silent |= {rank for rank in range(expected) if last - newest.get(rank, self.merged_to) > MAX_LAG}
        return min(step for step in newest.values() if last - step <= MAX_LAG)


class StepTable:
    """Append-only columns, one row a step in the order of merging; missing values are NaN."""

    def __init__(self) -> None:
        self._columns = {name: Column() for name in _BASE}
        self.ranks: dict[int, Column] = {}
        self.is_sample = False
        """Only some steps are known: each stands for those since the one before it."""

    @property
    def size(self) -> int:
        return self._columns["step"].size

    @property
    def memory_bytes(self) -> int:
        return sum(column.capacity_bytes for column in (*self._columns.values(), *self.ranks.values()))

    def columns(self) -> dict[str, Floats]:
        """Every column by its name; those of ranks by their number."""
        own = {name: column.values for name, column in self._columns.items()}
        return own | {str(rank): column.values for rank, column in self.ranks.items()}

    def restore(self, columns: Mapping[str, Floats]) -> None:
        """Take over what `columns` gave."""
        self._columns = {name: Column.of(columns[name]) for name in _BASE}
        self.ranks = {int(name): Column.of(values) for name, values in columns.items() if name.isdigit()}

    def column(self, name: str) -> Floats:
        """step, at (Unix seconds), seconds, data (seconds), tokens, padding, memory (bytes), total (tokens so far)."""
        return self._columns[name].values

    def merge(self, waiting: Waiting, expected: int, closed: bool, tokens_before: float) -> None:
        """Move the rows that are ready out of `waiting` into the table."""
        until = waiting.ready_to(expected, closed)
        if until <= waiting.merged_to and not closed:
            return
        taken = {rank: rows for rank in sorted(waiting.rows) if len(rows := _take_until(waiting, rank, until))}
        if taken:
            self._append(taken, expected, tokens_before)
        waiting.merged_to = max(waiting.merged_to, until)

    def _append(self, taken: dict[int, Floats], expected: int, tokens_before: float) -> None:
        steps = np.unique(np.concatenate([rows[:, 0] for rows in taken.values()]))
        grid = np.full((len(taken), len(steps), len(FIELDS)), np.nan)
        for index, rows in enumerate(taken.values()):
            grid[index, np.searchsorted(steps, rows[:, 0])] = rows
        highest = np.fmax.reduce(grid, axis=0)
        complete = len(taken) >= expected
        sums = grid[:, :, 4:6].sum(axis=0) if complete else np.full((len(steps), 2), np.nan)
        before = self.size
        total = self._estimated_total(steps, sums[:, 0]) if self.is_sample else np.cumsum(sums[:, 0])
        values = (*highest[:, :4].T, *sums.T, highest[:, 6], tokens_before + total)
        for column, column_values in zip(self._columns.values(), values, strict=True):
            column.extend(column_values)
        self._append_ranks(dict(zip(taken, grid[:, :, 2], strict=True)), before, len(steps))

    def _estimated_total(self, steps: Floats, tokens: Floats) -> Floats:
        before = self.column("step")[-1] if self.size else 0.0
        known = np.nancumsum(tokens * np.maximum(1.0, np.diff(steps, prepend=before)))
        return known if np.isfinite(tokens).any() else np.full(len(steps), np.nan)

    def _append_ranks(self, seconds: dict[int, Floats], before: int, count: int) -> None:
        for rank in seconds:
            self.ranks.setdefault(rank, Column(before))
        for rank, column in self.ranks.items():
            column.extend(seconds.get(rank, np.full(count, np.nan)))

    def has(self, key: str) -> bool:
        """Whether a series of this name has any value to show."""
        if key.startswith(RANK_SECONDS):
            return key in self.rank_keys()
        return key in DERIVED and self.size > 0 and bool(np.isfinite(self._derived(key, slice(None))).any())

    def rank_keys(self) -> list[str]:
        return [f"{RANK_SECONDS}{rank}" for rank in sorted(self.ranks)]

    def curve(self, key: str, rows: slice) -> Curve:
        """One of DERIVED or `rank_seconds.<R>` over `rows`. Raises KeyError for another name."""
        return build_curve(self.column("step")[rows], self._derived(key, rows), recorded=False)

    def _derived(self, key: str, rows: slice) -> Floats:
        if key == "tokens_per_second":
            return _ratio(self.column("tokens")[rows], self.column("seconds")[rows])
        if key == "padding_share":
            padding = self.column("padding")[rows]
            return _ratio(padding, padding + self.column("tokens")[rows])
        if key == "elapsed_seconds":
            elapsed: Floats = self.column("at")[rows] - (self.column("at")[:1] - self.column("seconds")[:1])
            return np.round(elapsed, 6)  # Unix seconds have no more digits
        if key.startswith(RANK_SECONDS):
            return self.ranks[int(key.removeprefix(RANK_SECONDS))].values[rows]
        return self.column(_STORED_AS[key])[rows]


_STORED_AS = {
    "seconds_per_step": "seconds",
    "data_seconds": "data",
    "memory_bytes": "memory",
    "tokens": "total",
}


def _ratio(part: Floats, whole: Floats) -> Floats:
    ratio: Floats = np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)
    return ratio


def _take_until(waiting: Waiting, rank: int, until: float) -> Floats:
    """Rows of `rank` after those merged already and up to step `until`, ascending, the last written of a step winning."""
    rows = np.concatenate(waiting.rows.pop(rank))
    rows = rows[rows[:, 0] > waiting.merged_to]
    if np.any(rows[1:, 0] <= rows[:-1, 0]):
        _, last = np.unique(rows[::-1, 0], return_index=True)
        rows = rows[::-1][last]
    later = rows[:, 0] > until
    if later.any():
        waiting.rows[rank] = [rows[later]]
    return rows[~later]
