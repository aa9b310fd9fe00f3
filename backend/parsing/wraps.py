"""The prefixes of lines into who printed them, also when the terminal broke a line at its width: the second row has no prefix."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence

from backend.parsing.lines import NOBODY, Origin, decode_text, read_origin

_NARROWEST = 72
_MOST_ROWS = 32
"""A line is not broken into more rows than this."""


class WrapWatch:
    """Takes all lines in order, but for redrawn ones; those that nobody reads may come in one go."""

    def __init__(self) -> None:
        self._before = 0
        """Characters of the line before."""
        self._width = 0
        """Of the terminal, once two rows had the same length."""
        self._rows: deque[str | bytes] = deque(maxlen=_MOST_ROWS)
        """The line before, behind those that it continues."""

    def origin_of(self, text: str) -> Origin:
        """Rank and host; a continuation inherits the rank of the line before it."""
        origin = read_origin(text)
        fits = self._fits(len(text))
        if fits and origin == NOBODY and text[:1] != "[":
            origin = Origin(self._rank_before(), None, 0)
        self._note(text, fits=fits)
        return origin

    def pass_one(self, line: bytes) -> None:
        """As `pass_over`, for one line."""
        length = len(line) if line.isascii() else len(line.decode("utf-8", "replace"))
        self._note(line, fits=self._fits(length))

    def pass_over(self, lines: Sequence[bytes]) -> None:
        """Lines without escape codes that nobody reads."""
        lengths = [len(line) if line.isascii() else len(line.decode("utf-8", "replace")) for line in lines]
        if len(lines) > _MOST_ROWS + 1:
            self._pass_many(lengths[: -_MOST_ROWS - 1])
        for line, length in zip(lines[-_MOST_ROWS - 1 :], lengths[-_MOST_ROWS - 1 :], strict=True):
            self._note(line, fits=self._fits(length))

    def redraw(self) -> None:
        """A bar was drawn over: no row continues it."""
        self._before = 0
        self._rows.clear()

    def _pass_many(self, lengths: Sequence[int]) -> None:
        """So many lines follow that of these only the width of the terminal can matter."""
        same = [a for a, b in itertools.pairwise((self._before, *lengths)) if a == b >= _NARROWEST]
        self._width = same[-1] if same else self._width
        self._before = lengths[-1]
        self._rows.clear()

    def _fits(self, length: int) -> bool:
        """The line before filled the width and this one is no longer than it. Call once a line."""
        before, self._before = self._before, length
        if length == before >= _NARROWEST:
            self._width = length
        return before == self._width >= length and self._width > 0

    def _note(self, line: str | bytes, *, fits: bool) -> None:
        if not fits:
            self._rows.clear()
        self._rows.append(line)

    def _rank_before(self) -> int | None:
        for line in reversed(self._rows):
            text = line if isinstance(line, str) else decode_text(line)
            origin = read_origin(text)
            if origin != NOBODY or text[:1] == "[":
                return origin.rank
        return None
