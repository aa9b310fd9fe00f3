"""HostReading: CPU, memory, disks and network of this host at one moment. None = not reported, never 0."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskReading:
    """Free space of the file system below `path`; `label` says what we keep there (data, output)."""

    label: str
    path: str
    free_bytes: int | None = None
    total_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReading:
    """Rates are means since the reading before; network counts all interfaces but loopback."""

    at: float
    cpu_percent: float | None = None
    load_1m: float | None = None
    ram_used_bytes: int | None = None
    ram_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    shm_used_bytes: int | None = None
    shm_total_bytes: int | None = None
    network_received_bytes_per_second: float | None = None
    network_sent_bytes_per_second: float | None = None
    disk_read_bytes_per_second: float | None = None
    disk_written_bytes_per_second: float | None = None
    disks: tuple[DiskReading, ...] = ()
