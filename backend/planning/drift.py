"""Host checks of one host in, figures that got worse out (the drift alarm). Also two checks in, an A/B comparison out."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backend.domain.bench import Drift, HostCheck

TOLERANCE = {
    "matmul_flops": 0.92,
    "memory_bytes_per_second": 0.95,
    "bus_bytes_per_second": 0.85,
    "latency_seconds": 0.5,
}
"""Share of the usual figure below which it is an alarm; links vary more than chips."""


def find_drift(now: HostCheck, before: Sequence[HostCheck]) -> tuple[Drift, ...]:
    """`now` against the median of earlier checks of the same host, ranks and profile; nothing without two of them."""
    alike = [
        check for check in before if (check.host, check.world, check.profile) == (now.host, now.world, now.profile)
    ]
    if len(alike) < 2:
        return ()
    return tuple(_device_drift(now, alike)) + tuple(_link_drift(now, alike))


def _device_drift(now: HostCheck, before: Sequence[HostCheck]) -> Iterator[Drift]:
    for device in now.devices:
        for what in ("matmul_flops", "memory_bytes_per_second"):
            past = [
                value
                for check in before
                for other in check.devices
                if other.device == device.device and (value := getattr(other, what))
            ]
            found = getattr(device, what)
            if found and len(past) >= 2:
                yield from _alarm(what, device.device, statistics.median(past), found, found / statistics.median(past))


def _link_drift(now: HostCheck, before: Sequence[HostCheck]) -> Iterator[Drift]:
    for what in ("bus_bytes_per_second", "latency_seconds"):
        past = [value for check in before if (value := getattr(check, what))]
        found = getattr(now, what)
        if found and len(past) >= 2:
            usual = statistics.median(past)
            yield from _alarm(what, "", usual, found, usual / found if what == "latency_seconds" else found / usual)


def _alarm(what: str, device: str, usual: float, now: float, share: float) -> Iterator[Drift]:
    if share < TOLERANCE[what]:
        yield Drift(what=what, device=device, usual=usual, now=now, share=share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One size under two environment profiles: all-reduce bus bandwidth of each, and second over first."""

    bytes: int
    first: float
    second: float

    @property
    def ratio(self) -> float:
        return self.second / self.first


def compare_checks(first: HostCheck, second: HostCheck) -> tuple[Comparison, ...]:
    """Sizes that both measured, smallest first."""
    others = {row.bytes: row for row in second.links}
    return tuple(
        Comparison(bytes=row.bytes, first=row.bus_bytes_per_second, second=others[row.bytes].bus_bytes_per_second)
        for row in first.links
        if row.bytes in others
    )
