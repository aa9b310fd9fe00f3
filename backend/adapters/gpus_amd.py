"""An AMD host in, devices and readings out, from the first source that works: amdsmi (in a child), amd-smi, sysfs, none.

Nothing here imports amdsmi or opens /dev/kfd. Every tool has a time limit and is killed past it. The choice is made once and
shown; three failures in a row move on to the next source, and after a rest the better one is tried again.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import orjson

from backend.adapters.circuit import CircuitBreaker
from backend.adapters.ports import Inventory, Snapshot
from backend.adapters.process import Conversation, run_tool
from backend.adapters.sysfs import SysTree
from backend.domain.gpu import DeviceLink, DeviceProcess, GpuReading, TelemetrySource
from backend.errors import EnvironmentFault
from backend.parsing.amd_smi import parse_bytes, parse_output, parse_tree
from backend.parsing.telemetry.accumulators import Accumulators, derive_means, parse_accumulators
from backend.parsing.telemetry.identity import fill_reading, join_devices, to_reading
from backend.parsing.telemetry.missing import Json
from backend.parsing.telemetry.rows import DeviceRow, GpuRow, ToolReading, Verdict, Versions
from backend.parsing.telemetry.verdicts import remedy_of, verdict_of_text

CHILD = Path(__file__).with_name("amdsmi_child.py")
PROBE_SECONDS = 15.0
"""amdsmi_init can hang; ROCm's own tool gives it up to a minute, we do not make a page wait that long."""
POLL_SECONDS = 4.0
SLOW_EVERY_SECONDS = 10.0
"""Error counters, power cap and link states: their calls cost more and their values change rarely."""

log = logging.getLogger("tunedeck.telemetry")


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdHost:
    """Where to look; tests point it elsewhere. `environment` is what tools inherit."""

    root: Path = Path("/")
    rocm_folders: tuple[Path, ...] | None = None
    environment: Mapping[str, str] | None = None
    python: str = sys.executable

    def rocm(self) -> tuple[Path, ...]:
        """ROCm installations, the configured one first, then /opt/rocm, then the newest."""
        if self.rocm_folders is not None:
            return self.rocm_folders
        env = os.environ if self.environment is None else self.environment
        named = [Path(env[name]) for name in ("ROCM_PATH", "ROCM_HOME") if env.get(name)]
        opt = self.root / "opt"
        versioned = sorted(opt.glob("rocm-*"), key=_version_key, reverse=True) if opt.is_dir() else []
        return tuple(dict.fromkeys(path for path in (*named, opt / "rocm", *versioned) if path.is_dir()))

    def tool_environment(self) -> dict[str, str]:
        """Without our own Python: amd-smi's `env python3` would find the amdsmi wheel of this environment, not ROCm's."""
        env = dict(os.environ if self.environment is None else self.environment)
        own = str(Path(sys.executable).parent)
        env["PATH"] = os.pathsep.join(part for part in env.get("PATH", "").split(os.pathsep) if part != own)
        return {name: value for name, value in env.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}


class _Source(Protocol):
    kind: str

    def probe(self) -> ToolReading:
        """Identity, versions, and whether this source works at all."""

    def poll(self) -> ToolReading:
        """Readings now; rows carry a PCI address, or stand in the order of `probe`'s devices."""

    def label(self) -> str: ...

    def close(self) -> None: ...


# --- the amdsmi module, in a child ------------------------------------------------------------------------------------


class AmdsmiSource:
    """Talks to `amdsmi_child.py`, which is started again after a crash or hang."""

    kind = "amdsmi"

    def __init__(self, host: AmdHost, clock: Callable[[], float] = time.monotonic) -> None:
        self.host, self.clock = host, clock
        self._child: Conversation | None = None
        self._versions = Versions()
        self._before: dict[str, tuple[float, Accumulators]] = {}
        self._slow: dict[str, GpuRow] = {}
        self._slow_at = float("-inf")
        self._energy_usable = True

    def label(self) -> str:
        return _label(f"amdsmi {self._versions.library or ''}".strip(), self._versions)

    def probe(self) -> ToolReading:
        folder, reason = self._module_folder()
        if reason:
            return ToolReading(verdict=Verdict.LIBRARY_MISSING, remedy=reason)
        self.close()
        try:
            argv = [self.host.python, str(CHILD), "--answers", "{fd}", *(["--module", str(folder)] if folder else [])]
            self._child = Conversation(argv, env=self.host.tool_environment())
        except EnvironmentFault as error:
            return ToolReading(verdict=Verdict.CRASH, remedy=str(error))
        reading, _ = self._ask("identity", PROBE_SECONDS)
        self._versions = reading.versions or Versions()
        # Behind SR-IOV all virtual functions show the card's energy counter: no energy per device there.
        energies = [row.energy_joules for row in reading.gpus if row.energy_joules]
        self._energy_usable = len(set(energies)) == len(energies)
        return reading

    def _module_folder(self) -> tuple[Path | None, str]:
        """ROCm's own module before a wheel; a wheel only when it is of the library's release."""
        for rocm in self.host.rocm():
            if (folder := rocm / "share" / "amd_smi").is_dir() and (folder / "amdsmi").is_dir():
                return folder, ""
        wheel = _wheel_version()
        rocm_version = next((found for rocm in self.host.rocm() if (found := _rocm_version(rocm))), "")
        if not wheel:
            return None, "There is no amdsmi module: neither in ROCm's share/amd_smi nor as a package."
        if wheel.split(".")[:2] != rocm_version.split(".")[:2]:
            return (
                None,
                f"The amdsmi package {wheel} does not belong to the installed ROCm ({rocm_version or 'none found'}).",
            )
        return None, ""

    def poll(self) -> ToolReading:
        if self.clock() - self._slow_at >= SLOW_EVERY_SECONDS:
            slow, _ = self._ask("slow", POLL_SECONDS)
            self._slow = {str(row.index): row for row in slow.gpus}
            self._slow_at = self.clock()
        reading, raw = self._ask("metrics", POLL_SECONDS)
        if not reading.verdict.has_readings:
            return reading
        rows = [self._refine(row, raw[row.index] if row.index < len(raw) else {}) for row in reading.gpus]
        return replace(reading, gpus=tuple(rows))

    def _refine(self, row: GpuRow, device: Mapping[str, Json]) -> GpuRow:
        """Exact means from the accumulators, and the slow values of the last ten seconds."""
        key = str(row.index)
        slow = self._slow.get(key)
        if slow is not None:
            row = replace(
                row,
                ecc_correctable=slow.ecc_correctable,
                ecc_uncorrectable=slow.ecc_uncorrectable,
                ecc_deferred=slow.ecc_deferred,
                power_cap_watts=slow.power_cap_watts,
                xgmi_links_down=slow.xgmi_links_down,
            )
        calls = device.get("calls")
        metrics = calls.get("amdsmi_get_gpu_metrics_info") if isinstance(calls, Mapping) else None
        stamp = device.get("monotonic")
        if not isinstance(metrics, Mapping) or not isinstance(stamp, float):
            return row
        now = parse_accumulators(metrics)
        before = self._before.get(key)
        self._before[key] = (stamp, now)
        return _with_means(row, before, (stamp, now), self._energy_usable)

    def _ask(self, question: str, timeout: float) -> tuple[ToolReading, list[Mapping[str, Json]]]:
        if self._child is None:
            return ToolReading(verdict=Verdict.CRASH, remedy="The amdsmi helper is not running."), []
        answer = self._child.ask(question.encode(), timeout_seconds=timeout)
        if answer is None:
            noise = self._child.noise.decode("utf-8", "replace").strip()
            self.close()
            text = noise or f"amdsmi gave no answer within {timeout:g} s and was killed."
            verdict = verdict_of_text(noise) if noise else Verdict.CRASH
            known = verdict not in (Verdict.NOT_AMD_SMI_OUTPUT, Verdict.NO_OUTPUT)
            return ToolReading(verdict=verdict if known else Verdict.CRASH, remedy=text.splitlines()[-1][:300]), []
        found = _read_answer(answer, question)
        if found is None:
            # What comes next may answer an older question: only a new child is sure to be in step.
            self.close()
            return ToolReading(
                verdict=Verdict.CRASH, remedy="The amdsmi helper answered something else than asked."
            ), []
        return found

    def restart(self) -> None:
        """A child that died is started again without asking for identity once more."""
        if self._child is None:
            self.probe()

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


def _read_answer(answer: bytes, question: str) -> tuple[ToolReading, list[Mapping[str, Json]]] | None:
    try:
        document = orjson.loads(answer)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict) or document.get("question") != question:
        return None
    if "import_error" in document:
        text = str(document["import_error"])
        return ToolReading(verdict=verdict_of_text(text), remedy=text.strip().splitlines()[-1][:300]), []
    devices = document.get("devices")
    return parse_output(answer.decode("utf-8", "replace")), devices if isinstance(devices, list) else []


def _with_means(
    row: GpuRow, before: tuple[float, Accumulators] | None, now: tuple[float, Accumulators], energy_usable: bool
) -> GpuRow:
    if not energy_usable:
        row = replace(row, energy_joules=None)
    if before is None:
        return row
    means = derive_means(before[1], now[1], now[0] - before[0])
    found = {
        "gfx_activity_percent": means.gfx_activity_percent,
        "mem_activity_percent": means.mem_activity_percent,
        "socket_power_watts": means.socket_power_watts if energy_usable else None,
        "power_violation_percent": means.power_violation_percent,
        "thermal_violation_percent": means.thermal_violation_percent,
        "prochot_violation_percent": means.prochot_violation_percent,
        "vr_violation_percent": means.vr_violation_percent,
        "hbm_violation_percent": means.hbm_violation_percent,
    }
    return replace(row, **{name: round(value, 2) for name, value in found.items() if value is not None})  # type: ignore[arg-type]


# --- the amd-smi command ----------------------------------------------------------------------------------------------


class CliSource:
    """`amd-smi` as a command: one process per round, so it is asked less often than the others."""

    kind = "amd-smi"

    def __init__(self, host: AmdHost, clock: Callable[[], float] = time.monotonic) -> None:
        self.host, self.clock = host, clock
        self._program = ""
        self._versions = Versions()
        self._ecc: dict[int, GpuRow] = {}
        self._ecc_at = float("-inf")

    def label(self) -> str:
        return _label(f"amd-smi {self._versions.tool or ''}".strip(), self._versions)

    def probe(self) -> ToolReading:
        """Tries each program of that name: an old wrapper in /usr/local/bin answers "Invalid platform" with exit code 0."""
        failed = ToolReading(verdict=Verdict.LIBRARY_MISSING, remedy="There is no amd-smi program.")
        for program in self._programs():
            self._program = program
            version = self._run("version", timeout=PROBE_SECONDS)
            if not version.verdict.has_readings or version.versions is None:
                failed = replace(version, remedy=f"{program}: {version.remedy}")
                continue
            self._versions = version.versions
            listed = self._run("list", "-e", "--json", timeout=PROBE_SECONDS)
            if not listed.devices:  # `-e` exists since ROCm 6.4
                listed = self._run("list", "--json", timeout=PROBE_SECONDS)
            if not listed.devices:
                failed = replace(
                    listed, verdict=_refused(listed.verdict), remedy=f"{program}: {listed.remedy or 'it lists no GPU'}"
                )
                continue
            return self._identify(listed)
        return failed

    def _identify(self, listed: ToolReading) -> ToolReading:
        static = self._run("static", "--json", timeout=PROBE_SECONDS)
        topology = self._run("topology", "--json", timeout=PROBE_SECONDS)
        by_index = {row.index: row for row in static.devices}
        devices = tuple(_merge_rows(row, by_index.get(row.index)) for row in listed.devices)
        return replace(listed, devices=devices, links=topology.links, versions=self._versions)

    def poll(self) -> ToolReading:
        if self.clock() - self._ecc_at >= SLOW_EVERY_SECONDS:
            counted = self._run("metric", "-e", "--json", timeout=POLL_SECONDS)
            self._ecc = {_printed(row): row for row in counted.gpus}
            self._ecc_at = self.clock()
        # Named groups only: without them the command also runs the slow violation query.
        reading = self._run("metric", "-u", "-p", "-t", "-m", "-c", "-E", "--json", timeout=POLL_SECONDS)
        return replace(reading, gpus=tuple(self._with_ecc(row) for row in reading.gpus))

    def _with_ecc(self, row: GpuRow) -> GpuRow:
        ecc = self._ecc.get(_printed(row))
        if ecc is None:
            return row
        return replace(row, ecc_correctable=ecc.ecc_correctable, ecc_uncorrectable=ecc.ecc_uncorrectable)

    def _programs(self) -> list[str]:
        own = [str(path) for rocm in self.host.rocm() if (path := rocm / "bin" / "amd-smi").is_file()]
        found = shutil.which("amd-smi", path=self.host.tool_environment().get("PATH", ""))
        return list(dict.fromkeys([*own, *([found] if found else [])]))

    def _run(self, *arguments: str, timeout: float) -> ToolReading:
        try:
            result = run_tool([self._program, *arguments], timeout_seconds=timeout, env=self.host.tool_environment())
        except EnvironmentFault as error:
            return ToolReading(verdict=Verdict.CRASH, remedy=str(error))
        if result.timed_out:
            return ToolReading(
                verdict=Verdict.CRASH,
                remedy=f"`amd-smi {arguments[0]}` gave no answer within {timeout:g} s and was killed.",
            )
        reading = parse_bytes(result.stdout)
        if reading.verdict in (Verdict.NO_OUTPUT, Verdict.NOT_AMD_SMI_OUTPUT) and result.stderr.strip():
            return parse_bytes(result.stdout + b"\n" + result.stderr)
        return reading

    def close(self) -> None:
        """Nothing stays open between rounds."""


def _printed(row: GpuRow) -> int:
    return row.index if row.printed_index is None else row.printed_index


def _refused(verdict: Verdict) -> Verdict:
    return Verdict.NO_GPU if verdict is Verdict.OK else verdict


def _merge_rows(first: DeviceRow, second: DeviceRow | None) -> DeviceRow:
    if second is None:
        return first
    names = [name for name in DeviceRow.__dataclass_fields__ if name != "index"]
    gaps = {name: getattr(second, name) for name in names if getattr(first, name) is None}
    return replace(first, **gaps)


# --- sysfs ------------------------------------------------------------------------------------------------------------


class SysfsSource:
    """Files of the kernel driver: no library, no process, microseconds."""

    kind = "sysfs"

    def __init__(self, tree: SysTree, clock: Callable[[], float] = time.monotonic) -> None:
        self.tree, self.clock = tree, clock
        self._errors_at = float("-inf")

    def label(self) -> str:
        release = self.tree.driver_version()
        return f"sysfs, amdgpu {release}" if release else "sysfs"

    def probe(self) -> ToolReading:
        # With KFD's nodes: they list the partitions of a card, which have no files of their own in class/drm.
        reading = parse_tree(self.tree.load_cards(errors=True) | self.tree.load_identity())
        versions = Versions(driver=self.tree.driver_version() or None)
        return replace(reading, versions=versions)

    def poll(self) -> ToolReading:
        with_errors = self.clock() - self._errors_at >= SLOW_EVERY_SECONDS
        if with_errors:
            self._errors_at = self.clock()
        return parse_tree(self.tree.load_cards(errors=with_errors))

    def close(self) -> None:
        """Nothing stays open between rounds."""


# --- the chain --------------------------------------------------------------------------------------------------------


class AmdReader:
    """The chain. Safe to use from one thread."""

    def __init__(
        self,
        host: AmdHost | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sources: Sequence[_Source] | None = None,
    ) -> None:
        self.host, self.clock = host or AmdHost(), clock
        self.tree = SysTree(self.host.root)
        self._sysfs = SysfsSource(self.tree, clock)
        self._sources: list[_Source] = (
            list(sources)
            if sources is not None
            else [AmdsmiSource(self.host, clock), CliSource(self.host, clock), self._sysfs]
        )
        self._breakers = {source.kind: CircuitBreaker(clock) for source in self._sources}
        self._tried: dict[str, str] = {}
        self._current: _Source | None = None
        self._inventory = Inventory()
        self._order: tuple[str, ...] = ()
        self._ecc: dict[str, GpuReading] = {}
        self._warnings: tuple[str, ...] = ()
        self._chosen_at = float("-inf")

    def inventory(self) -> Inventory:
        if self._current is None:
            self._choose()
        return self._inventory

    def _choose(self) -> None:
        """Probe the sources that do not rest, best first, and remember why each other one was not taken."""
        self._chosen_at = self.clock()
        if not self.tree.has_amd() and not self.host.rocm():
            self._tried = {"amd": "no AMD card in /sys/class/drm, no /dev/kfd, no ROCm"}
            return
        for source in self._sources:
            if self._breakers[source.kind].is_open:
                continue
            probe = source.probe()
            if probe.verdict.has_readings and (probe.devices or probe.gpus):
                self._adopt(source, probe)
                return
            self._reject(source, f"{probe.verdict.value}: {probe.remedy or remedy_of(probe.verdict)}")

    def _reject(self, source: _Source, reason: str) -> None:
        log.info("telemetry source %s rejected: %s", source.kind, reason)
        self._tried[source.kind] = reason
        self._breakers[source.kind].open_now()
        source.close()

    def _adopt(self, source: _Source, probe: ToolReading) -> None:
        self._current = source
        self._tried.pop(source.kind, None)
        kernel = parse_tree(self.tree.load_identity())
        rows: Iterable[Sequence[DeviceRow | GpuRow]] = (
            probe.devices or probe.gpus,
            kernel.devices,
            kernel.gpus,
            probe.gpus,
        )
        devices = join_devices(rows, self.tree.accessible_renders())
        self._order = tuple(row.bdf or "" for row in (probe.gpus or probe.devices))
        self._warnings = probe.warnings
        links = tuple(
            DeviceLink(source=link.source, target=link.target, kind=link.kind, hops=link.hops)
            for link in probe.links
            if link.source != link.target
        )
        self._inventory = Inventory(devices=devices, links=links)

    def read(self, at: float) -> Snapshot:
        if self._current is None or (self._better_may_work() and self._current is not self._sources[0]):
            self._choose_again()
        source = self._current
        if source is None:
            return Snapshot(at=at, source=self._describe(ToolReading(verdict=Verdict.NO_GPU)))
        reading = source.poll()
        ok = reading.verdict.has_readings
        self._breakers[source.kind].record(ok=ok)
        if not ok:
            return self._failed(source, reading, at)
        readings = self._to_readings(reading, at)
        if reading.verdict is Verdict.DRIVER_NEWER_THAN_LIBRARY:
            readings = self._fill_from_sysfs(readings, at)
        return Snapshot(at=at, source=self._describe(reading), readings=self._keep_errors(readings))

    def _choose_again(self) -> None:
        if self.clock() - self._chosen_at < 30:
            return
        previous = self._current
        self._current = None
        self._choose()
        if self._current is None:
            self._current = previous

    def _better_may_work(self) -> bool:
        better = (
            self._sources[: self._sources.index(self._current)] if self._current in self._sources else self._sources
        )
        return any(source.kind in self._tried and not self._breakers[source.kind].is_open for source in better)

    def _failed(self, source: _Source, reading: ToolReading, at: float) -> Snapshot:
        reason = f"{reading.verdict.value}: {reading.remedy or remedy_of(reading.verdict)}"
        if isinstance(source, AmdsmiSource):
            source.restart()
        described = self._describe(reading)
        if self._breakers[source.kind].is_open:
            self._reject(source, reason)
            self._current = None
            self._choose()
        return Snapshot(at=at, source=described, errors=(f"{source.kind}: {reason}",))

    def _to_readings(self, reading: ToolReading, at: float) -> tuple[GpuReading, ...]:
        known = {device.id for device in self._inventory.devices}
        readings = []
        for row in reading.gpus:
            position = _printed(row)
            device = row.bdf or (self._order[position] if position < len(self._order) else "")
            if device in known:
                found = to_reading(row, device, at)
                lost = reading.verdict is Verdict.GPU_LOST and _says_nothing(found) and not row.partition_id
                readings.append(replace(found, lost=lost))
        return tuple(readings)

    def _fill_from_sysfs(self, readings: tuple[GpuReading, ...], at: float) -> tuple[GpuReading, ...]:
        files = {row.bdf: to_reading(row, row.bdf, at) for row in self._sysfs.poll().gpus if row.bdf}
        return tuple(
            fill_reading(reading, files[reading.device]) if reading.device in files else reading for reading in readings
        )

    def _keep_errors(self, readings: tuple[GpuReading, ...]) -> tuple[GpuReading, ...]:
        """Error counters are read every ten seconds; in between the last ones hold."""
        kept = []
        for reading in readings:
            if reading.ecc_uncorrectable is None and not reading.lost and (last := self._ecc.get(reading.device)):
                reading = replace(
                    reading, ecc_correctable=last.ecc_correctable, ecc_uncorrectable=last.ecc_uncorrectable
                )
            elif reading.ecc_uncorrectable is not None:
                self._ecc[reading.device] = reading
            kept.append(reading)
        return tuple(kept)

    def _describe(self, reading: ToolReading) -> TelemetrySource:
        source = self._current
        if source is None:
            reason = "; ".join(f"{kind}: {why}" for kind, why in self._tried.items())
            return TelemetrySource(
                kind="none", label="none", verdict=Verdict.NO_GPU.value, reason=reason, tried=dict(self._tried)
            )
        return TelemetrySource(
            kind=source.kind,
            label=source.label(),
            verdict=reading.verdict.value,
            reason="" if reading.verdict is Verdict.OK else remedy_of(reading.verdict),
            remedy=reading.remedy,
            warnings=tuple(dict.fromkeys((*self._warnings, *reading.warnings))),
            tried=dict(self._tried),
        )

    def read_processes(self) -> tuple[DeviceProcess, ...]:
        """From KFD's file per process and device: the tools' own listings over-count (section 1.5 of the reference)."""
        found = parse_tree(self.tree.load_processes())
        return tuple(
            DeviceProcess(device=device, pid=row.pid, name=self.tree.process_name(row.pid), vram_bytes=size)
            for row in found.processes
            for device, size in row.vram_by_device.items()
        )

    def close(self) -> None:
        for source in self._sources:
            source.close()


def _says_nothing(reading: GpuReading) -> bool:
    return (
        reading.vram_total_bytes is None and reading.gfx_activity_percent is None and reading.socket_power_watts is None
    )


def _label(name: str, versions: Versions) -> str:
    parts = [
        name,
        f"ROCm {versions.rocm}" if versions.rocm else "",
        f"amdgpu {versions.driver}" if versions.driver else "",
    ]
    return ", ".join(part for part in parts if part)


def _version_key(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", path.name))


def _rocm_version(rocm: Path) -> str:
    for name in (".info/version", ".info/version-dev"):
        try:
            if found := re.match(r"\d+\.\d+(?:\.\d+)?", (rocm / name).read_text("utf-8", "replace")):
                return found.group(0)
        except OSError:
            continue
    return ""


def _wheel_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("amdsmi")
    except PackageNotFoundError:
        return ""
