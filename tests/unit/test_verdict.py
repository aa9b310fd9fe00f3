"""How a run ended, from the exit record, the ranks' last words and the console."""

from typing import Any

import pytest

from backend.domain.job import StopMode, TerminationReason
from backend.planning.verdict import ExitRecord, RankEnds, judge_end

R = TerminationReason


def ended(**changes: Any) -> ExitRecord:
    values: dict[str, Any] = {"started_at": 1.0, "ended_at": 2.0, "exit_code": 0, "signal": None, "stop_mode": None}
    return ExitRecord(**{**values, **changes})


def ranks(**changes: Any) -> RankEnds:
    values: dict[str, Any] = {
        "all_done": False,
        "any_failed": False,
        "stopped": False,
        "step": 7,
        "checkpoint_step": None,
        "error": "",
        "phase": "training",
    }
    return RankEnds(**{**values, **changes})


@pytest.mark.parametrize(
    ("record", "said", "reason"),
    [
        (ended(), ranks(all_done=True), R.COMPLETED),
        (ended(), ranks(all_done=True, stopped=True), R.STOPPED_AFTER_SAVE),
        (ended(stop_mode=StopMode.SAVE, ladder=("asked",)), ranks(all_done=True), R.COMPLETED),
        (ended(exit_code=1, stop_mode=StopMode.NO_SAVE, ladder=("terminated",)), ranks(), R.STOPPED_WITHOUT_SAVE),
        (ended(exit_code=None, signal=9, stop_mode=StopMode.KILL, ladder=("killed",)), ranks(), R.KILLED_BY_USER),
        (
            ended(exit_code=1, stop_mode=StopMode.SAVE, ladder=("asked",)),
            ranks(any_failed=True, error="OSError: full"),
            R.TRAINER_FAILED,
        ),
        (ended(exit_code=1), ranks(any_failed=True, error="ValueError: x"), R.TRAINER_FAILED),
        (ended(exit_code=None, signal=9), ranks(), R.KILLED_BY_SIGNAL),
        (ended(exit_code=None, launch_error="python: not found"), ranks(step=None), R.LAUNCH_FAILED),
        (None, ranks(), R.SUPERVISOR_VANISHED),
        (None, ranks(all_done=True), R.COMPLETED),
        (None, ranks(any_failed=True, error="ValueError: x"), R.TRAINER_FAILED),
    ],
)
def test_reason(record: ExitRecord | None, said: RankEnds, reason: TerminationReason) -> None:
    assert judge_end(record, said, b"")[0] is reason


def test_rank_that_was_killed_is_named_from_the_launchers_block() -> None:
    reason, message = judge_end(ended(exit_code=1), ranks(checkpoint_step=5), b"  exitcode  : -9 (pid: 4711)\n")
    assert reason is R.KILLED_BY_SIGNAL
    assert "4711" in message and "SIGKILL (9)" in message and "step 5" in message


def test_errors_of_the_other_ranks_do_not_hide_the_killed_one() -> None:
    tail = b"  exitcode  : 1 (pid: 1)\n  exitcode  : -9 (pid: 2)\n"
    said = ranks(any_failed=True, error="RuntimeError: Connection closed by peer")
    assert judge_end(ended(exit_code=1), said, tail)[0] is R.KILLED_BY_SIGNAL


def test_ranks_that_the_launcher_terminated_are_no_cause() -> None:
    tail = b"  exitcode  : 1 (pid: 1)\n  exitcode  : -15 (pid: 2)\n"
    assert judge_end(ended(exit_code=1), ranks(any_failed=True, error="ValueError: x"), tail) == (
        R.TRAINER_FAILED,
        "ValueError: x",
    )


def test_message_says_what_is_kept() -> None:
    assert "No checkpoint" in judge_end(None, ranks(), b"")[1]


def test_save_that_never_came_is_said() -> None:
    record = ended(exit_code=1, stop_mode=StopMode.SAVE, ladder=("asked", "save_timed_out", "terminated"))
    assert "within the time limit" in judge_end(record, ranks(), b"")[1]
