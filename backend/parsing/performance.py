"""Times, rates and settings in logs into hints about speed: where time goes although nothing failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
SECONDS_PER_LONG_EXAMPLE = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedFinding:
    """One hint with the numbers that prove it."""

    code: str
    severity: Severity
    evidence: str


def check_console_speed(reader: ConsoleReader, outcome: str, hints: LogHints) -> list[SpeedFinding]:
    """Hints in a console."""
    found = [*_check_preprocessing(reader), *_check_pipeline(reader), *_check_data(reader), *_check_throughput(reader)]
    found += _check_timeout(reader, hints)
    return found


def _check_preprocessing(reader: ConsoleReader) -> list[SpeedFinding]:
    bar = reader.bars.data_bar
    if bar is None:
        return []
    found = []
    if bar.elapsed >= LONG_PREPROCESSING_SECONDS and reader.bars.step is None:
        found.append(
            SpeedFinding(
                code="gpu_idle_in_preprocessing", severity=Severity.WARNING, evidence=f"{bar.desc} {bar.elapsed:.0f} s"
            )
        )
    if bar.done and bar.elapsed / bar.done >= SECONDS_PER_LONG_EXAMPLE:
        found.append(
            SpeedFinding(
                code="long_sequences",
                severity=Severity.WARNING,
                evidence=f"{bar.elapsed / bar.done:.0f} s for one example",
            )
        )
    return found


def _check_pipeline(reader: ConsoleReader) -> list[SpeedFinding]:
    times = reader.deepspeed.times
    waiting = times.get("pipe_recv_grad", 0.0)
    work = times.get("forward", 0.0) + times.get("backward", 0.0)
    if work and waiting / work >= BUBBLE_SHARE:
        return [
            SpeedFinding(
                code="pipeline_bubble",
                severity=Severity.WARNING,
                evidence=f"pipe_recv_grad {waiting:.0f} ms of {work:.0f} ms work",
            )
        ]
    return []


def _check_data(reader: ConsoleReader) -> list[SpeedFinding]:
    times = reader.deepspeed.times
    waiting = times.get("batch_input", 0.0)
    work = times.get("forward", 0.0) + times.get("backward", 0.0)
    if work and waiting / (work + waiting) >= DATA_SHARE:
        return [
            SpeedFinding(
                code="data_starved",
                severity=Severity.ERROR,
                evidence=f"batch_input {waiting:.0f} ms of {work + waiting:.0f} ms",
            )
        ]
    return []


def _check_throughput(reader: ConsoleReader) -> list[SpeedFinding]:
    rows = [row.values["throughput"] for row in reader.rows.train if "throughput" in row.values]
    if rows and not any(rows):
        return [
            SpeedFinding(
                code="throughput_zero",
                severity=Severity.NOTE,
                evidence="throughput is 0.00 in every row: it was not counted",
            )
        ]
    return []


def _check_timeout(reader: ConsoleReader, hints: LogHints) -> list[SpeedFinding]:
    """A timeout that was asked for and is not the one in force."""
    if hints.ddp_timeout is None or not reader.rccl.timeouts:
        return []
    asked = hints.ddp_timeout * 1000
    used = reader.rccl.timeouts[0].timeout_ms
    if used is not None and abs(used - asked) > 0.01 * asked:
        return [
            SpeedFinding(
                code="timeout_setting_ignored",
                severity=Severity.WARNING,
                evidence=f"ddp_timeout {asked / 1000:g} s, used {used / 1000:g} s",
            )
        ]
    return []


def check_gpu_table(rows: Sequence[GpuRow]) -> list[SpeedFinding]:
    """Hints in one table of a GPU tool: busy at low power is waiting (a kernel that spins in a collective)."""
    waiting = [row.index for row in rows if _is_waiting(row)]
    if waiting:
        names = ", ".join(str(one) for one in waiting)
        return [
            SpeedFinding(
                code="utilisation_misleads", severity=Severity.WARNING, evidence=f"GPU {names}: 100 % busy at low power"
            )
        ]
    return []


def _is_waiting(row: GpuRow) -> bool:
    if row.gfx_activity_percent is None or row.socket_power_watts is None or row.gfx_activity_percent < 95:
        return False
    limit = row.power_cap_watts or 0
    return bool(limit) and row.socket_power_watts < WAITING_POWER_SHARE * limit
