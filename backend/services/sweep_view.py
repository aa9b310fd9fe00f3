"""A sweep and the jobs of its runs in, the comparison that pages and terminals show out: best first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from backend.domain.job import JobState
from backend.errors import NotFound
from backend.planning.spec import parse_spec
from backend.planning.sweeping import Trace, Values
from backend.services.api import Api
from backend.services.headline import number_or_word
from backend.services.sweep_members import Member
from backend.store.series import RunSeries
from backend.store.series_cache import SeriesCache
from backend.store.sweeps import Sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One run of a sweep. Losses: a number, "nan" or "inf" when it diverged, None while there is none. `seconds` and losses
    are those of all its jobs; `job` is the newest, and `resumed_from` the step of the checkpoint that it went on from."""

    job: str
    name: str
    state: str
    values: Values
    step: int | None
    max_steps: int | None
    loss: float | str | None
    best_eval_loss: float | None
    last_eval_loss: float | str | None
    seconds: float | None
    tokens_per_second: float | None
    stopped_early: bool = False
    best: bool = False
    resumed_from: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepView:
    """A sweep with its rows. `metric` is what the best is chosen by: eval_loss as soon as a run has one, else loss.
    `waiting`: runs that are not queued yet; `to_resume`: ended runs that a resume brings back; `failed`: those that it
    brings back only when asked to."""

    sweep: Sweep
    metric: str
    active: int
    rows: tuple[SweepRow, ...] = field(default=())
    waiting: int = 0
    halted: bool = False
    to_resume: int = 0
    failed: int = 0


class SweepReader:
    """Figures of the runs of sweeps; keeps what it read. Thread-safe as its cache is."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.cache = SeriesCache()
        self._starts: dict[str, int] = {}

    def view(self, sweep: Sweep, members: Sequence[Member], *, halted: bool) -> SweepView:
        """Best first; runs without a figure last, in the order of submission."""
        rows = [self._row(sweep, member) for member in members]
        metric = "eval_loss" if any(row.best_eval_loss is not None for row in rows) else "loss"
        rows.sort(key=lambda row: _figure(row, metric))
        if rows and _figure(rows[0], metric) < float("inf"):
            rows[0] = replace(rows[0], best=True)
        return SweepView(
            sweep=sweep,
            metric=metric,
            active=sum(not member.now.state.is_final for member in members),
            rows=tuple(rows),
            waiting=len(sweep.waiting),
            halted=halted,
            to_resume=sum(may_resume(sweep, member) for member in members),
            failed=sum(may_resume(sweep, member, failed=True) for member in members)
            - sum(may_resume(sweep, member) for member in members),
        )

    def trace(self, member: Member) -> Trace:
        """Of all jobs of the run, the newest's evaluations where two have the same step."""
        losses = self._evaluations(member)
        running = member.now.state is JobState.RUNNING
        return Trace(job=member.now.id, steps=tuple(losses), losses=tuple(losses.values()), running=running)

    def _row(self, sweep: Sweep, member: Member) -> SweepRow:
        job, run = member.now, self._run(member, -1)
        progress = run.progress()
        losses = list(self._evaluations(member).values())
        finite = [loss for loss in losses if np.isfinite(loss)]
        start = self._start(member, len(member.jobs) - 1)
        return SweepRow(
            job=job.id,
            name=job.name,
            state=job.state.value,
            values=member.values,
            step=next((step for step in (progress.step, job.step, start or None) if step is not None), None),
            max_steps=job.max_steps if job.max_steps is not None else member.jobs[0].max_steps,
            loss=self._loss(member),
            best_eval_loss=min(finite, default=None),
            last_eval_loss=number_or_word(losses[-1]) if losses else None,
            seconds=self._seconds(member),
            tokens_per_second=progress.mean_tokens_per_second,
            stopped_early=is_early(sweep, member),
            resumed_from=start or None,
        )

    def _loss(self, member: Member) -> float | str | None:
        """Of the newest job that has one and that the newest goes on from."""
        for at in range(len(member.jobs) - 1, -1, -1):
            known = self._run(member, at).progress().loss
            known = member.jobs[at].loss if known is None else known
            if known is not None:
                return number_or_word(known)
            if self._start(member, at) == 0:
                return None
        return None

    def _seconds(self, member: Member) -> float | None:
        now = self.api.clock()
        spans = [max(0.0, (job.ended_at or now) - job.started_at) for job in member.jobs if job.started_at is not None]
        return sum(spans) if spans else None

    def _evaluations(self, member: Member) -> dict[int, float]:
        """Step to eval loss. What a job did after the checkpoint that the next one went on from does not count."""
        found: dict[int, float] = {}
        for at in range(len(member.jobs)):
            start = self._start(member, at)
            found = {step: loss for step, loss in found.items() if step <= start}
            curve = self._run(member, at).curves(["eval_loss"]).get("eval_loss")
            if curve is not None:
                found |= {int(step): float(loss) for step, loss in zip(curve.x, curve.y, strict=True)}
        return dict(sorted(found.items()))

    def _start(self, member: Member, at: int) -> int:
        """The step that a job goes on from; 0 when it begins anew."""
        job_id = member.jobs[at].id
        if at == 0:
            return 0
        if job_id not in self._starts:
            try:
                checkpoint = str(parse_spec(self.api.read_spec_text(job_id)).train.get("resume_from_checkpoint") or "")
            except NotFound:
                checkpoint = ""
            step = checkpoint.rpartition("-")[2]
            self._starts[job_id] = int(step) if step.isdecimal() else 0
        return self._starts[job_id]

    def _run(self, member: Member, at: int) -> RunSeries:
        job = member.jobs[at]
        return self.cache.open(self.api.paths.job(job.id).recorder, ended=job.state.is_final)


def is_early(sweep: Sweep, member: Member) -> bool:
    """Asked to stop because it fell behind, and not done before that."""
    return member.now.id in sweep.stopped_early and member.now.state in (JobState.STOPPING, JobState.CANCELLED)


def may_resume(sweep: Sweep, member: Member, *, failed: bool = False) -> bool:
    """Ended before its end, by a person or with its host; with `failed` also by a fault of its own, which may come again."""
    job = member.now
    if not job.state.is_final or job.state is JobState.SUCCEEDED or is_early(sweep, member):
        return False
    return failed or job.state is not JobState.FAILED or (job.reason is not None and job.reason.may_retry)


def _figure(row: SweepRow, metric: str) -> float:
    value = row.best_eval_loss if metric == "eval_loss" else row.loss
    return float(value) if isinstance(value, (int, float)) else float("inf")


def describe_sweep(view: SweepView) -> Sequence[str]:
    """Lines for terminals: a table of the runs, best first."""
    keys = view.sweep.keys
    lines = [" | ".join(["run", "state", *keys, "loss", "eval_loss", "tokens/s"])]
    for row in view.rows:
        cells = [row.job, row.state + (" (early)" if row.stopped_early else "")]
        cells += [str(row.values.get(key)) for key in keys]
        cells += [_short(row.loss), _short(row.best_eval_loss), _short(row.tokens_per_second)]
        lines.append(("* " if row.best else "  ") + " | ".join(cells))
    if view.waiting:
        lines.append(
            f"{view.waiting} runs are not queued yet{': stopped, `--resume` queues them' if view.halted else ''}"
        )
    return lines


def _short(value: float | str | None) -> str:
    return "-" if value is None else value if isinstance(value, str) else f"{value:.4g}"
