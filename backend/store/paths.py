"""Every path Tunedeck makes, in one place: the data folder and a job's folder (design section 4)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from backend.errors import NotFound

_JOB_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class DataPaths:
    """Paths below the data folder."""

    root: Path

    @property
    def database(self) -> Path:
        return self.root / "tunedeck.sqlite"

    @property
    def telemetry(self) -> Path:
        """History of GPUs and host, written by the worker's sampler."""
        return self.root / "telemetry.sqlite"

    @property
    def worker_lock(self) -> Path:
        return self.root / "worker.lock"

    @property
    def worker_log(self) -> Path:
        return self.root / "worker.log"

    @property
    def worker_status(self) -> Path:
        """JSON heartbeat of the worker: pid, started_at, beat_at, last error."""
        return self.root / "worker.json"

    @property
    def environments(self) -> Path:
        """Cached descriptions of training environments, one JSON each."""
        return self.root / "environments"

    @property
    def datasets(self) -> Path:
        return self.root / "datasets"

    @property
    def demo(self) -> Path:
        """Tiny model and demo data made by scripts/make_demo.py."""
        return self.root / "demo"

    @property
    def lengths(self) -> Path:
        """Token lengths of data sets, one JSON for each model, template and state of the data."""
        return self.root / "lengths"

    @property
    def memory_history(self) -> Path:
        """Planned and measured peaks of finished runs, one JSON object a line."""
        return self.root / "memory_history.jsonl"

    @property
    def benches(self) -> Path:
        """Host checks, one JSON object a line."""
        return self.root / "host_checks.jsonl"

    @property
    def tunings(self) -> Path:
        """Tuning searches, a folder each (services/searches.py)."""
        return self.root / "tunings"

    @property
    def sweeps(self) -> Path:
        """Sweeps, one JSON each (services/sweeps.py)."""
        return self.root / "sweeps"

    @property
    def uploads(self) -> Path:
        """Gradio's temporary folder, on the data disk."""
        return self.root / "uploads"

    def preferences(self, name: str) -> Path:
        """What one user set in the pages; `name` is safe as a file name."""
        return self.root / "preferences" / f"{name}.json"

    @property
    def series_copies(self) -> Path:
        """Columns of ended runs, made from their recorder files; may be deleted at any time."""
        return self.root / "cache" / "series"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets.json"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    def job(self, job_id: str) -> JobPaths:
        """Paths of a job; the id is checked so that it can never leave `jobs/`."""
        if not _JOB_ID.fullmatch(job_id) or ".." in job_id:
            raise NotFound(f"No job has the id {job_id!r}.")
        return JobPaths(self.jobs / job_id)


@dataclass(frozen=True, slots=True)
class JobPaths:
    """Paths below one job folder."""

    root: Path

    @property
    def spec(self) -> Path:
        return self.root / "spec.yaml"

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    @property
    def train_yaml(self) -> Path:
        return self.root / "train.yaml"

    @property
    def deepspeed_json(self) -> Path:
        return self.root / "ds_config.json"

    @property
    def console(self) -> Path:
        return self.root / "console.log"

    @property
    def recorder(self) -> Path:
        return self.root / "recorder"

    def rank_records(self, rank: int) -> Path:
        return self.recorder / f"rank-{rank}.jsonl"

    @property
    def control(self) -> Path:
        """Requests to the recorder and supervisor: stop.json, save.json, profile.json (written then renamed)."""
        return self.root / "control"

    @property
    def stop_request(self) -> Path:
        return self.control / "stop.json"

    @property
    def save_request(self) -> Path:
        return self.control / "save.json"

    @property
    def profile_request(self) -> Path:
        return self.control / "profile.json"

    @property
    def profile(self) -> Path:
        """Answers to it: rank-R.json, and torch's own table in rank-R.txt."""
        return self.root / "profile"

    @property
    def events(self) -> Path:
        return self.root / "events.jsonl"

    @property
    def telemetry(self) -> Path:
        return self.root / "telemetry"

    @property
    def supervisor(self) -> Path:
        """Who supervises: {pid, started_at, child_pid, child_started_at}."""
        return self.root / "supervisor.json"

    @property
    def supervisor_log(self) -> Path:
        return self.root / "supervisor.log"

    @property
    def exit(self) -> Path:
        return self.root / "exit.json"

    @property
    def environment(self) -> Path:
        return self.root / "environment.json"

    @property
    def attached(self) -> Path:
        """Only for a run that Tunedeck did not start: where its files are, and its process (services/attach.py)."""
        return self.root / "attached.json"

    @property
    def bench(self) -> Path:
        """Answer of a host check (task bench)."""
        return self.root / "bench.json"

    @property
    def bench_progress(self) -> Path:
        """What a host check measures at the moment."""
        return self.root / "bench.progress.json"

    @property
    def trials_asked(self) -> Path:
        """Trials for a job of task trial, appended by the tuner."""
        return self.root / "trials.in.jsonl"

    @property
    def trials_done(self) -> Path:
        """Their results, appended by the job."""
        return self.root / "trials.jsonl"

    @property
    def output(self) -> Path:
        return self.root / "output"
