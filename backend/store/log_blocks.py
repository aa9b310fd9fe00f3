"""Log records as a rank wrote them in, blocks of columns out, where they are as plain as they nearly always are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from backend.store.columns import Floats
from backend.store.log_table import LogBlock
from backend.store.record_file import Record

_NUMBERS = frozenset({float, int})
_CELLS = frozenset({float, int, str})
_HEAD = itemgetter("s", "epoch", "v")


def build_log_blocks(records: Sequence[Record]) -> list[LogBlock] | None:
    """One block for every set of names; None when any record has to be looked at by itself (a value that is no number ...)."""
    try:
        steps, epochs, values = zip(*map(_HEAD, records), strict=True)
        if (
            set(map(type, steps)) != {int}
            or not _NUMBERS.issuperset(map(type, epochs))
            or set(map(type, values)) != {dict}
        ):
            return None
        heads = np.array((steps, epochs), dtype=np.float64)
        return [_build_block(names, rows, heads, values) for names, rows in _rows_by_names(values).items()]
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _rows_by_names(values: Sequence[Mapping[str, object]]) -> dict[tuple[str, ...], Sequence[int]]:
    names = tuple(values[0])
    if set(map(tuple, values)) == {names}:
        return {names: range(len(values))}
    found: dict[tuple[str, ...], list[int]] = {}
    for row, named in enumerate(map(tuple, values)):
        found.setdefault(named, []).append(row)
    return dict(found)


def _build_block(
    names: tuple[str, ...], rows: Sequence[int], heads: Floats, values: Sequence[Mapping[str, object]]
) -> LogBlock:
    """Raises ValueError for what is no number."""
    if "epoch" in names:  # the record's own counts
        raise ValueError("epoch")
    picked = values if len(rows) == len(values) else [values[row] for row in rows]
    cells: list[Any] = [cell for named in picked for cell in named.values()]
    if not _CELLS.issuperset(map(type, cells)):
        raise ValueError("a value that is no number")
    places = np.array(rows, dtype=np.intp)
    numbers = np.fromiter(cells, np.float64, len(cells)).reshape(len(rows), len(names))
    return LogBlock(
        names=(*names, "epoch"),
        rows=places,
        steps=heads[0, places],
        values=np.column_stack((numbers, heads[1, places])),
    )
