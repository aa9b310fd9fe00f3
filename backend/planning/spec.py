"""spec.yaml text -> JobSpec and back; a form's or a fix's changes -> new text (contract: docs/contracts.md, spec.yaml)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import TypeVar

from backend.domain.job import JobSpec, Offload, Task, ZeroConfig
from backend.domain.problem import ArgValue
from backend.errors import InvalidInput
from backend.planning.document import (
    Path,
    edit_document,
    load_document,
    position_of,
    raw_scalar,
    render_value,
    same_value,
)
from backend.planning.secret_arguments import move_secrets

SECTION = "tunedeck"
_KEYS = (
    "name",
    "processes",
    "gpus",
    "zero",
    "env",
    "environment",
    "executor",
    "priority",
    "tags",
    "notes",
    "parent",
    "task",
)
_ZERO_KEYS = ("stage", "offload_optimizer", "offload_param")
_ORDER = (
    SECTION,
    "model_name_or_path",
    "adapter_name_or_path",
    "trust_remote_code",
    "stage",
    "do_train",
    "finetuning_type",
    "lora_rank",
    "lora_alpha",
    "lora_dropout",
    "lora_target",
    "quantization_bit",
    "pref_beta",
    "pref_loss",
    "dataset",
    "dataset_dir",
    "template",
    "cutoff_len",
    "max_samples",
    "packing",
    "neat_packing",
    "val_size",
    "output_dir",
    "logging_steps",
    "save_steps",
    "save_total_limit",
    "report_to",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "learning_rate",
    "num_train_epochs",
    "max_steps",
    "lr_scheduler_type",
    "warmup_steps",
    "optim",
    "bf16",
    "fp16",
    "flash_attn",
    "enable_liger_kernel",
    "disable_gradient_checkpointing",
    "seed",
    "ddp_timeout",
    "deepspeed",
    "resume_from_checkpoint",
)
"""Where a new top-level key is put: behind its nearest predecessor that the document has."""


def parse_spec(text: str) -> JobSpec:
    """Read a train YAML with an optional `tunedeck:` mapping; raises InvalidInput with line and column.

    Secrets among the arguments become variables, which are kept apart from everything that is written.
    """
    data = load_document(text)
    own = _Section(text, data.pop(SECTION, None))
    train, env = move_secrets(data, own.environment("env"))
    return JobSpec(
        name=own.text_of("name") or derive_name(data),
        train=train,
        processes=own.whole("processes", least=1),
        gpus=own.texts("gpus"),
        zero=_zero(own),
        env=env,
        environment=own.text_of("environment"),
        executor=own.text_of("executor") or "local",
        priority=own.whole("priority") or 0,
        tags=own.texts("tags"),
        notes=own.text_of("notes"),
        parent=own.text_of("parent"),
        task=_choice(own, "task", Task, Task.TRAIN),
        text=text,
    )


def parse_spec_bytes(data: bytes) -> JobSpec:
    """The same for an uploaded file; raises InvalidInput when it is not UTF-8 text."""
    return parse_spec(decode_text(data))


def decode_text(data: bytes) -> str:
    """UTF-8 (with or without byte order mark), or UTF-16 with a mark; raises InvalidInput with the line."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    else:
        encoding = "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput(
            "document",
            found=f"bytes that are not {error.encoding} text",
            expected="UTF-8 text",
            remedy="Save the file as UTF-8.",
            line=line,
            column=error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1,
        ) from error


def dump_spec(spec: JobSpec) -> str:
    """YAML that parses to the same spec; comments and order of `spec.text` are kept, only what differs is edited."""
    before = load_document(spec.text)
    wanted = _document_of(spec)
    if not before and not spec.text.strip():
        return _fresh(wanted)
    if SECTION in before:
        section = _kept_section(before[SECTION], wanted.get(SECTION, {}), parse_spec(spec.text), spec)
        wanted.pop(SECTION, None)
        wanted.update({SECTION: section} if section or before[SECTION] is None else {})
    sets, removes = _difference((), before, wanted)
    return edit_document(spec.text, sets, removes, order=_ORDER)


def apply_changes(text: str, set: Mapping[str, ArgValue], remove: Sequence[str] = ()) -> str:
    """Apply a form's change or a `Fix` to a document: dotted keys to set, then keys to remove.

    A dotted key that the document has literally (`a.b: 1`) means that key. Raises InvalidInput for bad text.
    """
    data = load_document(text)
    sets = {_path(data, name): value for name, value in set.items()}
    return edit_document(text, sets, [_path(data, name) for name in remove], order=_ORDER)


def derive_name(train: Mapping[str, ArgValue]) -> str:
    """A readable name for a document without one: `<model>-<method>-<stage>`."""
    model = PurePosixPath(str(train.get("model_name_or_path") or "").replace("\\", "/")).name
    parts = (model, str(train.get("finetuning_type") or "lora"), str(train.get("stage") or "sft"))
    return "-".join(parts) if model else "run"


# --- the tunedeck mapping ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Section:
    """Typed reads below `tunedeck:` (or one mapping in it); every error names the dotted key and its position."""

    document: str
    value: ArgValue
    path: Path = (SECTION,)
    keys: tuple[str, ...] = _KEYS

    def __post_init__(self) -> None:
        for name in self._mapping():
            if self.keys and name not in self.keys:
                near = difflib.get_close_matches(name, self.keys, n=1)
                hint = f"Did you mean `{near[0]}`?" if near else "Arguments of LLaMA-Factory stand at the top level."
                raise self.error(name, found="an unknown key", expected="one of " + ", ".join(self.keys), remedy=hint)

    def _mapping(self) -> Mapping[str, ArgValue]:
        if self.value is None:
            return {}
        if isinstance(self.value, Mapping):
            return self.value
        line, column = position_of(self.document, self.path)
        raise InvalidInput(
            ".".join(self.path),
            found=render_value(self.value),
            expected="a mapping (`name: value` lines below it)",
            line=line,
            column=column,
        )

    def get(self, name: str) -> ArgValue:
        return self._mapping().get(name)

    def error(self, name: str, *, found: str, expected: str, remedy: str = "") -> InvalidInput:
        path = (*self.path, name)
        line, column = position_of(self.document, path)
        return InvalidInput(".".join(path), found=found, expected=expected, remedy=remedy, line=line, column=column)

    def text_of(self, name: str) -> str:
        """Text as written: `name: 007` is "007", not 7."""
        value = self.get(name)
        if value is None:
            return ""
        if isinstance(value, (list, dict)):
            raise self.error(name, found=render_value(value), expected="text")
        raw = raw_scalar(self.document, (*self.path, name))
        return raw if raw is not None else str(value)

    def whole(self, name: str, *, least: int | None = None) -> int | None:
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
            expected = "a whole number" + ("" if least is None else f", {least} or more")
            raise self.error(name, found=render_value(value), expected=expected)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts, or one text with commas."""
        value = self.get(name)
        if value is None:
            return ()
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        if not isinstance(value, list):
            raise self.error(name, found=render_value(value), expected="a list of texts")
        for item in value:
            if isinstance(item, (list, dict)) or item is None:
                raise self.error(name, found=render_value(item), expected="a list of texts")
        return tuple(item if isinstance(item, str) else render_value(item) for item in value)

    def environment(self, name: str) -> dict[str, str]:
        inner = self.section(name, ())
        for key in inner._mapping():
            if not key or "=" in key or "\0" in key:
                raise inner.error(key, found=repr(key), expected="the name of an environment variable")
        return {key: inner.text_of(key) for key in inner._mapping()}

    def section(self, name: str, keys: tuple[str, ...]) -> _Section:
        return _Section(self.document, self.get(name), (*self.path, name), keys)


_Choice = TypeVar("_Choice", bound=StrEnum)


def _zero(own: _Section) -> ZeroConfig:
    inner = own.section("zero", _ZERO_KEYS)
    stage = inner.get("stage")
    if isinstance(stage, str) and stage.lower() in ("none", ""):
        stage = None
    if isinstance(stage, bool) or not (stage is None or (isinstance(stage, int) and 0 <= stage <= 3)):
        raise inner.error("stage", found=render_value(stage), expected="0, 1, 2, 3, or null for no DeepSpeed")
    return ZeroConfig(
        stage=stage,
        offload_optimizer=_choice(inner, "offload_optimizer", Offload, Offload.NONE),
        offload_param=_choice(inner, "offload_param", Offload, Offload.NONE),
    )


def _choice(inner: _Section, name: str, kind: type[_Choice], default: _Choice) -> _Choice:
    value = inner.get(name)
    if value is None:
        return default
    if isinstance(value, str) and value in list(kind):
        return kind(value)
    raise inner.error(name, found=render_value(value), expected="one of " + ", ".join(kind))


# --- writing -------------------------------------------------------------------------------------------------------


def _document_of(spec: JobSpec) -> dict[str, ArgValue]:
    own: dict[str, ArgValue] = {}
    zero: dict[str, ArgValue] = {}
    if spec.name != derive_name(spec.train):
        own["name"] = spec.name
    if spec.processes is not None:
        own["processes"] = spec.processes
    if spec.zero.stage is not None:
        zero["stage"] = spec.zero.stage
    for key, offload in (
        ("offload_optimizer", spec.zero.offload_optimizer),
        ("offload_param", spec.zero.offload_param),
    ):
        if offload is not Offload.NONE:
            zero[key] = offload.value
    given: dict[str, ArgValue] = {
        "gpus": list(spec.gpus),
        "zero": zero,
        "env": dict(spec.env),
        "environment": spec.environment,
        "executor": "" if spec.executor == "local" else spec.executor,
        "priority": spec.priority,
        "tags": list(spec.tags),
        "notes": spec.notes,
        "parent": spec.parent,
        "task": "" if spec.task is Task.TRAIN else spec.task.value,
    }
    own.update({key: value for key, value in given.items() if value})
    train = {name: value for name, value in spec.train.items() if name != SECTION}
    return {SECTION: own, **train} if own else train


def _kept_section(before: ArgValue, wanted: ArgValue, read: JobSpec, spec: JobSpec) -> ArgValue:
    """`wanted`, but in the document's own words (`stage: null`, `A: no`) wherever they were read as what `spec` says."""
    if not isinstance(before, Mapping) or not isinstance(wanted, Mapping):
        return wanted or None
    kept = dict(wanted)
    for name, value in before.items():
        if name in ("env", "zero") and isinstance(value, Mapping):
            inner = _kept_inner(value, wanted.get(name), getattr(read, name), getattr(spec, name))
            kept.update({name: inner} if inner or not value else {})
        elif getattr(read, name) == getattr(spec, name):
            kept[name] = value
    return kept


def _kept_inner(
    before: Mapping[str, ArgValue], wanted: ArgValue, read: ZeroConfig | Mapping[str, str], spec: object
) -> dict[str, ArgValue]:
    """The same one level down: per variable of `env`, per field of `zero`."""
    kept = dict(wanted) if isinstance(wanted, Mapping) else {}
    for key, value in before.items():
        if _part(read, key) == _part(spec, key):
            kept[key] = value
    return kept


def _part(whole: object, key: str) -> object:
    return whole.get(key) if isinstance(whole, Mapping) else getattr(whole, key, None)


def _difference(
    path: Path, before: Mapping[str, ArgValue], wanted: Mapping[str, ArgValue]
) -> tuple[dict[Path, ArgValue], list[Path]]:
    sets: dict[Path, ArgValue] = {}
    removes: list[Path] = [(*path, name) for name in before if name not in wanted]
    for name, value in wanted.items():
        old = before.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and old and value:
            inner_sets, inner_removes = _difference((*path, name), old, value)
            sets.update(inner_sets)
            removes.extend(inner_removes)
        elif name not in before or not same_value(old, value):
            sets[(*path, name)] = value
    return sets, removes


def _fresh(document: Mapping[str, ArgValue]) -> str:
    names = sorted(document, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
    text = ""
    for name in names:
        value = document[name]
        if isinstance(value, Mapping) and value:
            lines = [f"{render_value(name)}:"]
            lines += [f"  {render_value(key)}: {render_value(inner)}" for key, inner in value.items()]
        else:
            lines = [f"{render_value(name)}: {render_value(value)}"]
        text += "\n".join(lines) + "\n"
    return text


def _path(data: Mapping[str, ArgValue], dotted: str) -> Path:
    if dotted in data or "." not in dotted:
        return (dotted,)
    head, rest = dotted.split(".", 1)
    inner = data.get(head)
    return (head, *_path(inner if isinstance(inner, Mapping) else {}, rest))
