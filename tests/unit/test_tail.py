"""Windows of a log by byte offset."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from backend.store import tail
from backend.store.tail import LineNumbers, end_of_lines, read_before, read_from, read_last


def write(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "console.log"
    path.write_bytes(data)
    return path


def texts(window: tail.LogWindow) -> list[bytes]:
    return [line.data for line in window.lines]


def test_missing_log_is_an_empty_window(tmp_path: Path) -> None:
    for window in (read_from(tmp_path / "no", 0, 5), read_last(tmp_path / "no", 5), read_before(tmp_path / "no", 9, 5)):
        assert (window.size, window.next, window.lines, window.unfinished) == (0, 0, (), None)


def test_lines_have_their_byte_offset_and_the_unfinished_line_stays_apart(tmp_path: Path) -> None:
    window = read_from(write(tmp_path, b"one\ntwo\n\nhalf"), 0, 10)
    assert [(line.at, line.data) for line in window.lines] == [(0, b"one"), (4, b"two"), (8, b"")]
    assert window.unfinished == tail.RawLine(at=9, data=b"half")
    assert (window.next, window.size) == (9, 13)


def test_offset_inside_a_line_goes_on_at_the_next_line(tmp_path: Path) -> None:
    path = write(tmp_path, b"one\ntwo\nthree\n")
    assert texts(read_from(path, 1, 10)) == [b"two", b"three"]
    assert texts(read_from(path, 4, 10)) == [b"two", b"three"]
    assert texts(read_from(path, 999, 10)) == []


def test_limit_leaves_the_rest_for_the_next_window(tmp_path: Path) -> None:
    path = write(tmp_path, b"a\nb\nc\nd")
    first = read_from(path, 0, 2)
    assert texts(first) == [b"a", b"b"] and first.unfinished is None
    second = read_from(path, first.next, 1)
    assert texts(second) == [b"c"] and second.unfinished == tail.RawLine(at=6, data=b"d")


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 20])
def test_every_window_is_right_whatever_the_block_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(tail, "BLOCK", block)
    lines = [b"", b"x", b"second line", b"", "损失 0.5".encode(), b"last"]
    path = write(tmp_path, b"\n".join(lines) + b"\ntail")
    starts = [sum(len(line) + 1 for line in lines[:index]) for index in range(len(lines) + 1)]
    for index in range(len(lines) + 1):
        assert texts(read_from(path, starts[index], 99)) == lines[index:]
        for limit in range(1, 8):
            assert texts(read_before(path, starts[index], limit)) == lines[max(0, index - limit) : index]
    for limit in range(1, 8):
        window = read_last(path, limit)
        assert texts(window) == lines[-limit:]
        assert window.unfinished is not None and window.unfinished.data == b"tail"


def test_log_fed_byte_by_byte_gives_each_line_once(tmp_path: Path) -> None:
    whole = b"first\nsecond\r 50%\r 100%\nthird\n"
    path = write(tmp_path, b"")
    seen: list[bytes] = []
    offset = 0
    for byte in whole:
        with path.open("ab") as file:
            file.write(bytes([byte]))
        window = read_from(path, offset, 100)
        seen += texts(window)
        offset = window.next
    assert b"\n".join(seen) + b"\n" == whole


@pytest.mark.parametrize(("data", "expected"), [(b"", 0), (b"abc", 0), (b"a\n", 2), (b"a\nbc", 2), (b"\n", 1)])
def test_end_of_finished_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, expected: int) -> None:
    for block in (1, 2, 1 << 20):
        monkeypatch.setattr(tail, "BLOCK", block)
        assert end_of_lines(write(tmp_path, data)) == expected
    assert end_of_lines(tmp_path / "missing") == 0


def test_long_progress_line_keeps_its_end(tmp_path: Path) -> None:
    bar = b"\r".join(b"%7d/999999" % step for step in range(200_000))
    path = write(tmp_path, b"start\n" + bar)
    window = read_last(path, 5)
    assert texts(window) == [b"start"]
    assert window.unfinished is not None
    assert window.unfinished.at == 6 and window.unfinished.data == bar[-tail.KEPT_BYTES :]
    with path.open("ab") as file:
        file.write(b"\nend\n")
    assert [line.at for line in read_from(path, 6, 9).lines] == [6, 6 + len(bar) + 1]


def test_line_numbers_count_a_budget_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "BLOCK", 10)
    path = write(tmp_path, b"1234\n" * 20)
    numbers = LineNumbers(path, budget=30)
    assert numbers.number_at(0) == 1
    assert numbers.number_at(15) == 4
    assert numbers.number_at(95) is None
    assert numbers.number_at(95) is None
    assert numbers.number_at(95) == 20
    path.write_bytes(b"a\nb\n")
    assert numbers.number_at(2) == 2


def test_two_gigabyte_log_is_read_at_its_end_without_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    with path.open("wb") as file:
        file.write(b"head\n")
        file.seek((2 << 30) - 12)
        file.write(b"\nnear\nlast\nx")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    window = read_last(path, 2)
    assert texts(window) == [b"near", b"last"]
    assert texts(read_before(path, window.lines[1].at, 1)) == [b"near"]
    assert texts(read_from(path, window.lines[1].at, 1)) == [b"last"]
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 32 << 10
    os.truncate(path, 0)
