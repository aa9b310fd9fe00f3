"""A run's recorded progress in, the figures at the top of its page out. What is estimated says so; unknown is None."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.domain.job import Job, JobState
from backend.store.series import Marker, Progress, Segment

SPEED_STEPS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """Units in the names; `docs/contracts.md` says when a field is None. `eta_seconds` is an estimate."""

    step: int | None
    max_steps: int | None
    percent: float | None
    loss: float | str | None
    epoch: float | None
    tokens_per_second: float | None
    mean_tokens_per_second: float | None
    seconds_per_step: float | None
    eta_seconds: float | None
    elapsed_seconds: float | None
    phase: str | None
    tokens: int | None
    last_step_at: float | None
    stalled_seconds: float | None


def build_headline(job: Job, progress: Progress, now: float) -> Headline:
    """`now` is the Unix time of the answer."""
    segment = progress.segment
    step = job.step if progress.step is None else progress.step
    max_steps = segment.max_steps if segment and segment.max_steps else job.max_steps
    is_training = not job.state.is_final and segment is not None and segment.ended_at is None
    phase = segment.phases[-1][0] if segment and segment.phases else (job.phase or None)
    return Headline(
        step=step,
        max_steps=max_steps,
        percent=round(100 * step / max_steps, 4) if step is not None and max_steps else None,
        loss=number_or_word(job.loss if progress.loss is None else progress.loss),
        epoch=progress.epoch,
        tokens_per_second=_measured(measured_speed(progress)) if is_training else None,
        mean_tokens_per_second=_measured(progress.mean_tokens_per_second),
        seconds_per_step=_measured(_mean(_known(progress.seconds)[-SPEED_STEPS:].tolist())) if is_training else None,
        eta_seconds=_rounded(estimated_rest(progress, segment, step, max_steps), 3)
        if is_training and segment
        else None,
        elapsed_seconds=_rounded(elapsed(job, now), 3),
        phase=phase,
        tokens=None if progress.total_tokens is None else int(progress.total_tokens),
        last_step_at=progress.last_step_at,
        stalled_seconds=_rounded(stalled(progress, now), 3)
        if is_training and job.state is not JobState.QUEUED
        else None,
    )


def number_or_word(value: float | None) -> float | str | None:
    """JSON knows no NaN or infinity: they become "nan", "inf", "-inf"."""
    return value if value is None or np.isfinite(value) else str(float(value))


def measured_speed(progress: Progress) -> float | None:
    """Tokens a second now: tokens of all ranks over the seconds of the slowest, of the last steps."""
    seconds, tokens = progress.seconds[-SPEED_STEPS:], progress.tokens[-SPEED_STEPS:]
    counted = np.isfinite(tokens)
    spent = float(seconds[counted].sum())
    return float(tokens[counted].sum()) / spent if spent > 0 else None


def estimated_rest(
    progress: Progress, segment: Segment, step: int | None, max_steps: int | None
) -> float | None:  # fmt: skip
    """Steps to come at the median of the recent ones, and the evaluations and saves to come at their recent length."""
    seconds = _known(progress.seconds)
    if not max_steps or step is None or not len(seconds):
        return None
    begin = segment.begin_step or 0
    rest = max(0, max_steps - step) * float(np.median(seconds))
    for kind in ("evaluation", "checkpoint"):
        pauses = [marker for marker in progress.pauses if marker.kind == kind and marker.step > begin]
        rest += _pauses_to_come(pauses, begin, step, max_steps)
    return rest


def _pauses_to_come(pauses: Sequence[Marker], begin: int, step: int, max_steps: int) -> float:
    """They come at the interval they came at so far; each as long as the last five on average."""
    if not pauses:
        return 0.0
    interval = (pauses[-1].step - begin) / len(pauses)
    to_come = int((max_steps - begin) / interval) - int((step - begin) / interval)
    return to_come * (_mean([marker.seconds or 0.0 for marker in pauses[-5:]]) or 0.0)


def elapsed(job: Job, now: float) -> float | None:
    """Seconds from the start of the job to its end, or to now."""
    if job.started_at is None:
        return None
    return max(0.0, (now if job.ended_at is None else job.ended_at) - job.started_at)


def stalled(progress: Progress, now: float) -> float | None:
    """Seconds without a step, when far longer than a step takes and no evaluation or save explains it."""
    segment = progress.segment
    if segment is None or progress.last_step_at is None or not segment.phases or segment.phases[-1][0] != "training":
        return None
    silent = now - max(progress.last_step_at, segment.phases[-1][1])
    seconds = _known(progress.seconds)
    usual = float(np.median(seconds)) * progress.stride if len(seconds) else 0.0
    return silent if silent > 10 * usual + 30 else None


def _measured(value: float | None) -> float | None:
    """Measured times and speeds have no more than seven true digits."""
    return None if value is None else float(f"{value:.7g}")


def _rounded(value: float | None, digits: int) -> float | None:
    """Without the digits that only the arithmetic made: they are sent every second."""
    return None if value is None else round(value, digits)


def _known(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The log of a run that we did not start does not tell the time of every step."""
    return seconds[np.isfinite(seconds)]


def _mean(values: Sequence[float]) -> float | None:
    return float(sum(values)) / len(values) if values else None
