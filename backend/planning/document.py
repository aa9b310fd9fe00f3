"""YAML text -> plain values as the trainer reads them; YAML text + changes -> YAML text with all the rest left as it was."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError as RoundTripError

from backend.domain.problem import ArgValue
from backend.errors import InvalidInput

Path = tuple[str, ...]

MAX_CHARACTERS = 1 << 20
MAX_DEPTH = 40
_PLAIN = re.compile(r"[\w/.][\w ./@+=-]*")
_PLAIN_BLOCK = re.compile(r"[\w/.][\w ./@+=,-]*")
"""Texts that may stand without quotes (if they do not read as a number, date or boolean)."""
_BAD_VALUE = (yaml.YAMLError, ValueError, KeyError, AttributeError, TypeError, OverflowError, IndexError)
"""What PyYAML raises for `!!int x`, `!!bool x`, `!!timestamp x`, `0x_`, 5000-digit numbers and the like."""


def load_document(text: str) -> dict[str, ArgValue]:
    """All values of a YAML mapping by the trainer's rules (OmegaConf). An empty document is an empty mapping.

    Raises InvalidInput with line and column for anything that is not one mapping of plain values.
    """
    return dict(_load(text))


@lru_cache(maxsize=16)
def _load(text: str) -> Mapping[str, ArgValue]:
    """One parse serves all questions about a text; nested values are never changed by their users."""
    _check_shape(text)
    if _root(text) is None:
        return {}
    try:
        loaded = OmegaConf.to_container(OmegaConf.create(text))
    except yaml.MarkedYAMLError as error:
        raise _yaml_error(error) from error
    except OmegaConfBaseException as error:
        field = str(error.full_key or "document")
        line, column = _position_of(text, tuple(field.split(".")))
        raise InvalidInput(
            field,
            found=_first_line(error),
            expected="a value that OmegaConf can read; `${` starts an interpolation",
            line=line,
            column=column,
        ) from error
    except _BAD_VALUE as error:
        line, column = _culprit(text)
        raise InvalidInput(
            "document", found=_first_line(error), expected="YAML values", line=line, column=column
        ) from error
    assert isinstance(loaded, dict)
    return {_key(text, (), name): _plain(text, (str(name),), value) for name, value in loaded.items()}


def parse_value(text: str) -> ArgValue:
    """One value as the trainer reads it: `2e-5` is a float, `no` is false, `[a, b]` a list; raises InvalidInput."""
    if "\n" in text.strip():
        return load_document("value:\n" + "".join(f"  {line}\n" for line in text.splitlines())).get("value")
    return load_document(f"value: {text}").get("value")


def render_value(value: ArgValue, *, flow: bool = False) -> str:
    """One line of YAML that the trainer reads back as exactly `value`; `flow`: for a place inside `{}` or `[]`."""
    if isinstance(value, str):
        return _render_text(value, flow=flow)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_render_text(k)}: {render_value(v, flow=True)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(render_value(item, flow=True) for item in value) + "]"
    if isinstance(value, float):
        return _render_float(value)
    return json.dumps(value)


def edit_document(
    text: str, set: Mapping[Path, ArgValue], remove: Sequence[Path] = (), *, order: Sequence[str] = ()
) -> str:
    """`text` with values set, then removed. Comments, order and everything unnamed stay byte for byte where possible.

    A new top-level key goes behind its nearest predecessor in `order` that the text has. A mapping that loses its
    last key is removed. Raises InvalidInput when the text is no mapping or a path leads through a plain value.
    """
    for path, value in set.items():
        text = _apply(text, path, value, order)
    for path in remove:
        text = _apply(text, path, _REMOVED, order)
    return text


class _Removed:
    """Stands for "no value" (None is a value)."""


_REMOVED = _Removed()


def _apply(text: str, path: Path, value: ArgValue | _Removed, order: Sequence[str]) -> str:
    before = load_document(text)
    wanted = _without(before, path) if isinstance(value, _Removed) else _with(before, path, value, path)
    if _same(before, wanted):
        return text
    for edit in (_narrow_edit, _round_trip_edit):
        try:
            after = edit(text, path, value, order)
            if _same(load_document(after), wanted):
                return after
        except (InvalidInput, RoundTripError, yaml.YAMLError, _NotNarrow, LookupError, ValueError, AttributeError):
            continue
    name = ".".join(path)
    raise InvalidInput(
        name, found="a place that cannot be edited safely (anchor, alias or unusual layout)", expected="a plain key"
    )


# --- reading -------------------------------------------------------------------------------------------------------


def _check_shape(text: str) -> None:
    """Refuse what would exhaust the parser: size and depth. Events come without recursion, so any depth is safe here."""
    if len(text) > MAX_CHARACTERS:
        raise InvalidInput("document", found=f"{len(text)} characters", expected=f"at most {MAX_CHARACTERS}")
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH:
                    mark = event.start_mark
                    raise InvalidInput(
                        "document",
                        found="values nested too deep",
                        expected=f"at most {MAX_DEPTH} levels",
                        line=mark.line + 1,
                        column=mark.column + 1,
                    )
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        raise InvalidInput(
            "document",
            found=f"the character U+{ord(text[error.position]):04X}",
            expected="printable text",
            line=before.count("\n") + 1,
            column=error.position - (before.rfind("\n") + 1) + 1,
        ) from error
    except yaml.MarkedYAMLError as error:
        raise _yaml_error(error) from error
    except _BAD_VALUE as error:
        raise InvalidInput("document", found=_first_line(error), expected="YAML") from error


def _culprit(text: str) -> tuple[int | None, int | None]:
    """Position of the first scalar that PyYAML cannot turn into a value (its own exceptions carry none)."""
    for scalar in _scalars(_compose(text)):
        try:
            yaml.SafeLoader("").construct_object(scalar)
        except _BAD_VALUE:
            return scalar.start_mark.line + 1, scalar.start_mark.column + 1
    return None, None


def _scalars(node: yaml.Node | None) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _scalars(item)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _scalars(key)
            yield from _scalars(value)


def _root(text: str) -> yaml.Node | None:
    """The document's mapping; None when it is empty. Raises InvalidInput for a list, a single value or two documents."""
    try:
        root = _compose(text)
    except yaml.MarkedYAMLError as error:
        raise _yaml_error(error) from error
    if root is None or isinstance(root, yaml.MappingNode):
        return root
    mark = root.start_mark
    raise InvalidInput(
        "document",
        found="a list" if isinstance(root, yaml.SequenceNode) else "a single value",
        expected="`name: value` lines",
        line=mark.line + 1,
        column=mark.column + 1,
    )


def _yaml_error(error: yaml.MarkedYAMLError) -> InvalidInput:
    mark = error.problem_mark or error.context_mark
    what = str(error.problem or error.context or "text that is not YAML").removeprefix("found ")
    return InvalidInput(
        "document",
        found=what,
        expected="YAML",
        remedy="Check the indentation, the quotes and the colon of this line.",
        line=mark.line + 1 if mark else None,
        column=mark.column + 1 if mark else None,
    )


def _plain(text: str, path: Path, value: object) -> ArgValue:
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, list):
        return [_plain(text, path, item) for item in value]
    if isinstance(value, dict):
        return {_key(text, path, name): _plain(text, (*path, str(name)), item) for name, item in value.items()}
    line, column = _position_of(text, path)
    raise InvalidInput(
        ".".join(path),
        found=f"a value of the type {type(value).__name__}",
        expected="text, number, true/false, null, list or mapping",
        line=line,
        column=column,
    )


def _key(text: str, parent: Path, name: object) -> str:
    if isinstance(name, str):
        return name
    line, column = _position_of(text, parent)
    raise InvalidInput(
        ".".join((*parent, str(name))),
        found=f"the key {name!r}, which YAML reads as {type(name).__name__}",
        expected="a text key",
        remedy="Write the key in quotes.",
        line=line,
        column=column,
    )


@lru_cache(maxsize=8)
def _compose(text: str) -> yaml.Node | None:
    """The node tree with positions; never changed by its users, so one parse serves all questions about a text."""
    return yaml.compose(text, Loader=yaml.SafeLoader)


def _position_of(text: str, path: Path) -> tuple[int | None, int | None]:
    """1-based line and column of a key, or of the nearest parent that has one."""
    node, line, column = _compose(text), None, None
    for name in path:
        pair = _pair(node, name) if isinstance(node, yaml.MappingNode) else None
        if pair is None:
            break
        mark = pair[0].start_mark
        line, column, node = mark.line + 1, mark.column + 1, pair[1]
    return line, column


def position_of(text: str, path: Path) -> tuple[int | None, int | None]:
    """1-based line and column of a key in a valid document; (None, None) when it is not there."""
    return _position_of(text, path)


def raw_scalar(text: str, path: Path) -> str | None:
    """The scalar at a path as written, before YAML makes a number or boolean of it; None when there is no such scalar."""
    node = _compose(text)
    for name in path:
        pair = _pair(node, name) if isinstance(node, yaml.MappingNode) else None
        if pair is None:
            return None
        node = pair[1]
    return str(node.value) if isinstance(node, yaml.ScalarNode) else None


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


# --- values --------------------------------------------------------------------------------------------------------


def _render_text(value: str, *, flow: bool = True) -> str:
    plain = (_PLAIN if flow else _PLAIN_BLOCK).fullmatch(value)
    if plain and not value.endswith(" ") and _reads_as(value, value):
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else _escape(char) for char in quoted)


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _reads_as(rendered: str, value: str) -> bool:
    try:
        return yaml_scalar(rendered) == value
    except InvalidInput:
        return False


def yaml_scalar(rendered: str) -> ArgValue:
    """What the trainer reads for one plain scalar."""
    return load_document(f"v: {rendered}").get("v")


def _render_float(value: float) -> str:
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    if not isinstance(exponent, int):
        return {"n": ".nan", "F": "-.inf" if sign else ".inf"}[exponent]
    if value and abs(value) < 1e-3:
        # 2e-05 as LLaMA-Factory's examples write it: 2.0e-5. Without the dot other YAML readers would take it for text.
        rest = "".join(map(str, digits[1:])).rstrip("0") or "0"
        return f"{'-' if sign else ''}{digits[0]}.{rest}e{exponent + len(digits) - 1}"
    return repr(value)


def _same(left: ArgValue, right: ArgValue) -> bool:
    """Equality that tells 1 from True and 1.0, finds NaN equal to itself, and minds no order of keys."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(_same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return type(left) is type(right) and (left == right or (left != left and right != right))


def same_value(left: ArgValue, right: ArgValue) -> bool:
    """Equality of two values as a document sees them (1, 1.0 and true differ)."""
    return _same(left, right)


def _with(data: Mapping[str, ArgValue], path: Path, value: ArgValue, whole: Path) -> dict[str, ArgValue]:
    name, rest = path[0], path[1:]
    if not rest:
        return {**data, name: value}
    inner = data.get(name)
    if inner is not None and not isinstance(inner, Mapping):
        where = ".".join(whole[: len(whole) - len(rest)])
        raise InvalidInput(where, found=render_value(inner), expected="a mapping (`name: value` lines below it)")
    return {**data, name: _with(inner or {}, rest, value, whole)}


def _without(data: Mapping[str, ArgValue], path: Path) -> dict[str, ArgValue]:
    name, rest = path[0], path[1:]
    inner = data.get(name)
    others = {key: item for key, item in data.items() if key != name}
    if not rest or name not in data:
        return others
    if not isinstance(inner, Mapping):
        return dict(data)
    left = _without(inner, rest)
    return {key: (left if key == name else item) for key, item in data.items()} if left else others


# --- narrow edits: only the touched characters change --------------------------------------------------------------


class _NotNarrow(Exception):
    """The place is laid out in a way that the narrow editor leaves to the round-trip library."""


@dataclass(frozen=True, slots=True)
class _Place:
    """How far a path exists: the mappings walked through with the pair taken in each, and the node reached."""

    pairs: tuple[tuple[yaml.MappingNode, int], ...]
    node: yaml.Node
    rest: Path

    @property
    def in_flow(self) -> bool:
        """Inside `{}`."""
        return any(mapping.flow_style for mapping, _ in self.pairs)


def _narrow_edit(text: str, path: Path, value: ArgValue | _Removed, order: Sequence[str]) -> str:
    root = _compose(text)
    if root is None:
        if isinstance(value, _Removed):
            return text
        return _append_line(text, _block_lines(path, value, ""))
    place = _walk(root, path)
    if isinstance(value, _Removed):
        return _cut(text, place)
    if not place.rest:
        return _replace(text, place, render_value(value, flow=place.in_flow))
    if isinstance(place.node, yaml.MappingNode) and place.node.value:
        return _insert(text, place, value, order)
    return _replace(text, place, render_value(_nest(place.rest, value), flow=place.in_flow))


def _walk(root: yaml.Node, path: Path) -> _Place:
    node, pairs, rest = root, [], list(path)
    while rest and isinstance(node, yaml.MappingNode):
        index = next((i for i, (key, _) in enumerate(node.value) if key.value == rest[0]), None)
        if index is None:
            break
        pairs.append((node, index))
        node = node.value[index][1]
        rest.pop(0)
    return _Place(tuple(pairs), node, tuple(rest))


def _pair(node: yaml.MappingNode, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    return next(((key, value) for key, value in node.value if key.value == name), None)


def _nest(path: Path, value: ArgValue) -> ArgValue:
    for name in reversed(path):
        value = {name: value}
    return value


def _block_lines(path: Path, value: ArgValue, indent: str) -> list[str]:
    """A key as lines: a mapping opens a block one level deep, everything below is written on one line."""
    nested = _nest(path[1:], value)
    name = _render_text(path[0])
    if isinstance(nested, Mapping) and nested and not indent:
        return [f"{name}:", *(f"  {_render_text(key)}: {render_value(item)}" for key, item in nested.items())]
    return [f"{indent}{name}: {render_value(nested)}"]


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _append_line(text: str, lines: list[str]) -> str:
    newline = _newline(text)
    head = text if not text or text.endswith("\n") else text + newline
    return head + newline.join(lines) + newline


def _replace(text: str, place: _Place, rendered: str) -> str:
    if not place.pairs:
        return text[: place.node.start_mark.index] + rendered + text[_end(text, place.node) :]
    mapping, index = place.pairs[-1]
    key, node = mapping.value[index]
    start, end = node.start_mark.index, _end(text, node)
    if node.start_mark.line == key.end_mark.line and start < end:
        return text[:start] + rendered + text[end:]
    colon = text.index(":", key.end_mark.index)
    line_end = _line_end(text, colon)
    comment = text[colon + 1 : line_end].strip() if start > line_end else ""
    if comment and not comment.startswith("#"):
        raise _NotNarrow
    tail = f"  {comment}" if comment else ""
    return f"{text[: colon + 1]} {rendered}{tail}{text[max(end, colon + 1) :]}"


def _insert(text: str, place: _Place, value: ArgValue, order: Sequence[str]) -> str:
    mapping = place.node
    assert isinstance(mapping, yaml.MappingNode)
    if mapping.flow_style:
        end = _end(text, mapping.value[-1][1]) or mapping.value[-1][0].end_mark.index
        name, nested = _render_text(place.rest[0]), render_value(_nest(place.rest[1:], value), flow=True)
        return f"{text[:end]}, {name}: {nested}{text[end:]}"
    anchor = mapping.value[-1] if place.pairs else _predecessor(mapping, place.rest[0], order)
    at = _line_end(text, max(_end(text, anchor[1]), anchor[0].end_mark.index))
    indent = " " * mapping.value[0][0].start_mark.column
    newline = _newline(text)
    lines = newline.join(_block_lines(place.rest, value, indent))
    return f"{text[:at]}{newline}{lines}{text[at:]}" if at < len(text) else _append_line(text, lines.split(newline))


def _predecessor(mapping: yaml.MappingNode, name: str, order: Sequence[str]) -> tuple[yaml.Node, yaml.Node]:
    present = {key.value: (key, value) for key, value in mapping.value}
    earlier = list(order[: order.index(name)]) if name in order else []
    return next((present[known] for known in reversed(earlier) if known in present), mapping.value[-1])


def _cut(text: str, place: _Place) -> str:
    if place.rest:
        return text
    pairs = list(place.pairs)
    while len(pairs) > 1 and len(pairs[-1][0].value) == 1:
        pairs.pop()
    mapping, index = pairs[-1]
    key, node = mapping.value[index]
    if mapping.flow_style:
        if len(mapping.value) == 1:
            return text[: key.start_mark.index] + text[_end(text, node) :]
        if index:
            return text[: _end(text, mapping.value[index - 1][1])] + text[_end(text, node) :]
        return text[: key.start_mark.index] + text[mapping.value[1][0].start_mark.index :]
    start = text.rfind("\n", 0, key.start_mark.index) + 1
    if text[start : key.start_mark.index].strip("\ufeff "):
        raise _NotNarrow
    end = _line_end(text, max(_end(text, node), key.end_mark.index))
    return text[:start] + text[end:].removeprefix("\r").removeprefix("\n")


def _end(text: str, node: yaml.Node) -> int:
    """Index behind the last character of a value. PyYAML ends a block collection only at the next token."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        if not isinstance(last, tuple):
            return _end(text, last)
        return max(_end(text, last[1]), int(last[0].end_mark.index))
    end = int(node.end_mark.index)
    return len(text[:end].rstrip()) if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">") else end


def _line_end(text: str, index: int) -> int:
    end = text.find("\n", index)
    if end < 0:
        return len(text)
    return end - 1 if end and text[end - 1] == "\r" else end


# --- round trip: for anchors, aliases and layouts that the narrow editor does not touch ----------------------------


def _round_trip_edit(text: str, path: Path, value: ArgValue | _Removed, order: Sequence[str]) -> str:
    library = YAML(typ="rt")
    library.preserve_quotes = True
    library.width = 1 << 20
    root = library.load(text)
    inner = root
    for name in path[:-1]:
        if inner.get(name) is None:
            inner[name] = library.load("{}")
        inner = inner[name]
    if isinstance(value, _Removed):
        del inner[path[-1]]
    else:
        inner[path[-1]] = library.load(f"v: {render_value(value)}")["v"]
    out = io.StringIO()
    library.dump(root, out)
    return out.getvalue()
