"""Return values of the `amdsmi` Python module (as the child process sends them, one mapping per device) in, rows out.

A call's answer is its plain value, `{"raises": {"exception", "err_code", "err_info"}}` when it raised, and for calls with
further arguments `{"by_arg": {"HOTSPOT,CURRENT": value}}`. One call that raises never loses the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from backend.parsing.telemetry import missing
from backend.parsing.telemetry.amd_smi_json import build_row, driver_version, gfx_target, identity
from backend.parsing.telemetry.missing import Json, Number
from backend.parsing.telemetry.rows import DeviceRow, GpuRow, Link, ProcessRow, Verdict

Calls = Mapping[str, Json]

ENERGY_COUNTER_MICROJOULES = 15.259
XGMI = 2

_CODES = {
    10: Verdict.NO_PERMISSION,
    31: Verdict.NO_GPU,
    34: Verdict.DRIVER_NOT_LOADED,
}


def verdict_of_code(code: int | None) -> Verdict:
    """Meaning of the `err_code` that `amdsmi_init` raised."""
    return _CODES.get(code or 0, Verdict.CRASH)


def error_code(answer: Json) -> int | None:
    """`err_code` of an answer that raised, -1 when it raised something without a code, None when it did not raise."""
    raised = answer.get("raises") if isinstance(answer, Mapping) else None
    if not isinstance(raised, Mapping):
        return None
    code = raised.get("err_code")
    return code if isinstance(code, int) else -1


def parse_device(calls: Calls, index: int) -> GpuRow:
    """One device. Where two calls know a field, the dedicated call comes before the metrics table."""
    metrics, get = _mapping(calls, "amdsmi_get_gpu_metrics_info"), _reader(calls)
    power, cap = _mapping(calls, "amdsmi_get_power_info"), _mapping(calls, "amdsmi_get_power_cap_info")
    ecc, link = _mapping(calls, "amdsmi_get_gpu_total_ecc_count"), _mapping(calls, "amdsmi_get_pcie_info.pcie_metric")
    vram, activity = _mapping(calls, "amdsmi_get_gpu_vram_usage"), _mapping(calls, "amdsmi_get_gpu_activity")
    fields: dict[str, object] = {
        **_identity_fields(calls),
        "gfx_activity_percent": _first(
            missing.percent, activity.get("gfx_activity"), metrics.get("average_gfx_activity")
        ),
        "mem_activity_percent": _first(
            missing.percent, activity.get("umc_activity"), metrics.get("average_umc_activity")
        ),
        "vram_used_bytes": _first_of(
            missing.memory_bytes(vram.get("vram_used"), "mib"),
            missing.memory_bytes(get("amdsmi_get_gpu_memory_usage", "VRAM")),
        ),
        "vram_total_bytes": _vram_total(calls),
        "gtt_used_bytes": missing.memory_bytes(get("amdsmi_get_gpu_memory_usage", "GTT")),
        "gtt_total_bytes": missing.memory_bytes(get("amdsmi_get_gpu_memory_total", "GTT")),
        # MI300 fills current, MI200 and Navi average; from 7.0 socket_power chooses.
        "socket_power_watts": _first(
            missing.watts,
            power.get("socket_power"),
            power.get("current_socket_power"),
            power.get("average_socket_power"),
            metrics.get("current_socket_power"),
            metrics.get("average_socket_power"),
        ),
        "power_cap_watts": _first(missing.watts_from_micro, cap.get("power_cap"), power.get("power_limit")),
        "gfx_clock_mhz": _first(
            missing.megahertz,
            _item(metrics.get("current_gfxclks"), 0),
            metrics.get("current_gfxclk"),
            _member(get("amdsmi_get_clock_info", "GFX"), "clk"),
            _member(get("amdsmi_get_clock_info", "GFX"), "cur_clk"),
        ),
        "mem_clock_mhz": _first(
            missing.megahertz, metrics.get("current_uclk"), _member(get("amdsmi_get_clock_info", "MEM"), "clk")
        ),
        "ecc_correctable": missing.count(ecc.get("correctable_count")),
        "ecc_uncorrectable": missing.count(ecc.get("uncorrectable_count")),
        "ecc_deferred": missing.count(ecc.get("deferred_count")),
        "pcie_width": _first_of(missing.whole(link.get("pcie_width")), missing.whole(metrics.get("pcie_link_width"))),
        "pcie_gts": _pcie_speed(link, metrics),
        "pcie_replays": missing.count(link.get("pcie_replay_count")),
        "throttle_status": metrics["throttle_status"] if isinstance(metrics.get("throttle_status"), bool) else None,
        "energy_joules": _energy(calls, metrics),
        "xgmi_read_kilobytes": _sum(metrics.get("xgmi_read_data_acc")),
        "xgmi_write_kilobytes": _sum(metrics.get("xgmi_write_data_acc")),
        "xgmi_links_down": _links_down(_mapping(calls, "amdsmi_get_gpu_xgmi_link_status").get("status")),
        **_temperatures(calls, metrics),
        **_violations(_mapping(calls, "amdsmi_get_violation_status")),
    }
    return build_row(index, fields)


def parse_identity(calls: Calls, index: int) -> DeviceRow:
    """Identity and limits of one device."""
    row = parse_device(calls, index)
    enumeration = _mapping(calls, "amdsmi_get_gpu_enumeration_info")
    cap, asic = _mapping(calls, "amdsmi_get_power_cap_info"), _mapping(calls, "amdsmi_get_gpu_asic_info")
    return DeviceRow(
        index=index,
        bdf=row.bdf,
        partition_id=row.partition_id,
        hip_id=row.hip_id,
        kfd_gpu_id=row.kfd_gpu_id,
        kfd_node=row.kfd_node,
        render_minor=row.render_minor,
        drm_card=row.drm_card,
        uuid=row.uuid,
        hip_uuid=identity(enumeration.get("hip_uuid")),
        name=row.name,
        device_id=row.device_id,
        gfx_target=row.gfx_target,
        num_compute_units=row.num_compute_units,
        oam_id=missing.whole(asic.get("oam_id")),
        vram_total_bytes=row.vram_total_bytes,
        power_cap_watts=row.power_cap_watts,
        power_cap_max_watts=missing.watts_from_micro(cap.get("max_power_cap")),
        slowdown_hotspot_celsius=row.slowdown_hotspot_celsius,
        shutdown_hotspot_celsius=row.shutdown_hotspot_celsius,
        driver_version=row.driver_version,
        compute_partition=row.compute_partition,
        memory_partition=row.memory_partition,
        hive_id=row.hive_id,
    )


def asked_calls(calls: Calls) -> frozenset[str]:
    """Row fields that the calls made could have filled."""
    asked: set[str] = set()
    if "amdsmi_get_gpu_metrics_info" in calls:
        asked |= {"gfx_activity_percent", "socket_power_watts", "gfx_clock_mhz", "hotspot_celsius"}
    if "amdsmi_get_gpu_vram_usage" in calls:
        asked.add("vram_total_bytes")
    return frozenset(asked)


def parse_process_lists(devices: Sequence[Calls]) -> tuple[ProcessRow, ...]:
    """Processes of all devices, each pid once."""
    found: dict[int, ProcessRow] = {}
    for index, calls in enumerate(devices):
        listed = calls.get("amdsmi_get_gpu_process_list")
        for entry in listed if isinstance(listed, list) else []:
            if isinstance(entry, Mapping) and (pid := missing.whole(entry.get("pid"))):
                before = found.get(pid)
                memory = missing.memory_bytes(_member(entry.get("memory_usage"), "vram_mem"))
                found[pid] = ProcessRow(
                    pid=pid,
                    name=missing.text(entry.get("name")),
                    listed_under=(*(before.listed_under if before else ()), index),
                    vram_bytes=memory if memory is not None else before.vram_bytes if before else None,
                )
    return tuple(found.values())


def parse_pairs(pairs: Mapping[str, Json], devices: Sequence[Calls]) -> tuple[Link, ...]:
    """Links from `amdsmi_topo_get_link_type` of index pairs "0,1".

    Its number follows the io-link table (1 PCIe, 2 XGMI) in every release, also in 6.4 whose AmdSmiLinkType says the opposite.
    """
    answers = pairs.get("amdsmi_topo_get_link_type")
    links = []
    for pair, answer in answers.items() if isinstance(answers, Mapping) else []:
        ends = [_address(devices, part) for part in pair.split(",")]
        kind = missing.whole(_member(answer, "type"))
        if len(ends) == 2 and ends[0] and ends[1] and kind is not None:
            name = "XGMI" if kind == XGMI else "PCIE"
            links.append(Link(source=ends[0], target=ends[1], kind=name, hops=missing.whole(_member(answer, "hops"))))
    return tuple(links)


def _address(devices: Sequence[Calls], position: str) -> str | None:
    index = missing.whole(position)
    return _identity_fields(devices[index])["bdf"] if index is not None and index < len(devices) else None  # type: ignore[return-value]


def _identity_fields(calls: Calls) -> dict[str, object]:
    asic, enumeration = _mapping(calls, "amdsmi_get_gpu_asic_info"), _mapping(calls, "amdsmi_get_gpu_enumeration_info")
    kfd, xgmi = _mapping(calls, "amdsmi_get_gpu_kfd_info"), _mapping(calls, "amdsmi_get_xgmi_info")
    return {
        "bdf": missing.bdf(calls.get("amdsmi_get_gpu_device_bdf")),
        "uuid": identity(calls.get("amdsmi_get_gpu_device_uuid")),
        "partition_id": missing.whole(kfd.get("current_partition_id")),
        "kfd_gpu_id": missing.whole(kfd.get("kfd_id"), high=1 << 32),
        "kfd_node": missing.whole(kfd.get("node_id")),
        "hip_id": missing.whole(enumeration.get("hip_id")),
        "drm_card": missing.whole(enumeration.get("drm_card")),
        "render_minor": missing.whole(enumeration.get("drm_render")),
        "name": missing.text(asic.get("market_name")),
        "device_id": missing.text(asic.get("device_id")),
        "oam_id": missing.whole(asic.get("oam_id")),
        "gfx_target": gfx_target(asic.get("target_graphics_version")),
        "num_compute_units": missing.whole(asic.get("num_compute_units")),
        "compute_partition": missing.text(calls.get("amdsmi_get_gpu_compute_partition")),
        "memory_partition": missing.text(calls.get("amdsmi_get_gpu_memory_partition")),
        "driver_version": driver_version(_mapping(calls, "amdsmi_get_gpu_driver_info").get("driver_version")),
        "hive_id": missing.whole(xgmi.get("xgmi_hive_id"), high=1 << 63) or None,
    }


def _temperatures(calls: Calls, metrics: Calls) -> dict[str, Number | None]:
    get = _reader(calls)
    call = "amdsmi_get_temp_metric"
    return {
        # EDGE raises NOT_SUPPORTED on MI300 and later: the part has no edge sensor.
        "edge_celsius": _first(missing.celsius, get(call, "EDGE,CURRENT"), metrics.get("temperature_edge")),
        "hotspot_celsius": _first(missing.celsius, get(call, "HOTSPOT,CURRENT"), metrics.get("temperature_hotspot")),
        "memory_celsius": _first(missing.memory_celsius, get(call, "VRAM,CURRENT"), metrics.get("temperature_mem")),
        "slowdown_hotspot_celsius": missing.celsius(get(call, "HOTSPOT,CRITICAL")),
        "shutdown_hotspot_celsius": missing.celsius(get(call, "HOTSPOT,EMERGENCY")),
        "slowdown_memory_celsius": missing.celsius(get(call, "VRAM,CRITICAL")),
    }


def _violations(status: Calls) -> dict[str, Number | None]:
    causes = {
        "power": "ppt_pwr",
        "thermal": "socket_thrm",
        "prochot": "prochot_thrm",
        "vr": "vr_thrm",
        "hbm": "hbm_thrm",
    }
    return {f"{name}_violation_percent": missing.percent(status.get(f"per_{cause}")) for name, cause in causes.items()}


def _vram_total(calls: Calls) -> int | None:
    usage, info = _mapping(calls, "amdsmi_get_gpu_vram_usage"), _mapping(calls, "amdsmi_get_gpu_vram_info")
    return _first_of(
        missing.memory_bytes(usage.get("vram_total"), "mib"),
        missing.memory_bytes(_reader(calls)("amdsmi_get_gpu_memory_total", "VRAM")),
        missing.memory_bytes(info.get("vram_size"), "mib"),
    )


def _pcie_speed(link: Calls, metrics: Calls) -> Number | None:
    megatransfers = missing.number(link.get("pcie_speed"), 1, 256_000)
    if megatransfers is not None:
        return megatransfers / 1000
    tenths = missing.number(metrics.get("pcie_link_speed"), 1, 2560)
    return None if tenths is None else tenths / 10


def _energy(calls: Calls, metrics: Calls) -> float | None:
    energy = _mapping(calls, "amdsmi_get_energy_count")
    accumulator = missing.counter(energy.get("energy_accumulator", energy.get("power")))
    resolution = missing.number(energy.get("counter_resolution"), 0.001, 1000)
    if not accumulator:
        accumulator, resolution = missing.counter(metrics.get("energy_accumulator")), None
    return accumulator * float(resolution or ENERGY_COUNTER_MICROJOULES) / 1e6 if accumulator else None


def _links_down(status: Json) -> int | None:
    return sum(1 for state in status if state == "D") if isinstance(status, list) else None


def _sum(cells: Json) -> int | None:
    values = (
        [value for cell in cells if (value := missing.counter(cell)) is not None] if isinstance(cells, list) else []
    )
    return sum(values) if values else None


def _mapping(calls: Calls, path: str) -> Calls:
    """The mapping that a call returned; empty when it raised, is absent or returned something else."""
    name, _, member = path.partition(".")
    answer = calls.get(name)
    if error_code(answer) is not None or not isinstance(answer, Mapping):
        return {}
    inner = answer.get(member) if member else answer
    return inner if isinstance(inner, Mapping) else {}


def _reader(calls: Calls) -> Callable[[str, str], Json]:
    def get(name: str, argument: str) -> Json:
        answers = _mapping(calls, name).get("by_arg")
        answer = answers.get(argument) if isinstance(answers, Mapping) else None
        return None if error_code(answer) is not None else answer

    return get


def _member(value: Json, name: str) -> Json:
    return value.get(name) if isinstance(value, Mapping) else None


def _item(value: Json, position: int) -> Json:
    return value[position] if isinstance(value, list) and len(value) > position else None


def _first(reader: Callable[[Json], Number | None], *candidates: Json) -> Number | None:
    return next((value for raw in candidates if (value := reader(raw)) is not None), None)


def _first_of(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
