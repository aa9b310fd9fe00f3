import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.planning.lengths import build_lengths, packed_blocks


def test_no_rows_is_unknown_not_zero() -> None:
    assert build_lengths([]) is None


def test_equal_lengths_have_no_padding() -> None:
    lengths = build_lengths([64] * 10)
    assert lengths is not None
    assert lengths.padding_share(4, 2048) == 0
    assert lengths.mean_longest_of(4, 2048) == 64


def test_longest_of_many_rows_approaches_the_maximum() -> None:
    lengths = build_lengths(range(1, 101))
    assert lengths is not None
    assert lengths.mean_longest_of(1, 2048) == pytest.approx(lengths.mean)
    assert lengths.mean_longest_of(1000, 2048) == pytest.approx(100, abs=0.1)
    assert lengths.mean_longest_of(1000, 50) == pytest.approx(50)


def test_rows_over_the_cutoff_are_counted_as_truncated() -> None:
    lengths = build_lengths([10, 20, 30, 40])
    assert lengths is not None
    assert lengths.truncated_share(20) == 0.5
    assert lengths.truncated_share(40) == 0
    assert lengths.mean_kept(20) == (10 + 20 + 20 + 20) / 4


def test_packing_leaves_little_padding_where_batching_leaves_much() -> None:
    lengths = build_lengths([50] * 90 + [800] * 10)
    assert lengths is not None
    assert lengths.padding_share(8, 2048) > 0.7
    assert lengths.packed_padding_share(2048) < 0.2


@given(st.lists(st.integers(1, 100), min_size=1, max_size=200))
def test_packing_never_uses_fewer_blocks_than_tokens_need_nor_more_than_rows(rows: list[int]) -> None:
    blocks = packed_blocks(rows, 100)
    assert -(-sum(rows) // 100) <= blocks <= len(rows)
