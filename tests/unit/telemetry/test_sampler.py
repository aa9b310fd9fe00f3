"""One round a second: what is stored, held, copied to jobs and told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from backend.adapters.ports import Inventory, Snapshot
from backend.domain.gpu import Device, DeviceProcess, GpuReading, TelemetrySource
from backend.domain.host import HostReading
from backend.errors import InvalidInput, NotFound
from backend.services.gpus import GpuService
from backend.services.sampler import RunningJob, Sampler
from backend.store.job_telemetry import job_devices, load_job_history, summarise_job
from backend.store.telemetry import TelemetryStore

CARD, OTHER = "0000:1b:00.0", "0000:3d:00.0"
START = 1_700_000_000.0


class Clock:
    """Wall and monotonic time that only a test moves."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


class FakeReader:
    """A vendor's reader with two cards; `cost` seconds pass at each read."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.cost, self.reads = clock, 0.0, 0
        self.changes: dict[str, object] = {}
        self.fail: Exception | None = None
        self.verdict = "ok"
        self.processes: tuple[DeviceProcess, ...] = ()

    def inventory(self) -> Inventory:
        return Inventory(
            devices=tuple(
                Device(id=name, vendor="amd", hip_id=n, gfx_target="gfx942") for n, name in enumerate((CARD, OTHER))
            )
        )

    def read(self, at: float) -> Snapshot:
        self.reads += 1
        self.clock.now += self.cost
        if self.fail:
            raise self.fail
        source = TelemetrySource(kind="amdsmi", label="amdsmi 26.2", verdict=self.verdict, tried={"x": "y"})
        reading = GpuReading(
            device=CARD, at=at, gfx_activity_percent=50.0, socket_power_watts=360.0, ecc_uncorrectable=0
        )
        reading = replace(reading, **self.changes)  # type: ignore[arg-type]
        return Snapshot(
            at=at, source=source, readings=(reading, GpuReading(device=OTHER, at=at, gfx_activity_percent=0.0))
        )

    def read_processes(self) -> tuple[DeviceProcess, ...]:
        return self.processes

    def close(self) -> None:
        self.reads = -1


class FakeHost:
    def read(self, at: float) -> HostReading:
        return HostReading(at=at, cpu_percent=12.5)


class Bench:
    """A sampler with fakes, and the service that pages use."""

    def __init__(self, folder: Path, jobs: Sequence[RunningJob] = ()) -> None:
        self.clock = Clock()
        self.reader = FakeReader(self.clock)
        self.store = TelemetryStore(folder / "telemetry.sqlite")
        self.jobs = list(jobs)
        self.sampler = Sampler(
            self.store,
            [self.reader],
            FakeHost(),
            running_jobs=lambda: self.jobs,
            job_of_process=lambda pid: "job-1" if pid == 7 else "",
            wall=self.clock,
            clock=self.clock,
        )
        self.service = GpuService(self.store, wall=self.clock, environment={})

    def beat(self, times: int = 1) -> None:
        for _ in range(times):
            self.sampler.beat()
            self.clock.now = math.floor(self.clock.now) + 1.0


def test_round_is_stored_and_read_back_by_pages(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.service.source().reason == "No worker has sampled this host yet."
    assert bench.service.latest_readings().stale
    assert not bench.sampler.has_sampled, "no job may start before the devices are known"
    bench.beat(5)
    assert bench.sampler.has_sampled
    latest = bench.service.latest_readings()
    assert (latest.stale, latest.age_seconds, latest.error) == (False, 1.0, "")
    assert latest.readings[0].socket_power_watts == 360.0
    assert latest.host is not None and latest.host.cpu_percent == 12.5
    assert bench.service.source() == TelemetrySource(kind="amdsmi", label="amdsmi 26.2", tried={"x": "y"})
    assert bench.service.device_ids() == (CARD, OTHER)
    history = bench.service.history(CARD, "socket_power_watts", START, START + 10)
    assert history.mean.tolist() == [360.0] * 5
    assert bench.service.history("host", "cpu_percent", START, START + 10).mean.tolist() == [12.5] * 5
    bench.clock.now += 60
    assert bench.service.latest_readings().stale
    assert bench.service.to_json()[0]["reading"] is None, "an old reading is not shown as the present"


def test_missing_value_is_a_gap_in_history(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.beat(2)
    bench.reader.changes = {"socket_power_watts": None}
    bench.beat(2)
    values = bench.service.history(CARD, "socket_power_watts", START, START + 9).mean
    assert [None if math.isnan(value) else value for value in values] == [360.0, 360.0, None, None]


def test_slow_reader_is_asked_less_often_and_its_reading_holds(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.reader.cost = 0.8
    bench.beat(9)
    assert bench.reader.reads == 3, "0.8 s a read, at most a fifth of the time: every 4 s"
    history = bench.service.history(CARD, "socket_power_watts", START, START + 9)
    assert not any(math.isnan(value) for value in history.mean)
    assert not bench.service.latest_readings().stale


def test_reader_that_breaks_is_told_and_the_host_goes_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.beat(1)
    bench.reader.fail = RuntimeError("bug in a reader")
    bench.beat(3)
    notices = bench.sampler.take_notices()
    assert [notice.code for notice in notices] == ["telemetry_failed"], "told once, not every second"
    assert "bug in a reader" in notices[0].message
    bench.reader.fail = None
    bench.beat(2)
    assert bench.service.latest_readings().error == ""
    assert not bench.service.latest_readings().stale


def test_lost_card_is_told_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.beat()
    bench.reader.changes = {
        "lost": True,
        "socket_power_watts": None,
        "gfx_activity_percent": None,
        "ecc_uncorrectable": None,
    }
    bench.beat(3)
    assert [(notice.code, notice.device) for notice in bench.sampler.take_notices()] == [("gpu_lost", CARD)]
    assert bench.service.choose(2, [], {}).hindered == {CARD: "lost"}


def test_new_uncorrectable_error_sets_aside_survives_restart_and_is_cleared(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.beat()
    bench.reader.changes = {"ecc_uncorrectable": 2}
    bench.beat()
    assert [notice.code for notice in bench.sampler.take_notices()] == ["gpu_set_aside"]
    assert bench.service.choose(1, [], {}).hindered == {CARD: "set_aside"}
    bench.clock.now += 5
    again = Bench(tmp_path)
    again.reader.changes = {"ecc_uncorrectable": 2}
    again.clock.now = bench.clock.now
    again.beat()
    assert "2 new uncorrectable" in next(row for row in again.service.health() if row.device == CARD).set_aside
    again.service.clear_health(CARD)
    again.beat()
    assert again.service.choose(1, [], {}).hindered == {CARD: "busy"}, "usable again, though at 50 %"
    with pytest.raises(NotFound):
        again.service.clear_health("0000:99:00.0")


def test_failing_source_is_told(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.beat()
    bench.reader.verdict = "driver_newer_than_library"
    bench.beat(2)
    assert [notice.code for notice in bench.sampler.take_notices()] == ["telemetry_source"]


def test_foreign_processes_hinder_and_our_own_do_not(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.reader.processes = (DeviceProcess(device=CARD, pid=7), DeviceProcess(device=OTHER, pid=8, name="notebook"))
    bench.beat()
    assert [process.job_id for process in bench.service.processes()] == ["job-1", ""]
    states = {state.device.id: state for state in bench.service.states({CARD: "job-1"})}
    assert (states[CARD].foreign, states[OTHER].foreign[0].name) == ((), "notebook")
    assert "notebook 8" in bench.service.choose(1, [OTHER], {}).warnings[0]


def test_job_folder_keeps_its_devices_samples_and_an_end_card(tmp_path: Path) -> None:
    job = RunningJob(job_id="job-1", devices=(CARD,), folder=tmp_path / "job" / "telemetry")
    (tmp_path / "job").mkdir()
    bench = Bench(tmp_path, [job])
    bench.beat(30)
    bench.reader.changes = {"socket_power_watts": 720.0, "ecc_uncorrectable": 1}
    bench.beat(25)
    bench.jobs = []
    bench.beat(10)
    assert job_devices(job.folder) == (CARD, "host")
    assert load_job_history(job.folder, CARD, "socket_power_watts").mean.tolist() == [360.0] * 3 + [720.0] * 3
    card = summarise_job(job.folder, [CARD])[0]
    assert (card.mean_power_watts, card.max_power_watts, card.new_uncorrectable_errors) == (540.0, 720.0, 1)
    assert (card.mean_activity_percent, card.max_hotspot_celsius, card.idle_percent) == (50.0, None, 0.0)
    assert card.energy_is_estimate and card.energy_kwh == pytest.approx(540 * 60 / 3.6e6)
    with (job.folder / "0000_1b_00.0.samples").open("ab") as file:
        file.write(b"half a record")
    assert load_job_history(job.folder, CARD, "socket_power_watts").times.size == 6


def test_deleted_job_stays_deleted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [RunningJob(job_id="gone", devices=(CARD,), folder=tmp_path / "gone" / "telemetry")])
    bench.beat(25)
    assert not (tmp_path / "gone").exists()


def test_visibility_and_unknown_names(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.beat()
    assert bench.service.visibility([OTHER]) == {"HIP_VISIBLE_DEVICES": "1"}
    with pytest.raises(NotFound):
        bench.service.visibility(["0000:99:00.0"])
    with pytest.raises(InvalidInput, match="colour"):
        bench.service.history(CARD, "colour", 0, 1)


def test_every_gap_of_the_page_has_a_reason(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.beat()
    row = bench.service.to_json()[0]
    empty = {name for name, value in row["reading"].items() if value is None}
    assert empty == set(row["gaps"])
    assert row["gaps"]["edge_celsius"] == "not_on_part"
    assert row["gaps"]["hotspot_celsius"] == "not_reported"


def test_thread_runs_and_stops(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    sampler = Sampler(bench.store, [bench.reader], beat_seconds=0.02)
    sampler.start()
    for _ in range(200):
        if bench.store.load_state("latest"):
            break
        sampler._stop.wait(0.01)
    sampler.stop()
    assert bench.store.load_state("latest") is not None
    assert bench.reader.reads == -1, "closed"
