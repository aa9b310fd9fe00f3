"""Rows of a data file in, estimated token lengths out, for when no tokenizer has counted them yet."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from backend.planning.lengths import Lengths, build_lengths

_WIDE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")
WIDE_TOKENS, OTHER_CHARACTERS = 0.75, 3.8
"""Tokens of a Chinese, Japanese or Korean character; characters of other text that make a token. Usual for vocabularies of
100,000 and more; small vocabularies need more tokens."""
TEMPLATE_TOKENS = 24
"""What a chat template adds to a row of two turns."""


def estimate_tokens(text: str) -> float:
    wide = len(_WIDE.findall(text))
    return wide * WIDE_TOKENS + (len(text) - wide) / OTHER_CHARACTERS


def estimate_lengths(rows: Iterable[object], *, total: int | None = None) -> Lengths | None:
    """Lengths of rows in any shape: all text below a row counts. None without rows."""
    sample = [round(sum(map(estimate_tokens, _texts(row))) + TEMPLATE_TOKENS) for row in rows]
    return build_lengths(sample, rows=total, estimate="counted in characters, not with the model's tokenizer")


def parse_rows(text: str, most: int = 2000) -> list[object]:
    """Rows at the start of a JSON array or of JSON lines; a piece cut off at the end is left out."""
    stripped = text.lstrip("\ufeff \t\r\n")
    decoder = json.JSONDecoder()
    position = 1 if stripped.startswith("[") else 0
    rows: list[object] = []
    while len(rows) < most:
        while position < len(stripped) and stripped[position] in " \t\r\n,":
            position += 1
        if position >= len(stripped) or stripped[position] == "]":
            break
        try:
            row, position = decoder.raw_decode(stripped, position)
        except ValueError:
            break
        rows.append(row)
    return rows


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _texts(inner)
