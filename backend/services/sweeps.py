"""A specification and ranges of settings in, a group of jobs out: queued together, stopped early by eval loss, stopped and
resumed as one. Everything of a run is read from its jobs; store/sweeps.py keeps who belongs together.

Whoever dies while a sweep is being queued, the worker queues the rest: each run
once, because each is looked for by its name first.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from backend.domain.job import Job, StopMode
from backend.domain.problem import ArgValue
from backend.errors import Conflict, InvalidInput, SpecRejected, TunedeckError
from backend.planning.groups import SWEEP_TAG, own_tags
from backend.planning.spec import apply_changes, parse_spec
from backend.planning.sweep_ranges import parse_range as parse_range
from backend.planning.sweeping import Range, Values, build_combinations, runs_to_stop
from backend.services.api import Api
from backend.services.sweep_members import Member, adopt, load_members, load_tagged, run_name
from backend.services.sweep_view import SweepReader, SweepView, may_resume
from backend.store.sweeps import Sweep, SweepStore

log = logging.getLogger(__name__)


class Sweeps:
    """All sweeps of this installation."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.store = SweepStore(api.paths.sweeps)
        self.reader = SweepReader(api)

    def start(
        self, spec_text: str, ranges: Sequence[Range], *, samples: int | None = None, seed: int = 0, early_stop: bool = False
    ) -> Sweep:  # fmt: skip
        """Check every combination, then queue them all. Raises InvalidInput, SpecRejected naming the first bad combination."""
        spec = parse_spec(spec_text)
        if early_stop and spec.train.get("eval_strategy", "no") == "no":
            raise InvalidInput(
                "eval_strategy", found="no evaluation", expected="steps or epoch, with eval_dataset or val_size",
                remedy="Early stopping compares eval losses.",
            )  # fmt: skip
        combinations = build_combinations(ranges, samples=samples, seed=seed)
        sweep = Sweep(
            id=new_sweep_id(spec.name, self.api.clock()), name=spec.name, created_at=self.api.clock(),
            keys=tuple(each.key for each in ranges), early_stop=early_stop, jobs={},
            waiting={str(number): values for number, values in enumerate(combinations, 1)},
        )  # fmt: skip
        for number, values in sweep.waiting.items():
            self._check(build_run_text(spec_text, sweep, number), values)
        with self.store.locked(sweep.id):
            self.store.save_document(sweep.id, spec_text)
            self.store.save(sweep)
            try:
                return self._queue(sweep)
            except TunedeckError:
                self.store.halt(sweep.id)  # whoever asked is told; the rest waits for a resume, not for a surprise
                raise

    def _check(self, text: str, values: Values) -> None:
        preview = self.api.preview(text)
        if preview.errors:
            first = preview.errors[0]
            where = ", ".join(f"{key}={value}" for key, value in values.items())
            raise SpecRejected(preview.problems, f"{where}: {first.field}: {first.found}. {first.remedy}")

    def _queue(self, sweep: Sweep) -> Sweep:
        """Queue what waits, one after the other, each known on disk before the next. The caller holds the lock."""
        if not sweep.waiting:
            return sweep
        text = self.store.document(sweep.id)
        known = adopt(sweep, list(load_tagged(self.api, sweep.id).values()))
        for number, values in list(sweep.waiting.items()):
            if number not in known and self.store.is_halted(sweep.id):
                continue
            job_id = known.get(number) or self.api.submit(build_run_text(text, sweep, number)).id
            rest = {each: left for each, left in sweep.waiting.items() if each != number}
            sweep = replace(sweep, jobs={**sweep.jobs, job_id: values}, waiting=rest)
            self.store.save(sweep)
        return sweep

    def get(self, sweep_id: str) -> Sweep:
        """Raises NotFound."""
        return self.store.get(sweep_id)

    def every(self) -> list[Sweep]:
        """Newest first."""
        return self.store.every()

    def view(self, sweep_id: str) -> SweepView:
        """Best first. Raises NotFound."""
        sweep = self.store.get(sweep_id)
        return self.reader.view(sweep, load_members(self.api, sweep), halted=self.store.is_halted(sweep_id))

    def stop(self, sweep_id: str) -> SweepView:
        """End every run that has not ended: waiting ones are cancelled, running ones save a checkpoint first."""
        self.store.get(sweep_id)
        self.store.halt(sweep_id)
        with self.store.locked(sweep_id):
            for member in load_members(self.api, self.store.get(sweep_id)):
                if not member.now.state.is_final:
                    self._end(member.now)
        return self.view(sweep_id)

    def resume(self, sweep_id: str, *, failed: bool = False) -> SweepView:
        """Queue what was never queued, and let stopped, cancelled and lost runs go on from their last checkpoint, or begin
        anew without one; with `failed` failed ones too. Runs that stopped early stay so. Raises Conflict when there is none."""
        self.store.get(sweep_id)
        with self.store.locked(sweep_id):
            self.store.go_on(sweep_id)
            before = self.store.get(sweep_id)
            again = [each for each in load_members(self.api, before) if may_resume(before, each, failed=failed)]
            if not again and not before.waiting:
                raise Conflict("No run of this sweep can be resumed: all have finished, stopped early or are at work.")
            for member in again:
                self.api.submit(self._resume_text(before, member))
            self._queue(before)
        return self.view(sweep_id)

    def _resume_text(self, sweep: Sweep, member: Member) -> str:
        """From the newest checkpoint; without one from the checkpoint that this job itself went on from, or from the start."""
        job = member.now
        try:
            text = self.api.resume_text(job.id, self.api.last_checkpoint(job.id))
        except Conflict:
            text = apply_changes(self.api.read_spec_text(job.id), {"tunedeck.parent": job.id})
        tags: list[ArgValue] = [*own_tags(job.tags), f"{SWEEP_TAG}{sweep.id}"]
        return apply_changes(text, {"tunedeck.tags": tags})

    def best_text(self, sweep_id: str) -> str:
        """The specification of the best run, as a job of its own. Raises Conflict while no run has a loss."""
        view = self.view(sweep_id)
        best = next((row for row in view.rows if row.best), None)
        if best is None:
            raise Conflict("No run of this sweep has a loss yet.")
        return apply_changes(self.api.clone_text(best.job), {"tunedeck.name": f"{view.sweep.name}-best"})

    def launch(self, sweep_id: str) -> Job:
        """A job with the best settings, from the start. Raises Conflict and what submitting raises."""
        return self.api.submit(self.best_text(sweep_id))

    def beat(self) -> list[str]:
        """The worker's part: queue what a dead process left waiting, stop early; returns the jobs that were stopped now."""
        stopped = []
        for known in self.store.every():
            if not known.waiting and not known.early_stop:
                continue
            with self.store.locked(known.id, wait=False) as mine:
                if mine:
                    sweep = self._queue_rest(self.store.get(known.id))
                    stopped += self._stop_early(sweep) if sweep.early_stop else []
        return stopped

    def _queue_rest(self, sweep: Sweep) -> Sweep:
        """A run that is refused by now holds up its own sweep only."""
        try:
            return self._queue(sweep)
        except TunedeckError:
            log.exception("the rest of sweep %s cannot be queued", sweep.id)
            self.store.halt(sweep.id)
            return self.store.get(sweep.id)

    def _stop_early(self, sweep: Sweep) -> list[str]:
        members = load_members(self.api, sweep)
        if all(member.now.state.is_final for member in members):
            return []
        jobs = {member.now.id: member.now for member in members}
        behind = list(runs_to_stop([self.reader.trace(member) for member in members]))
        if behind:  # known first: a run that stopped for no known reason would be resumed
            self.store.save(replace(sweep, stopped_early=tuple(dict.fromkeys((*sweep.stopped_early, *behind)))))
        for name in behind:
            self._end(jobs[name])
        return behind

    def _end(self, job: Job) -> None:
        try:
            self.api.request_stop(job.id, StopMode.SAVE)
        except Conflict:
            return  # it ended by itself meanwhile


def new_sweep_id(name: str, now: float) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "sweep"
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{slug}-{secrets.token_hex(2)}"


def build_run_text(spec_text: str, sweep: Sweep, number: str) -> str:
    """The document of one run: its values, its name, the tag of its group and of no other."""
    tags: list[ArgValue] = [*own_tags(parse_spec(spec_text).tags), f"{SWEEP_TAG}{sweep.id}"]
    values: Mapping[str, ArgValue] = sweep.waiting[number]
    return apply_changes(spec_text, {**values, "tunedeck.name": run_name(sweep.name, number), "tunedeck.tags": tags})
