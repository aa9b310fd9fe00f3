"""Error texts and rows in, one verdict and what to do about it out."""

from __future__ import annotations

import re
from collections.abc import Sequence

from backend.parsing.telemetry.rows import MEASURED, GpuRow, Verdict

_TEXTS: tuple[tuple[Verdict, str], ...] = (
    # The first pattern that matches wins: what names a cause stands before what only says that it failed.
    (Verdict.LIBRARY_MISMATCH, r"undefined symbol: \w*(?:amdsmi|rsmi)_"),
    (
        Verdict.LIBRARY_MISSING,
        r"KeyError: 'libamd_smi|Unable to find libamd_smi|lib(?:amd_smi|rocm_smi64|rocm_smi)\S*: cannot open shared object",
    ),
    (Verdict.LIBRARY_MISSING, r"No module named '?amdsmi|Could not (?:find|load) lib(?:amd_smi|rocm_smi)"),
    (
        Verdict.DRIVER_NOT_LOADED,
        r"AMDSMI_STATUS_DRIVER_NOT_LOADED|amdgpu not found in modules|[Dd]river not (?:initialized|loaded)",
    ),
    (Verdict.DRIVER_NOT_LOADED, r"ROCk module is NOT loaded|/sys/module/amdgpu/initstate: No such file"),
    (
        Verdict.NO_PERMISSION,
        r"missing the following required groups|is not member of \"?render\"?|AMDSMI_STATUS_NO_PERM",
    ),
    (Verdict.NO_PERMISSION, r"Permission denied|PermissionError|Operation not permitted|Command requires elevation"),
    (
        Verdict.NO_GPU,
        r"Unable to detect any GPU devices|No AMD GPUs|no (?:amd |supported )?gpus? (?:found|detected|device)",
    ),
    (
        Verdict.CRASH,
        r"Traceback \(most recent call last\)|Segmentation fault|core dumped|terminate called"
        r"|AMDSMI_STATUS_|^\w*(?:Error|Exception): ",
    ),
)
_REMEDIES = {
    Verdict.DRIVER_NEWER_THAN_LIBRARY: "The amdgpu driver is newer than amd-smi: update the ROCm user space.",
    Verdict.GPU_LOST: "A card no longer answers: look at the kernel log, then drain or restart the host.",
    Verdict.NO_GPU: "No GPU is visible: check the driver, or the devices given to the container.",
    Verdict.NO_OUTPUT: "The tool printed nothing.",
    Verdict.NO_PERMISSION: (
        "sudo usermod -aG render,video $USER and log in again; in a container pass --group-add with the numeric group id."
    ),
    Verdict.DRIVER_NOT_LOADED: "sudo modprobe amdgpu; check the DKMS build and Secure Boot.",
    Verdict.LIBRARY_MISSING: "Install amd-smi-lib (ROCm), or set AMDSMI_LIB_OVERRIDE to the library.",
    Verdict.LIBRARY_MISMATCH: "The amdsmi package does not match libamd_smi: use the one in /opt/rocm/share/amd_smi.",
    Verdict.NOT_AMD_SMI_OUTPUT: "Another program answers to this name: prefer /opt/rocm/bin/amd-smi and check `amd-smi version`.",
    Verdict.CRASH: "The tool failed: update it, another source is used meanwhile.",
}
_GROUPS = re.compile(r"missing the following required groups: ([\w, ]+)")


def verdict_of_text(text: str) -> Verdict:
    """What a text without readings means."""
    if not text.strip():
        return Verdict.NO_OUTPUT
    found = (verdict for verdict, pattern in _TEXTS if re.search(pattern, text, re.MULTILINE))
    return next(found, Verdict.NOT_AMD_SMI_OUTPUT)


def remedy_of(verdict: Verdict) -> str:
    """What a person can do; empty for `ok`."""
    return _REMEDIES.get(verdict, "")


def warnings_of(text: str) -> tuple[str, ...]:
    """Codes of warnings printed beside readings."""
    found = []
    if groups := _GROUPS.search(text):
        names = ",".join(name.strip() for name in groups.group(1).split(",") if name.strip())
        found.append(f"user_not_in_groups:{names}")
    if re.search(r"low-power state", text, re.IGNORECASE):
        found.append("low_power_state")
    return tuple(found)


def verdict_of_rows(rows: Sequence[GpuRow], asked: frozenset[str]) -> Verdict:
    """`asked` names the fields that were asked for: a column that nobody asked for is not missing.

    One card all missing among others is lost; all cards missing the same fields at once is a library that does not know the
    driver's table.
    """
    if not rows:
        return Verdict.NO_GPU
    cards = [row for row in rows if not row.partition_id]
    dead = [row for row in cards if _is_dead(row)]
    if dead and asked and (len(dead) < len(cards) or "vram_total_bytes" in asked):
        return Verdict.GPU_LOST
    table = asked & {"gfx_activity_percent", "socket_power_watts", "gfx_clock_mhz", "hotspot_celsius"}
    blank = all(getattr(row, field) is None for row in cards for field in table)
    if len(table) >= 2 and blank and any(row.vram_total_bytes is not None for row in cards):
        return Verdict.DRIVER_NEWER_THAN_LIBRARY
    return Verdict.OK


def _is_dead(row: GpuRow) -> bool:
    return all(getattr(row, field) is None for field in MEASURED)
