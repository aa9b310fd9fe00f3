"""Field: one entry of the launch form, as the catalogue describes it and the page draws it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Group(StrEnum):
    """Sections of the form, in the order of the page. Texts are `group.<value>`."""

    MODEL = "model"
    DATA = "data"
    METHOD = "method"
    TRAINING = "training"
    SPEED = "speed"
    HARDWARE = "hardware"
    RUN = "run"
    OUTPUT = "output"
    EXPERT = "expert"


class Kind(StrEnum):
    """What a field holds, and so which widget shows it."""

    TEXT = "text"
    LONG_TEXT = "long_text"
    PATH = "path"
    """A local folder or file, or a name on a hub."""
    WHOLE = "whole"
    NUMBER = "number"
    SWITCH = "switch"
    CHOICE = "choice"
    OPEN_CHOICE = "open_choice"
    """A list of known values that takes others as well (templates of newer versions)."""
    NAMES = "names"
    """Several names: data sets, GPUs, tags."""
    YAML = "yaml"
    """A typed value or mapping as YAML text."""
    VARIABLES = "variables"
    """Environment variables, one `NAME=value` a line."""


class Level(StrEnum):
    """Simple fields are always in sight, advanced ones one click away."""

    SIMPLE = "simple"
    ADVANCED = "advanced"


FormValue = str | int | float | bool | list[str] | None
"""What a widget holds. None (or "" or []): not set, the trainer's default applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """The field is of use only while another one has one of these values."""

    field: str
    values: tuple[FormValue, ...]

    def holds(self, values: Mapping[str, FormValue]) -> bool:
        return values.get(self.field) in self.values


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """`name` is the argument's own name (or `tunedeck.<key>`, or a name of ours when it stands for several arguments).

    `arguments` are the keys of the document that it writes. `default` is what applies when none of them is there.
    `unit` is a key of the texts (`unit.<value>`), "" for none. `minimum` and `maximum` are inclusive.
    """

    name: str
    group: Group
    kind: Kind
    arguments: tuple[str, ...]
    default: FormValue = None
    choices: tuple[FormValue, ...] = ()
    level: Level = Level.ADVANCED
    when: tuple[When, ...] = ()
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None

    def is_useful(self, values: Mapping[str, FormValue]) -> bool:
        """Do the conditions hold for these form values?"""
        return all(condition.holds(values) for condition in self.when)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """A widget holds something that its argument cannot be; the document keeps its former value."""

    field: str
    found: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One file of presets/. Texts by language code (en, zh); `memory` is an estimate per GPU and says how it was made.

    `hardware`: cpu, mi300x, mi325x, mi355x, mi250x or mi210; `gpus`: HIP devices it is made for, 0 on a CPU host.
    `text` is the document with its header; `${demo}` in it stands for the folder of the demo inputs.
    """

    name: str
    title: Mapping[str, str]
    purpose: Mapping[str, str]
    memory: Mapping[str, str]
    tested_on: Mapping[str, str]
    hardware: str
    gpus: int
    method: str
    text: str
