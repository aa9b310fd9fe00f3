"""Figures at the top of a run's page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backend.domain.job import Job, JobState
from backend.services.headline import Headline, build_headline
from backend.store.series import RunSeries
from tests.recorder_files import RecorderFiles

RUNNING = Job(id="j", name="j", state=JobState.RUNNING, started_at=999_990.0)


def headline(folder: Path, job: Job = RUNNING, now: float = 1_000_100.0) -> Headline:
    run = RunSeries(folder)
    run.refresh(ended=job.state.is_final)
    return build_headline(job, run.progress(), now)


def test_run_without_records_reports_nothing(tmp_path: Path) -> None:
    found = headline(tmp_path, Job(id="j", name="j", state=JobState.QUEUED))
    assert found == Headline(**dict.fromkeys(Headline.__dataclass_fields__))


def test_speed_now_is_measured_from_the_last_steps_not_from_the_mean(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path)
    files.start(max_steps=1000)
    for step in range(1, 201):
        files.step(step, seconds=10.0 if step <= 100 else 0.5, tokens=100)
    found = headline(tmp_path)
    assert found.tokens_per_second == pytest.approx(200)
    assert found.seconds_per_step == pytest.approx(0.5)
    assert found.mean_tokens_per_second == pytest.approx(200 * 100 / 1050)
    assert found.eta_seconds == pytest.approx(800 * 0.5)
    assert (found.step, found.max_steps, found.percent, found.tokens) == (200, 1000, 20.0, 20_000)


def test_speed_sums_ranks_over_the_slowest(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path, world_size=4)
    files.start()
    files.step(1, seconds=1.0, tokens=50)
    assert headline(tmp_path).tokens_per_second == pytest.approx(200 / 1.03)


def test_estimate_counts_the_pauses_still_to_come(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path)
    files.start(max_steps=100)
    for step in range(1, 26):
        files.step(step, seconds=1.0)
        if step % 10 == 0:
            files.evaluation(step, seconds=7.0, eval_loss=1.0)
            files.checkpoint(step, seconds=2.0)
    assert headline(tmp_path).eta_seconds == pytest.approx(75 * 1.0 + 8 * (7.0 + 2.0))


def test_resumed_run_estimates_from_its_own_steps(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path)
    files.start(max_steps=100)
    for step in range(1, 51):
        files.step(step, seconds=9.0)
    files.start(step=40, max_steps=100)
    files.step(41, seconds=1.0)
    found = headline(tmp_path)
    assert found.step == 41 and found.eta_seconds == pytest.approx(59.0)


def test_diverged_loss_is_nan_not_zero(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path)
    files.start()
    files.step(1, loss="nan")
    assert headline(tmp_path).loss == "nan"


def test_uncounted_tokens_leave_the_speed_unknown(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path)
    files.start()
    files.step(1, tokens=None)
    found = headline(tmp_path)
    assert found.tokens_per_second is None and found.tokens is None and found.seconds_per_step == 0.5


def test_ended_run_has_no_speed_now_and_no_rest(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path)
    files.start()
    files.step(1, loss=2.0)
    job = replace(RUNNING, state=JobState.FAILED, ended_at=999_995.0)
    found = headline(tmp_path, job)
    assert (found.tokens_per_second, found.seconds_per_step, found.eta_seconds) == (None, None, None)
    assert (found.elapsed_seconds, found.loss, found.mean_tokens_per_second) == (5.0, 2.0, 200.0)


def test_stall_is_told_but_not_during_an_evaluation(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path)
    files.start()
    files.step(1)
    last = files.now
    assert headline(tmp_path, now=last + 20).stalled_seconds is None
    assert headline(tmp_path, now=last + 100).stalled_seconds == pytest.approx(100)
    files.write(0, "phase", phase="evaluating")
    assert headline(tmp_path, now=last + 100).stalled_seconds is None


def test_phase_is_the_newest_recorded(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path)
    files.write(0, "phase", phase="importing")
    files.write(0, "phase", phase="tokenizing")
    assert headline(tmp_path).phase == "tokenizing"


def test_a_run_of_which_only_every_tenth_step_is_known_is_not_stalled_between_two(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path)
    files.start()
    for step in range(10, 60, 10):
        files.now += 45.0
        files.step(step, seconds=5.0)
    assert headline(tmp_path, now=files.now + 300).stalled_seconds is None
    assert headline(tmp_path, now=files.now + 600).stalled_seconds == pytest.approx(600)
