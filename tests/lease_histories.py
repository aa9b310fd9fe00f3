"""Seeded random histories of the lease table: acquire, release, refusal, killed transaction, worker restart."""

from __future__ import annotations

import random
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from backend.domain.gpu import Device
from backend.domain.job import Job, JobState
from backend.errors import Conflict
from backend.planning.leases import DeviceState, choose_devices
from backend.store.database import Database
from backend.store.jobs import JobTable

DEVICES = tuple(Device(id=f"0000:{n:02x}:00.0", vendor="amd", hip_id=n) for n in range(8))


@dataclass
class History:
    """A table beside a plain model of who should hold what; `check` compares them."""

    path: Path
    seed: int
    held: dict[str, set[str]] = field(default_factory=dict)
    granted: int = 0
    refused: int = 0
    crashes: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.table = JobTable(Database(self.path))
        self.jobs = 0

    def play_sequence(self) -> None:
        """A few random acts, then everything ends: not one lease may be left."""
        for _ in range(self.chance.randrange(3, 8)):
            act = self.chance.choices(
                [self.acquire, self.release, self.kill_in_transaction, self.restart], [6, 2, 1, 1]
            )[0]
            act()
            self.check()
        while self.held:
            self.release()
        self.check()

    def acquire(self) -> None:
        """Half of the time as the queue does (a free set), half of the time any set, as a worker with old knowledge would."""
        leases = self.table.leases()
        count = self.chance.randrange(1, 5)
        if self.chance.random() < 0.5:
            states = [DeviceState(device=device, leased_by=leases.get(device.id, "")) for device in DEVICES]
            wanted = choose_devices(count, states).devices
            assert not set(wanted) & leases.keys()
        else:
            wanted = tuple(device.id for device in self.chance.sample(DEVICES, count))
        if not wanted:
            return
        self.jobs += 1
        job = self.table.insert(Job(id=f"job{self.jobs}", name="x", state=JobState.QUEUED)).id
        taken = {device for devices in self.held.values() for device in devices}
        try:
            self.table.lease(job, wanted)
            assert not taken & set(wanted), "leased twice"
            self.held[job] = set(wanted)
            self.granted += 1
        except Conflict:
            assert taken & set(wanted), "refused a free set"
            self.refused += 1
            self.table.transition(job, [JobState.QUEUED], JobState.CANCELLED)

    def release(self) -> None:
        """The job ends in some final state."""
        if self.held:
            job = self.chance.choice(list(self.held))
            end = self.chance.choice([JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.LOST])
            self.table.transition(job, [JobState.STARTING], end)
            del self.held[job]

    def kill_in_transaction(self) -> None:
        """A process dies after writing half of a lease: nothing of it may remain."""
        dying = sqlite3.connect(self.path, isolation_level=None)
        dying.execute("begin immediate")
        free = [device.id for device in DEVICES if device.id not in self.table.leases()]
        for device in free[:2]:
            dying.execute("insert into leases (device, job_id) values (?, 'dead')", (device,))
        dying.close()
        self.crashes += 1

    def restart(self) -> None:
        """A new worker opens the file and finds some jobs gone."""
        self.table = JobTable(Database(self.path))
        for job in list(self.held):
            if self.chance.random() < 0.5:
                self.table.transition(job, [JobState.STARTING], JobState.LOST)
                del self.held[job]
        self.crashes += 1

    def check(self) -> None:
        expected = {device: job for job, devices in self.held.items() for device in devices}
        assert self.table.leases() == expected
        assert len(expected) == sum(len(devices) for devices in self.held.values())
