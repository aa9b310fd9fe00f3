"""Alarms of a running job: found in what the recorder writes, each told once, also by the next worker."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from backend.domain.events import Alert
from backend.domain.job import Job, JobState
from backend.domain.problem import Severity
from backend.parsing.alarms import PROOFS
from backend.services.health_watch import ALARMS, EVERY_SECONDS, HealthWatch
from backend.store.events import append_event, load_events
from backend.store.paths import JobPaths
from tests.recorder_files import RecorderFiles
from ui.text.alarms import ALARMS_EN, ALARMS_ZH, alarm_line

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
    for step in range(1, 12):
        files.step(step, loss=1 / step)
    assert codes(watch.look(JOB, paths, files.now + 500)) == ["stalled"]
    assert watch.look(JOB, paths, files.now + 600) == []
    files.now += 700
    files.step(12)
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


def test_the_loss_scale_at_its_floor_is_told_from_ordinary_skipped_steps(tmp_path: Path) -> None:
    paths, _ = open_run(tmp_path)
    skip = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {0}, reducing to {1}\n"
    paths.console.write_text(skip.format(65536.0, 32768.0) + skip.format(2, 1))
    assert HealthWatch().look(JOB, paths, 0.0) == []
    paths.console.write_text(skip.format(1.0, 1))
    [alarm] = HealthWatch().look(JOB, paths, 0.0)
    assert (alarm.code, alarm.numbers) == ("loss_scale_at_floor", {"scale": 1.0})


# -- the numbers that the trainer logs --------------------------------------------------------------------------------


def fall(files: RecorderFiles, count: int, **more: object) -> None:
    for step in range(1, count + 1):
        files.step(step)
        files.log(step, loss=0.5 + 2 / step, grad_norm=1.0, **more)


def continue_with(files: RecorderFiles, first: int, rows: Sequence[Mapping[str, object]]) -> None:
    for step, values in enumerate(rows, first):
        files.step(step)
        files.log(step, **values)


@pytest.mark.parametrize(
    ("rows", "code", "step"),
    [
        ([{"loss": 0.0}] * 4, "loss_zero", 21),
        ([{"loss": "nan"}] * 2, "loss_not_finite", 21),
        ([{"loss": 5.0}, {"loss": 0.61}], "loss_spike", 21),
        ([{"loss": 0.6 * 1.15**at} for at in range(20)], "loss_diverging", 21),
        ([{"loss": 0.6}] * 8, "loss_flat", 21),
        ([{"loss": 0.6, "grad_norm": 5000.0}] * 6, "grad_norm_high", 21),
        ([{"loss": 0.6, "grad_norm": "nan"}, {"loss": 0.59, "grad_norm": 1.0}], "grad_norm_nan_sporadic", 21),
        ([{"loss": 0.6, "learning_rate": 0.01}], "learning_rate_high", 21),
    ],
)
def test_a_sick_number_is_told_while_the_job_runs(
    tmp_path: Path, rows: list[dict[str, object]], code: str, step: int
) -> None:
    paths, files = open_run(tmp_path)
    watch = HealthWatch()
    fall(files, 20)
    assert watch.look(JOB, paths, files.now) == []
    continue_with(files, 21, rows)
    [alarm] = watch.look(JOB, paths, files.now + EVERY_SECONDS)
    assert (alarm.code, alarm.step) == (code, step)


def test_a_first_loss_beyond_guessing_is_told_at_once(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    files.step(1, loss=19.5)
    assert codes(HealthWatch().look(JOB, paths, files.now)) == ["initial_loss_high"]


def test_zero_loss_is_healthy_in_dpo(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    fall(files, 20)
    continue_with(files, 21, [{"loss": 0.0, "rewards/accuracies": 1.0}] * 6)
    assert HealthWatch().look(replace(JOB, stage="dpo"), paths, files.now) == []
    assert codes(HealthWatch().look(JOB, paths, files.now)) == []  # told by the rewards, whatever the stage


def test_a_rising_evaluation_is_told_with_both_steps(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    for step, loss in enumerate((1.5, 1.2, 1.25, 1.35), 1):
        files.step(10 * step, loss=1.4 - step / 100)
        files.evaluation(10 * step, eval_loss=loss)
    [alarm] = HealthWatch().look(JOB, paths, files.now)
    assert (alarm.code, alarm.step) == ("eval_loss_rising", 20)
    assert alarm.numbers == {"low": 1.2, "low_step": 20, "last": 1.35, "last_step": 40}


# -- the pace ---------------------------------------------------------------------------------------------------------


def pace(files: RecorderFiles, steps: range, *lanes: tuple[float, float], tokens: int = 100) -> None:
    """Steps of all ranks; of each rank (seconds, seconds waiting for data)."""
    for step in steps:
        files.now += max(seconds for seconds, _ in lanes)
        for rank, (seconds, wait) in enumerate(lanes):
            files.write(rank, "step", s=step, dt=seconds, data=wait, tok=tokens, pad=0, mem=None)


def test_a_rank_that_is_late_all_the_time_is_told_and_one_that_was_late_once_is_not(tmp_path: Path) -> None:
    paths = JobPaths(tmp_path)
    files = RecorderFiles(paths.recorder, world_size=2)
    files.start()
    watch = HealthWatch()
    pace(files, range(1, 60), (1.0, 0.02), (1.0, 0.02))
    pace(files, range(60, 75), (2.0, 0.02), (2.0, 1.0))
    assert watch.look(JOB, paths, files.now) == []
    pace(files, range(75, 140), (1.2, 0.02), (1.2, 0.29))
    [alarm] = watch.look(JOB, paths, files.now + EVERY_SECONDS)
    assert (alarm.code, alarm.form, alarm.numbers["rank"]) == ("straggler", "straggler", 1)


def test_a_slower_lane_of_one_rank_is_told(tmp_path: Path) -> None:
    paths = JobPaths(tmp_path)
    files = RecorderFiles(paths.recorder, world_size=3)
    files.start()
    pace(files, range(1, 80), (1.0, 0.01), (1.5, 0.01), (1.0, 0.01))
    [alarm] = HealthWatch().look(JOB, paths, files.now)
    assert (alarm.code, alarm.form) == ("straggler", "straggler.pace")


def test_waiting_for_data_is_told_and_evaluations_and_saves_are_not_waiting(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    watch = HealthWatch()
    for begin in range(1, 101, 20):
        pace(files, range(begin, begin + 20), (1.0, 0.02))
        files.evaluation(begin + 19, seconds=90.0, eval_loss=1.0)
        files.checkpoint(begin + 19, seconds=60.0)
    assert watch.look(JOB, paths, files.now) == []
    pace(files, range(101, 180), (1.0, 0.4))
    assert codes(watch.look(JOB, paths, files.now + EVERY_SECONDS)) == ["data_starved"]


def test_steps_that_grow_slower_are_told_but_not_those_of_a_resume_on_fewer_gpus(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    watch = HealthWatch()
    pace(files, range(1, 200), (1.0, 0.01))
    files.start(step=199)
    pace(files, range(200, 400), (2.0, 0.01))
    assert watch.look(JOB, paths, files.now) == []
    for step in range(400, 600):
        pace(files, range(step, step + 1), (2.0 + (step - 400) / 50, 0.01))
    assert codes(watch.look(JOB, paths, files.now + EVERY_SECONDS)) == ["slow_drift"]


def test_no_stall_while_the_run_evaluates_or_compiles(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    watch = HealthWatch()
    assert watch.look(JOB, paths, files.now + 900) == []  # the first step is being compiled
    assert codes(HealthWatch().look(JOB, paths, files.now + 2000)) == ["stalled"]
    files.now += 1000
    pace(files, range(1, 20), (1.0, 0.01))
    files.every("phase", phase="evaluating")
    assert watch.look(JOB, paths, files.now + 900) == []


# -- two runs in one folder, and what the trainer's log says ----------------------------------------------------------


def log_row(step: int, elapsed: int, remaining: int, total: int = 1000) -> str:
    clock = [f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}" for seconds in (elapsed, remaining)]
    row = {
        "current_steps": step,
        "total_steps": total,
        "loss": 1.0 / step,
        "elapsed_time": clock[0],
        "remaining_time": clock[1],
    }
    return json.dumps(row) + "\n"


def test_two_runs_that_record_into_one_folder_are_told_and_a_restart_is_not(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    watch = HealthWatch()
    pace(files, range(1, 50), (1.0, 0.01))
    files.start()
    pace(files, range(1, 60), (1.0, 0.01))
    files.start(step=40)
    pace(files, range(41, 90), (1.0, 0.01))
    assert watch.look(JOB, paths, files.now) == []
    for step in range(12):
        pace(files, range(90 + step, 91 + step), (1.0, 0.01))
        pace(files, range(1 + step, 2 + step), (1.0, 0.01))
    [alarm] = watch.look(JOB, paths, files.now + EVERY_SECONDS)
    assert (alarm.code, alarm.numbers) == ("two_writers", {"file": "recorder/rank-0.jsonl", "first": 101, "second": 12})


def test_two_runs_that_write_one_trainer_log_are_told_and_a_resume_is_not(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    paths.output.mkdir()
    log = paths.output / "trainer_log.jsonl"
    log.write_text("".join(log_row(step, step, 5000) for step in [*range(5, 100, 5), *range(55, 150, 5)]))
    assert HealthWatch().look(JOB, paths, files.now) == []
    turns = [log_row(step + more, step + more, 5000) for step in range(5, 60, 5) for more in (150, 0)]
    log.write_text(log.read_text() + "".join(turns))
    assert codes(HealthWatch().look(JOB, paths, files.now)) == ["two_writers"]


def test_a_remaining_time_that_a_resume_spoilt_is_told_with_the_measured_one(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    paths.output.mkdir()
    log = paths.output / "trainer_log.jsonl"
    files.start(step=800, max_steps=1000)
    pace(files, range(801, 831), (10.0, 0.01))
    honest = "".join(log_row(step, 10 * (step - 800), 10 * (1000 - step)) for step in (810, 820, 830))
    log.write_text(honest)
    assert HealthWatch().look(JOB, paths, files.now) == []
    spoilt = "".join(
        log_row(step, 10 * (step - 800), 10 * (step - 800) * (1000 - step) // step) for step in (810, 820, 830)
    )
    log.write_text(spoilt)
    [alarm] = HealthWatch().look(JOB, paths, files.now)
    assert (alarm.code, alarm.step, alarm.numbers["measured_seconds"]) == ("remaining_time_unreliable", 830, 1700.0)


def test_pauses_and_slow_first_steps_do_not_make_a_remaining_time_wrong(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    paths.output.mkdir()
    pace(files, range(1, 3), (300.0, 0.01))
    pace(files, range(3, 31), (2.0, 0.01))
    rows = [log_row(step, 600 + 2 * step, (600 + 2 * step) * (1000 - step) // step) for step in (10, 20, 30)]
    (paths.output / "trainer_log.jsonl").write_text("".join(rows))
    assert HealthWatch().look(JOB, paths, files.now) == []


def attach(paths: JobPaths, **files: str) -> None:
    paths.attached.parent.mkdir(parents=True, exist_ok=True)
    paths.attached.write_text(json.dumps({"source": "", "console": "", "trainer_log": "", "output": "", **files}))


def test_two_runs_in_the_log_of_an_attached_run_are_told(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path / "job")
    log = tmp_path / "theirs" / "trainer_log.jsonl"
    log.parent.mkdir()
    attach(paths, trainer_log=str(log))
    log.write_text("".join(log_row(step + more, step + more, 5000) for step in range(5, 90, 5) for more in (300, 0)))
    [alarm] = HealthWatch().look(JOB, paths, files.now)
    assert (alarm.code, alarm.numbers["file"]) == ("two_writers", "trainer_log.jsonl")


def test_two_runs_in_an_attached_console_are_told_by_their_epochs_and_copies_of_nodes_are_not(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    attach(paths, console=str(paths.console))
    row = "{{'loss': {0}, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': {1}}}\n"
    one = [row.format(2 - at / 50, round(at / 20, 2)) for at in range(1, 40)]
    paths.console.write_text("".join(line for line in one for _ in range(2)))
    assert HealthWatch().look(JOB, paths, files.now) == []
    paths.console.write_text("".join(line for pair in zip(one[20:], one, strict=False) for line in pair))
    [alarm] = HealthWatch().look(JOB, paths, files.now)
    assert (alarm.code, alarm.form) == ("two_writers", "two_writers.epoch")


def test_an_attached_run_that_may_be_evaluating_is_given_half_an_hour(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    attach(paths)
    for step in range(10, 200, 10):
        files.now += 20.0
        files.write(0, "step", s=step, dt=2.0, data=None, tok=None, pad=None, mem=None)
    assert HealthWatch().look(JOB, paths, files.now + 1500) == []
    assert codes(HealthWatch().look(JOB, paths, files.now + 1900)) == ["stalled"]


# -- telling ----------------------------------------------------------------------------------------------------------


def test_an_alarm_is_told_again_when_it_comes_back_after_a_resume(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    watch = HealthWatch()
    fall(files, 20)
    continue_with(files, 21, [{"loss": "nan"}] * 3)
    assert codes(watch.look(JOB, paths, files.now)) == ["loss_not_finite"]
    files.now += 100
    files.start(step=20)
    continue_with(files, 21, [{"loss": 0.6 - at / 100} for at in range(4)])
    assert watch.look(JOB, paths, files.now) == []
    continue_with(files, 25, [{"loss": "nan"}] * 2)
    assert [(alarm.code, alarm.step) for alarm in watch.look(JOB, paths, files.now + EVERY_SECONDS)] == [
        ("loss_not_finite", 25)
    ]


def test_an_alarm_keeps_its_numbers_on_disk(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    fall(files, 20)
    continue_with(files, 21, [{"loss": 5.0}, {"loss": 0.6}])
    [alarm] = HealthWatch().look(JOB, paths, files.now)
    append_event(paths.events, alarm)
    assert load_events(paths.events) == [alarm]
    assert alarm.numbers["value"] == 5.0


def test_a_terminal_gets_an_alarm_in_one_line_of_either_language(tmp_path: Path) -> None:
    paths, files = open_run(tmp_path)
    fall(files, 20)
    continue_with(files, 21, [{"loss": 5.0}, {"loss": 0.6}])
    [alarm] = HealthWatch().look(JOB, paths, files.now)
    assert alarm_line("en", alarm).startswith(
        "The loss jumped (since step 21): The loss jumped from 0.6213 to 5. One spike"
    )
    assert alarm_line("zh", alarm).startswith("损失突然跳升（自第 21 步起）：损失从 0.6213 跳到 5。")


def test_an_alarm_of_an_older_version_keeps_its_sentence() -> None:
    old = Alert(
        at=0.0, code="loss_spike", severity=Severity.WARNING, message="", evidence="loss jumped from 1 to 9", step=3
    )
    assert "loss jumped from 1 to 9" in alarm_line("zh", old)


def test_every_alarm_and_every_proof_has_words_and_the_same_numbers_in_both_languages() -> None:
    assert {form.split(".")[0] for form in PROOFS} == set(ALARMS)
    assert set(ALARMS_EN) == set(ALARMS_ZH)
    for key, words in ALARMS_EN.items():
        assert set(re.findall(r"\{(\w+)\}", words)) == set(re.findall(r"\{(\w+)\}", ALARMS_ZH[key])), key
        assert re.search("[\u4e00-\u9fff]", ALARMS_ZH[key]), key
