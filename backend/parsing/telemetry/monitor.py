"""Records of `amd-smi monitor` and of the bare `amd-smi` table in, rows out. Columns go by name: releases reorder them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from backend.parsing.telemetry import missing
from backend.parsing.telemetry.amd_smi_json import build_row, flatten
from backend.parsing.telemetry.missing import Json, Number
from backend.parsing.telemetry.rows import GpuRow
from backend.parsing.telemetry.tables import parse_columns

_NUMBERS = {
    "socket_power_watts": (missing.watts, ("power_usage", "power")),
    "power_cap_watts": (missing.watts, ("max_power", "pwr_cap", "power_cap")),
    "hotspot_celsius": (missing.celsius, ("hotspot_temperature", "gpu_t", "gpu_temp")),
    "memory_celsius": (missing.memory_celsius, ("memory_temperature", "mem_t", "mem_temp")),
    "gfx_clock_mhz": (missing.megahertz, ("gfx_clk", "gfx_clock")),
    "mem_clock_mhz": (missing.megahertz, ("mem_clock", "mem_clk")),
    "gfx_activity_percent": (missing.percent, ("gfx", "gfx%", "gfx_util")),
    "mem_activity_percent": (missing.percent, ("mem", "mem%", "mem_util")),
    "ecc_correctable": (missing.count, ("single_bit_ecc", "single_ecc")),
    "ecc_uncorrectable": (missing.count, ("double_bit_ecc", "double_ecc")),
    "power_violation_percent": (missing.percent, ("pviol",)),
    "thermal_violation_percent": (missing.percent, ("tviol",)),
    "prochot_violation_percent": (missing.percent, ("phot_tviol",)),
    "vr_violation_percent": (missing.percent, ("vr_tviol",)),
    "hbm_violation_percent": (missing.percent, ("hbm_tviol",)),
    "pcie_replays": (missing.count, ("pcie_replay",)),
}
_SENSORS = (
    "socket_power_watts",
    "hotspot_celsius",
    "memory_celsius",
    "gfx_clock_mhz",
    "gfx_activity_percent",
    "mem_activity_percent",
)
_ASKED = {
    "socket_power_watts": ("power_usage", "power"),
    "gfx_activity_percent": ("gfx", "gfx%", "gfx_util"),
    "gfx_clock_mhz": ("gfx_clk", "gfx_clock"),
    "hotspot_celsius": ("hotspot_temperature", "gpu_t", "gpu_temp"),
    "vram_total_bytes": ("vram_total", "vram_usage"),
}


def parse_monitor(records: Sequence[Mapping[str, Json]]) -> tuple[GpuRow, ...]:
    """All rows of one monitor output (JSON, CSV or text columns)."""
    flats = _latest([flatten(record) for record in records])
    unit = _memory_unit(flats)
    return mark_partitions(tuple(_parse_row(flat, index, unit) for index, flat in enumerate(flats)))


def asked_monitor(records: Sequence[Mapping[str, Json]]) -> frozenset[str]:
    """Row fields that the printed columns could have filled."""
    columns = {str(key).lower() for record in records for key in record}
    return frozenset(field for field, names in _ASKED.items() if columns & set(names))


def parse_monitor_text(text: str) -> tuple[list[dict[str, Json]], list[dict[str, Json]]] | None:
    """Device records and process records of the column text; None when there is no such table."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if re.match(r"\s*(?:TIMESTAMP\s+)?GPU\s+\S", line)), None)
    if start is None or re.match(r"\s*GPU\s+NAME\s+PID", lines[start]) or " Temp" in lines[start]:
        return None
    end = next((n for n in range(start + 1, len(lines)) if not re.match(r"\s*\d+\s", lines[n] + " ")), len(lines))
    devices = parse_columns(lines[start], lines[start + 1 : end])
    return devices, _process_records(lines[end:])


def _process_records(lines: Sequence[str]) -> list[dict[str, Json]]:
    start = next((n for n, line in enumerate(lines) if re.match(r"\s*GPU\s+NAME\s+PID", line)), None)
    if start is None:
        return []
    rows = [line for line in lines[start + 1 :] if re.match(r"\s*\d+\s", line)]
    return parse_columns(lines[start], rows)


def _latest(flats: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """With --watch the table repeats with a time stamp: keep the newest round."""
    stamps = [stamp for flat in flats if (stamp := missing.number(flat.get("timestamp"), 0, 1e12)) is not None]
    if not stamps:
        return flats
    return [flat for flat in flats if missing.number(flat.get("timestamp"), 0, 1e12) == max(stamps)]


def _memory_unit(flats: Sequence[Mapping[str, Json]]) -> str:
    """CSV carries no unit: GiB with one decimal without flags, whole MiB with -v, under the same column names."""
    cells = [str(flat.get(name, "")) for flat in flats for name in ("vram_used", "vram_total", "gtt_used", "gtt_total")]
    totals = [total for flat in flats if (total := missing.number(flat.get("vram_total"), 0, 1e9)) is not None]
    return "gib" if any("." in cell for cell in cells) or (totals and max(totals) < 512) else "mib"


def _parse_row(flat: Mapping[str, Json], index: int, unit: str) -> GpuRow:
    numbers: dict[str, object] = {}
    for field, (reader, names) in _NUMBERS.items():
        numbers[field] = next((reader(flat[name]) for name in names if name in flat), None)
    # An APU's memory is the pool it shares with the CPU: text names the columns GTT_*.
    for pool in ("vram", "gtt"):
        used, total = _memory(flat, pool, unit)
        numbers |= {f"{pool}_used_bytes": used, f"{pool}_total_bytes": total}
    numbers["partition_id"] = missing.whole(flat.get("xcp", flat.get("partition_id")), high=63)
    numbers["printed_index"] = missing.whole(flat.get("gpu"))
    numbers["bdf"] = missing.bdf(flat.get("bdf"))
    return build_row(index, numbers)


def _memory(flat: Mapping[str, Json], pool: str, unit: str) -> tuple[int | None, int | None]:
    usage = missing.text(flat.get(f"{pool}_usage"))
    if usage and (found := re.match(r"\s*([\d.]+)\s*/\s*([\d.]+)\s*([A-Za-z]*)", usage)):
        used, total, printed = found.groups()
        return missing.memory_bytes(used, printed or "gib"), missing.memory_bytes(total, printed or "gib")
    return missing.memory_bytes(flat.get(f"{pool}_used"), unit), missing.memory_bytes(flat.get(f"{pool}_total"), unit)


def mark_partitions(rows: tuple[GpuRow, ...]) -> tuple[GpuRow, ...]:
    """Sensors per card, memory per partition.

    In CPX, QPX and DPX only the first row of a card has sensors, and its memory is the whole card. Rows that follow it, have
    no sensor and less memory are its partitions.
    """
    marked: list[GpuRow] = []
    primary = 0
    for position, row in enumerate(rows):
        if _is_partition_of(row, marked[primary] if marked else None):
            marked[primary] = replace(marked[primary], partition_id=0, vram_scope="card")
            marked.append(replace(row, partition_id=_or(row.partition_id, position - primary), vram_scope="partition"))
        else:
            primary = position
            marked.append(row)
    return tuple(marked)


def _is_partition_of(row: GpuRow, card: GpuRow | None) -> bool:
    if card is None or row.vram_total_bytes is None or card.vram_total_bytes is None:
        return False
    bare = all(getattr(row, sensor) is None for sensor in _SENSORS)
    return (
        bare
        and any(getattr(card, sensor) is not None for sensor in _SENSORS)
        and row.vram_total_bytes < 0.7 * card.vram_total_bytes
    )


def _or(value: int | None, other: int) -> int:
    return other if value is None else value


# --- the bare table of ROCm 7: two lines for each card --------------------------------------------------------------

_FIRST = re.compile(r"\|\s*([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]|N/A)\s+(.*?)\s*\|(.*)\|?\s*$")
_SECOND = re.compile(r"\|\s*(\d+)\s+(\S+)\s+(\S+)\s+(\S+)\s*\|(.*)\|?\s*$")
_PROCESS = re.compile(
    r"\|\s*(\d+)\s+(\d+)\s+(\S.*?)\s+([\d.]+ [KMGT]?B|N/A)\s+([\d.]+ [KMGT]?B|N/A)\s+([\d.]+ [KMGT]?B|N/A)\s"
)
_PERCENT = r"\s*(N/A(?: %)?|\d+(?:\.\d+)? ?%)"


def parse_default_table(text: str) -> tuple[tuple[GpuRow, ...], list[dict[str, Json]]] | None:
    """Rows and process records of `amd-smi` without a sub-command; None when this is another text."""
    lines = text.splitlines()
    if not any(re.match(r"\|\s*BDF\s+GPU-Name", line) for line in lines):
        return None
    rows: list[GpuRow] = []
    for first, second in pairwise(lines):
        head, tail = _FIRST.match(first), _SECOND.match(second)
        if head and tail:
            rows.append(_table_row(len(rows), head, tail))
    processes: list[dict[str, Json]] = [
        {"gpu": found.group(1), "pid": found.group(2), "name": found.group(3), "vram_mem": found.group(5)}
        for line in lines
        if (found := _PROCESS.match(line))
    ]
    return tuple(rows), processes


def _table_row(index: int, head: re.Match[str], tail: re.Match[str]) -> GpuRow:
    upper, lower = head.group(3), tail.group(5)
    sensors = re.match(rf"{_PERCENT}\s+(N/A(?: ?°C)?|\d+(?:\.\d+)? ?°?C)\s+(N/A|\d+)\s+(\S.*?)\s*\|?$", upper)
    below = re.match(rf"{_PERCENT}\s+(N/A(?: %)?|[\d.]+ ?%)\s+(\S.*?)\s*\|?$", lower)
    power, cap = _pair(sensors.group(4) if sensors else "")
    used, total = _pair(below.group(3) if below else "")
    unit = (re.search(r"([KMGT]i?B)\s*$", below.group(3)) if below else None) or re.match(r"(MB)", "MB")
    mode = tail.group(4).split("/")
    return build_row(
        index,
        {
            "bdf": missing.bdf(head.group(1)),
            "name": missing.text(head.group(2)),
            "hip_id": missing.whole(tail.group(2)),
            "oam_id": missing.whole(tail.group(3)),
            "compute_partition": missing.text(mode[0]),
            "memory_partition": missing.text(mode[-1]) if len(mode) == 2 else None,
            "mem_activity_percent": missing.percent(sensors.group(1) if sensors else None),
            "hotspot_celsius": missing.celsius(sensors.group(2) if sensors else None),
            "ecc_uncorrectable": missing.count(sensors.group(3) if sensors else None),
            "socket_power_watts": missing.watts(power),
            "power_cap_watts": missing.watts(cap),
            "gfx_activity_percent": missing.percent(below.group(1) if below else None),
            "vram_used_bytes": missing.memory_bytes(used, unit.group(1) if unit else "mb"),
            "vram_total_bytes": missing.memory_bytes(total, unit.group(1) if unit else "mb"),
        },
    )


def _pair(cell: str) -> tuple[str | None, str | None]:
    found = re.match(r"(N/A|[\d.]+)\s*/\s*(N/A|[\d.]+)", cell)
    return (found.group(1), found.group(2)) if found else (None, None)


def parse_default_json(records: Sequence[Mapping[str, Json]]) -> tuple[GpuRow, ...]:
    """`gpu_info_list` of `amd-smi --json` without a sub-command; an APU shows its shared pool (GTT)."""
    return tuple(_default_json_row(flatten(record), index) for index, record in enumerate(records))


def _default_json_row(flat: Mapping[str, Json], index: int) -> GpuRow:
    memory = {
        f"{pool}_{what}_bytes": missing.memory_bytes(flat.get(f"mem_usage.{what}_{pool}"), "mib")
        for pool in ("vram", "gtt")
        for what in ("used", "total")
    }
    numbers: dict[str, Number | None] = {
        "gfx_activity_percent": missing.percent(flat.get("gfx_util")),
        "mem_activity_percent": missing.percent(flat.get("mem_util")),
        "hotspot_celsius": missing.celsius(flat.get("temp")),
        "socket_power_watts": missing.watts(flat.get("power_usage.current_power")),
        "power_cap_watts": missing.watts(flat.get("power_usage.power_limit")),
        "ecc_uncorrectable": missing.count(flat.get("uncorr_ecc")),
        "hip_id": missing.whole(flat.get("hip_id")),
        "oam_id": missing.whole(flat.get("oam_id")),
    }
    return build_row(
        index, {"bdf": missing.bdf(flat.get("bdf")), "name": missing.text(flat.get("market_name")), **numbers, **memory}
    )
