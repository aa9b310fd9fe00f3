"""Readers, sampler and store in, what pages and the launcher ask about GPUs out.

    python -m backend.services.gpus --json --from FILE_OR_FOLDER...

prints what the readers make of recorded outputs, one JSON object a line.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from backend.adapters.gpus_amd import AmdHost, AmdReader
from backend.adapters.gpus_nvidia import NvidiaReader
from backend.adapters.host import PsutilHostReader
from backend.adapters.ports import GpuReader
from backend.domain.gpu import Device, DeviceHealth, DeviceLink, DeviceProcess, GpuReading, TelemetrySource
from backend.domain.host import DiskReading, HostReading
from backend.errors import InvalidInput, NotFound
from backend.parsing.amd_smi import parse_bytes, parse_tree
from backend.parsing.telemetry.missing import Json
from backend.parsing.telemetry.reasons import Gap, explain_gap
from backend.parsing.telemetry.rows import ToolReading
from backend.planning.leases import (
    Choice,
    DeviceState,
    build_visibility,
    check_devices,
    choose_devices,
    restrict_devices,
)
from backend.services.sampler import RunningJob, Sampler
from backend.settings import load_settings
from backend.store.job_telemetry import DeviceSummary, job_devices, load_job_history, summarise_job
from backend.store.paths import DataPaths
from backend.store.telemetry import HOST, TIERS, History, TelemetryStore

STALE_SECONDS = 15.0
_MAX_FILE_BYTES = 64 << 20
_MAX_TREE_FILES = 50_000

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """The newest round. `stale`: no round for `STALE_SECONDS` (or three of a slow reader's turns): the sampler or a driver call
    hangs, or no worker runs. `at` None: there never was one."""

    at: float | None = None
    age_seconds: float | None = None
    stale: bool = True
    readings: tuple[GpuReading, ...] = ()
    host: HostReading | None = None
    error: str = ""


class GpuService:
    """Reads what the sampler wrote; safe to use from any thread and process."""

    def __init__(
        self,
        store: TelemetryStore,
        *,
        wall: Callable[[], float] = time.time,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.store, self.wall = store, wall
        self._environment = dict(os.environ if environment is None else environment)

    # --- devices ---

    def read_devices(self) -> tuple[Device, ...]:
        """Devices that this installation may lease, in HIP's order. Empty on a host without GPU and before the first round."""
        return restrict_devices(self.all_devices(), self._environment)[0]

    def all_devices(self) -> tuple[Device, ...]:
        """Devices of the host, also those that the dashboard's own environment hides."""
        return self._load_list("devices", Device)

    def device_ids(self) -> tuple[str, ...]:
        """PCI addresses of `read_devices`, for the queue."""
        return tuple(device.id for device in self.read_devices() if device.accessible)

    def visibility(self, device_ids: Sequence[str]) -> dict[str, str]:
        """Variables to set for a job on these devices; remove every other one of `VISIBILITY_VARIABLES`.

        Raises NotFound for a device that is not there.
        """
        known = {device.id: device for device in self.all_devices()}
        for device in device_ids:
            if device not in known:
                raise NotFound(f"No GPU has the PCI address {device!r}.")
        devices = [known[device] for device in device_ids]
        vendors = {device.vendor for device in devices}
        if len(vendors) > 1:
            raise InvalidInput(
                "tunedeck.gpus", found="AMD and NVIDIA devices together", expected="devices of one vendor"
            )
        accelerator = "cpu" if not devices else "rocm" if vendors == {"amd"} else "cuda"
        return build_visibility(devices, accelerator)[0]

    def states(self, leases: Mapping[str, str]) -> tuple[DeviceState, ...]:
        """What the chooser knows of each device; `leases`: device -> job. Memory and activity of our own jobs hinder nobody."""
        readings = {reading.device: reading for reading in self.latest_readings().readings}
        health = {row.device: row for row in self.health()}
        foreign: dict[str, list[DeviceProcess]] = {}
        for process in self.processes():
            if not process.job_id:
                foreign.setdefault(process.device, []).append(process)
        states = []
        for device in self.read_devices():
            reading = readings.get(device.id)
            states.append(
                DeviceState(
                    device=device,
                    leased_by=leases.get(device.id, ""),
                    health=health.get(device.id),
                    lost=reading is not None and reading.lost,
                    foreign=tuple(foreign.get(device.id, ())),
                    activity_percent=reading.gfx_activity_percent if reading else None,
                    vram_used_bytes=reading.vram_used_bytes if reading else None,
                )
            )
        return tuple(states)

    def choose(self, count: int, wanted: Sequence[str], leases: Mapping[str, str]) -> Choice:
        """`wanted` by name, or `count` that suit best. Raises InvalidInput for a name that is not there."""
        states, links = self.states(leases), self.links()
        return check_devices(wanted, states, links) if wanted else choose_devices(count, states, links)

    # --- readings ---

    def latest_readings(self) -> Latest:
        """The newest round and how old it is."""
        found, status = self.store.load_state("latest"), self._load_mapping("status")
        document = found[1] if found is not None else None
        if found is None or not isinstance(document, dict):
            return Latest(error="No worker has sampled this host yet.")
        at = found[0]
        age = max(0.0, self.wall() - at)
        interval = status.get("interval_seconds")
        bound = max(STALE_SECONDS, 3 * interval) if isinstance(interval, (int, float)) else STALE_SECONDS
        host = document.get("host")
        return Latest(
            at=at,
            age_seconds=age,
            stale=age > bound,
            readings=tuple(_build(GpuReading, row) for row in document.get("readings") or []),
            host=_build_host(host) if isinstance(host, dict) else None,
            error=str(status.get("error") or ""),
        )

    def await_first_round(self, seconds: float = 20.0, sleep: Callable[[float], None] = time.sleep) -> bool:
        """Whether this host was ever sampled; waits for the worker of a fresh installation, which has just begun to look."""
        until = self.wall() + seconds
        while self.latest_readings().at is None:
            if self.wall() > until:
                return False
            sleep(0.2)
        return True

    def history(self, device: str, key: str, start: float, end: float, px: int = 1000) -> History:
        """One key of a device (or of `host`) between two times, about `px` points. Raises InvalidInput for an unknown key."""
        try:
            return self.store.load_history(device, key, start, end, points=max(1, min(px, 20_000)), now=self.wall())
        except KeyError as error:
            raise InvalidInput(
                "key", found=repr(key), expected="a stored measurement, e.g. gfx_activity_percent"
            ) from error

    def source(self) -> TelemetrySource:
        """The reader that answers; when none does, why not."""
        sources = self.sources()
        working = next((source for source in sources if source.kind != "none"), None)
        if working is not None:
            return working
        tried = {kind: reason for source in sources for kind, reason in source.tried.items()}
        reason = "; ".join(tried.values()) or "No worker has sampled this host yet."
        return TelemetrySource(kind="none", label="none", verdict="no_gpu", reason=reason, tried=tried)

    def sources(self) -> tuple[TelemetrySource, ...]:
        """One per vendor."""
        return self._load_list("sources", TelemetrySource)

    def processes(self) -> tuple[DeviceProcess, ...]:
        """Who holds memory of which device; `job_id` "" = foreign."""
        return self._load_list("processes", DeviceProcess)

    def links(self) -> tuple[DeviceLink, ...]:
        """Direct connections between devices."""
        return self._load_list("links", DeviceLink)

    def health(self) -> tuple[DeviceHealth, ...]:
        """Error counters against their baseline, and what was set aside."""
        return self._load_list("health", DeviceHealth)

    def clear_health(self, device: str) -> None:
        """A person says that a set-aside card may be used again. Raises NotFound."""
        if device not in {known.id for known in self.all_devices()}:
            raise NotFound(f"No GPU has the PCI address {device!r}.")
        self.store.request_clearing(device, self.wall())

    def explain_gap(self, field: str, device: Device, reading: GpuReading | None) -> Gap | None:
        """Why a cell is empty; None when it is not."""
        return explain_gap(field, device, reading, self._source_of(device, self.sources()))

    def _source_of(self, device: Device, sources: Sequence[TelemetrySource]) -> TelemetrySource:
        nvidia = device.vendor == "nvidia"
        found = (source for source in sources if source.kind != "none" and (source.kind == "nvml") == nvidia)
        return next(found, None) or self.source()

    def to_json(self, leases: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """`gpus` of `/api/state`: identity, newest reading, holder, health and the reason of each gap."""
        latest, sources, processes = self.latest_readings(), self.sources(), self.processes()
        readings = {reading.device: reading for reading in latest.readings} if not latest.stale else {}
        rows = []
        for state in self.states(leases or {}):
            device = state.device
            row = _device_json(state, readings.get(device.id), self._source_of(device, sources))
            held = [asdict(process) for process in processes if process.device == device.id]
            rows.append({**row, "processes": held})
        return rows

    def _load_list(self, name: str, record: type[_Record]) -> tuple[_Record, ...]:
        found = self.store.load_state(name)
        rows = found[1] if found is not None and isinstance(found[1], list) else []
        return tuple(_build(record, row) for row in rows if isinstance(row, dict))

    def _load_mapping(self, name: str) -> Mapping[str, object]:
        found = self.store.load_state(name)
        return found[1] if found is not None and isinstance(found[1], dict) else {}


_MEASURED = tuple(sorted({item.name for item in fields(GpuReading)} - {"device", "at", "lost"}))


def _device_json(state: DeviceState, reading: GpuReading | None, source: TelemetrySource) -> dict[str, Any]:
    gaps = {name: gap.value for name in _MEASURED if (gap := explain_gap(name, state.device, reading, source))}
    return {
        **asdict(state.device),
        "reading": asdict(reading) if reading else None,
        "gaps": gaps,
        "leased_by": state.leased_by,
        "set_aside": state.health.set_aside if state.health else "",
    }


def _build(record: type[_Record], row: Mapping[str, Any]) -> _Record:
    """A record from stored JSON; fields that this version does not know are left out, lists become tuples."""
    names = {item.name for item in fields(record)}  # type: ignore[arg-type]
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items() if name in names}
    return record(**values)


def _build_host(row: Mapping[str, Any]) -> HostReading:
    return _build(HostReading, {**row, "disks": [_build(DiskReading, disk) for disk in row.get("disks") or []]})


# --- composition ------------------------------------------------------------------------------------------------------


def open_gpus(paths: DataPaths) -> GpuService:
    """The service over this installation's telemetry file."""
    return GpuService(_open_store(paths))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTelemetry:
    """What a job's folder keeps of its devices: histories of the asked keys, and one end-of-run row per device."""

    devices: tuple[str, ...]
    series: Mapping[str, Mapping[str, History]]
    summary: tuple[DeviceSummary, ...]


def load_job_telemetry(paths: DataPaths, job_id: str, keys: Sequence[str]) -> JobTelemetry:
    """Readable without the database and after the cards are gone. Raises NotFound for an impossible id."""
    folder = paths.job(job_id).telemetry
    devices = job_devices(folder)
    series = {device: {key: load_job_history(folder, device, key) for key in keys} for device in devices}
    cards = [device for device in devices if device != HOST]
    return JobTelemetry(devices=devices, series=series, summary=summarise_job(folder, cards))


def _open_store(paths: DataPaths) -> TelemetryStore:
    settings = load_settings()
    keep = (settings.telemetry_1s_seconds, settings.telemetry_10s_seconds, settings.telemetry_60s_seconds)
    tiers = [replace(tier, keep_seconds=seconds) for tier, seconds in zip(TIERS, keep, strict=True)]
    return TelemetryStore(paths.telemetry, tiers)


def build_readers(host: AmdHost | None = None) -> tuple[GpuReader, ...]:
    """Readers of all vendors; each finds out at its first call whether it has anything to do here."""
    return AmdReader(host), NvidiaReader(root=host.root if host else Path("/"))


def build_sampler(
    paths: DataPaths,
    *,
    running_jobs: Callable[[], Sequence[RunningJob]] = tuple,
    readers: Sequence[GpuReader] | None = None,
) -> Sampler:
    """The sampler that a worker starts (`start()`) and stops (`stop()`)."""
    return Sampler(
        _open_store(paths),
        build_readers() if readers is None else readers,
        PsutilHostReader({"data": paths.root, "jobs": paths.jobs}),
        running_jobs=running_jobs,
        job_of_process=job_of_process,
    )


def job_of_process(pid: int) -> str:
    """The job that a process was started for; "" when it is foreign (or its environment may not be read)."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    marked = (variable for variable in variables if variable.startswith(b"TUNEDECK_JOB_ID="))
    return next(marked, b"").partition(b"=")[2].decode("utf-8", "replace")


# --- recorded outputs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FixtureReading:
    """A recorded output and what it says."""

    input: str
    reading: ToolReading

    def to_json(self) -> dict[str, Json]:
        """`{"input", "verdict", "gpus", "devices", ...}` in the words of the readers."""
        return {"input": self.input, **self.reading.to_json()}


def read_fixture(path: Path | str) -> FixtureReading:
    """Read a file (any output of a tool) or a folder (root below /sys, or below /sys/class/kfd/kfd).

    Raises InvalidInput when the path does not exist or cannot be read.
    """
    place = Path(path)
    try:
        reading = parse_tree(_load_tree(place)) if place.is_dir() else parse_bytes(_load_bytes(place))
    except OSError as error:
        remedy = "Give a file with a tool's output, or a folder with a sysfs or KFD tree."
        raise InvalidInput(
            "--from", found=f"{path} ({error.strerror})", expected="a readable path", remedy=remedy
        ) from error
    return FixtureReading(input=str(path), reading=reading)


def _load_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAX_FILE_BYTES)


def _load_tree(root: Path) -> dict[str, str]:
    files: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        if len(files) >= _MAX_TREE_FILES:
            break
        if path.is_file() and path.stat().st_size < 1 << 20:
            files[path.relative_to(root).as_posix()] = path.read_text("utf-8", "replace")
    return files


def main(arguments: Sequence[str]) -> int:
    """Print one JSON object per recorded output; exit status 2 when one cannot be read."""
    status = 0
    for path in (argument for argument in arguments if argument not in ("--json", "--from")):
        try:
            print(json.dumps(read_fixture(path).to_json()))
        except InvalidInput as error:
            print(error, file=sys.stderr)
            status = 2
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
