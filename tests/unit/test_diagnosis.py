"""Every cause has its texts, and a job's end is explained by console, exit and records together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backend.parsing.causes import CAUSES, FINDINGS, remedy_of
from backend.parsing.diagnosis import KnownRun, diagnose, diagnose_windows
from backend.parsing.signatures import REMARKS, SIGNATURES
from tests.unit.log_cases import case_names, load_case
from tests.unit.regex_examples import examples
from ui.text.diagnosis_zh import DIAGNOSIS_ZH

DOCS = Path(__file__).parents[2] / "docs" / "diagnosis.md"
TRACE = b"""Traceback (most recent call last):
  File "/srv/train.py", line 3, in <module>
    main()
"""
OOM = TRACE + (
    b"torch.OutOfMemoryError: HIP out of memory. Tried to allocate 9.00 GiB. GPU 0 has a total capacity of 191.98 GiB of which "
    b"2.40 GiB is free. Of the allocated memory 180.10 GiB is allocated by PyTorch, and 4.20 GiB is reserved by PyTorch but "
    b"unallocated.\n"
)


def test_every_code_of_the_tables_has_english_texts() -> None:
    used = {one.code for one in SIGNATURES} | {one.code for one in REMARKS}
    assert used <= CAUSES.keys() | FINDINGS.keys()
    assert all(one.title and one.remedy for one in (*CAUSES.values(), *FINDINGS.values()))


def test_every_code_has_chinese_texts_and_no_other() -> None:
    assert DIAGNOSIS_ZH.keys() == CAUSES.keys() | FINDINGS.keys()
    assert all(re.search("[\u4e00-\u9fff]", title + remedy) for title, remedy in DIAGNOSIS_ZH.values())


def test_the_documentation_lists_every_code_with_its_remedy() -> None:
    text = DOCS.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", text, re.MULTILINE))
    for code, cause in (*CAUSES.items(), *FINDINGS.items()):
        assert rows.get(code) == f"{cause.title} | {cause.remedy}", code
    assert len(rows) == len(CAUSES) + len(FINDINGS)


def test_every_code_of_a_finding_is_known() -> None:
    for name in case_names():
        files, _ = load_case(name)
        for file, data in files.items():
            if file.endswith((".log", ".out")):
                for problem in diagnose(data).problems:
                    assert problem.reason and problem.remedy, problem.code


def test_the_remedy_uses_the_numbers_of_the_log() -> None:
    assert remedy_of(CAUSES["port_in_use"], {"port": 29500}).startswith("Port 29500 is taken")
    assert remedy_of(CAUSES["port_in_use"], {}) == CAUSES["port_in_use"].remedy


def test_a_console_explains_more_than_the_exit_code() -> None:
    found = diagnose(OOM, KnownRun(exit_code=1))
    assert (found.outcome, found.root_cause) == ("failed", "gpu_oom")
    assert found.evidence[0].text.startswith("torch.OutOfMemoryError: HIP out of memory")
    assert OOM[found.evidence[0].offset :].startswith(b"torch.OutOfMemoryError")
    assert found.problems[0].code == "gpu_oom"


@pytest.mark.parametrize(
    ("known", "outcome", "cause"),
    [
        (KnownRun(signal=9), "failed", "killed_without_reason"),
        (KnownRun(exit_code=137), "failed", "killed_without_reason"),
        (KnownRun(signal=1), "stopped", "terminal_hangup"),
        (KnownRun(signal=15), "stopped", "cancelled"),
        (KnownRun(exit_code=143, stop_requested=True), "stopped", "cancelled"),
        (KnownRun(exit_code=3), "failed", None),
        (KnownRun(exit_code=0), "unknown", None),
        (KnownRun(), "unknown", None),
    ],
)
def test_a_silent_end_is_read_from_the_exit(known: KnownRun, outcome: str, cause: str | None) -> None:
    found = diagnose(b"loading\n", known)
    assert (found.outcome, found.root_cause) == (outcome, cause)
    assert found.title or found.outcome == "unknown"


def test_an_unknown_exception_is_shown_as_it_is() -> None:
    found = diagnose(TRACE + b"frobnicator.Error_: no\nZeroDivisionError: division by zero\n", KnownRun(exit_code=1))
    assert (found.outcome, found.root_cause, found.title) == ("failed", None, "ZeroDivisionError: division by zero")


def test_a_wanted_stop_is_no_failure_though_ranks_complain() -> None:
    noise = (
        b"[rank1]:[E504 10:31:17.3 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: "
        b"WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600044 milliseconds\n"
    )
    assert diagnose(noise, KnownRun(exit_code=1)).root_cause == "collective_timeout"
    assert diagnose(noise, KnownRun(exit_code=1, stop_requested=True)).outcome == "stopped"


def test_what_the_recorder_saw_wins_over_the_console() -> None:
    found = diagnose(
        b" 10%|#         | 10/100 [01:00<10:00, 6.00s/it]\n" + OOM,
        KnownRun(exit_code=1, last_step=13, last_checkpoint_step=12),
    )
    assert (found.last_step, found.last_checkpoint_step) == (13, 12)


def test_two_windows_of_a_large_console_are_enough() -> None:
    head = b"[INFO|trainer.py:2527] 2026-05-04 09:00:10,118 >>   Total optimization steps = 900\n"
    filler = b"filler line without any meaning\n" * 2000
    console = head + filler + OOM
    for tail_size in (len(OOM), len(OOM) + 40, len(OOM) + len(filler) + 10, len(console)):
        offset = len(console) - tail_size
        found = diagnose_windows(
            console[: len(head)], console[offset:], tail_offset=offset, known=KnownRun(exit_code=1)
        )
        assert found.root_cause == "gpu_oom"
        assert console[found.evidence[0].offset :].startswith(b"torch.OutOfMemoryError"), tail_size


def test_the_literals_of_a_signature_stand_in_what_it_matches() -> None:
    """A match without one of them would be overlooked."""
    tried = 0
    for one in (*SIGNATURES, *REMARKS):
        for text in examples(one.pattern):
            if one.pattern.search(text):
                tried += 1
                assert any(need in text for need in one.needs), (one.code, one.needs, text)
    assert tried > 500


def test_an_error_is_the_cause_though_another_rank_drew_its_bar_once_more() -> None:
    bar = b" 10%%|#         | %d/100 [01:00<10:00, 6.00s/it]\n"
    failed = bar % 10 + OOM + bar % 11
    assert diagnose(failed, KnownRun(exit_code=1)).root_cause == "gpu_oom"
    assert diagnose(failed).root_cause is None  # nothing says that the job has ended
    long_ago = bar % 10 + OOM + bar % 50
    assert diagnose(long_ago, KnownRun(exit_code=1)).root_cause is None
