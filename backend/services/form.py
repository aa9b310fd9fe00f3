"""The launch form and its document: two views of one text. The page asks here, never planning itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backend.domain.form import Field, FieldError, FormValue
from backend.domain.problem import Fix
from backend.planning.document import render_value
from backend.planning.fields import FIELDS, visible_fields
from backend.planning.form_values import find_changes, load_form, read_values
from backend.planning.spec import apply_changes, derive_name

MAX_REGISTRY_BYTES = 16 << 20
START = '### model\nmodel_name_or_path: ""\n\n### method\nstage: sft\ndo_train: true\nfinetuning_type: lora\n'
"""What "empty" starts from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A document as the form shows it. `visible` names the fields that are of use; `name` is the run's derived name."""

    values: Mapping[str, FormValue]
    visible: frozenset[str]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """The document after the form's changes, and the widgets that could not be written."""

    text: str
    form: Form
    errors: tuple[FieldError, ...]


def list_fields() -> tuple[Field, ...]:
    """The catalogue in the order of the page."""
    return FIELDS


def show_text(value: FormValue) -> str:
    """A default as people write it: 5e-5, true."""
    return value if isinstance(value, str) else "" if value is None else render_value(value)  # type: ignore[arg-type]


def open_form(text: str) -> Form:
    """Fill the form from a document; raises InvalidInput with line and column."""
    data = load_form(text)
    values = read_values(data)
    return Form(values=values, visible=visible_fields(values), name=derive_name(data))


def edit_text(text: str, values: Mapping[str, FormValue]) -> Edited:
    """Write the widgets that differ from the document into it; raises InvalidInput when the document is no YAML."""
    data = load_form(text)
    changes = find_changes(data, values)
    if changes.set or changes.remove:
        text = apply_changes(text, changes.set, changes.remove)
    return Edited(text=text, form=open_form(text), errors=tuple(changes.errors))


def apply_fix(text: str, fix: Fix) -> str:
    """The document with a problem's fix applied."""
    return apply_changes(text, fix.set, fix.remove)


def list_datasets(folder: str) -> tuple[str, ...]:
    """Names registered in `<folder>/dataset_info.json`, sorted; empty when there is none that can be read."""
    path = Path(folder).expanduser() / "dataset_info.json"
    try:
        if not path.is_absolute() or path.stat().st_size > MAX_REGISTRY_BYTES:
            return ()
        entries = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError):
        return ()
    return tuple(sorted(str(name) for name in entries)) if isinstance(entries, dict) else ()
