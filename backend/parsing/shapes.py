"""Lines into their shape (the bytes without digits), and what is known of each shape.

Logs repeat a few sentences with other numbers in them. Asking which literals a line holds once per sentence instead of once per
line is exact: a literal that stands in a line stands, without its digits, in the line's shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import re2

Known = TypeVar("Known")

DIGITS = b"0123456789"
_MAX_SHAPES = 8192
_MAX_BYTES = 2000
_AUTOMATON_BYTES = 64 << 20


def shape_of(data: bytes) -> bytes:
    """The bytes without digits."""
    return data.translate(None, DIGITS)


class ShapeCache(Generic[Known]):
    """Answers about shapes, each worked out once. `known` may be read directly; `of` also works out."""

    def __init__(self, work_out: Callable[[bytes], Known]) -> None:
        self._work_out = work_out
        self.known: dict[bytes, Known] = {}

    def of(self, shape: bytes) -> Known:
        """The answer for a shape."""
        found = self.known.get(shape)
        if found is None:
            found = self._work_out(shape)
            self.remember(shape, found)
        return found

    def remember(self, shape: bytes, found: Known) -> None:
        """Keep an answer; a log of ever new sentences must not fill the memory."""
        if len(shape) > _MAX_BYTES:
            return
        if len(self.known) >= _MAX_SHAPES:
            self.known.clear()
        self.known[shape] = found


class LiteralSet:
    """Hundreds of literals, searched in a shape all at once (an automaton: the time does not grow with their number).

    A literal that consists of digits only would stand in every shape: ValueError.
    """

    def __init__(self, literals: Sequence[str], patterns: Sequence[str] = ()) -> None:
        options = re2.Options()
        options.max_mem = _AUTOMATON_BYTES
        options.encoding = re2.Options.Encoding.LATIN1  # bytes are searched
        self._set = re2.Set.SearchSet(options)
        for literal in literals:
            bare = shape_of(literal.encode())
            if not bare:
                raise ValueError(f"the literal {literal!r} has nothing but digits: every line would seem to hold it")
            self._set.Add(re2.escape(bare))
        for pattern in patterns:
            self._set.Add(pattern.encode())
        self._set.Compile()

    def find(self, shape: bytes) -> list[int]:
        """Places in `literals` (then in `patterns`) of those that may stand in a line of this shape: none is left out."""
        found: list[int] | None = self._set.Match(shape)
        return sorted(found) if found else []
