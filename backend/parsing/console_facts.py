"""A read console into `LogFacts`: kind of log, outcome, series, checkpoints, cause, health and speed findings."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from backend.domain.problem import Severity
from backend.parsing.console import ConsoleReader
from backend.parsing.failure import Finding, Verdict
from backend.parsing.health import Health, Point, check_health
from backend.parsing.log_facts import STOPPED_CAUSES, LogFacts, unique
from backend.parsing.log_hints import NO_HINTS, LogHints
from backend.parsing.performance import check_console_speed
from backend.parsing.progress import parse_clock
from backend.parsing.signatures import PEER
from backend.parsing.trainer_rows import Row, current_rows, place_by_epoch

_NOT_SERIES = re.compile(r"^(?:loss|epoch|eval_.*|train_runtime|train_loss|train_samples.*|train_steps.*)$")
_UNUSED_KEYS = re.compile(r"HfArgumentParser: \[(.*?)\]")
_EXTRA_KEY = re.compile(r"^(\w+(?:\.\w+)*)\n\s+Extra inputs are not permitted", re.MULTILINE)
_QUOTED = re.compile(r"'([^']*)'")


@dataclass(slots=True)
class Codes:
    """Findings of one log by how much they matter."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, code: str, severity: Severity) -> None:
        """File a code under its severity."""
        {Severity.ERROR: self.errors, Severity.WARNING: self.warnings, Severity.NOTE: self.notes}[severity].append(code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The points that count."""

    train: tuple[Row, ...]
    evals: tuple[Row, ...]
    form: str

    @property
    def points(self) -> int:
        """Training points after copies and superseded steps are left out."""
        return len(self.train)


def console_facts(reader: ConsoleReader, hints: LogHints = NO_HINTS) -> LogFacts:
    """What the console tells so far; may be asked again and again. `hints` come from files beside it."""
    series = read_series(reader, hints)
    verdict = reader.failure.conclude(progress_offset=reader.progress_offset)
    stopped_by_scheduler = _stopped_by_scheduler(reader, verdict)
    detected = detect_format(reader, series, verdict)
    health = _health(reader, series, hints)
    codes = Codes()
    root = _root_code(verdict, health, stopped_by_scheduler)
    outcome = _outcome(reader, series, verdict, root, detected, hints)
    _file_causes(codes, verdict, root, hints)
    _file_remarks(codes, reader, verdict, outcome)
    _file_health(codes, health)
    _file_run(codes, reader, series, outcome, hints)
    for found in check_console_speed(reader, hints):
        codes.add(found.code, found.severity)
    if root is None and "data_starved" in codes.errors:
        root = "data_starved"
    facts = _base_facts(reader, series, outcome, verdict, detected)
    return replace(
        facts, root_cause=root, suspects=health.suspects, errors=unique(codes.errors), warnings=unique(codes.warnings),
        notes=unique(codes.notes), facts=_further_facts(reader, series, verdict, health, hints, detected),
    )  # fmt: skip


def read_series(reader: ConsoleReader, hints: LogHints) -> Series:
    """Current rows with their steps: from the bar, else from the epoch, else from the logging interval."""
    rows = reader.rows
    train: Sequence[Row] = current_rows(rows.train)
    epochs = reader.job.epochs or hints.epochs
    total = reader.job.total_steps
    if train and epochs and total:
        train = place_by_epoch(train, epochs=epochs, total_steps=total)
    if train and hints.logging_steps and all(row.step is None for row in train) and len(rows.segment_starts) == 1:
        first = rows.segment_starts[0] or 0
        train = [replace(row, step=first + (at + 1) * hints.logging_steps) for at, row in enumerate(train)]
    evals = current_rows(rows.evals)
    if train or evals or not reader.steps.lines:
        return Series(train=tuple(train), evals=tuple(evals), form="hf")
    lines = reader.steps.lines
    made = [
        Row(values=dict(one.values), offset=at, step=one.step, epoch=None, segment=0)
        for at, one in enumerate(lines)
        if one.kind == "train"
    ]
    evaluated = [
        Row(values=dict(one.values), offset=at, step=one.step, epoch=None, segment=0)
        for at, one in enumerate(lines)
        if one.kind == "eval"
    ]
    _segment_by_step(made)
    return Series(train=tuple(current_rows(made)), evals=tuple(evaluated), form=lines[0].form)


def _segment_by_step(rows: Sequence[Row]) -> None:
    segment, last = 0, -1
    for row in rows:
        if row.step is not None and row.step < last:
            segment += 1
        row.segment = segment
        last = row.step if row.step is not None else last


def detect_format(reader: ConsoleReader, series: Series, verdict: Verdict) -> str:
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


def _root_code(verdict: Verdict, health: Health, stopped: bool) -> str | None:
    if verdict.root is not None:
        return _refine(verdict)
    if stopped:
        return "cancelled"
    return None if verdict.failed else health.root_cause


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


def _outcome(
    reader: ConsoleReader, series: Series, verdict: Verdict, root: str | None, detected: str, hints: LogHints
) -> str:
    if root in STOPPED_CAUSES:
        return "stopped"
    if verdict.failed:
        return "failed"
    done = reader.deepspeed.exited_well and not reader.deepspeed.killed
    if reader.job.ended_offset >= max(reader.progress_offset, 0) or done or reader.rows.finals:
        return "completed"
    if detected == "rccl_debug":
        return "running"
    return "running" if _is_unfinished(reader, series, hints) else "unknown"


def _is_unfinished(reader: ConsoleReader, series: Series, hints: LogHints) -> bool:
    """The plan is known and not reached, or the last line is being written."""
    total, step = _total_steps(reader), _last_step(reader, series)
    if total is not None and step is not None:
        return step < total
    if reader.marks.cut_dict:
        return True
    epoch = series.train[-1].epoch if series.train else None
    if epoch is None or not epoch:
        return total is not None and bool(series.train)
    planned = reader.job.epochs or hints.epochs
    return epoch < planned if planned else abs(epoch - round(epoch)) > 1e-6


def _total_steps(reader: ConsoleReader) -> int | None:
    candidates = [reader.bars.total, reader.job.total_steps, reader.deepspeed.planned]
    if reader.steps.progress is not None:
        candidates.insert(0, reader.steps.progress.total)
    candidates += [line.total for line in reader.steps.lines[-1:]]
    return next((one for one in candidates if one is not None), None)


def _last_step(reader: ConsoleReader, series: Series) -> int | None:
    progress = reader.steps.progress
    told = [
        reader.bars.step, progress.step if progress else None, reader.deepspeed.last_step, reader.deepspeed.rate_step,
        max((row.step for row in series.train if row.step is not None), default=None),
    ]  # fmt: skip
    known = [one for one in told if one is not None]
    if not known:
        return None
    segments = reader.rows.segment_starts
    resumed = segments[-1] if len(segments) == 1 else reader.job.resumed_from
    return max([*known, resumed or 0])


def _health(reader: ConsoleReader, series: Series, hints: LogHints) -> Health:
    def points(rows: Sequence[Row]) -> list[Point]:
        return [Point(step=row.step, epoch=row.epoch, values=row.values) for row in rows]

    return check_health(
        points(series.train),
        points(series.evals),
        stage=reader.job.stage or hints.stage,
        fp16=hints.fp16,
        epochs=hints.epochs,
    )


def _file_causes(codes: Codes, verdict: Verdict, root: str | None, hints: LogHints) -> None:
    if root is not None and verdict.root is not None:
        codes.errors.append(root)
    if verdict.secondary:
        codes.warnings.append("secondary_error")
    codes.notes += [one.code for one in verdict.others]
    if verdict.root is not None and "hsa_node" in verdict.root.groups:
        codes.notes.append("device_index_differs")
    if root == "device_ordinal_invalid" and _ranks_without_device(hints):
        codes.errors.append("nproc_exceeds_visible")


def _file_remarks(codes: Codes, reader: ConsoleReader, verdict: Verdict, outcome: str) -> None:
    codes.warnings += list(reader.failure.remarks)
    if reader.deepspeed.not_saved:
        codes.errors.append("model_not_saved")
    if reader.rccl.network == "Socket":
        codes.warnings.append("network_socket_fallback")
    deepspeed = reader.deepspeed
    if deepspeed.at_floor and "loss_scale_collapse" not in reader.failure.findings:
        codes.errors.append("loss_scale_at_floor")


def _file_health(codes: Codes, health: Health) -> None:
    for found in health.findings:
        codes.add(found.code, found.severity)


def _file_run(codes: Codes, reader: ConsoleReader, series: Series, outcome: str, hints: LogHints) -> None:
    if _launches(reader) > 1:
        codes.warnings.append("several_launches")
    if reader.marks.cut_dict:
        codes.warnings.append("log_line_cut")
    if series.train and _last_step(reader, series) is None:
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
    step = _last_step(reader, series)
    return bool(step and hints.save_steps and step % hints.save_steps == 0) or reader.job.saving is not None


def _launches(reader: ConsoleReader) -> int:
    nodes = max(1, len(reader.failure.launcher.node_ranks))
    return max(
        reader.deepspeed.zero_steps, reader.job.harness_starts, reader.failure.launcher.starts // nodes, reader.job.trainings,
    )  # fmt: skip


def _base_facts(reader: ConsoleReader, series: Series, outcome: str, verdict: Verdict, detected: str) -> LogFacts:
    told = LogFacts(
        detected_format=detected, outcome=outcome, phase=_phase(reader, verdict, series), job=reader.job.job,
        stage=_stage(reader, series),
        last_step=_last_step(reader, series), total_steps=_total_steps(reader), scores=reader.job.scores,
        hosts=len(reader.rows.hosts) or None, world_size=reader.job.world_size or reader.failure.launcher.world_size,
    )  # fmt: skip
    told = _with_ending(told, reader, verdict)
    told = _with_series(told, reader, series)
    return _with_engine(told, reader, outcome)


def _stage(reader: ConsoleReader, series: Series) -> str | None:
    """Named in a stack or script, or told by the values that only one stage logs."""
    if reader.job.stage is not None or not series.train:
        return reader.job.stage
    names = set().union(*(row.values.keys() for row in series.train[-8:]))
    if "rewards/chosen" in names or "rewards/accuracies" in names:
        return "kto" if "kl" in names else "dpo"
    return "ppo" if {"reward", "objective/kl", "actor_loss"} & names else None


def _with_ending(told: LogFacts, reader: ConsoleReader, verdict: Verdict) -> LogFacts:
    root = verdict.root
    own = root is not None and root.weight != PEER
    return replace(
        told, evidence=_evidence(verdict), first_failing_rank=verdict.first_failing_rank if verdict.failed else None,
        first_printing_rank=verdict.first_printing_rank, first_failing_node=_failing_node(reader, root),
        failing_ranks=verdict.failing_ranks if own else (), reporting_ranks=_reporting_ranks(reader),
        hsa_node=int(root.groups["hsa_node"]) if root and "hsa_node" in root.groups else None,
        resumed_from_step=_resumed(reader, root), unknown_keys=_unknown_keys(root),
    )  # fmt: skip


def _with_series(told: LogFacts, reader: ConsoleReader, series: Series) -> LogFacts:
    losses = [(row.step, row.values["loss"]) for row in series.train if "loss" in row.values]
    finite = [value for _, value in losses if math.isfinite(value)]
    evals = [(row.step, row.values["eval_loss"]) for row in series.evals if "eval_loss" in row.values]
    best = min(evals, key=lambda one: one[1], default=None)
    final = reader.job.metrics.get("eval", {}).get("eval_loss", evals[-1][1] if evals else None)
    first, last = (losses[0], losses[-1]) if losses else (None, None)
    return replace(
        told, points=series.points, eval_points=len(series.evals), first_loss=first[1] if first else None,
        final_loss=last[1] if last else None, final_loss_step=last[0] if last and last[0] != told.last_step else None,
        min_loss=min(finite, default=None), best_eval_step=best[0] if best else None,
        best_eval_loss=round(best[1], 4) if best else None, final_eval_loss=round(final, 4) if final is not None else None,
        final_accuracy=_final_accuracy(series), final_values=_final_values(reader, series), series=_series_names(series),
        segments=max(len(reader.rows.segment_starts), series.train[-1].segment + 1) if series.train else None,
    )  # fmt: skip


def _with_engine(told: LogFacts, reader: ConsoleReader, outcome: str) -> LogFacts:
    launches = _launches(reader)
    return replace(
        told, launches=launches if launches > 1 else None, processes=_processes(reader),
        processes_ok=len(reader.deepspeed.exited_well) or None, last_checkpoint_step=_saved(reader, outcome),
        incomplete_checkpoint_step=reader.job.saving if outcome in ("failed", "stopped") else None,
        skipped_steps=reader.deepspeed.skipped, skipped_steps_by_engine=_by_engine(reader), loss_scale=_loss_scale(reader),
        throughput=_throughput(reader), timed_steps=reader.deepspeed.timed_steps,
    )  # fmt: skip


def _phase(reader: ConsoleReader, verdict: Verdict, series: Series) -> str | None:
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


def _evidence(verdict: Verdict) -> tuple[str, ...]:
    if verdict.root is not None:
        return tuple(one.text for one in verdict.root.evidence)
    return (verdict.exception.text,) if verdict.exception else ()


def _failing_node(reader: ConsoleReader, root: Finding | None) -> int | str | None:
    """With several nodes in one file, the node whose launcher met the cause: the last node named before it."""
    nodes = reader.failure.launcher.node_ranks
    if root is None:
        return None
    if "node" in root.groups:
        return root.groups["node"]
    if len(nodes) > 1:
        return reader.failure.launcher.node_at(root.offset)
    return root.hosts[0] if len(root.hosts) == 1 and len(reader.rows.hosts) > 1 else None


def _reporting_ranks(reader: ConsoleReader) -> tuple[int, ...]:
    return tuple(sorted({one.rank for one in reader.rccl.timeouts} | set(reader.rccl.watchdog_ranks)))


def _final_accuracy(series: Series) -> float | None:
    keys = ("rewards/accuracies", "accuracy")
    return next((row.values[key] for row in reversed(series.train) for key in keys if key in row.values), None)


def _final_values(reader: ConsoleReader, series: Series) -> dict[str, float]:
    if not series.train:
        return {}
    values: dict[str, float] = {}
    for row in series.train[-8:]:
        values.update({key: value for key, value in row.values.items() if not _NOT_SERIES.match(key)})
    if reader.steps.rewards:
        values["reward"] = reader.steps.rewards[-1]
    return values


def _series_names(series: Series) -> tuple[str, ...]:
    names = dict.fromkeys(key for row in series.train for key in row.values if not _NOT_SERIES.match(key))
    return tuple(names)


def _processes(reader: ConsoleReader) -> int | None:
    finals = len(reader.rows.finals)
    return finals if finals > 1 else None


def _resumed(reader: ConsoleReader, root: Finding | None) -> int | None:
    if reader.job.resumed_from is not None:
        return reader.job.resumed_from
    step = root.groups.get("checkpoint_step") if root is not None else None
    return int(step) if step else None


def _saved(reader: ConsoleReader, outcome: str) -> int | None:
    job = reader.job
    if job.saving is not None and outcome == "completed":
        return max(job.saving, job.saved or 0)
    return job.saved


def _by_engine(reader: ConsoleReader) -> dict[str, int]:
    engines = reader.deepspeed.engines
    if len(engines) < 2:
        return {}
    names = ("actor", "critic") if len(engines) == 2 else tuple(f"engine_{at}" for at in range(len(engines)))
    return {name: one.skipped for name, one in zip(names, engines, strict=True)}


def _loss_scale(reader: ConsoleReader) -> float | None:
    values = [*(row.values for row in reader.rows.train[-1:]), *(line.values for line in reader.steps.lines[-1:])]
    logged = next((one["loss_scale"] for one in values if "loss_scale" in one), None)
    return reader.deepspeed.loss_scale if reader.deepspeed.loss_scale is not None else logged


def _throughput(reader: ConsoleReader) -> float | None:
    told = (reader.job.throughput, reader.deepspeed.throughput, reader.steps.rates.get("samples_per_second"))
    if known := next((one for one in told if one is not None), None):
        return known
    return next((row.values["throughput"] for row in reversed(reader.rows.train) if row.values.get("throughput")), None)


def _unknown_keys(root: Finding | None) -> tuple[str, ...]:
    if root is None or root.code != "unknown_key":
        return ()
    text = "\n".join(root.context)
    if "arguments" in root.groups:
        return tuple(part.lstrip("-") for part in root.groups["arguments"].split() if part.startswith("--"))
    if refused := _EXTRA_KEY.findall(text):
        return unique(refused)
    listed = _UNUSED_KEYS.search(text)
    if listed is None:
        return (root.groups["key"],) if "key" in root.groups else ()
    words = _QUOTED.findall(listed[1])
    flags = [word.lstrip("-") for word in words if word.startswith("--")]
    return tuple(flags or [word for word in words if re.match(r"^[A-Za-z_]\w*$", word)])


def _further_facts(
    reader: ConsoleReader, series: Series, verdict: Verdict, health: Health, hints: LogHints, detected: str
) -> dict[str, object]:
    facts: dict[str, object] = {}
    if verdict.root is not None:
        facts |= {
            key: value
            for key, value in verdict.root.facts.items()
            if key not in ("hsa_node", "checkpoint_step", "lagging_rank")
        }
        facts["findings"] = len(verdict.root.texts) if verdict.root.code != "gpu_oom" else 1
        if verdict.root.code == "role_tag_mismatch" and reader.bars.data_bar is not None:
            facts |= {"dropped": verdict.root.count, "total": reader.bars.data_bar.total}
        if "name" in verdict.root.groups and (near := _nearest(verdict.root.groups["name"], hints.datasets)):
            facts["suggested"] = near
    if missing := _ranks_without_device(hints):
        facts |= {"visible": hints.visible_devices, "processes": hints.processes, "ranks_without_device": missing}
    facts |= _rccl_facts(reader)
    facts |= _deepspeed_facts(reader)
    facts |= _run_facts(reader, series, hints)
    return {**facts, **health.facts}


def _ranks_without_device(hints: LogHints) -> list[int]:
    """Local ranks that the launch line starts although it shows no device to them."""
    if not hints.visible_devices or hints.processes is None:
        return []
    return list(range(hints.visible_devices, hints.processes))


def _nearest(name: str, known: Sequence[str]) -> str | None:
    stem = re.sub(r"\.jsonl?$", "", name)
    if stem in known and stem != name:
        return stem
    near = get_close_matches(stem, known, n=1, cutoff=0.75)
    return near[0] if near and near[0] != name else None


def _rccl_facts(reader: ConsoleReader) -> dict[str, object]:
    rccl = reader.rccl
    facts: dict[str, object] = {}
    for name in ("network", "provider", "nics", "interface"):
        if (value := getattr(rccl, name)) is not None:
            facts[name] = value
    if rccl.devices_with_warnings:
        devices = sorted(rccl.devices_with_warnings)
        facts |= {"local_gpu": devices[0]} if len(devices) == 1 else {"local_gpus": devices}
    if rccl.timeouts:
        first = rccl.timeouts[0]
        told = {
            "seq": first.sequence,
            "op": first.operation,
            "timeout_ms": first.timeout_ms,
            "ran_ms": first.ran_ms,
            "repeated": first.repeated,
        }
        facts |= {key: value for key, value in told.items() if value is not None}
    if rccl.fatal_after_seconds is not None:
        facts["fatal_after_seconds"] = rccl.fatal_after_seconds
    if rccl.stack:
        facts["stuck_at"] = rccl.stack[0]
    return facts


def _deepspeed_facts(reader: ConsoleReader) -> dict[str, object]:
    found = reader.deepspeed
    facts: dict[str, object] = {f"{name}_ms": value for name, value in found.times.items()}
    for name, value in (
        ("max_mem_gb", found.max_memory_gb),
        ("grad_accumulation", found.gradient_accumulation),
        ("param_groups", found.param_groups),
    ):
        if value is not None:
            facts[name] = value
    if found.killed:
        facts["killed_pids"] = list(dict.fromkeys(found.killed))
    return facts


def _run_facts(reader: ConsoleReader, series: Series, hints: LogHints) -> dict[str, object]:
    facts: dict[str, object] = {}
    if reader.rows.finals:
        facts |= {
            key: reader.rows.finals[-1][key] for key in ("train_runtime", "train_loss") if key in reader.rows.finals[-1]
        }
        facts |= _counted_steps(reader, series)
    if reader.bars.seconds_per_step is not None:
        facts["seconds_per_step"] = reader.bars.seconds_per_step
    runtimes = [row.values["eval_runtime"] for row in series.evals if "eval_runtime" in row.values]
    if runtimes:
        facts["eval_runtimes"] = runtimes
    if reader.job.attention is not None:
        facts["attention"] = reader.job.attention
    if reader.marks.ansi:
        facts["ansi"] = True
    if reader.marks.cut_dict:
        facts["cut_rows"] = 1
    if series.train:
        last = series.train[-1].values
        facts |= {
            key: last[key] for key in ("learning_rate", "epoch", "num_tokens") if key in last and key not in facts
        }
    facts |= _data_facts(reader) | reader.job.chat
    for name, value in (
        ("save_steps", hints.save_steps),
        ("launcher", hints.launcher),
        ("port", reader.failure.launcher.port),
        ("nodes", reader.failure.launcher.nodes),
    ):
        if value is not None and name not in facts:
            facts[name] = value
    return facts


def _counted_steps(reader: ConsoleReader, series: Series) -> dict[str, object]:
    """Without any step in the log, the closing rates bound the number of optimizer steps."""
    final = reader.rows.finals[-1]
    rate, seconds = final.get("train_steps_per_second"), final.get("train_runtime")
    if series.train or rate is None or seconds is None:
        return {}
    return {"max_optimizer_steps": int(rate * seconds)}


def _data_facts(reader: ConsoleReader) -> dict[str, object]:
    facts: dict[str, object] = {}
    bar = reader.bars.data_bar
    if bar is not None:
        facts |= {"done_examples": bar.done, "total_examples": bar.total, "phase_seconds": bar.elapsed}
        if bar.workers is not None:
            facts["workers"] = bar.workers
    if reader.job.gpus is not None:
        facts["gpus"] = reader.job.gpus
    return facts
