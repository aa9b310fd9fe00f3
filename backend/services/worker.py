"""One per host: starts waiting jobs, watches their supervisors, records how they end. Restarts re-adopt everything."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import IO

from backend.adapters.process import ProcessIdentity, boot_id, find_marked, identify, is_alive, kill_all, spawn_detached
from backend.domain.events import Alert, CheckpointSaved, Event, StateChanged, saved_checkpoints
from backend.domain.job import Job, JobState, StopMode, TerminationReason
from backend.domain.launch import LaunchPlan
from backend.domain.problem import Severity
from backend.errors import Conflict, TunedeckError
from backend.planning.command import VISIBILITY
from backend.planning.queueing import Capacity, Start, count_slots, plan_starts
from backend.planning.verdict import ExitRecord, RankEnds, judge_end
from backend.services.api import Api
from backend.services.attach import Attachment, load_attachment
from backend.services.attached_run import AttachedRun
from backend.services.bench import HOST_CHECK, BenchStore, describe_drift
from backend.services.environments import Environments
from backend.services.forecast import Forecaster
from backend.services.gpus import GpuService, open_gpus
from backend.services.health_watch import HealthWatch
from backend.services.progress import RunProgress
from backend.services.sampler import RunningJob, Sampler
from backend.services.searches import Searches
from backend.services.secrets import load_secrets
from backend.services.sweeps import Sweeps
from backend.settings import REPOSITORY, Settings
from backend.store.database import Database
from backend.store.events import append_event, load_events
from backend.store.files import read_json, write_json
from backend.store.jobs import JobTable
from backend.store.paths import DataPaths, JobPaths
from backend.store.plans import load_plan, save_plan

SUPERVISOR = REPOSITORY / "backend" / "services" / "supervisor.py"
BEAT_SECONDS = 0.25
HEARTBEAT_SECONDS = 2.0
SUMMARY_SECONDS = 1.0
SWEEP_SECONDS = 5.0
CONSOLE_TAIL_BYTES = 1 << 16
ADOPT_SECONDS = 10.0
"""How long a STARTING job may be without a supervisor before it is spawned again (the last worker died in between)."""

log = logging.getLogger("tunedeck.worker")


class WorkerRunning(TunedeckError):
    """Another worker holds this data folder."""


class Worker:
    """`beat` does one round; `run` repeats it until SIGTERM. Training is untouched by the end of a worker."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.time,
        gpus: GpuService | None = None,
        sampler: Sampler | None = None,
    ) -> None:
        self.settings, self.clock = settings, clock
        self.paths = DataPaths(settings.data_dir)
        self.jobs = JobTable(Database(self.paths.database))
        self.gpus, self.sampler = gpus, sampler
        self.forecaster = Forecaster(settings, self.paths, Environments(self.paths, settings))
        api = Api(
            settings,
            clock=clock,
            read_devices=gpus.device_ids if gpus else tuple,
            start_worker=lambda _: None,
        )
        self.sweeps, self.searches = Sweeps(api), Searches(api, gpus or open_gpus(self.paths), clock=clock)
        self._sweeps_at = 0.0
        self.health = HealthWatch()
        self._attached: dict[str, AttachedRun] = {}
        self._runs: dict[str, RunProgress] = {}
        self._told: dict[str, set[int]] = {}
        self._summary_at: dict[str, float] = {}
        self._starting_since: dict[str, float] = {}
        self._stuck: set[str] = set()
        """Jobs whose processes could not be ended, told once."""
        self._beat_written = 0.0
        self._error = ""
        self._stop = False
        self._lock: IO[str] | None = None

    def run(self) -> None:
        """Raises WorkerRunning when another worker serves this data folder."""
        self.acquire()
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        log.info("worker %d serves %s", os.getpid(), self.paths.root)
        if self.sampler is not None:
            self.sampler.running_jobs = self.running_jobs
            self.sampler.start()
        while not self._stop:
            self.safe_beat()
            time.sleep(BEAT_SECONDS)
        if self.sampler is not None:
            self.sampler.stop()
        self.paths.worker_status.unlink(missing_ok=True)
        log.info("worker %d ends; running jobs go on", os.getpid())

    def acquire(self) -> None:
        self.paths.root.mkdir(parents=True, exist_ok=True)
        self._lock = self.paths.worker_lock.open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise WorkerRunning(f"A worker serves {self.paths.root} already.") from error
        self._sweep_half_made()

    def safe_beat(self) -> None:
        """One round that survives whatever goes wrong in it; the page shows the error."""
        try:
            self.beat()
            self._error = ""
        except Exception as error:  # noqa: BLE001  the loop must go on: other jobs depend on it
            self._error = f"{type(error).__name__}: {error}"
            log.exception("the worker's round failed")
        self._heartbeat()

    def beat(self) -> None:
        """Look after active jobs, then start what may start. A fault of one job does not keep the others waiting."""
        faults: list[Exception] = []
        active = self.jobs.in_states(JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
        self._pass_notices_on(active)
        for job in active:
            try:
                self._look_after(job)
            except (TunedeckError, OSError, ValueError) as error:
                log.exception("job %s", job.id)
                faults.append(error)
        self._look_after_groups()
        self._start_waiting()
        if faults:
            raise faults[0]

    def _look_after_groups(self) -> None:
        """Runs of a sweep that fell behind the others, where the sweep asks for that; trials whose search is gone."""
        if self.clock() - self._sweeps_at < SWEEP_SECONDS:
            return
        self._sweeps_at = self.clock()
        for job_id in self.sweeps.beat():
            log.info("job %s: behind the other runs of its sweep, stops early", job_id)
            text = "Its best eval loss is above the median of the sweep's other runs at this step: stopped early."
            alert = Alert(at=self.clock(), code="sweep_early_stop", severity=Severity.NOTE, message=text)
            self._tell(self.paths.job(job_id), alert)
        for job_id in self.searches.end_orphans():
            log.info("job %s: its tuning search is gone, ends", job_id)

    def running_jobs(self) -> list[RunningJob]:
        """For the sampler (in its own thread): whose folders get a copy of the telemetry."""
        active = self.jobs.in_states(JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
        return [
            RunningJob(job_id=job.id, devices=job.devices, folder=self.paths.job(job.id).telemetry) for job in active
        ]

    def _pass_notices_on(self, active: Sequence[Job]) -> None:
        """What the sampler noticed about a card goes into the history of the jobs that hold it."""
        for notice in self.sampler.take_notices() if self.sampler else ():
            log.warning("telemetry: %s %s", notice.device, notice.message)
            numbers = {"device": notice.device} if notice.device else {}
            alert = Alert(
                at=notice.at, code=notice.code, severity=notice.severity, message=notice.message, numbers=numbers
            )
            for job in active:
                if notice.device in job.devices:
                    self._tell(self.paths.job(job.id), alert)

    # --- starting --------------------------------------------------------------------------------------------------

    def _start_waiting(self) -> None:
        queue = self.jobs.in_states(JobState.QUEUED)
        if not queue or (self.sampler is not None and not self.sampler.has_sampled):
            return
        for start in plan_starts(queue, self._wanted, self._capacity(), self._choose):
            try:
                self._start(start)
            except Conflict as error:  # cancelled or leased meanwhile: the next round looks again
                log.info("job %s not started: %s", start.job.id, error)

    def _wanted(self, job: Job) -> tuple[str, ...]:
        return load_plan(self.paths.job(job.id).plan).devices

    def _choose(self, count: int, free: Sequence[str]) -> tuple[str, ...]:
        """Idle and healthy cards on one island; nothing while too few of them are."""
        if self.gpus is None:
            return ()
        held = {device: "kept" for device in self.gpus.device_ids() if device not in free}
        return self.gpus.choose(count, (), held).devices

    def _capacity(self) -> Capacity:
        devices, leased = self.gpus.device_ids() if self.gpus else (), self.jobs.leases()
        active = self.jobs.in_states(JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
        return Capacity(
            total=devices,
            free=tuple(device for device in devices if device not in leased),
            cpu_slots=self.settings.cpu_slots,
            cpu_used=sum(count_slots(job, self.settings.cpu_slots) for job in active),
        )

    def _start(self, start: Start) -> None:
        job, paths = self.jobs.lease(start.job.id, start.devices), self.paths.job(start.job.id)
        plan = load_plan(paths.plan)
        if start.devices and self.gpus is not None:
            variables = self.gpus.visibility(start.devices)
            unset = tuple(name for name in VISIBILITY if name not in variables)
            plan = replace(plan, devices=start.devices, env={**plan.env, **variables}, unset=unset)
            save_plan(paths.plan, plan)
        self._tell(paths, StateChanged(at=self.clock(), state=JobState.STARTING))
        self._spawn(job, paths, plan)

    def _spawn(self, job: Job, paths: JobPaths, plan: LaunchPlan) -> None:
        self._starting_since[job.id] = self.clock()
        env = {**os.environ, **load_secrets(self.paths, job.id), "TUNEDECK_SUPERVISES": job.id}
        spawn_detached(
            [sys.executable, str(SUPERVISOR), str(paths.root)], log=paths.supervisor_log, env=env, cwd=paths.root
        )

    # --- watching --------------------------------------------------------------------------------------------------

    def _look_after(self, job: Job) -> None:
        paths = self.paths.job(job.id)
        if attachment := load_attachment(paths):
            self._follow_attached(job, paths, attachment)
            return
        progress = self._runs.setdefault(job.id, RunProgress(paths))
        # Order matters: exit.json is looked for before the liveness check, and once more after it.
        exit_record = load_exit(paths)
        supervisor = None if exit_record else self._supervisor(paths)
        if exit_record is None and supervisor is None:
            exit_record = load_exit(paths)
            if exit_record is None and self._is_still_starting(job, paths):
                return
        progress.refresh()
        self._tell_checkpoints(job, paths, progress)
        self._tell_alarms(job, paths, last=exit_record is not None)
        if exit_record is None and supervisor is not None:
            self._follow(job, paths, progress)
        else:
            self._finish(job, paths, progress, exit_record)

    def _follow_attached(self, job: Job, paths: JobPaths, attachment: Attachment) -> None:
        """A run that somebody else started: its files tell how far it is and how it ended."""
        run = self._attached.get(job.id) or AttachedRun(paths, attachment, self.clock)
        self._attached[job.id] = run
        ending = run.look()
        progress = self._runs.setdefault(job.id, RunProgress(paths))
        progress.refresh()
        self._summarise(job, progress)
        if job.started_at is None and run.started_at is not None:
            self.jobs.update(job.id, started_at=run.started_at)
        self._tell_alarms(job, paths, last=ending is not None)
        if ending is None:
            return
        self._summarise(job, progress, now=True)
        active, state = (JobState.RUNNING, JobState.STOPPING), ending.reason.state
        self.jobs.transition(job.id, active, state, reason=ending.reason, message=ending.message, ended_at=ending.at)
        event = StateChanged(at=self.clock(), state=state, reason=ending.reason, message=ending.message)
        self._tell(paths, event)
        self._attached.pop(job.id)
        self._runs.pop(job.id, None)
        self.health.forget(job.id)

    def _supervisor(self, paths: JobPaths) -> ProcessIdentity | None:
        """The living supervisor of the job, as recorded in supervisor.json."""
        record = read_json(paths.supervisor)
        if not isinstance(record, dict) or record.get("boot_id") != boot_id():
            return None
        recorded = ProcessIdentity(pid=int(record["pid"]), start_ticks=int(record["start_ticks"]))
        return recorded if is_alive(recorded) else None

    def _is_still_starting(self, job: Job, paths: JobPaths) -> bool:
        """No supervisor.json yet: it is being started, or the last worker died before it could start it."""
        if job.state is not JobState.STARTING or paths.supervisor.exists():
            return False
        since = self._starting_since.setdefault(job.id, self.clock())
        if find_marked("TUNEDECK_SUPERVISES", job.id):
            return True
        if self.clock() - since > ADOPT_SECONDS:
            log.warning("job %s has no supervisor: starting it again", job.id)
            self._spawn(job, paths, load_plan(paths.plan))
        return True

    def _follow(self, job: Job, paths: JobPaths, progress: RunProgress) -> None:
        record = read_json(paths.supervisor)
        if job.state is JobState.STARTING and isinstance(record, dict) and record.get("child_pid"):
            to = JobState.STOPPING if paths.stop_request.exists() else JobState.RUNNING
            started_at = float(record["started_at"])
            job = self.jobs.transition(job.id, (JobState.STARTING,), to, started_at=started_at)
            self._tell(paths, StateChanged(at=self.clock(), state=to))
        self._summarise(job, progress)

    def _summarise(self, job: Job, progress: RunProgress, *, now: bool = False) -> None:
        """Progress into the job's row, at most once a second: lists and the queue page read it there."""
        fresh = (progress.step, progress.max_steps, str(progress.loss), progress.phase)
        if fresh == (job.step, job.max_steps, str(job.loss), job.phase):  # as text: NaN is not equal to itself
            return
        if not now and self.clock() - self._summary_at.get(job.id, 0.0) < SUMMARY_SECONDS:
            return
        self._summary_at[job.id] = self.clock()
        self.jobs.update(
            job.id,
            step=progress.step,
            max_steps=progress.max_steps,
            loss=progress.loss,
            phase=progress.phase,
        )

    def _tell_checkpoints(self, job: Job, paths: JobPaths, progress: RunProgress) -> None:
        told = self._told.get(job.id)
        if told is None:
            told = self._told[job.id] = set(saved_checkpoints(load_events(paths.events)).values())
        for step, path in sorted(progress.checkpoints.items()):
            if step not in told:
                told.add(step)
                self._tell(paths, CheckpointSaved(at=self.clock(), step=step, path=path))

    def _tell_alarms(self, job: Job, paths: JobPaths, *, last: bool) -> None:
        """What is wrong with the numbers, each alarm once. A fault here never keeps a job from being looked after."""
        try:
            alarms = self.health.look(job, paths, self.clock(), last=last)
        except (TunedeckError, OSError, ValueError):
            log.exception("job %s: its health could not be judged", job.id)
            return
        for alarm in alarms:
            log.warning("job %s: %s", job.id, alarm.message)
            self._tell(paths, alarm)

    # --- ending ----------------------------------------------------------------------------------------------------

    def _finish(self, job: Job, paths: JobPaths, progress: RunProgress, exit_record: ExitRecord | None) -> None:
        survivors = self._end_leftovers(job, paths)
        if survivors:
            return  # the GPUs are not free: keep the leases and look again in the next round
        progress.refresh()
        self._tell_checkpoints(job, paths, progress)
        reason, message = judge_end(exit_record, _rank_ends(progress), read_tail(paths))
        self._summarise(job, progress, now=True)
        ended_at = exit_record.ended_at if exit_record else self.clock()
        started_at = job.started_at or (exit_record.started_at if exit_record else None)
        self.jobs.transition(
            job.id,
            (JobState.STARTING, JobState.RUNNING, JobState.STOPPING),
            reason.state,
            reason=reason,
            message=message,
            exit_code=exit_record.exit_code if exit_record else None,
            signal=exit_record.signal if exit_record else None,
            started_at=started_at,
            ended_at=ended_at,
        )
        self._tell(paths, StateChanged(at=self.clock(), state=reason.state, reason=reason, message=message))
        if reason is TerminationReason.SUPERVISOR_VANISHED:
            text = "The supervisor vanished; what was left of the training was ended so that it holds no GPU."
            self._tell(paths, Alert(at=self.clock(), code="supervisor_vanished", severity=Severity.ERROR, message=text))
        for memory in (self._runs, self._told, self._summary_at, self._starting_since):
            memory.pop(job.id, None)
        self.health.forget(job.id)
        self._stuck.discard(job.id)
        self._learn(job)
        self._keep_check(job, reason)
        log.info("job %s ended: %s %s", job.id, reason.value, message)

    def _learn(self, job: Job) -> None:
        """The run's measured peak, beside the planned one, corrects the next memory plan."""
        try:
            learnt = self.forecaster.learn(job.id)
        except (TunedeckError, OSError, ValueError) as error:
            log.warning("job %s: its memory could not be compared with the plan: %s", job.id, error)
            return
        if learnt is not None:
            log.info("job %s: memory %.1f GiB, planned %.1f", job.id, learnt.measured / 2**30, learnt.planned / 2**30)

    def _keep_check(self, job: Job, reason: TerminationReason) -> None:
        """A host check is kept whoever asked for it; what got worse is said in the job's history."""
        if HOST_CHECK not in job.tags or reason.state is not JobState.SUCCEEDED:
            return
        try:
            _, drifts = BenchStore(self.paths).collect(self.jobs.get(job.id))
        except (TunedeckError, OSError, ValueError) as error:
            log.warning("job %s: its host check could not be read: %s", job.id, error)
            return
        for drift in drifts:
            alert = Alert(
                at=self.clock(), code="host_drift", severity=Severity.WARNING, message=describe_drift(drift)
            )  # fmt: skip
            self._tell(self.paths.job(job.id), alert)

    def _end_leftovers(self, job: Job, paths: JobPaths) -> list[ProcessIdentity]:
        """Processes of the job that outlived its supervisor, found by the mark in their environment."""
        left = kill_all(find_marked("TUNEDECK_JOB_ID", job.id))
        if left and job.id not in self._stuck:
            self._stuck.add(job.id)
            pids = ", ".join(str(identity.pid) for identity in left)
            text = f"Processes {pids} cannot be ended (stuck in the driver?); their GPUs stay reserved."
            alert = Alert(
                at=self.clock(), code="processes_stuck", severity=Severity.ERROR, message=text, numbers={"pids": pids}
            )
            self._tell(paths, alert)
        return left

    def _tell(self, paths: JobPaths, event: Event) -> None:
        append_event(paths.events, event)

    # --- itself ----------------------------------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        now = self.clock()
        if now - self._beat_written < HEARTBEAT_SECONDS and not self._error:
            return
        self._beat_written = now
        me = identify(os.getpid())
        with contextlib.suppress(TunedeckError):  # a full disk must not end the loop; the stale heartbeat shows it
            record = {
                "pid": os.getpid(),
                "start_ticks": me.start_ticks if me else None,
                "beat_at": now,
                "error": self._error,
            }
            write_json(self.paths.worker_status, record)

    def _sweep_half_made(self) -> None:
        """Folders of submits and deletes that were cut short hold no job."""
        for pattern in (".new-*", ".deleted-*"):
            for folder in self.paths.jobs.glob(pattern):
                if self.clock() - folder.stat().st_mtime > 600:
                    shutil.rmtree(folder, ignore_errors=True)

    def _on_signal(self, number: int, frame: object) -> None:
        self._stop = True


def load_exit(paths: JobPaths) -> ExitRecord | None:
    """exit.json, or None while there is none."""
    record = read_json(paths.exit)
    if not isinstance(record, dict):
        return None
    return ExitRecord(
        started_at=float(record["started_at"]),
        ended_at=float(record["ended_at"]),
        exit_code=record.get("exit_code"),
        signal=record.get("signal"),
        stop_mode=StopMode(record["stop_mode"]) if record.get("stop_mode") else None,
        ladder=tuple(record.get("ladder") or ()),
        launch_error=str(record.get("launch_error") or ""),
    )


def read_tail(paths: JobPaths) -> bytes:
    """The end of the console, where launchers say which rank failed."""
    try:
        with paths.console.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - CONSOLE_TAIL_BYTES))
            return file.read()
    except OSError:
        return b""


def _rank_ends(progress: RunProgress) -> RankEnds:
    return RankEnds(
        all_done=progress.all_done,
        any_failed=False in progress.done.values(),
        stopped=progress.stopped,
        step=progress.step,
        checkpoint_step=max(progress.checkpoints, default=None),
        error=progress.error,
        phase=progress.phase,
    )
