"""A read console into `LogFacts`."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from backend.parsing.console import ConsoleReader
from backend.parsing.console_ending import find_cause, find_outcome, find_phase
from backend.parsing.console_findings import collect_codes, launches
from backend.parsing.console_format import detect_format
from backend.parsing.console_numbers import further_facts
from backend.parsing.console_series import Series, last_step, points_of, read_series, stage_of, total_steps
from backend.parsing.failure import Finding, Verdict
from backend.parsing.health import Health, check_health
from backend.parsing.log_facts import LogFacts, unique
from backend.parsing.log_hints import NO_HINTS, LogHints
from backend.parsing.signatures import PEER

_NOT_SERIES = re.compile(r"^(?:loss|epoch|eval_.*|train_runtime|train_loss|train_samples.*|train_steps.*)$")
_UNUSED_KEYS = re.compile(r"HfArgumentParser: \[(.*?)\]")
_EXTRA_KEY = re.compile(r"^(\w+(?:\.\w+)*)\n\s+Extra inputs are not permitted", re.MULTILINE)
_QUOTED = re.compile(r"'([^']*)'")


def console_facts(reader: ConsoleReader, hints: LogHints = NO_HINTS, *, failed: bool = False) -> LogFacts:
    """What the console tells so far; may be asked again and again. `hints` come from files beside it; `failed`: it is known
    from elsewhere that the job ended badly."""
    series = read_series(reader, hints)
    verdict = reader.conclude(failed=failed)
    health = _health(reader, series, hints)
    root = find_cause(reader, verdict, health)
    detected = detect_format(reader, verdict)
    outcome = find_outcome(reader, series, verdict, root, detected, hints)
    codes = collect_codes(reader, series, verdict, health, hints, root=root, outcome=outcome)
    if root is None and "data_starved" in codes.errors:
        root = "data_starved"
    told = LogFacts(
        detected_format=detected, outcome=outcome, phase=find_phase(reader, verdict, series), job=reader.job.job,
        stage=stage_of(reader, series), root_cause=root, suspects=health.suspects, errors=unique(codes.errors),
        warnings=unique(codes.warnings), notes=unique(codes.notes), last_step=last_step(reader, series),
        total_steps=total_steps(reader), scores=reader.job.scores, hosts=len(reader.rows.hosts) or None,
        world_size=reader.job.world_size or reader.failure.launcher.world_size,
        facts=further_facts(reader, series, verdict, health, hints),
    )  # fmt: skip
    return _with_engine(_with_series(_with_ending(told, reader, verdict), reader, series), reader, outcome)


def _health(reader: ConsoleReader, series: Series, hints: LogHints) -> Health:
    return check_health(
        points_of(series.train), points_of(series.evals), stage=reader.job.stage or hints.stage, fp16=hints.fp16,
        epochs=hints.epochs,
    )  # fmt: skip


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
    starts = launches(reader)
    return replace(
        told, launches=starts if starts > 1 else None, processes=_processes(reader),
        processes_ok=len(reader.deepspeed.exited_well) or None, last_checkpoint_step=_saved(reader, outcome),
        incomplete_checkpoint_step=reader.job.saving if outcome in ("failed", "stopped") else None,
        skipped_steps=reader.deepspeed.skipped, skipped_steps_by_engine=_by_engine(reader), loss_scale=_loss_scale(reader),
        throughput=_throughput(reader), timed_steps=reader.deepspeed.timed_steps,
    )  # fmt: skip


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
