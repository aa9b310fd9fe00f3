"""Token lengths of a data set in, what batches of it look like out: padding, truncation, packing, the longest batch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

_MOST = 1000
"""Rows kept: enough for every figure here, and what LLaMA-Factory packs at a time (preprocessing_batch_size)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Token counts of a sample of rows, ascending. `rows` is the size of the whole set; `estimate` says how lengths were
    obtained when no tokenizer counted them ("" = counted)."""

    sample: tuple[int, ...]
    rows: int
    estimate: str = ""

    @property
    def mean(self) -> float:
        return sum(self.sample) / len(self.sample)

    @property
    def longest(self) -> int:
        return self.sample[-1]

    def quantile(self, share: float) -> int:
        """Smallest length that `share` of the rows do not exceed."""
        return self.sample[min(len(self.sample) - 1, max(0, round(share * len(self.sample)) - 1))]

    def truncated_share(self, cutoff: int) -> float:
        """Share of rows longer than `cutoff` tokens."""
        return 1 - bisect_left(self.sample, cutoff + 1) / len(self.sample)

    def mean_kept(self, cutoff: int) -> float:
        """Mean tokens a row keeps under `cutoff`."""
        return sum(min(length, cutoff) for length in self.sample) / len(self.sample)

    def mean_longest_of(self, count: int, cutoff: int) -> float:
        """Expected longest of `count` rows drawn at random, cut at `cutoff`.

        E[max] = sum of x_i * (F(x_i)^count - F(x_{i-1})^count) over the sorted sample.
        """
        total, below = 0.0, 0.0
        size = len(self.sample)
        for rank, length in enumerate(self.sample, start=1):
            reached = (rank / size) ** count
            total += min(length, cutoff) * (reached - below)
            below = reached
        return total

    def padding_share(self, micro_batch: int, cutoff: int, multiple: int = 8) -> float:
        """Share of the computed tokens that are padding when each micro batch is padded to its longest row."""
        padded = _round_up(self.mean_longest_of(micro_batch, cutoff), multiple)
        return max(0.0, 1 - self.mean_kept(cutoff) / padded)

    def packed_padding_share(self, cutoff: int) -> float:
        """Share of padding when rows are packed greedily into blocks of `cutoff` tokens (LLaMA-Factory's knapsack, which
        drops rows longer than that)."""
        rows = self.packable(cutoff)
        return max(0.0, 1 - sum(rows) / (_blocks(rows, cutoff) * cutoff)) if rows else 0.0

    def rows_per_block(self, cutoff: int) -> float:
        """Mean rows in one packed block."""
        rows = self.packable(cutoff)
        return len(rows) / _blocks(rows, cutoff) if rows else 1.0

    def packable(self, cutoff: int) -> tuple[int, ...]:
        """Rows that packing keeps."""
        return self.sample[: bisect_left(self.sample, cutoff + 1)]


@lru_cache(maxsize=512)
def _blocks(rows: tuple[int, ...], cutoff: int) -> int:
    return packed_blocks(rows, cutoff)


def build_lengths(sample: Sequence[int], *, rows: int | None = None, estimate: str = "") -> Lengths | None:
    """None for an empty sample: nothing is known then, which is not a length of zero."""
    if not sample:
        return None
    ordered = sorted(sample)
    if len(ordered) > _MOST:  # evenly spaced ranks, the longest among them
        ordered = [ordered[round(rank * (len(ordered) - 1) / (_MOST - 1))] for rank in range(_MOST)]
    return Lengths(sample=tuple(ordered), rows=rows or len(sample), estimate=estimate)


def packed_blocks(lengths: Sequence[int], cutoff: int) -> int:
    """Blocks that first-fit decreasing needs; each length must not exceed `cutoff`."""
    free: list[int] = []  # ascending free space of open blocks
    for length in sorted(lengths, reverse=True):
        place = bisect_left(free, length)
        left = cutoff - length if place == len(free) else free.pop(place) - length
        free.insert(bisect_left(free, left), left)
    return max(1, len(free))


def _round_up(value: float, multiple: int) -> float:
    whole = -(-value // multiple) * multiple
    return max(float(multiple), whole)
