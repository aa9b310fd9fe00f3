"""HostCheck: what a host's GPUs and their links did in a short check, and how that compares with earlier checks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCheck:
    """One device. FLOP and bytes per second; `launch_seconds` is what Python needs to launch a small kernel.

    `device` is the rank's own word (cuda:0 is another card in another job), `id` the PCI address ("": a CPU, or an old check).
    """

    device: str
    name: str
    matmul_flops: float | None = None
    memory_bytes_per_second: float | None = None
    launch_seconds: float | None = None
    total_bytes: int | None = None
    gfx: str = ""
    compute_units: int | None = None
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRow:
    """All-reduce of one size. `right`: the sums were checked (None: the program did not say)."""

    bytes: int
    seconds: float
    bytes_per_second: float
    bus_bytes_per_second: float
    right: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCheck:
    """One check. `backend`: nccl (RCCL on AMD) or gloo; `profile` names the environment variables it ran with."""

    at: float
    job: str
    host: str
    world: int
    seconds: float
    devices: tuple[DeviceCheck, ...]
    links: tuple[LinkRow, ...] = ()
    backend: str = ""
    torch: str = ""
    hip: str = ""
    profile: str = ""

    @property
    def cards(self) -> frozenset[str]:
        """Which devices took part: links are only compared between the same ones."""
        return frozenset(device.id or device.device for device in self.devices)

    @property
    def matmul_flops(self) -> float | None:
        """Of the slowest device: it sets the pace."""
        return min((d.matmul_flops for d in self.devices if d.matmul_flops), default=None)

    @property
    def memory_bytes_per_second(self) -> float | None:
        return min((d.memory_bytes_per_second for d in self.devices if d.memory_bytes_per_second), default=None)

    @property
    def bus_bytes_per_second(self) -> float | None:
        return max((row.bus_bytes_per_second for row in self.links), default=None)

    @property
    def latency_seconds(self) -> float | None:
        """All-reduce of the smallest size."""
        return self.links[0].seconds if self.links else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A figure beside what it usually is. `share` is new over usual (for latencies: usual over new), so that less is worse.

    `device` is the device's PCI address where it is known, "" for the links. `alarm`: worse than the tolerance allows.
    """

    what: str
    device: str
    usual: float
    now: float
    share: float
    alarm: bool = True
