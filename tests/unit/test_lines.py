"""Lines of a console: the same however the bytes are cut."""

from __future__ import annotations

import pytest

from backend.parsing import lines as module
from backend.parsing.lines import Level, Line, LineDecoder, LineSplitter, terminal_lines

CONSOLE = (
    b"\xef\xbb\xbf[INFO|2026-11-30 20:37:18] parser:523 >> Process rank: 0\r\n"
    b"\r  0%|          | 0/12 [00:00<?, ?it/s]\r  8%|\xe2\x96\x8a         | 1/12 [01:28<16:08, 88.00s/it]"
    b"\r                            \r{'loss': 1.68}\n"
    b"\x1b[1;36m(EngineCore_0 pid=70411)\x1b[0;0m WARNING 02-19 17:03:26 [x.py:61] no kernel\n"
    b"[rank3]:[E713 08:14:02.55 ProcessGroupNCCL.cpp:1793] [Rank 3] hung\n"
    b"10.0.0.12: {'loss': 2.1}\n"
    b"node07:812:901 [4] NCCL WARN Missing\n" + "模型训练完成 ✓\r\r\n".encode() + b"broken \xff byte\n\n"
    b"last line without end"
)


def decode(portions: list[bytes]) -> list[Line]:
    decoder = LineDecoder()
    found = [line for portion in portions for line in decoder.feed(portion)]
    return found + decoder.flush()


def test_lines_are_the_same_when_cut_at_any_byte() -> None:
    whole = decode([CONSOLE])
    for cut in range(len(CONSOLE) + 1):
        assert decode([CONSOLE[:cut], CONSOLE[cut:]]) == whole
    assert decode([bytes([byte]) for byte in CONSOLE]) == whole


def test_offsets_cover_every_byte_once() -> None:
    found = decode([CONSOLE])
    assert found[0].offset == 0
    assert [line.end for line in found[:-1]] == [line.offset for line in found[1:]]
    assert found[-1].end == len(CONSOLE)


def test_a_terminal_shows_what_was_not_overwritten() -> None:
    shown = [line.text for line in terminal_lines(decode([CONSOLE]))]
    assert shown == [
        "[INFO|2026-11-30 20:37:18] parser:523 >> Process rank: 0",
        "{'loss': 1.68}",
        "(EngineCore_0 pid=70411) WARNING 02-19 17:03:26 [x.py:61] no kernel",
        "[rank3]:[E713 08:14:02.55 ProcessGroupNCCL.cpp:1793] [Rank 3] hung",
        "10.0.0.12: {'loss': 2.1}",
        "node07:812:901 [4] NCCL WARN Missing",
        "模型训练完成 ✓",
        "broken \ufffd byte",
        "",
        "last line without end",
    ]


def test_a_bar_is_an_overwritten_line_of_its_own() -> None:
    bars = [line.text for line in decode([CONSOLE]) if line.overwritten]
    assert bars[2] == "  8%|▊         | 1/12 [01:28<16:08, 88.00s/it]"


@pytest.mark.parametrize(
    ("text", "rank", "host", "body"),
    [
        ("[rank3]: Traceback (most recent call last):", 3, None, "Traceback (most recent call last):"),
        ("[default5]:{'loss': 1.0}", 5, None, "{'loss': 1.0}"),
        ("[1,12]<stderr>:loss", 12, None, "loss"),
        ("10.0.0.11: {'loss': 2.1}", None, "10.0.0.11", "{'loss': 2.1}"),
        ("gpu-node07: [rank9]: ValueError: x", 9, "gpu-node07", "ValueError: x"),
        ("3: step 10", 3, None, "step 10"),
        ("(RayWorker pid=12, ip=10.0.0.21) [rank0]:[E1104 23:01:17", 0, "10.0.0.21", "[E1104 23:01:17"),
        ("node07:812:901 [4] NCCL WARN x", None, "node07", "node07:812:901 [4] NCCL WARN x"),
        ("RuntimeError: HIP error", None, None, "RuntimeError: HIP error"),
        ("Step 10: loss 2", None, None, "Step 10: loss 2"),
        ("[2025-11-06 13:20:41] [INFO] [logging.py:128:log_dist] [Rank 2] step=1", 2, None, None),
        ("12:30:01 started", None, None, "12:30:01 started"),
    ],
)
def test_the_prefix_names_rank_and_host(text: str, rank: int | None, host: str | None, body: str | None) -> None:
    [line] = decode([text.encode()])
    assert (line.rank, line.host, line.body) == (rank, host, text if body is None else body)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("[INFO|trainer.py:2519] 2026-02-02 08:00:10,118 >> go", Level.INFO),
        ("[2025-11-06 13:18:05,340] [WARNING] [runner.py:215:fetch_hostfile] no hostfile", Level.WARNING),
        ("2026-02-02 08:00:10 - ERROR - x.py - bad", Level.ERROR),
        ("[rank0]: Traceback (most recent call last):", Level.ERROR),
        ("torch.OutOfMemoryError: HIP out of memory.", Level.ERROR),
        ("/opt/x.py:1: UserWarning: cache", Level.WARNING),
        ("host:1:2 [0] NCCL WARN Missing iommu", Level.WARNING),
        ("[E713 08:14:02.55 ProcessGroupNCCL.cpp:1793] hung", Level.ERROR),
        ("W0813 10:00:00.1 1 torch/run.py:766] x", Level.WARNING),
        ("the error rate is 3 %", None),
        ("{'loss': 1.0}", None),
    ],
)
def test_the_level_is_read_from_every_style(text: str, level: Level | None) -> None:
    assert decode([text.encode()])[0].level is level


def test_an_endless_line_is_cut_between_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 10)
    data = "一二三四五六七八九十".encode() + b"\nnext\n"
    whole = decode([data])
    assert "".join(line.text for line in whole[:-1]) == "一二三四五六七八九十"
    assert all(decode([data[:cut], data[cut:]]) == whole for cut in range(len(data)))


def test_a_reader_that_restarts_at_the_offset_reads_nothing_twice() -> None:
    splitter = LineSplitter()
    first = splitter.feed(b"one\ntwo\nthr")
    again = LineSplitter(splitter.offset)
    rest = again.feed(b"one\ntwo\nthree\n"[splitter.offset :])
    assert [raw.data for raw in first + rest] == [b"one", b"two", b"three"]
    assert rest[0].offset == 8
