"""Readers in, one round a second into the telemetry store out: however many people watch, each card is read once.

A round never raises: what fails is logged, told in the stored status and tried again. A reader that is slow is asked less
often; a tool that hangs is killed by its reader, and a driver call that hangs shows as an old `latest` state.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np
import orjson

from backend.adapters.ports import GpuReader, HostReader, Inventory, Snapshot
from backend.domain.gpu import DeviceHealth, DeviceProcess, GpuReading, TelemetrySource
from backend.domain.host import HostReading
from backend.domain.problem import Severity
from backend.errors import StoreFault
from backend.planning.leases import clear_health, judge_health
from backend.store.job_telemetry import STEP_SECONDS, append_job_sample
from backend.store.telemetry import HOST, KEYS, Matrix, TelemetryStore, aggregate_samples, build_sample

BEAT_SECONDS = 1.0
PROCESS_SECONDS = 5.0
INVENTORY_SECONDS = 60.0
READ_SHARE = 0.2
"""A reader may take this part of the time: one that needs 0.7 s a round is asked every 3.5 s."""

log = logging.getLogger("tunedeck.telemetry")

_READING_KEYS = tuple(key for key in KEYS if key in GpuReading.__dataclass_fields__)
_HOST_KEYS = tuple(key for key in KEYS if key in HostReading.__dataclass_fields__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something a person should know: a card was lost or set aside, a source failed. `code` as in docs/problems.md."""

    at: float
    code: str
    severity: Severity
    message: str
    device: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """A job whose devices' samples are copied into its folder."""

    job_id: str
    devices: tuple[str, ...]
    folder: Path
    """The job's telemetry/ folder."""


@dataclass(slots=True)
class _ReaderState:
    """What the sampler remembers of one reader."""

    reader: GpuReader
    due_at: float = float("-inf")
    interval: float = BEAT_SECONDS
    snapshot: Snapshot | None = None
    inventory: Inventory = field(default_factory=Inventory)
    inventory_at: float = float("-inf")


class Sampler:
    """`beat` does one round; `run` repeats it until told to stop; `start` does so in a thread of its own."""

    def __init__(
        self,
        store: TelemetryStore,
        readers: Sequence[GpuReader],
        host: HostReader | None = None,
        *,
        running_jobs: Callable[[], Sequence[RunningJob]] = tuple,
        job_of_process: Callable[[int], str] = lambda pid: "",
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        beat_seconds: float = BEAT_SECONDS,
    ) -> None:
        self.store, self.host = store, host
        self.running_jobs, self.job_of_process = running_jobs, job_of_process
        self.wall, self.clock, self.beat_seconds = wall, clock, beat_seconds
        self._states = [_ReaderState(reader=reader) for reader in readers]
        self._processes: tuple[DeviceProcess, ...] = ()
        self._processes_at = float("-inf")
        self._health = self._load_health()
        self._windows: dict[tuple[Path, str], list[Matrix]] = {}
        self._window_slot = -1
        self._notices: list[Notice] = []
        self._lock = threading.Lock()
        self._lost: set[str] = set()
        self._verdicts: dict[int, str] = {}
        self._error = ""
        self.has_sampled = False
        """A first round is over: before it nobody knows which devices there are, so no job may start."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    # --- running ---

    def start(self) -> None:
        """Sample in a daemon thread until `stop`."""
        self._thread = threading.Thread(target=self.run, name="sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end and close the readers; waits briefly (a read may be in progress)."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2)
        for state in self._states:
            state.reader.close()

    def run(self) -> None:
        """Rounds until `stop`."""
        while not self._stop.is_set():
            began = self.clock()
            self.beat()
            self._stop.wait(max(0.05, self.beat_seconds - (self.clock() - began)))

    def take_notices(self) -> tuple[Notice, ...]:
        """Notices since the last call, for the worker to log or alert."""
        with self._lock:
            taken, self._notices = tuple(self._notices), []
        return taken

    # --- one round ---

    def beat(self) -> None:
        """Read what is due, judge it, store it."""
        now = self.wall()
        try:
            self._apply_clearings()
            for number, state in enumerate(self._states):
                self._read(number, state, now)
            host = self.host.read(now) if self.host is not None else None
            self._write(now, host)
            self._error = ""
        except StoreFault as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - a reader's bug must not end telemetry for all
            log.exception("sampler round failed")
            self._fail(f"{type(error).__name__}: {error}")
        self.has_sampled = True

    def _fail(self, message: str) -> None:
        if message != self._error:
            self._error = message
            self._note("telemetry_failed", Severity.WARNING, f"Telemetry: {message}")

    def _read(self, number: int, state: _ReaderState, now: float) -> None:
        began = self.clock()
        if began < state.due_at:
            return
        if began - state.inventory_at >= INVENTORY_SECONDS or self._changed_source(state):
            state.inventory, state.inventory_at = state.reader.inventory(), began
        began = self.clock()
        snapshot = state.reader.read(now)
        took = self.clock() - began
        state.interval = max(self.beat_seconds, took / READ_SHARE)
        state.due_at = began + state.interval - 0.05
        slow = state.interval > 1.5 * self.beat_seconds
        state.snapshot = replace(snapshot, slow_read=slow)
        self._judge(number, snapshot)

    @staticmethod
    def _changed_source(state: _ReaderState) -> bool:
        """A source was found or left: its devices may have other indices."""
        return state.snapshot is not None and bool(state.snapshot.readings) != bool(state.inventory.devices)

    def _judge(self, number: int, snapshot: Snapshot) -> None:
        verdict = snapshot.source.verdict
        if self._verdicts.get(number, verdict) != verdict and verdict not in ("ok", "gpu_lost", "no_gpu"):
            self._note(
                "telemetry_source", Severity.WARNING, f"{snapshot.source.label}: {snapshot.source.reason or verdict}"
            )
        self._verdicts[number] = verdict
        for reading in snapshot.readings:
            self._judge_device(reading, snapshot.at)

    def _judge_device(self, reading: GpuReading, now: float) -> None:
        if reading.lost and reading.device not in self._lost:
            self._note("gpu_lost", Severity.ERROR, f"{reading.device} no longer answers.", reading.device)
        (self._lost.add if reading.lost else self._lost.discard)(reading.device)
        before = self._health.get(reading.device, DeviceHealth(device=reading.device))
        after = judge_health(before, reading.ecc_uncorrectable, now)
        if after.set_aside and not before.set_aside:
            self._note(
                "gpu_set_aside",
                Severity.ERROR,
                f"{reading.device}: {after.set_aside}; not leased until cleared.",
                reading.device,
            )
        self._health[reading.device] = after

    def _note(self, code: str, severity: Severity, message: str, device: str = "") -> None:
        log.warning("%s", message)
        with self._lock:
            self._notices.append(Notice(at=self.wall(), code=code, severity=severity, message=message, device=device))
            del self._notices[:-100]

    def _apply_clearings(self) -> None:
        for device in self.store.take_clearings():
            if device in self._health:
                self._health[device] = clear_health(self._health[device])

    def _load_health(self) -> dict[str, DeviceHealth]:
        found = self.store.load_state("health")
        rows = found[1] if found and isinstance(found[1], list) else []
        return {row["device"]: DeviceHealth(**row) for row in rows}

    # --- storing ---

    def _write(self, now: float, host: HostReading | None) -> None:
        self._read_processes()
        readings = [reading for state in self._states for reading in self._current(state)]
        samples: dict[str, Mapping[str, float | None]] = {
            reading.device: {key: getattr(reading, key) for key in _READING_KEYS} for reading in readings
        }
        if host is not None:
            samples[HOST] = {key: getattr(host, key) for key in _HOST_KEYS}
        self.store.append(now, samples, self._documents(now, readings, host))
        self._copy_to_jobs(now, samples)

    def _current(self, state: _ReaderState) -> tuple[GpuReading, ...]:
        """This round's readings, or the last ones while a slow reader rests: they hold until its next turn."""
        snapshot = state.snapshot
        if snapshot is None or self.wall() - snapshot.at > 1.5 * state.interval:
            return ()
        return snapshot.readings

    def _documents(self, now: float, readings: Sequence[GpuReading], host: HostReading | None) -> dict[str, str]:
        sources = [state.snapshot.source for state in self._states if state.snapshot is not None]
        documents = {
            "latest": {"at": now, "readings": readings, "host": host},
            "sources": [_source_document(source) for source in sources],
            "health": [health for health in self._health.values() if health.uncorrectable_baseline is not None],
            "processes": self._processes,
            "devices": [device for state in self._states for device in state.inventory.devices],
            "links": [link for state in self._states for link in state.inventory.links],
            "status": {
                "at": now,
                "error": self._error,
                "interval_seconds": max((state.interval for state in self._states), default=self.beat_seconds),
            },
        }
        return {name: orjson.dumps(document, default=list).decode() for name, document in documents.items()}

    def _read_processes(self) -> None:
        if self.clock() - self._processes_at < PROCESS_SECONDS:
            return
        self._processes_at = self.clock()
        found = [
            process for state in self._states if state.inventory.devices for process in state.reader.read_processes()
        ]
        self._processes = tuple(replace(process, job_id=self.job_of_process(process.pid)) for process in found)

    def _copy_to_jobs(self, now: float, samples: Mapping[str, Mapping[str, float | None]]) -> None:
        """Means of ten seconds into the folder of each running job."""
        slot = int(now) // STEP_SECONDS
        if slot != self._window_slot:
            self._flush_windows()
            self._window_slot = slot
        for job in self.running_jobs():
            for name in (*job.devices, HOST):
                if name in samples:
                    self._windows.setdefault((job.folder, name), []).append(build_sample(samples[name]))

    def _flush_windows(self) -> None:
        """Also of jobs that ended since: their last seconds count. A job that was deleted meanwhile stays deleted."""
        at = float(self._window_slot * STEP_SECONDS)
        for (folder, name), rows in self._windows.items():
            sample = aggregate_samples(rows)
            if folder.parent.is_dir() and not np.isnan(sample).all():
                append_job_sample(folder, name, at, sample)
        self._windows = {}


def _source_document(source: TelemetrySource) -> dict[str, object]:
    """Mappings inside a dataclass with slots are not always plain dicts: make them so for JSON."""
    document = {item.name: getattr(source, item.name) for item in fields(source)}
    return {**document, "tried": dict(source.tried), "versions": dict(source.versions)}
