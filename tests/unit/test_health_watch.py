"""Alarms of a running job: found in what the recorder writes, each told once, also by the next worker."""

from __future__ import annotations

from pathlib import Path

from backend.domain.events import Alert
from backend.domain.job import Job, JobState
from backend.services.health_watch import EVERY_SECONDS, HealthWatch
from backend.store.events import append_event
from backend.store.paths import JobPaths
from tests.recorder_files import RecorderFiles
from ui.text import LANGUAGES, text

JOB = Job(id="job-1", name="job-1", state=JobState.RUNNING, stage="sft")


def open_run(folder: Path) -> tuple[JobPaths, RecorderFiles]:
    paths = JobPaths(folder)
    files = RecorderFiles(paths.recorder)
    files.start()
    return paths, files


def codes(alarms: list[Alert]) -> list[str]:
    return [alarm.code for alarm in alarms]


def test_a_healthy_run_raises_no_alarm(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    for step in range(1, 40):
        files.step(step, loss=2 / step)
    assert HealthWatch().look(JOB, paths, files.now) == []


def test_a_loss_that_is_no_number_is_told_once_with_step_and_proof(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    watch = HealthWatch()
    for step in range(1, 10):
        files.step(step, loss=1.0 + step % 3 if step < 6 else "nan")
    alarms = watch.look(JOB, paths, files.now)
    assert [(alarm.code, alarm.step) for alarm in alarms] == [("loss_not_finite", 6)]
    assert "4 of 9 rows" in alarms[0].evidence
    files.step(10, loss="nan")
    assert watch.look(JOB, paths, files.now + EVERY_SECONDS) == []


def test_the_next_worker_does_not_repeat_an_alarm(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    for step in range(1, 8):
        files.step(step, loss=0.0)
    for alarm in HealthWatch().look(JOB, paths, files.now):
        append_event(paths.events, alarm)
    assert HealthWatch().look(JOB, paths, files.now) == []


def test_numbers_are_read_at_a_low_rate(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    watch = HealthWatch()
    assert watch.look(JOB, paths, 100.0) == []
    for step in range(1, 8):
        files.step(step, loss=0.0)
    assert watch.look(JOB, paths, 100.0 + EVERY_SECONDS - 1) == []
    assert codes(watch.look(JOB, paths, 100.0 + EVERY_SECONDS)) == ["loss_zero"]


def test_a_stall_is_an_alarm_again_after_the_run_went_on(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    watch = HealthWatch()
    for step in range(1, 8):
        files.step(step, loss=1 / step)
    assert codes(watch.look(JOB, paths, files.now + 500)) == ["stalled"]
    assert watch.look(JOB, paths, files.now + 600) == []
    files.now += 700
    files.step(8)
    assert watch.look(JOB, paths, files.now) == []
    assert codes(watch.look(JOB, paths, files.now + 500)) == ["stalled"]


def test_an_ended_run_has_no_stall(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    for step in range(1, 8):
        files.step(step, loss=1 / step)
    assert HealthWatch().look(JOB, paths, files.now + 500, last=True) == []


def test_the_loss_scale_at_its_minimum_is_read_from_the_console_over_a_cut(tmp_path: Path) -> None:
    paths, _ = open_run(tmp_path)
    watch = HealthWatch()
    paths.console.write_text("ordinary\nException: Current loss scale alr")
    assert watch.look(JOB, paths, 0.0) == []
    with paths.console.open("a") as file:
        file.write("eady at minimum - cannot decrease scale anymore.\n")
    assert codes(watch.look(JOB, paths, 100.0)) == ["loss_scale_collapse"]


def test_every_alarm_has_words_in_both_languages() -> None:
    for lang in LANGUAGES:
        assert text(lang, "alarm.loss_zero") and text(lang, "alarm.stalled.do")
