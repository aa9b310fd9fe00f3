"""What the readers make of a tool's output: rows of numbers, rows of identity, processes, links, and one verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import cast

from backend.parsing.telemetry.missing import Json, Number


class Verdict(StrEnum):
    """What a source said as a whole."""

    OK = "ok"
    DRIVER_NEWER_THAN_LIBRARY = "driver_newer_than_library"
    GPU_LOST = "gpu_lost"
    NO_GPU = "no_gpu"
    NO_OUTPUT = "no_output"
    NO_PERMISSION = "no_permission"
    DRIVER_NOT_LOADED = "driver_not_loaded"
    LIBRARY_MISSING = "library_missing"
    LIBRARY_MISMATCH = "library_mismatch"
    NOT_AMD_SMI_OUTPUT = "not_amd_smi_output"
    CRASH = "crash"

    @property
    def has_readings(self) -> bool:
        """Rows of this output can be shown."""
        return self in (Verdict.OK, Verdict.DRIVER_NEWER_THAN_LIBRARY, Verdict.GPU_LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """One printed device. None = missing: a gap in the chart, never 0. Units are in the names, percentages 0..100.

    `index` is the position printed, never an identity. `gfx_clock_mhz` is the first compute die's. Violation percentages are
    the share of the last interval in which the power or socket temperature limit held the clock down.
    """

    index: int
    printed_index: int | None = None
    """The number that the tool printed for the device (`gpu: 3`); differs from `index` when it left one out."""
    bdf: str | None = None
    partition_id: int | None = None
    gfx_activity_percent: Number | None = None
    mem_activity_percent: Number | None = None
    vram_used_bytes: int | None = None
    vram_total_bytes: int | None = None
    socket_power_watts: Number | None = None
    edge_celsius: Number | None = None
    hotspot_celsius: Number | None = None
    memory_celsius: Number | None = None
    gfx_clock_mhz: Number | None = None
    mem_clock_mhz: Number | None = None
    ecc_correctable: int | None = None
    ecc_uncorrectable: int | None = None
    throttle_status: bool | None = None
    power_violation_percent: Number | None = None
    thermal_violation_percent: Number | None = None
    gtt_used_bytes: int | None = None
    gtt_total_bytes: int | None = None
    vram_used_percent: Number | None = None
    vram_scope: str | None = None
    power_cap_watts: Number | None = None
    hip_id: int | None = None
    oam_id: int | None = None
    name: str | None = None
    device_id: str | None = None
    gfx_target: str | None = None
    num_compute_units: int | None = None
    drm_card: int | None = None
    render_minor: int | None = None
    numa_node: int | None = None
    pcie_gts: Number | None = None
    pcie_width: int | None = None
    pcie_replays: int | None = None
    energy_joules: Number | None = None
    prochot_violation_percent: Number | None = None
    vr_violation_percent: Number | None = None
    hbm_violation_percent: Number | None = None
    ecc_deferred: int | None = None
    slowdown_hotspot_celsius: Number | None = None
    shutdown_hotspot_celsius: Number | None = None
    slowdown_memory_celsius: Number | None = None
    uuid: str | None = None
    kfd_gpu_id: int | None = None
    kfd_node: int | None = None
    compute_partition: str | None = None
    memory_partition: str | None = None
    driver_version: str | None = None
    hive_id: int | None = None
    xgmi_read_kilobytes: int | None = None
    xgmi_write_kilobytes: int | None = None
    xgmi_links_down: int | None = None


MEASURED = (
    "gfx_activity_percent",
    "mem_activity_percent",
    "vram_used_bytes",
    "vram_total_bytes",
    "socket_power_watts",
    "edge_celsius",
    "hotspot_celsius",
    "memory_celsius",
    "gfx_clock_mhz",
    "mem_clock_mhz",
    "ecc_correctable",
    "ecc_uncorrectable",
    "throttle_status",
    "power_violation_percent",
    "thermal_violation_percent",
    "gtt_used_bytes",
    "gtt_total_bytes",
    "vram_used_percent",
)
"""Fields that a living card answers; all missing on one card among others means that it is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """Identity and limits of one printed device. `numa_node` None = not bound."""

    index: int
    bdf: str | None = None
    partition_id: int | None = None
    hip_id: int | None = None
    kfd_gpu_id: int | None = None
    kfd_node: int | None = None
    render_minor: int | None = None
    drm_card: int | None = None
    uuid: str | None = None
    hip_uuid: str | None = None
    name: str | None = None
    device_id: str | None = None
    gfx_target: str | None = None
    num_compute_units: int | None = None
    num_xcc: int | None = None
    oam_id: int | None = None
    vram_total_bytes: int | None = None
    power_cap_watts: Number | None = None
    power_cap_max_watts: Number | None = None
    slowdown_hotspot_celsius: Number | None = None
    shutdown_hotspot_celsius: Number | None = None
    driver_version: str | None = None
    compute_partition: str | None = None
    memory_partition: str | None = None
    numa_node: int | None = None
    hive_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """One process, counted once however many devices list it.

    `vram_bytes` is what the listing says of the whole process; `vram_by_device` (PCI address -> bytes) is KFD's and right.
    """

    pid: int
    name: str | None = None
    listed_under: tuple[int, ...] = ()
    vram_bytes: int | None = None
    vram_by_device: Mapping[str, int] = field(default_factory=dict)
    cu_occupancy: Mapping[str, int] = field(default_factory=dict)
    evicted_ms: Mapping[str, int] = field(default_factory=dict)
    sdma_us: Mapping[str, int] = field(default_factory=dict)
    pasid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A connection between two devices (PCI addresses). `kind` XGMI, PCIE or SELF; counters since boot."""

    source: str
    target: str
    kind: str = ""
    hops: int | None = None
    read_bytes: int | None = None
    write_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareEvent:
    """A line of the kernel log about a card. `seconds` since boot."""

    seconds: float
    bdf: str | None
    kind: str
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Of tool, library, ROCm and kernel driver, as printed."""

    tool: str | None = None
    library: str | None = None
    rocm: str | None = None
    driver: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReading:
    """Everything one output says.

    `warnings` are codes such as `user_not_in_groups:render,video`, `preamble` is the text before the data.
    """

    verdict: Verdict
    gpus: tuple[GpuRow, ...] = ()
    devices: tuple[DeviceRow, ...] = ()
    processes: tuple[ProcessRow, ...] = ()
    links: tuple[Link, ...] = ()
    link_status: Mapping[int, str] = field(default_factory=dict)
    events: tuple[HardwareEvent, ...] = ()
    versions: Versions | None = None
    warnings: tuple[str, ...] = ()
    preamble: str = ""
    remedy: str = ""

    def to_json(self) -> dict[str, Json]:
        """Plain JSON with the fixtures' words; nested records become objects."""
        return cast(dict[str, Json], asdict(self))
