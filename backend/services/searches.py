"""A specification and a time budget in, a tuning search on disk out: started, watched, stopped and read from any process.

    tunings/<id>/spec.yaml   what is tuned          state.json  a SearchRecord, rewritten at each event
    tunings/<id>/stop        ask it to end          best.yaml, tuning.md  the result

The search runs in a process of its own (`app.py tune`), so that neither a page nor the dashboard has to stay.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace

from backend.adapters.process import ProcessIdentity, identify, is_alive, spawn_detached
from backend.domain.gpu import Device
from backend.domain.job import Job, JobState, StopMode
from backend.domain.problem import ArgValue
from backend.errors import Conflict, InvalidInput, NotFound, TunedeckError
from backend.planning.groups import TUNING_TAG
from backend.planning.spec import apply_changes, parse_spec
from backend.planning.tuning import TuningReport, TuningRow
from backend.services.api import Api
from backend.services.energy import read_energy
from backend.services.forecast import Forecaster
from backend.services.gpus import GpuService
from backend.services.tuning import BUDGET_SECONDS, Progress, Tuner, best_text, save_report
from backend.settings import REPOSITORY
from backend.store.files import held, read_json, write_json, write_text

LEAST_BUDGET_SECONDS, MOST_BUDGET_SECONDS = 30.0, 4 * 3600.0
KEPT_LOG_LINES = 200
ROUNDS_TO_WORKER = 10
_ERROR_LINE = re.compile(r"error:|\w*(Error|Fault|Rejected|Conflict|NotFound|Input)\b")
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRow:
    """One measured candidate. None = not measured or not reported; `estimate` is the step model's tokens a second."""

    label: str
    outcome: str
    changes: Mapping[str, ArgValue] = field(default_factory=dict)
    job: str = ""
    tokens_per_second: float | None = None
    spread: float | None = None
    samples_per_second: float | None = None
    rows_per_step: float | None = None
    peak_bytes: int | None = None
    mfu: float | None = None
    joules_per_token: float | None = None
    energy_spread: float | None = None
    """Of the times it was measured; None when once."""
    estimate: float | None = None
    error: str = ""
    base: bool = False
    best: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRecord:
    """State of one search. `state`: running, finished, stopped, failed. `event` and `now` say what it does at the moment:
    preparing, job, begin, result, end. `gain`: best over present settings, both measured."""

    id: str
    name: str
    state: str
    created_at: float
    budget_seconds: float
    pid: int | None = None
    start_ticks: int | None = None
    updated_at: float = 0.0
    seconds: float = 0.0
    event: str = "preparing"
    now: str = ""
    message: str = ""
    gain: float | None = None
    best: str = ""
    best_changes: Mapping[str, ArgValue] = field(default_factory=dict)
    packs_rows: bool = False
    """The best settings put several rows into one block, which the present ones do not: the loss is not the same number."""
    base_rows_per_step: float | None = None
    best_rows_per_step: float | None = None
    lengths_estimate: str = ""
    """How rows a step were estimated when the trainer's tokenizer could not count them."""
    candidates: int = 0
    excluded: int = 0
    """Candidates that cannot fit by the memory plan."""
    rows: tuple[SearchRow, ...] = ()
    jobs: tuple[str, ...] = ()


class Searches:
    """All tuning searches of this installation."""

    def __init__(self, api: Api, gpus: GpuService, *, clock: Callable[[], float] = time.time) -> None:
        self.api, self.gpus, self.clock = api, gpus, clock
        self.root = api.paths.tunings

    def create(self, spec_text: str, budget_seconds: float = BUDGET_SECONDS) -> SearchRecord:
        """Store a search, without starting it. Raises InvalidInput for a text or budget that cannot be used."""
        spec = parse_spec(spec_text)
        if not LEAST_BUDGET_SECONDS <= budget_seconds <= MOST_BUDGET_SECONDS:
            raise InvalidInput(
                "budget",
                found=f"{budget_seconds / 60:g} minutes",
                expected=f"{LEAST_BUDGET_SECONDS / 60:g} to {MOST_BUDGET_SECONDS / 60:g} minutes",
            )
        for name in ("model_name_or_path", "dataset"):
            if not spec.train.get(name) and not (name == "dataset" and spec.train.get("tokenized_path")):
                raise InvalidInput(name, found="nothing", expected="a value: trials train on the real model and data")
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(self.clock()))
        slug = re.sub(r"[^a-z0-9]+", "-", spec.name.lower()).strip("-")[:40] or "job"
        record = SearchRecord(
            id=f"{stamp}-{slug}-{secrets.token_hex(2)}", name=spec.name, state="running", created_at=self.clock(),
            budget_seconds=budget_seconds, updated_at=self.clock(),
        )  # fmt: skip
        folder = self.root / record.id
        folder.mkdir(parents=True)
        write_text(folder / "spec.yaml", spec_text, mode=0o600)  # secrets may stand in it: its trials need them
        self._save(record)
        return record

    def claim(self, spec_text: str, budget_seconds: float = BUDGET_SECONDS) -> SearchRecord:
        """`create`, one at a time: two searches would measure each other. Raises Conflict while another is at work."""
        self.root.mkdir(parents=True, exist_ok=True)
        with held(self.root / ".lock"):  # two who ask at once must not both find nobody
            if running := next((record for record in self.list() if record.state == "running"), None):
                raise Conflict(f"The tuner is at work on {running.name} ({running.id}). Stop it, or wait for its end.")
            return self.create(spec_text, budget_seconds)

    def start(self, spec_text: str, budget_seconds: float = BUDGET_SECONDS) -> SearchRecord:
        """`claim`, and run it in a process of its own."""
        record = self.claim(spec_text, budget_seconds)
        folder = self.root / record.id
        env = {**os.environ, "TUNEDECK_DATA": str(self.api.settings.data_dir)}
        if self.api.settings.training_python:
            env["TUNEDECK_TRAINING_PYTHON"] = str(self.api.settings.training_python)
        argv = [sys.executable, str(REPOSITORY / "app.py"), "tune", "--search", record.id]
        child = identify(spawn_detached(argv, log=folder / "tuner.log", env=env, cwd=folder))
        if child is not None and self.get(record.id).pid is None:
            self._save(replace(record, pid=child.pid, start_ticks=child.start_ticks))
        return self.get(record.id)

    def get(self, search_id: str) -> SearchRecord:
        """Raises NotFound. A search whose process is gone without a result has failed, and says so."""
        record = self._load(search_id)
        if record is None:
            raise NotFound(f"No tuning search has the id {search_id!r}.")
        if record.state == "running" and not self._lives(record):
            return replace(record, state="failed", message=record.message or self._last_words(record))
        return record

    def list(self) -> list[SearchRecord]:
        """Newest first."""
        names = sorted((path.name for path in self.root.glob("*") if path.is_dir()), reverse=True)
        return [record for name in names if (record := self._readable(name)) is not None]

    def spec_text(self, search_id: str) -> str:
        self.get(search_id)
        return (self.root / search_id / "spec.yaml").read_text("utf-8")

    def best_text(self, search_id: str) -> str:
        """The specification with the best settings found. Raises Conflict while there is none."""
        self.get(search_id)
        try:
            return (self.root / search_id / "best.yaml").read_text("utf-8")
        except FileNotFoundError as error:
            raise Conflict("The search has no result yet.") from error

    def launch(self, search_id: str) -> Job:
        """A job with the best settings. Raises what submitting raises."""
        return self.api.submit(self.best_text(search_id))

    def again(self, search_id: str) -> SearchRecord:
        """The same search from the start: same document, same budget. Raises what `start` raises."""
        record = self.get(search_id)
        return self.start(self.spec_text(search_id), record.budget_seconds)

    def request_stop(self, search_id: str) -> SearchRecord:
        """End after the present trial's step; what was measured is kept. Raises Conflict when it has ended."""
        record = self.get(search_id)
        if record.state != "running":
            raise Conflict(f"The search has ended already ({record.state}).")
        write_text(self.root / search_id / "stop", "")
        return record

    def end_orphans(self) -> Sequence[str]:
        """Cancel trial jobs that nobody asks any more, because their search has ended or died; returns their ids."""
        ended = []
        for job in self.api.jobs.in_states(JobState.QUEUED, JobState.STARTING, JobState.RUNNING):
            search_id = next((tag.removeprefix(TUNING_TAG) for tag in job.tags if tag.startswith(TUNING_TAG)), "")
            record = self._readable(search_id) if search_id else None
            if record is not None and record.state != "running":
                with suppress(Conflict):  # it ended by itself meanwhile
                    self.api.request_stop(job.id, StopMode.NO_SAVE)
                    ended.append(job.id)
        return ended

    # --- running -------------------------------------------------------------------------------------------------------

    def run(self, search_id: str, on_progress: Callable[[Progress], None] = lambda _: None) -> SearchRecord:
        """Search in this process until the end; errors are kept in the record and raised."""
        me = identify(os.getpid())
        begun = replace(self._existing(search_id), pid=os.getpid(), start_ticks=me.start_ticks if me else None)
        self._save(begun)
        state = _State(begun)
        text = (self.root / search_id / "spec.yaml").read_text("utf-8")
        self.api.ensure_worker()
        tuner = Tuner(
            self.api,
            Forecaster(self.api.settings, self.api.paths, self.api.environments),
            budget_seconds=begun.budget_seconds,
            devices=self._devices(text),
            read_energy=self._joules,
            tag=f"{TUNING_TAG}{search_id}",
        )

        def told(progress: Progress) -> None:
            state.report = progress.report or state.report
            state.record = follow(state.record, progress, tuner.jobs, self.clock(), tuner.job_of)
            self._save(state.record)
            if (
                progress.event == "result" and progress.report is not None
            ):  # whatever happens to us now, this can be launched
                self._save_best(record_id=begun.id, report=progress.report, text=text)
            on_progress(progress)

        tuner.on_progress = told
        ended = threading.Event()
        threading.Thread(target=self._watch, args=(search_id, tuner, ended), daemon=True).start()
        try:
            report = tuner.run(text)
        except BaseException as error:
            stopped = isinstance(error, KeyboardInterrupt)
            words = "stopped by a person" if stopped else str(error)
            if state.report is not None:
                self._save_best(record_id=begun.id, report=state.report, text=text)
            self._save(replace(state.record, state="stopped" if stopped else "failed", message=words))
            raise
        finally:
            ended.set()
        return self._finish(state.record, report, text, tuner.job_of)

    def _watch(self, search_id: str, tuner: Tuner, ended: threading.Event) -> None:
        """Pass a stop on; and see that a worker is there: without one no trial job begins or is seen to end."""
        rounds = 0
        while not ended.wait(0.5):
            if (self.root / search_id / "stop").exists():
                tuner.stop()
            rounds += 1
            if rounds % ROUNDS_TO_WORKER == 0:
                with suppress(TunedeckError, OSError):  # the next round tries again
                    self.api.ensure_worker()

    def _finish(
        self, record: SearchRecord, report: TuningReport, text: str, job_of: Mapping[str, str]
    ) -> SearchRecord:  # fmt: skip
        done = replace(
            with_report(record, report, job_of),
            state="stopped" if report.stopped else "finished",
            message=report.stopped,
            seconds=report.seconds,
            event="end",
            updated_at=self.clock(),
        )
        if report.best is not None:
            self._save_best(record_id=record.id, report=report, text=text)
        elif not done.message:
            done = replace(done, state="failed", message=_first_error(done))
        self._save(done)
        return done

    def _save_best(self, *, record_id: str, report: TuningReport, text: str) -> None:
        """What was measured until now, and the document with the best of it."""
        if report.best is None:
            return
        save_report(report, text, self.root / record_id)
        tuned = apply_changes(best_text(report, text), {"tunedeck.name": f"{parse_spec(text).name}-tuned"})
        write_text(self.root / record_id / "best.yaml", tuned)

    def _devices(self, text: str) -> tuple[Device, ...]:
        wanted = parse_spec(text).gpus
        return tuple(device for device in self.gpus.read_devices() if not wanted or device.id in wanted)

    def _joules(self, devices: Sequence[str], begin: float, end: float) -> float | None:
        energy = read_energy(self.gpus, devices, begin, end)
        return energy.joules if energy is not None and energy.covered > 0.5 else None

    # --- on disk -------------------------------------------------------------------------------------------------------

    def _save(self, record: SearchRecord) -> None:
        write_json(self.root / record.id / "state.json", asdict(record))

    def _existing(self, search_id: str) -> SearchRecord:
        record = self._load(search_id)
        if record is None:
            raise NotFound(f"No tuning search has the id {search_id!r}.")
        return record

    def _load(self, search_id: str) -> SearchRecord | None:
        if not _ID.fullmatch(search_id):
            return None
        found = read_json(self.root / search_id / "state.json")
        return parse_record(found) if isinstance(found, dict) else None

    def _readable(self, search_id: str) -> SearchRecord | None:
        try:
            return self.get(search_id)
        except (NotFound, TypeError):
            return None

    def _lives(self, record: SearchRecord) -> bool:
        if record.pid is None or record.start_ticks is None:
            return self.clock() - record.created_at < 30  # being started
        return is_alive(ProcessIdentity(pid=record.pid, start_ticks=record.start_ticks))

    def _last_words(self, record: SearchRecord) -> str:
        try:
            lines = (self.root / record.id / "tuner.log").read_text("utf-8", "replace").strip().splitlines()
        except OSError:
            lines = []
        last = lines[-1] if lines else ""
        # Other lines tell how far it was, not why it ended.
        return (
            last
            if _ERROR_LINE.match(last)
            else "The tuner's process was ended from outside (killed, or the host restarted)."
        )


@dataclass
class _State:
    """The search as its callbacks leave it."""

    record: SearchRecord
    report: TuningReport | None = None


def follow(
    record: SearchRecord, progress: Progress, jobs: list[str], now: float, job_of: Mapping[str, str] | None = None
) -> SearchRecord:  # fmt: skip
    """The record after one event of the tuner; `job_of`: trial to the job that measured it."""
    record = replace(
        record, event=progress.event, now=progress.text, seconds=progress.seconds, jobs=tuple(jobs), updated_at=now
    )
    return with_report(record, progress.report, job_of) if progress.report is not None else record


def with_report(
    record: SearchRecord, report: TuningReport, job_of: Mapping[str, str] | None = None
) -> SearchRecord:  # fmt: skip
    best = report.best
    measured = [row for row in report.rows if row.result is not None]
    return replace(
        record,
        gain=report.gain,
        best=best.label if best else "",
        best_changes=dict(best.fix.set) if best else {},
        packs_rows=bool(best and best.work.packing and not report.base.work.packing),
        base_rows_per_step=report.base.rows_per_step,
        best_rows_per_step=best.rows_per_step if best else None,
        lengths_estimate=report.lengths_estimate,
        candidates=len(report.rows) - report.excluded,
        excluded=report.excluded,
        rows=tuple(_row(row, report, (job_of or {}).get(row.trial.id, "")) for row in measured),
    )


def _row(row: TuningRow, report: TuningReport, job: str) -> SearchRow:
    result, trial = row.result, row.trial
    assert result is not None
    return SearchRow(
        label=trial.label,
        outcome=result.outcome.value,
        job=job,
        changes=dict(trial.fix.set),
        tokens_per_second=row.tokens_per_second,
        spread=result.spread,
        samples_per_second=row.samples_per_second,
        rows_per_step=trial.rows_per_step,
        peak_bytes=result.peak_bytes,
        mfu=row.use.of_peak if row.use else None,
        joules_per_token=row.joules_per_token,
        energy_spread=result.energy_spread,
        estimate=trial.predicted.tokens_per_second * trial.work.world,
        error=result.error,
        base=trial.id == report.base.id,
        best=report.best is not None and trial.id == report.best.id,
    )


def parse_record(found: Mapping[str, object]) -> SearchRecord:
    """state.json; raises TypeError for a file of another version."""
    known = {item.name for item in fields(SearchRecord)}
    values = {name: value for name, value in found.items() if name in known}
    rows = found.get("rows")
    values["rows"] = tuple(SearchRow(**row) for row in rows) if isinstance(rows, list) else ()
    jobs = found.get("jobs")
    values["jobs"] = tuple(str(job) for job in jobs) if isinstance(jobs, list) else ()
    return SearchRecord(**values)  # type: ignore[arg-type]


def _first_error(record: SearchRecord) -> str:
    return next((row.error for row in record.rows if row.error), "No trial could be measured.")


def describe_rows(record: SearchRecord) -> Iterator[str]:
    """One line a row, for terminals."""
    for row in record.rows:
        rate = f"{row.tokens_per_second:>10,.0f} tokens/s" if row.tokens_per_second else f"{row.outcome:>19}"
        mark = "*" if row.best else "=" if row.base else " "
        yield f"{mark} {rate}  {row.label}{'  ' + row.error[:80] if row.error else ''}"
