"""A run's curves in, its every point out as lines of CSV: one row a step, one column a series, gaps empty."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from backend.services.views import CurveView, Series

ROWS_AT_ONCE = 5_000


def csv_lines(series: Series) -> Iterator[bytes]:
    """A header, then portions of rows; a value that is no finite number is its word (nan, inf)."""
    curves = series.series
    steps = np.unique(np.concatenate([curve.x for curve in curves.values()])) if curves else np.empty(0, np.int64)
    yield _lines([["step", *curves]])
    for start in range(0, len(steps), ROWS_AT_ONCE):
        part = steps[start : start + ROWS_AT_ONCE]
        yield _lines(_rows(part, curves))


def _rows(steps: NDArray[np.int64], curves: Mapping[str, CurveView]) -> list[list[str]]:
    columns = [_column(steps, curve) for curve in curves.values()]
    return [[str(step), *cells] for step, *cells in zip(steps.tolist(), *columns, strict=True)]


def _column(steps: NDArray[np.int64], curve: CurveView) -> list[str]:
    """Cells of one curve at `steps`; "" where it has no point or a gap."""
    at = np.searchsorted(curve.x, steps)
    inside = np.minimum(at, max(0, len(curve.x) - 1))
    there = (at < len(curve.x)) & (curve.x[inside] == steps) if len(curve.x) else np.zeros(len(steps), bool)
    values = np.full(len(steps), np.nan)
    values[there] = curve.y[inside[there]]
    cells = ["" if value != value else repr(value) for value in values.tolist()]
    for step, word in curve.odd:
        found = int(np.searchsorted(steps, step))
        if found < len(steps) and steps[found] == step:
            cells[found] = word
    return cells


def _lines(rows: list[list[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode()
