"""A field that a reading lacks in, the reason code out: why a cell of the GPU page is empty. Texts belong to the page."""

from __future__ import annotations

from enum import StrEnum

from backend.domain.gpu import Device, GpuReading, TelemetrySource


class Gap(StrEnum):
    """Why a value is missing. Message keys of ui/text are `gap.<value>`."""

    GPU_LOST = "gpu_lost"
    DRIVER_NEWER = "driver_newer"
    NOT_ON_PART = "not_on_part"
    PARTITION = "partition"
    SECOND_DIE = "second_die"
    SOURCE_SILENT = "source_silent"
    NO_PERMISSION = "no_permission"
    NOT_REPORTED = "not_reported"


_CDNA3_ON = ("gfx942", "gfx950")
_VIOLATIONS = tuple(f"{cause}_violation_percent" for cause in ("power", "thermal", "prochot", "vr", "hbm"))
_SENSORS = (
    "gfx_activity_percent",
    "socket_power_watts",
    "hotspot_celsius",
    "memory_celsius",
    "gfx_clock_mhz",
    "mem_clock_mhz",
)
_SILENT = {
    "sysfs": (*_VIOLATIONS, "throttle_status", "energy_joules", "xgmi_read_kilobytes", "xgmi_write_kilobytes"),
    "amd-smi": (*_VIOLATIONS, "xgmi_read_kilobytes", "xgmi_write_kilobytes", "xgmi_links_down"),
    "nvml": ("edge_celsius", "gtt_used_bytes", "xgmi_read_kilobytes", "xgmi_write_kilobytes", "hbm_violation_percent"),
}
"""What a source never tells, whatever the card."""


def explain_gap(field: str, device: Device, reading: GpuReading | None, source: TelemetrySource) -> Gap | None:
    """None when the reading has the field."""
    if reading is not None and getattr(reading, field) is not None:
        return None
    if reading is None or reading.lost:
        return Gap.GPU_LOST if reading is not None else Gap.NOT_REPORTED
    if _never_on_part(field, device):
        return Gap.NOT_ON_PART
    if device.card and device.card != device.id:
        return Gap.PARTITION
    if field in _SILENT.get(source.kind, ()):
        return Gap.SOURCE_SILENT
    if source.verdict == "driver_newer_than_library" and field in (*_SENSORS, *_VIOLATIONS):
        return Gap.DRIVER_NEWER
    if field in ("socket_power_watts", "power_cap_watts", "energy_joules") and device.gfx_target == "gfx90a":
        return Gap.SECOND_DIE
    if any(warning.startswith("user_not_in_groups") for warning in source.warnings) or not device.accessible:
        return Gap.NO_PERMISSION
    return Gap.NOT_REPORTED


def _never_on_part(field: str, device: Device) -> bool:
    if field == "edge_celsius":
        return device.gfx_target in _CDNA3_ON or device.vendor == "nvidia"
    if field == "throttle_status":
        return device.gfx_target in _CDNA3_ON
    return (
        device.vendor == "amd"
        and field in _VIOLATIONS
        and bool(device.gfx_target)
        and device.gfx_target not in _CDNA3_ON
    )
