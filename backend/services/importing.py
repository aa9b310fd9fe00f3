"""Pasted text, uploaded bytes or a path -> Imported, and any text -> Problems: what the config studio and the commands call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from backend.domain.job import JobSpec
from backend.domain.problem import ArgValue, Problem, Severity
from backend.errors import InvalidInput, NotFound
from backend.planning.importing.detect import Kind, detect_config
from backend.planning.importing.imported import Imported, Remark, apply_fixes, import_text, import_texts
from backend.planning.linting.context import LintContext
from backend.planning.linting.lint import lint_train_yaml, not_yaml
from backend.planning.linting.report import report
from backend.planning.spec import decode_text, dump_spec
from backend.services.inspect_config import config_facts
from backend.services.inspect_data import data_facts

__all__ = [
    "Imported",
    "apply_fixes",
    "import_bytes",
    "import_path",
    "import_text",
    "import_texts",
    "is_train_config",
    "lint_bytes",
    "lint_text",
]

_MAX_BYTES = 4 << 20
_FOLDER_FILES = ("spec.yaml", "training_args.yaml", "train.yaml", "llamaboard_config.yaml")


def lint_text(text: str, *, filename: str = "", context: LintContext | None = None) -> list[Problem]:
    """All Problems of a text of any kind; a text that is no configuration gives one problem that says so."""
    context = context or LintContext()
    kind = detect_config(text.lstrip("\ufeff"), filename)
    if kind in (Kind.REGISTRY, Kind.ARROW_INFO) or (kind is None and filename.endswith((".json", ".jsonl", ".csv"))):
        return data_facts(filename, text.encode())[1] if kind is None else []
    if kind is None or kind is Kind.TRAIN:
        return lint_train_yaml(text, context)
    return config_facts(kind, filename, text, context)[1]


def is_train_config(text: str, filename: str = "") -> bool:
    """A train YAML (or text that nothing else can be): judged by all rules for the environment that will run it."""
    return detect_config(text.lstrip("\ufeff"), filename) in (None, Kind.TRAIN) and not filename.endswith(
        (".json", ".jsonl", ".csv", ".txt")
    )


def lint_bytes(data: bytes, *, filename: str = "", context: LintContext | None = None) -> list[Problem]:
    """The same for an uploaded file; bytes that are no text give one problem."""
    try:
        text = decode_text(data)
    except InvalidInput as error:
        return [not_yaml(error)]
    return lint_text(text, filename=filename, context=context)


def import_bytes(files: Mapping[str, bytes]) -> Imported:
    """Uploaded files that belong together."""
    texts: dict[str, str] = {}
    problems: list[Problem] = []
    for name, data in files.items():
        try:
            texts[name] = decode_text(data)
        except InvalidInput as error:
            problems.append(report("not_valid_yaml", Severity.ERROR, field=name, found=error.found, line=error.line))
    if not texts:
        return Imported(kind="unknown", problems=tuple(problems))
    return import_texts(texts)


def import_path(path: Path) -> Imported:
    """A file, a job folder of ours, or a finished output folder. Raises NotFound when there is nothing to read."""
    if path.is_file():
        return import_bytes({path.name: _read(path), **_named_beside(path)})
    if not path.is_dir():
        raise NotFound(f"There is no file or folder {path}.")
    for name in _FOLDER_FILES:
        if (path / name).is_file():
            return import_bytes({name: _read(path / name)})
    return _from_output(path)


def _read(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(_MAX_BYTES)


def _named_beside(path: Path) -> dict[str, bytes]:
    """YAML and JSON files in the same folder that the file names, and those that these name (a `deepspeed:` file)."""
    beside = [*path.parent.glob("*.yaml"), *path.parent.glob("*.yml"), *path.parent.glob("*.json")]
    others = {other.name: other for other in sorted(beside)[:200] if other != path and other.is_file()}
    found: dict[str, bytes] = {}
    texts = [_read(path).decode("utf-8", "replace")]
    while texts:
        text = texts.pop()
        for name in [name for name in others if name in text and name not in found]:
            found[name] = _read(others[name])
            texts.append(found[name].decode("utf-8", "replace"))
    return found


_STATE_NAMES = {
    "train_batch_size": "per_device_train_batch_size",
    "num_train_epochs": "num_train_epochs",
    "save_steps": "save_steps",
    "logging_steps": "logging_steps",
    "eval_steps": "eval_steps",
}
_ADAPTER_NAMES = {"r": "lora_rank", "lora_alpha": "lora_alpha", "lora_dropout": "lora_dropout", "use_dora": "use_dora"}


def _from_output(folder: Path) -> Imported:
    """What a finished output folder still tells: adapter_config.json and trainer_state.json."""
    adapter, state = _json(folder / "adapter_config.json"), _json(folder / "trainer_state.json")
    if not adapter and not state:
        raise NotFound(f"{folder} holds no configuration: no spec.yaml, training_args.yaml or adapter_config.json.")
    train: dict[str, ArgValue] = {"stage": "sft", "do_train": True}
    if adapter:
        train.update(_adapter_arguments(adapter))
    names = {
        "train_batch_size": "per_device_train_batch_size",
        "num_train_epochs": "num_train_epochs",
        "save_steps": "save_steps",
    }
    for key, name in {**names, "logging_steps": "logging_steps", "eval_steps": "eval_steps"}.items():
        if isinstance(state.get(key), (int, float)):
            train[name] = state[key]
    text = dump_spec(JobSpec(name=folder.name, train=train))
    remark = Remark(key="partial_output", values={"folder": folder.name})
    return Imported(kind="output_folder", spec_text=text, not_understood=(remark,))


def _adapter_arguments(adapter: Mapping[str, ArgValue]) -> dict[str, ArgValue]:
    found: dict[str, ArgValue] = {
        "finetuning_type": "lora",
        "model_name_or_path": adapter.get("base_model_name_or_path"),
    }
    for key, name in _ADAPTER_NAMES.items():
        if adapter.get(key):
            found[name] = adapter[key]
    targets = adapter.get("target_modules")
    if isinstance(targets, list):
        found["lora_target"] = ",".join(sorted(map(str, targets)))
    return found


def _json(path: Path) -> dict[str, ArgValue]:
    try:
        content = json.loads(_read(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
