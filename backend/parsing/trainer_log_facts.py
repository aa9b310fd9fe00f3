"""`trainer_log.jsonl` and `trainer_state.json`, as read, into `LogFacts`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from backend.domain.problem import Severity
from backend.parsing.health import Health, Point, check_health
from backend.parsing.log_facts import LogFacts, unique
from backend.parsing.log_hints import NO_HINTS, LogHints
from backend.parsing.trainer_log import LogRow, TrainerLog
from backend.parsing.trainer_state import StateRow, TrainerState

_OTHER_SERIES = ("learning_rate", "reward", "accuracy", "throughput", "total_tokens", "vram_allocated", "vram_reserved")


def facts_of_log(log: TrainerLog, hints: LogHints = NO_HINTS) -> LogFacts:
    """Facts of the rows read so far."""
    rows = log.current()
    train = [row for row in rows if row.is_train]
    evals = [row for row in rows if "eval_loss" in row.values]
    last = log.rows[-1] if log.rows else None
    health = check_health(
        plain_points(train), plain_points(evals), stage=hints.stage, fp16=hints.fp16, epochs=hints.epochs
    )
    outcome = _outcome(log, last)
    told = LogFacts(
        detected_format="llamafactory_trainer_log", outcome=outcome, job="predict" if _is_predict(rows, last) else None,
        last_step=last.step if last else None, total_steps=last.total if last else None,
        final_accuracy=next((row.values["accuracy"] for row in reversed(train) if "accuracy" in row.values), None),
        final_values={key: train[-1].values[key] for key in _OTHER_SERIES if train and key in train[-1].values},
        series=tuple(key for key in _OTHER_SERIES if any(key in row.values for row in train)),
        segments=max(1, len(log.groups)) if log.rows else None, writers=log.writers or None,
        resumed_from_step=log.resumed_from(hints.save_steps), superseded_steps=tuple(log.superseded()),
        remaining_seconds=last.remaining if last else None, throughput=_throughput(train), facts=_facts(log, train, health),
    )  # fmt: skip
    told = with_series(told, train, evals)
    notes = [
        *(["log_without_end"] if outcome == "running" else []),
        *(["throughput_zero"] if _throughput_not_counted(train) else []),
    ]
    return with_health(replace(told, warnings=tuple(_warnings(log)), notes=tuple(notes)), health)


def trainer_state_facts(state: TrainerState) -> LogFacts:
    """Facts of a `trainer_state.json`."""
    evals = [row for row in state.eval_rows if "eval_loss" in row.values]
    health = check_health(plain_points(state.train_rows), plain_points(evals), epochs=state.epochs)
    told = LogFacts(
        detected_format="trainer_state", outcome="completed" if state.finished else "unknown", last_step=state.step,
        total_steps=state.max_steps, facts=dict(health.facts),
    )  # fmt: skip
    return with_health(with_series(told, state.train_rows, evals), health)


def with_series(
    told: LogFacts, train: Sequence[LogRow | StateRow | Point], evals: Sequence[LogRow | StateRow | Point]
) -> LogFacts:
    """Counts, first, last and best values of the points that count."""
    losses = [(row.step, row.values["loss"]) for row in train if "loss" in row.values]
    finite = [value for _, value in losses if math.isfinite(value)]
    best = min(evals, key=lambda row: row.values["eval_loss"], default=None)
    first, last = (losses[0], losses[-1]) if losses else (None, None)
    return replace(
        told, points=len(train), eval_points=len(evals), first_loss=first[1] if first else None,
        final_loss=last[1] if last else None, final_loss_step=last[0] if last and last[0] != told.last_step else None,
        min_loss=min(finite, default=None), best_eval_step=best.step if best else None,
        best_eval_loss=round(best.values["eval_loss"], 4) if best else None,
        final_eval_loss=round(evals[-1].values["eval_loss"], 4) if evals else None,
    )  # fmt: skip


def with_health(told: LogFacts, health: Health) -> LogFacts:
    """The alarms on the numbers, each under its severity."""

    def codes(severity: Severity) -> list[str]:
        return [one.code for one in health.findings if one.severity is severity]

    return replace(
        told, root_cause=told.root_cause or health.root_cause, suspects=health.suspects,
        errors=unique([*told.errors, *codes(Severity.ERROR)]), warnings=unique([*told.warnings, *codes(Severity.WARNING)]),
        notes=unique([*told.notes, *codes(Severity.NOTE)]),
    )  # fmt: skip


def plain_points(rows: Sequence[LogRow | StateRow]) -> list[Point]:
    """The same as plain points."""
    return [Point(step=row.step, epoch=row.epoch, values=row.values) for row in rows]


def _is_predict(rows: Sequence[LogRow], last: LogRow | None) -> bool:
    """A prediction writes progress only."""
    return last is not None and not rows and last.step > 0


def _outcome(log: TrainerLog, last: LogRow | None) -> str:
    if last is None:
        return "unknown"
    if last.is_end and last.step > 0:
        near_end = last.total is None or last.step >= last.total - 1
        return "completed" if near_end or any(row.is_train for row in log.rows) else "running"
    return "running" if last.total is None or last.step < last.total else "unknown"


def _warnings(log: TrainerLog) -> list[str]:
    found = []
    if log.writers > 1:
        found.append("two_writers")
    if len(log.groups) > 1:
        found.append("step_went_back")
    if log.remaining_is_wrong():
        found.append("remaining_time_unreliable")
    if log.cut_line or log.bad_lines:
        found.append("log_line_cut")
    return found


def _throughput(train: Sequence[LogRow]) -> float | None:
    return next((row.values["throughput"] for row in reversed(train) if row.values.get("throughput")), None)


def _throughput_not_counted(train: Sequence[LogRow]) -> bool:
    rates = [row.values["throughput"] for row in train if "throughput" in row.values]
    return bool(rates) and not any(rates)


def _facts(log: TrainerLog, train: Sequence[LogRow], health: Health) -> dict[str, object]:
    facts: dict[str, object] = dict(health.facts)
    if log.lr_key == "learning_rate":
        facts["lr_key"] = log.lr_key
    sharpest = max((row for row in train if row.epoch), key=lambda row: row.step, default=None)
    if sharpest is not None and sharpest.epoch:
        facts["steps_per_epoch"] = round(sharpest.step / sharpest.epoch, 2)
    return facts
