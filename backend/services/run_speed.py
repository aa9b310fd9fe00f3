"""A run's records and readings in, what it costs and what would make it faster out: while it runs and after.

Everything is measured (or says it is an estimate); what is missing is named, never made up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from backend.domain.advice import Advice
from backend.domain.gpu import Device
from backend.domain.job import Job, Task
from backend.errors import InvalidInput, NotFound
from backend.planning.cards import CARDS, CardPeak, find_card
from backend.planning.cost import JOULES_PER_KWH, Cost, Offer, Place, Prices, Use, compare_places, count_cost
from backend.planning.flops import count_flops, utilization
from backend.planning.profiles import advise_profile
from backend.planning.spec import apply_changes, parse_spec
from backend.planning.speed import SpeedContext
from backend.planning.speed_running import DeviceFacts, RunningContext, RunningFacts, StepParts, advise_running
from backend.planning.steptime import mean_batch
from backend.services.api import Api
from backend.services.comparison import Comparisons, prices_of
from backend.services.forecast import Forecaster
from backend.services.gpus import GpuService
from backend.services.profile import load_profile, measure_parts
from backend.services.tuning import present_names
from backend.services.views import Views
from backend.store.columns import Curve
from backend.store.job_telemetry import DeviceSummary, load_job_history, summarise_job
from backend.store.series import RunSeries
from backend.store.step_table import RANK_SECONDS

MOST_STEPS = 2000
"""Advice looks at so many last steps."""
ELSEWHERE = ("MI300X", "MI325X", "MI355X", "H100", "H200", "B200")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Where time and tokens go, each 0..1 or None when not measured. `data_wait` of the step time (longest wait of a rank),
    `pauses` (saves and evaluations) of the time since the first step, `padding` of the computed tokens, `truncated` of the rows
    that were counted before the launch. `communication` (nothing else ran) and `idle` (no kernel ran) of the steps that the
    profiler traced last, `profiled_steps` names them ("" = no profile on accelerators)."""

    data_wait: float | None = None
    pauses: float | None = None
    padding: float | None = None
    truncated: float | None = None
    communication: float | None = None
    idle: float | None = None
    profiled_steps: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAdvice:
    """`ready`: enough steps were measured to judge. `advices`: first measured ones, then estimates for the next run."""

    ready: bool
    advices: tuple[Advice, ...]
    mfu: float | None
    mfu_source: str = ""
    shares: Shares = Shares()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """`cost` None: nothing to count (`missing` says why: no_gpu, not_started). `energy_estimate`: integrated from power, the
    card has no counter. `offers`: the whole run on other cards (estimates), this host first; empty without a measured pace."""

    cost: Cost | None
    missing: tuple[str, ...] = ()
    energy_estimate: bool = False
    tokens: float | None = None
    offers: tuple[Offer, ...] = ()


class RunSpeed:
    """Reads only. Thread-safe, as Views is."""

    def __init__(self, views: Views, forecaster: Forecaster, read_devices: Callable[[], Sequence[Device]]) -> None:
        self.views, self.api, self.forecaster, self.read_devices = views, views.api, forecaster, read_devices

    # --- advice --------------------------------------------------------------------------------------------------------

    def advice(self, job_id: str) -> RunAdvice:
        """Raises NotFound for an unknown job."""
        job = self.api.get_job(job_id)
        context = self._context(job)
        run = self.views.open_run(job)
        if context is None:
            return RunAdvice(ready=False, advices=(), mfu=None)
        facts = self._facts(job, run, context)
        running = RunningContext(facts=facts, work=context.work, shape=context.shape, lengths=context.lengths)
        measured = advise_running(running)
        known = {advice.code for advice in measured}
        planned = (*self.forecaster.plan(context).advices, *self._environment(job, context)) if job.devices else ()
        rest = tuple(back_by(advice, facts.parts) for advice in planned if advice.code not in known)
        mfu, source = self._mfu(job, run, context)
        return RunAdvice(
            ready=len(facts.steps) >= 8, advices=(*measured, *rest), mfu=mfu, mfu_source=source,
            shares=measure_shares(run, context, facts.parts),
        )  # fmt: skip

    def _environment(self, job: Job, context: SpeedContext) -> tuple[Advice, ...]:
        """The variables that the card's maker recommends and the run does not set."""
        card = next(iter(self._devices(job)), None)
        found = advise_profile(card.gfx_target, job.processes, context.spec.env, card.name) if card else None
        return (found,) if found else ()

    def apply(self, job_id: str, code: str) -> str:
        """A copy of the job's document with one advice's change. Raises NotFound for an advice that has none (any more)."""
        fix = next((advice.fix for advice in self.advice(job_id).advices if advice.code == code and advice.fix), None)
        if fix is None:
            raise NotFound(f"Job {job_id} has no advice {code!r} with a change to apply.")
        text = self.api.clone_text(job_id)
        return apply_changes(text, fix.set, present_names(text, fix.remove))

    def utilization(self, job_id: str) -> float | None:
        """Share of the card's bf16 peak that went into needed arithmetic, over the run's mean pace; None when not known."""
        job = self.api.get_job(job_id)
        context = self._context(job)
        return self._mfu(job, self.views.open_run(job), context)[0] if context else None

    def _context(self, job: Job) -> SpeedContext | None:
        """None for jobs that are no training, and for settings that cannot be read."""
        try:
            spec = parse_spec(self.api.read_spec_text(job.id))
            if spec.task is not Task.TRAIN:
                return None
            return self.forecaster.context(spec, self._devices(job), world=job.processes)[0]
        except (InvalidInput, NotFound):
            return None

    def _devices(self, job: Job) -> list[Device]:
        return [device for device in self.read_devices() if device.id in job.devices]

    def _facts(self, job: Job, run: RunSeries, context: SpeedContext) -> RunningFacts:
        with run.lock:
            names = [name for name in run.names() if name.startswith(RANK_SECONDS)]
            curves = run.curves(["seconds_per_step", "data_seconds", "memory_bytes", *names])
            pauses = [marker for marker in run.markers if marker.seconds is not None]
        steps, waits = _values(curves, "seconds_per_step"), _values(curves, "data_seconds")
        memory = _values(curves, "memory_bytes")
        saves = [marker.seconds or 0.0 for marker in pauses if marker.kind == "checkpoint"]
        evaluations = [marker.seconds or 0.0 for marker in pauses if marker.kind == "evaluation"]
        ranks = {int(name.removeprefix(RANK_SECONDS)): _values(curves, name) for name in names}
        workers = context.spec.train.get("dataloader_num_workers")
        return RunningFacts(
            steps=steps,
            waits=waits if len(waits) == len(steps) else (),
            rank_steps={rank: float(np.mean(values)) for rank, values in ranks.items() if values},
            save_seconds=saves,
            evaluation_seconds=sum(evaluations),
            elapsed_seconds=sum(steps) + sum(saves) + sum(evaluations),
            peak_bytes=int(max(memory)) if memory else None,
            capacity_bytes=context.card.capacity_bytes if context.card else None,
            parts=measure_parts(load_profile(self.api.paths.job(job.id))),
            devices=self._device_facts(job),
            dataloader_workers=workers if isinstance(workers, int) else 0,
        )

    def _device_facts(self, job: Job) -> tuple[DeviceFacts, ...]:
        folder = self.api.paths.job(job.id).telemetry
        names = {device.id: device for device in self.read_devices()}
        found = []
        for card in summarise_job(folder, job.devices):
            caps = load_job_history(folder, card.device, "power_cap_watts").mean
            known = caps[np.isfinite(caps)]
            device = names.get(card.device)
            found.append(
                DeviceFacts(
                    name=f"{device.name} {card.device}".strip() if device else card.device,
                    activity_percent=card.mean_activity_percent,
                    power_watts=card.mean_power_watts,
                    power_cap_watts=float(known[-1]) if len(known) else None,
                    power_default_watts=device.power_cap_max_watts if device else None,
                    throttled_percent=card.heat_limited_percent,
                )
            )
        return tuple(found)

    def _mfu(self, job: Job, run: RunSeries, context: SpeedContext) -> tuple[float | None, str]:
        rate = run.progress().mean_tokens_per_second
        if rate is None or context.shape is None or context.peak is None:
            return None, ""
        batch = mean_batch(context.work, context.lengths)
        count = count_flops(context.shape, context.work, sequences=1, length=batch.length, needed_only=True)
        used = utilization(count.model_per_token * rate / max(1, job.processes), 1.0, context.peak)
        return used.of_peak, used.peak_source

    # --- cost ----------------------------------------------------------------------------------------------------------

    def cost(self, job_id: str) -> RunCost:
        """Raises NotFound for an unknown job."""
        job = self.api.get_job(job_id)
        detail = self.views.headline(job)
        if job.started_at is None or not job.devices:
            return RunCost(cost=None, missing=("not_started" if job.started_at is None else "no_gpu",))
        cards = summarise_job(self.api.paths.job(job_id).telemetry, job.devices)
        joules, estimate = _joules(job, cards)
        prices = prices_of(self.api)
        progress = detail.percent / 100 if detail.percent else None
        use = Use(
            gpu_seconds=(detail.elapsed_seconds or 0.0) * len(job.devices),
            joules=joules,
            tokens=detail.tokens,
            epochs=detail.epoch,
            progress=progress,
            energy_source="power readings (estimate)" if estimate else "the cards' energy counters",
        )
        total = detail.tokens / progress if detail.tokens and progress else None
        cost = count_cost(use, prices)
        offers = self._offers(job, total, detail.mean_tokens_per_second, prices)
        if offers and cost.projected_kwh is not None:  # here everything is measured, energy and pauses too
            offers = (replace(offers[0], kwh=cost.projected_kwh, cost=cost.projected), *offers[1:])
        return RunCost(
            cost=cost,
            missing=tuple(_missing(prices, joules)),
            energy_estimate=estimate,
            tokens=total,
            offers=offers,
        )

    def _offers(self, job: Job, tokens: float | None, rate: float | None, prices: Prices) -> tuple[Offer, ...]:
        devices = self._devices(job)
        card = find_card(devices[0].name, gfx=devices[0].gfx_target) if devices else None
        if not tokens or not rate or card is None:
            return ()
        here = Place(name=card.name, card=card, gpus=len(job.devices), prices=prices, measured_rate=rate)
        places = [
            Place(name=other.name, card=other, gpus=len(job.devices), prices=self._price_of(other, prices))
            for other in CARDS
            if other.name in ELSEWHERE and other.name != card.name
        ]
        return compare_places(tokens, here, places)

    def _price_of(self, card: CardPeak, prices: Prices) -> Prices:
        """A card's own price, where the installation names one: never that of another card."""
        named = dict(self.api.settings.card_prices)
        return Prices(
            gpu_hour=named.get(card.name), kwh=None if card.name not in named else prices.kwh, currency=prices.currency,
            overhead=prices.overhead,
        )  # fmt: skip


_PART_OF = {
    "zero3_unneeded": "communication",
    "zero_unneeded": "communication",
    "offload_unneeded": "copies",
    "attention_slow": "attention",
    "optimizer_not_fused": "optimizer",
    "micro_batch_small": "idle",
}
"""Advice from the settings: the measured part of a step that it is about."""
MEASURED_SHARE = "measured_share"


def back_by(advice: Advice, parts: StepParts | None) -> Advice:
    """An estimate beside what the profiler measured of the part of the step that it is about (key MEASURED_SHARE)."""
    share = getattr(parts, _PART_OF.get(advice.code, ""), None) if parts else None
    return advice if share is None else replace(advice, evidence={**advice.evidence, MEASURED_SHARE: share})


def measure_shares(run: RunSeries, context: SpeedContext, parts: StepParts | None = None) -> Shares:
    """Over all steps of the run's present line; `parts` of the profiled ones."""
    with run.lock:
        curves = run.curves(["seconds_per_step", "data_seconds", "padding_share", "tokens", "elapsed_seconds"])
        pauses = sum(marker.seconds for marker in run.markers if marker.seconds is not None)
    whole = _last_of(curves, "elapsed_seconds")
    counted = context.lengths if context.lengths and not context.lengths.estimate else None
    return Shares(
        data_wait=_share_of(curves, "data_seconds", "seconds_per_step"),
        pauses=pauses / whole if whole else None,
        padding=_padding(curves),
        truncated=counted.truncated_share(context.work.cutoff) if counted else None,
        communication=parts.communication if parts else None,
        idle=parts.idle if parts else None,
        profiled_steps=parts.steps if parts else "",
    )


def _share_of(curves: Mapping[str, Curve], part: str, whole: str) -> float | None:
    """Sum over sum, of the points that have both."""
    if part not in curves or whole not in curves or len(curves[part].y) != len(curves[whole].y):
        return None
    both = np.isfinite(curves[part].y) & np.isfinite(curves[whole].y)
    total = float(curves[whole].y[both].sum())
    return float(curves[part].y[both].sum()) / total if total > 0 else None


def _padding(curves: Mapping[str, Curve]) -> float | None:
    """Weighted by computed tokens: tokens / (1 - share) of each step."""
    if "padding_share" not in curves or "tokens" not in curves:
        return None
    share, total = curves["padding_share"], curves["tokens"]
    if len(share.y) != len(total.y):
        return None
    trained = np.diff(total.y, prepend=0.0)
    known = np.isfinite(share.y) & np.isfinite(trained) & (share.y < 1) & (trained >= 0)
    computed = trained[known] / (1 - share.y[known])
    return float(1 - trained[known].sum() / computed.sum()) if computed.sum() > 0 else None


def _last_of(curves: Mapping[str, Curve], key: str) -> float | None:
    values = _values(curves, key)
    return values[-1] if values else None


def _values(curves: Mapping[str, Curve], name: str) -> list[float]:
    """Finite values of the last steps."""
    curve = curves.get(name)
    if curve is None:
        return []
    values = curve.y[-MOST_STEPS:]
    return [float(value) for value in values[np.isfinite(values)]]


def _joules(job: Job, cards: Sequence[DeviceSummary]) -> tuple[float | None, bool]:
    """Of all devices together; one that was not measured leaves the sum unknown, not small."""
    known = [card.energy_kwh for card in cards if card.energy_kwh is not None]
    if len(known) < len(job.devices):
        return None, False
    return sum(known) * JOULES_PER_KWH, any(card.energy_is_estimate for card in cards)


def _missing(prices: Prices, joules: float | None) -> list[str]:
    gaps = []
    if prices.gpu_hour is None and prices.kwh is None:
        gaps.append("no_price")
    if joules is None:
        gaps.append("no_telemetry")
    return gaps


def open_comparisons(api: Api, gpus: GpuService) -> Comparisons:
    """Comparisons that know each run's MFU, for commands that have no server."""
    views = Views(api)
    speed = RunSpeed(views, Forecaster(api.settings, api.paths, api.environments), gpus.read_devices)
    return Comparisons(views, utilization=speed.utilization)
