"""Records of `amd-smi` (from JSON, CSV or the indented text, which share their keys) in, rows out.

Shapes by release: a list up to ROCm 6.x, an object with `gpu_data` (beside it `cpu_data`, `core_data`, `nic_data`) from 7.0;
keys are lower case in JSON, upper case in text, without their section in CSV. So each record is flattened to `section.key`
first and a field is looked up by all names it ever had.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from backend.parsing.telemetry import missing
from backend.parsing.telemetry.missing import Json, Number
from backend.parsing.telemetry.rows import DeviceRow, GpuRow, Link, ProcessRow

Record = Mapping[str, Json]
_Value = TypeVar("_Value")
Flat = dict[str, Json]

_MAX_DEPTH = 8


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STATIC_KEYS = _words(
    "asic bus vbios ifwi limit driver board ras numa vram cache_info soc_pstate dpm_policy xgmi_plpd process_isolation"
    " partition market_name slowdown_hotspot_temperature ppt0_socket_power_limit ppt0_max_power_limit"
)
_METRIC_KEYS = _words(
    "usage clock temperature pcie ecc ecc_blocks fan voltage_curve overdrive mem_overdrive perf_level xgmi_err"
    " voltage energy mem_usage throttle violation gfx_activity socket_power total_vram used_vram hotspot gfx_0_clk"
    " total_correctable_count ppt_violation_activity total_energy_consumption"
)
_MONITOR_KEYS = _words(
    "power_usage gfx_clk gfx_clock gfx_util mem_util vram_used vram_total vram_usage hotspot_temperature gpu_temp"
    " pviol power gpu_t gtt_usage gtt_used gfx% mem% single_bit_ecc single_ecc gfx mem"
)


def flatten(record: Record) -> Flat:
    """Nested record to `section.key` -> value; quantities (`value` and `unit`) and lists stay whole; keys become lower case."""
    flat: Flat = {}
    _flatten_into(flat, record, "", 0)
    return flat


def _flatten_into(flat: Flat, node: Record, prefix: str, depth: int) -> None:
    for key, value in node.items():
        path = f"{prefix}{str(key).strip().lower()}"
        if isinstance(value, Mapping) and "value" not in value and depth < _MAX_DEPTH:
            flat.setdefault(path, None)
            _flatten_into(flat, value, f"{path}.", depth + 1)
        else:
            flat[path] = value


def kind_of(record: Record) -> str:
    """Which sub-command printed this record: static, metric, monitor, list, process, topology, xgmi or other."""
    keys = {str(key).lower() for key in record}
    clock = record.get("clock")
    if "pid" in keys:
        return "process"
    if "tool" in keys and "version" in keys:
        return "version"
    if keys & _STATIC_KEYS or (isinstance(clock, Mapping) and "sys" in clock):
        return "static"
    if "links" in keys:
        return "topology"
    if keys & {"link_metrics", "link_status"}:
        return "xgmi"
    if keys & _METRIC_KEYS or isinstance(record.get("power"), Mapping):
        return "metric"
    if keys & _MONITOR_KEYS:
        return "monitor"
    if keys & {"process_list", "process_info"}:
        return "process"
    if keys & {"bdf", "gpu_bdf"} and keys & {"uuid", "gpu_uuid", "kfd_id", "hip_id", "node_id"}:
        return "list"
    return "other"


# --- metric ---------------------------------------------------------------------------------------------------------

_Reader = Callable[[Json], Number | None]

_METRIC_NUMBERS: dict[str, tuple[_Reader, tuple[str, ...]]] = {
    "gfx_activity_percent": (missing.percent, ("usage.gfx_activity", "usage.gfx_usage", "gfx_activity", "gfx_usage")),
    "mem_activity_percent": (missing.percent, ("usage.umc_activity", "usage.mem_usage", "umc_activity")),
    "socket_power_watts": (
        missing.watts,
        (
            "power.socket_power",
            "power.current_socket_power",
            "power.average_socket_power",
            "power.current_power",
            "socket_power",
        ),
    ),
    "edge_celsius": (missing.celsius, ("temperature.edge", "temperature.edge_temperature", "edge", "edge_temperature")),
    "hotspot_celsius": (missing.celsius, ("temperature.hotspot", "temperature.hotspot_temperature", "hotspot")),
    "memory_celsius": (
        missing.memory_celsius,
        ("temperature.mem", "temperature.vram", "temperature.mem_temperature", "mem"),
    ),
    "gfx_clock_mhz": (
        missing.megahertz,
        ("clock.gfx_0.clk", "clock.gfx.clk", "clock.gfx.cur_clk", "gfx_0_clk", "gfx_clk", "clk"),
    ),
    "mem_clock_mhz": (
        missing.megahertz,
        ("clock.mem_0.clk", "clock.mem.clk", "clock.mem.cur_clk", "mem_0_clk", "mem_clk"),
    ),
    "ecc_correctable": (
        missing.count,
        ("ecc.total_correctable_count", "ecc.total_correctable", "total_correctable_count"),
    ),
    "ecc_uncorrectable": (
        missing.count,
        ("ecc.total_uncorrectable_count", "ecc.total_uncorrectable", "total_uncorrectable_count"),
    ),
    "ecc_deferred": (missing.count, ("ecc.total_deferred_count", "total_deferred_count")),
    "pcie_gts": (missing.transfers, ("pcie.speed", "pcie.current_speed", "speed")),
    "pcie_width": (missing.whole, ("pcie.width", "pcie.current_lanes", "width")),
    "pcie_replays": (missing.count, ("pcie.replay_count", "replay_count")),
}
_CAUSES = {
    "power_violation_percent": "ppt",
    "thermal_violation_percent": "socket_thermal",
    "prochot_violation_percent": "prochot",
    "vr_violation_percent": "vr_thermal",
    "hbm_violation_percent": "hbm_thermal",
}
_METRIC_MEMORY = {
    "vram_total_bytes": ("mem_usage.total_vram", "vram.total_vram", "total_vram"),
    "vram_used_bytes": ("mem_usage.used_vram", "vram.used_vram", "used_vram"),
    "gtt_total_bytes": ("mem_usage.total_gtt", "total_gtt"),
    "gtt_used_bytes": ("mem_usage.used_gtt", "used_gtt"),
}


def parse_metric(record: Record, index: int) -> GpuRow:
    """One record of `amd-smi metric`. A missing section, a missing key and N/A mean the same."""
    flat = flatten(record)
    numbers = {field: _first(flat, names, reader) for field, (reader, names) in _METRIC_NUMBERS.items()}
    memory = {field: _first(flat, names, _mebibytes) for field, names in _METRIC_MEMORY.items()}
    energy = _first(flat, ("energy.total_energy_consumption", "total_energy_consumption"), missing.counter_number)
    return build_row(
        index,
        {
            **numbers,
            **memory,
            **_violations(flat),
            "printed_index": missing.whole(flat.get("gpu")),
            "bdf": missing.bdf(flat.get("bdf") or flat.get("bus.bdf")),
            "throttle_status": missing.flag(
                flat.get("power.throttle_status", flat.get("throttle_status")), "throttled", "unthrottled"
            ),
            # 0 J is an odd die of MI250 or a Radeon: no meter.
            "energy_joules": energy or None,
        },
    )


def _violations(flat: Flat) -> dict[str, Number | None]:
    """ppt = power limit, socket_thermal = temperature limit. LOW_UTILIZATION is idleness, not throttling, and is left out."""
    return {
        field: _first(
            flat,
            tuple(f"{section}{cause}_violation_activity" for section in ("throttle.", "violation.", "")),
            missing.percent,
        )
        for field, cause in _CAUSES.items()
    }


def asked_metric(record: Record) -> frozenset[str]:
    """Fields of a row that the command was asked for, whatever it answered."""
    sections = {str(key).lower() for key in record}
    groups = {
        "usage": ("gfx_activity_percent",),
        "power": ("socket_power_watts",),
        "clock": ("gfx_clock_mhz",),
        "temperature": ("hotspot_celsius",),
        "mem_usage": ("vram_total_bytes",),
        "gfx_activity": ("gfx_activity_percent",),
        "socket_power": ("socket_power_watts",),
        "gfx_0_clk": ("gfx_clock_mhz",),
        "hotspot": ("hotspot_celsius",),
        "total_vram": ("vram_total_bytes",),
    }
    return frozenset(field for section, fields in groups.items() if section in sections for field in fields)


def partition_count(record: Record) -> int:
    """Partitions (XCP) of the card as `usage.gfx_busy_inst` lists them; 0 when it does not."""
    usage = record.get("usage")
    busy = usage.get("gfx_busy_inst") if isinstance(usage, Mapping) else None
    if isinstance(busy, Mapping):
        return len(busy) if "value" not in busy else 0
    columns = [key for key in record if key.startswith("gfx_busy_inst_xcp_")]  # CSV
    return sum(1 for key in columns if not missing.is_absent(record[key]))


def partition_activity(record: Record) -> dict[str, float]:
    """Mean activity of each partition: its row of `gfx_busy_inst`, where N/A marks a die of another partition."""
    usage = record.get("usage")
    busy = usage.get("gfx_busy_inst") if isinstance(usage, Mapping) else None
    if not isinstance(busy, Mapping):
        return {}
    means = {}
    for name, cells in busy.items():
        values = (
            [value for cell in cells if (value := missing.percent(cell)) is not None] if isinstance(cells, list) else []
        )
        if values:
            means[str(name).lower()] = sum(values) / len(values)
    return means


# --- static and list ------------------------------------------------------------------------------------------------


def parse_static(record: Record, index: int) -> DeviceRow:
    """One record of `amd-smi static`: the model is decided by `device_id`, names vary and are cut."""
    flat = flatten(record)
    get = _getter(flat)
    return DeviceRow(
        index=index,
        bdf=missing.bdf(get("bus.bdf", "bdf")),
        partition_id=missing.whole(get("partition.partition_id", "partition_id")),
        name=missing.text(get("asic.market_name", "market_name")),
        device_id=missing.text(get("asic.device_id", "device_id")),
        gfx_target=gfx_target(get("asic.target_graphics_version", "target_graphics_version")),
        num_compute_units=missing.whole(get("asic.num_compute_units", "num_compute_units")),
        oam_id=missing.whole(get("asic.oam_id", "oam_id")),
        vram_total_bytes=_mebibytes(get("vram.size", "vram.vram_size", "vram.vram_size_mb", "size")),
        power_cap_watts=_first(flat, _CAP, missing.watts),
        power_cap_max_watts=_first(flat, _CAP_MAX, missing.watts),
        slowdown_hotspot_celsius=missing.celsius(
            get("limit.slowdown_hotspot_temperature", "slowdown_hotspot_temperature")
        ),
        shutdown_hotspot_celsius=missing.celsius(
            get("limit.shutdown_hotspot_temperature", "shutdown_hotspot_temperature")
        ),
        driver_version=driver_version(
            get("driver.version", "driver.driver_version", "driver_version", *_csv_driver(flat))
        ),
        compute_partition=missing.text(
            get(
                "partition.compute_partition",
                "partition.accelerator_partition",
                "compute_partition",
                "accelerator_partition",
            )
        ),
        memory_partition=missing.text(get("partition.memory_partition", "memory_partition")),
        numa_node=_numa_node(get("numa.node", "node"), get("numa.affinity", "affinity")),
    )


_CAP = (
    "limit.ppt0.socket_power_limit",
    "ppt0_socket_power_limit",
    "limit.socket_power_limit",
    "limit.socket_power",
    "limit.current_power",
    "socket_power_limit",
    "socket_power",
)
_CAP_MAX = (
    "limit.ppt0.max_power_limit",
    "ppt0_max_power_limit",
    "limit.max_power_limit",
    "limit.max_power",
    "max_power_limit",
    "max_power",
)


def _csv_driver(flat: Flat) -> tuple[str, ...]:
    """CSV drops the section: of several columns called `version` the driver's, the last, is left, beside its name."""
    return ("version",) if missing.text(flat.get("name")) == "amdgpu" else ()


def parse_list(record: Record, index: int) -> DeviceRow:
    """One record of `amd-smi list [-e]`; the `-e` fields (HIP index, render node) exist since ROCm 6.4."""
    get = _getter(flatten(record))
    return DeviceRow(
        index=index,
        bdf=missing.bdf(get("bdf", "gpu_bdf")),
        partition_id=missing.whole(get("partition_id")),
        hip_id=missing.whole(get("hip_id")),
        kfd_gpu_id=missing.whole(get("kfd_id"), high=1 << 32),
        kfd_node=missing.whole(get("node_id")),
        render_minor=trailing_number(get("render", "drm_render")),
        drm_card=trailing_number(get("card", "drm_card")),
        uuid=identity(get("uuid", "gpu_uuid")),
        hip_uuid=identity(get("hip_uuid")),
        oam_id=missing.whole(get("oam_id")),
    )


def gfx_target(raw: Json) -> str | None:
    """`gfx942`. Some releases print the step in decimal: gfx9010 is gfx90a, gfx9008 is gfx908."""
    name = (missing.text(raw) or "").lower()
    if found := re.fullmatch(r"(?:gfx)?9(\d)(\d\d)", name):
        return f"gfx9{found.group(1)}{int(found.group(2)):x}"
    return name or None


def driver_version(raw: Json) -> str | None:
    """Kernel driver version; in-tree drivers give a kernel release or a whole /proc/version line without blanks."""
    name = missing.text(raw)
    found = re.match(r"linux\s*version\s*(\d[^\s(]*)", name or "", re.IGNORECASE)
    return found.group(1) if found else name


def identity(raw: Json) -> str | None:
    """A UUID; the form that ends in twelve zeros is what cards without a serial number print."""
    name = missing.text(raw)
    digits = (name or "").lower().removeprefix("gpu-").replace("-", "")
    return None if not digits.strip("0x") or (digits.endswith("0" * 12) and "-" in (name or "")[4:]) else name


def trailing_number(raw: Json) -> int | None:
    """128 of `renderD128`, 1 of `card1`, or the number itself."""
    found = re.fullmatch(r"[A-Za-z]*(\d+)", missing.text(raw) or "")
    return int(found.group(1)) if found and len(found.group(1)) < 8 else None


def _numa_node(node: Json, affinity: Json) -> int | None:
    """The node, unless the affinity says -1: then no node is bound and `node` 0 means nothing."""
    if not missing.is_absent(affinity) and missing.whole(affinity) is None:
        return None
    return missing.whole(node)


# --- processes, topology, xgmi --------------------------------------------------------------------------------------


def parse_processes(records: Sequence[Record]) -> tuple[ProcessRow, ...]:
    """Processes of `amd-smi process` (and `monitor -q`), each pid once.

    Releases around 7.2 list a worker under every card whose address space maps its buffers, each time with its total, so sums
    are several times too high; which card it sits on is only in KFD. The same releases print KiB x 1000 as bytes.
    """
    listed = [
        (_listed_under(record, info, position), flatten(info))
        for position, record in enumerate(records)
        for info in _process_infos(record)
    ]
    scale = 1.024 if _prints_kilo_of_kibi([_printed_memory(info) for _, info in listed]) else 1
    found: dict[int, ProcessRow] = {}
    for index, info in listed:
        _add_process(found, info, index, scale)
    return tuple(found.values())


def _listed_under(record: Record, info: Record, position: int) -> int:
    printed = (missing.whole(raw) for raw in (info.get("gpu_index"), record.get("gpu"), info.get("gpu")))
    return next((index for index in printed if index is not None), position)


def _process_infos(record: Record) -> list[Record]:
    if "pid" in record:
        # --sort-by-pid: the devices stand below the process.
        return [{**record, **entry} for entry in _entries(record.get("gpus"))] or [record]
    listed = record.get("process_list", record.get("process_info"))
    entries = listed if isinstance(listed, list) else [listed]
    infos: list[Record] = []
    for entry in entries:
        info = entry.get("process_info", entry) if isinstance(entry, Mapping) else entry
        infos += [part for part in (info if isinstance(info, list) else [info]) if isinstance(part, Mapping)]
    return infos


def _printed_memory(info: Flat) -> Json:
    return _getter(info)("memory_usage.vram_mem", "vram_mem", "vram")


def _prints_kilo_of_kibi(cells: Sequence[Json]) -> bool:
    """Real sizes are pages of 4096; sizes in bytes that are all multiples of 1000 and not all of 4096 are KiB x 1000."""
    sizes = [
        size for cell in cells if (missing.unit_of(cell) or "b").lower() == "b" and (size := missing.memory_bytes(cell))
    ]
    return bool(sizes) and all(size % 1000 == 0 for size in sizes) and any(size % 4096 for size in sizes)


def _add_process(found: dict[int, ProcessRow], info: Flat, index: int, scale: float) -> None:
    pid = missing.whole(info.get("pid"))
    if pid is None or pid == 0:
        return
    before = found.get(pid)
    listed = before.listed_under if before else ()
    printed = missing.memory_bytes(_printed_memory(info))
    sizes = [round(printed * scale) if printed is not None else None, before.vram_bytes if before else None]
    found[pid] = ProcessRow(
        pid=pid,
        name=missing.text(info.get("name")) or (before.name if before else None),
        listed_under=listed if index in listed else (*listed, index),
        vram_bytes=max((size for size in sizes if size is not None), default=None),
    )


def parse_topology(records: Sequence[Record]) -> tuple[Link, ...]:
    """Links of `amd-smi topology`."""
    links = []
    for record in records:
        source = missing.bdf(record.get("bdf"))
        for entry in _entries(record.get("links")):
            target = missing.bdf(entry.get("bdf"))
            if source and target:
                kind = (missing.text(entry.get("link_type")) or "").upper()
                links.append(Link(source=source, target=target, kind=kind, hops=missing.whole(entry.get("num_hops"))))
    return tuple(links)


def parse_xgmi(records: Sequence[Record]) -> tuple[tuple[Link, ...], dict[int, str]]:
    """Traffic of each link since boot, and the state of each card's ports: U up, D down, X disabled."""
    links: list[Link] = []
    status: dict[int, str] = {}
    for position, record in enumerate(records):
        index = missing.whole(record.get("gpu"))
        states = record.get("link_status")
        if isinstance(states, list):
            status[position if index is None else index] = "".join((missing.text(state) or "?")[:1] for state in states)
        links += _xgmi_links(record)
    return tuple(links), status


def _xgmi_links(record: Record) -> list[Link]:
    metrics, source = record.get("link_metrics"), missing.bdf(record.get("bdf"))
    if not isinstance(metrics, Mapping) or not source:
        return []
    kind = (missing.text(metrics.get("link_type")) or "XGMI").upper()
    return [
        Link(
            source=source,
            target=target,
            kind=kind,
            read_bytes=_kilobytes(entry.get("read")),
            write_bytes=_kilobytes(entry.get("write")),
        )
        for entry in _entries(metrics.get("links"))
        if (target := missing.bdf(entry.get("bdf"))) and target != source
    ]


def _kilobytes(raw: Json) -> int | None:
    value = missing.counter(raw)
    return None if value is None else value * 1024


# --- shared ---------------------------------------------------------------------------------------------------------


def build_row(index: int, fields: Mapping[str, object]) -> GpuRow:
    """A row from named fields, made consistent: more memory used than there is means that "used" is not known."""
    used, total = fields.get("vram_used_bytes"), fields.get("vram_total_bytes")
    values = dict(fields)
    if total == 0:
        values["vram_total_bytes"] = None
    elif isinstance(used, int) and isinstance(total, int) and used > total * 1.01:
        values["vram_used_bytes"] = None
    return GpuRow(index=index, **values)  # type: ignore[arg-type]


def _entries(raw: Json) -> list[Record]:
    return [entry for entry in raw if isinstance(entry, Mapping)] if isinstance(raw, list) else []


def _first(flat: Flat, names: tuple[str, ...], reader: Callable[[Json], _Value | None]) -> _Value | None:
    for name in names:
        if name in flat and (value := reader(flat[name])) is not None:
            return value
    return None


def _getter(flat: Flat) -> Callable[..., Json]:
    def get(*names: str) -> Json:
        return next((flat[name] for name in names if not missing.is_absent(flat.get(name))), None)

    return get


def _mebibytes(raw: Json) -> int | None:
    return missing.memory_bytes(raw, "mib")
