"""The tuner and the host check as real jobs on the CPU: worker, supervisor, torchrun, LLaMA-Factory, measured steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.domain.job import JobState
from backend.planning.spec import apply_changes, parse_spec
from backend.planning.tuning import Outcome
from backend.planning.workload import build_workload
from backend.services.bench import BenchStore
from backend.services.forecast import Forecaster
from backend.services.presets import load_preset
from backend.services.tuning import Progress, Tuner, best_text, report_table
from tests.integration.conftest import Deck

pytestmark = pytest.mark.training


def forecaster(deck: Deck) -> Forecaster:
    return Forecaster(deck.settings, deck.api.paths, deck.api.environments)


def test_tuner_finds_faster_settings_by_real_trials_and_keeps_the_rows_of_a_step(
    real_deck: Deck, demo_inputs: Path
) -> None:
    text = apply_changes(
        load_preset("demo/cpu_sft_lora", demo=demo_inputs),
        {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "cutoff_len": 512, "max_steps": 50},
    )
    real_deck.start_worker()
    told: list[Progress] = []
    tuner = Tuner(real_deck.api, forecaster(real_deck), budget_seconds=200, on_progress=told.append)
    report = tuner.run(text)

    measured = [row for row in report.rows if row.result and row.result.outcome is Outcome.OK]
    assert len(measured) >= 2, report_table(report)
    assert all(row.tokens_per_second and row.tokens_per_second > 0 for row in measured)
    assert len(tuner.jobs) == 1, "one process served all trials"
    assert real_deck.end(tuner.jobs[0]).state is JobState.SUCCEEDED
    assert report.best is not None and report.gain is not None
    assert report.gain > 1.2, report_table(report)
    assert report.best.rows_per_step == pytest.approx(8, rel=0.1)
    tuned = parse_spec(best_text(report, text))
    assert build_workload(tuned) == report.best.work
    results = [each.trial.id for each in told if each.trial is not None and each.event == "result"]
    assert set(results) == {row.trial.id for row in measured}
    assert results.count(report.base.id) == 2, "the present settings are measured again when everything is warm"


def test_host_check_runs_as_a_job_and_is_kept(real_deck: Deck) -> None:
    store = BenchStore(real_deck.api.paths)
    job = store.submit(real_deck.api, processes=2)
    real_deck.start_worker()
    job = real_deck.end(job.id, 120)
    assert job.state is JobState.SUCCEEDED, job.message
    check, drift = store.collect(job)
    assert drift == ()
    assert check.world == 2 and check.backend == "gloo"
    assert check.matmul_flops and check.matmul_flops > 1e9
    assert check.links and all(row.right for row in check.links)
    assert check.seconds < 30
    assert store.checks() == [check]
    store.collect(job)
    assert len(store.checks()) == 1, "reading it again does not count it twice"
