"""What a person can ask for: the one door through which the page and the command line read jobs and change them."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backend.adapters.process import ProcessIdentity, end_process, is_alive, spawn_detached
from backend.domain.events import Event, ProfileRequested, SaveRequested, StateChanged, StopRequested, saved_checkpoints
from backend.domain.job import Job, JobSpec, JobState, StopMode, Task, TerminationReason
from backend.domain.launch import LaunchPlan
from backend.domain.problem import ArgValue, Problem, Severity
from backend.errors import Conflict, EnvironmentFault, InvalidInput, NotFound, SpecRejected, StoreFault
from backend.planning.command import Host, build_plan, shell_command
from backend.planning.document import load_document
from backend.planning.export import build_export
from backend.planning.groups import own_tags
from backend.planning.linting.context import LintContext
from backend.planning.linting.lint import lint_spec, lint_train_yaml
from backend.planning.secret_arguments import given_secrets
from backend.planning.spec import apply_changes, parse_spec
from backend.services.dry_run import DryRun, DryRuns, DryRunState
from backend.services.environments import Environments
from backend.services.preflight import HostFacts, check_host, join_problems, lint_context
from backend.services.row_lengths import RowLengths
from backend.services.secrets import PLACEHOLDER, forget_secrets, is_secret_name, load_secrets, save_secrets
from backend.settings import REPOSITORY, Settings
from backend.store.database import Database
from backend.store.events import append_event, load_events
from backend.store.files import read_json, write_json, write_text
from backend.store.jobs import JobTable
from backend.store.paths import DataPaths, JobPaths
from backend.store.plans import load_plan, save_plan
from backend.store.series_copy import drop_copy

ENTRY = REPOSITORY / "backend" / "inside" / "train.py"
WORKER_STALE_SECONDS = 15.0
MOST_TAGS, LONGEST_TAG, LONGEST_NOTES = 50, 100, 20_000

Fact = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What would be launched, and what is wrong with it. `plan` is None when an error leaves nothing to plan."""

    spec: JobSpec
    plan: LaunchPlan | None
    problems: tuple[Problem, ...]
    facts: Mapping[str, Fact]

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity is Severity.ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A job for use without Tunedeck. `shell` is the exact command, with an output folder of its own.

    `files` may be copied anywhere: train.yaml, ds_config.json, run.sh, job.sbatch and our own spec.yaml.
    """

    yaml: str
    deepspeed: str
    shell: str
    llamafactory_cli: str
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """`alive`: its heartbeat is fresh. `error` is the last thing that went wrong in its loop."""

    alive: bool
    pid: int | None
    beat_at: float | None
    error: str


class Api:
    """Thread-safe. Every change is on disk before a method returns."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.time,
        read_devices: Callable[[], Sequence[str]] = tuple,
        start_worker: Callable[[Settings], None] | None = None,
    ) -> None:
        self.settings = settings
        self.paths = DataPaths(settings.data_dir)
        self.clock = clock
        self.read_devices = read_devices
        self.environments = Environments(self.paths, settings)
        self.dry_runs = DryRuns()
        self.row_lengths = RowLengths(self.paths, self.environments)
        self.jobs = JobTable(Database(self.paths.database))
        self.paths.jobs.mkdir(parents=True, exist_ok=True)
        self._start_worker = start_worker or spawn_worker

    # --- reading ---------------------------------------------------------------------------------------------------

    def list_jobs(
        self,
        query: str = "",
        states: Collection[JobState] = (),
        limit: int = 50,
        offset: int = 0,
        sort: str = "created",
        descending: bool = True,
        tags: Collection[str] = (),
    ) -> tuple[int, list[Job]]:
        """Total and one page, newest first unless `sort` says otherwise. Raises InvalidInput for an unknown `sort`."""
        return self.jobs.find(query, states, limit, offset, sort, descending, tags)

    def list_tags(self) -> dict[str, int]:
        """Every tag in use and how many jobs carry it, the most used first."""
        return self.jobs.tags()

    def get_job(self, job_id: str) -> Job:
        return self.jobs.get(job_id)

    def job_paths(self, job_id: str) -> JobPaths:
        """Raises NotFound when there is no such job."""
        return self.paths.job(self.jobs.get(job_id).id)

    def read_events(self, job_id: str) -> list[Event]:
        return load_events(self.paths.job(job_id).events)

    def read_plan(self, job_id: str) -> LaunchPlan:
        return load_plan(self.paths.job(job_id).plan)

    def read_spec_text(self, job_id: str) -> str:
        try:
            return self.paths.job(job_id).spec.read_text("utf-8")
        except OSError as error:
            raise NotFound(f"The specification of job {job_id} cannot be read: {error.strerror}.") from error

    def worker_status(self) -> WorkerStatus:
        record = read_json(self.paths.worker_status)
        if not isinstance(record, dict):
            return WorkerStatus(alive=False, pid=None, beat_at=None, error="")
        beat_at = float(record.get("beat_at") or 0)
        return WorkerStatus(
            alive=self.clock() - beat_at < WORKER_STALE_SECONDS,
            pid=record.get("pid"),
            beat_at=beat_at,
            error=str(record.get("error") or ""),
        )

    # --- before a launch -------------------------------------------------------------------------------------------

    def preview(self, spec_text: str) -> Preview:
        """What `submit` would launch. Raises InvalidInput when the text is no specification at all."""
        spec = parse_spec(spec_text)
        return self._preview(spec, job_id="preview", job_dir=str(self.paths.jobs / "JOB_ID"))

    def _preview(self, spec: JobSpec, *, job_id: str, job_dir: str) -> Preview:
        facts = self._host_facts(spec)
        if spec.processes is None and not spec.gpus and facts.devices:
            spec = replace(spec, processes=len(facts.devices))  # one rank a card of this host
        lint = lint_spec(spec, lint_context(spec, facts)) if spec.task is not Task.BENCH else []
        problems = join_problems(check_host(spec, facts), lint)
        host = self._host(spec, facts)
        plan = build_plan(spec, job_id=job_id, job_dir=job_dir, host=host, devices=spec.gpus) if host else None
        return Preview(spec=spec, plan=plan, problems=tuple(problems), facts=_facts(spec, plan, facts))

    def _host_facts(self, spec: JobSpec) -> HostFacts:
        environment, fault = self.environments.cached(spec.environment), ""
        if environment is None:
            try:
                self.environments.python(spec.environment)
            except (EnvironmentFault, NotFound) as error:
                fault = str(error)
        return HostFacts(
            settings=self.settings, environment=environment, environment_fault=fault, devices=tuple(self.read_devices())
        )

    def _host(self, spec: JobSpec, facts: HostFacts) -> Host | None:
        if facts.environment_fault:
            return None
        return Host(
            python=str(self.environments.python(spec.environment)),
            entry=str(ENTRY),
            accelerator=facts.environment.accelerator if facts.environment else "cpu",
            cpu_count=os.cpu_count() or 1,
            dataset_dir=str(self.paths.datasets),
            stop_grace_seconds=self.settings.stop_grace_seconds,
            terminate_grace_seconds=self.settings.terminate_grace_seconds,
        )

    def lint(self, text: str) -> list[Problem]:
        """All rules on a train YAML, judged for the default environment of this host. Text that is no YAML is a problem too."""
        try:
            spec = parse_spec(text)
        except InvalidInput:
            return lint_train_yaml(text, LintContext())
        return lint_spec(spec, lint_context(spec, self._host_facts(spec)))

    def final_check(self, spec_text: str, *, wait: bool = False) -> DryRun:
        """What the trainer itself says of it: CHECKING until it has answered (ask again), or the answer with `wait`.

        Not asked while the other checks find errors: it would only repeat the first of them. Raises InvalidInput.
        """
        preview = self.preview(spec_text)
        if wait:
            self._describe_first(preview.spec)
        environment = self.environments.cached(preview.spec.environment)
        if environment is None and not preview.errors and self.environments.describe_soon(preview.spec.environment):
            return DryRun(digest="", state=DryRunState.CHECKING)
        if preview.errors or preview.plan is None or environment is None or not environment.usable:
            return DryRun(digest="", state=DryRunState.SKIPPED)
        ask = self.dry_runs.check if wait else self.dry_runs.request
        answer = ask(preview.plan, environment)
        if answer.state is DryRunState.DONE:
            self.row_lengths.keep(preview.spec, answer.facts)
        return answer

    # --- jobs ------------------------------------------------------------------------------------------------------

    def submit(self, spec_text: str, changes: Mapping[str, ArgValue] | None = None) -> Job:
        """Check, store and queue a job, with `changes` over what the text says. Raises InvalidInput, SpecRejected (with all
        problems), StoreFault."""
        if changes:
            spec_text = apply_changes(spec_text, changes)
        spec = parse_spec(spec_text)
        if not spec.environment or spec.environment == "default":
            self._describe_first(spec)
        job_id = new_job_id(spec.name, self.clock())
        preview = self._preview(spec, job_id=job_id, job_dir=str(self.paths.job(job_id).root))
        if preview.errors or preview.plan is None:
            first = preview.errors[0]
            raise SpecRejected(preview.problems, f"{first.field}: {first.found}. {first.remedy}")
        job = _new_job(job_id, spec, preview.plan, self.clock())
        self._store_new(job, spec, spec_text, preview.plan)
        self.ensure_worker()
        return self.jobs.get(job_id)

    def _describe_first(self, spec: JobSpec) -> None:
        """The first submit of an installation waits for the environment's description, so that it is judged by it."""
        try:
            self.environments.describe(spec.environment)
        except (EnvironmentFault, NotFound):
            pass  # check_host names it as a problem of the job

    def _store_new(self, job: Job, spec: JobSpec, spec_text: str, plan: LaunchPlan) -> None:
        """Folder first (built aside, then renamed), then the row: a crash leaves a whole job or none."""
        values = self._secret_values(spec)
        text = hide_secrets(spec_text, values)
        env = {name: value for name, value in plan.env.items() if name not in values}
        paths, aside = self.paths.job(job.id), JobPaths(self.paths.jobs / f".new-{job.id}")
        try:
            for folder in (aside.root, aside.recorder, aside.control, aside.telemetry):
                folder.mkdir(parents=True, exist_ok=True)
            write_text(aside.spec, text)
            for name, content in plan.files.items():
                write_text(aside.root / name, content)
            save_plan(aside.plan, replace(plan, env=env, secrets=tuple(sorted(values))))
            _make_output(aside, spec)
            save_secrets(self.paths, job.id, values)
            append_event(aside.events, StateChanged(at=job.created_at, state=JobState.QUEUED))
            aside.root.rename(paths.root)
            self.jobs.insert(job)
        except (OSError, StoreFault) as error:
            shutil.rmtree(aside.root, ignore_errors=True)
            shutil.rmtree(paths.root, ignore_errors=True)
            raise error if isinstance(error, StoreFault) else StoreFault(f"Cannot store the job: {error}.") from error

    def _secret_values(self, spec: JobSpec) -> dict[str, str]:
        """Secret variables of the spec; the placeholder of a cloned or resumed job stands for its parent's value."""
        inherited = load_secrets(self.paths, spec.parent) if spec.parent else {}
        named = {name: value for name, value in spec.env.items() if is_secret_name(name) and value}
        return {name: inherited.get(name, "") if value == PLACEHOLDER else value for name, value in named.items()}

    def request_stop(self, job_id: str, mode: StopMode) -> Job:
        """End a run in one of three ways; a waiting job is cancelled. A harder mode may follow a milder one."""
        job = self.jobs.get(job_id)
        if job.state is JobState.QUEUED:
            return self.cancel(job_id)
        if job.state.is_final:
            raise Conflict(f"The job has ended already ({job.state.value}).")
        paths = self.paths.job(job_id)
        if paths.attached.exists() and mode is StopMode.SAVE:
            raise Conflict(
                "Tunedeck did not start this run and cannot make it save: stop it without saving, or kill it."
            )
        write_json(paths.stop_request, {"at": self.clock(), "mode": mode.value})
        append_event(paths.events, StopRequested(at=self.clock(), mode=mode))
        return self._mark_stopping(job)

    def _mark_stopping(self, job: Job) -> Job:
        try:
            return self.jobs.transition(job.id, (JobState.RUNNING, JobState.STOPPING), JobState.STOPPING)
        except Conflict:
            return self.jobs.get(job.id)  # still starting, or it ended meanwhile: the worker has the last word

    def request_save(self, job_id: str) -> Job:
        """Write a checkpoint at the next step without stopping."""
        job, paths = self._running(job_id, "save a checkpoint")
        write_json(paths.save_request, {"at": self.clock()})
        append_event(paths.events, SaveRequested(at=self.clock()))
        return job

    def request_profile(self, job_id: str) -> Job:
        """Measure where the time of the next steps goes (services/profile.py reads the answer)."""
        job, paths = self._running(job_id, "be profiled")
        write_json(paths.profile_request, {"at": self.clock()})
        append_event(paths.events, ProfileRequested(at=self.clock()))
        return job

    def _running(self, job_id: str, what: str) -> tuple[Job, JobPaths]:
        job = self.jobs.get(job_id)
        if job.state is not JobState.RUNNING:
            raise Conflict(f"The job is {job.state.value}: only a running job can {what}.")
        return job, self.paths.job(job_id)

    def cancel(self, job_id: str) -> Job:
        """Take a waiting job out of the queue. Raises Conflict when it has started."""
        now = self.clock()
        job = self.jobs.transition(
            job_id, (JobState.QUEUED,), JobState.CANCELLED, reason=TerminationReason.CANCELLED_IN_QUEUE, ended_at=now
        )
        event = StateChanged(at=now, state=job.state, reason=job.reason)
        append_event(self.paths.job(job_id).events, event)
        return job

    def set_priority(self, job_id: str, priority: int) -> Job:
        return self.jobs.update(job_id, priority=priority)

    def move(self, job_id: str, before: str | None) -> Job:
        return self.jobs.move(job_id, before)

    def annotate(self, job_id: str, notes: str, tags: Sequence[str]) -> Job:
        """Replace notes and tags. Raises InvalidInput for what is too long to be one."""
        kept = tuple(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))
        longest = max((len(tag) for tag in kept), default=0)
        if len(kept) > MOST_TAGS or longest > LONGEST_TAG:
            raise InvalidInput(
                "tags",
                found=f"{len(kept)} tags, the longest of {longest} characters",
                expected=f"at most {MOST_TAGS} tags of up to {LONGEST_TAG} characters",
            )
        if len(notes) > LONGEST_NOTES:
            raise InvalidInput("notes", found=f"{len(notes)} characters", expected=f"at most {LONGEST_NOTES}")
        return self.jobs.update(job_id, notes=notes, tags=kept)

    def delete(self, job_id: str) -> None:
        """Remove a finished job and all its files, checkpoints included."""
        self.jobs.delete(job_id)
        paths = self.paths.job(job_id)
        aside = self.paths.jobs / f".deleted-{job_id}"
        try:
            paths.root.rename(aside)
        except FileNotFoundError:
            return
        shutil.rmtree(aside, ignore_errors=True)
        drop_copy(self.paths.series_copies, paths.recorder)
        forget_secrets(self.paths, job_id)

    def resume(self, job_id: str, checkpoint: str, changes: Mapping[str, ArgValue] | None = None) -> Job:
        """A new job that goes on from `checkpoint` (a folder name in the run's output), linked to its parent."""
        return self.submit(self.resume_text(job_id, checkpoint, changes))

    def resume_text(self, job_id: str, checkpoint: str, changes: Mapping[str, ArgValue] | None = None) -> str:
        """The specification of such a job, to be looked at or edited first. Raises Conflict for an incomplete checkpoint."""
        saved = saved_checkpoints(self.read_events(job_id))
        folder = self.job_paths(job_id).output / checkpoint
        if checkpoint not in saved or not (folder / "trainer_state.json").is_file():
            known = ", ".join(saved) or "none"
            raise Conflict(f"{checkpoint} is not a complete checkpoint of this job. Complete ones: {known}.")
        text = self.read_spec_text(job_id)
        spec = parse_spec(text)
        wanted = {
            **(changes or {}),
            "resume_from_checkpoint": str(folder),
            "tunedeck.parent": job_id,
            "tunedeck.name": f"{spec.name}-from-{saved[checkpoint]}",
        }
        absent = [name for name in ("output_dir", "overwrite_output_dir") if name in spec.train]
        return apply_changes(text, wanted, absent)

    def last_checkpoint(self, job_id: str) -> str:
        """Folder name of the newest complete checkpoint. Raises NotFound without such a job, Conflict without a checkpoint."""
        saved = saved_checkpoints(load_events(self.job_paths(job_id).events))
        if not saved:
            raise Conflict("The job has no complete checkpoint to resume from.")
        return list(saved)[-1]

    def clone_text(self, job_id: str) -> str:
        """The specification of a job, to be edited and submitted as a new one."""
        text = self.read_spec_text(job_id)
        spec = parse_spec(text)
        absent = ["resume_from_checkpoint"] if "resume_from_checkpoint" in spec.train else []
        changes: dict[str, ArgValue] = {"tunedeck.parent": job_id}
        if (tags := own_tags(spec.tags)) != list(spec.tags):
            changes["tunedeck.tags"] = list[ArgValue](tags)
        return apply_changes(text, changes, absent)

    def export(self, job_id: str) -> Export:
        """YAML, DeepSpeed JSON, commands and scripts that need no Tunedeck. Raises NotFound, Conflict when it trains nothing."""
        job, plan, folder = self.jobs.get(job_id), self.read_plan(job_id), self.paths.job(job_id).root
        try:
            files = {**build_export(plan, job.name), "spec.yaml": self.read_spec_text(job_id)}
        except ValueError as error:
            raise Conflict(f"Job {job_id} cannot be exported: {error}.") from error
        rerun = f"{folder}/rerun"
        variables = {"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": str(plan.processes)}
        return Export(
            yaml=plan.files.get("train.yaml", ""),
            deepspeed=plan.files.get("ds_config.json", ""),
            shell=shell_command(plan, output_dir=rerun),
            llamafactory_cli=shell_command(
                replace(
                    plan,
                    argv=(str(Path(plan.argv[0]).with_name("llamafactory-cli")), "train", f"{folder}/train.yaml"),
                    env={**plan.env, **variables, "PATH": f"{Path(plan.argv[0]).parent}:/usr/local/bin:/usr/bin:/bin"},
                ),
                output_dir=rerun,
            ),
            files=files,
        )

    def export_to(self, job_id: str, folder: Path) -> list[Path]:
        """Write `files` of the export into `folder`. Raises Conflict rather than overwrite one, StoreFault."""
        files = self.export(job_id).files
        taken = [name for name in files if (folder / name).exists()]
        if taken:
            raise Conflict(f"{folder} has {', '.join(taken)} already: choose another folder.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                (folder / name).write_text(text, "utf-8")
                if name.endswith(".sh"):
                    (folder / name).chmod(0o755)
        except OSError as error:
            raise StoreFault(f"Cannot write to {folder}: {error.strerror or error}.") from error
        return [folder / name for name in files]

    def ensure_worker(self) -> None:
        """Start the worker unless one holds the lock (a second one would end by itself at once)."""
        if not self.worker_status().alive:
            self._start_worker(self.settings)

    def stop_worker(self) -> bool:
        """End this data folder's worker; runs go on, the next worker takes them over. False: none was there.

        Raises EnvironmentFault when it cannot be ended.
        """
        record = read_json(self.paths.worker_status)
        if not isinstance(record, dict) or not isinstance(record.get("start_ticks"), int):
            return False
        worker = ProcessIdentity(pid=int(record["pid"]), start_ticks=record["start_ticks"])
        if not is_alive(worker):
            return False
        try:
            if end_process(worker):
                return True
        except PermissionError as error:
            raise EnvironmentFault(f"The worker (process {worker.pid}) belongs to another user.") from error
        raise EnvironmentFault(f"The worker (process {worker.pid}) does not end.")


def hide_secrets(spec_text: str, names: Collection[str]) -> str:
    """The document without the values of the variables `names`, nor the arguments that they came from."""
    if not names:
        return spec_text
    hidden = {f"tunedeck.env.{name}": PLACEHOLDER for name in names}
    return apply_changes(spec_text, hidden, list(given_secrets(load_document(spec_text))))


def spawn_worker(settings: Settings) -> None:
    """A worker of its own session: it outlives the dashboard."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "TUNEDECK_DATA": str(settings.data_dir)}
    if settings.training_python:
        env["TUNEDECK_TRAINING_PYTHON"] = str(settings.training_python)
    paths = DataPaths(settings.data_dir)
    spawn_detached(
        [sys.executable, str(REPOSITORY / "app.py"), "worker"], log=paths.worker_log, env=env, cwd=settings.data_dir
    )


def new_job_id(name: str, now: float) -> str:
    """`20261130-231500-demo-3f2a`: sorts by time, says what it is, never collides."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "job"
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{slug}-{secrets.token_hex(2)}"


def _new_job(job_id: str, spec: JobSpec, plan: LaunchPlan, now: float) -> Job:
    train = spec.train
    trains = spec.task is not Task.BENCH  # a check of cards has neither stage nor method
    return Job(
        id=job_id,
        name=spec.name,
        state=JobState.QUEUED,
        priority=spec.priority,
        processes=plan.processes,
        stage=str(train.get("stage") or "sft") if trains else "",
        finetuning_type=str(train.get("finetuning_type") or "lora") if trains else "",
        model=str(train.get("model_name_or_path") or ""),
        dataset=_joined(train.get("dataset")),
        parent=spec.parent,
        tags=spec.tags,
        notes=spec.notes,
        created_at=now,
    )


def _joined(value: ArgValue) -> str:
    return ", ".join(str(part) for part in value) if isinstance(value, list) else str(value or "")


def _make_output(paths: JobPaths, spec: JobSpec) -> None:
    """The job's output folder, or a link to the absolute one that the user chose."""
    wanted = spec.train.get("output_dir")
    if isinstance(wanted, str) and wanted.startswith("/"):
        Path(wanted).mkdir(parents=True, exist_ok=True)
        paths.output.symlink_to(wanted)
    else:
        paths.output.mkdir()


def _facts(spec: JobSpec, plan: LaunchPlan | None, host: HostFacts) -> dict[str, Fact]:
    """Numbers for the page beside the command."""
    processes = plan.processes if plan else spec.processes or 1
    micro = spec.train.get("per_device_train_batch_size", 8)
    accumulation = spec.train.get("gradient_accumulation_steps", 1)
    effective = micro * accumulation * processes if isinstance(micro, int) and isinstance(accumulation, int) else None
    environment = host.environment
    return {
        "processes": processes,
        "effective_batch": effective,
        "accelerator": environment.accelerator if environment else None,
        "python": plan.argv[0] if plan else None,
        "llamafactory": environment.versions.get("llamafactory") if environment else None,
        "torch": environment.versions.get("torch") if environment else None,
    }
