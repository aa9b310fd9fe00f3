"""A folder or console log of a run that Tunedeck did not start in, a job that shows it out. Nothing is written beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from backend.adapters.process import ProcessIdentity, boot_id, identify, is_alive
from backend.domain.events import StateChanged
from backend.domain.job import Job, JobState
from backend.errors import Conflict, InvalidInput, NotFound, PathRefused, StoreFault
from backend.services.api import Api, new_job_id
from backend.settings import Settings
from backend.store.events import append_event
from backend.store.files import read_json, write_json, write_text
from backend.store.paths import JobPaths

TRAINER_LOG = "trainer_log.jsonl"
CONSOLE_NAMES = ("console.log", "train.log", "training.log", "output.log", "nohup.out", "running_log.txt")
TAG = "attached"
_FINISHED_MODEL = ("all_results.json", "train_results.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """Where the run's files are ("" = there is none), and the process that writes them when it is known."""

    source: str
    console: str
    trainer_log: str
    output: str
    pid: int | None = None
    start_ticks: int | None = None
    boot: str = ""

    @property
    def process(self) -> ProcessIdentity | None:
        """The very process, while it lives."""
        if self.pid is None or self.start_ticks is None or self.boot != boot_id():
            return None
        found = ProcessIdentity(pid=self.pid, start_ticks=self.start_ticks)
        return found if is_alive(found) else None


def load_attachment(paths: JobPaths) -> Attachment | None:
    """None for a job that Tunedeck started itself."""
    record = read_json(paths.attached)
    return Attachment(**record) if isinstance(record, dict) else None


def attach(api: Api, path: str, *, pid: int | None = None, name: str = "") -> Job:
    """Raises PathRefused, NotFound, InvalidInput (no run there, no such process), Conflict (attached already), StoreFault."""
    source = resolve_inside(Path(path), api.settings)
    found = find_files(source)
    process = identify_process(pid) if pid is not None else find_writer(found)
    if process is not None:
        found = Attachment(
            **asdict(found) | {"pid": process.pid, "start_ticks": process.start_ticks, "boot": boot_id()}
        )
    for job in api.list_jobs(states=[JobState.RUNNING, JobState.STOPPING], limit=10_000)[1]:
        known = load_attachment(api.paths.job(job.id))
        if known is not None and known.source == found.source:
            raise Conflict(f"{source} is attached already, as job {job.id}.")
    return _store(api, found, name or source.stem or "attached")


def allowed_roots(settings: Settings) -> tuple[Path, ...]:
    """TUNEDECK_ROOTS; without it the home folder of the user who runs Tunedeck, and its data folder."""
    return settings.allowed_roots or (Path.home(), settings.data_dir)


def resolve_inside(path: Path, settings: Settings) -> Path:
    """The path with links resolved. Raises PathRefused outside the allowed roots and in hidden folders, NotFound."""
    if not path.is_absolute():
        raise InvalidInput("path", found=str(path) or "nothing", expected="an absolute path of a folder or log file")
    try:
        resolved = path.resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise PathRefused(f"{path} cannot be resolved.") from error
    roots = [root.resolve() for root in allowed_roots(settings)]
    root = next((root for root in roots if resolved.is_relative_to(root)), None)
    if root is None:
        shown = ", ".join(map(str, roots))
        raise PathRefused(
            f"{resolved} is outside the allowed roots ({shown}). Set TUNEDECK_ROOTS to allow more folders."
        )
    if any(part.startswith(".") for part in resolved.relative_to(root).parts):
        raise PathRefused(f"{resolved} is hidden, or in a hidden folder: those hold settings and keys, not runs.")
    if not resolved.exists():
        raise NotFound(f"There is no file or folder {resolved}.")
    return resolved


def find_files(source: Path) -> Attachment:
    """The files of a run in a folder, or beside a console log. Raises InvalidInput when it holds no run."""
    if source.is_file():
        is_trainer_log = source.name == TRAINER_LOG
        folder = source.parent if is_trainer_log else None
        return Attachment(
            source=str(source), console="" if is_trainer_log else str(source),
            trainer_log=str(source) if is_trainer_log else "", output=str(folder or ""),
        )  # fmt: skip
    trainer_log = source / TRAINER_LOG
    console = next((str(path) for path in _consoles(source)), "")
    has_checkpoints = any(source.glob("checkpoint-*/trainer_state.json"))
    if not trainer_log.is_file() and not console and not has_checkpoints:
        raise InvalidInput(
            "path", found=f"{source}, with no {TRAINER_LOG}, console log or checkpoint in it",
            expected="the output folder of a training, or its console log",
        )  # fmt: skip
    return Attachment(
        source=str(source), console=console, trainer_log=str(trainer_log) if trainer_log.is_file() else "",
        output=str(source),
    )  # fmt: skip


def _consoles(folder: Path) -> Iterator[Path]:
    """Known names first, then the newest log. A link must not lead out of the folder."""
    named = [folder / name for name in CONSOLE_NAMES]
    others = sorted([*folder.glob("*.log"), *folder.glob("*.out")], key=lambda path: -path.lstat().st_mtime)
    return (path for path in [*named, *others] if path.is_file() and path.resolve().is_relative_to(folder))


def identify_process(pid: int) -> ProcessIdentity:
    """Raises InvalidInput when there is no such process of this user."""
    process = identify(pid)
    if process is None:
        raise InvalidInput(
            "pid", found=f"{pid}, which does not run", expected="the pid of the training's launcher, or none"
        )
    if Path(f"/proc/{pid}").stat().st_uid != os.getuid():
        raise InvalidInput("pid", found=f"{pid}, of another user", expected="a process of the user who runs Tunedeck")
    return process


def find_writer(found: Attachment) -> ProcessIdentity | None:
    """The process whose own output goes to the console log: the topmost of them, for its children inherit it."""
    if not found.console:
        return None
    console = Path(found.console)
    writers: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            is_writer = any((entry / "fd" / number).resolve() == console for number in ("1", "2"))
            if is_writer:
                writers[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, RuntimeError):  # gone, or another user's
            continue
    tops = [pid for pid, parent in writers.items() if parent not in writers]
    return identify(tops[0]) if len(tops) == 1 else None


def _store(api: Api, found: Attachment, name: str) -> Job:
    now = api.clock()
    job_id = new_job_id(name, now)
    paths = api.paths.job(job_id)
    facts = _facts(Path(found.output)) if found.output else {}
    spec = {"tunedeck": {"name": name, "tags": [TAG]}, **facts}
    try:
        for folder in (paths.root, paths.recorder, paths.control, paths.telemetry):
            folder.mkdir(parents=True, exist_ok=True)
        write_json(paths.attached, asdict(found))
        head = f"# Attached: {found.source}\n# Tunedeck did not start this run; only what its files tell is known.\n"
        write_text(paths.spec, head + yaml.safe_dump(spec, allow_unicode=True, sort_keys=False))
        if found.output:
            paths.output.symlink_to(found.output)
        else:
            paths.output.mkdir()
        if found.console:
            paths.console.symlink_to(found.console)
        append_event(paths.events, StateChanged(at=now, state=JobState.RUNNING, message=f"Attached to {found.source}"))
    except OSError as error:
        raise StoreFault(f"Cannot store the job: {error}.") from error
    job = Job(
        id=job_id, name=name, state=JobState.RUNNING, processes=0, created_at=now, started_at=None, tags=(TAG,),
        model=str(facts.get("model_name_or_path", "")), finetuning_type=str(facts.get("finetuning_type", "")),
    )  # fmt: skip
    api.jobs.insert(job)
    api.ensure_worker()
    return api.jobs.get(job_id)


def _facts(output: Path) -> dict[str, str]:
    """What an adapter's own file says about the run."""
    newest = sorted(output.glob("checkpoint-*/adapter_config.json"), key=lambda path: path.stat().st_mtime)
    record = next(
        (found for path in (output / "adapter_config.json", *newest[-1:]) if (found := read_json(path))), None
    )
    if not isinstance(record, dict):
        return {}
    return {"model_name_or_path": str(record.get("base_model_name_or_path") or ""), "finetuning_type": "lora"}


def is_finished(output: Path) -> bool:
    """The trainer wrote its final figures."""
    return any((output / name).is_file() for name in _FINISHED_MODEL)
