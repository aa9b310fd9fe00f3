"""Runs that Tunedeck did not start: followed by their files, never written to, stopped only as the very process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from backend.domain.job import Job, JobState, StopMode, TerminationReason
from backend.errors import Conflict, InvalidInput, NotFound, PathRefused
from backend.services.api import Api
from backend.services.attach import attach
from backend.services.views import Views
from backend.services.worker import Worker
from backend.store.events import load_events
from tests.checkpoint_files import write_checkpoint
from tests.job_folders import open_api
from ui.server import create_app


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "runs" / "mine"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return open_api(tmp_path / "data", allowed_roots=(tmp_path / "runs",))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def worker(api: Api, clock: Clock) -> Worker:
    return Worker(api.settings, clock=clock)


def look(worker: Worker, clock: Clock, seconds: float = 5.0) -> None:
    clock.now += seconds
    worker.beat()


def log_row(step: int, loss: float, total: int = 100) -> str:
    elapsed = f"0:{step // 60:02d}:{step % 60:02d}"
    return json.dumps(
        {"current_steps": step, "total_steps": total, "loss": loss, "lr": 1e-5, "epoch": step / 50, "elapsed_time": elapsed}
    ) + "\n"  # fmt: skip


def losses(api: Api, job: Job) -> dict[int, float]:
    curve = Views(api).series(job.id, ["loss"], points=0).series["loss"]
    return dict(zip(curve.x.tolist(), curve.y.tolist(), strict=True))


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def test_a_growing_folder_has_curves_progress_and_checkpoints_and_stays_untouched(
    api: Api, worker: Worker, clock: Clock, folder: Path
) -> None:
    log = folder / "trainer_log.jsonl"
    log.write_text(log_row(10, 2.0) + log_row(20, 1.5))
    write_checkpoint(folder / "checkpoint-20", step=20)
    before = snapshot(folder)
    job = attach(api, str(folder))
    look(worker, clock)
    assert snapshot(folder) == before
    assert losses(api, job) == {10: 2.0, 20: 1.5}
    with log.open("a") as file:
        file.write(log_row(30, 1.2)[:20])
    look(worker, clock)
    assert losses(api, job) == {10: 2.0, 20: 1.5}
    with log.open("a") as file:
        file.write(log_row(30, 1.2)[20:])
    look(worker, clock)
    assert losses(api, job) == {10: 2.0, 20: 1.5, 30: 1.2}
    detail = Views(api, clock=clock).run(job.id)
    assert (detail.headline.step, detail.headline.max_steps, detail.headline.seconds_per_step) == (30, 100, 1.0)
    assert [found.name for found in detail.checkpoints] == ["checkpoint-20"]
    assert detail.attached is not None and detail.job["tags"] == ("attached",)
    assert not detail.can.save and not detail.can.stop and not detail.can.resume


def test_a_new_worker_goes_on_without_repeating_points(api: Api, worker: Worker, clock: Clock, folder: Path) -> None:
    log = folder / "trainer_log.jsonl"
    log.write_text(log_row(10, 2.0))
    job = attach(api, str(folder))
    look(worker, clock)
    with log.open("a") as file:
        file.write(log_row(20, 1.0))
    look(Worker(api.settings, clock=clock), clock)
    assert losses(api, job) == {10: 2.0, 20: 1.0}


def test_a_finished_console_log_ends_as_it_says(api: Api, worker: Worker, clock: Clock, folder: Path) -> None:
    console = folder / "mylog.txt"
    bars = "".join(f"\r {at}%|#| {at}/100 [00:{at // 2:02d}<00:10,  2.00it/s]" for at in range(0, 50))
    console.write_text(
        f"{bars}\n{{'loss': 1.5, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.5}}\n"
        'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n'
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.\n"
    )
    os.utime(console, (clock.now - 500, clock.now - 500))
    job = attach(api, str(console), name="theirs")
    look(worker, clock)
    look(worker, clock)
    ended = api.get_job(job.id)
    assert (ended.state, ended.reason, ended.name) == (JobState.FAILED, TerminationReason.TRAINER_FAILED, "theirs")
    assert losses(api, job) == {49: 1.5}
    assert Views(api).diagnosis(job.id).root_cause == "gpu_oom"
    assert Views(api).log(job.id, offset=-10, before=None, limit=10).lines[-1].text.startswith("torch.OutOfMemory")


def test_a_folder_with_checkpoints_only_shows_the_points_of_the_newest(
    api: Api, worker: Worker, clock: Clock, folder: Path
) -> None:
    write_checkpoint(folder / "checkpoint-20", step=20)
    state = {"global_step": 20, "max_steps": 40, "log_history": [{"step": 10, "loss": 3.0}, {"step": 20, "loss": 2.0}]}
    (folder / "checkpoint-20" / "trainer_state.json").write_text(json.dumps(state))
    job = attach(api, str(folder))
    look(worker, clock)
    assert losses(api, job) == {10: 3.0, 20: 2.0}


def test_files_that_do_not_grow_for_an_hour_are_a_lost_run(
    api: Api, worker: Worker, clock: Clock, folder: Path
) -> None:
    (folder / "trainer_log.jsonl").write_text(log_row(10, 2.0))
    job = attach(api, str(folder))
    look(worker, clock)
    assert api.get_job(job.id).state is JobState.RUNNING
    look(worker, clock, 4000)
    assert api.get_job(job.id).state is JobState.LOST


@pytest.fixture
def training(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A stranger's process that writes its console log."""
    code = "import sys, time\nprint('started', flush=True)\ntime.sleep(60)"
    with (folder / "console.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=log, stderr=log)
    yield process
    process.kill()
    process.wait()


def test_the_process_that_writes_the_log_is_found_and_stopped(
    api: Api, worker: Worker, clock: Clock, folder: Path, training: subprocess.Popen[bytes]
) -> None:
    job = attach(api, str(folder))
    look(worker, clock)
    assert Views(api).run(job.id).can.stop
    with pytest.raises(Conflict, match="did not start"):
        api.request_stop(job.id, StopMode.SAVE)
    api.request_stop(job.id, StopMode.NO_SAVE)
    look(worker, clock)
    assert training.wait(10) != 0
    look(worker, clock)
    ended = api.get_job(job.id)
    assert (ended.state, ended.reason) == (JobState.CANCELLED, TerminationReason.STOPPED_WITHOUT_SAVE)
    assert len(load_events(api.paths.job(job.id).events)) >= 3


def test_another_process_with_the_same_pid_is_never_stopped(
    api: Api, worker: Worker, clock: Clock, folder: Path, training: subprocess.Popen[bytes]
) -> None:
    job = attach(api, str(folder))
    paths = api.paths.job(job.id)
    record = json.loads(paths.attached.read_text())
    paths.attached.write_text(json.dumps(record | {"start_ticks": record["start_ticks"] - 1}))
    api.request_stop(job.id, StopMode.KILL)
    look(worker, clock)
    assert training.poll() is None


def test_what_may_not_be_attached_is_refused(api: Api, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(PathRefused, match="TUNEDECK_ROOTS"):
        attach(api, "/etc/passwd")
    outside = tmp_path / "outside.log"
    outside.write_text("x")
    (folder / "link.log").symlink_to(outside)
    with pytest.raises(PathRefused):
        attach(api, str(folder / "link.log"))
    hidden = folder / ".ssh"
    hidden.mkdir()
    with pytest.raises(PathRefused, match="hidden"):
        attach(api, str(hidden))
    with pytest.raises(NotFound):
        attach(api, str(folder / "nothing"))
    with pytest.raises(InvalidInput, match="no trainer_log"):
        attach(api, str(folder))
    with pytest.raises(InvalidInput, match="absolute"):
        attach(api, "runs/mine")
    (folder / "trainer_log.jsonl").write_text(log_row(1, 1.0))
    with pytest.raises(InvalidInput, match="does not run"):
        attach(api, str(folder), pid=2**22 - 1)
    attach(api, str(folder))
    with pytest.raises(Conflict, match="already"):
        attach(api, str(folder))


def test_deleting_an_attached_run_leaves_the_files_of_its_owner(
    api: Api, worker: Worker, clock: Clock, folder: Path
) -> None:
    (folder / "trainer_log.jsonl").write_text(log_row(10, 2.0))
    write_checkpoint(folder / "checkpoint-20", step=20)
    before = snapshot(folder)
    job = attach(api, str(folder))
    look(worker, clock)
    look(worker, clock, 4000)
    api.delete(job.id)
    assert snapshot(folder) == before


def test_every_view_of_an_attached_run_answers(api: Api, worker: Worker, clock: Clock, folder: Path) -> None:
    (folder / "trainer_log.jsonl").write_text("".join(log_row(step, 1 / step) for step in range(1, 60)))
    adapter = {"base_model_name_or_path": "meta-llama/Llama-3.1-8B", "peft_type": "LORA"}
    (folder / "adapter_config.json").write_text(json.dumps(adapter))
    with TestClient(create_app(api, Views(api), {}, api.settings), base_url="http://127.0.0.1:7860") as client:
        posted = client.post("/api/attach", json={"path": str(folder), "name": "theirs", "pid": None})
        assert posted.status_code == 201
        job_id = posted.json()["job"]["id"]
        look(worker, clock)
        for rest in (
            "",
            "/series",
            "/log",
            "/diagnosis",
            "/advice",
            "/cost",
            "/profile",
            "/telemetry",
            "/since",
            "/series.csv",
        ):
            answer = client.get(f"/api/runs/{job_id}{rest}")
            assert answer.status_code == 200, (rest, answer.text)
        assert client.get(f"/api/compare?runs={job_id}").status_code == 200
        assert client.get("/api/state").json()["running"][0]["model"] == "meta-llama/Llama-3.1-8B"
        assert client.get(f"/api/runs/{job_id}/export").status_code in (404, 409)
