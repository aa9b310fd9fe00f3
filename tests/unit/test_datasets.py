"""Data files: what they are, what the trainer will make of them, and which rows are to blame."""

from __future__ import annotations

import pytest

from backend.domain.problem import Severity
from backend.parsing.datasets.records import DataReport
from backend.parsing.datasets.registry import inspect_registry, parse_entry
from backend.parsing.datasets.report import inspect_data
from backend.planning.linting.texts import TEXTS
from backend.services.inspect import inspect_files
from backend.services.inspect_data import data_problems
from tests.unit import lint_cases
from tests.unit.data_cases import DATA, REGISTRIES, DataCase
from tests.unit.inspect_cases import ALPACA, CHAT, FOLDERS, OPENAI, dumped, lines


def report_of(case: DataCase) -> DataReport:
    entry = parse_entry("a", case.entry) if case.entry is not None else None
    return inspect_data(case.data, case.name, entry)


@pytest.mark.parametrize("case", DATA, ids=lambda case: case.code)
def test_fault_in_data_is_found(case: DataCase) -> None:
    found = report_of(case).findings
    assert case.code in [finding.code for finding in found], [finding.code for finding in found]
    for problem in data_problems(found):
        assert problem.reason and problem.remedy


@pytest.mark.parametrize(("code", "registry"), REGISTRIES)
def test_fault_in_a_registry_is_found(code: str, registry: dict[str, object]) -> None:
    found = inspect_registry(registry).findings  # type: ignore[arg-type]
    assert code in [finding.code for finding in found]


def test_every_code_of_the_catalogue_is_produced_by_some_case() -> None:
    codes = {case.code for case in lint_cases.TRAIN} | {case.code for case in DATA} | {code for code, _ in REGISTRIES}
    codes |= {code for code, _ in (*lint_cases.DEEPSPEED, *lint_cases.SCRIPTS)} | {
        code for code, *_ in lint_cases.WHOLE
    }
    for folder in FOLDERS:
        inspection = inspect_files({name: text.encode() for name, text in folder.inputs.items()}, folder.name)
        codes |= {problem.code for one in inspection.files for problem in one.problems}
    elsewhere = {
        "port_busy",
        "trainer_refuses",
        "trainer_warns",
        "dry_run_unavailable",
        "dataset_wrong_stage",
        "hub_not_cached",
    }
    assert set(TEXTS) - codes - elsewhere == {"not_a_registry"}


def test_saved_arrow_folder_is_no_registry() -> None:
    content = dumped({"citation": "", "features": {}, "splits": {}})
    facts = inspect_files({"dataset_info.json": content.encode()}, "x").facts
    assert (facts["detected_format"], facts["errors"]) == ("arrow_dataset_info", ["not_a_registry"])


def test_sound_data_gives_nothing() -> None:
    for data, name, entry in (
        (dumped(ALPACA), "a.json", None),
        (lines(ALPACA), "a.jsonl", None),
        (dumped(CHAT), "a.json", {"formatting": "sharegpt"}),
        ("instruction,input,output\nName it.,,A boat.\nWhere?,here,There.\n", "a.csv", None),
    ):
        report = report_of(DataCase("", data.encode(), name, entry))
        assert [f.code for f in report.findings if f.severity is not Severity.NOTE] == []


def test_needed_entry_names_columns_and_tags() -> None:
    report = inspect_data(dumped(OPENAI).encode(), "a.json")
    assert report.registry_entry == {
        "formatting": "sharegpt",
        "columns": {"messages": "messages"},
        "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"},
    }


def test_needed_entry_makes_the_data_sound() -> None:
    data = dumped(OPENAI).encode()
    entry = parse_entry("a", {"file_name": "a.json", **inspect_data(data, "a.json").registry_entry})
    assert inspect_data(data, "a.json", entry).findings == ()


def test_entry_without_columns_keeps_defaults_and_with_columns_forgets_them() -> None:
    assert parse_entry("a", {"file_name": "x"}).columns["query"] == "input"
    assert parse_entry("a", {"file_name": "x", "columns": {"prompt": "q"}}).columns["query"] is None


def test_string_with_commas_and_brackets_is_no_trailing_comma() -> None:
    rows = [{"instruction": "a, ]", "input": ",}", "output": ', ]\\" ,}'}]
    assert inspect_data(dumped(rows).encode(), "a.json").findings == ()
    broken = dumped(rows).replace("\n }\n]", ",\n }\n]").encode()
    (finding,) = inspect_data(broken, "a.json").findings
    assert (finding.code, finding.rows) == ("trailing_comma", (5,))


def test_binary_formats_are_named_and_not_read() -> None:
    report = inspect_data(b"PAR1\x00\x01", "a.parquet")
    assert (report.rows, report.facts) == (None, {"binary": "parquet"})


def test_twenty_thousand_rows_take_seconds_at_most() -> None:
    import time

    rows = [{"instruction": f"Question {n}?", "input": "", "output": f"Answer {n}."} for n in range(20_000)]
    started = time.process_time()
    assert inspect_data(lines(rows).encode(), "a.jsonl").rows == 20_000  # type: ignore[arg-type]
    assert time.process_time() - started < 3
