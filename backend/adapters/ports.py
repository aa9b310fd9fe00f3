"""What the sampler asks of a telemetry reader, whatever the vendor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from backend.domain.gpu import Device, DeviceLink, DeviceProcess, GpuReading, TelemetrySource
from backend.domain.host import HostReading


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What changes rarely: devices and their links."""

    devices: tuple[Device, ...] = ()
    links: tuple[DeviceLink, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One round of readings. `source` carries the verdict of this round; a failed round has no readings and says why."""

    at: float
    source: TelemetrySource
    readings: tuple[GpuReading, ...] = ()
    slow_read: bool = False
    errors: tuple[str, ...] = field(default=())


class GpuReader(Protocol):
    """Bounded in time and never raising: a failure is part of the answer."""

    def inventory(self) -> Inventory:
        """Devices and links; probes the sources at the first call."""

    def read(self, at: float) -> Snapshot:
        """Readings of all devices now; `at` is the wall clock to stamp them with."""

    def read_processes(self) -> tuple[DeviceProcess, ...]:
        """Who holds memory of which device."""

    def close(self) -> None:
        """Give back helper processes and handles."""


class HostReader(Protocol):
    """CPU, memory, disks, network."""

    def read(self, at: float) -> HostReading:
        """One reading; parts that cannot be read are None."""
