"""GpuReading: what one device reported at one moment. None = not reported (a gap in the chart), never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Identity of one allocatable device: a card, a die of MI250, or a partition (DPX, QPX, CPX) of a card.

    `id` is the PCI address `dddd:bb:dd.f` in lower case and the only identity: equal indices of two tools prove nothing.
    `hip_id` counts as HIP (and PyTorch) does, `smi_index` as amd-smi or nvidia-smi does.
    """

    id: str
    vendor: str
    name: str = ""
    hip_id: int | None = None
    smi_index: int | None = None
    uuid: str = ""
    render_minor: int | None = None
    gfx_target: str = ""
    vram_total_bytes: int | None = None
    partition: str = ""
    card: str = ""
    """PCI address of the card that a partition belongs to ("" = itself)."""
    hip_id_source: str = ""
    """How `hip_id` is known: enumeration, kfd, or assumed (bus order)."""
    partition_id: int | None = None
    memory_partition: str = ""
    kfd_gpu_id: int | None = None
    kfd_node: int | None = None
    drm_card: int | None = None
    oam_id: int | None = None
    device_id: str = ""
    num_compute_units: int | None = None
    numa_node: int | None = None
    hive_id: int | None = None
    driver_version: str = ""
    power_cap_watts: float | None = None
    power_cap_max_watts: float | None = None
    slowdown_hotspot_celsius: float | None = None
    shutdown_hotspot_celsius: float | None = None
    slowdown_memory_celsius: float | None = None
    accessible: bool = True
    """The render node may be opened by this user (always true where there is none to look at)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """Units are in the names; percentages 0..100; error counters and energy since boot.

    Violation percentages are the share of the interval in which a limit (power, socket temperature, ...) held the clock down.
    """

    device: str
    at: float
    gfx_activity_percent: float | None = None
    mem_activity_percent: float | None = None
    vram_used_bytes: int | None = None
    vram_total_bytes: int | None = None
    socket_power_watts: float | None = None
    power_cap_watts: float | None = None
    edge_celsius: float | None = None
    hotspot_celsius: float | None = None
    memory_celsius: float | None = None
    gfx_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    ecc_correctable: int | None = None
    ecc_uncorrectable: int | None = None
    power_violation_percent: float | None = None
    thermal_violation_percent: float | None = None
    energy_joules: float | None = None
    ecc_deferred: int | None = None
    prochot_violation_percent: float | None = None
    vr_violation_percent: float | None = None
    hbm_violation_percent: float | None = None
    throttle_status: bool | None = None
    gtt_used_bytes: int | None = None
    gtt_total_bytes: int | None = None
    pcie_gts: float | None = None
    pcie_width: int | None = None
    pcie_replays: int | None = None
    xgmi_read_kilobytes: int | None = None
    xgmi_write_kilobytes: int | None = None
    xgmi_links_down: int | None = None
    lost: bool = False
    """The card is listed and no longer answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProcess:
    """A process that holds memory of a device. `vram_bytes` on that device alone; `name` "" when another user's."""

    device: str
    pid: int
    name: str = ""
    vram_bytes: int | None = None
    job_id: str = ""
    """The job of ours it belongs to ("" = foreign)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLink:
    """A direct connection between two devices. `kind`: XGMI, NVLINK or PCIE; `hops` 1 = direct; counters since boot."""

    source: str
    target: str
    kind: str = ""
    hops: int | None = None
    read_bytes: int | None = None
    write_bytes: int | None = None
    up: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySource:
    """Which reader answers for this host, and why not the ones before it.

    `kind`: amdsmi, amd-smi, sysfs, nvml or none. `label` is shown ("amd-smi 26.2.0, ROCm 7.2.1"). `verdict` is the last word of
    the source (`ok`, `gpu_lost`, `driver_newer_than_library` ...). `tried` maps each rejected reader to its reason.
    """

    kind: str
    label: str
    verdict: str = "ok"
    reason: str = ""
    remedy: str = ""
    warnings: tuple[str, ...] = ()
    tried: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """What is known of a card's errors. `set_aside` "" = usable; else why it is not leased until a person clears it."""

    device: str
    uncorrectable_baseline: int | None = None
    uncorrectable_now: int | None = None
    set_aside: str = ""
    since: float | None = None
