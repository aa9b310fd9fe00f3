"""Host checks of one host in, figures that got worse out (the drift alarm). Also two checks in, an A/B comparison out."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backend.domain.bench import DeviceCheck, Drift, HostCheck

TOLERANCE = {
    "matmul_flops": 0.92,
    "memory_bytes_per_second": 0.95,
    "bus_bytes_per_second": 0.85,
    "latency_seconds": 0.5,
}
"""Share of the usual figure below which it is an alarm; links vary more than chips."""


LEAST_BEFORE = 2
"""Earlier checks without which nothing is usual; two processes of one check are one check."""


def find_drift(now: HostCheck, before: Sequence[HostCheck]) -> tuple[Drift, ...]:
    """The alarms of `find_usual`."""
    return tuple(drift for drift in find_usual(now, before) if drift.alarm)


def find_usual(now: HostCheck, before: Sequence[HostCheck]) -> tuple[Drift, ...]:
    """Each figure of `now` against the median of earlier checks of the same host and profile; none without two of them.

    A card is compared with itself (by its PCI address) whichever others took part, links only between the same cards.
    """
    alike = [check for check in before if (check.host, check.profile) == (now.host, now.profile)]
    same = [check for check in alike if (check.world, check.cards) == (now.world, now.cards)]
    return (*_device_drift(now, alike), *_link_drift(now, same))


def _device_drift(now: HostCheck, before: Sequence[HostCheck]) -> Iterator[Drift]:
    past: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for check in before:
        for other in check.devices:
            for what in ("matmul_flops", "memory_bytes_per_second"):
                if value := getattr(other, what):
                    past[_place(check, other), what][check.job].append(value)
    for device in now.devices:
        for what in ("matmul_flops", "memory_bytes_per_second"):
            found, earlier = getattr(device, what), past[_place(now, device), what]
            if found and len(earlier) >= LEAST_BEFORE:
                usual = statistics.median(value for values in earlier.values() for value in values)
                yield _drift(what, device.id or device.device, usual, found, found / usual)


def _place(check: HostCheck, device: DeviceCheck) -> str:
    """Without an address `cuda:0` is the same card only while as many take part (and cpu is a share of the cores)."""
    return device.id or f"{device.device} of {check.world}"


def _link_drift(now: HostCheck, before: Sequence[HostCheck]) -> Iterator[Drift]:
    for what in ("bus_bytes_per_second", "latency_seconds"):
        past = [value for check in before if (value := getattr(check, what))]
        found = getattr(now, what)
        if found and len(past) >= LEAST_BEFORE:
            usual = statistics.median(past)
            yield _drift(what, "", usual, found, usual / found if what == "latency_seconds" else found / usual)


def _drift(what: str, device: str, usual: float, now: float, share: float) -> Drift:
    return Drift(what=what, device=device, usual=usual, now=now, share=share, alarm=share < TOLERANCE[what])


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
