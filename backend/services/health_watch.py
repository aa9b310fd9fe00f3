"""A running job's recorded numbers and console in, alarms out: each told once, with what proves it and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from backend.domain.events import Alert
from backend.domain.job import Job
from backend.domain.metrics import StepRecord
from backend.domain.problem import Severity
from backend.parsing.causes import CAUSES, FINDINGS, cause_of
from backend.parsing.health import HealthFinding, Point, check_health
from backend.parsing.performance import SpeedFinding, check_steps
from backend.services.headline import stalled
from backend.store.events import load_events
from backend.store.paths import JobPaths
from backend.store.series import RunSeries

EVERY_SECONDS = 15.0
RECENT_POINTS = 2000
RECENT_STEPS = 4096
LONGEST_TAIL = 1 << 20
SCALE_AT_FLOOR = b"Current loss scale already at minimum"

ALARMS: tuple[str, ...] = (
    "loss_zero", "loss_not_finite", "loss_spike", "loss_diverging", "loss_flat", "initial_loss_high", "grad_norm_high",
    "grad_norm_elevated", "grad_norm_nan", "grad_norm_nan_sporadic", "learning_rate_high", "eval_loss_rising",
    "overfit_risk", "accuracy_coarse", "loss_scale_collapse", "stalled", "slow_drift", "data_starved", "straggler",
)  # fmt: skip
_WANTED = ("loss", "grad_norm", "learning_rate", "rewards/accuracies", "rewards/margins", "accuracy", "epoch")


def alarm_texts() -> Mapping[str, tuple[str, str]]:
    """Title and what to do, in English, of every alarm by its code."""
    known = {**FINDINGS, **CAUSES}
    return {code: (known[code].title, known[code].remedy) for code in ALARMS}


@dataclass(slots=True)
class _Watched:
    series: RunSeries
    told: set[str]
    looked_at: float = float("-inf")
    stall_step: int | None = None
    console_at: int = 0
    tail: bytes = field(default=b"")


class HealthWatch:
    """`look` may be called as often as one likes: it reads the run's numbers every EVERY_SECONDS."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}

    def look(self, job: Job, paths: JobPaths, now: float, *, last: bool = False) -> list[Alert]:
        """Alarms that were not told before, by this or an earlier worker. `last`: the run has ended, look once more."""
        watched = self._watched.get(job.id)
        if watched is None:
            told = {event.code for event in load_events(paths.events) if isinstance(event, Alert)}
            watched = self._watched[job.id] = _Watched(series=RunSeries(paths.recorder), told=told)
        if now - watched.looked_at < EVERY_SECONDS and not last:
            return []
        watched.looked_at = now
        watched.series.refresh(ended=last)
        found: list[HealthFinding | SpeedFinding] = [
            *_numbers(job, watched.series),
            *_speed(watched, None if last else now),
            *_console(watched, paths),
        ]
        fresh = [one for one in found if one.code not in watched.told]
        watched.told |= {one.code for one in fresh}
        return [_alert(one, now) for one in fresh]

    def forget(self, job_id: str) -> None:
        self._watched.pop(job_id, None)


def _alert(found: HealthFinding | SpeedFinding, now: float) -> Alert:
    title = cause_of(found.code).title
    step = found.step if isinstance(found, HealthFinding) else None
    return Alert(
        at=now, code=found.code, severity=found.severity, message=f"{title}: {found.evidence}", evidence=found.evidence,
        step=step,
    )  # fmt: skip


def _numbers(job: Job, series: RunSeries) -> Iterator[HealthFinding]:
    health = check_health(
        _points(series, _WANTED, "loss"), _points(series, ("eval_loss", "epoch"), "eval_loss"), stage=job.stage or None
    )
    yield from health.findings


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


def _speed(watched: _Watched, now: float | None) -> Iterator[SpeedFinding]:
    """A stall is an alarm again after the run went on."""
    curves = watched.series.curves(("seconds_per_step", "data_seconds"))
    if "seconds_per_step" not in curves:
        return
    seconds = curves["seconds_per_step"].y[-RECENT_STEPS:]
    data = curves["data_seconds"].y[-RECENT_STEPS:] if "data_seconds" in curves else np.full(len(seconds), np.nan)
    steps = [
        StepRecord(at=0.0, rank=0, step=at, seconds=float(one), data_seconds=float(wait), tokens=None, peak_memory_bytes=None)
        for at, (one, wait) in enumerate(zip(seconds, np.nan_to_num(data), strict=True))
        if np.isfinite(one)
    ]  # fmt: skip
    progress = watched.series.progress()
    silent = None if now is None else stalled(progress, now)
    if progress.step != watched.stall_step and silent is None:
        watched.told.discard("stalled")
    watched.stall_step = progress.step
    yield from check_steps(steps, seconds_since_last=silent)


def _console(watched: _Watched, paths: JobPaths) -> Iterator[HealthFinding]:
    """The one alarm of the console that no number shows: DeepSpeed cannot lower its loss scale any more."""
    try:
        with paths.console.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(min(watched.console_at, size), size - LONGEST_TAIL))
            data = watched.tail + file.read(LONGEST_TAIL)
            watched.console_at = file.tell()
    except FileNotFoundError:
        return
    watched.tail = data[-len(SCALE_AT_FLOOR) :]
    if SCALE_AT_FLOOR in data:
        yield HealthFinding(
            code="loss_scale_collapse", severity=Severity.ERROR, evidence=SCALE_AT_FLOOR.decode() + " (console)"
        )
