"""Two polls of the metrics table in, exact means of the time between them out: better than sampling and free of charge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backend.parsing.telemetry import missing
from backend.parsing.telemetry.amdsmi_calls import ENERGY_COUNTER_MICROJOULES
from backend.parsing.telemetry.missing import Json

_WRAP = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulators:
    """Counters of one poll; None = the card or library has none.

    Activity counters add one per cent a millisecond (32 bit before ROCm 10, so they wrap), residencies count ticks of `ticks`.
    """

    gfx_activity: int | None = None
    mem_activity: int | None = None
    energy_joules: float | None = None
    firmware_seconds: float | None = None
    ticks: int | None = None
    power_residency: int | None = None
    thermal_residency: int | None = None
    prochot_residency: int | None = None
    vr_residency: int | None = None
    hbm_residency: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What happened between two polls; None where a counter is missing, went backwards or makes no sense."""

    seconds: float
    gfx_activity_percent: float | None = None
    mem_activity_percent: float | None = None
    socket_power_watts: float | None = None
    power_violation_percent: float | None = None
    thermal_violation_percent: float | None = None
    prochot_violation_percent: float | None = None
    vr_violation_percent: float | None = None
    hbm_violation_percent: float | None = None


def parse_accumulators(metrics: Mapping[str, Json]) -> Accumulators:
    """Counters of `amdsmi_get_gpu_metrics_info`. A zero energy counter (Radeon) is no counter."""
    energy = missing.counter(metrics.get("energy_accumulator"))
    stamp = missing.counter(metrics.get("firmware_timestamp"))
    return Accumulators(
        gfx_activity=missing.counter(metrics.get("gfx_activity_acc")),
        mem_activity=missing.counter(metrics.get("mem_activity_acc")),
        energy_joules=energy * ENERGY_COUNTER_MICROJOULES / 1e6 if energy else None,
        firmware_seconds=stamp / 1e8 if stamp else None,
        ticks=missing.counter(metrics.get("accumulation_counter")),
        power_residency=missing.counter(metrics.get("ppt_residency_acc")),
        thermal_residency=missing.counter(metrics.get("socket_thm_residency_acc")),
        prochot_residency=missing.counter(metrics.get("prochot_residency_acc")),
        vr_residency=missing.counter(metrics.get("vr_thm_residency_acc")),
        hbm_residency=missing.counter(metrics.get("hbm_thm_residency_acc")),
    )


def derive_means(before: Accumulators, after: Accumulators, seconds: float) -> Means:
    """Means over the interval. The card's own clock is preferred to `seconds` (ours) when it agrees within a quarter."""
    own = _difference(before.firmware_seconds, after.firmware_seconds)
    span = own if own and seconds > 0 and abs(own - seconds) < 0.25 * seconds else seconds
    if span <= 0:
        return Means(seconds=seconds)
    ticks = _difference(before.ticks, after.ticks)
    energy = _difference(before.energy_joules, after.energy_joules)
    return Means(
        seconds=span,
        gfx_activity_percent=_activity(before.gfx_activity, after.gfx_activity, span),
        mem_activity_percent=_activity(before.mem_activity, after.mem_activity, span),
        socket_power_watts=None if energy is None else missing.watts(energy / span),
        power_violation_percent=_share(before.power_residency, after.power_residency, ticks),
        thermal_violation_percent=_share(before.thermal_residency, after.thermal_residency, ticks),
        prochot_violation_percent=_share(before.prochot_residency, after.prochot_residency, ticks),
        vr_violation_percent=_share(before.vr_residency, after.vr_residency, ticks),
        hbm_violation_percent=_share(before.hbm_residency, after.hbm_residency, ticks),
    )


def _activity(before: int | None, after: int | None, seconds: float) -> float | None:
    if before is None or after is None:
        return None
    difference = after - before
    if difference < 0:
        difference += _WRAP
    # 2 % above 100 is jitter between the two clocks, more is a counter that was reset.
    mean = difference / (seconds * 1000)
    return min(mean, 100.0) if 0 <= mean <= 102 else None


def _share(before: int | None, after: int | None, ticks: float | None) -> float | None:
    difference = _difference(before, after)
    if difference is None or not ticks:
        return None
    share = 100 * difference / ticks
    return min(share, 100.0) if share <= 102 else None


def _difference(before: float | None, after: float | None) -> float | None:
    return after - before if before is not None and after is not None and after >= before else None
