"""Lines into their shape (the bytes without digits), and per shape which literals a line of that shape can contain.

Logs repeat a few sentences with other numbers in them. Searching hundreds of literals once per sentence instead of once per
line is exact: a literal that stands in a line stands, without its digits, in the line's shape.
"""

from __future__ import annotations

from collections.abc import Iterable

DIGITS = b"0123456789"
_MAX_SHAPES = 8192
_MAX_BYTES = 2000


def shape_of(data: bytes) -> bytes:
    """The bytes without digits."""
    return data.translate(None, DIGITS)


class ShapeCache:
    """Remembers for each shape the literals that its lines can contain."""

    def __init__(self, literals: Iterable[str]) -> None:
        self._literals = tuple((one, shape_of(one.encode())) for one in dict.fromkeys(literals))
        self._known: dict[bytes, tuple[str, ...]] = {}

    def candidates(self, shape: bytes) -> tuple[str, ...]:
        """Literals that may stand in a line of this shape: none is left out, one may be too many."""
        found = self._known.get(shape)
        if found is None:
            found = tuple(literal for literal, bare in self._literals if bare in shape)
            self.remember(shape, found)
        return found

    def is_empty(self, shape: bytes) -> bool:
        """True when the shape is remembered and its lines contain none of the literals."""
        return self._known.get(shape) == ()

    def remember(self, shape: bytes, found: tuple[str, ...]) -> None:
        """Keep an answer; a log of ever new sentences must not fill the memory."""
        if len(shape) > _MAX_BYTES:
            return
        if len(self._known) >= _MAX_SHAPES:
            self._known.clear()
        self._known[shape] = found
