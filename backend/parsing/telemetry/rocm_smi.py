"""Output of the old `rocm-smi` (concise table, `-a` text, JSON, CSV) in, rows out. Deprecated and still everywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from backend.parsing.telemetry import missing
from backend.parsing.telemetry.amd_smi_json import build_row
from backend.parsing.telemetry.missing import Json
from backend.parsing.telemetry.rows import GpuRow

Card = Mapping[str, Json]

_TABLE = re.compile(r"^(?:GPU|Device)\s.*Temp.*SCLK", re.MULTILINE)


def is_rocm_smi_json(document: Mapping[str, Json]) -> bool:
    """Top-level keys are `card0`, `card1` ... and perhaps `system`."""
    return any(re.fullmatch(r"card\d+", key) for key in document) or list(document) == ["system"]


def cards_of(document: Mapping[str, Json]) -> list[Card]:
    """Cards in their order; the key `system` is no GPU."""
    names = sorted((key for key in document if re.fullmatch(r"card\d+", key)), key=lambda key: int(key[4:]))
    return [card for name in names if isinstance(card := document[name], Mapping)]


def cards_of_csv(table: Sequence[Mapping[str, Json]]) -> list[Card]:
    """Cards of `--csv`, whose first column is `device`."""
    return [row for row in table if re.fullmatch(r"card\d+", str(row.get("device", "")))]


def cards_of_lines(text: str) -> list[Card]:
    """Cards of the `GPU[0] : label: value` lines that `-a` prints without --json."""
    cards: dict[int, dict[str, Json]] = {}
    for found in re.finditer(r"^GPU\[(\d{1,4})\]\s*:\s*(.+?):\s+(\S.*)$", text, re.MULTILINE):
        cards.setdefault(int(found.group(1)), {})[found.group(2)] = found.group(3).strip()
    return [cards[number] for number in sorted(cards)]


def parse_cards(cards: Sequence[Card]) -> tuple[GpuRow, ...]:
    """Rows of all cards."""
    return tuple(
        _parse_card({str(key).strip().rstrip(":").lower(): value for key, value in card.items()}, n)
        for n, card in enumerate(cards)
    )


def _parse_card(card: Card, index: int) -> GpuRow:
    def find(*labels: str) -> Json:
        return next((card[label] for label in labels if not missing.is_absent(card.get(label))), None)

    return build_row(
        index,
        {
            "bdf": missing.bdf(find("pci bus")),
            "name": missing.text(find("card series", "device name")),
            "device_id": missing.text(find("device id")),
            "gfx_target": missing.text(find("gfx version")),
            "gfx_activity_percent": missing.percent(find("gpu use (%)")),
            # The label says memory use and means activity of the memory controller.
            "mem_activity_percent": missing.percent(
                find("gpu memory use (%)", "gpu memory read/write activity (%)", "memory activity (%)")
            ),
            "vram_used_percent": missing.percent(find("gpu memory allocated (vram%)")),
            "vram_used_bytes": missing.memory_bytes(find("vram total used memory (b)")),
            "vram_total_bytes": missing.memory_bytes(find("vram total memory (b)")),
            # "Current Socket" on MI300, "Average" on MI200 and Navi; odd dies say "N/A (Secondary die)".
            "socket_power_watts": missing.watts(
                find("current socket graphics package power (w)", "average graphics package power (w)")
            ),
            "power_cap_watts": missing.watts(find("max graphics package power (w)")),
            "edge_celsius": missing.celsius(find("temperature (sensor edge) (c)")),
            "hotspot_celsius": missing.celsius(find("temperature (sensor junction) (c)")),
            "memory_celsius": missing.memory_celsius(find("temperature (sensor memory) (c)")),
            "gfx_clock_mhz": missing.megahertz(find("sclk clock speed")),
            "mem_clock_mhz": missing.megahertz(find("mclk clock speed")),
            "compute_partition": missing.text(find("compute partition")),
            "memory_partition": missing.text(find("memory partition")),
        },
    )


def parse_concise(text: str) -> tuple[GpuRow, ...] | None:
    """Rows of the table that `rocm-smi` prints without flags; None when this is another text.

    The last seven columns are the same in all releases; before them stand temperature and power, whose label (edge or
    junction) is in the header.
    """
    if not _TABLE.search(text):
        return None
    header = text[_TABLE.search(text).start() :][:400]  # type: ignore[union-attr]
    hotspot = "junction" in header.lower()
    rows: list[GpuRow] = []
    for line in text.splitlines():
        cells = line.split()
        if (
            len(cells) >= 10
            and cells[0].isdigit()
            and re.fullmatch(r"\d+%|N/A|unsupported|None", cells[-1], re.IGNORECASE)
        ):
            rows.append(_concise_row(len(rows), cells, hotspot))
    return tuple(rows)


def _concise_row(index: int, cells: list[str], hotspot: bool) -> GpuRow:
    sclk, mclk, _fan, _perf, cap, vram, busy = cells[-7:]
    left = cells[1:-7]
    temperature = missing.celsius(next((cell for cell in left if re.fullmatch(r"[\d.]+°?[cC]", cell)), None))
    return build_row(
        index,
        {
            "hotspot_celsius": temperature if hotspot else None,
            "edge_celsius": None if hotspot else temperature,
            "socket_power_watts": missing.watts(next((cell for cell in left if re.fullmatch(r"[\d.]+W", cell)), None)),
            "gfx_clock_mhz": missing.megahertz(sclk),
            "mem_clock_mhz": missing.megahertz(mclk),
            "power_cap_watts": missing.watts(cap),
            "vram_used_percent": missing.percent(vram),
            "gfx_activity_percent": missing.percent(busy),
        },
    )
