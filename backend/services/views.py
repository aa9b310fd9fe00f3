"""Job rows, job folders and readings in, what the pages show out: lists, one run's details, curves, log windows, downloads."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backend.adapters.archive import Content as Content
from backend.adapters.archive import FileContent, Source, TarContent
from backend.domain.checkpoint import Checkpoint
from backend.domain.events import Event
from backend.domain.job import Job, JobState
from backend.domain.launch import LaunchPlan
from backend.errors import Conflict, NotFound, PathRefused
from backend.services.alarm_board import AlarmBoard
from backend.services.api import Api, WorkerStatus
from backend.services.attach import Attachment, load_attachment
from backend.services.checkpoints import FINAL, checkpoint_files, list_checkpoints
from backend.services.cursor import Cursor
from backend.services.diagnosing import Diagnosis, diagnose_job
from backend.services.energy import energy_at
from backend.services.headline import Headline, build_headline, number_or_word
from backend.services.log_search import LogFinds, LogQuery, search_log
from backend.services.log_windows import LogView, LogWindows
from backend.services.profile import StepProfile, load_profile, read_table
from backend.store.columns import Curve, decimate
from backend.store.paths import JobPaths
from backend.store.series import Marker, RunSeries, Segment
from backend.store.series_cache import Look, SeriesCache
from backend.store.step_table import RANK_SECONDS
from backend.store.tail import end_of_lines

MAX_LINES_BEHIND = 2000
MAX_BYTES_BEHIND = 4 << 20
SPARK_POINTS = 60
RECENT_JOBS = 10
ENERGY = "energy_kwh"
ACTIVE = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
FINAL_STATES = tuple(state for state in JobState if state.is_final)

_SHORT = frozenset({"tokens_per_second", "seconds_per_step", "data_seconds", "padding_share"})

JobRow = dict[str, object]
"""The fields of a Job as JSON has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveView:
    """`x` steps; `y` NaN (null in JSON) = a gap; `odd` names the values that are no finite numbers."""

    x: NDArray[np.int64]
    y: NDArray[np.float64] | NDArray[np.float32]
    odd: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Curves of a run, each of at most the points asked for; go on after `cursor`."""

    cursor: str
    series: Mapping[str, CurveView]
    markers: tuple[Marker, ...]
    span: tuple[int, int] | None
    reading: float | None = None
    """Share of the records read so far, while the curves are those of a sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A phase of a start of the trainer; `seconds` None while it lasts."""

    phase: str
    at: float
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentView:
    """One start of the trainer."""

    index: int
    begin_step: int | None
    last_step: int | None
    max_steps: int | None
    epochs: float | None
    world_size: int | None
    trainable_parameters: int | None
    all_parameters: int | None
    started_at: float
    ended_at: float | None
    stopped: bool
    error: str
    phases: tuple[Phase, ...]
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFile:
    """One file of the output folder."""

    path: str
    size_bytes: int
    modified_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Can:
    """What a person may ask of a run in its present state."""

    stop: bool
    save: bool
    cancel: bool
    resume: bool
    delete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail:
    """Everything of one run but its curves and log."""

    job: JobRow
    plan: LaunchPlan | None
    spec_text: str
    events: tuple[JobRow, ...]
    checkpoints: tuple[Checkpoint, ...]
    segments: tuple[SegmentView, ...]
    headline: Headline
    files: tuple[OutputFile, ...]
    keys: tuple[str, ...]
    can: Can
    skipped_records: int
    attached: Attachment | None = None
    """Where the files of a run lie that Tunedeck did not start."""
    reading: float | None = None
    """Share of the records read so far, while figures and segments are those of a sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What is new since a cursor. `reset`: the reader's picture is void, it must fetch it again.

    `checkpoints` and `can` are None where nothing happened that could have changed them.
    """

    cursor: Cursor
    reset: bool
    job: JobRow
    headline: Headline
    rows: Mapping[str, CurveView]
    markers: tuple[Marker, ...]
    events: tuple[JobRow, ...]
    log: LogView | None
    checkpoints: tuple[Checkpoint, ...] | None
    can: Can | None
    reading: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """The machine that the service runs on."""

    name: str
    cpus: int
    accelerator: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """Room where the data folder is."""

    path: str
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The home page."""

    host: HostView
    worker: WorkerStatus
    gpus: Sequence[object]
    disk: Disk
    counts: Mapping[str, int]
    running: tuple[JobRow, ...]
    queued: tuple[JobRow, ...]
    recent: tuple[JobRow, ...]


class Views:
    """Reads only. Thread-safe. `gpu_readings` gives the newest reading of each device, [] without telemetry."""

    def __init__(
        self,
        api: Api,
        *,
        gpu_readings: Callable[[], Sequence[object]] = tuple,
        clock: Callable[[], float] = time.time,
        cache: SeriesCache | None = None,
    ) -> None:
        self.api = api
        self.gpu_readings = gpu_readings
        self.clock = clock
        self.cache = cache or SeriesCache(copies=api.paths.series_copies)
        self.logs = LogWindows()
        self.alarms = AlarmBoard(api.paths)

    # -- lists --------------------------------------------------------------------------------------------------------

    def state(self) -> State:
        jobs = self.api.jobs
        environment = self.api.environments.cached("")
        usage = shutil.disk_usage(self.api.paths.root)
        _, ended = self.api.list_jobs(states=FINAL_STATES, limit=RECENT_JOBS, sort="ended")
        return State(
            host=HostView(
                name=socket.gethostname(),
                cpus=os.cpu_count() or 1,
                accelerator=environment.accelerator if environment else None,
            ),
            worker=_calm(self.api.worker_status()),
            gpus=self.gpu_readings(),
            disk=Disk(path=str(self.api.paths.root), free_bytes=usage.free, total_bytes=usage.total),
            counts={state.value: count for state, count in jobs.counts().items()},
            running=tuple(self._running_row(job) for job in jobs.in_states(*ACTIVE)),
            queued=tuple(job_row(job) for job in jobs.in_states(JobState.QUEUED)),
            recent=tuple(self._listed(job) for job in ended),
        )

    def _running_row(self, job: Job) -> JobRow:
        run = self.look_at(job).run
        losses = run.curves(["loss"]).get("loss")
        spark = [] if losses is None else decimate(losses, SPARK_POINTS).y.tolist()
        return {**self._listed(job), "headline": build_headline(job, run.progress(), self.clock()), "spark": spark}

    def _listed(self, job: Job) -> JobRow:
        """With what is wrong with its numbers, where anything is."""
        alarms = self.alarms.alarms(job.id)
        return {**job_row(job), "alarms": [event_row(alarm) for alarm in alarms]} if alarms else job_row(job)

    def runs(
        self,
        query: str,
        states: Collection[JobState],
        limit: int,
        offset: int,
        sort: str = "created",
        descending: bool = True,
        tags: Collection[str] = (),
    ) -> tuple[int, list[JobRow]]:
        """Total and one page of jobs."""
        total, jobs = self.api.list_jobs(query, states, limit, offset, sort, descending, tags)
        return total, [self._listed(job) for job in jobs]

    # -- one run ------------------------------------------------------------------------------------------------------

    def run(self, job_id: str, *, sampled: bool = False) -> RunDetail:
        """`sampled`: figures of a long run that is being read are estimates, instead of waited for."""
        job, paths = self._job(job_id)
        look = self.look_at(job, sampled=sampled)
        run = look.run
        checkpoints = self._checkpoints(job, run)
        return RunDetail(
            job=job_row(job),
            plan=self._plan(job_id),
            spec_text=self.api.read_spec_text(job_id),
            events=tuple(event_row(event) for event in self.api.read_events(job_id)),
            checkpoints=checkpoints,
            segments=tuple(view_segment(segment) for segment in run.segments),
            headline=build_headline(job, run.progress(), self.clock()),
            files=_output_files(paths.output),
            keys=tuple(run.names()),
            can=self._can(job, checkpoints),
            skipped_records=run.skipped,
            attached=load_attachment(paths),
            reading=look.share,
        )

    def headline(self, job: Job) -> Headline:
        """The figures at the top of a run's page."""
        return build_headline(job, self.open_run(job).progress(), self.clock())

    def diagnosis(self, job_id: str) -> Diagnosis:
        """Why an ended run ended, read from its console now."""
        return diagnose_job(*self._job(job_id))

    def profile(self, job_id: str) -> StepProfile:
        """Where the time of the steps went that were profiled last."""
        return load_profile(self._job(job_id)[1])

    def profile_table(self, job_id: str, rank: int) -> str:
        """torch's own table of one rank. Raises NotFound when that rank was not profiled."""
        return read_table(self._job(job_id)[1], rank)

    def series(
        self,
        job_id: str,
        keys: Sequence[str] = (),
        first: int | None = None,
        last: int | None = None,
        points: int = 1500,
        *,
        sampled: bool = False,
    ) -> Series:
        """Curves between two steps (both included); no `keys`: all but those of single ranks; `points` 0: every point.

        `sampled`: whole curves of a long run that is being read are those of a sample, instead of waited for.
        `energy_kwh` (kWh used until a step) is there only when it is asked for by name and every device was measured.
        """
        job, paths = self._job(job_id)
        look = self.look_at(job, sampled=sampled and points > 0 and first is None and last is None)
        run = look.run
        with run.lock:
            mark, names, markers = run.mark(), run.names(), tuple(run.markers)
            curves = run.curves(_wanted(keys, names))
            curves |= self._energy(job, run) if ENERGY in keys else {}
        cut = {key: _between(curve, first, last) for key, curve in curves.items()}
        shown = {key: view_curve(key, decimate(curve, points) if points else curve) for key, curve in cut.items()}
        ends = [(curve.x[0], curve.x[-1]) for curve in curves.values() if len(curve.x)]
        cursor = Cursor(mark=mark, events=len(self.api.read_events(job_id)), log=end_of_lines(paths.console))
        return Series(
            cursor=str(cursor),
            series=shown,
            markers=tuple(sorted(markers, key=lambda marker: (marker.step, marker.at))),
            span=(int(min(low for low, _ in ends)), int(max(high for _, high in ends))) if ends else None,
            reading=look.share,
        )

    def update(self, job_id: str, since: Cursor | None, until: Cursor | None = None) -> Update:
        """What is new after `since`; everything must be fetched anew when it is None or belongs to another reading.

        `until`: up to this place, which another reader has reached; None: up to now.
        """
        job, paths = self._job(job_id)
        look = self.look_at(job)
        run = look.run
        with run.lock:
            mark = until.mark if until else run.mark()
            rows = run.changes(since.mark, mark) if since else None
            markers = tuple(run.markers[since.mark.markers : mark.markers]) if since and rows is not None else ()
        events = self.api.read_events(job_id)[: until.events if until else None]
        log = self._log_since(paths.console, since.log, until.log if until else None) if since else None
        reset = rows is None or log is None or since is None
        saved = any(marker.kind == "checkpoint" for marker in markers)
        new_events = events[since.events :] if since and not reset else []
        changed = reset or saved or bool(new_events)
        checkpoints = self._checkpoints(job, run) if changed else None
        return Update(
            cursor=Cursor(mark=mark, events=len(events), log=log.next if log else end_of_lines(paths.console)),
            reset=reset,
            job=job_row(job),
            headline=build_headline(job, run.progress(), self.clock()),
            rows={} if reset or rows is None else {key: view_curve(key, curve) for key, curve in rows.items()},
            markers=() if reset else markers,
            events=tuple(event_row(event) for event in new_events),
            log=None if reset else log,
            checkpoints=checkpoints,
            can=None if checkpoints is None else self._can(job, checkpoints),
            reading=look.share,
        )

    def _log_since(self, path: Path, offset: int, until: int | None) -> LogView | None:
        """Lines after `offset`; None when the log was replaced, or so much came that a reader had better look at its end."""
        size = _size(path)
        if size < offset or size - offset > MAX_BYTES_BEHIND:
            return None
        view = self.logs.from_offset(path, offset, MAX_LINES_BEHIND)
        if until is None or view.next <= until:
            return view
        return replace(
            view, lines=tuple(line for line in view.lines if line.at < until), next=max(offset, until), open=None
        )

    def log(self, job_id: str, *, offset: int | None, before: int | None, limit: int) -> LogView:
        """A window of the console log: from a byte on, the last lines (negative offset), or ahead of a byte."""
        path = self._job(job_id)[1].console
        if before is not None:
            return self.logs.before(path, before, limit)
        if offset is None or offset < 0:
            return self.logs.last(path, limit if offset is None else min(limit, -offset))
        return self.logs.from_offset(path, offset, limit)

    def search(
        self, job_id: str, query: LogQuery, *, start: int, line: int | None, limit: int, context: int, first_only: bool
    ) -> LogFinds:
        """One portion of a search through the whole console log (backend/services/log_search.py)."""
        path = self._job(job_id)[1].console
        return search_log(path, query, start=start, line=line, limit=limit, context=context, first_only=first_only)

    # -- downloads ----------------------------------------------------------------------------------------------------

    def console(self, job_id: str) -> Content:
        """The raw console log."""
        return FileContent(_existing(self._job(job_id)[1].console))

    def output_file(self, job_id: str, name: str) -> Content:
        """One file of the output folder. Raises PathRefused for a path that leaves it, links resolved."""
        output = self._job(job_id)[1].output
        return FileContent(_existing(_inside(output, output / name)))

    def archive(self, job_id: str, checkpoint: str, *, only_inference: bool) -> Content:
        """A complete checkpoint as a tar. Raises NotFound, Conflict while incomplete."""
        job, paths = self._job(job_id)
        known = {found.name: found for found in self._checkpoints(job, self.open_run(job))}
        if checkpoint not in known:
            names = ", ".join(known) or "none"
            raise NotFound(f"Job {job_id} has no checkpoint {checkpoint!r}. There are: {names}.")
        found = known[checkpoint]
        if not found.complete:
            raise Conflict(f"{checkpoint} cannot be downloaded: {found.why_incomplete}.")
        files = checkpoint_files(paths.output, checkpoint)
        if only_inference:
            files = tuple(fact for fact in files if fact.for_inference)
            if found.adapter_bytes is None:
                raise Conflict(f"{checkpoint} has no weights of its own, only DeepSpeed's shards: download it whole.")
        folder = job_id if checkpoint == FINAL else f"{job_id}-{checkpoint}"
        return TarContent(
            [
                Source(
                    name=f"{folder}/{fact.name}",
                    path=_inside(paths.output, fact.path),
                    size=fact.size_bytes,
                    modified_ns=fact.modified_ns,
                )
                for fact in files
            ]
        )

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _job(self, job_id: str) -> tuple[Job, JobPaths]:
        return self.api.get_job(job_id), self.api.job_paths(job_id)

    def open_run(self, job: Job) -> RunSeries:
        """Everything the run has recorded, however long reading it takes."""
        return self.cache.open(self.api.paths.job(job.id).recorder, ended=job.state.is_final)

    def look_at(self, job: Job, *, sampled: bool = True) -> Look:
        """What can be shown of it at once: of a long run that was never read a sample, if `sampled`."""
        if not sampled:
            return Look(run=self.open_run(job))
        return self.cache.look(self.api.paths.job(job.id).recorder, ended=job.state.is_final)

    def _can(self, job: Job, checkpoints: Sequence[Checkpoint]) -> Can:
        """Of an attached run only a known, living process can be stopped; saving and resuming would need our own plan."""
        can, attachment = what_can_be_done(job, checkpoints), load_attachment(self.api.paths.job(job.id))
        if attachment is None:
            return can
        return replace(can, stop=can.stop and attachment.process is not None, save=False, resume=False)

    def _energy(self, job: Job, run: RunSeries) -> dict[str, Curve]:
        times = run.step_times()
        used = energy_at(self.api.paths.job(job.id).telemetry, job.devices, times.y)
        return {} if used is None or not len(used) else {ENERGY: Curve(x=times.x, y=used)}

    def _plan(self, job_id: str) -> LaunchPlan | None:
        try:
            return self.api.read_plan(job_id)
        except NotFound:
            return None

    def _checkpoints(self, job: Job, run: RunSeries) -> tuple[Checkpoint, ...]:
        segment = run.progress().segment
        losses = run.curves(["eval_loss"]).get("eval_loss")
        return list_checkpoints(
            self.api.paths.job(job.id).output,
            parts=run.checkpoint_parts(),
            is_active=job.state.is_active,
            is_done=segment is not None and segment.ok is True,
            eval_losses={}
            if losses is None
            else dict(zip(losses.x.astype(int).tolist(), losses.y.tolist(), strict=True)),
        )


def _calm(status: WorkerStatus) -> WorkerStatus:
    """The heartbeat in steps of 10 seconds: a state that is the same must look the same."""
    return status if status.beat_at is None else replace(status, beat_at=status.beat_at // 10 * 10)


def job_row(job: Job) -> JobRow:
    """JSON has no NaN: a diverged loss is "nan"."""
    row: JobRow = {field.name: getattr(job, field.name) for field in fields(Job)}
    return {**row, "loss": number_or_word(job.loss)}


def event_row(event: Event) -> JobRow:
    return {"kind": event.kind, **asdict(event)}


def what_can_be_done(job: Job, checkpoints: Sequence[Checkpoint]) -> Can:
    return Can(
        stop=job.state.is_active,
        save=job.state is JobState.RUNNING,
        cancel=job.state is JobState.QUEUED,
        resume=job.state.is_final and any(found.complete and found.name != FINAL for found in checkpoints),
        delete=job.state.is_final,
    )


def view_segment(segment: Segment) -> SegmentView:
    ends = [at for _, at in segment.phases[1:]] + [segment.last_at if segment.ok is not None else None]
    phases = [
        Phase(phase=phase, at=at, seconds=None if end is None else end - at)
        for (phase, at), end in zip(segment.phases, ends, strict=False)
    ]
    return SegmentView(
        index=segment.index,
        begin_step=segment.begin_step,
        last_step=segment.last_step,
        max_steps=segment.max_steps,
        epochs=segment.epochs,
        world_size=segment.world_size,
        trainable_parameters=segment.trainable_parameters,
        all_parameters=segment.all_parameters,
        started_at=segment.started_at,
        ended_at=segment.ended_at,
        stopped=segment.stopped,
        error=segment.error,
        phases=tuple(phases),
        versions=segment.versions,
    )


def view_curve(key: str, curve: Curve) -> CurveView:
    """Measured times and speeds have no more than seven true digits: sent as float32 they take half the bytes."""
    is_short = key in _SHORT or key.startswith(RANK_SECONDS)
    return CurveView(
        x=curve.x.astype(np.int64),
        y=curve.y.astype(np.float32) if is_short else curve.y,
        odd=tuple((step, str(value)) for step, value in curve.odd),
    )


def _wanted(keys: Sequence[str], names: Sequence[str]) -> list[str]:
    """`rank_seconds` stands for all ranks; no keys stand for all series but those."""
    if not keys:
        return [name for name in names if not name.startswith(RANK_SECONDS)]
    every_rank = [name for name in names if name.startswith(RANK_SECONDS)] if "rank_seconds" in keys else []
    return [*(key for key in keys if key in names), *every_rank]


def _between(curve: Curve, first: int | None, last: int | None) -> Curve:
    if first is None and last is None:
        return curve
    low = 0 if first is None else int(curve.x.searchsorted(first))
    high = len(curve.x) if last is None else int(curve.x.searchsorted(last, side="right"))
    odd = tuple(
        point for point in curve.odd if (first is None or point[0] >= first) and (last is None or point[0] <= last)
    )
    return Curve(x=curve.x[low:high], y=curve.y[low:high], odd=odd)


def _output_files(output: Path) -> tuple[OutputFile, ...]:
    return tuple(
        OutputFile(path=fact.name, size_bytes=fact.size_bytes, modified_at=fact.modified_ns / 1e9)
        for fact in checkpoint_files(output, FINAL)
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _inside(root: Path, path: Path) -> Path:
    """`path` with links resolved. Raises PathRefused when it is not below `root`."""
    try:
        resolved = path.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a loop of links, a NUL
        raise PathRefused("This path cannot be resolved.") from error
    if not resolved.is_relative_to(root.resolve()):
        raise PathRefused("This path leaves the run's output folder.")
    return resolved


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise NotFound(f"There is no file {path.name}.")
    return path
