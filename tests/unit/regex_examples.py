"""Regular expressions into texts that they match: one for each way through their alternatives."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_CLASSES = {op.CATEGORY_DIGIT: "7", op.CATEGORY_WORD: "a", op.CATEGORY_SPACE: " ", op.CATEGORY_NOT_SPACE: "a"}
_LIMIT = 400


def examples(pattern: re.Pattern[str]) -> Iterator[str]:
    """Texts that the pattern matches; optional parts both ways, repeats as short as allowed."""
    return itertools.islice(_sequence(list(parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE))), _LIMIT)


def _sequence(items: list[Any]) -> Iterator[str]:
    if not items:
        yield ""
        return
    for head in _item(*items[0]):
        for tail in _sequence(items[1:]):
            yield head + tail


def _item(kind: Any, value: Any) -> Iterator[str]:
    if kind is op.LITERAL:
        yield chr(value)
    elif kind is op.NOT_LITERAL:
        yield "a" if chr(value) != "a" else "b"
    elif kind is op.ANY:
        yield "a"
    elif kind is op.IN:
        yield _member(value)
    elif kind is op.BRANCH:
        for branch in value[1]:
            yield from _sequence(list(branch))
    elif kind is op.SUBPATTERN:
        yield from _sequence(list(value[3]))
    elif kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        low, _, inner = value
        for count in {low, max(low, 1)}:
            for text in _sequence(list(inner)):
                yield text * count
    else:  # anchors, looks around: nothing of their own
        yield ""


def _member(choices: list[Any]) -> str:
    if choices[0][0] is op.NEGATE:
        return "a"
    kind, value = choices[0]
    if kind is op.LITERAL:
        return chr(value)
    if kind is op.RANGE:
        return chr(value[0])
    return _CLASSES.get(value, "a")
