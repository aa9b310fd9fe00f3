"""`inspect` says what each file of a folder is, what is wrong with it, and gives one verdict."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.errors import NotFound
from backend.services.inspect import inspect_files, inspect_path
from tests.unit.inspect_cases import ALPACA, CHAT, FOLDERS, Folder, dumped


def holds(want: object, got: object, key: str) -> bool:
    if key == "warnings" and isinstance(want, list) and isinstance(got, list):
        return set(want) <= set(got)
    if isinstance(want, Mapping):
        return isinstance(got, Mapping) and all(holds(value, got.get(name), "") for name, value in want.items())
    return want == got


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_folder_is_judged(folder: Folder) -> None:
    found = inspect_files({name: text.encode() for name, text in folder.inputs.items()}, folder.name).facts
    shown = {**found, "warnings": [*found.get("warnings", []), *found.get("notes", [])]}  # type: ignore[misc]
    for key, want in folder.expect.items():
        assert holds(want, shown.get(key), key), (key, want, shown.get(key))


def test_number_of_folders() -> None:
    assert len(FOLDERS) >= 50


def test_byte_order_mark_breaks_an_array_and_not_lines() -> None:
    mark = b"\xef\xbb\xbf"
    array = inspect_files({"a.json": mark + dumped(ALPACA).encode()}, "x").facts
    lines = inspect_files({"a.jsonl": mark + b"".join(json.dumps(r).encode() + b"\n" for r in ALPACA)}, "x").facts
    assert (array["verdict"], array["errors"], array["rows"]) == ("error", ["utf8_bom"], 3)
    assert (lines["verdict"], lines["errors"], lines["warnings"]) == ("warning", [], ["utf8_bom"])


def test_row_numbers_count_from_one() -> None:
    rows = [*ALPACA, {"instruction": "x", "input": "", "output": ""}, ALPACA[0]]
    facts = inspect_files({"a.json": dumped(rows).encode()}, "x").facts["facts"]
    assert isinstance(facts, dict)
    assert facts["empty_output_rows"] == [4]
    assert facts["duplicate_pairs"] == [[1, 5]]


def test_a_folder_on_disk_with_subfolders(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "c.json").write_text(dumped(CHAT))
    (tmp_path / ".hidden").write_text("x")
    inspection = inspect_path(tmp_path)
    assert [one.name for one in inspection.files] == ["a/c.json"]
    assert json.loads(inspection.to_json())["input"] == str(tmp_path)
    with pytest.raises(NotFound):
        inspect_path(tmp_path / "nothing")


NAMES = (
    "a.yaml",
    "a.json",
    "a.jsonl",
    "a.csv",
    "a.sh",
    "dataset_info.json",
    "a.txt",
    "a.parquet",
    "console.log",
    "env.txt",
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(NAMES), st.binary(max_size=200))
def test_any_bytes_give_facts(name: str, data: bytes) -> None:
    inspect_files({name: data}, "x").to_json()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab<>{}$", max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "instruction",
                    "input",
                    "output",
                    "conversations",
                    "messages",
                    "from",
                    "value",
                    "role",
                    "content",
                    "chosen",
                    "rejected",
                    "images",
                    "file_name",
                    "columns",
                    "tags",
                    "formatting",
                    "zero_optimization",
                    "stage",
                    "optimizer",
                    "type",
                    "text",
                    "label",
                    "kto_tag",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=250, deadline=None)
@given(JSON, JSON)
def test_any_json_gives_facts(first: object, second: object) -> None:
    files = {
        "dataset_info.json": json.dumps({"a": first, "b": {"file_name": "a.json"}}),
        "a.json": json.dumps([second, first]),
    }
    inspect_files({name: text.encode() for name, text in files.items()}, "x").to_json()
    inspect_files({"ds_config.json": json.dumps(first).encode(), "b.json": json.dumps(second).encode()}, "x").to_json()
