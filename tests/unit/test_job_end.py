"""What the worker learns when a job ends: memory for the next plan, host checks, and runs of a sweep that fell behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.domain.events import Alert
from backend.domain.job import JobState
from backend.services.api import Api
from backend.services.bench import BenchStore
from backend.services.worker import Worker
from backend.store.events import load_events
from tests.job_folders import add_job, open_api
from tests.recorder_files import RecorderFiles
from tests.unit.test_forecast_view import CONFIG


def end(api: Api, job_id: str, code: int = 0) -> Worker:
    """The job's supervisor has written its last word; one round of a worker."""
    record = {"started_at": 1.0, "ended_at": 2.0, "exit_code": code, "signal": None}
    (api.paths.job(job_id).root / "exit.json").write_text(json.dumps(record))
    worker = Worker(api.settings, clock=lambda: 1000.0)
    worker.beat()
    return worker


def test_a_finished_runs_peak_corrects_the_next_plan_of_its_family(tmp_path: Path) -> None:
    api = open_api(tmp_path)
    paths = add_job(api, "a")
    model = paths.root / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    text = f"model_name_or_path: {model}\nstage: sft\nfinetuning_type: lora\nbf16: true\n"
    paths.spec.write_text(text)
    files = RecorderFiles(paths.recorder)
    files.start()
    files.write(0, "step", s=1, dt=1.0, mem=17 << 30)
    files.finish(1)
    worker = end(api, "a")
    assert api.get_job("a").state is JobState.SUCCEEDED
    (peak,) = worker.forecaster.history.peaks("llama-lora")
    assert peak.measured == 17 << 30 and peak.planned > 1 << 30
    forecast = worker.forecaster.forecast(text)
    assert forecast.memory is not None and forecast.memory.corrected_by == 1


@pytest.mark.parametrize("spec", ["tunedeck:\n  task: trial\nmodel_name_or_path: m\n", "a: [1\n"])
def test_trials_and_unreadable_specifications_teach_nothing_and_still_end(tmp_path: Path, spec: str) -> None:
    api = open_api(tmp_path)
    add_job(api, "a").spec.write_text(spec)
    worker = end(api, "a", code=1)
    assert api.get_job("a").state is JobState.FAILED
    assert worker.forecaster.history.peaks("llama-lora") == []


def test_a_host_check_is_kept_once_and_what_got_worse_is_told(tmp_path: Path) -> None:
    api = open_api(tmp_path)
    for job_id, rate in (("one", 1e14), ("two", 1e14), ("three", 0.8e14)):
        paths = add_job(api, job_id, tags=("host-check", "plain"))
        RecorderFiles(paths.recorder)
        devices = [{"device": "cuda:0", "name": "x", "matmul_flops": rate}]
        paths.bench.write_text(json.dumps({"host": "n", "world": 1, "seconds": 3, "devices": devices}))
        end(api, job_id)
    store = BenchStore(api.paths)
    assert [check.job for check in store.checks()] == ["one", "two", "three"]
    store.collect(api.get_job("three"))
    assert len(store.checks()) == 3
    alarms = [event for event in load_events(api.paths.job("three").events) if isinstance(event, Alert)]
    assert [alarm.code for alarm in alarms] == ["host_drift"] and "80%" in alarms[0].message
    assert not any(isinstance(event, Alert) for event in load_events(api.paths.job("two").events))
