"""A read console into how the job ended: the cause, the outcome, and where it was."""

from __future__ import annotations

from backend.parsing.console import ConsoleReader
from backend.parsing.console_series import Series, last_step, total_steps
from backend.parsing.failure import Verdict
from backend.parsing.health import Health
from backend.parsing.log_facts import STOPPED_CAUSES
from backend.parsing.log_hints import LogHints
from backend.parsing.progress import parse_clock


def find_cause(reader: ConsoleReader, verdict: Verdict, health: Health) -> str | None:
    """The one cause to name: of the failure, of the stop, else of sick numbers."""
    if verdict.root is not None:
        return _refine(verdict)
    if _stopped_by_scheduler(reader, verdict):
        return "cancelled"
    return None if verdict.failed else health.root_cause


def find_outcome(
    reader: ConsoleReader, series: Series, verdict: Verdict, root: str | None, detected: str, hints: LogHints
) -> str:
    """completed, failed, stopped, running or unknown."""
    if root in STOPPED_CAUSES:
        return "stopped"
    if verdict.failed:
        return "failed"
    done = reader.deepspeed.exited_well and not reader.deepspeed.killed
    if reader.job.ended_offset >= max(reader.progress_offset, 0) or done:
        return "completed"
    if detected == "rccl_debug":
        return "running"
    return "running" if _is_unfinished(reader, series, hints) else "unknown"


def find_phase(reader: ConsoleReader, verdict: Verdict, series: Series) -> str | None:
    """Where the job was when the log ends: what it printed last, else where its stack stood."""
    if series.train or reader.bars.step is not None:
        return "training"
    if verdict.root is not None and verdict.root.phase and reader.job.phase is None:
        return verdict.root.phase
    if reader.job.phase is not None:
        return reader.job.phase
    if reader.bars.data_bar is not None:
        return "tokenizing"
    frames = list(reader.failure.last_frames)
    return next((phase for path, name in reversed(frames) if (phase := reader.job.phase_of_frame(path, name))), None)


def _refine(verdict: Verdict) -> str:
    """Causes that only the numbers in the text tell apart."""
    assert verdict.root is not None
    code = verdict.root.code
    if code != "gpu_oom":
        return code
    facts = verdict.root.facts
    held, capacity = facts.get("held_elsewhere_gib"), facts.get("capacity_gib")
    if isinstance(held, float) and isinstance(capacity, float) and held > 0.5 * capacity:
        return "gpu_memory_held_elsewhere"
    return code


def _stopped_by_scheduler(reader: ConsoleReader, verdict: Verdict) -> bool:
    """Slurm is clearing a job away that printed no error and had time left."""
    slurm = reader.job.slurm
    if (
        verdict.failed
        or slurm.get("JobState") != "COMPLETING"
        or slurm.get("Reason") != "None"
        or reader.job.ended_offset >= 0
    ):
        return False
    ran, limit = _slurm_clock(slurm.get("RunTime", "")), _slurm_clock(slurm.get("TimeLimit", ""))
    return ran is not None and (limit is None or ran < limit)


def _slurm_clock(text: str) -> float | None:
    """`1-00:00:00` and `11:32:14`."""
    days, _, rest = text.rpartition("-")
    seconds = parse_clock(rest)
    return seconds + 86400 * int(days) if seconds is not None and days.isdigit() else seconds


def _is_unfinished(reader: ConsoleReader, series: Series, hints: LogHints) -> bool:
    """The plan is known and not reached, or the last line is being written."""
    total, step = total_steps(reader), last_step(reader, series)
    if total is not None and step is not None:
        return step < total
    if reader.marks.cut_dict:
        return True
    epoch = series.train[-1].epoch if series.train else None
    if epoch is None or not epoch:
        return total is not None and bool(series.train)
    planned = reader.job.epochs or hints.epochs
    return epoch < planned if planned else abs(epoch - round(epoch)) > 1e-6
