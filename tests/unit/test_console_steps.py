"""The step of a trainer's dict on a console whose bar tqdm clears, prints behind, and draws again."""

from __future__ import annotations

import pytest

from backend.parsing.console import ConsoleReader

_CLEAR = "\r" + " " * 60 + "\r"


def bar(done: int, total: int = 40) -> str:
    drawn = f"{100 * done // total:3d}%|{'█' * (done // 4):<10}|"
    return f"\r {drawn} {done}/{total} [00:{done:02d}<00:{total - done:02d},  1.00it/s]"


def printed(loss: float) -> str:
    return f"{_CLEAR}{{'loss': {loss}, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': {loss / 10}}}\n"


def steps_of(text: str, cut: int) -> list[tuple[int | None, float]]:
    reader, data = ConsoleReader(), text.encode()
    for at in range(0, len(data), cut):
        reader.feed(data[at : at + cut])
    reader.flush()
    return [(row.step, row.values["loss"]) for row in reader.rows.train]


@pytest.mark.parametrize("cut", [1, 7, 100, 1 << 20])
def test_the_bar_drawn_again_gives_the_step_and_not_the_older_one_before(cut: int) -> None:
    text = bar(3) + bar(4) + printed(2.5) + bar(5) + bar(6) + bar(7) + bar(8) + printed(2.0) + bar(10) + bar(11)
    assert steps_of(text, cut) == [(5, 2.5), (10, 2.0)]


@pytest.mark.parametrize("cut", [1, 7, 1 << 20])
def test_a_long_run_of_bars_behind_the_dict_keeps_the_first_one(cut: int) -> None:
    text = bar(4) + printed(2.5) + "".join(bar(done) for done in range(5, 40)) + "\n"
    assert steps_of(text, cut) == [(5, 2.5)]


def test_without_clearing_the_bar_before_the_dict_has_its_step() -> None:
    text = bar(5) + "\n{'loss': 2.5, 'epoch': 0.5}\n" + bar(6) + bar(7)
    assert steps_of(text, 64) == [(5, 2.5)]


def test_a_dict_that_names_its_step_is_believed() -> None:
    text = bar(4) + f"{_CLEAR}{{'loss': 2.5, 'step': 4, 'epoch': 0.5}}\n" + bar(9) + bar(10)
    assert steps_of(text, 64) == [(4, 2.5)]
