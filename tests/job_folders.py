"""A data folder with jobs in it, without a worker: what the views and the server are tested on."""

from __future__ import annotations

from pathlib import Path

from backend.domain.events import StateChanged
from backend.domain.job import Job, JobState
from backend.services.api import Api
from backend.settings import Settings
from backend.store.events import append_event
from backend.store.paths import JobPaths

STARTED_AT = 999_990.0


def open_api(folder: Path, **settings: object) -> Api:
    return Api(Settings(data_dir=folder, **settings), start_worker=lambda _: None)  # type: ignore[arg-type]


def add_job(api: Api, job_id: str = "job-1", state: JobState = JobState.RUNNING, **fields: object) -> JobPaths:
    started = None if state is JobState.QUEUED else STARTED_AT
    given = {"created_at": STARTED_AT, "started_at": started, "name": job_id} | fields
    api.jobs.insert(Job(id=job_id, state=state, **given))  # type: ignore[arg-type]
    paths = api.paths.job(job_id)
    for folder in (paths.root, paths.recorder, paths.control, paths.output):
        folder.mkdir(parents=True, exist_ok=True)
    paths.spec.write_text("stage: sft\n")
    append_event(paths.events, StateChanged(at=STARTED_AT, state=state))
    return paths
