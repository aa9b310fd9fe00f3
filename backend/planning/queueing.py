"""The waiting line and what is free in, the jobs to start now (with their devices) out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backend.domain.job import Job
from backend.planning.groups import is_measuring


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start `job` on `devices` (empty on a CPU host)."""

    job: Job
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What this host has: `free` devices in the order of preference out of `total`, or CPU slots when there is no device."""

    total: tuple[str, ...]
    free: tuple[str, ...]
    cpu_slots: int
    cpu_used: int


def count_slots(job: Job, cpu_slots: int) -> int:
    """CPU slots that a job takes: one a process; all of them when it measures the host, which only tells something alone."""
    return max(job.processes, cpu_slots) if is_measuring(job.tags) else job.processes


def first_free(count: int, free: Sequence[str]) -> tuple[str, ...]:
    """The simplest choice."""
    return tuple(free[:count])


def plan_starts(
    queue: Sequence[Job],
    wanted: Callable[[Job], tuple[str, ...]],
    capacity: Capacity,
    choose: Callable[[int, Sequence[str]], tuple[str, ...]] = first_free,
) -> list[Start]:
    """First in, first out within a priority. `wanted` gives the devices a job names itself (empty: any); `choose` picks
    the best `count` of the free ones (fewer when they are busy with something else, and then the job waits).

    A job that has to wait keeps what it waits for: no later job may take those devices, so a big job is never starved by
    small ones, while jobs on other cards pass by.
    """
    if not capacity.total:
        return _plan_on_cpu(queue, capacity)
    free, starts = list(capacity.free), []
    for job in queue:
        named = wanted(job)
        devices = named if named else choose(job.processes, free)
        if len(devices) >= job.processes and set(devices) <= set(free):
            starts.append(Start(job=job, devices=devices))
            free = [device for device in free if device not in devices]
        elif named:
            free = [device for device in free if device not in named]
        else:
            break
    return starts


def _plan_on_cpu(queue: Sequence[Job], capacity: Capacity) -> list[Start]:
    used, starts = capacity.cpu_used, []
    for job in queue:
        # A job larger than the host runs alone rather than never.
        if used and used + count_slots(job, capacity.cpu_slots) > capacity.cpu_slots:
            break
        starts.append(Start(job=job, devices=()))
        used += count_slots(job, capacity.cpu_slots)
    return starts
