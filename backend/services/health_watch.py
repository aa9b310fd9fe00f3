"""A running job's recorded numbers and logs in, alarms out: each told once, with what proves it and where it began."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from backend.domain.events import Alert
from backend.domain.job import Job
from backend.parsing.alarms import PROOFS, Alarm, prove
from backend.parsing.causes import CAUSES, FINDINGS, cause_of
from backend.parsing.health import Point, check_health
from backend.parsing.step_alarms import Pace, check_data, check_drift, check_first_step, check_stall, check_stragglers
from backend.parsing.writers import WriterWatch
from backend.services.attach import Attachment, load_attachment
from backend.services.headline import stalled
from backend.services.log_watch import ConsoleWatch, RemainingTime, TrainerLogTail
from backend.store.events import load_events
from backend.store.paths import JobPaths
from backend.store.rank_tails import RankTails
from backend.store.series import Progress, RunSeries

EVERY_SECONDS = 15.0
RECENT_POINTS = 2000
EDGE = 2048
"""Steps at the begin and at the end of a start that its pace is judged by."""
ENOUGH_POINTS = 12
"""Of the loss, before a rise counts: the first few points of a small batch go up and down."""
ATTACHED_STALL_SECONDS = 1800.0
"""A run that somebody else started does not tell when it evaluates or saves."""

ALARMS: tuple[str, ...] = (
    "loss_zero", "loss_not_finite", "loss_spike", "loss_diverging", "loss_flat", "initial_loss_high", "grad_norm_high",
    "grad_norm_elevated", "grad_norm_nan", "grad_norm_nan_sporadic", "learning_rate_high", "eval_loss_rising",
    "overfit_risk", "accuracy_coarse", "loss_scale_at_floor", "loss_scale_collapse", "stalled", "slow_drift",
    "data_starved", "straggler", "two_writers", "remaining_time_unreliable",
)  # fmt: skip
_WANTED = ("loss", "grad_norm", "learning_rate", "rewards/accuracies", "rewards/margins", "accuracy", "epoch")


def alarm_texts() -> Mapping[str, tuple[str, str]]:
    """Title and what to do, in English, of every alarm by its code."""
    known = {**FINDINGS, **CAUSES}
    return {code: (known[code].title, known[code].remedy) for code in ALARMS}


def alarm_proofs() -> Mapping[str, str]:
    """What proves an alarm, in English, by its form; names in braces are its numbers (backend/parsing/alarms.py)."""
    return PROOFS


def proof_of(alert: Alert, proofs: Mapping[str, str]) -> str:
    """The sentence that proves an alarm, in the language of `proofs`; alarms of an older version have only the English one."""
    try:
        return prove(alert.form or alert.code, alert.numbers, proofs)
    except KeyError:
        return alert.evidence


@dataclass(slots=True)
class _Watched:
    series: RunSeries
    tails: RankTails
    trainer_log: TrainerLogTail
    console: ConsoleWatch
    attached: bool
    told: dict[str, float]
    """When each alarm was told last, Unix seconds, by its code."""
    looked_at: float = float("-inf")
    stall_step: int | None = None
    writers: WriterWatch = field(default_factory=lambda: WriterWatch(file="recorder/rank-0.jsonl"))


class HealthWatch:
    """`look` may be called as often as one likes: it reads the run's numbers every EVERY_SECONDS."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}

    def look(self, job: Job, paths: JobPaths, now: float, *, last: bool = False) -> list[Alert]:
        """Alarms that were not told before, by this or an earlier worker. `last`: the run has ended, look once more."""
        watched = self._watched.get(job.id)
        if watched is None:
            watched = self._watched[job.id] = _watch(paths)
        if now - watched.looked_at < EVERY_SECONDS and not last:
            return []
        watched.looked_at = now
        watched.series.refresh(ended=last)
        progress = watched.series.progress()
        found = [
            *_numbers(job, watched.series, last=last),
            *_pace(watched, progress, None if last else now),
            *_logs(watched, progress),
        ]
        fresh = [one for one in found if _is_new(one, watched.told, progress)]
        watched.told |= {one.code: now for one in fresh}
        return [_alert(one, now) for one in fresh]

    def forget(self, job_id: str) -> None:
        self._watched.pop(job_id, None)


def _watch(paths: JobPaths) -> _Watched:
    attachment = load_attachment(paths)
    told = {event.code: event.at for event in load_events(paths.events) if isinstance(event, Alert)}
    return _Watched(
        series=RunSeries(paths.recorder),
        tails=RankTails(paths.recorder),
        trainer_log=TrainerLogTail(_trainer_log(paths, attachment)),
        console=ConsoleWatch(paths.console),
        attached=attachment is not None,
        told=told,
    )


def _trainer_log(paths: JobPaths, attachment: Attachment | None) -> Path | None:
    if attachment is None:
        return paths.output / "trainer_log.jsonl"
    return Path(attachment.trainer_log) if attachment.trainer_log else None


def _is_new(found: Alarm, told: Mapping[str, float], progress: Progress) -> bool:
    """What was told is told again only when it happens again after a later start of the trainer."""
    at, segment = told.get(found.code), progress.segment
    if at is None:
        return True
    if segment is None or at >= segment.started_at:
        return False
    return found.step is not None and found.step > (segment.begin_step or 0)


def _alert(found: Alarm, now: float) -> Alert:
    title = cause_of(found.code).title
    numbers = {name: value if _is_plain(value) else str(value) for name, value in found.numbers.items()}
    return Alert(
        at=now, code=found.code, severity=found.severity, message=f"{title}: {found.evidence}", evidence=found.evidence,
        step=found.step, form=found.form, numbers=numbers,
    )  # fmt: skip


def _is_plain(value: float | str) -> bool:
    """JSON knows no NaN or infinity."""
    return isinstance(value, str) or math.isfinite(value)


# -- what the trainer logs --------------------------------------------------------------------------------------------


def _numbers(job: Job, series: RunSeries, *, last: bool) -> Iterator[Alarm]:
    points = _points(series, _WANTED, "loss")
    health = check_health(points, _points(series, ("eval_loss", "epoch"), "eval_loss"), stage=job.stage or None)
    early = len(points) < ENOUGH_POINTS and not last
    yield from (one for one in health.findings if not (early and one.code == "loss_diverging"))


def _points(series: RunSeries, keys: Sequence[str], main: str) -> list[Point]:
    """The last RECENT_POINTS steps at which `main` was logged."""
    curves = series.curves(keys)
    if main not in curves:
        return []
    odd = {key: {step: float(word) for step, word in curve.odd} for key, curve in curves.items()}
    values: dict[int, dict[str, float]] = {int(step): {} for step in curves[main].x[-RECENT_POINTS:]}
    for key, curve in curves.items():
        recent = slice(-2 * RECENT_POINTS, None)
        for step, value in zip(curve.x[recent].astype(int).tolist(), curve.y[recent].tolist(), strict=True):
            if step in values and (np.isfinite(value) or step in odd[key]):
                values[step][key] = value if np.isfinite(value) else odd[key][step]
    return [Point(step=step, epoch=point.get("epoch"), values=point) for step, point in values.items() if main in point]


# -- what the recorder measures ---------------------------------------------------------------------------------------


def _pace(watched: _Watched, progress: Progress, now: float | None) -> Iterator[Alarm]:
    """Of the newest start only: another number of GPUs has another pace. `now` None: the run has ended."""
    if progress.segment is None:
        return
    fresh = watched.tails.read_new()
    if not watched.attached:  # the records of an attached run are ours
        for one in fresh:
            watched.writers.take(one.step, one.at)
        if two := watched.writers.alarm():
            yield two
            return  # times of two runs in one file say nothing
    yield from _stall(watched, progress, now)
    rows = _rows(watched.series, progress)
    yield from check_drift(rows)
    late = check_stragglers(watched.tails.recent)
    yield from late or check_data(rows)  # all wait for that one: two alarms of one cause


def _stall(watched: _Watched, progress: Progress, now: float | None) -> Iterator[Alarm]:
    """A stall is an alarm again after the run went on."""
    segment = progress.segment
    silent = None if now is None else stalled(progress, now)
    if progress.step != watched.stall_step and silent is None:
        watched.told.pop("stalled", None)
    watched.stall_step = progress.step
    if segment is None or now is None or segment.ended_at is not None:
        return
    if (
        progress.last_step_at is None
        and not watched.attached
        and segment.phases
        and segment.phases[-1][0] == "training"
    ):
        yield from check_first_step(now - segment.phases[-1][1], begin_step=segment.begin_step or 0)
    seconds = (progress.seconds * progress.stride).tolist()
    least = {"least_seconds": ATTACHED_STALL_SECONDS} if watched.attached else {}
    yield from check_stall(seconds, silent, step=progress.step, **least)


def _rows(series: RunSeries, progress: Progress) -> list[Pace]:
    """Steps of the newest start: its first and its last ones, for a run of days has too many between."""
    with series.lock:
        first, size = progress.segment.first_row if progress.segment else 0, series.steps.size
        picked = np.arange(first, size)
        if len(picked) > 2 * EDGE:
            picked = np.concatenate([picked[:EDGE], picked[-EDGE:]])
        names = ("step", "seconds", "data", "tokens", "padding")
        step, seconds, data, tokens, padding = (series.steps.column(name)[picked].tolist() for name in names)
    return [
        Pace(step=int(at), seconds=one, data_seconds=wait, positions=counted + padded)
        for at, one, wait, counted, padded in zip(step, seconds, data, tokens, padding, strict=True)
    ]


# -- what the logs say ------------------------------------------------------------------------------------------------


def _logs(watched: _Watched, progress: Progress) -> Iterator[Alarm]:
    watched.trainer_log.refresh()
    if two := watched.trainer_log.writers.alarm():
        yield two
    else:
        remaining = RemainingTime.of(progress)
        yield from remaining.check(watched.trainer_log.rows) if remaining else ()
    yield from watched.console.check(progress.step, watch_writers=watched.attached and watched.trainer_log.path is None)
