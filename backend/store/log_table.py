"""Log records of the trainer in (rank 0, full precision), one growing series a logged name out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from backend.store.columns import Column, Floats


@dataclass(slots=True)
class Logged:
    """One name: steps, values (NaN and infinity as recorded), and the number of the log record each came in."""

    x: Column = field(default_factory=Column)
    y: Column = field(default_factory=Column)
    order: Column = field(default_factory=Column)

    def first_of(self, log: int) -> int:
        """Position of the first value that came in log record `log` or later."""
        return bisect_left(self.order.values, log)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBlock:
    """Log records that name the same values: `rows` says which of the records they are, `values` has a column a name."""

    names: tuple[str, ...]
    rows: NDArray[np.intp]
    steps: Floats
    values: Floats


class LogTable:
    """Append-only; `size` counts log records."""

    def __init__(self) -> None:
        self.size = 0
        self.names: dict[str, Logged] = {}

    def columns(self) -> dict[str, Floats]:
        """Every column as `<x, y or order>:<name>`."""
        return {
            f"{part}:{name}": getattr(logged, part).values
            for name, logged in self.names.items()
            for part in ("x", "y", "order")
        }

    def restore(self, columns: Mapping[str, Floats], size: int) -> None:
        """Take over what `columns` gave."""
        names = [key.removeprefix("x:") for key in columns if key.startswith("x:")]
        self.names = {
            name: Logged(**{part: Column.of(columns[f"{part}:{name}"]) for part in ("x", "y", "order")})
            for name in names
        }
        self.size = size

    @property
    def memory_bytes(self) -> int:
        return sum(3 * logged.x.capacity_bytes for logged in tuple(self.names.values()))

    def extend(self, rows: Sequence[tuple[int, float | None, Mapping[str, float]]]) -> None:
        """Log records in their order: step, epoch, values."""
        added: dict[str, tuple[list[float], list[float], list[float]]] = {}
        for order, (step, epoch, values) in enumerate(rows, self.size):
            named = values if epoch is None else {**values, "epoch": epoch}
            for name, value in named.items():
                if name not in added:
                    added[name] = ([], [], [])
                x, y, orders = added[name]
                x.append(step)
                y.append(value)
                orders.append(order)
        for name, (x, y, orders) in added.items():
            logged = self.names.setdefault(name, Logged())
            logged.x.extend(x)
            logged.y.extend(y)
            logged.order.extend(orders)
        self.size += len(rows)

    def extend_blocks(self, blocks: Sequence[LogBlock], count: int) -> None:
        """`count` log records, each in one of the blocks: as `extend`, without a look at every single one."""
        parts: dict[str, list[tuple[LogBlock, int]]] = {}
        for block in blocks:
            for place, name in enumerate(block.names):
                parts.setdefault(name, []).append((block, place))
        for name, found in parts.items():
            rows = np.concatenate([block.rows for block, _ in found])
            order = np.argsort(rows, kind="stable") if len(found) > 1 else slice(None)
            logged = self.names.setdefault(name, Logged())
            logged.x.extend(np.concatenate([block.steps for block, _ in found])[order])
            logged.y.extend(np.concatenate([block.values[:, place] for block, place in found])[order])
            logged.order.extend(rows[order] + float(self.size))
        self.size += count

    def values(self, name: str) -> Floats:
        """Every value logged under `name`, in the order of writing; empty when there is none."""
        logged = self.names.get(name)
        return Column().values if logged is None else logged.y.values
