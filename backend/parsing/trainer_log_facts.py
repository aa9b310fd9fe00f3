"""`trainer_log.jsonl` and `trainer_state.json`, as read, into `LogFacts`."""

from __future__ import annotations

import math

from backend.domain.problem import Severity
from backend.parsing.health import Point, check_health
from backend.parsing.log_facts import LogFacts, unique
from backend.parsing.log_hints import NO_HINTS, LogHints
from backend.parsing.trainer_log import LogRow, TrainerLog
from backend.parsing.trainer_state import parse_trainer_state

_OTHER_SERIES = ("learning_rate", "reward", "accuracy", "throughput", "total_tokens", "vram_allocated", "vram_reserved")


def trainer_log_facts(data: bytes, hints: LogHints = NO_HINTS) -> LogFacts:
    """Facts of a whole `trainer_log.jsonl`."""
    log = TrainerLog()
    log.feed(data)
    log.flush()
    return facts_of_log(log, hints)


def facts_of_log(log: TrainerLog, hints: LogHints = NO_HINTS) -> LogFacts:
    """Facts of the rows read so far."""
    rows = log.current()
    train = [row for row in rows if row.is_train]
    evals = [row for row in rows if "eval_loss" in row.values]
    last = log.rows[-1] if log.rows else None
    losses = [(row.step, row.values["loss"]) for row in train if "loss" in row.values]
    best = min(evals, key=lambda row: row.values["eval_loss"], default=None)
    health = check_health(_points(train), _points(evals), stage=hints.stage, fp16=hints.fp16, epochs=hints.epochs)
    warnings = [*_warnings(log), *(one.code for one in health.findings if one.severity is Severity.WARNING)]
    notes = [one.code for one in health.findings if one.severity is Severity.NOTE]
    outcome = _outcome(log, last)
    is_predict = bool(log.rows) and not train and not evals and not (last and last.is_end and last.step == 0)
    finite = [value for _, value in losses if math.isfinite(value)]
    if outcome == "running":
        notes.append("log_without_end")
    return LogFacts(
        detected_format="llamafactory_trainer_log", outcome=outcome, job="predict" if is_predict else None,
        root_cause=health.root_cause,
        errors=unique([one.code for one in health.findings if one.severity is Severity.ERROR]), warnings=unique(warnings),
        notes=unique(notes), suspects=health.suspects, last_step=last.step if last else None,
        total_steps=last.total if last else None, points=len(train), eval_points=len(evals),
        first_loss=losses[0][1] if losses else None, final_loss=losses[-1][1] if losses else None,
        final_loss_step=losses[-1][0] if losses and last and losses[-1][0] != last.step else None,
        min_loss=min(finite, default=None), best_eval_step=best.step if best else None, best_eval_loss=round(best.values["eval_loss"], 4) if best else None,
        final_eval_loss=round(evals[-1].values["eval_loss"], 4) if evals else None,
        final_accuracy=next((row.values["accuracy"] for row in reversed(train) if "accuracy" in row.values), None),
        final_values={key: train[-1].values[key] for key in _OTHER_SERIES if train and key in train[-1].values},
        series=tuple(key for key in _OTHER_SERIES if any(key in row.values for row in train)),
        segments=max(1, len(log.groups)) if log.rows else None, writers=log.writers or None,
        resumed_from_step=log.resumed_from(hints.save_steps), superseded_steps=tuple(log.superseded()),
        remaining_seconds=last.remaining if last else None, throughput=_throughput(train), facts=_facts(log, train, health.facts),
    )  # fmt: skip


def trainer_state_facts(data: bytes) -> LogFacts:
    """Facts of a `trainer_state.json`. Raises InvalidInput when it is incomplete."""
    state = parse_trainer_state(data)
    train, evals = state.train_rows, [row for row in state.eval_rows if "eval_loss" in row.values]
    best = min(evals, key=lambda row: row.values["eval_loss"], default=None)
    health = check_health(
        [Point(step=row.step, epoch=row.epoch, values=row.values) for row in train],
        [Point(step=row.step, epoch=row.epoch, values=row.values) for row in evals], epochs=state.epochs,
    )  # fmt: skip
    losses = [row.values["loss"] for row in train]
    return LogFacts(
        detected_format="trainer_state", outcome="completed" if state.finished else "unknown", root_cause=health.root_cause,
        errors=unique([one.code for one in health.findings if one.severity is Severity.ERROR]),
        warnings=unique([one.code for one in health.findings if one.severity is Severity.WARNING]), suspects=health.suspects,
        last_step=state.step, total_steps=state.max_steps, points=len(train), eval_points=len(evals),
        first_loss=losses[0] if losses else None, final_loss=losses[-1] if losses else None,
        final_loss_step=train[-1].step if train and train[-1].step != state.step else None, min_loss=min(losses, default=None),
        best_eval_step=best.step if best else None, best_eval_loss=round(best.values["eval_loss"], 4) if best else None,
        final_eval_loss=round(evals[-1].values["eval_loss"], 4) if evals else None, facts=dict(health.facts),
    )  # fmt: skip


def _points(rows: list[LogRow]) -> list[Point]:
    return [Point(step=row.step, epoch=row.epoch, values=row.values) for row in rows]


def _outcome(log: TrainerLog, last: LogRow | None) -> str:
    if last is None:
        return "unknown"
    if last.is_end and (last.total is None or last.step > 0):
        return "completed" if last.total is None or last.step >= last.total - 1 or len(log.rows) > 1 else "running"
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


def _throughput(train: list[LogRow]) -> float | None:
    return next((row.values["throughput"] for row in reversed(train) if row.values.get("throughput")), None)


def _facts(log: TrainerLog, train: list[LogRow], health: object) -> dict[str, object]:
    facts: dict[str, object] = dict(health) if isinstance(health, dict) else {}
    if log.lr_key == "learning_rate":
        facts["lr_key"] = log.lr_key
    sharpest = max((row for row in train if row.epoch), key=lambda row: row.step, default=None)
    if sharpest is not None and sharpest.epoch:
        facts["steps_per_epoch"] = round(sharpest.step / sharpest.epoch, 2)
    return facts
