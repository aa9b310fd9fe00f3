"""The kernel log in, events of the cards out: hardware errors, resets, page faults, scheduler hangs."""

from __future__ import annotations

import re

from backend.parsing.telemetry import missing
from backend.parsing.telemetry.rows import HardwareEvent

_LINE = re.compile(r"^(?:<\d+>)?\[\s*(\d+\.\d+)\]\s+(.*)$")
_ADDRESS = re.compile(r"\b([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\b")
_KINDS = (
    # Order matters: "uncorrectable" contains "correctable", and both lines may carry the [Hardware Error] mark.
    ("uncorrectable_error", re.compile(r"uncorrectable hardware error|\buncorrectable\b.*\berror", re.IGNORECASE)),
    ("correctable_error", re.compile(r"\bcorrectable\b.*\berror", re.IGNORECASE)),
    ("gpu_reset", re.compile(r"GPU (?:reset begin|mode\d reset|BACO reset)|GPU reset\(\d+\)", re.IGNORECASE)),
    ("hardware_error", re.compile(r"\[Hardware Error\]: Accelerator Check|\bRAS\b.*\bpoison", re.IGNORECASE)),
    ("page_fault", re.compile(r"retry page fault|no-retry page fault|VM_L2_PROTECTION_FAULT_STATUS", re.IGNORECASE)),
    ("scheduler_hang", re.compile(r"MES failed to respond|ring \S+ timeout", re.IGNORECASE)),
    ("xid", re.compile(r"NVRM: Xid", re.IGNORECASE)),
)
_SEVERITY = (
    "uncorrectable_error",
    "hardware_error",
    "gpu_reset",
    "page_fault",
    "scheduler_hang",
    "xid",
    "correctable_error",
)


def is_kernel_log(text: str) -> bool:
    """The first line that is not empty begins with a kernel time stamp."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return _LINE.match(first) is not None


def parse_kernel_log(text: str) -> tuple[HardwareEvent, ...]:
    """Events in their order. Lines of one event that only carry details (`aca entry[00].STATUS`) are left out."""
    events = []
    for line in text.splitlines():
        found = _LINE.match(line.rstrip())
        kind = next((name for name, pattern in _KINDS if pattern.search(found.group(2))), None) if found else None
        if found and kind:
            address = _ADDRESS.search(found.group(2))
            bdf = missing.bdf(address.group(1)) if address else None
            events.append(HardwareEvent(seconds=float(found.group(1)), bdf=bdf, kind=kind, line=found.group(2)))
    return tuple(events)


def blame(events: tuple[HardwareEvent, ...]) -> str | None:
    """The kind of event to name first: an uncorrectable error causes the reset that follows it."""
    kinds = {event.kind for event in events}
    return next((kind for kind in _SEVERITY if kind in kinds), None)
