"""Searching a console log: the same hits as reading every line, in portions, whatever the log's size and the expression."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from backend.errors import InvalidInput
from backend.services import log_search
from backend.services.log_search import LogHit, LogQuery, search_log
from backend.services.log_windows import decode
from backend.store.tail import RawLine

LINES = [
    "loading checkpoint shards",
    "[rank1]: Traceback (most recent call last):",
    "[rank1]: ValueError: bad value 7",
    "\r 10%|#  | 1/10\r 20%|## | 2/10\r100%|###| 10/10",
    "\x1b[31mERROR\x1b[0m: disk full",
    "[rank0]: [WARNING|trainer.py:12] slow step",
    "训练 损失 1.25 😀 loss",
    "{'loss': 1.25, 'epoch': 0.1}",
    "",
    "last line without an end, loss",
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "console.log"
    path.write_bytes("\n".join(LINES).encode())
    return path


def found(path: Path, query: LogQuery, **options: int | bool) -> list[str]:
    return [hit.line.text for hit in search_log(path, query, **options).hits]  # type: ignore[arg-type]


def test_text_is_found_as_it_is_shown_and_without_regard_to_case(log: Path) -> None:
    assert found(log, LogQuery(text="LOSS")) == [LINES[6], LINES[7], LINES[9]]
    assert found(log, LogQuery(text="LOSS", match_case=True)) == []
    assert found(log, LogQuery(text="error: disk")) == ["ERROR: disk full"]  # colours do not part it
    assert found(log, LogQuery(text="损失")) == [LINES[6]]
    assert found(log, LogQuery(text=".*")) == []


def test_what_a_bar_has_drawn_over_is_not_found(log: Path) -> None:
    assert found(log, LogQuery(text="2/10")) == []
    assert found(log, LogQuery(text="^100%.*10/10$", is_regex=True)) == ["100%|###| 10/10"]


def test_filters_of_level_and_rank(log: Path) -> None:
    assert found(log, LogQuery(level="error")) == [LINES[1], LINES[2], "ERROR: disk full"]
    assert found(log, LogQuery(level="warning", rank=0)) == [LINES[5]]
    assert found(log, LogQuery(rank=1)) == [LINES[1], LINES[2]]
    assert found(log, LogQuery(text="value", rank=1, level="error")) == [LINES[2]]
    assert found(log, LogQuery(text="slow", rank=1)) == []


def test_the_first_error_ends_the_search(log: Path) -> None:
    answer = search_log(log, LogQuery(level="error"), limit=1, first_only=True)
    assert [hit.line.n for hit in answer.hits] == [2]
    assert not answer.done


def test_hits_have_their_number_neighbours_and_marks(log: Path) -> None:
    hit = search_log(log, LogQuery(text="loss"), context=1).hits[0]
    assert (hit.line.n, [line.n for line in hit.before], [line.n for line in hit.after]) == (7, [6], [8])
    (start, end), units = hit.spans[0], hit.line.text.encode("utf-16-le")
    assert units[2 * start : 2 * end].decode("utf-16-le") == "loss"


def test_lines_beyond_the_limit_are_counted(log: Path) -> None:
    answer = search_log(log, LogQuery(text="loss"), limit=1)
    assert (answer.count, len(answer.hits), answer.done) == (3, 1, True)


def test_portions_together_find_what_one_reading_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(5)
    lines = [f"{at} {chance.choice(LINES)}{'x' * chance.choice((0, 3, 300))}" for at in range(2000)]
    path = tmp_path / "console.log"
    path.write_bytes("\n".join(lines).encode())
    monkeypatch.setattr(log_search, "BLOCK", 777)
    query = LogQuery(text="loss")
    hits: list[LogHit] = []
    place, number, done = 0, 1, False
    while not done:
        answer = search_log(path, query, start=place, line=number, seconds=0.0, limit=10_000)
        hits += answer.hits
        assert answer.next > place
        place, number, done = answer.next, answer.line or 0, answer.done
    shown = [decode(RawLine(at=0, data=line.encode()), at + 1) for at, line in enumerate(lines)]
    wanted = [line.n for line in shown if "loss" in line.text]
    assert [hit.line.n for hit in hits] == wanted
    assert all(hit.before[-1].n == (hit.line.n or 0) - 1 for hit in hits if hit.line.n != 1)
    data = path.read_bytes()
    assert all(hit.line.at == 0 or data[hit.line.at - 1 : hit.line.at] == b"\n" for hit in hits)
    assert all(hit.end == len(data) or data[hit.end - 1 : hit.end] == b"\n" for hit in hits)


def test_a_line_longer_than_any_block_is_searched_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "console.log"
    path.write_bytes(b"first\n" + b"y" * 300_000 + b" needle\nlast needle\n")
    monkeypatch.setattr(log_search, "BLOCK", 1000)
    answer = search_log(path, LogQuery(text="needle"))
    assert [hit.line.n for hit in answer.hits] == [2, 3]
    assert [hit.line.at for hit in answer.hits] == [6, 6 + 300_008]


@pytest.mark.parametrize("text", ["(", "(?=a)", r"(a)\1", "a{5000}"])
def test_what_is_no_expression_is_refused_with_what_is_wrong(log: Path, text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        search_log(log, LogQuery(text=text, is_regex=True))
    assert refused.value.field == "q"


def test_an_expression_that_would_explode_elsewhere_takes_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    path.write_bytes((b"a" * 5000 + b"\n") * 200)
    began = time.process_time()
    assert search_log(path, LogQuery(text="(a+)+b$", is_regex=True)).count == 0
    assert time.process_time() - began < 2.0


def test_a_missing_log_is_empty(tmp_path: Path) -> None:
    answer = search_log(tmp_path / "none.log", LogQuery(text="x"))
    assert (answer.count, answer.size, answer.done) == (0, 0, True)
