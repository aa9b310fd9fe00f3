"""Printed trainer dicts into one series: copies of hosts and callbacks joined, resumes that step back, steps from epochs."""

from __future__ import annotations

import itertools
import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from backend.parsing.trainer_dict import TrainerDict

_ONE_SOURCE: frozenset[str | None] = frozenset({None})
_WINDOW = 64
"""Copies of one point are printed close together: further back is another point."""


@dataclass(slots=True)
class Row:
    """One point of training or evaluation. `step` None: the lines do not tell."""

    values: dict[str, float]
    offset: int
    step: int | None
    epoch: float | None
    segment: int
    rounded: bool = False
    sources: frozenset[str | None] = frozenset()

    @property
    def loss(self) -> float | None:
        """`loss`, or the loss of an evaluation."""
        return self.values.get("loss", self.values.get("eval_loss"))


class RecentRows:
    """The last rows, found by their loss: a copy is searched for each point of a long run."""

    def __init__(self) -> None:
        self._rows: deque[tuple[int, Row]] = deque()
        self._by_loss: dict[int, list[Row]] = {}

    def add(self, row: Row) -> None:
        """Keep a row and forget the oldest one."""
        bucket = _bucket(row)  # kept, for joining a more exact copy may change the loss
        self._rows.append((bucket, row))
        self._by_loss.setdefault(bucket, []).append(row)
        if len(self._rows) > _WINDOW:
            oldest, _ = self._rows.popleft()
            del self._by_loss[oldest][0]
            if not self._by_loss[oldest]:
                del self._by_loss[oldest]

    def find_copy(self, row: Row) -> Row | None:
        """The newest row that is the same point."""
        bucket = _bucket(row)
        step = row.step
        for at in (bucket + 1, bucket, bucket - 1):
            for one in reversed(self._by_loss.get(at, ())):
                if (step is None or one.step is None or one.step == step) and _same_point(one, row):
                    return one
        return None


def _bucket(row: Row) -> int:
    loss = row.loss
    return round(loss * 1000) if loss is not None and math.isfinite(loss) else -1


class TrainerRows:
    """Takes dicts in the order of the text."""

    def __init__(self) -> None:
        self.train: list[Row] = []
        self.evals: list[Row] = []
        self.finals: list[Mapping[str, float]] = []
        self.hosts: set[str] = set()
        self.segment_starts: list[int | None] = [None]
        self._recent = RecentRows()
        self._recent_evals = RecentRows()
        self._waiting: list[Row] = []

    def take(self, found: TrainerDict, *, offset: int, step: int | None, source: str | None) -> Row | None:
        """The new row, or None when it is a copy or no point."""
        if source is not None:
            self.hosts.add(source)
        if found.kind == "final":
            self.finals.append(found.values)
            return None
        recent = self._recent if found.kind == "train" else self._recent_evals
        row = Row(
            values=dict(found.values), offset=offset, step=step, epoch=found.values.get("epoch"),
            segment=len(self.segment_starts) - 1, rounded=found.rounded,
            sources=_ONE_SOURCE if source is None else frozenset({source}),
        )  # fmt: skip
        if copy := recent.find_copy(row):
            _join(copy, row)
            return None
        recent.add(row)
        if found.kind == "eval":
            self._take_eval(row)
        elif found.kind == "train":
            self._begin_segment_if_back(row)
            self.train.append(row)
        return row

    def begin_segment(self, resumed_from: int | None) -> None:
        """The trainer says that it continues from a step: what follows replaces older values of the same steps."""
        if self.train or self.evals or self.segment_starts != [None]:
            self.segment_starts.append(resumed_from)
        else:
            self.segment_starts = [resumed_from]

    def place_waiting(self, step: int) -> None:
        """A bar was drawn again after an evaluation whose step was not known."""
        for row in self._waiting:
            row.step = step
        self._waiting.clear()

    def _take_eval(self, row: Row) -> None:
        self.evals.append(row)
        if row.step is None:
            self._waiting.append(row)

    def _begin_segment_if_back(self, row: Row) -> None:
        last = self.train[-1] if self.train else None
        if (
            last is None
            or last.segment != row.segment
            or row.step is None
            or last.step is None
            or row.step >= last.step
        ):
            return
        self.segment_starts.append(None)
        row.segment += 1


def current_rows(rows: list[Row]) -> list[Row]:
    """Rows that still count: a later segment replaces the steps from its first one on."""
    first: dict[int, int] = {}
    for row in rows:
        if row.step is not None:
            first[row.segment] = min(first.get(row.segment, row.step), row.step)
    limit: dict[int, int | None] = {}
    lowest: int | None = None
    for segment in sorted(first, reverse=True):
        limit[segment] = lowest
        lowest = first[segment] if lowest is None else min(lowest, first[segment])
    return [row for row in rows if _still_counts(row, limit.get(row.segment))]


def _still_counts(row: Row, limit: int | None) -> bool:
    return row.step is None or limit is None or row.step < limit


def logging_interval(steps: list[int]) -> int | None:
    """The usual distance between points, None for fewer than two."""
    gaps = Counter(b - a for a, b in itertools.pairwise(steps) if b > a)
    return gaps.most_common(1)[0][0] if gaps else None


def place_by_epoch(rows: Sequence[Row], *, epochs: float, total_steps: int) -> Sequence[Row]:
    """Rows with steps from the epoch, when none has one: it is printed with two digits, so steps snap to the interval."""
    raw = [row.epoch * total_steps / epochs if row.epoch is not None else None for row in rows]
    known = [value for value in raw if value is not None]
    if not known or any(row.step is not None for row in rows):
        return rows
    interval = max(1, round(known[-1] / len(known)))
    return [
        row if value is None else replace(row, step=round(value / interval) * interval or None)
        for row, value in zip(rows, raw, strict=True)
    ]


def _same_point(old: Row, new: Row) -> bool:
    if old.segment != new.segment or (old.step is not None and new.step is not None and old.step != new.step):
        return False
    rounded = old.rounded or new.rounded
    if not _near(old.epoch, new.epoch, 0.0051 if rounded else 1e-9):
        return False
    names = ("loss", "learning_rate") if rounded else tuple(set(old.values) | set(new.values))
    if not all(_agree(old.values.get(name), new.values.get(name), rounded) for name in names):
        return False
    if old.rounded != new.rounded or not new.sources <= old.sources:
        return True
    # printed twice by one and the same source: ranks without a tag, unless nothing in it tells two points apart
    return (old.step is not None and old.step == new.step) or bool(old.loss)


def _agree(old: float | None, new: float | None, rounded: bool) -> bool:
    if old is None or new is None:
        return rounded or old is new
    if math.isnan(old) or math.isnan(new):
        return math.isnan(old) and math.isnan(new)
    return math.isclose(old, new, rel_tol=6e-4, abs_tol=6e-5) if rounded else old == new


def _near(old: float | None, new: float | None, tolerance: float) -> bool:
    if old is None or new is None:
        return old is new
    return abs(old - new) <= tolerance


def _join(old: Row, new: Row) -> None:
    old.sources |= new.sources
    exact, other = (new, old) if old.rounded and not new.rounded else (old, new)
    old.values = {**other.values, **exact.values}
    old.rounded = exact.rounded
    old.step = old.step if old.step is not None else new.step


def read_number(value: object) -> float | None:
    """A JSON value as a number: transformers 5 writes some as text. A truth value is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None
