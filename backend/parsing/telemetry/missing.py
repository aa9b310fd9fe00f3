"""One raw value as a tool printed it in, a measured number or None out. The only place that decides what "missing" is.

Seen in the wild and all meaning "not measured": "N/A", "N/A (Secondary die)", "N/A Mb/s", null, "", `{"value": "N/A"}`, 0xFFFF,
2^32-1, 2^64-1, 2^64-10 (a negative number in an unsigned field), 0 W, NaN and anything outside what a card can show.
A measured 0 % is a number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""Any value of a JSON document."""

Number = int | float

_SENTINELS = (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
_NUMBER = re.compile(r"\(?\s*(0[xX][0-9a-fA-F]+|[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*([%°A-Za-z/]*)")
_ABSENT = ("", "n/a", "na", "none", "null", "nan", "unsupported", "unknown", "not supported")
_BDF = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_BYTES = {
    "b": 1,
    "byte": 1,
    "bytes": 1,
    "kb": 1 << 10,
    "kib": 1 << 10,
    "mb": 1 << 20,
    "mib": 1 << 20,
    "gb": 1 << 30,
    "gib": 1 << 30,
    "tb": 1 << 40,
    "tib": 1 << 40,
}
MAX_MEMORY_BYTES = 1 << 42


def is_absent(raw: Json) -> bool:
    """True when the tool says that it has no value."""
    if isinstance(raw, Mapping):
        return is_absent(raw.get("value")) if "value" in raw else not raw
    if isinstance(raw, str):
        word = raw.strip().lower()
        return word in _ABSENT or word.startswith("n/a")
    return raw is None


def number(raw: Json, low: Number, high: Number, *, sentinels: tuple[int, ...] = _SENTINELS) -> Number | None:
    """The number in `raw` (a number, "87 %", `{"value": 87, "unit": "%"}`) when low <= number <= high, else None."""
    value = _magnitude(raw)
    if value is None or value in sentinels or not low <= value <= high:
        return None
    return value


def percent(raw: Json) -> Number | None:
    return number(raw, 0, 100)


def watts(raw: Json) -> Number | None:
    """Power or a cap. 0 W is an odd die of MI250 or an unset field. An MI355X may draw 1400 W, so the upper bound is 3000."""
    value = number(raw, 0, 2999)
    return value or None


def watts_from_micro(raw: Json) -> Number | None:
    """Power in microwatts (sysfs; caps of the Python module since ROCm 6.1.2, whole watts before)."""
    value = number(raw, 0, 3_000_000_000)
    if not value:
        return None
    return watts(value / 1e6 if value >= 10_000 else value)


def celsius(raw: Json) -> Number | None:
    return number(raw, 0, 149)


def memory_celsius(raw: Json) -> Number | None:
    """Temperature of the memory; 0 is what drivers write for "no sensor"."""
    return celsius(raw) or None


def megahertz(raw: Json) -> Number | None:
    return number(raw, 0, 4999) or None


def count(raw: Json) -> int | None:
    """An error counter."""
    value = number(raw, 0, 0xFFFFFFFE)
    return None if value is None else int(value)


def counter(raw: Json) -> int | None:
    """An accumulator that may use all 64 bits; the two unsigned maxima and negative numbers in disguise are missing."""
    value = number(raw, 0, (1 << 63) - 1, sentinels=(0xFFFFFFFF,))
    return None if value is None else int(value)


def counter_number(raw: Json) -> Number | None:
    """A counter that may have a fraction, such as joules."""
    return number(raw, 0, 1e15)


def transfers(raw: Json) -> Number | None:
    """PCIe speed in GT/s."""
    return number(raw, 0, 256) or None


def whole(raw: Json, high: int = 1 << 31) -> int | None:
    """An identifier such as a partition, node or HIP index."""
    value = number(raw, 0, high, sentinels=(0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF))
    return None if value is None or value != int(value) else int(value)


def memory_bytes(raw: Json, unit: str = "b") -> int | None:
    """Bytes of memory. AMD's tools print "MB" and mean MiB, "GB" and mean GiB (a peer that took 10^6 lost 5 %).

    `unit` holds when the value carries none. 0xFFFF is a possible size in MiB, so only the larger maxima are missing here.
    """
    value = number(raw, 0, (1 << 63) - 1, sentinels=(0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF))
    if value is None:
        return None
    factor = _BYTES.get((unit_of(raw) or unit).lower())
    if factor is None:
        return None
    size = int(value * factor)
    return size if size <= MAX_MEMORY_BYTES else None


def text(raw: Json) -> str | None:
    """A name, or None when absent."""
    if isinstance(raw, Mapping):
        raw = raw.get("value")
    if is_absent(raw) or isinstance(raw, (list, Mapping)):
        return None
    return str(raw).strip()


def flag(raw: Json, yes: str, no: str) -> bool | None:
    """True, False, or None; `yes` and `no` are the tool's words (compared without case)."""
    if isinstance(raw, bool):
        return raw
    word = (text(raw) or "").lower()
    return True if word == yes else False if word == no else None


def unit_of(raw: Json) -> str | None:
    """The unit printed with a value: of `{"value": 1, "unit": "MB"}` and of "1 MB"."""
    if isinstance(raw, Mapping):
        unit = raw.get("unit")
        return unit.strip() if isinstance(unit, str) and unit.strip() else unit_of(raw.get("value"))
    if isinstance(raw, str) and (found := _NUMBER.match(raw.strip())):
        return found.group(2) or None
    return None


def bdf(raw: Json) -> str | None:
    """A PCI address in lower case, `dddd:bb:dd.f` (NVIDIA prints eight digits of domain, RCCL none)."""
    found = _BDF.fullmatch((text(raw) or "").lower())
    if not found or found.group(0) == "0000:00:00.0":
        return None
    return f"{(found.group(1) or '').lstrip('0').rjust(4, '0')}:{found.group(2)}"


def _magnitude(raw: Json) -> Number | None:
    if isinstance(raw, Mapping):
        raw = raw.get("value")
    if isinstance(raw, bool) or raw is None or isinstance(raw, (list, Mapping)):
        return None
    if isinstance(raw, str):
        return _parse_number(raw)
    return raw if isinstance(raw, int) or math.isfinite(raw) else None


def _parse_number(raw: str) -> Number | None:
    found = _NUMBER.match(raw.strip())
    if is_absent(raw) or not found:
        return None
    digits = found.group(1)
    if digits[:2].lower() == "0x":
        return int(digits, 16) if len(digits) <= 18 else None
    if digits.lstrip("+-").isdigit() and len(digits) <= 21:
        return int(digits)
    value = float(digits)
    return None if not math.isfinite(value) else int(value) if value.is_integer() and abs(value) < 1 << 53 else value
