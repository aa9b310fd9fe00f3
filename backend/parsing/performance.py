"""Times, rates and settings in logs into hints about speed: where time goes although nothing failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from backend.domain.problem import Severity
from backend.parsing.log_hints import LogHints

if TYPE_CHECKING:
    from backend.parsing.console import ConsoleReader
    from backend.parsing.telemetry.rows import GpuRow

LONG_PREPROCESSING_SECONDS = 1800.0
BUBBLE_SHARE = 0.10
DATA_SHARE = 0.25
WAITING_POWER_SHARE = 0.45
IDLE_PERCENT = 5
SECONDS_PER_LONG_EXAMPLE = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedFinding:
    """One hint with the numbers that prove it."""

    code: str
    severity: Severity
    evidence: str


def check_console_speed(reader: ConsoleReader, hints: LogHints) -> list[SpeedFinding]:
    """Hints in a console."""
    return [
        *_check_preprocessing(reader), *_check_pipeline(reader), *_check_data(reader), *_check_throughput(reader),
        *_check_timeout(reader, hints),
    ]  # fmt: skip


def check_gpu_table(rows: Sequence[GpuRow]) -> list[SpeedFinding]:
    """Hints in one table of a GPU tool: busy at low power is waiting, as is one idle GPU among busy ones."""
    waiting = [row.index for row in rows if _is_waiting(row)]
    busy = [row for row in rows if row.gfx_activity_percent is not None and row.gfx_activity_percent >= 95]
    idle = [row.index for row in rows if _is_idle_with_memory(row)]
    if waiting:
        return [_misleads(f"GPU {_names(waiting)}: 100 % busy at low power")]
    if busy and idle:
        return [_misleads(f"GPU {_names(idle)} is idle while {len(busy)} others are 100 % busy: they wait for it")]
    return []


def _misleads(evidence: str) -> SpeedFinding:
    return SpeedFinding(code="utilisation_misleads", severity=Severity.WARNING, evidence=evidence)


def _names(numbers: Sequence[int]) -> str:
    return ", ".join(str(one) for one in numbers)


def _is_waiting(row: GpuRow) -> bool:
    if row.gfx_activity_percent is None or row.socket_power_watts is None or row.gfx_activity_percent < 95:
        return False
    limit = row.power_cap_watts or 0
    return bool(limit) and row.socket_power_watts < WAITING_POWER_SHARE * limit


def _is_idle_with_memory(row: GpuRow) -> bool:
    idle = row.gfx_activity_percent is not None and row.gfx_activity_percent <= IDLE_PERCENT
    return idle and (row.vram_used_percent or 0) > IDLE_PERCENT


def _check_preprocessing(reader: ConsoleReader) -> list[SpeedFinding]:
    bar = reader.bars.data_bar
    if bar is None:
        return []
    found = []
    if bar.elapsed >= LONG_PREPROCESSING_SECONDS and reader.bars.step is None:
        found.append(_warning("gpu_idle_in_preprocessing", f"{bar.desc} {bar.elapsed:.0f} s"))
    if bar.done and bar.elapsed / bar.done >= SECONDS_PER_LONG_EXAMPLE:
        found.append(_warning("long_sequences", f"{bar.elapsed / bar.done:.0f} s for one example"))
    return found


def _check_pipeline(reader: ConsoleReader) -> list[SpeedFinding]:
    times = reader.deepspeed.times
    waiting = times.get("pipe_recv_grad", 0.0)
    work = times.get("forward", 0.0) + times.get("backward", 0.0)
    if work and waiting / work >= BUBBLE_SHARE:
        return [_warning("pipeline_bubble", f"pipe_recv_grad {waiting:.0f} ms of {work:.0f} ms work")]
    return []


def _check_data(reader: ConsoleReader) -> list[SpeedFinding]:
    """Waiting for data in DeepSpeed's timers, Megatron's, or step lines in words."""
    times = reader.deepspeed.times
    waiting = times.get("batch_input", 0.0)
    whole = waiting + times.get("forward", 0.0) + times.get("backward", 0.0)
    if whole > waiting and waiting / whole >= DATA_SHARE:
        return [_starved(f"batch_input {waiting:.0f} ms of {whole:.0f} ms")]
    timers, steps = reader.steps.timers, reader.steps.lines
    whole = steps[-1].values.get("milliseconds_per_step", 0.0) if steps else 0.0
    waiting = timers.get("batch-generator", 0.0)
    if whole and waiting / whole >= DATA_SHARE:
        return [_starved(f"batch-generator {waiting:.0f} ms of {whole:.0f} ms a step")]
    rows = [line.values for line in reader.steps.lines[-64:] if {"data_seconds", "step_seconds"} <= line.values.keys()]
    if rows:
        waiting, whole = median(row["data_seconds"] for row in rows), median(row["step_seconds"] for row in rows)
        if whole and waiting / whole >= DATA_SHARE:
            return [_starved(f"data {waiting:g} s of {whole:g} s a step")]
    return []


def _check_throughput(reader: ConsoleReader) -> list[SpeedFinding]:
    rows = [row.values["throughput"] for row in reader.rows.train if "throughput" in row.values]
    if rows and not any(rows):
        evidence = "throughput is 0.00 in every row: it was not counted"
        return [SpeedFinding(code="throughput_zero", severity=Severity.NOTE, evidence=evidence)]
    return []


def _check_timeout(reader: ConsoleReader, hints: LogHints) -> list[SpeedFinding]:
    """A timeout that was asked for and is not the one in force."""
    asked = hints.ddp_timeout or hints.timeout_variable or reader.job.ddp_timeout
    if asked is None or not reader.rccl.timeouts:
        return []
    used = reader.rccl.timeouts[0].timeout_ms
    if used is not None and abs(used - asked * 1000) > 10 * asked:
        return [_warning("timeout_setting_ignored", f"{asked:g} s asked for, {used / 1000:g} s used")]
    return []


def _warning(code: str, evidence: str) -> SpeedFinding:
    return SpeedFinding(code=code, severity=Severity.WARNING, evidence=evidence)


def _starved(evidence: str) -> SpeedFinding:
    return SpeedFinding(code="data_starved", severity=Severity.ERROR, evidence=evidence)
