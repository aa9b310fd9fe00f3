"""Growing numeric columns in, curves that a chart can draw out: newest value of each step, bounded number of points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


GROWTH = 1.5
"""Of a full column: what is not used yet is memory all the same."""


class Column:
    """A float64 column that grows at its end; missing values are NaN."""

    __slots__ = ("_values", "size")

    def __init__(self, missing_before: int = 0) -> None:
        self._values: Floats = np.full(max(16, missing_before), np.nan)  # beyond `size`: not yet written, never shown
        self.size = missing_before

    @classmethod
    def of(cls, values: Floats) -> Column:
        """A column that holds `values`, without a copy; they are copied when it grows."""
        column = cls()
        column._values, column.size = values, len(values)
        return column

    @property
    def values(self) -> Floats:
        """A view of what the column holds; valid until the next `extend`."""
        return self._values[: self.size]

    @property
    def capacity_bytes(self) -> int:
        return self._values.nbytes

    def extend(self, values: Floats | list[float]) -> None:
        needed = self.size + len(values)
        if needed > len(self._values):
            grown = np.empty(max(needed, int(len(self._values) * GROWTH)))
            grown[: self.size] = self.values
            self._values = grown
        self._values[self.size : needed] = values
        self.size = needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """`x` (steps) ascends strictly; `y` NaN = a gap. `odd`: steps whose recorded value was not finite, with that value."""

    x: Floats
    y: Floats
    odd: tuple[tuple[int, float], ...] = ()


MAX_ODD = 200


def newest_of_each(x: Floats) -> NDArray[np.intp] | None:
    """Positions that leave each x once, ascending, the last written winning; None when `x` already is like that."""
    if len(x) < 2 or bool(np.all(x[1:] > x[:-1])):
        return None
    order = np.argsort(x, kind="stable")
    is_last = np.append(x[order][1:] != x[order][:-1], True)
    kept: NDArray[np.intp] = order[is_last]
    return kept


def build_curve(x: Floats, y: Floats, *, recorded: bool) -> Curve:
    """Points as recorded, gaps as NaN. `recorded`: a NaN was written by the trainer, it is not a hole."""
    bad = ~np.isfinite(y)
    if not bad.any():
        return Curve(x=x, y=y)
    odd = tuple((int(x[at]), float(y[at])) for at in np.flatnonzero(bad)[:MAX_ODD]) if recorded else ()
    return Curve(x=x, y=np.where(bad, np.nan, y), odd=odd)


def decimate(curve: Curve, points: int) -> Curve:
    """At most `points` points: lowest and highest of each bucket at their own x, so that no spike is lost.

    First and last point stay. A bucket without any value leaves one gap.
    """
    count = len(curve.x)
    if count <= points:
        return curve
    size = -(-count // max(1, (points - 2) // 2))
    buckets = -(-count // size)
    padded = np.full(buckets * size, np.nan)
    padded[:count] = curve.y
    grid = padded.reshape(buckets, size)
    base = np.arange(buckets) * size
    low = base + np.argmin(np.where(np.isnan(grid), np.inf, grid), axis=1)
    high = base + np.argmax(np.where(np.isnan(grid), -np.inf, grid), axis=1)
    kept = np.unique(np.concatenate(([0], low, high, [count - 1])))
    return Curve(x=curve.x[kept], y=curve.y[kept], odd=curve.odd)
