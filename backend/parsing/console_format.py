"""A read console into the name of the program that wrote it."""

from __future__ import annotations

from backend.parsing.console import ConsoleReader
from backend.parsing.failure import Verdict


def detect_format(reader: ConsoleReader, verdict: Verdict) -> str:
    """Which program's console this is."""
    marks, steps, job = reader.marks, reader.steps.forms, reader.job
    if "megatron" in steps:
        return "megatron_console"
    if "verl" in steps:
        return "ray_console" if marks.ray else "plain_console"
    if "rlhf" in steps:
        return "deepspeed_rlhf_console"
    if marks.ray and reader.rccl.lines < marks.lines:
        return "ray_console"
    if reader.rows.train or reader.rows.evals:
        return "hf_console" if not _bar_only(reader) else "plain_console"
    if reader.deepspeed.lines or "pipeline" in steps:
        return "deepspeed_console"
    if "words" in steps or job.job == "eval" or job.harness_starts:
        return "plain_console"
    root_is_trainers = verdict.root is not None and verdict.root.trainer
    if marks.trainer or reader.rows.finals or job.total_steps or root_is_trainers or job.job == "predict":
        return "hf_console"
    if reader.rccl.lines:
        return "rccl_debug"
    return "hf_console" if reader.failure.last_frames else "plain_console"


def _bar_only(reader: ConsoleReader) -> bool:
    """Points that come from the postfix of a bar, in a console without any word of transformers."""
    return not reader.marks.trainer and all(
        set(row.values) <= {"loss", "lr"} and row.epoch is None for row in reader.rows.train
    )
