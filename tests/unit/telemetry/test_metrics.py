"""The page that Prometheus scrapes."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from backend.domain.job import Job, JobState
from backend.services.metrics import render_metrics
from tests.unit.telemetry.test_sampler import CARD, OTHER, Bench


def _samples(page: bytes) -> dict[tuple[str, str], float]:
    return {
        (
            sample.name,
            sample.labels.get("device") or sample.labels.get("state") or sample.labels.get("job") or "",
        ): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_readings_jobs_and_host_are_there_and_missing_values_are_not(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.beat(2)
    job = Job(id="j1", name="demo", state=JobState.RUNNING, step=5, max_steps=10)
    page = render_metrics(bench.service, jobs={JobState.RUNNING: 1}, running=[job], leases={CARD: "j1"})
    samples = _samples(page)
    assert samples["tunedeck_gpu_activity_percent", CARD] == 50.0
    assert samples["tunedeck_gpu_activity_percent", OTHER] == 0.0, "a measured zero"
    assert samples["tunedeck_gpu_ecc_uncorrectable_total", CARD] == 0.0
    assert ("tunedeck_gpu_power_watts", OTHER) not in samples
    assert ("tunedeck_gpu_hotspot_celsius", CARD) not in samples
    assert samples["tunedeck_jobs", "running"] == 1.0 and samples["tunedeck_jobs", "failed"] == 0.0
    assert samples["tunedeck_job_step", "j1"] == 5.0
    assert ("tunedeck_job_loss", "j1") not in samples
    assert samples["tunedeck_host_cpu_percent", ""] == 12.5
    assert 'job="j1"' in page.decode()


def test_old_readings_are_not_shown_as_the_present(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.beat(2)
    bench.clock.now += 100
    samples = _samples(render_metrics(bench.service, jobs={}))
    assert ("tunedeck_gpu_activity_percent", CARD) not in samples
    assert samples["tunedeck_telemetry_age_seconds", ""] == 101.0


def test_host_that_was_never_sampled(tmp_path: Path) -> None:
    assert b"tunedeck_jobs" in render_metrics(Bench(tmp_path).service, jobs={})
