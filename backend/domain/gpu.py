"""GpuReading: what one device reported at one moment. None = not reported (a gap in the chart), never 0."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Identity of one allocatable device. `id` is the PCI address `dddd:bb:dd.f` in lower case; `hip_id` counts as HIP does."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """Units are in the names; percentages 0..100."""

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
