"""Telemetry history in, energy of a job's devices out: between two times, or growing over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from backend.planning.cost import JOULES_PER_KWH, Energy, PowerSample, measure_energy
from backend.store.columns import Floats
from backend.store.job_telemetry import STEP_SECONDS, load_job_history
from backend.store.telemetry import History


class _Telemetry(Protocol):
    def history(self, device: str, key: str, start: float, end: float, px: int = 1000) -> History: ...


def read_energy(telemetry: _Telemetry, devices: Sequence[str], begin: float, end: float) -> Energy | None:
    """Of all `devices` together; None as soon as one of them was not measured (a sum of some would be too small).

    `covered` is that of the device measured worst; `source` is power unless every device has a counter.
    """
    found = []
    for device in devices:
        energy = measure_energy(_samples(telemetry, device, begin, end), begin, end)
        if energy is None:
            return None
        found.append(energy)
    if not found:
        return None
    return Energy(
        joules=sum(energy.joules for energy in found),
        source="counter" if all(energy.source == "counter" for energy in found) else "power",
        covered=min(energy.covered for energy in found),
    )


def energy_at(folder: Path, devices: Sequence[str], times: Floats) -> Floats | None:
    """kWh that all `devices` of a job had used at each of `times` (Unix seconds), from the telemetry in its folder.

    None as soon as one device was not measured. Where a device has no energy counter its power is summed up (an estimate).
    """
    total = np.zeros(len(times))
    for device in devices:
        used = _used_over_time(folder, device)
        if used is None:
            return None
        total += np.interp(times, *used)
    return total / JOULES_PER_KWH if len(devices) else None


def _used_over_time(folder: Path, device: str) -> tuple[Floats, Floats] | None:
    """Times and the joules used until then. A counter that went back (reset) adds nothing at that moment."""
    counter = load_job_history(folder, device, "energy_joules")
    known = ~np.isnan(counter.mean)
    if known.sum() > 1:
        steps = np.diff(counter.mean[known])
        return counter.times[known], np.concatenate(([0.0], np.cumsum(np.where(steps > 0, steps, 0.0))))
    power = load_job_history(folder, device, "socket_power_watts")
    known = ~np.isnan(power.mean)
    if not known.any():
        return None
    return power.times[known], np.cumsum(power.mean[known]) * STEP_SECONDS


def _samples(telemetry: _Telemetry, device: str, begin: float, end: float) -> list[PowerSample]:
    counter = telemetry.history(device, "energy_joules", begin, end, 10_000)
    power = telemetry.history(device, "socket_power_watts", begin, end, 10_000)
    samples = [
        PowerSample(at=float(at), energy_joules=float(value))
        for at, value in zip(counter.times, counter.mean, strict=True)
        if not math.isnan(value)
    ]
    samples += [
        PowerSample(at=float(at), watts=float(value))
        for at, value in zip(power.times, power.mean, strict=True)
        if not math.isnan(value)
    ]
    return samples
