"""A data folder of its own, a stand-in for the training environment, and a way to run workers as real processes."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from backend.adapters.process import find_marked, kill_all
from backend.domain.job import Job
from backend.services.api import Api
from backend.settings import Settings
from tests.conftest import REPOSITORY, TRAINING_PYTHON

STAND_IN = REPOSITORY / "tests" / "stand_in" / "trainer.py"


def make_stand_in_python(folder: Path) -> Path:
    """An executable that takes the place of the training environment's python."""
    path = folder / "stand-in-python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@dataclass
class Deck:
    """One installation: api in this process, workers as processes of their own."""

    settings: Settings
    api: Api
    model: Path
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start_worker(self) -> subprocess.Popen[bytes]:
        env = {
            **os.environ,
            "TUNEDECK_DATA": str(self.settings.data_dir),
            "TUNEDECK_CPU_SLOTS": str(self.settings.cpu_slots),
        }
        log = (self.settings.data_dir / "worker.log").open("ab")
        worker = subprocess.Popen(
            [sys.executable, str(REPOSITORY / "app.py"), "worker"],
            env=env,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        self.workers.append(worker)
        return worker

    def spec(self, name: str = "stand-in", processes: int = 2, **stand_in: object) -> str:
        options = json.dumps(stand_in or {"steps": 20})
        return (
            f"tunedeck:\n  name: {name}\n  processes: {processes}\n  env:\n    STAND_IN: '{options}'\n"
            f"model_name_or_path: {self.model}\ndataset: any\ndataset_dir: ONLINE\ntemplate: default\n"
        )

    def until(self, job_id: str, condition: Callable[[Job], bool], seconds: float = 30.0) -> Job:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            job = self.api.get_job(job_id)
            if condition(job):
                return job
            time.sleep(0.02)
        log = (self.settings.data_dir / "worker.log").read_text()[-3000:]
        raise AssertionError(f"waited {seconds} s in vain: {self.api.get_job(job_id)}\n{log}")

    def end(self, job_id: str, seconds: float = 30.0) -> Job:
        return self.until(job_id, lambda job: job.state.is_final, seconds)

    def at_step(self, job_id: str, step: int) -> Job:
        return self.until(job_id, lambda job: (job.step or 0) >= step)

    def processes_of(self, job_id: str) -> list[int]:
        return [identity.pid for identity in find_marked("TUNEDECK_JOB_ID", job_id)]

    def close(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGKILL)
            worker.wait()
        for folder in (self.settings.data_dir / "jobs").glob("*"):
            kill_all(find_marked("TUNEDECK_SUPERVISES", folder.name))
            kill_all(find_marked("TUNEDECK_JOB_ID", folder.name))


@pytest.fixture
def deck(tmp_path: Path) -> Iterator[Deck]:
    made = make_deck(tmp_path)
    yield made
    made.close()


def make_deck(folder: Path, cpu_slots: int = 2) -> Deck:
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    settings = Settings(
        data_dir=folder / "data",
        training_python=make_stand_in_python(folder),
        cpu_slots=cpu_slots,
        min_free_disk_bytes=0,
        terminate_grace_seconds=1.0,
    )
    return Deck(settings=settings, api=Api(settings, start_worker=lambda _: None), model=model)


@pytest.fixture
def real_deck(tmp_path: Path, demo_inputs: Path) -> Iterator[Deck]:
    """Like `deck`, with the real training environment."""
    assert TRAINING_PYTHON.exists(), "scripts/setup --training makes it"
    settings = Settings(data_dir=tmp_path / "data", training_python=TRAINING_PYTHON, min_free_disk_bytes=0)
    made = Deck(settings=settings, api=Api(settings, start_worker=lambda _: None), model=demo_inputs / "model")
    yield made
    made.close()
