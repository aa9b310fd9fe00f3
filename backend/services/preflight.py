"""A JobSpec in, the Problems that only a look at this host can find out: paths, data sets, disk, ports, environment."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from backend.domain.environment import TrainingEnvironment
from backend.domain.job import JobSpec, Task
from backend.domain.problem import Problem, Severity
from backend.parsing.datasets.records import RegistryEntry
from backend.parsing.datasets.registry import inspect_registry
from backend.parsing.datasets.report import inspect_data
from backend.planning.linting.context import LintContext
from backend.planning.schema import TrainerSchema, parse_description
from backend.services.inspect_data import data_problems
from backend.settings import Settings
from backend.store.paths import DataPaths

_ROWS_BYTES = 1 << 20
_REMOTE_SOURCES = ("hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name")

_INHERITED = (
    "HSA_OVERRIDE_GFX_VERSION",
    "PYTORCH_ROCM_ARCH",
    "ALLOW_EXTRA_ARGS",
    "PYTORCH_CUDA_ALLOC_CONF",
    "NCCL_DEBUG",
)
"""Variables of the service's own environment that a run would inherit and the rules know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What of this host a launch depends on. `devices` are the PCI addresses of all GPUs."""

    settings: Settings
    environment: TrainingEnvironment | None
    environment_fault: str
    devices: tuple[str, ...]


def check_host(spec: JobSpec, facts: HostFacts) -> list[Problem]:
    """Errors stop the launch; each names the argument, what was found and what to do."""
    found = [_check_environment(facts)]
    if spec.task is not Task.BENCH:  # a host check has no model, data or output
        found += [
            _check_model(spec),
            *_check_datasets(spec, facts.settings),
            _check_output(spec, facts),
            _check_deepspeed_file(spec),
            _check_checkpoint(spec),
        ]
    found += [_check_port(spec), _check_processes(spec, facts)]
    return [problem for problem in found if problem is not None]


def lint_context(spec: JobSpec, facts: HostFacts) -> LintContext:
    """What the rules may know of this host and of the trainer that will run."""
    environment = facts.environment
    gpus = len(spec.gpus or facts.devices)
    return LintContext(
        schema=schema_of(environment) if environment else None,
        accelerator=environment.accelerator if environment else "",
        gpu_model=environment.device_names[0] if environment and environment.device_names else "",
        gpu_count=gpus or None,
        environment={name: os.environ[name] for name in _INHERITED if name in os.environ},
        processes=spec.processes or gpus or 1,
        nodes=1,
        launched_here=True,
    )


def schema_of(environment: TrainingEnvironment) -> TrainerSchema | None:
    """The trainer's own arguments; None when the description holds none (the built-in ones are used then)."""
    try:
        described = json.loads(environment.description)
    except ValueError:
        return None
    return parse_description(described) if described.get("arguments") else None


def join_problems(first: Sequence[Problem], second: Sequence[Problem]) -> list[Problem]:
    """Both lists, worst first; where both found the same fault in a field, the first (it has looked at the host) is kept."""
    known = {(problem.code, problem.field) for problem in first}
    both = [*first, *(problem for problem in second if (problem.code, problem.field) not in known)]
    order = list(Severity)
    return sorted(both, key=lambda problem: order.index(problem.severity))


def _error(code: str, field: str, found: str, expected: str, reason: str, remedy: str, **params: str) -> Problem:
    return Problem(
        code=code,
        severity=Severity.ERROR,
        field=field,
        found=found,
        expected=expected,
        reason=reason,
        remedy=remedy,
        params=params,
    )


def _check_environment(facts: HostFacts) -> Problem | None:
    fault = facts.environment_fault or (facts.environment.fault if facts.environment else "")
    if not fault:
        return None
    return _error(
        "environment_unusable",
        "tunedeck.environment",
        fault,
        "an interpreter with torch, transformers, llamafactory",
        "The run is started with this interpreter.",
        "Run scripts/setup --training, or choose another interpreter in Settings.",
        fault=fault,
    )


def _check_model(spec: JobSpec) -> Problem | None:
    name = spec.train.get("model_name_or_path")
    if not isinstance(name, str) or not name.strip():
        return _error(
            "model_name_missing",
            "model_name_or_path",
            repr(name) if name else "nothing",
            "a folder on this host or a hub name such as Qwen/Qwen3-8B",
            "LLaMA-Factory ends with «Please provide model_name_or_path.»",
            "Name the model.",
        )
    path = Path(name).expanduser()
    if not (path.is_absolute() or name.startswith((".", "~"))):
        return None  # a hub name
    if not path.is_dir():
        return _error(
            "model_path_missing",
            "model_name_or_path",
            name,
            "an existing folder",
            "transformers takes a missing folder for a hub name and fails with a misleading message.",
            "Correct the path, or give a hub name.",
        )
    if not (path / "config.json").is_file():
        return _error(
            "model_path_missing",
            "model_name_or_path",
            f"{name} without config.json",
            "a folder with config.json and weights",
            "The folder holds no Hugging Face model.",
            "Name the folder that holds config.json (often one level deeper).",
        )
    return None


def _check_datasets(spec: JobSpec, settings: Settings) -> list[Problem]:
    folder = spec.train.get("dataset_dir") or str(DataPaths(settings.data_dir).datasets)
    names = [*_names(spec.train.get("dataset")), *_names(spec.train.get("eval_dataset"))]
    if not names or not isinstance(folder, str) or folder == "ONLINE" or folder.startswith("REMOTE:"):
        return []
    if not folder.startswith(("/", "~")):
        return [_registry_missing(folder)]
    registry = Path(folder).expanduser() / "dataset_info.json"
    try:
        entries = json.loads(registry.read_text("utf-8-sig"))
    except OSError:
        return [_registry_missing(folder)]
    except ValueError as error:
        return [
            _error(
                "not_valid_json",
                "dataset_dir",
                f"{registry}: {error}",
                "one JSON object",
                "LLaMA-Factory reads the registry first.",
                "Correct dataset_info.json.",
            )
        ]
    if not isinstance(entries, dict):
        return [_registry_missing(folder)]
    root = Path(folder).expanduser()
    missing = [problem for name in names if (problem := _check_entry(name, entries, root))]
    known = {entry.name: entry for entry in inspect_registry(entries).entries}
    return missing or [problem for name in names if name in known for problem in _check_rows(known[name], root)]


def _check_rows(entry: RegistryEntry, folder: Path) -> tuple[Problem, ...]:
    """What the first rows of a data set's own file show. Warnings: the trainer's check has the last word on data."""
    path = folder / entry.file_name
    if entry.is_remote or not entry.file_name or not path.is_file():
        return ()
    try:
        found = path.stat()
        return _file_problems(path, found.st_size, found.st_mtime_ns, json.dumps(entry.raw, sort_keys=True), entry.name)
    except OSError:
        return ()  # the trainer's check says what it cannot read


@lru_cache(maxsize=64)
def _file_problems(path: Path, size: int, changed: int, raw: str, name: str) -> tuple[Problem, ...]:
    """Kept while the file and its entry stay as they are: a preview follows each keystroke."""
    with path.open("rb") as file:
        data = file.read(_ROWS_BYTES)
    if size > len(data):
        if path.suffix.lower() not in (".jsonl", ".csv", ".txt"):
            return ()  # half a JSON array can be judged by nobody
        data = data[: data.rfind(b"\n") + 1]
    entry = next(entry for entry in inspect_registry({name: json.loads(raw)}).entries if entry.name == name)
    problems = data_problems(inspect_data(data, path.name, entry).findings)
    shown = [problem for problem in problems if problem.severity is not Severity.NOTE]
    return tuple(
        replace(problem, severity=Severity.WARNING, field="dataset", found=f"{name}: {problem.found}".rstrip(": "))
        for problem in shown
    )


def _registry_missing(folder: str) -> Problem:
    return _error(
        "dataset_registry_missing",
        "dataset_dir",
        f"{folder} without a readable dataset_info.json",
        "a folder that holds dataset_info.json",
        "Data sets are named in that file; a relative folder is looked for in the job's own folder.",
        "Give the absolute path of the folder that holds dataset_info.json.",
    )


def _check_entry(name: str, entries: dict[str, object], folder: Path) -> Problem | None:
    entry = entries.get(name)
    if not isinstance(entry, dict):
        known = ", ".join(sorted(entries)[:12]) or "none"
        return _error(
            "dataset_undefined",
            "dataset",
            name,
            f"one of: {known}",
            "The name is no key of dataset_info.json.",
            "Choose a registered name, or add an entry for it.",
        )
    file_name = entry.get("file_name")
    local = isinstance(file_name, str) and not any(entry.get(source) for source in _REMOTE_SOURCES)
    if not local or (folder / str(file_name)).exists():
        return None
    return _error(
        "file_missing",
        "dataset",
        f"{name}: {file_name}",
        "an existing file or folder below dataset_dir",
        "The registry names a file that does not exist.",
        "Correct file_name in dataset_info.json or put the file there.",
    )


def _names(value: object) -> list[str]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [str(part) for part in value] if isinstance(value, list) else []


def _check_output(spec: JobSpec, facts: HostFacts) -> Problem | None:
    wanted = spec.train.get("output_dir")
    own = isinstance(wanted, str) and wanted.startswith("/")
    folder = Path(str(wanted)) if own else facts.settings.data_dir
    if own and folder.is_dir() and any(folder.iterdir()) and not spec.train.get("overwrite_output_dir"):
        return _error(
            "output_not_empty",
            "output_dir",
            f"{wanted} holds files",
            "a new or empty folder",
            "LLaMA-Factory resumes silently from checkpoints it finds there, or refuses to start.",
            "Leave output_dir out (the job has its own folder), choose a new one, or use Resume.",
        )
    parent = next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))
    if not os.access(parent, os.W_OK) or not _is_writable(parent):
        return _error(
            "output_not_writable",
            "output_dir",
            f"{parent} cannot be written",
            "a folder this user may write to",
            "Checkpoints and logs go there.",
            "Choose another folder, or correct its rights or mount options.",
        )
    free = shutil.disk_usage(parent).free
    if free < facts.settings.min_free_disk_bytes:
        return _error(
            "disk_full",
            "output_dir",
            f"{free / 1e9:.2f} GB free at {parent}",
            f"at least {facts.settings.min_free_disk_bytes / 1e9:.2f} GB",
            "A run that cannot write its checkpoint is lost.",
            "Free disk space, or choose a folder on another disk.",
        )
    return None


def _is_writable(folder: Path) -> bool:
    """Root passes os.access on a read-only mount's folder: ask the mount itself."""
    return not os.statvfs(folder).f_flag & os.ST_RDONLY


def _check_deepspeed_file(spec: JobSpec) -> Problem | None:
    path = spec.train.get("deepspeed")
    if not isinstance(path, str) or not path:
        return None
    if not path.startswith("/"):
        return _error(
            "deepspeed_config_missing",
            "deepspeed",
            path,
            "an absolute path, or the configuration itself as a mapping",
            "A relative path is looked for in the trainer's own folder.",
            "Give the absolute path, paste the JSON below deepspeed:, or remove the key and choose a ZeRO stage.",
        )
    if not Path(path).is_file():
        return _error(
            "deepspeed_config_missing",
            "deepspeed",
            path,
            "an existing JSON file",
            "DeepSpeed's own error for a missing file does not say so.",
            "Correct the path, or remove the key and choose a ZeRO stage.",
        )
    return None


def _check_checkpoint(spec: JobSpec) -> Problem | None:
    path = spec.train.get("resume_from_checkpoint")
    if not isinstance(path, str) or not path or Path(path).is_dir():
        return None
    return _error(
        "checkpoint_not_found",
        "resume_from_checkpoint",
        path,
        "an existing checkpoint-N folder",
        "There is nothing to resume from.",
        "Choose a checkpoint on the run's page.",
    )


def _check_port(spec: JobSpec) -> Problem | None:
    text = spec.env.get("MASTER_PORT")
    if text is None:
        return None
    port = int(text) if text.isdigit() else 0
    if not 0 < port < 65536:
        return _error(
            "bad_value",
            "tunedeck.env.MASTER_PORT",
            text,
            "a port number 1 to 65535",
            "torchrun listens there.",
            "Remove the variable: a free port is chosen by itself.",
        )
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return _error(
                "port_in_use",
                "tunedeck.env.MASTER_PORT",
                f"{port}: {error.strerror}",
                "a free port",
                "Another program listens on it, perhaps another training.",
                "Remove the variable: a free port is chosen by itself.",
            )
    return None


def _check_processes(spec: JobSpec, facts: HostFacts) -> Problem | None:
    unknown = [device for device in spec.gpus if device not in facts.devices]
    if unknown:
        return _error(
            "gpu_unknown",
            "tunedeck.gpus",
            ", ".join(unknown),
            f"PCI addresses of this host: {', '.join(facts.devices) or 'none'}",
            "The job would wait for ever.",
            "Choose cards of this host, or leave the list empty.",
        )
    wanted = spec.processes or 1
    if facts.devices and wanted > len(spec.gpus or facts.devices):
        return _error(
            "nproc_exceeds_visible",
            "tunedeck.processes",
            str(wanted),
            f"at most {len(spec.gpus or facts.devices)}",
            "Each process needs a GPU of its own.",
            "Lower the number of processes, or choose more cards.",
        )
    return None
