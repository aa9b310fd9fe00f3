"""Passing over what tells nothing changes no answer, however the bytes are cut."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from backend.parsing.console import ConsoleReader
from backend.parsing.console_facts import console_facts
from backend.parsing.shapes import LiteralSet
from tests.unit.console_logs import LogMaker


def read(portions: Iterable[bytes], *, skim: bool) -> ConsoleReader:
    reader = ConsoleReader(skim=skim)
    for portion in portions:
        reader.feed(portion)
    reader.flush()
    return reader


def told(reader: ConsoleReader) -> dict[str, object]:
    """All that a reader holds. Where in a run of bars the step grew is left out: nothing else was printed in between."""
    marks, failure = reader.marks, reader.failure
    return {
        "rows": [repr(row) for row in (*reader.rows.train, *reader.rows.evals)],
        "other rows": (reader.rows.finals, sorted(reader.rows.hosts), reader.rows.segment_starts),
        "bars": (
            reader.bars.total,
            reader.bars.step,
            reader.bars.seconds_per_step,
            reader.bars.elapsed,
            reader.bars.data_bar,
        ),
        "deepspeed": repr(reader.deepspeed),
        "rccl": repr(reader.rccl),
        "job": repr(reader.job),
        "steps": repr(reader.steps),
        "marks": (bool(marks.trainer), bool(marks.ray), marks.lines, marks.ansi, marks.cut_dict),
        "findings": {code: repr(one) for code, one in failure.findings.items()},
        "remarks": repr(failure.remarks),
        "launcher": repr(failure.launcher),
        "exceptions": (repr(failure.exceptions), failure.traceback_ranks, list(failure.last_frames)),
        "verdict": repr(reader.conclude()),
        "facts": console_facts(reader).to_json(),
    }


def cut(data: bytes, chance: random.Random) -> list[bytes]:
    places = sorted(chance.sample(range(len(data)), min(60, len(data))))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


@pytest.mark.parametrize("seed", range(60))
def test_what_is_passed_over_changes_no_answer(seed: int) -> None:
    data = LogMaker(seed).text(60).encode()
    want = told(read([data], skim=False))
    assert told(read([data], skim=True)) == want
    assert told(read(cut(data, random.Random(seed)), skim=True)) == want


@pytest.mark.parametrize("seed", range(1000, 1012))
def test_a_log_cut_at_every_byte_gives_the_same_answer(seed: int) -> None:
    data = LogMaker(seed).text(12).encode()
    assert told(read((bytes([byte]) for byte in data), skim=True)) == told(read([data], skim=False))


def test_a_literal_of_digits_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="137"):
        LiteralSet(("Killed", "137"))
