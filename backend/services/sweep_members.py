"""A sweep in, the jobs of each of its runs out: the first one, and those that went on from it after a stop.

Who goes on from whom is read from the jobs' own tags and parents, so that no crash between two writes can lose a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.domain.job import Job
from backend.errors import NotFound
from backend.planning.groups import SWEEP_TAG
from backend.planning.sweeping import Values
from backend.services.api import Api
from backend.store.sweeps import Sweep

_MOST_JOBS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One run of a sweep. `jobs`: oldest first, never empty; each goes on from the one before it, or repeats it."""

    values: Values
    jobs: tuple[Job, ...]

    @property
    def now(self) -> Job:
        return self.jobs[-1]


def load_members(api: Api, sweep: Sweep) -> list[Member]:
    """In the order of submission; runs that were deleted are left out."""
    tagged = load_tagged(api, sweep.id)
    followers: dict[str, Job] = {}
    for job in sorted(tagged.values(), key=lambda job: (job.created_at, job.id)):
        if job.parent and job.id not in sweep.jobs:
            followers[job.parent] = job
    chains = ((_chain(_first(api, tagged, name), name, followers), values) for name, values in sweep.jobs.items())
    return [Member(values=values, jobs=jobs) for jobs, values in chains if jobs]


def load_tagged(api: Api, sweep_id: str) -> dict[str, Job]:
    """Every job with the sweep's tag."""
    return {job.id: job for job in api.list_jobs(tags=(f"{SWEEP_TAG}{sweep_id}",), limit=_MOST_JOBS)[1]}


def adopt(sweep: Sweep, tagged: Sequence[Job]) -> Mapping[str, str]:
    """Number of a waiting run to the job that was queued for it before somebody died: found by its name."""
    by_name = {job.name: job.id for job in tagged if job.id not in sweep.jobs and job.parent not in sweep.jobs}
    return {
        number: by_name[run_name(sweep.name, number)]
        for number in sweep.waiting
        if run_name(sweep.name, number) in by_name
    }


def run_name(name: str, number: str) -> str:
    return f"{name}-s{int(number):02d}"


def _first(api: Api, tagged: Mapping[str, Job], name: str) -> Job | None:
    if name in tagged:
        return tagged[name]
    try:
        return api.get_job(name)  # its tags were edited
    except NotFound:
        return None


def _chain(first: Job | None, name: str, followers: Mapping[str, Job]) -> tuple[Job, ...]:
    found, seen = ([first] if first else []), {name}
    while (after := followers.get(name)) is not None and after.id not in seen:
        found.append(after)
        name = after.id
        seen.add(name)
    return tuple(found)
