"""A specification and ranges of settings in, a group of jobs out: submitted together, stopped early by eval loss, compared.

`sweeps/<id>.json` names the jobs and what each was given; everything else is read from the jobs themselves.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from backend.domain.job import Job, JobState, StopMode
from backend.domain.problem import ArgValue
from backend.errors import Conflict, InvalidInput, NotFound, SpecRejected
from backend.planning.spec import apply_changes, parse_spec
from backend.planning.sweeping import Range, Trace, Values, build_combinations, runs_to_stop
from backend.services.api import Api
from backend.services.headline import number_or_word
from backend.store.files import read_json, write_json
from backend.store.series import RunSeries
from backend.store.series_cache import SeriesCache

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")
_SPAN = re.compile(r"([-+0-9.eE]+)\.\.([-+0-9.eE]+)(:log)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One group. `jobs`: id to the values it was given, in the order of submission."""

    id: str
    name: str
    created_at: float
    keys: tuple[str, ...]
    early_stop: bool
    jobs: Mapping[str, Values]
    stopped_early: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One run of a sweep. Losses: a number, "nan" or "inf" when it diverged, None while there is none."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepView:
    """A sweep with its rows. `metric` is what the best is chosen by: eval_loss as soon as a run has one, else loss."""

    sweep: Sweep
    metric: str
    active: int
    rows: tuple[SweepRow, ...] = field(default=())


class Sweeps:
    """All sweeps of this installation."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.root = api.paths.sweeps
        self.cache = SeriesCache()

    def start(
        self, spec_text: str, ranges: Sequence[Range], *, samples: int | None = None, seed: int = 0, early_stop: bool = False
    ) -> Sweep:  # fmt: skip
        """Check every combination, then submit them all. Raises InvalidInput, SpecRejected naming the first bad combination."""
        spec = parse_spec(spec_text)
        if early_stop and spec.train.get("eval_strategy", "no") == "no":
            raise InvalidInput(
                "eval_strategy", found="no evaluation", expected="steps or epoch, with eval_dataset or val_size",
                remedy="Early stopping compares eval losses.",
            )  # fmt: skip
        combinations = build_combinations(ranges, samples=samples, seed=seed)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(self.api.clock()))
        slug = re.sub(r"[^a-z0-9]+", "-", spec.name.lower()).strip("-")[:40] or "sweep"
        sweep_id = f"{stamp}-{slug}-{secrets.token_hex(2)}"
        texts = [self._text(spec_text, values, sweep_id, at + 1) for at, values in enumerate(combinations)]
        for text, values in zip(texts, combinations, strict=True):
            self._check(text, values)
        jobs = {self.api.submit(text).id: values for text, values in zip(texts, combinations, strict=True)}
        sweep = Sweep(
            id=sweep_id, name=spec.name, created_at=self.api.clock(), keys=tuple(each.key for each in ranges),
            early_stop=early_stop, jobs=jobs,
        )  # fmt: skip
        self._save(sweep)
        return sweep

    def _text(self, spec_text: str, values: Values, sweep_id: str, number: int) -> str:
        spec = parse_spec(spec_text)
        tags: list[ArgValue] = [*spec.tags, f"sweep:{sweep_id}"]
        return apply_changes(
            spec_text, {**values, "tunedeck.name": f"{spec.name}-s{number:02d}", "tunedeck.tags": tags}
        )

    def _check(self, text: str, values: Values) -> None:
        preview = self.api.preview(text)
        if preview.errors:
            first = preview.errors[0]
            where = ", ".join(f"{key}={value}" for key, value in values.items())
            raise SpecRejected(preview.problems, f"{where}: {first.field}: {first.found}. {first.remedy}")

    def get(self, sweep_id: str) -> Sweep:
        """Raises NotFound."""
        record = read_json(self.root / f"{sweep_id}.json") if _ID.fullmatch(sweep_id) else None
        if not isinstance(record, dict):
            raise NotFound(f"No sweep has the id {sweep_id!r}.")
        return Sweep(
            id=str(record["id"]), name=str(record["name"]), created_at=float(record["created_at"]),
            keys=tuple(record["keys"]), early_stop=bool(record["early_stop"]), jobs=dict(record["jobs"]),
            stopped_early=tuple(record.get("stopped_early") or ()),
        )  # fmt: skip

    def every(self) -> list[Sweep]:
        """Newest first."""
        return [self.get(path.stem) for path in sorted(self.root.glob("*.json"), reverse=True)]

    def view(self, sweep_id: str) -> SweepView:
        """Best first; runs without a figure last, in the order of submission."""
        sweep = self.get(sweep_id)
        rows = [self._row(sweep, job) for job in self._jobs(sweep)]
        metric = "eval_loss" if any(row.best_eval_loss is not None for row in rows) else "loss"
        rows.sort(key=lambda row: _figure(row, metric))
        if rows and _figure(rows[0], metric) < float("inf"):
            rows[0] = replace(rows[0], best=True)
        active = sum(not JobState(row.state).is_final for row in rows)
        return SweepView(sweep=sweep, metric=metric, active=active, rows=tuple(rows))

    def stop(self, sweep_id: str) -> SweepView:
        """End every run that has not ended: waiting ones are cancelled, running ones save a checkpoint first."""
        for job in self._jobs(self.get(sweep_id)):
            if not job.state.is_final:
                self._end(job)
        return self.view(sweep_id)

    def beat(self) -> list[str]:
        """Early stopping of all sweeps that ask for it; returns the jobs that were stopped now."""
        stopped = []
        for sweep in self.every():
            if sweep.early_stop:
                stopped += self._stop_early(sweep)
        return stopped

    def _stop_early(self, sweep: Sweep) -> list[str]:
        jobs = {job.id: job for job in self._jobs(sweep)}
        if not any(job.state is JobState.RUNNING for job in jobs.values()):
            return []
        behind = list(runs_to_stop([self._trace(job) for job in jobs.values()]))
        for name in behind:
            self._end(jobs[name])
        if behind:
            known = dict.fromkeys((*sweep.stopped_early, *behind))
            self._save(replace(sweep, stopped_early=tuple(known)))
        return behind

    def _end(self, job: Job) -> None:
        try:
            self.api.request_stop(job.id, StopMode.SAVE)
        except Conflict:
            return  # it ended by itself meanwhile

    def _trace(self, job: Job) -> Trace:
        curve = self._run(job).curves(["eval_loss"]).get("eval_loss")
        steps = () if curve is None else tuple(int(step) for step in curve.x)
        losses = () if curve is None else tuple(float(loss) for loss in curve.y)
        return Trace(job=job.id, steps=steps, losses=losses, running=job.state is JobState.RUNNING)

    def _row(self, sweep: Sweep, job: Job) -> SweepRow:
        run = self._run(job)
        progress = run.progress()
        evaluations = run.curves(["eval_loss"]).get("eval_loss")
        finite = evaluations.y[np.isfinite(evaluations.y)] if evaluations is not None else np.empty(0)
        ended = job.ended_at or self.api.clock()
        return SweepRow(
            job=job.id,
            name=job.name,
            state=job.state.value,
            values=sweep.jobs[job.id],
            step=progress.step if progress.step is not None else job.step,
            max_steps=job.max_steps,
            loss=number_or_word(job.loss if progress.loss is None else progress.loss),
            best_eval_loss=float(finite.min()) if len(finite) else None,
            last_eval_loss=number_or_word(float(evaluations.y[-1]))
            if evaluations is not None and len(evaluations.y)
            else None,
            seconds=None if job.started_at is None else max(0.0, ended - job.started_at),
            tokens_per_second=progress.mean_tokens_per_second,
            stopped_early=job.id in sweep.stopped_early,
        )

    def _run(self, job: Job) -> RunSeries:
        return self.cache.open(self.api.paths.job(job.id).recorder, ended=job.state.is_final)

    def _jobs(self, sweep: Sweep) -> list[Job]:
        """Those that were not deleted."""
        found = []
        for name in sweep.jobs:
            try:
                found.append(self.api.get_job(name))
            except NotFound:
                continue
        return found

    def _save(self, sweep: Sweep) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        write_json(self.root / f"{sweep.id}.json", asdict(sweep))


def _figure(row: SweepRow, metric: str) -> float:
    value = row.best_eval_loss if metric == "eval_loss" else row.loss
    return float(value) if isinstance(value, (int, float)) else float("inf")


def parse_range(key: str, text: str) -> Range:
    """`1e-5,1e-4,3e-4`, `true,false` or `1e-5..1e-3:log`; a list value (`q_proj,v_proj`) needs `;` between the choices.

    Values are read as the trainer reads them. Raises InvalidInput naming the setting.
    """
    if span := _SPAN.fullmatch(text.strip()):
        return _span(key, *span.groups())
    parts = [part.strip() for part in text.split(";" if ";" in text else ",")]
    if not all(parts) or not key:
        raise InvalidInput(key or "grid", found=repr(text), expected="values separated by commas, or low..high")
    values = tuple(dict.fromkeys(_typed(part) for part in parts))
    return Range(key=key, values=values)


def _typed(text: str) -> ArgValue:
    from omegaconf import OmegaConf

    read = OmegaConf.to_container(OmegaConf.create(f"v: {text}"))
    return read["v"] if isinstance(read, dict) else text


def _span(key: str, low_text: str, high_text: str, log: str | None) -> Range:
    try:
        low, high = float(low_text), float(high_text)
    except ValueError as error:
        raise InvalidInput(key, found=f"{low_text}..{high_text}", expected="two numbers") from error
    if not low < high or (log and low <= 0):
        raise InvalidInput(key, found=f"{low_text}..{high_text}", expected="low..high, both above 0 with :log")
    whole = re.fullmatch(r"[-+]?\d+", low_text) is not None and re.fullmatch(r"[-+]?\d+", high_text) is not None
    return Range(key=key, low=low, high=high, log=bool(log), whole=whole)


def describe_sweep(view: SweepView) -> Sequence[str]:
    """Lines for terminals: a table of the runs, best first."""
    keys = view.sweep.keys
    lines = [" | ".join(["run", "state", *keys, "loss", "eval_loss", "tokens/s"])]
    for row in view.rows:
        cells = [row.job, row.state + (" (early)" if row.stopped_early else "")]
        cells += [str(row.values.get(key)) for key in keys]
        cells += [_short(row.loss), _short(row.best_eval_loss), _short(row.tokens_per_second)]
        lines.append(("* " if row.best else "  ") + " | ".join(cells))
    return lines


def _short(value: float | str | None) -> str:
    return "-" if value is None else value if isinstance(value, str) else f"{value:.4g}"
