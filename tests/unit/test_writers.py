"""Two runs that write to one log, told from resumes and from runs begun anew."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from backend.parsing.writers import WriterWatch


def watch(rows: Iterable[tuple[float, float]]) -> WriterWatch:
    found = WriterWatch(file="trainer_log.jsonl")
    for step, clock in rows:
        found.take(step, clock)
    return found


def run(first: int, last: int, every: int = 5, begin: float = 0.0, pace: float = 2.0) -> list[tuple[float, float]]:
    return [(step, begin + pace * (step - first)) for step in range(first, last + 1, every)]


def test_rows_that_take_turns_are_two_writers() -> None:
    both = chain.from_iterable(zip(run(200, 300), run(5, 105), strict=True))
    alarm = watch([*run(5, 195), *both]).alarm()
    assert alarm is not None
    assert alarm.evidence == "In trainer_log.jsonl the rows of two runs take turns, near step 300 and near step 105."
    assert alarm.step == 300


def test_rows_that_come_in_blocks_are_two_writers_as_well() -> None:
    first, second = run(200, 400), run(5, 205)
    blocks = [row for at in range(0, 40, 3) for row in (*first[at : at + 3], *second[at : at + 3])]
    assert watch(blocks).alarm() is not None


def test_two_runs_in_lockstep_are_two_writers() -> None:
    assert watch([row for row in run(5, 100) for _ in range(2)]).alarm() is not None


def test_a_resume_and_a_run_begun_anew_are_one_writer() -> None:
    assert watch([*run(5, 200), *run(105, 300)]).alarm() is None
    assert watch([*run(5, 200), *run(5, 300)]).alarm() is None


def test_a_crash_loop_is_one_writer() -> None:
    assert watch([row for _ in range(12) for row in run(105, 120)]).alarm() is None
    assert watch([row for turn in range(12) for row in run(105, 125, begin=100.0 * turn)]).alarm() is None


def test_a_resume_that_logs_at_other_steps_is_one_writer() -> None:
    assert watch([*run(10, 200, every=10), *run(147, 400, every=7, pace=9.0)]).alarm() is None


def test_copies_that_every_node_prints_are_one_writer() -> None:
    found = WriterWatch(file="console.log", unit="epoch")
    for at in range(60):
        found.take(at / 10, value=f"{at}")
        found.take((at - 2) / 10, value=f"{at - 2}")
    assert found.alarm() is None


def test_two_writers_that_are_over_are_no_alarm_any_more() -> None:
    both = chain.from_iterable(zip(run(200, 300), run(5, 105), strict=True))
    assert watch([*both, *run(305, 600)]).alarm() is None
