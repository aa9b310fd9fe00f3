"""Ranges of settings in, the combinations to train out; eval losses of a group of runs in, the runs to stop early out."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.domain.problem import ArgValue
from backend.errors import InvalidInput

MOST_JOBS = 200
Values = Mapping[str, ArgValue]
"""Setting to value: one combination."""

LEAST_OTHERS = 2
"""Early stopping compares with at least so many other runs."""
WARM_UP_EVALUATIONS = 1
"""A run's first evaluation never stops it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What one setting may be: listed values, or anything between two numbers (`log`: evenly by orders of magnitude)."""

    key: str
    values: tuple[ArgValue, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False

    @property
    def is_listed(self) -> bool:
        return bool(self.values)

    def draw(self, chance: random.Random) -> ArgValue:
        if self.values:
            return chance.choice(self.values)
        if self.log:
            drawn = math.exp(chance.uniform(math.log(self.low), math.log(self.high)))
        else:
            drawn = chance.uniform(self.low, self.high)
        return round(drawn) if self.whole else float(f"{drawn:.4g}")


def build_combinations(ranges: Sequence[Range], *, samples: int | None = None, seed: int = 0) -> tuple[Values, ...]:
    """The whole grid, or `samples` different ones drawn at random. Raises InvalidInput naming the setting that is wrong."""
    if not ranges:
        raise InvalidInput(
            "grid", found="nothing", expected="at least one setting with its values, e.g. learning_rate=1e-5,1e-4"
        )
    keys = [each.key for each in ranges]
    if repeated := next((key for key in keys if keys.count(key) > 1), None):
        raise InvalidInput(repeated, found="named twice", expected="all its values in one list")
    open_range = next((each for each in ranges if not each.is_listed), None)
    if samples is None:
        if open_range is not None:
            raise InvalidInput(
                open_range.key,
                found=f"{open_range.low:g}..{open_range.high:g}",
                expected="listed values, or a number of samples",
            )
        size = math.prod(len(each.values) for each in ranges)
        _check_size(size)
        return tuple(
            dict(zip(keys, values, strict=True)) for values in itertools.product(*(each.values for each in ranges))
        )
    _check_size(samples)
    return _draw(ranges, samples, random.Random(seed))


def _check_size(size: int) -> None:
    if not 1 <= size <= MOST_JOBS:
        raise InvalidInput(
            "grid",
            found=f"{size} runs",
            expected=f"1 to {MOST_JOBS} runs",
            remedy="Name fewer values, or draw samples.",
        )


def _draw(ranges: Sequence[Range], samples: int, chance: random.Random) -> tuple[Values, ...]:
    """Different combinations; fewer when there are no more."""
    found: dict[str, Values] = {}
    for _ in range(samples * 50):
        values = {each.key: each.draw(chance) for each in ranges}
        found.setdefault(repr(values), values)
        if len(found) == samples:
            break
    return tuple(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The evaluations of one run: steps and losses. `running`: it may still be stopped."""

    job: str
    steps: tuple[int, ...]
    losses: tuple[float, ...]
    running: bool

    def best_until(self, step: int) -> float | None:
        """Lowest loss of evaluations up to `step`; None without one. A loss that is no number counts as infinite."""
        known = [
            loss if math.isfinite(loss) else math.inf
            for at, loss in zip(self.steps, self.losses, strict=True)
            if at <= step
        ]
        return min(known, default=None)


def runs_to_stop(traces: Sequence[Trace]) -> tuple[str, ...]:
    """Median rule: a running run whose best loss so far is above the median of the others' best up to the same step.

    Only runs that came as far are compared with, and the first evaluation of a run never stops it.
    """
    return tuple(trace.job for trace in traces if trace.running and _is_behind(trace, traces))


def _is_behind(trace: Trace, traces: Sequence[Trace]) -> bool:
    if len(trace.steps) <= WARM_UP_EVALUATIONS:
        return False
    step = trace.steps[-1]
    others = [
        best
        for other in traces
        if other.job != trace.job
        and other.steps
        and other.steps[-1] >= step
        and (best := other.best_until(step)) is not None
    ]
    own = trace.best_until(step)
    return own is not None and len(others) >= LEAST_OTHERS and own > _median(others)


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
