"""YAML text -> YamlText: values as the trainer reads them (OmegaConf), with the line and the raw spelling of each key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

from backend.domain.problem import ArgValue
from backend.errors import InvalidInput

MAX_CHARACTERS = 1 << 20
_MAX_DEPTH = 40
_MAX_NODES = 20_000

_FLOAT = re.compile(
    r"""^(?:[-+]?[0-9]+(?:_[0-9]+)*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
        |[-+]?[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+)
        |\.[0-9]+(?:_[0-9]+)*(?:[eE][-+][0-9]+)?
        |[-+]?[0-9]+(?:_[0-9]+)*(?::[0-5]?[0-9])+\.[0-9_]*
        |[-+]?\.(?:inf|Inf|INF)
        |\.(?:nan|NaN|NAN))$""",
    re.X,
)
_WITHOUT_DOT = re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlText:
    """One YAML mapping. `lines` and `raw` are by top-level key; `raw` holds only unquoted scalars, as written."""

    values: Mapping[str, ArgValue]
    lines: Mapping[str, int] = field(default_factory=dict)
    raw: Mapping[str, str] = field(default_factory=dict)
    duplicates: tuple[str, ...] = ()
    """Keys that stand twice: OmegaConf refuses the file, this reader keeps the last value."""

    def without_dot(self, key: str) -> bool:
        """Written like `2e-5`: a number for the trainer (OmegaConf), a string for PyYAML (YAML 1.1)."""
        return bool(_WITHOUT_DOT.fullmatch(self.raw.get(key, "")))


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """PyYAML's rules for scalars as OmegaConf changes them: `1e-5` is a float, dates stay text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":float"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def read_yaml(text: str) -> YamlText:
    """Raises InvalidInput with line and column when the text is not one YAML mapping."""
    root = _compose(text)
    if root is None:
        return YamlText(values={})
    if not isinstance(root, yaml.MappingNode):
        raise InvalidInput(
            "document", found="text without `name: value` lines", expected="a YAML mapping", line=1, column=1
        )
    values: dict[str, ArgValue] = {}
    lines: dict[str, int] = {}
    raw: dict[str, str] = {}
    duplicates: list[str] = []
    for key_node, value_node in root.value:
        if key_node.tag == "tag:yaml.org,2002:merge" and isinstance(value_node, yaml.MappingNode):
            merged = _construct(value_node)
            values = {**merged, **values} if isinstance(merged, dict) else values
            continue
        key = _key(key_node)
        if key in lines:
            duplicates.append(key)
        values[key] = _construct(value_node)
        lines[key] = key_node.start_mark.line + 1
        if isinstance(value_node, yaml.ScalarNode) and value_node.style is None:
            raw[key] = value_node.value
        else:
            raw.pop(key, None)
    return YamlText(values=values, lines=lines, raw=raw, duplicates=tuple(dict.fromkeys(duplicates)))


def read_scalar(text: str) -> ArgValue:
    """One unquoted word as the trainer's YAML reader sees it; text that is no plain scalar stays text."""
    tag = _Loader("").resolve(yaml.ScalarNode, text, (True, False))
    return _scalar(str(tag), text)


def _compose(text: str) -> yaml.Node | None:
    if len(text) > MAX_CHARACTERS:
        raise InvalidInput("document", found=f"{len(text)} characters", expected=f"at most {MAX_CHARACTERS}")
    try:
        _check_depth(text)
        loader = _Loader(text)
        try:
            node: yaml.Node | None = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        raise InvalidInput(
            "document", found="characters that are not printable text", expected="YAML", line=1, column=1
        ) from error
    except yaml.MarkedYAMLError as error:
        raise _yaml_error(error) from error
    return node


def _check_depth(text: str) -> None:
    depth = nodes = 0
    for event in yaml.parse(text, Loader=_Loader):
        nodes += 1
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH or nodes > _MAX_NODES:
            raise InvalidInput("document", found="values nested too deep or too many", expected="a train config")
        if isinstance(event, yaml.AliasEvent):
            nodes += 100


def _yaml_error(error: yaml.MarkedYAMLError) -> InvalidInput:
    mark = error.problem_mark or error.context_mark
    what = " ".join(str(part) for part in (error.context, error.problem) if part)
    return InvalidInput(
        "document",
        found=what or "text that is not YAML",
        expected="YAML",
        remedy="Check the indentation, the quotes and the colon of this line.",
        line=mark.line + 1 if mark else None,
        column=mark.column + 1 if mark else None,
    )


def _key(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    mark = node.start_mark
    raise InvalidInput(
        "document", found="a list or mapping as a key", expected="a name", line=mark.line + 1, column=mark.column + 1
    )


def _construct(node: yaml.Node, depth: int = 0) -> ArgValue:
    if depth > _MAX_DEPTH:
        raise InvalidInput("document", found="values that contain themselves", expected="a train config")
    if isinstance(node, yaml.SequenceNode):
        return [_construct(item, depth + 1) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        return {_key(key): _construct(value, depth + 1) for key, value in node.value}
    return _scalar(node.tag, node.value)


def _scalar(tag: str, text: str) -> ArgValue:
    kind = tag.rpartition(":")[2]
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in ("yes", "true", "on")
    try:
        if kind == "int":
            return _int(text)
        if kind == "float":
            return _float(text)
    except ValueError:
        return text
    return text


def _int(text: str) -> int:
    value = text.replace("_", "")
    sign = -1 if value.startswith("-") else 1
    value = value.lstrip("+-")
    if ":" in value:
        return sign * int(_sexagesimal(value))
    if value != "0" and value.startswith("0") and value[1:2].isdigit():
        return sign * int(value, 8)
    return sign * int(value, 0)


def _float(text: str) -> float:
    value = text.replace("_", "").lower()
    if value.lstrip("+-") == ".inf":
        return float("-inf") if value.startswith("-") else float("inf")
    if value == ".nan":
        return float("nan")
    if ":" in value:
        sign = -1 if value.startswith("-") else 1
        return sign * _sexagesimal(value.lstrip("+-"))
    return float(value)


def _sexagesimal(value: str) -> float:
    total = 0.0
    for part in value.split(":"):
        total = total * 60 + float(part)
    return total
