"""SIGKILL at seeded random moments: the run goes on or its end is told truthfully, and no process is left behind.

The trainer is a stand-in with torchrun's process tree; tests/integration/test_real_training.py repeats this with real training.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.adapters.process import find_marked, identify
from backend.domain.events import StateChanged
from backend.domain.job import Job, JobState, StopMode, TerminationReason
from backend.store.paths import JobPaths
from tests.integration.conftest import Deck, make_deck

POINTS = 20


def records(paths: JobPaths, rank: int) -> list[dict[str, object]]:
    path = paths.rank_records(rank)
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


def supervisor_of(paths: JobPaths) -> int | None:
    return read_pid(paths.supervisor, "pid")


def launcher_of(paths: JobPaths) -> int | None:
    return read_pid(paths.supervisor, "child_pid")


def rank_of(paths: JobPaths) -> int | None:
    started = [record for record in records(paths, 1) if record["k"] == "start"]
    return int(str(started[0]["pid"])) if started else None


def read_pid(path: Path, name: str) -> int | None:
    try:
        pid = json.loads(path.read_text()).get(name)
    except (OSError, ValueError):
        return None
    return int(pid) if pid else None


def kill_later(victim: Callable[[], int | None], delay: float) -> threading.Thread:
    """Wait for the victim to exist, then `delay` seconds, then SIGKILL."""

    def run() -> None:
        deadline = time.monotonic() + 60
        while (pid := victim()) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(delay)
        if pid is not None and identify(pid):
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.fixture
def wide_deck(tmp_path: Path):  # type: ignore[no-untyped-def]
    made = make_deck(tmp_path, cpu_slots=2 * POINTS)
    yield made
    made.close()


def run_with_victims(deck: Deck, victim: Callable[[JobPaths], int | None], seed: int, **stand_in: object) -> list[Job]:
    """POINTS jobs side by side; each loses its victim at a moment of its own."""
    chance = random.Random(seed)
    jobs = [deck.api.submit(deck.spec(f"point-{n}", **stand_in)) for n in range(POINTS)]
    deck.start_worker()
    killers = [
        kill_later(lambda paths=deck.api.job_paths(job.id): victim(paths), chance.uniform(0, 3.0))  # type: ignore[misc]
        for job in jobs
    ]
    for killer in killers:
        killer.join()
    ended = [deck.end(job.id, seconds=90) for job in jobs]
    for job in ended:
        assert deck.processes_of(job.id) == [], job
        assert find_marked("TUNEDECK_SUPERVISES", job.id) == [], job
    return ended


def test_killed_supervisor_means_lost_and_no_rank_lingers(wide_deck: Deck) -> None:
    for job in run_with_victims(wide_deck, supervisor_of, seed=1, steps=100000, seconds=0.02):
        assert (job.state, job.reason) == (JobState.LOST, TerminationReason.SUPERVISOR_VANISHED), job
        alerts = [event for event in wide_deck.api.read_events(job.id) if event.kind == "alert"]
        assert len(alerts) == 1


def test_killed_launcher_means_failed_by_signal(wide_deck: Deck) -> None:
    for job in run_with_victims(wide_deck, launcher_of, seed=2, steps=100000, seconds=0.02):
        assert (job.state, job.reason, job.signal) == (JobState.FAILED, TerminationReason.KILLED_BY_SIGNAL, 9), job


def test_killed_rank_means_failed_by_signal_and_its_steps_stay(wide_deck: Deck) -> None:
    for job in run_with_victims(wide_deck, rank_of, seed=3, steps=100000, seconds=0.02):
        assert (job.state, job.reason) == (JobState.FAILED, TerminationReason.KILLED_BY_SIGNAL), job
        steps = [record["s"] for record in records(wide_deck.api.job_paths(job.id), 0) if record["k"] == "step"]
        assert steps == list(range(1, len(steps) + 1))
        assert job.step in (None, len(steps)) or not steps


def test_supervisor_killed_around_the_end_is_judged_by_what_is_proved(wide_deck: Deck) -> None:
    states = set()
    for job in run_with_victims(wide_deck, supervisor_of, seed=4, steps=8, seconds=0.1):
        paths = wide_deck.api.job_paths(job.id)
        proved = all(any(record["k"] == "done" for record in records(paths, rank)) for rank in (0, 1))
        expected = JobState.SUCCEEDED if proved or paths.exit.exists() else JobState.LOST
        assert job.state is expected, job
        states.add(job.state)
    assert states  # which of the two depends on the moment


def test_killed_worker_changes_nothing_for_the_runs(deck: Deck) -> None:
    chance = random.Random(5)
    jobs = [deck.api.submit(deck.spec(f"job-{n}", steps=10, seconds=0.15, save_steps=5)) for n in range(6)]
    for _ in range(POINTS):
        worker = deck.start_worker()
        time.sleep(chance.uniform(0.3, 1.6))
        worker.kill()
        worker.wait()
    deck.start_worker()
    for job in [deck.end(job.id, seconds=60) for job in jobs]:
        assert (job.state, job.step) == (JobState.SUCCEEDED, 10), job
        paths = deck.api.job_paths(job.id)
        assert [record["k"] for record in records(paths, 0)].count("start") == 1, "started exactly once"
        finals = [
            event for event in deck.api.read_events(job.id) if isinstance(event, StateChanged) and event.state.is_final
        ]
        assert len(finals) >= 1
        assert {event.state for event in finals} == {JobState.SUCCEEDED}


def test_worker_ended_on_request_leaves_its_runs_alone(deck: Deck) -> None:
    assert not deck.api.stop_worker(), "none was running"
    job = deck.api.submit(deck.spec(steps=40, seconds=0.1))
    worker = deck.start_worker()
    deck.until(job.id, lambda job: job.state is JobState.RUNNING, 30)
    assert deck.api.stop_worker() and worker.wait(5) == 0
    assert not deck.api.stop_worker()
    deck.start_worker()
    job = deck.end(job.id, seconds=60)
    assert (job.state, job.step) == (JobState.SUCCEEDED, 40)
    assert [record["k"] for record in records(deck.api.job_paths(job.id), 0)].count("start") == 1


def test_worker_and_supervisor_killed_together(wide_deck: Deck) -> None:
    chance = random.Random(6)
    for _ in range(4):
        jobs = [wide_deck.api.submit(wide_deck.spec(f"job-{n}", steps=100000, seconds=0.02)) for n in range(5)]
        worker = wide_deck.start_worker()
        time.sleep(chance.uniform(0.5, 2.5))
        worker.kill()
        worker.wait()
        doomed = [job for job in jobs if (pid := supervisor_of(wide_deck.api.job_paths(job.id))) and kill(pid)]
        wide_deck.start_worker()
        for job in doomed:
            assert wide_deck.end(job.id).state is JobState.LOST
            assert wide_deck.processes_of(job.id) == []
        for job in jobs:
            if job not in doomed:
                wide_deck.until(job.id, lambda job: job.state is JobState.RUNNING)
                wide_deck.api.request_stop(job.id, StopMode.KILL)
                assert wide_deck.end(job.id).state is JobState.CANCELLED
        wide_deck.workers[-1].kill()
        wide_deck.workers[-1].wait()


def kill(pid: int) -> bool:
    os.kill(pid, signal.SIGKILL)
    return True
