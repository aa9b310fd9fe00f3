"""HostReading: CPU, memory, disks and network of this host at one moment. None = not reported, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


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


class CheckStatus(StrEnum):
    """Outcome of a host check. SKIPPED: does not apply here, or could not be found out (then `found` says why)."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCheck:
    """One line of the doctor: what was looked at, what was found, what to do, and who says so.

    `code` names the check (message key `check.<code>`); `advice` is the documented remedy, given also when all is well so that a
    reader learns why it matters; `source` is the document behind it.
    """

    code: str
    status: CheckStatus
    title: str
    found: str
    expected: str = ""
    advice: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What the doctor found on this host. None = could not be read."""

    in_container: bool = False
    kernel: str = ""
    kernel_arguments: tuple[str, ...] | None = None
    numa_balancing: str | None = None
    shm_total_bytes: int | None = None
    memlock_bytes: int | None = None
    """-1: unlimited."""
    open_files: int | None = None
    user: str = ""
    group_ids: tuple[int, ...] = ()
    device_groups: Mapping[str, int] = field(default_factory=dict)
    """Device node -> its group id."""
    unreachable_nodes: tuple[str, ...] = ()
    """Device nodes that exist and may not be opened by this user."""
    rocm_version: str = ""
    rccl_libraries: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    disks: tuple[DiskReading, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StackFacts:
    """What a training environment can do on this host, as it said itself. `fault`: it could not be asked."""

    fault: str = ""
    built_for: str = ""
    runtime: str = ""
    torch_version: str = ""
    architectures: tuple[str, ...] = ()
    device_count: int | None = None
    collective_library: str = ""
    amdsmi_breaks_torch: bool = False
    parts: Mapping[str, str] = field(default_factory=dict)
    """Optional part (bitsandbytes, flash_attn, deepspeed, compiler, ninja, liger_kernel) -> "ok", or why not."""
    versions: Mapping[str, str] = field(default_factory=dict)
