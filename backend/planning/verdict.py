"""How the launcher ended and what the ranks said in, the TerminationReason with its message out. Pure."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from backend.domain.job import StopMode, TerminationReason

_RANK_SIGNAL = re.compile(rb"exitcode\s*:\s*-(\d+)\s*\(pid:\s*(\d+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRecord:
    """exit.json of the supervisor."""

    started_at: float
    ended_at: float
    exit_code: int | None
    signal: int | None
    stop_mode: StopMode | None
    ladder: tuple[str, ...] = ()
    launch_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnds:
    """What the recorders wrote: `all_done`: every rank returned from run_exp; `stopped`: on request, at `step`."""

    all_done: bool
    any_failed: bool
    stopped: bool
    step: int | None
    checkpoint_step: int | None
    error: str
    phase: str


def judge_end(exit_record: ExitRecord | None, ranks: RankEnds, console_tail: bytes) -> tuple[TerminationReason, str]:
    """The reason and a message for people. `exit_record` None: the supervisor vanished without a word."""
    if exit_record is None:
        return _judge_without_record(ranks)
    if exit_record.launch_error:
        return TerminationReason.LAUNCH_FAILED, f"The command could not be started: {exit_record.launch_error}."
    if exit_record.exit_code == 0:
        return _judge_clean_end(ranks)
    if exit_record.stop_mode is not None and {"terminated", "killed"} & set(exit_record.ladder):
        return _judge_forced_stop(exit_record, ranks)
    return _judge_failure(exit_record, ranks, console_tail)


def _judge_without_record(ranks: RankEnds) -> tuple[TerminationReason, str]:
    if ranks.all_done:
        return _judge_clean_end(ranks)
    if ranks.any_failed:
        return TerminationReason.TRAINER_FAILED, ranks.error or "The trainer reported an error."
    where = f"step {ranks.step}" if ranks.step is not None else ranks.phase or "start"
    return (
        TerminationReason.SUPERVISOR_VANISHED,
        f"The supervisor process disappeared without a record (killed, or the host restarted); last known: {where}. "
        f"{_what_is_kept(ranks)}",
    )


def _judge_clean_end(ranks: RankEnds) -> tuple[TerminationReason, str]:
    if not ranks.stopped:
        return TerminationReason.COMPLETED, ""
    return TerminationReason.STOPPED_AFTER_SAVE, f"Stopped on request at step {ranks.step}. {_what_is_kept(ranks)}"


def _judge_forced_stop(exit_record: ExitRecord, ranks: RankEnds) -> tuple[TerminationReason, str]:
    kept = _what_is_kept(ranks)
    if exit_record.stop_mode is StopMode.KILL:
        return TerminationReason.KILLED_BY_USER, f"Killed on request. {kept}"
    if exit_record.stop_mode is StopMode.SAVE and "save_timed_out" in exit_record.ladder:
        return (
            TerminationReason.STOPPED_WITHOUT_SAVE,
            f"Stopped: no checkpoint was written within the time limit. {kept}",
        )
    if exit_record.stop_mode is StopMode.SAVE and ranks.step is None:
        return TerminationReason.STOPPED_WITHOUT_SAVE, "Stopped before the first step: there was nothing to save."
    return TerminationReason.STOPPED_WITHOUT_SAVE, f"Stopped on request without saving. {kept}"


def _judge_failure(exit_record: ExitRecord, ranks: RankEnds, console_tail: bytes) -> tuple[TerminationReason, str]:
    if exit_record.signal is not None:
        return (
            TerminationReason.KILLED_BY_SIGNAL,
            f"The launcher was ended by {signal_name(exit_record.signal)} from outside. {_what_is_kept(ranks)}",
        )
    # A killed rank makes the others fail with "connection closed": their errors are consequences. torchrun itself ends the
    # rest with SIGTERM, which proves nothing.
    killed = [
        (int(number), int(pid)) for number, pid in _RANK_SIGNAL.findall(console_tail) if int(number) != signal.SIGTERM
    ]
    if killed:
        number, pid = killed[0]
        return (
            TerminationReason.KILLED_BY_SIGNAL,
            f"A training process (pid {pid}) was ended by {signal_name(number)}. {_what_is_kept(ranks)}",
        )
    return TerminationReason.TRAINER_FAILED, ranks.error or f"The trainer ended with exit code {exit_record.exit_code}."


def _what_is_kept(ranks: RankEnds) -> str:
    if ranks.checkpoint_step is None:
        return "No checkpoint was saved."
    return f"Last complete checkpoint: step {ranks.checkpoint_step}."


def signal_name(number: int) -> str:
    """`SIGKILL (9)`."""
    try:
        return f"{signal.Signals(number).name} ({number})"
    except ValueError:
        return f"signal {number}"
