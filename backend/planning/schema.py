"""Description of a training environment (JSON of inside/describe.py) -> TrainerSchema: what its trainer accepts."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from backend.domain.problem import ArgValue


class Kind(StrEnum):
    """Type of an argument's value, as the command line parser of the trainer would read it."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    TEXT = "str"
    LIST = "list"
    MAPPING = "dict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument. `group` is the trainer's dataclass (model, data, training, finetuning, generating).

    `choices` empty: anything of the kind. `loose`: text arguments that also take a mapping, a list or a bool in YAML
    (`deepspeed`, `lora_target`, `report_to` ...).
    """

    name: str
    group: str
    kind: Kind
    default: ArgValue = None
    choices: tuple[str, ...] = ()
    help: str = ""
    loose: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSchema:
    """What one training environment accepts. `versions` maps a package to its version, None = not installed.

    A package that is not a key of `versions` was not looked for: nothing may be concluded about it.
    """

    arguments: Mapping[str, Argument]
    templates: frozenset[str] = frozenset()
    multimodal_templates: frozenset[str] = frozenset()
    strict_eos_templates: frozenset[str] = frozenset()
    """Templates that refuse `train_on_prompt` (efficient_eos)."""
    tool_formats: frozenset[str] = frozenset()
    deepspeed_sections: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Keys that the installed DeepSpeed takes, by section: "" (top level), "zero_optimization",
    "zero_optimization.offload_param" ...; {} = not read, the built-in ones stand in."""
    deepspeed_optimizers: frozenset[str] = frozenset()
    model_templates: Mapping[str, str] = field(default_factory=dict)
    """Default template by hub path and by its last part, where that is not ambiguous."""
    versions: Mapping[str, str | None] = field(default_factory=dict)
    source: str = ""
    """Name of the environment, or "built-in" with the versions it was taken from."""

    def knows(self, name: str) -> bool:
        return name in self.arguments

    def nearest(self, name: str) -> str | None:
        """The known argument that looks most like `name`, if one is near enough to be meant."""
        return nearest(name, self.arguments)


def nearest(word: str, known: Mapping[str, object] | frozenset[str] | tuple[str, ...]) -> str | None:
    """The known word most like `word` (case, dashes and dots ignored), or None."""
    plain = {_plain(name): name for name in known}
    if _plain(word) in plain:
        return plain[_plain(word)]
    close = difflib.get_close_matches(_plain(word), plain, n=1, cutoff=0.8)
    return plain[close[0]] if close else None


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def parse_description(described: Mapping[str, ArgValue]) -> TrainerSchema:
    """The JSON that inside/describe.py prints, read with tolerance: what it lacks stays unknown."""
    arguments = {a.name: a for a in (_argument(item) for item in _items(described.get("arguments"))) if a.name}
    return TrainerSchema(
        arguments=arguments,
        templates=_words(described.get("templates")),
        multimodal_templates=_words(described.get("multimodal_templates")),
        strict_eos_templates=_words(described.get("strict_eos_templates")),
        tool_formats=_words(described.get("tool_formats")),
        deepspeed_sections=_sections(described.get("deepspeed")),
        deepspeed_optimizers=_words(_inner(described.get("deepspeed"), "optimizers")),
        model_templates=_model_templates(described.get("models")),
        versions=_versions(described.get("versions") or described.get("packages")),
        source=str(described.get("name") or ""),
    )


def _items(value: ArgValue) -> list[Mapping[str, ArgValue]]:
    if isinstance(value, dict):
        return [{"name": name, **item} for name, item in value.items() if isinstance(item, dict)]
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _argument(item: Mapping[str, ArgValue]) -> Argument:
    kind = str(item.get("kind") or item.get("type") or "str")
    choices = item.get("choices")
    return Argument(
        name=str(item.get("name") or ""),
        group=str(item.get("group") or ""),
        kind=Kind(kind) if kind in set(Kind) else Kind.TEXT,
        default=item.get("default"),
        choices=tuple(str(c) for c in choices) if isinstance(choices, list) else (),
        help=str(item.get("help") or ""),
        loose=bool(item.get("loose", False)),
    )


def _inner(value: ArgValue, key: str) -> ArgValue:
    return value.get(key) if isinstance(value, dict) else None


def _sections(described: ArgValue) -> dict[str, frozenset[str]]:
    """Keys of every section and of the sections inside it, by dotted path."""
    sections = _inner(described, "sections")
    if not isinstance(sections, dict) or not sections:
        return {}
    found = {"": _words(_inner(described, "top_level"))}
    for name, fields in sections.items():
        if isinstance(fields, dict):
            found[name] = frozenset(fields)
            for key, field_ in fields.items():
                if isinstance(inner := _inner(field_, "fields"), dict):
                    found[f"{name}.{key}"] = frozenset(inner)
    return found


def _model_templates(models: ArgValue) -> dict[str, str]:
    if not isinstance(models, dict):
        return {}
    known = {path: str(template) for path, template in models.items() if template}
    by_name: dict[str, set[str]] = {}
    for path, template in known.items():
        by_name.setdefault(path.rpartition("/")[2], set()).add(template)
    return {**{name: next(iter(found)) for name, found in by_name.items() if len(found) == 1}, **known}


def _words(value: ArgValue) -> frozenset[str]:
    return frozenset(str(item) for item in value) if isinstance(value, (list, dict)) else frozenset()


def _versions(value: ArgValue) -> dict[str, str | None]:
    if not isinstance(value, dict):
        return {}
    return {name: None if version is None else str(version) for name, version in value.items()}
