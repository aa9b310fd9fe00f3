"""bench.json (the answer of backend/inside/bench.py) in, HostCheck out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from backend.domain.bench import DeviceCheck, HostCheck, LinkRow
from backend.errors import InvalidInput

_Json = Mapping[str, object]


def parse_host_check(record: object, *, at: float, job: str = "", profile: str = "") -> HostCheck:
    """Raises InvalidInput for anything but an answer of bench.py."""
    if not isinstance(record, dict) or not isinstance(record.get("devices"), list):
        raise InvalidInput("bench.json", found=type(record).__name__, expected="the answer of a host check")
    return HostCheck(
        at=at,
        job=job,
        host=str(record.get("host") or ""),
        world=int(_number(record.get("world")) or 1),
        seconds=_number(record.get("seconds")) or 0.0,
        devices=tuple(_device(row) for row in record["devices"] if isinstance(row, dict)),
        links=_links(record),
        backend=str(record.get("backend") or ""),
        torch=str(record.get("torch") or ""),
        hip=str(record.get("hip") or ""),
        profile=profile,
    )


def _links(record: _Json) -> tuple[LinkRow, ...]:
    """torch.distributed's rows, else those of rccl-tests."""
    rows = record.get("all_reduce")
    tests = record.get("rccl_tests")
    if not isinstance(rows, list) and isinstance(tests, dict):
        rows = tests.get("rows")
    return tuple(_link(row) for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()


def _device(row: _Json) -> DeviceCheck:
    total, units = _number(row.get("total_bytes")), _number(row.get("compute_units"))
    return DeviceCheck(
        device=str(row.get("device") or ""),
        name=str(row.get("name") or ""),
        matmul_flops=_number(row.get("matmul_flops")),
        memory_bytes_per_second=_number(row.get("memory_bytes_per_second")),
        launch_seconds=_number(row.get("launch_seconds")),
        total_bytes=None if total is None else int(total),
        gfx=str(row.get("gfx") or ""),
        compute_units=None if units is None else int(units),
    )


def _link(row: _Json) -> LinkRow:
    right = row.get("right")
    return LinkRow(
        bytes=int(_number(row.get("bytes")) or 0),
        seconds=_number(row.get("seconds")) or 0.0,
        bytes_per_second=_number(row.get("bytes_per_second")) or 0.0,
        bus_bytes_per_second=_number(row.get("bus_bytes_per_second")) or 0.0,
        right=cast("bool | None", right) if isinstance(right, bool) else None,
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
