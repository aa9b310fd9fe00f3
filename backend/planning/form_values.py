"""A document's values -> what the form's widgets hold; changed widgets -> changes of the document."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from backend.domain.form import Field, FieldError, FormValue, Kind
from backend.domain.problem import ArgValue
from backend.errors import InvalidInput
from backend.planning.document import load_document, parse_value, raw_scalar, render_value, same_value
from backend.planning.fields import COVERED, EXTRA, FIELDS
from backend.planning.spec import SECTION

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRECISION = {"bf16": "bf16", "fp16": "fp16", "pure_bf16": "pure_bf16"}
_NO = ("none", "")


@dataclass(slots=True)
class Changes:
    """What to do to the document, and which widgets hold something impossible."""

    set: dict[str, ArgValue] = field(default_factory=dict)
    remove: list[str] = field(default_factory=list)
    errors: list[FieldError] = field(default_factory=list)


def load_form(text: str) -> dict[str, ArgValue]:
    """A document's values, environment variables as written (`A: no` is the text "no"); raises InvalidInput."""
    data = load_document(text)
    section = data.get(SECTION)
    env = section.get("env") if isinstance(section, dict) else None
    if isinstance(section, dict) and isinstance(env, dict):
        raw = {name: raw_scalar(text, (SECTION, "env", name)) for name in env}
        data[SECTION] = {**section, "env": {name: env[name] if text is None else text for name, text in raw.items()}}
    return data


def read_values(data: Mapping[str, ArgValue]) -> dict[str, FormValue]:
    """Every field's widget value for a loaded document. Defaults are shown where the document says nothing."""
    return {item.name: _read(item, data) for item in FIELDS}


def find_changes(data: Mapping[str, ArgValue], values: Mapping[str, FormValue]) -> Changes:
    """Compare widgets with the document. A widget that still shows the document's value changes nothing, so a value
    that the form cannot show survives untouched. Removes name only keys that the document has.
    """
    changes = Changes()
    for item in FIELDS:
        if item.name not in values:
            continue
        value = values[item.name]
        if _normal(value) != _normal(_read(item, data)):
            _write(item, data, value, changes)
        elif message := _complaint(item, value):
            changes.errors.append(FieldError(field=item.name, found=str(value), expected=message))
    changes.remove = [name for name in changes.remove if _lookup(data, name) is not _ABSENT]
    return changes


# --- reading -------------------------------------------------------------------------------------------------------


class _Absent:
    """No such key (None is a value)."""


_ABSENT = _Absent()


def _lookup(data: Mapping[str, ArgValue], dotted: str) -> ArgValue | _Absent:
    if dotted in data:
        return data[dotted]
    head, _, rest = dotted.partition(".")
    inner = data.get(head)
    return _lookup(inner, rest) if rest and isinstance(inner, Mapping) else _ABSENT


def _read(item: Field, data: Mapping[str, ArgValue]) -> FormValue:
    special = _READERS.get(item.name)
    if special:
        return special(data)
    value = _lookup(data, item.arguments[0])
    if isinstance(value, _Absent) or value is None:
        return _empty(item)
    return _SHOW[item.kind](item, value)


def _empty(item: Field) -> FormValue:
    """Switches and choices always show a state; text and numbers stay empty and show the default as a hint."""
    if item.kind in (Kind.SWITCH, Kind.CHOICE):
        return item.default
    if item.kind is Kind.NAMES:
        return []
    return None if item.kind is Kind.WHOLE else ""


def _show_text(item: Field, value: ArgValue) -> FormValue:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return ", ".join(str(part) for part in value)
    return render_value(value)


def _show_number(item: Field, value: ArgValue) -> FormValue:
    return show_number(value) if isinstance(value, float) else _show_text(item, value)


def show_number(value: float) -> str:
    """A number as people write it: 2e-5, 0.1, 3."""
    return render_value(value).replace(".0e", "e")


def _show_whole(item: Field, value: ArgValue) -> FormValue:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _show_switch(item: Field, value: ArgValue) -> FormValue:
    return value if isinstance(value, bool) else item.default


def _show_choice(item: Field, value: ArgValue) -> FormValue:
    return value if isinstance(value, str) else render_value(value)


def _show_names(item: Field, value: ArgValue) -> FormValue:
    parts = value if isinstance(value, list) else str(value).split(",")
    return [name for part in parts if (name := str(part).strip())]


def _show_yaml(item: Field, value: ArgValue) -> FormValue:
    return render_value(value)


def _show_variables(item: Field, value: ArgValue) -> FormValue:
    if not isinstance(value, Mapping):
        return ""
    return "\n".join(f"{name}={_variable_text(inner)}" for name, inner in value.items())


def _variable_text(value: ArgValue) -> str:
    text = value if isinstance(value, str) else "" if value is None else render_value(value)
    return render_value(text) if "\n" in text or text != text.strip() or (text[:1] in "'\"" and text) else text


_SHOW: Mapping[Kind, Callable[[Field, ArgValue], FormValue]] = {
    Kind.TEXT: _show_text,
    Kind.LONG_TEXT: _show_text,
    Kind.PATH: _show_text,
    Kind.OPEN_CHOICE: _show_text,
    Kind.NUMBER: _show_number,
    Kind.WHOLE: _show_whole,
    Kind.SWITCH: _show_switch,
    Kind.CHOICE: _show_choice,
    Kind.NAMES: _show_names,
    Kind.YAML: _show_yaml,
    Kind.VARIABLES: _show_variables,
}


def _read_precision(data: Mapping[str, ArgValue]) -> FormValue:
    return next((name for key, name in reversed(_PRECISION.items()) if data.get(key) is True), "fp32")


def _read_checkpointing(data: Mapping[str, ArgValue]) -> FormValue:
    return data.get("disable_gradient_checkpointing") is not True


def _read_max_steps(data: Mapping[str, ArgValue]) -> FormValue:
    value = data.get("max_steps")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _read_tokens_seen(data: Mapping[str, ArgValue]) -> FormValue:
    value = data.get("include_num_input_tokens_seen", "no")
    return {True: "all", False: "no"}[value] if isinstance(value, bool) else str(value)


def _read_extra(data: Mapping[str, ArgValue]) -> FormValue:
    return "\n".join(f"{render_value(name)}: {render_value(value)}" for name, value in _extra(data).items())


def _extra(data: Mapping[str, ArgValue]) -> dict[str, ArgValue]:
    return {name: value for name, value in data.items() if name not in COVERED and name != SECTION}


_READERS: Mapping[str, Callable[[Mapping[str, ArgValue]], FormValue]] = {
    "precision": _read_precision,
    "gradient_checkpointing": _read_checkpointing,
    "max_steps": _read_max_steps,
    "include_num_input_tokens_seen": _read_tokens_seen,
    EXTRA.name: _read_extra,
}


# --- writing -------------------------------------------------------------------------------------------------------


def _normal(value: FormValue) -> FormValue:
    if isinstance(value, str):
        return value.strip().replace("\r\n", "\n")
    if value is None or value == []:
        return ""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _write(item: Field, data: Mapping[str, ArgValue], value: FormValue, changes: Changes) -> None:
    value = _normal(value)
    if message := _complaint(item, value):
        changes.errors.append(FieldError(field=item.name, found=str(value), expected=message))
        return
    special = _WRITERS.get(item.name)
    if special:
        special(data, value, changes)
    elif value == "" or (item.kind is Kind.CHOICE and value in _NO):
        changes.remove.extend(item.arguments)
    else:
        changes.set[item.arguments[0]] = _argument(item, value)


def _argument(item: Field, value: FormValue) -> ArgValue:
    if isinstance(value, list):
        return list(value) if item.name.startswith(SECTION) else ",".join(value)
    if item.kind in (Kind.NUMBER, Kind.YAML) or (item.kind is Kind.CHOICE and str(value).isdigit()):
        return parse_value(str(value))
    return {} if item.kind is Kind.VARIABLES else value


def _complaint(item: Field, value: FormValue) -> str:
    """What the widget should hold instead; "" when it is right or empty."""
    if value in ("", None) or isinstance(value, (bool, list)):
        return ""
    if item.kind in (Kind.NUMBER, Kind.WHOLE):
        return _number_complaint(item, value)
    if item.kind is Kind.VARIABLES:
        return _variables_complaint(str(value))
    if item is EXTRA:
        return _extra_complaint(str(value))
    return _yaml_complaint(str(value)) if item.kind is Kind.YAML else ""


def _number_complaint(item: Field, value: FormValue) -> str:
    kind = "a whole number" if item.kind is Kind.WHOLE else "a number"
    bounds = "" if item.minimum is None else f", {item.minimum:g} or more"
    if item.maximum is not None:
        bounds = f" from {item.minimum or 0:g} to {item.maximum:g}"
    number = value if isinstance(value, (int, float)) else _parsed(str(value))
    right = isinstance(number, (int, float)) and not isinstance(number, bool) and number == number
    if not right or (item.kind is Kind.WHOLE and number != int(number)):  # type: ignore[arg-type]
        return kind + bounds
    assert isinstance(number, (int, float))
    low, high = item.minimum, item.maximum
    inside = (low is None or number >= low) and (high is None or number <= high)
    return "" if inside else kind + bounds


def _parsed(text: str) -> ArgValue:
    try:
        return parse_value(text)
    except InvalidInput:
        return text


def _yaml_complaint(text: str) -> str:
    try:
        parse_value(text)
    except InvalidInput as error:
        return f"a YAML value ({error.found})"
    return ""


def _extra_complaint(text: str) -> str:
    try:
        data = load_document(text)
    except InvalidInput as error:
        where = f"line {error.line}, column {error.column}: " if error.line else ""
        return f"`name: value` lines ({where}{error.found})"
    own = [name for name in data if name in COVERED or name == SECTION]
    return f"other names: {', '.join(own)} has a field of its own" if own else ""


def _variables_complaint(text: str) -> str:
    for line in text.splitlines():
        name, equals, value = _variable_line(line)
        if name and (not equals or not _VARIABLE.fullmatch(name)):
            return f"`NAME=value` lines (not `{line.strip()[:60]}`)"
        if value[:1] in ("'", '"') and value and _yaml_complaint(value):
            return f"a closed quote in `{line.strip()[:60]}`"
    return ""


def _variable_line(line: str) -> tuple[str, str, str]:
    """Name, "=", value; `export ` in front and comment lines are fine."""
    line = line.strip()
    if line.startswith("#"):
        return "", "", ""
    name, equals, value = line.removeprefix("export ").partition("=")
    return name.strip(), equals, value.strip()


def _write_precision(data: Mapping[str, ArgValue], value: FormValue, changes: Changes) -> None:
    changes.remove.extend(key for key, name in _PRECISION.items() if name != value)
    if value in _PRECISION.values():
        changes.set[str(value)] = True


def _write_checkpointing(data: Mapping[str, ArgValue], value: FormValue, changes: Changes) -> None:
    if value:
        changes.remove.append("disable_gradient_checkpointing")
    else:
        changes.set["disable_gradient_checkpointing"] = True


def _write_variables(data: Mapping[str, ArgValue], value: FormValue, changes: Changes) -> None:
    before = _lookup(data, "tunedeck.env")
    kept = before if isinstance(before, Mapping) else {}
    wanted: dict[str, str] = {}
    for line in str(value).splitlines():
        name, _, text = _variable_line(line)
        if name:
            parsed = _parsed(text) if text[:1] in ("'", '"') else text
            wanted[name] = parsed if isinstance(parsed, str) else text
    if not wanted:
        changes.remove.append("tunedeck.env")
        return
    changes.remove.extend(f"tunedeck.env.{name}" for name in kept if name not in wanted)
    changes.set.update({f"tunedeck.env.{name}": text for name, text in wanted.items() if _shown(kept, name) != text})


def _shown(variables: Mapping[str, ArgValue], name: str) -> str | None:
    if name not in variables:
        return None
    value = variables[name]
    return value if isinstance(value, str) else "" if value is None else render_value(value)


def _write_extra(data: Mapping[str, ArgValue], value: FormValue, changes: Changes) -> None:
    before, wanted = _extra(data), load_document(str(value))
    changes.remove.extend(name for name in before if name not in wanted)
    for name, new in wanted.items():
        if name not in before or not same_value(before[name], new):
            changes.set[name] = new


def _write_zero(data: Mapping[str, ArgValue], value: FormValue, changes: Changes) -> None:
    if value == "none":
        changes.remove.append("tunedeck.zero")
    else:
        changes.set["tunedeck.zero.stage"] = int(str(value))


_WRITERS: Mapping[str, Callable[[Mapping[str, ArgValue], FormValue, Changes], None]] = {
    "precision": _write_precision,
    "gradient_checkpointing": _write_checkpointing,
    "zero_stage": _write_zero,
    "tunedeck.env": _write_variables,
    EXTRA.name: _write_extra,
}
