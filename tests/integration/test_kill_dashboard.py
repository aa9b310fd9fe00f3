"""SIGKILL of the dashboard (and of its worker with it) at seeded random moments of its life, while runs go on."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backend.domain.job import JobState
from backend.store.files import read_json
from tests.conftest import REPOSITORY
from tests.integration.conftest import Deck
from tests.integration.test_kill_anywhere import POINTS, records
from tests.integration.test_real_training import SECONDS, two_ranks


def start_dashboard(deck: Deck) -> subprocess.Popen[bytes]:
    assert deck.settings.training_python is not None
    env = {
        **os.environ,
        "TUNEDECK_DATA": str(deck.settings.data_dir),
        "TUNEDECK_TRAINING_PYTHON": str(deck.settings.training_python),
        "TUNEDECK_CPU_SLOTS": str(deck.settings.cpu_slots),
    }
    log = (deck.settings.data_dir / "dashboard.log").open("ab")
    command = [sys.executable, str(REPOSITORY / "app.py"), "serve", "--port", "0"]
    process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    deck.workers.append(process)
    return process


def worker_pid(deck: Deck) -> int | None:
    record = read_json(deck.api.paths.worker_status)
    return int(record["pid"]) if isinstance(record, dict) else None


def test_killed_dashboard_and_worker_change_nothing_for_the_runs(deck: Deck) -> None:
    chance = random.Random(8)
    jobs = [deck.api.submit(deck.spec(f"job-{n}", steps=60, seconds=0.15, save_steps=20)) for n in range(5)]
    for point in range(POINTS):
        dashboard = start_dashboard(deck)
        time.sleep(chance.uniform(0.5, 6.0))
        dashboard.kill()
        dashboard.wait()
        if point % 2 and (pid := worker_pid(deck)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # an older worker's record: none is running now
    start_dashboard(deck)
    try:
        for job in [deck.end(job.id, seconds=90) for job in jobs]:
            assert (job.state, job.step) == (JobState.SUCCEEDED, 60), job
            ranks = [records(deck.api.job_paths(job.id), rank) for rank in (0, 1)]
            assert [[r["k"] for r in rank].count("start") for rank in ranks] == [1, 1], "started exactly once"
            assert [[r["s"] for r in rank if r["k"] == "step"] for rank in ranks] == [list(range(1, 61))] * 2
    finally:
        if pid := worker_pid(deck):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.training
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.long)])
def test_killed_dashboard_and_worker_leave_a_real_run_alone(real_deck: Deck, demo_inputs: Path, kills: int) -> None:
    job = real_deck.api.submit(two_ranks(demo_inputs, max_steps=20))
    chance = random.Random(9)
    for point in range(kills):
        dashboard = start_dashboard(real_deck)
        time.sleep(chance.uniform(3.0, 12.0))
        dashboard.kill()
        dashboard.wait()
        if point % 2 and (pid := worker_pid(real_deck)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    start_dashboard(real_deck)
    try:
        job = real_deck.end(job.id, SECONDS)
        assert (job.state, job.step) == (JobState.SUCCEEDED, 20)
        for rank in (0, 1):
            found = records(real_deck.api.job_paths(job.id), rank)
            assert [r["s"] for r in found if r["k"] == "step"] == list(range(1, 21))
    finally:
        real_deck.api.stop_worker()
