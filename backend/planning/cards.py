"""A device's name, target or compute-unit count in, CardPeak out: what the card could do at best, and who says so.

Peaks are dense bf16 of one HIP or CUDA device (one die of an MI250X). Partitions get their share of the whole card.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPeak:
    """`bf16_flops` per second at the boost clock; `matmul_flops` the largest matmul that somebody measured (None = unknown).

    `memory_bytes` is nominal: plan memory with the measured total where there is one. `source` names where a figure is from.
    """

    name: str
    gfx: str
    compute_units: int
    bf16_flops: float
    fp8_flops: float | None
    memory_bytes: int
    memory_bytes_per_second: float
    watts: int
    source: str
    matmul_flops: float | None = None
    matmul_source: str = ""


_GB = 1_000_000_000
_GIB = 1 << 30
_T = 1e12
_AMD = "AMD data sheet"
_COMPUTED = "computed: compute units x FLOP per clock x clock"
_NVIDIA = "NVIDIA data sheet"
_ENGINEERING = "third party (ml-engineering, largest matmul found)"


def _card(
    name: str, gfx: str, units: int, bf16: float, fp8: float | None, memory: int, bandwidth: float, watts: int,
    source: str, matmul: float | None = None, matmul_source: str = "",
) -> CardPeak:  # fmt: skip
    return CardPeak(
        name=name, gfx=gfx, compute_units=units, bf16_flops=bf16 * _T, fp8_flops=None if fp8 is None else fp8 * _T,
        memory_bytes=memory, memory_bytes_per_second=bandwidth * _T, watts=watts, source=source,
        matmul_flops=None if matmul is None else matmul * _T, matmul_source=matmul_source,
    )  # fmt: skip


CARDS: tuple[CardPeak, ...] = (
    _card("MI210", "gfx90a", 104, 181.0, None, 64 * _GIB, 1.6, 300, _AMD),
    _card("MI250", "gfx90a", 104, 181.05, None, 64 * _GIB, 1.64, 280, f"{_AMD}, half of the package"),
    _card("MI250X", "gfx90a", 110, 191.5, None, 64 * _GIB, 1.64, 280, f"{_AMD}, half of the package"),
    _card("MI300A", "gfx942", 228, 980.6, 1961.2, 128 * _GIB, 5.3, 550, _AMD),
    _card("MI300X", "gfx942", 304, 1307.4, 2614.9, 192 * _GIB, 5.3, 750, _AMD, 668, _ENGINEERING),
    _card("MI308X", "gfx942", 80, 344.1, 688.1, 192 * _GIB, 5.3, 650, f"{_COMPUTED}; not checked against a data sheet"),
    _card("MI325X", "gfx942", 304, 1307.4, 2614.9, 256 * _GIB, 6.0, 1000, _AMD, 785, _ENGINEERING),
    _card("MI350X", "gfx950", 256, 2306.9, 4613.7, 288 * _GIB, 8.0, 1000, _COMPUTED),
    _card("MI355X", "gfx950", 256, 2516.6, 5033.2, 288 * _GIB, 8.0, 1400, _AMD, 1565, _ENGINEERING),
    _card("A100", "sm_80", 108, 312.0, None, 80 * _GIB, 2.04, 400, _NVIDIA, 271, _ENGINEERING),
    _card("H100", "sm_90", 132, 989.4, 1978.9, 80 * _GIB, 3.35, 700, _NVIDIA, 795, _ENGINEERING),
    _card(
        "H200", "sm_90", 132, 989.4, 1978.9, 141 * _GB, 4.8, 700, _NVIDIA, 794, "measured by this project, 8192 cube"
    ),
    _card("B200", "sm_100", 148, 2250.0, 4500.0, 180 * _GB, 8.0, 1000, _NVIDIA),
)

_PARTITION_COUNT: Mapping[str, int] = {"SPX": 1, "TPX": 3, "DPX": 2, "QPX": 4, "CPX": 8}
_FLOP_PER_CLOCK = {"gfx90a": 1024, "gfx942": 2048, "gfx950": 4096}
_CLOCK_HZ = {"gfx90a": 1.7e9, "gfx942": 2.1e9, "gfx950": 2.2e9}


def find_card(name: str, *, gfx: str = "", compute_units: int | None = None, partition: str = "") -> CardPeak | None:
    """The card that a driver calls `name`; None when neither its name nor its target and units tell what it is.

    `partition` is the compute partition (SPX, DPX, TPX, QPX, CPX, alone or as `CPX/NPS4`): the card's share is returned.
    """
    card = _by_name(name)
    if card is None:
        return _by_units(name, gfx, compute_units)
    share = _share(card, compute_units, partition)
    return card if share == 1 else _slice(card, share, partition)


def _by_name(name: str) -> CardPeak | None:
    squeezed = re.sub(r"[^a-z0-9]", "", name.lower())
    if "mi250x" in squeezed and "mi250xmi250" not in squeezed:
        squeezed = "mi250x"
    elif "mi250" in squeezed:  # drivers print "MI250X / MI250" for both; the lower figure is the safe one
        squeezed = "mi250"
    found = [card for card in CARDS if card.name.lower() in squeezed]
    return max(found, key=lambda card: len(card.name), default=None)


def _by_units(name: str, gfx: str, compute_units: int | None) -> CardPeak | None:
    target = gfx.split(":")[0]
    if target not in _FLOP_PER_CLOCK or not compute_units:
        return None
    whole = max((card for card in CARDS if card.gfx == target), key=lambda card: card.compute_units)
    flops = compute_units * _FLOP_PER_CLOCK[target] * _CLOCK_HZ[target]
    share = compute_units / whole.compute_units
    return replace(
        whole, name=name or target, compute_units=compute_units, bf16_flops=flops,
        fp8_flops=None if whole.fp8_flops is None else 2 * flops, memory_bytes=round(whole.memory_bytes * share),
        memory_bytes_per_second=whole.memory_bytes_per_second * share, matmul_flops=None, matmul_source="", source=_COMPUTED,
    )  # fmt: skip


def _share(card: CardPeak, compute_units: int | None, partition: str) -> float:
    mode = partition.upper().split("/")[0].strip()
    if mode in _PARTITION_COUNT:
        count = 6 if mode == "CPX" and card.name == "MI300A" else _PARTITION_COUNT[mode]
        return 1 / count
    if compute_units and compute_units < card.compute_units:
        return compute_units / card.compute_units
    return 1.0


def _slice(card: CardPeak, share: float, partition: str) -> CardPeak:
    label = f"{card.name} {partition.upper()}".strip()
    return replace(
        card, name=label, compute_units=round(card.compute_units * share), bf16_flops=card.bf16_flops * share,
        fp8_flops=None if card.fp8_flops is None else card.fp8_flops * share,
        memory_bytes=round(card.memory_bytes * share), memory_bytes_per_second=card.memory_bytes_per_second * share,
        matmul_flops=None if card.matmul_flops is None else card.matmul_flops * share,
        watts=round(card.watts * share), source=f"{card.source}, share of the card",
    )  # fmt: skip
