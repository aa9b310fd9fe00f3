"""Alarms on the pace of a run: each with a healthy twin that must stay silent."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from backend.domain.metrics import StepRecord
from backend.parsing.alarms import Alarm
from backend.parsing.step_alarms import Pace, check_data, check_drift, check_first_step, check_stall, check_stragglers


def rows(seconds: Sequence[float], *, data: float = 0.01, positions: Sequence[float] | None = None) -> list[Pace]:
    counted = positions or [1000.0] * len(seconds)
    return [
        Pace(step=at + 1, seconds=one, data_seconds=data, positions=count)
        for at, (one, count) in enumerate(zip(seconds, counted, strict=True))
    ]


def ranks(*lanes: Callable[[int], tuple[float, float]], count: int = 64) -> dict[int, list[StepRecord]]:
    """Of each rank what gives (seconds, seconds waiting for data) of a step."""
    return {
        rank: [
            StepRecord(
                at=float(step), rank=rank, step=step, seconds=lane(step)[0], data_seconds=lane(step)[1], tokens=None,
                peak_memory_bytes=None,
            )
            for step in range(1, count + 1)
        ]
        for rank, lane in enumerate(lanes)
    }  # fmt: skip


def codes(alarms: list[Alarm]) -> list[str]:
    return [alarm.code for alarm in alarms]


@pytest.mark.parametrize(
    ("usual", "silent", "told"), [(10, 130, True), (10, 90, False), (60, 300, False), (60, 700, True)]
)
def test_a_stall_counts_in_usual_steps_and_not_below_two_minutes(usual: float, silent: float, told: bool) -> None:
    assert codes(check_stall([usual] * 20, silent)) == ["stalled"] * told


def test_a_run_of_few_steps_may_compile_for_minutes() -> None:
    assert check_stall([1.0] * 4, 300) == []
    assert codes(check_stall([1.0] * 4, 700)) == ["stalled"]


def test_a_first_step_that_never_comes_is_told_after_half_an_hour_later_in_a_resume() -> None:
    assert check_first_step(1200) == check_first_step(3000, begin_step=100) == []
    assert [alarm.form for alarm in check_first_step(1900)] == ["stalled.first"]


def test_steps_that_become_slower_for_good_are_a_drift_told_from_where_it_began() -> None:
    slower = [3.0] * 200 + [3.0 + 3 * at / 400 for at in range(200)]
    [alarm] = check_drift(rows(slower))
    assert alarm.code == "slow_drift" and 200 <= (alarm.step or 0) <= 270
    assert alarm.evidence == "A step took 3 s and takes 4.17 s now."


def test_a_burst_of_slow_steps_slow_first_steps_and_noise_are_no_drift() -> None:
    dice = random.Random(3)
    assert check_drift(rows([10.0] * 180 + [30.0] * 20)) == []
    assert check_drift(rows([10.0] * 150 + [20.0] * 40 + [10.0] * 30)) == []
    assert check_drift(rows([0.1] * 2000 + [0.3] * 500)) == []
    assert check_drift(rows([300.0, 90.0, 40.0] + [10.0] * 200)) == []
    for count in range(100, 500, 10):
        assert check_drift(rows([max(0.1, dice.gauss(10, 3)) for _ in range(count)])) == []


def test_longer_samples_take_longer_and_are_no_drift() -> None:
    lengths = [1000.0 + 5 * at for at in range(200)]
    assert check_drift(rows([length / 100 for length in lengths], positions=lengths)) == []


def test_waiting_for_data_counts_when_it_is_usual() -> None:
    [alarm] = check_data(rows([1.0] * 80, data=0.4))
    assert (alarm.code, alarm.severity.value) == ("data_starved", "warning")
    assert alarm.evidence == "40% of the time of the last 64 steps went by waiting for data."
    assert check_data(rows([1.0] * 80, data=0.7))[0].severity.value == "error"


def test_one_worker_of_four_that_is_slow_starves_the_run_too() -> None:
    some = [
        Pace(step=at, seconds=3.0 if at % 4 == 0 else 1.0, data_seconds=2.2 if at % 4 == 0 else 0.1) for at in range(80)
    ]
    assert codes(check_data(some)) == ["data_starved"]


def test_a_few_long_waits_at_the_start_of_epochs_are_no_starving() -> None:
    single = [Pace(step=at, seconds=1 + 60 * (at % 40 == 39), data_seconds=60.0 * (at % 40 == 39)) for at in range(120)]
    assert check_data(single) == []


def test_the_straggler_is_the_rank_that_waits_for_data_itself() -> None:
    [alarm] = check_stragglers(ranks(lambda _: (1.0, 0.01), lambda _: (1.0, 0.3), lambda _: (1.0, 0.02)))
    assert (alarm.code, alarm.numbers["rank"], alarm.step) == ("straggler", 1, 4)
    assert alarm.evidence == "Rank 1 waits 0.3 s for data in a step, the others 0.01 s (100% of the last 61 steps)."


def test_a_lane_that_is_slower_all_the_time_is_a_straggler() -> None:
    [alarm] = check_stragglers(ranks(lambda _: (1.0, 0.01), lambda _: (1.0, 0.01), lambda _: (1.4, 0.01)))
    assert (alarm.form, alarm.numbers["rank"]) == ("straggler.pace", 2)


def test_bursts_turns_and_equal_ranks_are_no_straggler() -> None:
    def burst(step: int) -> tuple[float, float]:
        return (2.0, 1.0) if 30 <= step < 45 else (1.0, 0.01)

    def even(_: int) -> tuple[float, float]:
        return 1.0, 0.4

    assert check_stragglers(ranks(burst, lambda _: (1.0, 0.01))) == []
    assert check_stragglers(ranks(even, even)) == []
    in_turn = [lambda step, own=own: (1.0, 0.5 if step % 4 == own else 0.01) for own in range(4)]
    assert check_stragglers(ranks(*in_turn)) == []
    assert check_stragglers(ranks(lambda _: (1.0, 0.01), lambda _: (1.0, 0.3), count=20)) == []
