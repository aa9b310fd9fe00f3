"""Energy, time and prices in, cost out: of a run, of a million tokens, of an epoch, in total when it is done, elsewhere.

No currency and no price is known here: both are the installation's settings, and every figure names where it comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from backend.planning.cards import CardPeak

JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Per GPU-hour and per kWh, in one currency. None = not set: that part is left out of the cost, and said."""

    gpu_hour: float | None = None
    kwh: float | None = None
    currency: str = ""
    overhead: float = 1.0
    """Whole host and cooling over GPU power (PUE-like): 1 counts the GPUs alone."""
    source: str = "settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSample:
    """One reading of one device: `energy_joules` is a counter since some start, `watts` the power at that moment."""

    at: float
    watts: float | None = None
    energy_joules: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """`source`: counter (differences of the device's own counter) or power (integrated readings). `covered`: share of the
    asked time that readings covered; the rest is not made up."""

    joules: float
    source: str
    covered: float

    @property
    def kwh(self) -> float:
        return self.joules / JOULES_PER_KWH


def measure_energy(
    samples: Sequence[PowerSample], begin: float, end: float, *, gap_seconds: float = 30.0
) -> Energy | None:
    """Energy of one device between two times. The counter wins; a counter that went back (reset) is not bridged.

    None without two readings in that time. Gaps longer than `gap_seconds` are not filled in.
    """
    inside = sorted((s for s in samples if begin <= s.at <= end), key=lambda sample: sample.at)
    if end <= begin:
        return None
    return _by_counter(inside, begin, end) or _by_power(inside, begin, end, gap_seconds)


def _by_counter(samples: Sequence[PowerSample], begin: float, end: float) -> Energy | None:
    joules = covered = 0.0
    known = [(sample.at, sample.energy_joules) for sample in samples if sample.energy_joules is not None]
    for (earlier, before), (later, after) in pairwise(known):
        if after >= before:
            joules += after - before
            covered += later - earlier
    if covered == 0:
        return None
    return Energy(joules=joules, source="counter", covered=min(1.0, covered / (end - begin)))


def _by_power(samples: Sequence[PowerSample], begin: float, end: float, gap_seconds: float) -> Energy | None:
    joules = covered = 0.0
    known = [(sample.at, sample.watts) for sample in samples if sample.watts is not None]
    for (earlier, before), (later, after) in pairwise(known):
        if later - earlier <= gap_seconds:
            joules += (before + after) / 2 * (later - earlier)
            covered += later - earlier
    if covered == 0:
        return None
    return Energy(joules=joules, source="power", covered=min(1.0, covered / (end - begin)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a run used so far. `gpu_seconds` counts every GPU; `progress` is the share of its steps that are done (0..1)."""

    gpu_seconds: float
    joules: float | None = None
    tokens: int | None = None
    epochs: float | None = None
    progress: float | None = None
    energy_source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """In the prices' currency; None = cannot be said. `projected` is the total when the run reaches its end at this pace.

    `parts` names what was counted (gpu_hours, energy), `sources` where each figure comes from.
    """

    total: float | None
    gpu_hours: float
    kwh: float | None
    per_million_tokens: float | None
    per_epoch: float | None
    joules_per_token: float | None
    projected: float | None
    projected_kwh: float | None
    currency: str
    parts: tuple[str, ...]
    sources: tuple[str, ...]


def count_cost(use: Use, prices: Prices) -> Cost:
    """Cost so far and what it comes to per million tokens and per epoch."""
    hours = use.gpu_seconds / 3600
    kwh = None if use.joules is None else use.joules * prices.overhead / JOULES_PER_KWH
    parts: list[str] = []
    sources: list[str] = []
    total: float | None = None
    if prices.gpu_hour is not None:
        total = hours * prices.gpu_hour
        parts.append("gpu_hours")
        sources.append(f"price of a GPU-hour: {prices.source}")
    if prices.kwh is not None and kwh is not None:
        total = (total or 0.0) + kwh * prices.kwh
        parts.append("energy")
        sources += [f"price of a kWh: {prices.source}", f"energy: {use.energy_source or 'telemetry'}"]
    done = use.progress if use.progress else None
    return Cost(
        total=total,
        gpu_hours=hours,
        kwh=kwh,
        per_million_tokens=_per(total, use.tokens, 1e6),
        per_epoch=_per(total, use.epochs, 1.0),
        joules_per_token=_per(use.joules, use.tokens, 1.0),
        projected=None if total is None or done is None else total / done,
        projected_kwh=None if kwh is None or done is None else kwh / done,
        currency=prices.currency,
        parts=tuple(parts),
        sources=tuple(sources),
    )


def _per(value: float | None, count: float | None, unit: float) -> float | None:
    return None if value is None or not count else value / count * unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Somewhere the same work could run: `gpus` of one card at a price. `measured_rate` (tokens a second of all GPUs) wins
    over the estimate from matrix rates."""

    name: str
    card: CardPeak
    gpus: int
    prices: Prices
    measured_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The same work somewhere else. `source` says how its pace is known: measured, or scaled by matrix rates (an estimate)."""

    place: str
    seconds: float
    gpu_hours: float
    kwh: float
    cost: float | None
    currency: str
    source: str


def compare_places(tokens: float, here: Place, places: Sequence[Place]) -> tuple[Offer, ...]:
    """What `tokens` would take in time, energy and money in each place, `here` first. `here` must have a measured rate.

    Without a measurement a place's pace is this one's, scaled by the largest measured matmul of both cards (by the peak where
    one is unknown) and the number of GPUs: an upper limit, for memory and links are not looked at.
    """
    if not here.measured_rate:
        raise ValueError("the work's own pace must be measured")
    return tuple(_offer(tokens, here, place) for place in (here, *places))


def _offer(tokens: float, here: Place, place: Place) -> Offer:
    assert here.measured_rate is not None
    if place.measured_rate:
        rate, source = place.measured_rate, "measured"
    else:
        ratio, how = _ratio(place.card, here.card)
        rate = here.measured_rate * ratio * place.gpus / here.gpus
        source = f"estimate: scaled by {how} and number of GPUs"
    seconds = tokens / rate
    hours = seconds * place.gpus / 3600
    kwh = hours * place.card.watts * 0.8 / 1000 * place.prices.overhead
    parts = [
        None if place.prices.gpu_hour is None else hours * place.prices.gpu_hour,
        None if place.prices.kwh is None else kwh * place.prices.kwh,
    ]
    known = [part for part in parts if part is not None]
    return Offer(
        place=place.name,
        seconds=seconds,
        gpu_hours=hours,
        kwh=kwh,
        cost=sum(known) if known else None,
        currency=place.prices.currency,
        source=f"{source}; energy: estimate, 80 % of the board's power; prices: {place.prices.source}",
    )


def _ratio(there: CardPeak, here: CardPeak) -> tuple[float, str]:
    if there.matmul_flops and here.matmul_flops:
        return there.matmul_flops / here.matmul_flops, f"largest measured matmul ({there.matmul_source})"
    return there.bf16_flops / here.bf16_flops, f"peak ({there.source})"
