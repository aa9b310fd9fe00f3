"""A wish to check cards and links in, host check jobs out; and what a page shows of them: free cards, running checks, figures.

A card that somebody uses is named and left alone: a check beside a run would slow the run, and measure the run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from backend.domain.bench import Drift, HostCheck
from backend.domain.job import Job, JobState
from backend.errors import Conflict, InvalidInput
from backend.planning.drift import Comparison, find_drift, find_usual
from backend.planning.leases import DeviceState, hindrance
from backend.planning.profiles import Profile, build_profiles
from backend.services.api import Api
from backend.services.bench import HOST_CHECK, BenchStore
from backend.services.gpus import GpuService
from backend.services.views import JobRow, job_row
from backend.store.files import read_json

CPU_RANKS = 2
MOST_RANKS = 16
MOST_PROFILES = 4
MOST_SHOWN = 50
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchWish:
    """`gpus` empty = every free card; `processes` only on a host without cards. One check for each of `profiles`, one after
    the other on the same cards; `env` are the variables of a profile that is not among the known ones."""

    gpus: tuple[str, ...] = ()
    processes: int | None = None
    profiles: tuple[str, ...] = ("plain",)
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchCard:
    """`why` is "" for a free card, else the word of a `Hindrance`; `job`, `job_name` or `process` say who has it."""

    id: str
    name: str
    index: int | None
    why: str
    job: str = ""
    job_name: str = ""
    process: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCheck:
    """`usual`: every figure that earlier checks allow to compare; `drift`: those of them that are an alarm."""

    check: HostCheck
    usual: tuple[Drift, ...]
    drift: tuple[Drift, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCheck:
    """`part`: matrix, memory, launch, links, or "" (not begun, or loading torch)."""

    job: JobRow
    part: str = ""
    device: str = ""
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchView:
    """`checks` newest first. `failed`: the newest check of all, when it left no figures."""

    cards: tuple[BenchCard, ...]
    profiles: tuple[Profile, ...]
    running: tuple[RunningCheck, ...]
    checks: tuple[KeptCheck, ...]
    failed: JobRow | None


class Benches:
    """Host checks of this installation. Thread-safe, as its parts are."""

    def __init__(self, api: Api, gpus: GpuService) -> None:
        self.api, self.gpus, self.store = api, gpus, BenchStore(api.paths)

    def view(self) -> BenchView:
        checks = self.store.checks()
        kept = [
            KeptCheck(check=check, usual=find_usual(check, checks[:at]), drift=find_drift(check, checks[:at]))
            for at, check in enumerate(checks)
        ]
        jobs = self.api.list_jobs(tags=(HOST_CHECK,), limit=20)[1]
        newest = jobs[0] if jobs else None
        bad = newest is not None and newest.state in (JobState.FAILED, JobState.LOST)
        return BenchView(
            cards=tuple(self._card(state) for state in self._states()),
            profiles=self.profiles(),
            running=tuple(self._running(job) for job in reversed(jobs) if not job.state.is_final),
            checks=tuple(kept[::-1][:MOST_SHOWN]),
            failed=job_row(newest) if newest and bad else None,
        )

    def profiles(self) -> tuple[Profile, ...]:
        """What this host's cards may be checked with; the plain one first."""
        states = self._states()
        gfx = states[0].device.gfx_target if states else ""
        return build_profiles(gfx, len(states), nodes=2)

    def start(self, wish: BenchWish) -> tuple[Job, ...]:
        """Queue one check for each profile. Raises InvalidInput, and Conflict naming who uses a card."""
        environments = self._environments(wish)
        states = self._states()
        gpus = self._free(states, wish.gpus) if states else ()
        if not states:
            self._require_idle_cpu(wish)
        processes = None if states else wish.processes or CPU_RANKS
        return tuple(
            self.store.submit(self.api, gpus=gpus, processes=processes, env=env, profile=name)
            for name, env in environments.items()
        )

    def compare(self, first_job: str, second_job: str) -> tuple[Comparison, ...]:
        """All-reduce of two kept checks, size by size. Raises InvalidInput."""
        return self.store.compare(first_job, second_job)

    # --- cards ---------------------------------------------------------------------------------------------------------

    def _states(self) -> tuple[DeviceState, ...]:
        return self.gpus.states(self.api.jobs.leases())

    def _card(self, state: DeviceState) -> BenchCard:
        why, device = hindrance(state), state.device
        foreign = ", ".join(f"{process.name or 'process'} {process.pid}" for process in state.foreign[:3])
        return BenchCard(
            id=device.id,
            name=device.name,
            index=device.hip_id if device.hip_id is not None else device.smi_index,
            why=why.value if why else "",
            job=state.leased_by,
            job_name=self._job_name(state.leased_by),
            process=foreign,
        )

    def _job_name(self, job_id: str) -> str:
        return next((job.name for job in self.api.jobs.in_states(*_ACTIVE) if job.id == job_id), "")

    def _free(self, states: Sequence[DeviceState], wanted: Sequence[str]) -> tuple[str, ...]:
        known = {state.device.id: state for state in states}
        for device in wanted:
            if device not in known:
                raise InvalidInput("gpus", found=repr(device), expected=f"cards of this host: {', '.join(known)}")
        free = [device for device in (wanted or known) if hindrance(known[device]) is None]
        busy = [known[device] for device in (wanted or known) if device not in free]
        if busy and (wanted or not free):
            names = "; ".join(self._who(state) for state in busy)
            raise Conflict(f"Not free, so not checked: {names}. Choose other cards, or wait until these are free.")
        return tuple(free)

    def _who(self, state: DeviceState) -> str:
        card = self._card(state)
        who = f"run {card.job_name or card.job}" if card.job else card.process or card.why.replace("_", " ")
        return f"{card.id} ({who})"

    def _require_idle_cpu(self, wish: BenchWish) -> None:
        if wish.gpus:
            raise InvalidInput("gpus", found=", ".join(wish.gpus), expected="no cards: this host has no GPU")
        if wish.processes is not None and not 1 <= wish.processes <= MOST_RANKS:
            raise InvalidInput("processes", found=str(wish.processes), expected=f"1 to {MOST_RANKS} ranks")
        if active := self.api.jobs.in_states(*_ACTIVE):
            names = ", ".join(job.name for job in active)
            raise Conflict(
                f"The CPU is at work on {names}: a check now would slow it, and measure it. Wait for its end."
            )

    # --- profiles ------------------------------------------------------------------------------------------------------

    def _environments(self, wish: BenchWish) -> dict[str, Mapping[str, str]]:
        known = {profile.name: profile.env for profile in self.profiles()}
        if not 1 <= len(wish.profiles) <= MOST_PROFILES:
            raise InvalidInput("profiles", found=f"{len(wish.profiles)} names", expected=f"1 to {MOST_PROFILES}")
        if wish.env and all(name in known for name in wish.profiles):
            expected = "a name of your own for variables of your own, so that figures are compared with the right ones"
            raise InvalidInput("profiles", found=", ".join(wish.profiles), expected=expected)
        found: dict[str, Mapping[str, str]] = {}
        for name in wish.profiles:
            if name in known:
                found[name] = known[name]
            elif wish.env and _NAME.fullmatch(name):
                found[name] = wish.env
            else:
                expected = f"one of {', '.join(known)}, or another name (a-z, 0-9, - and _) together with its variables in `env`"
                raise InvalidInput("profiles", found=repr(name), expected=expected)
        return found

    def _running(self, job: Job) -> RunningCheck:
        found = read_json(self.api.paths.job(job.id).bench_progress)
        record = found if isinstance(found, dict) else {}
        size = record.get("bytes")
        return RunningCheck(
            job=job_row(job),
            part=str(record.get("part") or ""),
            device=str(record.get("device") or ""),
            bytes=size if isinstance(size, int) else None,
        )


_ACTIVE = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
