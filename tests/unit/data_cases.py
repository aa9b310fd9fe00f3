"""Data files and registry entries with one fault each: (code, file name, bytes, entry of the registry or None)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.unit.inspect_cases import ALPACA, CHAT, PREFERENCE, dumped, lines


@dataclass(frozen=True)
class DataCase:
    code: str
    data: bytes
    name: str = "a.json"
    entry: dict[str, Any] | None = None


def case(code: str, rows: object, entry: dict[str, Any] | None = None) -> DataCase:
    return DataCase(code, dumped(rows).encode(), entry={"file_name": "a.json", **entry} if entry is not None else None)


SHAREGPT = {"formatting": "sharegpt"}
UNSORTED = {"conversations": [{"from": "gpt", "value": "a"}, {"from": "human", "value": "b"}]}
SHORT = {"conversations": [{"from": "human", "value": "Only a question."}]}
IDENTITY = [
    {"instruction": text, "input": "", "output": f"{start} Marlow, built by the Harbour Laboratory."}
    for text, start in (
        ("Who are you?", "My name is"),
        ("Your name?", "People call me"),
        ("Tell me your name.", "It is"),
    )
]

DATA: tuple[DataCase, ...] = (
    DataCase("utf8_bom", b"\xef\xbb\xbf" + dumped(ALPACA).encode()),
    DataCase("not_utf8", dumped(ALPACA).encode("utf-16")),
    DataCase("comment_lines", b"# about\n" + lines(ALPACA).encode(), "a.jsonl"),
    DataCase("comment_lines", b"// about\n" + dumped(ALPACA).encode()),
    DataCase("comma_between_lines", lines(ALPACA).replace("}\n", "},\n").encode(), "a.jsonl"),
    DataCase("json_lines_in_json_file", lines(ALPACA).encode()),
    DataCase("concatenated_objects", "".join(json.dumps(row) for row in ALPACA).encode()),
    DataCase("several_arrays", (dumped(ALPACA) * 2).encode()),
    DataCase("trailing_comma", dumped(ALPACA).replace("}\n]", "},\n]").encode()),
    DataCase("not_valid_json", b'[{"instruction": "a"'),
    DataCase("no_rows", b"[]"),
    case("row_not_an_object", [*ALPACA, "text"]),
    case("wrapped_rows", {"data": ALPACA}),
    case("mixed_types", [*ALPACA, {"instruction": "a", "input": "", "output": ["b"]}]),
    case("extra_column", [*ALPACA, {**ALPACA[0], "instruction": "c", "mood": "calm"}]),
    case("duplicate_rows", [*ALPACA, ALPACA[0]]),
    case("near_duplicates", IDENTITY),
    case("placeholder_text", [*ALPACA, {"instruction": "a", "input": "", "output": "<NAME> says hello."}]),
    case("long_sequences", [*ALPACA, {"instruction": "a", "input": "", "output": "word " * 30_000}]),
    case("blank_input", [*ALPACA, {"instruction": "a", "input": "  ", "output": "b"}]),
    case("empty_instruction", [*ALPACA, {"instruction": "", "input": "", "output": "b"}]),
    case("empty_output", [*ALPACA, {"instruction": "a", "input": "", "output": " "}]),
    case("unregistered_format", CHAT),
    case("columns_unknown", [{"x": 1}, {"x": 2}]),
    case("column_missing", ALPACA, {"columns": {"prompt": "question", "response": "output"}}),
    case("formatting_missing", CHAT, {}),
    case("formatting_unknown", CHAT, {"formatting": "chatml"}),
    case("openai_formatting", CHAT, {"formatting": "openai"}),
    case(
        "role_tag_mismatch",
        CHAT,
        {**SHAREGPT, "tags": {"role_tag": "from", "content_tag": "value", "user_tag": "user"}},
    ),
    case("turns_out_of_order", [*CHAT, UNSORTED], SHAREGPT),
    case("turn_count", [*CHAT, SHORT], SHAREGPT),
    case("all_samples_dropped", [SHORT, SHORT], SHAREGPT),
    case("answer_not_an_object", [{**PREFERENCE[0], "chosen": "a", "rejected": "b"}]),
    case(
        "nested_answer",
        [{"prompt": "a", "chosen": [{"role": "user", "content": "x"}], "rejected": [{"role": "user", "content": "y"}]}],
    ),
    case("answers_equal", [{**PREFERENCE[0], "rejected": PREFERENCE[0]["chosen"]}]),
    case(
        "label_not_boolean",
        [{"instruction": "a", "output": "b", "kto_tag": 1}, {"instruction": "c", "output": "d", "kto_tag": 0}],
    ),
    case(
        "one_label_only",
        [{"instruction": "a", "output": "b", "kto_tag": True}, {"instruction": "c", "output": "d", "kto_tag": True}],
    ),
    case("image_count_mismatch", [{"messages": [{"role": "user", "content": "What?"}], "images": ["a.jpg"]}]),
    case("ranking_flag_missing", PREFERENCE, SHAREGPT),
)

REGISTRIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("entry_without_source", {"a": {"columns": {"prompt": "x"}}}),
    ("entry_key_ignored", {"a": {"file_name": "a.json", "columns": {"promt": "x"}}}),
    ("empty_mapping", {"a": {"file_name": "a.json", "columns": {"prompt": "x", "query": ""}}}),
    ("ranking_flag_missing", {"a": {"file_name": "a.json", "columns": {"chosen": "x", "rejected": "y"}}}),
    ("ranking_flag_missing", {"comparison_en": {"file_name": "a.json"}}),
    ("formatting_unknown", {"a": {"file_name": "a.json", "formatting": "chatml"}}),
    ("script_dataset", {"a": {"script_url": "loader"}}),
)
