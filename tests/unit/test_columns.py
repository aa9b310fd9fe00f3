"""Curves that a chart can draw."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from backend.store.columns import Column, Curve, build_curve, decimate, newest_of_each


def test_column_grows_and_starts_with_missing_values() -> None:
    column = Column(3)
    column.extend([1.0] * 100)
    assert column.size == 103
    assert np.isnan(column.values[:3]).all() and (column.values[3:] == 1).all()


def test_newest_value_of_each_step_wins_in_ascending_order() -> None:
    x = np.array([1.0, 2, 3, 2, 3, 4, 4])
    kept = newest_of_each(x)
    assert kept is not None and kept.tolist() == [0, 3, 4, 6]
    assert newest_of_each(np.array([1.0, 2, 9])) is None


def test_recorded_nan_is_a_gap_that_is_named_but_a_hole_is_only_a_gap() -> None:
    x, y = np.array([1.0, 2, 3]), np.array([0.5, np.nan, np.inf])
    recorded = build_curve(x, y, recorded=True)
    assert np.isnan(recorded.y[1:]).all()
    assert [(step, str(value)) for step, value in recorded.odd] == [(2, "nan"), (3, "inf")]
    assert build_curve(x, y, recorded=False).odd == ()


def test_decimation_keeps_a_single_spike_and_both_ends() -> None:
    y = np.sin(np.arange(100_000) / 5000)
    y[54_321], y[70_001] = 99.0, -99.0
    small = decimate(Curve(x=np.arange(100_000, dtype=float), y=y), 1500)
    assert len(small.x) <= 1500
    assert small.y.max() == 99.0 and small.x[small.y.argmax()] == 54_321
    assert small.y.min() == -99.0 and small.x[small.y.argmin()] == 70_001
    assert (small.x[0], small.x[-1]) == (0, 99_999)


def test_decimation_leaves_a_gap_where_nothing_was_recorded() -> None:
    y = np.ones(1000)
    y[400:600] = np.nan
    small = decimate(Curve(x=np.arange(1000.0), y=y), 50)
    inside = (small.x > 410) & (small.x < 590)
    assert inside.any() and np.isnan(small.y[inside]).all()


@given(st.lists(st.floats(allow_infinity=False), min_size=1, max_size=300), st.integers(16, 100))
def test_decimation_is_bounded_ascending_and_keeps_the_extremes(values: list[float], points: int) -> None:
    curve = Curve(x=np.arange(len(values), dtype=float), y=np.array(values))
    small = decimate(curve, points)
    assert len(small.x) <= points
    assert (np.diff(small.x) > 0).all()
    np.testing.assert_array_equal(small.y, curve.y[small.x.astype(int)])
    finite = curve.y[~np.isnan(curve.y)]
    if len(finite):
        assert (np.nanmax(small.y), np.nanmin(small.y)) == (finite.max(), finite.min())
