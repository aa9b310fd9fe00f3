"""Telemetry history in, energy of a job's devices between two times out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from backend.planning.cost import Energy, PowerSample, measure_energy
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
