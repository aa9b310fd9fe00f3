"""Every recorded log is read right, and in the same way however its bytes are cut."""

from __future__ import annotations

import random

import pytest

from backend.parsing.console import ConsoleReader
from backend.parsing.console_facts import console_facts
from backend.parsing.log_inspection import inspect_logs, is_log
from backend.parsing.trainer_log import TrainerLog
from backend.parsing.trainer_log_facts import facts_of_log
from tests.unit.log_cases import CASE_COUNT, case_names, differences, load_case


def test_all_cases_are_found() -> None:
    assert len(case_names()) == CASE_COUNT


@pytest.mark.parametrize("name", case_names())
def test_a_case_is_read_right(name: str) -> None:
    files, expect = load_case(name)
    facts = inspect_logs(files)
    assert facts is not None
    assert list(differences(expect, facts.to_json())) == []


def read_console(portions: list[bytes], *, skim: bool = True) -> dict[str, object]:
    reader = ConsoleReader(skim=skim)
    for portion in portions:
        reader.feed(portion)
    reader.flush()
    return console_facts(reader).to_json()


def read_trainer_log(portions: list[bytes]) -> dict[str, object]:
    log = TrainerLog()
    for portion in portions:
        log.feed(portion)
    log.flush()
    return facts_of_log(log).to_json()


@pytest.mark.parametrize("name", case_names())
def test_skimming_passes_over_nothing_that_tells(name: str) -> None:
    files, _ = load_case(name)
    for file, data in files.items():
        if is_log(file, data) and not file.endswith((".json", ".jsonl")):
            thrice = data + b"\n" + data + b"\n" + data  # lines whose shape is known by then
            assert read_console([thrice]) == read_console([thrice], skim=False)


@pytest.mark.parametrize("name", case_names())
def test_a_log_cut_anywhere_gives_the_same_answer(name: str) -> None:
    files, _ = load_case(name)
    chance = random.Random(name)
    for file, data in files.items():
        if not is_log(file, data) or file.endswith(".json"):
            continue
        read = read_trainer_log if file.endswith(".jsonl") else read_console
        whole = read([data])
        assert read([bytes([byte]) for byte in data]) == whole
        for _ in range(4):
            cuts = sorted(chance.sample(range(len(data)), min(9, len(data))))
            assert read([data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]) == whole


def damage(data: bytes, chance: random.Random) -> bytes:
    """Cut, overwritten or reordered, as crashed hosts and several writers leave a log."""
    way = chance.randrange(4)
    if way == 0:
        return data[chance.randrange(len(data)) :]
    if way == 1:
        lines = data.split(b"\n")
        chance.shuffle(lines)
        return b"\n".join(lines)
    damaged = bytearray(data)
    for _ in range(20):
        damaged[chance.randrange(len(damaged))] = chance.choice(b".,:0123456789[]{}'|%\r\n\xff")
    return bytes(damaged)


@pytest.mark.parametrize("name", case_names())
def test_a_damaged_log_is_read_without_an_error(name: str) -> None:
    files, _ = load_case(name)
    chance = random.Random(name)
    for _ in range(12):
        facts = inspect_logs({file: damage(data, chance) if data else data for file, data in files.items()})
        assert facts is None or facts.to_json()["detected_format"]
