"""psutil in, HostReading out: CPU, RAM, /dev/shm, disks of the folders we write to, network. Rates come from differences."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

from backend.domain.host import DiskReading, HostReading

SHM = Path("/dev/shm")


class _Counters(NamedTuple):
    at: float
    received: int
    sent: int
    read: int
    written: int


class PsutilHostReader:
    """Remembers the counters of the reading before, so the first reading has no rates."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        """`folders`: label -> path whose file system is watched."""
        self._folders = dict(folders)
        self._before: _Counters | None = None
        psutil.cpu_percent(None)  # the first call has nothing to compare with and returns 0
        self._cpu_known = False

    def read(self, at: float) -> HostReading:
        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        shm = read_disk("shm", SHM)
        rates = self._rates(at)
        cpu = psutil.cpu_percent(None)
        reading = HostReading(
            at=at,
            cpu_percent=cpu if self._cpu_known else None,
            load_1m=os.getloadavg()[0],
            ram_used_bytes=memory.total - memory.available,
            ram_total_bytes=memory.total,
            swap_used_bytes=swap.used,
            shm_used_bytes=None
            if shm.free_bytes is None or shm.total_bytes is None
            else shm.total_bytes - shm.free_bytes,
            shm_total_bytes=shm.total_bytes,
            network_received_bytes_per_second=rates[0],
            network_sent_bytes_per_second=rates[1],
            disk_read_bytes_per_second=rates[2],
            disk_written_bytes_per_second=rates[3],
            disks=tuple(read_disk(label, path) for label, path in self._folders.items()),
        )
        self._cpu_known = True
        return reading

    def _rates(self, at: float) -> tuple[float | None, float | None, float | None, float | None]:
        now, before = _read_counters(at), self._before
        self._before = now
        if before is None or now is None or now.at <= before.at:
            return None, None, None, None
        seconds = now.at - before.at
        differences = [one - other for one, other in zip(now[1:], before[1:], strict=True)]
        # A counter that went back belongs to a device that was removed: no rate this time.
        values = [difference / seconds if difference >= 0 else None for difference in differences]
        return values[0], values[1], values[2], values[3]


def read_disk(label: str, path: Path) -> DiskReading:
    """Space of the file system that holds `path` (or its nearest existing parent)."""
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        usage = psutil.disk_usage(str(place))
    except OSError:
        return DiskReading(label=label, path=str(path))
    return DiskReading(label=label, path=str(path), free_bytes=usage.free, total_bytes=usage.total)


def _read_counters(at: float) -> _Counters | None:
    try:
        network = [count for name, count in psutil.net_io_counters(pernic=True).items() if name != "lo"]
        disk = psutil.disk_io_counters()
    except (OSError, RuntimeError):
        return None
    received, sent = sum(count.bytes_recv for count in network), sum(count.bytes_sent for count in network)
    return _Counters(at, received, sent, disk.read_bytes if disk else 0, disk.write_bytes if disk else 0)
