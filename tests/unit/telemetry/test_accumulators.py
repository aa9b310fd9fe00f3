"""Exact means between two polls."""

from __future__ import annotations

import pytest

from backend.parsing.telemetry.accumulators import Accumulators, derive_means, parse_accumulators


def test_means_of_an_interval() -> None:
    before = Accumulators(
        gfx_activity=1000, energy_joules=10.0, firmware_seconds=5.0, ticks=100, power_residency=10, thermal_residency=0
    )
    after = Accumulators(
        gfx_activity=101_000,
        energy_joules=810.0,
        firmware_seconds=7.0,
        ticks=2100,
        power_residency=870,
        thermal_residency=40,
    )
    means = derive_means(before, after, 2.01)
    assert (means.gfx_activity_percent, means.socket_power_watts) == (50.0, 400.0)
    assert (means.power_violation_percent, means.thermal_violation_percent) == (43.0, 2.0)
    assert means.mem_activity_percent is None


def test_32_bit_counter_wraps() -> None:
    means = derive_means(Accumulators(gfx_activity=(1 << 32) - 20_000), Accumulators(gfx_activity=30_000), 1.0)
    assert means.gfx_activity_percent == 50.0


@pytest.mark.parametrize(
    ("before", "after", "seconds"),
    [
        (
            Accumulators(gfx_activity=5_000_000, ticks=9, power_residency=5),
            Accumulators(gfx_activity=0, ticks=3, power_residency=0),
            1.0,
        ),
        (Accumulators(), Accumulators(gfx_activity=1, ticks=1, power_residency=1), 1.0),
        (
            Accumulators(gfx_activity=0, ticks=5, power_residency=1),
            Accumulators(gfx_activity=900_000, ticks=5, power_residency=2),
            1.0,
        ),
        (Accumulators(gfx_activity=0), Accumulators(gfx_activity=100), 0.0),
    ],
)
def test_reset_stuck_or_missing_counters_give_nothing(
    before: Accumulators, after: Accumulators, seconds: float
) -> None:
    means = derive_means(before, after, seconds)
    assert means.gfx_activity_percent is None
    assert means.power_violation_percent is None


def test_own_clock_of_the_card_is_preferred_unless_it_disagrees() -> None:
    def energy(firmware: float) -> float | None:
        before = Accumulators(energy_joules=0.0, firmware_seconds=0.0)
        return derive_means(
            before, Accumulators(energy_joules=100.0, firmware_seconds=firmware), 1.0
        ).socket_power_watts

    assert energy(1.1) == pytest.approx(100 / 1.1)
    assert energy(60.0) == pytest.approx(100)


def test_sentinels_of_the_table_are_no_counters() -> None:
    table = {
        "energy_accumulator": 0,
        "firmware_timestamp": 2**64 - 10,
        "gfx_activity_acc": "N/A",
        "accumulation_counter": 7,
    }
    found = parse_accumulators(table)  # type: ignore[arg-type]
    assert (found.energy_joules, found.firmware_seconds, found.gfx_activity, found.ticks) == (None, None, None, 7)
