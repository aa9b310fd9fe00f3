"""Rows of several sources (enumeration, static data, KFD, sysfs) in, one Device per allocatable unit out, joined by address."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields, replace

from backend.domain.gpu import Device, GpuReading
from backend.parsing.telemetry.rows import DeviceRow, GpuRow

_LOOKED_UP = (
    "name",
    "hip_id",
    "uuid",
    "render_minor",
    "gfx_target",
    "vram_total_bytes",
    "partition_id",
    "memory_partition",
    "kfd_gpu_id",
    "kfd_node",
    "drm_card",
    "oam_id",
    "device_id",
    "num_compute_units",
    "numa_node",
    "hive_id",
    "driver_version",
    "power_cap_watts",
    "power_cap_max_watts",
    "slowdown_hotspot_celsius",
    "shutdown_hotspot_celsius",
    "slowdown_memory_celsius",
)
_TEXTS = frozenset({"name", "uuid", "gfx_target", "memory_partition", "device_id", "driver_version"})
_READING_FIELDS = tuple(field.name for field in fields(GpuReading) if field.name not in ("device", "at", "lost"))


def join_devices(
    sources: Iterable[Sequence[DeviceRow | GpuRow]], renders: Collection[int] | None = None
) -> tuple[Device, ...]:
    """Devices in HIP's order. For each field the first source that knows it wins; rows without a PCI address are dropped.

    The first source decides which devices exist. `renders`: minors of the render nodes that this user can open (None: not
    looked at); in a container the tools may list the whole host.
    """
    tables = [{row.bdf: row for row in rows if row.bdf} for rows in sources]
    tables = [table for table in tables if table]
    if not tables:
        return ()
    rows = {bdf: [table[bdf] for table in tables if bdf in table] for bdf in tables[0]}
    devices = [_join(bdf, position, found) for position, (bdf, found) in enumerate(rows.items())]
    devices = [_mark_accessible(device, renders) for device in devices]
    return tuple(_number(_group_partitions(devices)))


def _join(bdf: str, position: int, rows: Sequence[DeviceRow | GpuRow]) -> Device:
    values: dict[str, object] = {}
    for name in _LOOKED_UP:
        found = next((value for row in rows if (value := getattr(row, name, None)) is not None), None)
        if found is not None or name not in _TEXTS:
            values[name] = found
    partition = next((row.compute_partition for row in rows if row.compute_partition), "")
    # KFD's number is `node - first node` by computation, an enumeration says it itself.
    said = any(isinstance(row, DeviceRow) and row.hip_id is not None and row.num_xcc is None for row in rows)
    said = said or any(isinstance(row, GpuRow) and row.hip_id is not None for row in rows)
    source = "" if values.get("hip_id") is None else "enumeration" if said else "kfd"
    return Device(id=bdf, vendor="amd", smi_index=position, partition=partition, hip_id_source=source, **values)  # type: ignore[arg-type]


def _mark_accessible(device: Device, renders: Collection[int] | None) -> Device:
    if renders is None or device.render_minor is None:
        return device
    return replace(device, accessible=device.render_minor in renders)


def _group_partitions(devices: Sequence[Device]) -> list[Device]:
    """Partitions of a card share all but the function digit of its address."""
    places = {device.id[:-1] for device in devices if not device.id.endswith(".0")}
    return [
        replace(device, card=f"{device.id[:-1]}0")
        if device.id[:-1] in places and not device.id.endswith(".0")
        else device
        for device in devices
    ]


def _number(devices: Sequence[Device]) -> list[Device]:
    """HIP indices for all: by bus where unknown, and counted anew where some devices cannot be opened (HIP skips those)."""
    if any(device.hip_id is None for device in devices):
        devices = sorted(devices, key=lambda device: device.id)
        devices = [replace(device, hip_id=n, hip_id_source="assumed") for n, device in enumerate(devices)]
    ordered = sorted(devices, key=lambda device: device.hip_id or 0)
    if all(device.accessible for device in ordered):
        return ordered
    reachable = [device.id for device in ordered if device.accessible]
    return [replace(device, hip_id=reachable.index(device.id) if device.accessible else None) for device in ordered]


def to_reading(row: GpuRow, device: str, at: float) -> GpuReading:
    """A row's measurements under its device's identity."""
    return GpuReading(device=device, at=at, **{name: getattr(row, name) for name in _READING_FIELDS})


def fill_reading(reading: GpuReading, other: GpuReading) -> GpuReading:
    """What `reading` misses, from another source of the same moment."""
    gaps = {
        name: value
        for name in _READING_FIELDS
        if getattr(reading, name) is None and (value := getattr(other, name)) is not None
    }
    return replace(reading, **gaps) if gaps else reading
