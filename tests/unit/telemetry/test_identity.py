"""Joining what several sources say of the same card."""

from __future__ import annotations

import pytest

from backend.domain.gpu import Device, GpuReading, TelemetrySource
from backend.parsing.telemetry.identity import fill_reading, join_devices
from backend.parsing.telemetry.reasons import Gap, explain_gap
from backend.parsing.telemetry.rows import DeviceRow

A, B = "0000:1b:00.0", "0000:3d:00.0"


def test_address_joins_and_the_first_source_that_knows_wins() -> None:
    listed = (DeviceRow(index=0, bdf=A, hip_id=1, uuid="u"), DeviceRow(index=1, bdf=B, hip_id=0))
    kfd = (
        DeviceRow(index=0, bdf=B, hip_id=5, num_xcc=8, gfx_target="gfx942"),
        DeviceRow(index=1, bdf=A, num_xcc=8, render_minor=128),
    )
    first, second = join_devices([listed, kfd])
    assert (first.id, first.hip_id, first.hip_id_source, first.smi_index) == (B, 0, "enumeration", 1)
    assert (second.id, second.uuid, second.render_minor) == (A, "u", 128)


def test_hip_index_from_kfd_else_assumed_by_bus() -> None:
    old = (DeviceRow(index=0, bdf=B), DeviceRow(index=1, bdf=A))
    kfd = (DeviceRow(index=0, bdf=B, hip_id=0, num_xcc=1), DeviceRow(index=1, bdf=A, hip_id=1, num_xcc=1))
    assert [(device.id, device.hip_id_source) for device in join_devices([old, kfd])] == [(B, "kfd"), (A, "kfd")]
    assert [(device.id, device.hip_id, device.hip_id_source) for device in join_devices([old])] == [
        (A, 0, "assumed"),
        (B, 1, "assumed"),
    ]


def test_partitions_belong_to_the_card_of_their_address() -> None:
    rows = tuple(DeviceRow(index=n, bdf=f"0000:1b:00.{n}", hip_id=n, compute_partition="CPX") for n in range(3))
    devices = join_devices([rows])
    assert [device.card for device in devices] == ["", A, A]
    assert devices[2].partition == "CPX"


def test_rows_without_an_address_are_no_devices() -> None:
    assert join_devices([(DeviceRow(index=0),)]) == ()
    assert join_devices([]) == ()


def test_gaps_are_filled_and_measured_values_kept() -> None:
    first = GpuReading(device=A, at=1.0, gfx_activity_percent=0.0)
    other = GpuReading(device=A, at=1.0, gfx_activity_percent=40.0, socket_power_watts=300.0)
    filled = fill_reading(first, other)
    assert (filled.gfx_activity_percent, filled.socket_power_watts) == (0.0, 300.0)


@pytest.mark.parametrize(
    ("field", "device", "reading", "source", "expected"),
    [
        ("edge_celsius", {"gfx_target": "gfx942"}, {}, {}, Gap.NOT_ON_PART),
        ("edge_celsius", {"gfx_target": "gfx90a"}, {}, {}, Gap.NOT_REPORTED),
        ("power_violation_percent", {"gfx_target": "gfx1100"}, {}, {}, Gap.NOT_ON_PART),
        ("power_violation_percent", {"gfx_target": "gfx942"}, {}, {"kind": "sysfs"}, Gap.SOURCE_SILENT),
        ("socket_power_watts", {}, {"lost": True}, {}, Gap.GPU_LOST),
        ("socket_power_watts", {"gfx_target": "gfx90a"}, {}, {}, Gap.SECOND_DIE),
        ("socket_power_watts", {}, {}, {"verdict": "driver_newer_than_library"}, Gap.DRIVER_NEWER),
        ("socket_power_watts", {"id": "0000:1b:00.1", "card": A}, {}, {}, Gap.PARTITION),
        ("hotspot_celsius", {}, {}, {"warnings": ("user_not_in_groups:render",)}, Gap.NO_PERMISSION),
        ("hotspot_celsius", {}, {"hotspot_celsius": 0.0}, {}, None),
    ],
)
def test_why_a_cell_is_empty(
    field: str, device: dict[str, object], reading: dict[str, object], source: dict[str, object], expected: Gap | None
) -> None:
    described = Device(**({"id": A, "vendor": "amd"} | device))  # type: ignore[arg-type]
    read = GpuReading(**({"device": described.id, "at": 1.0} | reading))  # type: ignore[arg-type]
    told = TelemetrySource(**({"kind": "amdsmi", "label": "x"} | source))  # type: ignore[arg-type]
    assert explain_gap(field, described, read, told) is expected
