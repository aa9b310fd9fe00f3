"""One `/proc/PID/fdinfo/FD` of an amdgpu file in, memory of that client out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from backend.parsing.telemetry import missing


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMemory:
    """`vram_bytes` of one open file on one device. Compute queues have no engine lines, so there is no utilisation here."""

    bdf: str | None
    pasid: int | None
    vram_bytes: int | None
    shared_vram_bytes: int | None


def is_fdinfo(text: str) -> bool:
    return re.search(r"^drm-driver:", text, re.MULTILINE) is not None


def parse_fdinfo(text: str) -> ClientMemory:
    """Units differ line by line (KiB, MiB); older kernels say drm-memory-vram instead of drm-total-vram."""
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    return ClientMemory(
        bdf=missing.bdf(fields.get("drm-pdev")),
        pasid=missing.whole(fields.get("pasid")),
        vram_bytes=missing.memory_bytes(fields.get("drm-total-vram", fields.get("drm-memory-vram"))),
        shared_vram_bytes=missing.memory_bytes(fields.get("drm-shared-vram")),
    )
