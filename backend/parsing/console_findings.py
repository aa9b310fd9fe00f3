"""A read console into codes of findings, each under its severity."""

from __future__ import annotations

from dataclasses import dataclass, field

from backend.domain.problem import Severity
from backend.parsing.console import ConsoleReader
from backend.parsing.console_series import Series, last_step
from backend.parsing.failure import Verdict
from backend.parsing.health import Health
from backend.parsing.log_hints import LogHints
from backend.parsing.performance import check_console_speed


@dataclass(slots=True)
class Codes:
    """Findings of one log by how much they matter."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, code: str, severity: Severity) -> None:
        """File a code under its severity."""
        {Severity.ERROR: self.errors, Severity.WARNING: self.warnings, Severity.NOTE: self.notes}[severity].append(code)


def collect_codes(
    reader: ConsoleReader,
    series: Series,
    verdict: Verdict,
    health: Health,
    hints: LogHints,
    *,
    root: str | None,
    outcome: str,
) -> Codes:
    """All findings: causes, remarks on lines, alarms on numbers, the course of the run, speed."""
    codes = Codes()
    _file_causes(codes, verdict, root, hints)
    _file_remarks(codes, reader)
    for alarm in health.findings:
        codes.add(alarm.code, alarm.severity)
    _file_run(codes, reader, series, outcome, hints)
    for hint in check_console_speed(reader, hints):
        codes.add(hint.code, hint.severity)
    return codes


def launches(reader: ConsoleReader) -> int:
    """Starts of a job in this console."""
    nodes = max(1, len(reader.failure.launcher.node_ranks))
    return max(
        reader.deepspeed.zero_steps, reader.job.harness_starts, reader.failure.launcher.starts // nodes, reader.job.trainings,
    )  # fmt: skip


def ranks_without_device(hints: LogHints) -> list[int]:
    """Local ranks that the launch line starts although it shows no device to them."""
    if not hints.visible_devices or hints.processes is None:
        return []
    return list(range(hints.visible_devices, hints.processes))


def _file_causes(codes: Codes, verdict: Verdict, root: str | None, hints: LogHints) -> None:
    if root is not None and verdict.root is not None:
        codes.errors.append(root)
    if verdict.secondary:
        codes.warnings.append("secondary_error")
    codes.notes += [one.code for one in verdict.others]
    if verdict.root is not None and "hsa_node" in verdict.root.groups:
        codes.notes.append("device_index_differs")
    if root == "device_ordinal_invalid" and ranks_without_device(hints):
        codes.errors.append("nproc_exceeds_visible")


def _file_remarks(codes: Codes, reader: ConsoleReader) -> None:
    codes.warnings += list(reader.failure.remarks)
    if reader.deepspeed.not_saved:
        codes.errors.append("model_not_saved")
    if reader.rccl.network == "Socket":
        codes.warnings.append("network_socket_fallback")
    deepspeed = reader.deepspeed
    if deepspeed.at_floor and "loss_scale_collapse" not in reader.failure.findings:
        codes.errors.append("loss_scale_at_floor")


def _file_run(codes: Codes, reader: ConsoleReader, series: Series, outcome: str, hints: LogHints) -> None:
    if launches(reader) > 1:
        codes.warnings.append("several_launches")
    if reader.marks.cut_dict:
        codes.warnings.append("log_line_cut")
    if series.train and last_step(reader, series) is None:
        codes.warnings.append("step_unknown")
    if outcome in ("running", "unknown") and (series.train or reader.bars.step is not None):
        codes.notes.append("log_without_end")
    if len(reader.rows.segment_starts) > 1 or (series.train and series.train[-1].segment):
        codes.notes.append("step_went_back")
    root = reader.failure.findings.get("killed_without_reason")
    if root is not None and outcome == "failed" and _at_save_step(reader, series, hints):
        codes.warnings.append("checkpoint_suspect")
    if reader.job.saving is not None and outcome in ("failed", "stopped"):
        codes.notes.append("checkpoint_suspect")
    if (
        outcome == "completed"
        and not series.train
        and not reader.deepspeed.lines
        and reader.job.job is None
        and reader.rows.finals
    ):
        codes.notes.append("no_loss_series")


def _at_save_step(reader: ConsoleReader, series: Series, hints: LogHints) -> bool:
    step = last_step(reader, series)
    return bool(step and hints.save_steps and step % hints.save_steps == 0) or reader.job.saving is not None
