"""A specification in, the fastest settings that do the same training out: measured by short trials on the real GPUs.

Trials run inside ordinary jobs of task trial (one for each group of settings that needs a fresh process), so they are
visible, stoppable and diagnosed like any job. This module asks (planning/tuning.py decides what), waits and reads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from backend.domain.gpu import Device
from backend.domain.job import Job, JobState, StopMode
from backend.domain.problem import ArgValue
from backend.errors import Conflict, InvalidInput
from backend.planning.groups import own_tags
from backend.planning.spec import apply_changes, parse_spec
from backend.planning.speed import SpeedContext
from backend.planning.tuning import (
    Outcome,
    Search,
    Trial,
    TrialResult,
    TuningReport,
    begin_search,
    best_result,
    close_leaders,
    next_trial,
    report_search,
    steps_of,
)
from backend.planning.variants import build_fix
from backend.services.forecast import Forecaster
from backend.store.files import append_line
from backend.store.json_lines import JsonLines
from backend.store.paths import JobPaths

BUDGET_SECONDS = 480.0
POLL_SECONDS = 0.2
START_SECONDS = 900.0
"""How long a trial job may wait in the queue for its GPUs; the budget counts from its start."""


class Jobs(Protocol):
    """What the tuner needs of services.api.Api."""

    def submit(self, spec_text: str) -> Job: ...
    def get_job(self, job_id: str) -> Job: ...
    def job_paths(self, job_id: str) -> JobPaths: ...
    def request_stop(self, job_id: str, mode: StopMode) -> Job: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What happened last, for the page and the command line. `event`: job, begin, result, end."""

    event: str
    text: str
    seconds: float
    trial: Trial | None = None
    result: TrialResult | None = None
    job: str = ""
    report: TuningReport | None = None
    """Everything measured so far, with each result."""


EnergyReader = Callable[[Sequence[str], float, float], float | None]
"""(device ids, from, to in Unix seconds) -> joules of these devices, None when not measured."""


@dataclass
class Tuner:
    """One search. `run` blocks until it is over; `stop` may be called from another thread."""

    api: Jobs
    forecaster: Forecaster
    budget_seconds: float = BUDGET_SECONDS
    devices: Sequence[Device] = ()
    on_progress: Callable[[Progress], None] = lambda _: None
    read_energy: EnergyReader = lambda _devices, _begin, _end: None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    jobs: list[str] = field(default_factory=list)
    """Ids of the jobs that were submitted, oldest first."""
    tag: str = ""
    """Put on every trial job, so that it can be told from other runs and leads to its search."""
    job_of: dict[str, str] = field(default_factory=dict)
    """Trial to the job that measured it last."""
    _stopped: bool = False
    _begun: float = 0.0
    _queued: float = 0.0

    def run(self, spec_text: str) -> TuningReport:
        """Search at most `budget_seconds` (waiting in the queue not counted). Raises InvalidInput when there is nothing to
        search in, and what submitting a job raises (SpecRejected, EnvironmentFault, StoreFault)."""
        context = self._context(spec_text)
        search = begin_search(context)
        self._begun, self._queued = self.clock(), 0.0
        stopped = ""
        session: _Session | None = None
        try:
            while not self._stopped:
                loaded = session.group if session else ""
                trial = next_trial(search, seconds_left=self.budget_seconds - self._spent(), loaded_group=loaded)
                if trial is None:
                    break
                if session is None or session.group != trial.group:
                    self._end(session)
                    session = self._open(spec_text, context, trial)
                search, alive = self._measure(search, session, trial)
                if not alive:
                    stopped = self._why_stopped(session)
                    session = None
                    if stopped:
                        break
            if session is not None and not self._stopped:
                search, session = self._play_off(search, session)
            if session is not None and not self._stopped:
                search = self._base_again(search, session)
        finally:
            self._end(session)
        stopped = stopped or ("stopped by a person" if self._stopped else "")
        report = self._report(search, stopped)
        self._tell("end", f"{len(search.results)} trials measured", report=report)
        return report

    def _report(self, search: Search, stopped: str = "") -> TuningReport:
        bench = self.forecaster.benches.latest()
        return report_search(
            search, seconds=self._spent(), stopped=stopped, measured_matmul=bench.matmul_flops if bench else None
        )

    def stop(self) -> None:
        """End after the present trial's step; what was measured is reported."""
        self._stopped = True

    def _context(self, spec_text: str) -> SpeedContext:
        spec = parse_spec(spec_text)
        try:
            self.forecaster.environments.describe(spec.environment)
            self.forecaster.row_lengths.count(spec)
        finally:
            context, notes = self.forecaster.context(spec, self.devices)
        if context.shape is None:
            raise InvalidInput(
                "model_name_or_path",
                found=str(spec.train.get("model_name_or_path")),
                expected="a model whose config.json is here, or a well-known name",
                remedy=" ".join(notes),
            )
        return context

    def _spent(self) -> float:
        return self.clock() - self._begun - self._queued

    # --- one job -------------------------------------------------------------------------------------------------------

    def _open(self, spec_text: str, context: SpeedContext, trial: Trial) -> _Session:
        """Submit the job of a group; its own settings are those that need a fresh process."""
        group = replace(
            context.work,
            zero_stage=trial.work.zero_stage,
            offload_optimizer=trial.work.offload_optimizer,
            offload_param=trial.work.offload_param,
            compile=trial.work.compile,
        )
        fix = build_fix(context.work, group)
        name = f"tune-{context.spec.name}-{trial.group}"
        changes: dict[str, ArgValue] = {**fix.set, "tunedeck.task": "trial", "tunedeck.name": name}
        if self.tag:
            changes["tunedeck.tags"] = [*own_tags(context.spec.tags), self.tag]
        job = self.api.submit(apply_changes(spec_text, changes, present_names(spec_text, fix.remove)))
        self.jobs.append(job.id)
        paths = self.api.job_paths(job.id)
        self._tell("job", f"{name}: {job.id}", job=job.id)
        return _Session(group=trial.group, job=job.id, paths=paths, results=JsonLines(paths.trials_done))

    def _measure(
        self, search: Search, session: _Session, trial: Trial, *, more: bool = False
    ) -> tuple[Search, bool]:  # fmt: skip
        """Ask one trial and wait for its result; False when the job ended with it."""
        warm_up, steps = steps_of(trial.predicted.seconds)
        seconds = max(6.0, self.budget_seconds / 16)
        asked = {
            "id": trial.id, "changes": _trainer_changes(trial), "warm_up": warm_up, "steps": steps, "seconds": seconds,
        }  # fmt: skip
        append_line(session.paths.trials_asked, json.dumps(asked))
        self.job_of[trial.id] = session.job
        self._tell("begin", trial.label, trial=trial, job=session.job)
        record = self._wait(session, trial.id)
        if record is None:
            job = self.api.get_job(session.job)
            ended = job.state is JobState.CANCELLED  # a person stopped it, or we did
            outcome = Outcome.STOPPED if ended else Outcome.LOST
            result = TrialResult(trial=trial.id, outcome=outcome, error=job.message or job.state.value)
        else:
            result = parse_result(record, self._energy(session, record))
        search = search.add(result) if more else search.tell(result)
        self._tell(
            "result", _summary(trial, result), trial=trial, result=result, job=session.job, report=self._report(search)
        )
        return search, record is not None and not self._over(session)

    def _play_off(self, search: Search, session: _Session) -> tuple[Search, _Session | None]:
        """Candidates too close to tell are measured once more, one right after the other: a host's mood changes with time."""
        for trial in close_leaders(search):
            first = next(result for result in search.results if result.trial == trial.id)
            if trial.group != session.group or self.budget_seconds - self._spent() < 1.5 * first.wall_seconds:
                continue
            search, alive = self._measure(search, session, trial, more=True)
            if not alive:
                return search, None
        return search, session

    def _base_again(self, search: Search, session: _Session) -> Search:
        """The present settings once more: as the first trial of a fresh process they were measured with everything cold, and
        the gain would be flattered by that."""
        first = next((result for result in search.results if result.trial == search.base.id), None)
        best = best_result(search)
        if first is None or first.outcome is not Outcome.OK or best is None or best.trial == search.base.id:
            return search
        if session.group != search.base.group or self.budget_seconds - self._spent() < 1.2 * first.wall_seconds:
            return search
        return self._measure(search, session, search.base)[0]

    def _wait(self, session: _Session, trial_id: str) -> Mapping[str, object] | None:
        """The trial's result line; None when the job ended (or never started) without one."""
        waiting = self.clock()
        while True:
            for record in session.results.read_new():
                if record.get("k") == "result" and record.get("id") == trial_id:
                    return record
            job = self.api.get_job(session.job)
            if job.started_at is None:
                self._queued += self.clock() - waiting
                if self._queued > START_SECONDS:
                    minutes = f"{START_SECONDS / 60:.0f} min"
                    raise Conflict(
                        f"Trial job {session.job} had to wait for other runs for more than {minutes}. "
                        "Tune again when they have ended."
                    )
            waiting = self.clock()
            if job.state.is_final:
                rest = [r for r in session.results.read_new() if r.get("k") == "result" and r.get("id") == trial_id]
                return rest[-1] if rest else None
            if self._stopped or self._spent() > self.budget_seconds + 60:
                self.api.request_stop(session.job, StopMode.NO_SAVE)
                self._stopped = True
            self.sleep(POLL_SECONDS)

    def _energy(self, session: _Session, record: Mapping[str, object]) -> float | None:
        begin, end = record.get("from"), record.get("to")
        devices = self.api.get_job(session.job).devices
        if not isinstance(begin, float) or not isinstance(end, float) or not devices:
            return None
        return self.read_energy(devices, begin, end)

    def _over(self, session: _Session) -> bool:
        return self.api.get_job(session.job).state.is_final

    def _why_stopped(self, session: _Session) -> str:
        """A person's stop of the job ends the whole search; a crash only its trial."""
        job = self.api.get_job(session.job)
        return "stopped by a person" if job.state is JobState.CANCELLED else ""

    def _end(self, session: _Session | None) -> None:
        """Let the job end by itself, and see that it does: the next group needs its GPUs."""
        if session is None or self._over(session):
            return
        append_line(session.paths.trials_asked, json.dumps({"end": True}))
        deadline = self.clock() + 60
        while not self._over(session):
            if self.clock() > deadline:
                self.api.request_stop(session.job, StopMode.KILL)
                deadline = self.clock() + 60
            self.sleep(POLL_SECONDS)

    def _tell(self, event: str, text: str, **more: object) -> None:
        self.on_progress(Progress(event=event, text=text, seconds=self._spent(), **more))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Session:
    """One running trial job."""

    group: str
    job: str
    paths: JobPaths
    results: JsonLines


def _trainer_changes(trial: Trial) -> dict[str, ArgValue]:
    """The trial's changes of the trainer's own arguments; ZeRO and compile are settings of the group's job."""
    left_out = ("tunedeck.", "torch_compile", "deepspeed")
    return {name: value for name, value in trial.fix.set.items() if not name.startswith(left_out)}


def present_names(spec_text: str, names: Sequence[str]) -> list[str]:
    """Keys to remove that the document has."""
    spec = parse_spec(spec_text)
    has_zero = spec.zero.stage is not None
    return [name for name in names if name in spec.train or (name == "tunedeck.zero" and has_zero)]


def parse_result(record: Mapping[str, object], energy: float | None = None) -> TrialResult:
    """A result line of trials.jsonl. Raises InvalidInput for a line of another kind."""
    try:
        outcome = Outcome(str(record["outcome"]))
        peak = record.get("peak_bytes")
        tokens = tuple(None if value is None else int(str(value)) for value in _list(record, "tokens"))
        counted = sum(count or 0 for count in tokens)
        return TrialResult(
            trial=str(record["id"]),
            outcome=outcome,
            error=str(record.get("error") or ""),
            step_seconds=tuple(float(str(value)) for value in _list(record, "step_seconds")),
            tokens=tokens,
            padding=tuple(None if value is None else int(str(value)) for value in _list(record, "padding")),
            samples_per_step=int(str(record.get("samples_per_step") or 0)),
            peak_bytes=peak if isinstance(peak, int) else None,
            wall_seconds=float(str(record.get("wall_seconds") or 0)),
            energy_joules=energy,
            energy_windows=(energy / counted,) if energy is not None and counted else (),
        )
    except (KeyError, ValueError) as error:
        raise InvalidInput("trials.jsonl", found=str(record)[:200], expected="a result line") from error


def _list(record: Mapping[str, object], name: str) -> list[object]:
    value = record.get(name)
    return value if isinstance(value, list) else []


def _summary(trial: Trial, result: TrialResult) -> str:
    rate = result.tokens_per_second
    if result.outcome is not Outcome.OK or rate is None:
        return f"{trial.label}: {result.outcome.value} {result.error}".rstrip()
    spread = f" ± {result.spread:.0%}" if result.spread is not None else ""
    return f"{trial.label}: {rate:,.0f} tokens/s{spread}"


def report_table(report: TuningReport) -> str:
    """The result as a table for terminals and Markdown: measured rows, best first, then what was left out."""
    lines = [
        "| settings | tokens/s | ± | samples/s | peak GiB | MFU | J/token | ± | estimate tokens/s | outcome |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in report.rows:
        result = row.result
        if result is None:
            continue
        lines.append(
            "| "
            + " | ".join(
                (
                    row.trial.label,
                    _cell(row.tokens_per_second, ",.0f"),
                    _cell(result.spread, ".0%"),
                    _cell(row.samples_per_second, ",.1f"),
                    _cell(None if result.peak_bytes is None else result.peak_bytes / (1 << 30), ".1f"),
                    _cell(row.use.of_peak if row.use else None, ".1%"),
                    _cell(row.joules_per_token, ".3f"),
                    _cell(result.energy_spread, ".0%"),
                    _cell(row.trial.predicted.tokens_per_second * row.trial.work.world, ",.0f"),
                    result.outcome.value + (f": {result.error[:60]}" if result.error else ""),
                )
            )
            + " |"
        )
    return "\n".join(lines) + "\n"


def _cell(value: float | None, pattern: str) -> str:
    return "-" if value is None else format(value, pattern)


def best_text(report: TuningReport, spec_text: str) -> str:
    """The specification with the best settings, comments kept; unchanged when nothing better was found."""
    fix = report.best_fix
    return spec_text if fix is None else apply_changes(spec_text, fix.set, present_names(spec_text, fix.remove))


def save_report(report: TuningReport, spec_text: str, folder: Path) -> Path:
    """`tuning.md` and `best.yaml` in `folder`; returns the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    gain = "" if report.gain is None else f"Best over present settings: {report.gain:.2f} times.\n\n"
    (folder / "tuning.md").write_text(f"{gain}{report_table(report)}", "utf-8")
    best = folder / "best.yaml"
    best.write_text(best_text(report, spec_text), "utf-8")
    return best
