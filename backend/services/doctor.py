"""This host and its training environment in, checks with documented advice out: the doctor page and `doctor --json`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from backend.adapters.host_facts import read_host_facts
from backend.adapters.process import run_tool
from backend.domain.gpu import Device, DeviceHealth, GpuReading, TelemetrySource
from backend.domain.host import CheckStatus, HostCheck, StackFacts
from backend.errors import EnvironmentFault
from backend.planning.host_checks import DoctorInput, judge_host, worst
from backend.services.gpus import GpuService, build_readers
from backend.settings import REPOSITORY

PROBE = REPOSITORY / "backend" / "inside" / "probe_stack.py"
PROBE_SECONDS = 180.0
_MARK = "TUNEDECK_STACK "


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All checks and the worst status among them."""

    status: CheckStatus
    checks: tuple[HostCheck, ...]

    def to_json(self) -> dict[str, object]:
        """`{"status", "checks": [{"code", "status", "title", "found", "expected", "advice", "source"}]}`."""
        return {"status": self.status.value, "checks": [asdict(check) for check in self.checks]}


def examine_host(folders: Mapping[str, Path], *, gpus: GpuService | None = None, python: Path | None = None) -> Report:
    """Run every check. `gpus`: the running sampler's view (None: read the cards now); `python`: the training interpreter."""
    cards = _read_cards(gpus)
    facts = DoctorInput(
        host=read_host_facts(folders),
        source=cards.source,
        devices=cards.devices,
        readings=cards.readings,
        health=cards.health,
        stack=probe_stack(python) if python is not None else None,
    )
    checks = judge_host(facts)
    return Report(status=worst(checks), checks=checks)


def probe_stack(python: Path) -> StackFacts:
    """Ask the training environment what it can do; a fault is part of the answer."""
    try:
        result = run_tool([str(python), str(PROBE)], timeout_seconds=PROBE_SECONDS)
    except EnvironmentFault as error:
        return StackFacts(fault=str(error))
    lines = result.stdout.decode("utf-8", "replace").splitlines()
    line = next((line for line in reversed(lines) if line.startswith(_MARK)), "")
    if not line:
        last = result.stderr.decode("utf-8", "replace").strip().splitlines()
        why = (
            f"gave no answer within {PROBE_SECONDS:g} s"
            if result.timed_out
            else (last[-1][:300] if last else "printed nothing")
        )
        return StackFacts(fault=f"{python} {why}")
    found = json.loads(line.removeprefix(_MARK))
    known = {name: found[name] for name in StackFacts.__dataclass_fields__ if name in found}
    return StackFacts(**{**known, "architectures": tuple(found.get("architectures") or ())})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cards:
    source: TelemetrySource
    devices: tuple[Device, ...] = ()
    readings: tuple[GpuReading, ...] = ()
    health: tuple[DeviceHealth, ...] = ()


def _read_cards(gpus: GpuService | None) -> _Cards:
    """From the sampler when one runs, else from the cards themselves."""
    if gpus is not None and not (latest := gpus.latest_readings()).stale:
        return _Cards(source=gpus.source(), devices=gpus.all_devices(), readings=latest.readings, health=gpus.health())
    tried: dict[str, str] = {}
    for reader in build_readers():
        try:
            devices, snapshot = reader.inventory().devices, reader.read(time.time())
        finally:
            reader.close()
        if devices:
            return _Cards(source=snapshot.source, devices=devices, readings=snapshot.readings)
        tried |= snapshot.source.tried
    return _Cards(source=TelemetrySource(kind="none", label="none", reason="; ".join(tried.values()), tried=tried))
