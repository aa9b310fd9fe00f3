"""Job ids in, a comparison out: figures of each run (or why one is missing), settings in which they differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backend.domain.job import Job
from backend.domain.problem import ArgValue
from backend.errors import InvalidInput, NotFound
from backend.planning.cost import JOULES_PER_KWH, Prices, Use, count_cost
from backend.planning.document import render_value
from backend.planning.schema_builtin import BUILTIN_SCHEMA
from backend.planning.settings_diff import HIDDEN, Difference, Setting, compare_settings, flatten_settings
from backend.planning.spec import apply_changes
from backend.services.api import Api
from backend.services.headline import elapsed, number_or_word
from backend.services.preflight import schema_of
from backend.services.secrets import is_secret_name
from backend.services.views import JobRow, Views, job_row
from backend.store.job_telemetry import DeviceSummary, summarise_job
from backend.store.series import RunSeries

MOST_RUNS = 200
Utilizations = Callable[[str], float | None]
"""MFU (0..1) of a job by its id, None when it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number of a run. `value` None: not known, and `missing` (a key of ui/text, `missing.<key>`) says why."""

    value: float | str | None
    missing: str = ""
    estimate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSetting:
    """`text` "" and `given` false: the run does not set it; `default` is then what the trainer takes, "" = it decides itself."""

    given: bool
    text: str
    default: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedKey:
    """A setting in which the runs differ, one value a run."""

    key: str
    values: tuple[ComparedSetting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """One run of a comparison; `keys` are its series."""

    job: JobRow
    figures: Mapping[str, Figure]
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`absent`: ids that no job has (deleted since). `shared`: how many settings all runs have alike. `currency` of the costs."""

    runs: tuple[ComparedRun, ...]
    absent: tuple[str, ...]
    differences: tuple[ComparedKey, ...]
    shared: int
    currency: str


class Comparisons:
    """Reads only. Thread-safe, as Views is."""

    def __init__(self, views: Views, *, utilization: Utilizations | None = None) -> None:
        self.views, self.api = views, views.api
        self.utilization = utilization

    def compare(self, job_ids: Sequence[str]) -> Comparison:
        """Runs in the order asked for. Raises InvalidInput for none or too many ids, NotFound when no run is left."""
        ids = parse_ids(job_ids)
        jobs, absent = [], []
        for job_id in ids:
            try:
                jobs.append(self.api.get_job(job_id))
            except NotFound:
                absent.append(job_id)
        if not jobs:
            raise NotFound(f"None of these jobs exists: {', '.join(absent)}.")
        settings = [self._settings(job.id) for job in jobs]
        differences = compare_settings(settings, self._defaults(), is_secret_name)
        return Comparison(
            runs=tuple(self._run(job) for job in jobs),
            absent=tuple(absent),
            differences=tuple(_shown(difference) for difference in differences),
            shared=len({key for job in settings for key in job}) - len(differences),
            currency=self.api.settings.currency,
        )

    def difference(self, first: str, second: str) -> tuple[Difference, ...]:
        """Changed settings of two jobs. Raises NotFound."""
        jobs = [self._settings(self.api.get_job(job_id).id) for job_id in (first, second)]
        return compare_settings(jobs, self._defaults(), is_secret_name)

    def public_spec(self, job_id: str) -> str:
        """The specification as its author wrote it, with the values of secrets replaced; "" when it cannot be read."""
        try:
            text = self.api.read_spec_text(job_id)
            named = [
                key for key, value in flatten_settings(text).items() if value and is_secret_name(key.rpartition(".")[2])
            ]
            return apply_changes(text, dict.fromkeys(named, HIDDEN)) if named else text
        except (InvalidInput, NotFound):
            return ""

    def _settings(self, job_id: str) -> dict[str, ArgValue]:
        try:
            return flatten_settings(self.api.read_spec_text(job_id))
        except (InvalidInput, NotFound):
            return {}  # a folder that lost its specification still has figures and curves

    def _defaults(self) -> dict[str, ArgValue]:
        """The trainer's own, of the environment described last (the built-in ones until there is one)."""
        environment = self.api.environments.cached()
        schema = (schema_of(environment) if environment else None) or BUILTIN_SCHEMA
        return {name: argument.default for name, argument in schema.arguments.items()}

    def _run(self, job: Job) -> ComparedRun:
        run = self.views.open_run(job)
        return ComparedRun(job=job_row(job), figures=self._figures(job, run), keys=tuple(run.names()))

    def _figures(self, job: Job, run: RunSeries) -> dict[str, Figure]:
        begun = job.started_at is not None
        progress = run.progress()
        cards = summarise_job(self.api.paths.job(job.id).telemetry, job.devices) if job.devices else ()
        seconds = elapsed(job, self.views.clock())
        energy = _energy(job, cards)
        return {
            **_losses(run, begun),
            "tokens_per_second": _figure(
                progress.mean_tokens_per_second, "not_started" if not begun else "tokens_not_counted"
            ),
            "mfu": self._mfu(job, progress.mean_tokens_per_second),
            "peak_memory_bytes": _peak_memory(job, run, cards),
            "tokens": _figure(progress.total_tokens, "not_started" if not begun else "tokens_not_counted"),
            "hours": _figure(None if seconds is None else seconds / 3600, "not_started"),
            "kwh": energy,
            "cost": _cost(self.api, job, seconds, energy),
        }

    def _mfu(self, job: Job, rate: float | None) -> Figure:
        if not job.devices:
            return Figure(value=None, missing="no_gpu" if job.started_at else "not_started")
        if rate is None:
            return Figure(value=None, missing="tokens_not_counted")
        return _figure(self.utilization(job.id) if self.utilization else None, "model_unknown", estimate=True)


def parse_ids(job_ids: Sequence[str]) -> tuple[str, ...]:
    """Each id once, in order. Raises InvalidInput for none, or more than MOST_RUNS."""
    ids = tuple(dict.fromkeys(job_id.strip() for job_id in job_ids if job_id.strip()))
    if not 1 <= len(ids) <= MOST_RUNS:
        raise InvalidInput(
            "runs", found=f"{len(ids)} job ids", expected=f"1 to {MOST_RUNS} job ids, separated by commas"
        )
    return ids


def prices_of(api: Api) -> Prices:
    """What this installation says of money."""
    settings = api.settings
    return Prices(
        gpu_hour=settings.price_gpu_hour,
        kwh=settings.price_kwh,
        currency=settings.currency,
        overhead=settings.power_overhead,
    )


def _losses(run: RunSeries, begun: bool) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    curves = run.curves(["loss", "eval_loss"])
    for key, missing in (("loss", "not_logged"), ("eval_loss", "no_evaluation")):
        curve, why = curves.get(key), missing if begun else "not_started"
        if curve is None or not len(curve.x):
            found |= {f"final_{key}": Figure(value=None, missing=why), f"best_{key}": Figure(value=None, missing=why)}
            continue
        odd = dict(curve.odd)
        last = odd.get(int(curve.x[-1]), float(curve.y[-1]))
        finite = curve.y[np.isfinite(curve.y)]
        found[f"final_{key}"] = Figure(value=number_or_word(last))
        found[f"best_{key}"] = _figure(float(finite.min()) if len(finite) else None, "never_a_number")
    return found


def _peak_memory(job: Job, run: RunSeries, cards: Sequence[DeviceSummary]) -> Figure:
    """What the trainer's allocator reached on the fullest rank; without a recorder what the card itself reported."""
    curve = run.curves(["memory_bytes"]).get("memory_bytes")
    own = curve.y[np.isfinite(curve.y)] if curve is not None else np.empty(0)
    if len(own):
        return Figure(value=float(own.max()))
    read = [card.max_vram_bytes for card in cards if card.max_vram_bytes is not None]
    missing = "not_started" if job.started_at is None else "no_gpu" if not job.devices else "no_telemetry"
    return _figure(max(read, default=None), missing)


def _energy(job: Job, cards: Sequence[DeviceSummary]) -> Figure:
    """Of all devices together; one that was not measured leaves the sum unknown, not small."""
    if job.started_at is None or not job.devices:
        return Figure(value=None, missing="not_started" if job.started_at is None else "no_gpu")
    known = [card.energy_kwh for card in cards if card.energy_kwh is not None]
    if len(known) < len(job.devices):
        return Figure(value=None, missing="no_telemetry")
    return Figure(value=sum(known), estimate=any(card.energy_is_estimate for card in cards))


def _cost(api: Api, job: Job, seconds: float | None, energy: Figure) -> Figure:
    prices = prices_of(api)
    if prices.gpu_hour is None and prices.kwh is None:
        return Figure(value=None, missing="no_price")
    if seconds is None or not job.devices:
        return Figure(value=None, missing="not_started" if seconds is None else "no_gpu")
    joules = energy.value * JOULES_PER_KWH if isinstance(energy.value, float) else None
    cost = count_cost(Use(gpu_seconds=seconds * len(job.devices), joules=joules), prices)
    left_out = prices.kwh is not None and joules is None
    return _figure(cost.total, "no_telemetry", estimate=energy.estimate or left_out)


def _figure(value: float | None, missing: str, *, estimate: bool = False) -> Figure:
    if value is None or not math.isfinite(value):
        return Figure(value=None, missing=missing)
    return Figure(value=float(value), estimate=estimate)


def _shown(difference: Difference) -> ComparedKey:
    return ComparedKey(key=difference.key, values=tuple(_shown_setting(setting) for setting in difference.settings))


def _shown_setting(setting: Setting) -> ComparedSetting:
    default = "" if setting.given or setting.default is None else render_value(setting.default)
    return ComparedSetting(
        given=setting.given, text=render_value(setting.value) if setting.given else "", default=default
    )
