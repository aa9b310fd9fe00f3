"""Samples into tiers and back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from backend.errors import StoreFault
from backend.store.telemetry import TelemetryStore, Tier

CARD = "0000:1b:00.0"
START = 1_700_000_000 // 3600 * 3600
SMALL = (
    Tier(step_seconds=1, keep_seconds=120, window=30, statistics=1),
    Tier(step_seconds=10, keep_seconds=1200, window=12),
    Tier(step_seconds=60, keep_seconds=86_400, window=10),
)


def _fill(store: TelemetryStore, seconds: int, value: Callable[[int], float | None], start: int = START) -> None:
    for second in range(seconds):
        store.append(start + second, {CARD: {"socket_power_watts": value(second)}}, {})


def test_every_tier_gives_back_what_went_in(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path / "t.sqlite", SMALL)
    _fill(store, 600, lambda second: 100 + second % 10)
    now = START + 600
    fine = store.load_history(CARD, "socket_power_watts", now - 100, now, points=1000, now=now)
    assert fine.step_seconds == 1
    assert fine.mean.tolist() == [100 + second % 10 for second in range(500, 600)]
    middle = store.load_history(CARD, "socket_power_watts", START, now - 10, points=1000, now=now)
    assert middle.step_seconds == 10
    assert len(middle.mean) == 59
    assert set(middle.mean) == {104.5} and set(middle.low) == {100} and set(middle.high) == {109}
    coarse = store.load_history(CARD, "socket_power_watts", START, now - 60, points=9, now=now)
    assert coarse.step_seconds == 60
    assert coarse.times.tolist() == [START + 60 * minute for minute in range(9)]


def test_missing_stays_missing_and_zero_stays_zero(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path / "t.sqlite", SMALL)
    _fill(store, 100, lambda second: None if 20 <= second < 60 else 0.0)
    fine = store.load_history(CARD, "socket_power_watts", START, START + 99, points=1000, now=START + 100)
    assert math.isnan(fine.mean[30]) and fine.mean[10] == 0.0
    middle = store.load_history(CARD, "socket_power_watts", START, START + 89, points=9, now=START + 100)
    assert [None if math.isnan(value) else value for value in middle.mean] == [0, 0, None, None, None, None, 0, 0, 0]


def test_time_without_a_worker_is_a_gap_not_a_line(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path / "t.sqlite", SMALL)
    _fill(store, 10, lambda second: 5.0)
    _fill(store, 10, lambda second: 6.0, START + 40)
    history = store.load_history(CARD, "socket_power_watts", START, START + 60, points=1000, now=START + 60)
    away = (history.times >= START + 10) & (history.times < START + 40)
    assert away.any() and np.isnan(history.mean[away]).all()
    assert history.mean[~away].tolist() == [5.0] * 10 + [6.0] * 10


def test_time_before_the_first_sample_is_no_gap(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path / "t.sqlite", SMALL)
    _fill(store, 40, lambda second: 5.0, START + 20)
    history = store.load_history(CARD, "socket_power_watts", START - 60, START + 60, points=1000, now=START + 60)
    assert history.times[0] == START + 20
    assert history.mean.tolist() == [5.0] * 40


def test_decimation_keeps_spikes(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path / "t.sqlite", SMALL)
    _fill(store, 100, lambda second: 900.0 if second == 57 else 100.0)
    history = store.load_history(CARD, "socket_power_watts", START, START + 99, points=10, now=START + 100)
    assert history.high.max() == 900.0
    assert len(history.times) <= 10
    assert history.low.min() == 100.0


def test_restart_in_the_middle_of_a_slot_loses_no_sample_of_it(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    _fill(TelemetryStore(path, SMALL), 5, lambda second: 10.0)
    second = TelemetryStore(path, SMALL)
    _fill(second, 6, lambda second: 20.0, START + 5)
    history = second.load_history(CARD, "socket_power_watts", START, START + 10, points=1, now=START + 11)
    assert history.step_seconds == 10
    assert history.mean.tolist() == [15.0]


def test_old_samples_are_dropped(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path / "t.sqlite", SMALL)
    _fill(store, 1000, lambda second: 1.0)
    chunks = store._query("select min(slot) from chunks where tier = 1", ())[0][0]
    assert chunks >= START + 1000 - 120 - 2 * 30
    assert (
        store.load_history(CARD, "socket_power_watts", START, START + 900, points=1000, now=START + 1000).step_seconds
        == 10
    )


def test_states_and_clearings(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path / "t.sqlite")
    assert store.load_state("devices") is None
    store.append(START, {}, {"devices": json.dumps([{"id": CARD}])})
    assert store.load_state("devices") == (START, [{"id": CARD}])
    other = TelemetryStore(tmp_path / "t.sqlite")
    other.request_clearing(CARD, START)
    assert store.take_clearings() == (CARD,)
    assert store.take_clearings() == ()


def test_unknown_device_is_empty_and_unknown_key_is_named(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path / "t.sqlite")
    assert store.load_history("nothing", "socket_power_watts", 0, 10).times.size == 0
    with pytest.raises(KeyError, match="colour"):
        store.load_history(CARD, "colour", 0, 10)


def test_bad_document_changes_nothing(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path / "t.sqlite")
    with pytest.raises(StoreFault):
        store.append(START, {CARD: {"socket_power_watts": 1.0}}, {"bad": object()})  # type: ignore[dict-item]
    assert store.load_history(CARD, "socket_power_watts", START - 5, START + 5).times.size == 0


def test_newer_file_is_refused(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path / "t.sqlite")
    store._query("pragma user_version = 99", ())
    with pytest.raises(StoreFault, match="newer"):
        TelemetryStore(tmp_path / "t.sqlite")


def test_a_chunk_of_fewer_columns_reads_as_missing(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path / "t.sqlite", SMALL)
    _fill(store, 70, lambda second: 1.0)
    store._query("update tail set sample = substr(sample, 1, 8)", ())
    history = store.load_history(CARD, "socket_power_watts", START + 62, START + 69, now=START + 70)
    assert np.isnan(history.mean).all()
