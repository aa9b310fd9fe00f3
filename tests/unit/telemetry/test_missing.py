"""What counts as "not measured"."""

from __future__ import annotations

import pytest

from backend.parsing.telemetry import missing


@pytest.mark.parametrize(
    "raw",
    [
        None,
        "",
        "N/A",
        "N/A (Secondary die)",
        "N/A Mb/s",
        {"value": "N/A", "unit": "%"},
        {"value": None, "unit": "%"},
        {},
        0xFFFF,
        0xFFFFFFFF,
        2**64 - 1,
        2**64 - 10,
        "18446744073709551615",
        -273,
        151,
        float("nan"),
        float("inf"),
        "9" * 5000,
        [],
        True,
    ],
)
def test_sentinels_and_nonsense_are_missing(raw: missing.Json) -> None:
    assert missing.percent(raw) is None
    assert missing.celsius(raw) is None


def test_measured_zero_percent_is_zero() -> None:
    assert missing.percent(0) == 0
    assert missing.percent({"value": 0, "unit": "%"}) == 0
    assert missing.percent("0 %") == 0


def test_zero_watts_zero_clock_and_zero_memory_temperature_are_missing() -> None:
    assert missing.watts(0) is None
    assert missing.watts("0.0W") is None
    assert missing.megahertz("(0Mhz)") is None
    assert missing.memory_celsius(0) is None
    assert missing.celsius(0) == 0


def test_large_part_draws_more_than_a_kilowatt() -> None:
    assert missing.watts("1390 W") == 1390


def test_megabytes_are_mebibytes_and_unit_comes_from_the_value() -> None:
    assert missing.memory_bytes({"value": 2, "unit": "MB"}) == 2 << 20
    assert missing.memory_bytes("1.5 GB") == 3 << 29
    assert missing.memory_bytes("7900 KiB") == 7900 << 10
    assert missing.memory_bytes("64", "mib") == 64 << 20
    assert missing.memory_bytes(65535, "mib") == 65535 << 20, "a possible size, not a sentinel"
    assert missing.memory_bytes(2**32 - 1) is None
    assert missing.memory_bytes("3 parsecs") is None


def test_microwatts_and_old_whole_watts() -> None:
    assert missing.watts_from_micro(750_000_000) == 750
    assert missing.watts_from_micro(300) == 300
    assert missing.watts_from_micro(0) is None


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("0000:1B:00.0", "0000:1b:00.0"),
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("10000:e1:00.0", "10000:e1:00.0"),
        ("1b:00.3", "0000:1b:00.3"),
        ("0000:00:00.0", None),
        ("nonsense", None),
        (None, None),
    ],
)
def test_pci_address(raw: missing.Json, expected: str | None) -> None:
    assert missing.bdf(raw) == expected


def test_flag_knows_only_the_tools_words() -> None:
    assert missing.flag("THROTTLED", "throttled", "unthrottled") is True
    assert missing.flag("UNTHROTTLED", "throttled", "unthrottled") is False
    assert missing.flag("N/A", "throttled", "unthrottled") is None
