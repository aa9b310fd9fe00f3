"""Rows of any format -> findings: mixed types, stray columns, duplicates, blanks, placeholders, length."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from backend.domain.problem import ArgValue, Severity
from backend.parsing.datasets.formats import (
    MEDIA_NAMES,
    MESSAGE_COLUMNS,
    PROMPTS,
    RESPONSES,
    columns_of,
    message_column,
    prompt_pair,
    turns_of,
)
from backend.parsing.datasets.records import MAX_SHOWN, DataFinding, Row, finding_in

_ALPACA_COLUMNS = ("instruction", "input", "output", "history", "system", "tools", "images", "videos", "audios")


_KNOWN_COLUMNS = frozenset(
    (
        *_ALPACA_COLUMNS,
        *MESSAGE_COLUMNS,
        "chosen",
        "rejected",
        "kto_tag",
        "label",
        "text",
        "id",
        "idx",
        "index",
        "source",
        "lang",
    )
)


_LONG_CHARACTERS = 100_000


_PLACEHOLDER = re.compile(
    r"\{\{\s*\w+\s*\}\}|<(?:NAME|AUTHOR|YOUR[_ ]\w+|INSERT[^>]*)>|\[(?:NAME|INSERT[^\]]*|YOUR[^\]]*)\]|\bTODO\b|\bLorem ipsum\b"
)


def check_rows(rows: Sequence[Row], kind: str, facts: dict[str, ArgValue]) -> Iterator[DataFinding]:
    yield from _mixed_types(rows, facts)
    yield from _extra_columns(rows, kind, facts)
    yield from _duplicates(rows, facts)
    yield from _placeholder_text(rows, facts)
    yield from _long(rows, facts)
    if kind in ("alpaca", "prompt_completion", "kto", "multimodal"):
        yield from _blanks(rows, facts)
    if kind == "pretrain_text":
        empty = [number for number, row in enumerate(rows, 1) if not str(row.get("text") or "").strip()]
        if empty and len(empty) < len(rows):
            facts["empty_text_rows"] = list(empty[:MAX_SHOWN])
            yield finding_in("empty_output", Severity.WARNING, empty, field="text")


def _type_name(value: ArgValue) -> str:
    """Type as Arrow sees it: null fits everything, whole and broken numbers fit each other."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        return "list"
    return "object" if isinstance(value, dict) else "null"


def _mixed_types(rows: Sequence[Row], facts: dict[str, ArgValue]) -> Iterator[DataFinding]:
    """A column (or a turn's value) with values of different types: the loader stops with an Arrow error."""
    for column in columns_of(rows):
        kinds = Counter(_type_name(row.get(column)) for row in rows)
        kinds.pop("null", None)
        if len(kinds) > 1:
            usual = kinds.most_common(1)[0][0]
            odd = [n for n, row in enumerate(rows, 1) if _type_name(row.get(column)) not in (usual, "null")]
            facts.setdefault("mixed_column", column)
            facts.setdefault("mixed_rows", list(odd[:MAX_SHOWN]))
            yield finding_in(
                "mixed_types", Severity.ERROR, odd, field=column, found=", ".join(sorted(kinds)), expected=usual
            )
            continue
        odd = _mixed_inside(rows, column)
        if odd:
            facts.setdefault("mixed_column", column)
            facts.setdefault("mixed_rows", list(odd[:MAX_SHOWN]))
            yield finding_in(
                "mixed_types",
                Severity.ERROR,
                odd,
                field=column,
                found="text and other values inside the list",
                expected="text",
            )


def _mixed_inside(rows: Sequence[Row], column: str) -> list[int]:
    kinds: Counter[tuple[str, str]] = Counter()
    by_row: list[tuple[int, set[tuple[str, str]]]] = []
    for number, row in enumerate(rows, 1):
        value = row.get(column)
        items = value if isinstance(value, list) else [value] if isinstance(value, dict) else []
        seen: set[tuple[str, str]] = set()
        for item in items:
            pairs = item.items() if isinstance(item, dict) else [("", item)]
            seen |= {(name, _type_name(inner)) for name, inner in pairs if inner is not None}
        kinds.update(seen)
        by_row.append((number, seen))
    names = Counter(name for name, _ in kinds)
    mixed = {name for name, count in names.items() if count > 1}
    if not mixed:
        return []
    usual = {name: max((k for k in kinds if k[0] == name), key=lambda k: kinds[k]) for name in mixed}
    return [number for number, seen in by_row if any(k[0] in mixed and k != usual[k[0]] for k in seen)]


def _extra_columns(rows: Sequence[Row], kind: str, facts: dict[str, ArgValue]) -> Iterator[DataFinding]:
    """Columns that only some rows have and that no format uses."""
    if kind == "unknown_dataset":
        return
    used = {*_KNOWN_COLUMNS, *PROMPTS, *RESPONSES, *MEDIA_NAMES}
    for column in columns_of(rows):
        having = [number for number, row in enumerate(rows, 1) if column in row]
        if column not in used and (len(having) < len(rows) or kind == "alpaca"):
            facts.setdefault("extra_column", column)
            facts.setdefault("extra_column_rows", list(having[:MAX_SHOWN]))
            yield finding_in("extra_column", Severity.NOTE, having, field=column, found=column)


def _key(row: Row) -> str:
    return json.dumps(
        {name: value for name, value in row.items() if name not in ("id", "idx", "index")},
        sort_keys=True,
        ensure_ascii=False,
    )


def _duplicates(rows: Sequence[Row], facts: dict[str, ArgValue]) -> Iterator[DataFinding]:
    first: dict[str, int] = {}
    pairs: list[list[int]] = []
    for number, row in enumerate(rows, 1):
        key = _key(row)
        if key in first:
            pairs.append([first[key], number])
        else:
            first[key] = number
    if pairs:
        facts["duplicate_pairs"] = [[a, b] for a, b in pairs[:MAX_SHOWN]]
        yield finding_in(
            "duplicate_rows", Severity.WARNING, [b for _, b in pairs], found=f"{pairs[0][0]} = {pairs[0][1]}"
        )
    elif _near_duplicates(rows):
        yield DataFinding(code="near_duplicates", severity=Severity.NOTE, count=len(rows))


def _answers(row: Row) -> str:
    turns = message_column(row)
    if turns:
        return " ".join(
            str(turn.get("value") or turn.get("content") or "") for turn in turns_of(row, turns) if is_answer(turn)
        )
    return str(row.get("output") or row.get("completion") or row.get("response") or "")


def is_answer(turn: Row) -> bool:
    return str(turn.get("from") or turn.get("role")) in ("gpt", "assistant", "bot", "model")


def _near_duplicates(rows: Sequence[Row]) -> bool:
    """Nearly every answer shares its rarer words with the others, as in identity data."""
    texts = [_answers(row) for row in rows[:200]]
    bags = [set(re.findall(r"[^\W_]{4,}", text)) for text in texts if text.strip()]
    if len(bags) < 3:
        return False
    counts = Counter(word for bag in bags for word in bag)
    shared = {word for word, count in counts.items() if count >= 0.9 * len(bags)}
    return len(shared) >= 2 and sum(len(shared) >= 0.15 * max(1, len(bag)) for bag in bags) >= 0.9 * len(bags)


def strings_in(value: ArgValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings_in(item)


def _placeholder_text(rows: Sequence[Row], facts: dict[str, ArgValue]) -> Iterator[DataFinding]:
    hits: list[int] = []
    names: dict[str, None] = {}
    for number, row in enumerate(rows, 1):
        found = [m[0] for text in strings_in(dict(row)) for m in _PLACEHOLDER.finditer(text)]
        if found:
            hits.append(number)
            names.update(dict.fromkeys(found))
    if hits:
        facts["placeholder_rows"] = list(hits[:MAX_SHOWN])
        facts["placeholders"] = list[ArgValue](sorted(names)[:MAX_SHOWN])
        yield finding_in("placeholder_text", Severity.WARNING, hits, found=", ".join(list(names)[:5]))


def _long(rows: Sequence[Row], facts: dict[str, ArgValue]) -> Iterator[DataFinding]:
    lengths = [sum(map(len, strings_in(dict(row)))) for row in rows]
    over = [number for number, length in enumerate(lengths, 1) if length > _LONG_CHARACTERS]
    if over:
        facts["longest_characters"] = max(lengths)
        yield finding_in(
            "long_sequences", Severity.WARNING, over, found=f"{max(lengths)} characters", expected="cutoff_len"
        )


def _blanks(rows: Sequence[Row], facts: dict[str, ArgValue]) -> Iterator[DataFinding]:
    """Prompts, inputs and answers that are empty or blanks only."""
    pair = prompt_pair(rows[0]) if rows else None
    prompt = "instruction" if rows and "instruction" in rows[0] else pair[0] if pair else "instruction"
    answer = "output" if rows and "output" in rows[0] else pair[1] if pair else "output"
    has_answer = any(answer in row for row in rows)
    blank = [n for n, row in enumerate(rows, 1) if isinstance(v := row.get("input"), str) and v and not v.strip()]
    no_prompt = [
        n for n, row in enumerate(rows, 1) if prompt in row and is_blank(row.get(prompt)) and is_blank(row.get("input"))
    ]
    no_answer = [n for n, row in enumerate(rows, 1) if has_answer and is_blank(row.get(answer))]
    for code, key, numbers, column in (
        ("blank_input", "blank_input_rows", blank, "input"),
        ("empty_instruction", "empty_instruction_rows", no_prompt, prompt),
        ("empty_output", "empty_output_rows", no_answer, answer),
    ):
        if numbers:
            facts[key] = list(numbers[:MAX_SHOWN])
            yield finding_in(code, Severity.WARNING, numbers, field=column)


def is_blank(value: ArgValue) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())
