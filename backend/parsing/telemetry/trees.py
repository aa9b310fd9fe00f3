"""Files below /sys/class/drm and /sys/class/kfd/kfd (path -> text) in, rows of numbers, identity and processes out.

`N` of `cardN` and of hwmonN is no index of anything; temperatures go by their label, never by their number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from backend.parsing.telemetry import missing
from backend.parsing.telemetry.amd_smi_json import build_row
from backend.parsing.telemetry.missing import Number
from backend.parsing.telemetry.rows import DeviceRow, GpuRow, ProcessRow

Tree = Mapping[str, str]
"""Relative path -> text of the file."""

_AMD = 0x1002
_CARD = re.compile(r"(?:.*/)?class/drm/card(\d+)/device/(.+)")
_NODE = re.compile(r"(?:.*/)?topology/nodes/(\d+)/(.+)")
_PROC = re.compile(r"(?:.*/)?proc/(\d+)/(.+)")
_HEAP_VRAM = (1, 2)


# --- sysfs ----------------------------------------------------------------------------------------------------------


def split_cards(tree: Tree) -> dict[int, dict[str, str]]:
    """`card number -> path below device/ -> text` of AMD cards.

    Left out: other vendors, connectors (`card0-VGA-1`), the platform devices of partitions (no PCI_SLOT_NAME).
    """
    cards: dict[int, dict[str, str]] = {}
    for path, content in tree.items():
        if found := _CARD.fullmatch(path):
            cards.setdefault(int(found.group(1)), {})[found.group(2)] = content
    return {number: cards[number] for number in sorted(cards) if is_amd_card(cards[number])}


def is_amd_card(files: Tree) -> bool:
    """The files below one `device/` belong to an AMD PCI card."""
    return missing.whole(files.get("vendor")) == _AMD and "PCI_SLOT_NAME=" in files.get("uevent", "")


def parse_card(files: Tree, index: int, card: int) -> GpuRow:
    """One card from the files below its `device/` folder."""
    sensors = _hwmon(files)
    slot = re.search(r"PCI_SLOT_NAME=(\S+)", files.get("uevent", ""))
    render = next((found for path in files if (found := re.match(r"drm/renderD(\d+)/", path))), None)
    errors = _errors(files)
    return build_row(
        index,
        {
            "bdf": missing.bdf(slot.group(1)) if slot else None,
            "drm_card": card,
            "render_minor": int(render.group(1)) if render else None,
            "numa_node": missing.whole(files.get("numa_node")),
            "device_id": missing.text(files.get("device")),
            "name": missing.text(files.get("product_name")),
            "gfx_activity_percent": missing.percent(files.get("gpu_busy_percent")),
            "mem_activity_percent": missing.percent(files.get("mem_busy_percent")),
            "vram_used_bytes": missing.memory_bytes(files.get("mem_info_vram_used")),
            "vram_total_bytes": missing.memory_bytes(files.get("mem_info_vram_total")),
            "gtt_used_bytes": missing.memory_bytes(files.get("mem_info_gtt_used")),
            "gtt_total_bytes": missing.memory_bytes(files.get("mem_info_gtt_total")),
            "pcie_gts": missing.transfers(files.get("current_link_speed")),
            "pcie_width": missing.whole(files.get("current_link_width")) or None,
            "pcie_replays": missing.count(files.get("pcie_replay_count")),
            "ecc_correctable": errors.get("ce"),
            "ecc_uncorrectable": errors.get("ue"),
            "ecc_deferred": errors.get("de"),
            "gfx_clock_mhz": _clock(files, sensors, "sclk", "1"),
            "mem_clock_mhz": _clock(files, sensors, "mclk", "2"),
            **_powers_and_temperatures(sensors),
        },
    )


def _hwmon(files: Tree) -> dict[str, str]:
    """Files of the card's own hwmon folder; its number follows nothing."""
    found: dict[str, dict[str, str]] = {}
    for path, content in files.items():
        if match := re.fullmatch(r"hwmon/(hwmon\d+)/([^/]+)", path):
            found.setdefault(match.group(1), {})[match.group(2)] = content
    named = [sensors for sensors in found.values() if sensors.get("name", "amdgpu").strip() == "amdgpu"]
    return named[0] if named else {}


def _powers_and_temperatures(sensors: Tree) -> dict[str, Number | None]:
    labels = {
        content.strip().lower(): name.removesuffix("_label")
        for name, content in sensors.items()
        if name.startswith("temp") and name.endswith("_label")
    }

    def milli(label: str, what: str) -> float | None:
        # Missing readings appear as -273150.
        value = missing.number(sensors.get(f"{labels.get(label, '-')}_{what}"), 0, 149_000)
        return None if value is None else value / 1000

    return {
        "edge_celsius": milli("edge", "input"),
        "hotspot_celsius": milli("junction", "input"),
        "memory_celsius": milli("mem", "input") or None,
        "slowdown_hotspot_celsius": milli("junction", "crit"),
        "shutdown_hotspot_celsius": milli("junction", "emergency"),
        "slowdown_memory_celsius": milli("mem", "crit"),
        # MI300 has power1_input, MI200 and Navi power1_average; a cap of 0 marks an odd die.
        "socket_power_watts": _micro(sensors.get("power1_input")) or _micro(sensors.get("power1_average")),
        "power_cap_watts": _micro(sensors.get("power1_cap")),
    }


def _micro(raw: str | None) -> Number | None:
    value = missing.number(raw, 0, 3_000_000_000)
    return missing.watts(value / 1e6) if value else None


def _clock(files: Tree, sensors: Tree, name: str, number: str) -> Number | None:
    label = sensors.get(f"freq{number}_label", name).strip()
    hertz = missing.number(sensors.get(f"freq{number}_input"), 0, 5_000_000_000) if label == name else None
    if hertz:
        return missing.megahertz(hertz / 1e6)
    # `1: 2100Mhz *`, the star marks the current level; `S:` is deep sleep and its value the current clock.
    starred = re.search(r"^\w+:\s*(\d+)Mhz\s*\*", files.get(f"pp_dpm_{name}", ""), re.MULTILINE | re.IGNORECASE)
    return missing.megahertz(starred.group(1)) if starred else None


def _errors(files: Tree) -> dict[str, int]:
    """Sums of `ue: N`, `ce: N` and (newer) `de: N` over the blocks; a kind that no block counts is absent."""
    sums: dict[str, int] = {}
    for path, content in files.items():
        if re.fullmatch(r"ras/\w+_err_count", path):
            for kind, digits in re.findall(r"^\s*(ue|ce|de):\s*(\d+)", content, re.MULTILINE):
                if (value := missing.count(digits)) is not None:
                    sums[kind] = sums.get(kind, 0) + value
    return sums


# --- KFD ------------------------------------------------------------------------------------------------------------


def parse_kfd_devices(tree: Tree) -> tuple[DeviceRow, ...]:
    """GPU nodes in HIP's order: HIP index = node minus the first GPU node."""
    nodes: dict[int, dict[str, str]] = {}
    for path, content in tree.items():
        if found := _NODE.fullmatch(path):
            nodes.setdefault(int(found.group(1)), {})[found.group(2)] = content
    gpus = [number for number in sorted(nodes) if missing.whole(nodes[number].get("gpu_id"), high=1 << 32)]
    return tuple(_kfd_device(nodes[number], number, position, number - gpus[0]) for position, number in enumerate(gpus))


def _kfd_device(files: Tree, node: int, position: int, hip_id: int) -> DeviceRow:
    properties = _properties(files.get("properties", ""))
    simds, per_unit = properties.get("simd_count"), properties.get("simd_per_cu")
    minor = properties.get("drm_render_minor")
    return DeviceRow(
        index=position,
        bdf=_location(properties),
        hip_id=hip_id,
        kfd_node=node,
        kfd_gpu_id=missing.whole(files.get("gpu_id"), high=1 << 32),
        render_minor=minor if minor and minor > 0 else None,
        gfx_target=_target(properties.get("gfx_target_version")),
        num_compute_units=simds // per_unit if simds and per_unit else None,
        num_xcc=properties.get("num_xcc"),
        device_id=f"0x{properties['device_id']:04x}" if properties.get("device_id") else None,
        vram_total_bytes=_vram(files),
        hive_id=properties.get("hive_id") or None,
    )


def _properties(content: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"^(\w+)\s+(\d{1,20})\s*$", content, re.MULTILINE)}


def _location(properties: Mapping[str, int]) -> str | None:
    """`location_id` is bus << 8 | device << 3 | function."""
    if "location_id" not in properties:
        return None
    place = properties["location_id"] & 0xFFFF
    return f"{properties.get('domain', 0) & 0xFFFF:04x}:{place >> 8:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"


def _target(version: int | None) -> str | None:
    """90402 is gfx942, 90010 gfx90a, 120001 gfx1201: two decimal digits each, minor and step printed in hex."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else None


def _vram(files: Tree) -> int | None:
    total = 0
    for path, content in files.items():
        if re.fullmatch(r"mem_banks/\d+/properties", path):
            bank = _properties(content)
            if bank.get("heap_type") in _HEAP_VRAM:
                total += bank.get("size_in_bytes", 0)
    return missing.memory_bytes(total) or None


def parse_kfd_processes(tree: Tree, devices: tuple[DeviceRow, ...]) -> tuple[ProcessRow, ...]:
    """Processes with their memory per device: right on all versions, unlike the tools' listings. pids are the host's."""
    address = {device.kfd_gpu_id: device.bdf for device in devices}
    processes: dict[int, ProcessRow] = {}
    for path, content in tree.items():
        if found := _PROC.fullmatch(path):
            pid = int(found.group(1))
            row = processes.setdefault(pid, ProcessRow(pid=pid))
            processes[pid] = _add_process_file(row, found.group(2), content, address)
    return tuple(_on_used_devices(processes[pid]) for pid in sorted(processes))


def _on_used_devices(row: ProcessRow) -> ProcessRow:
    """Each process has files for every device; one without memory there does not use it."""

    def used(values: Mapping[str, int]) -> dict[str, int]:
        return {device: value for device, value in values.items() if device in row.vram_by_device}

    return replace(row, cu_occupancy=used(row.cu_occupancy), sdma_us=used(row.sdma_us), evicted_ms=used(row.evicted_ms))


_PROCESS_FILES = {
    "vram_by_device": r"vram_(\d+)",
    "sdma_us": r"sdma_(\d+)",
    "cu_occupancy": r"stats_(\d+)/cu_occupancy",
    "evicted_ms": r"stats_(\d+)/evicted_ms",
}


def _add_process_file(row: ProcessRow, name: str, content: str, address: Mapping[int | None, str | None]) -> ProcessRow:
    if name == "pasid":
        return replace(row, pasid=missing.whole(content))
    for field, pattern in _PROCESS_FILES.items():
        if found := re.fullmatch(pattern, name):
            device, value = address.get(int(found.group(1))), missing.counter(content)
            if not device or value is None or (value == 0 and field in ("vram_by_device", "evicted_ms")):
                return row
            return replace(row, **{field: {**getattr(row, field), device: value}})  # type: ignore[arg-type]
    return row
