"""Rows of one format -> findings about roles, answers, labels and media, as the trainer's converters need them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from backend.domain.problem import ArgValue, Severity
from backend.parsing.datasets.formats import (
    CONTENT_TAGS,
    MEDIA_NAMES,
    ROLE_TAGS,
    kto_column,
    message_column,
    roles_of,
    turns_of,
)
from backend.parsing.datasets.records import MAX_SHOWN, DataFinding, Row, finding_in
from backend.parsing.datasets.rows import is_answer, is_blank, strings_in

_MEDIA = {"images": "<image>", "videos": "<video>", "audios": "<audio>"}


_USUAL_ROLES = frozenset(
    [
        "human",
        "gpt",
        "user",
        "assistant",
        "system",
        "observation",
        "function_call",
        "function",
        "tool",
        "tool_call",
        "ipython",
        "bot",
        "model",
    ]
)


def check_format(rows: Sequence[Row], kind: str, facts: dict[str, ArgValue]) -> Iterator[DataFinding]:
    turns = message_column(rows[0]) if rows else ""
    if turns:
        role = next((name for name in ROLE_TAGS if any(name in turn for turn in turns_of(rows[0], turns))), "from")
        facts["roles_found"] = list(roles_of(rows, turns, role))
        yield from _unknown_roles(rows, turns, role, facts)
        yield from check_empty_turns(rows, turns, facts)
    if kind == "preference":
        yield from check_answers(rows, bool(turns), facts)
    if kind == "kto":
        yield from check_labels(rows, kto_column(rows[0]), facts)
    yield from check_media(rows, turns, facts)
    if kind == "alpaca":
        yield from _old_ranking(rows, facts)


def _unknown_roles(
    rows: Sequence[Row], column: str, role_tag: str, facts: dict[str, ArgValue]
) -> Iterator[DataFinding]:
    bad = [
        n
        for n, row in enumerate(rows, 1)
        if any(str(turn.get(role_tag)) not in _USUAL_ROLES for turn in turns_of(row, column))
    ]
    if (bad and len(bad) < len(rows)) or (bad and len(rows) == 1):
        facts["bad_rows"] = list(bad[:MAX_SHOWN])
        odd = sorted(set(roles_of(rows, column, role_tag)) - _USUAL_ROLES)
        yield finding_in(
            "role_tag_mismatch", Severity.ERROR, bad, field=role_tag, found=", ".join(odd[:5]), expected="human | gpt"
        )


def check_empty_turns(rows: Sequence[Row], column: str, facts: dict[str, ArgValue]) -> Iterator[DataFinding]:
    empty = [
        n
        for n, row in enumerate(rows, 1)
        if any(
            is_answer(turn) and is_blank(turn.get("value", turn.get("content"))) and not turn.get("tool_calls")
            for turn in turns_of(row, column)
        )
    ]
    if empty:
        facts["empty_output_rows"] = list(empty[:MAX_SHOWN])
        yield finding_in("empty_output", Severity.WARNING, empty, field=column)


def check_answers(rows: Sequence[Row], has_turns: bool, facts: dict[str, ArgValue]) -> Iterator[DataFinding]:
    """With turns an answer is one turn object; without, it is text."""
    nested, plain, equal = [], [], []
    for number, row in enumerate(rows, 1):
        answers = [row.get("chosen"), row.get("rejected")]
        if any(_is_nested(answer) for answer in answers):
            nested.append(number)
        elif has_turns and any(isinstance(answer, str) for answer in answers):
            plain.append(number)
        if answers[0] == answers[1]:
            equal.append(number)
    if nested:
        facts["nested_rows"] = list(nested[:MAX_SHOWN])
        yield finding_in(
            "nested_answer", Severity.ERROR, nested, field="chosen", expected='{"from": "gpt", "value": "..."}'
        )
    if plain:
        facts["string_answer_rows"] = list(plain[:MAX_SHOWN])
        yield finding_in(
            "answer_not_an_object",
            Severity.ERROR,
            plain,
            field="chosen",
            found="text",
            expected='{"from": "gpt", "value": "..."}',
        )
    if equal:
        facts["equal_answer_rows"] = list(equal[:MAX_SHOWN])
        yield finding_in("answers_equal", Severity.WARNING, equal, field="rejected")


def _is_nested(answer: ArgValue) -> bool:
    if isinstance(answer, list):
        return bool(answer)
    if not isinstance(answer, dict):
        return False
    if set(answer) & set(ROLE_TAGS) and set(answer) & set(CONTENT_TAGS):
        content = answer.get("value", answer.get("content"))
        return isinstance(content, (dict, list))
    return any(isinstance(value, (dict, list)) for value in answer.values())


def check_labels(rows: Sequence[Row], column: str, facts: dict[str, ArgValue]) -> Iterator[DataFinding]:
    wrong = [n for n, row in enumerate(rows, 1) if not isinstance(row.get(column), bool)]
    if wrong:
        facts["bad_label_rows"] = list(wrong[:MAX_SHOWN])
        yield finding_in(
            "label_not_boolean",
            Severity.ERROR,
            wrong,
            field=column,
            found=str(rows[wrong[0] - 1].get(column)),
            expected="true | false",
        )
    labels = Counter(row.get(column) for row in rows if isinstance(row.get(column), bool))
    facts["labels_true"], facts["labels_false"] = labels.get(True, 0), labels.get(False, 0)
    if len(labels) == 1 and len(rows) > 1:
        yield DataFinding(
            code="one_label_only",
            severity=Severity.WARNING,
            field=column,
            found=str(next(iter(labels))).lower(),
            expected="true, false",
        )


def check_media(rows: Sequence[Row], turns: str, facts: dict[str, ArgValue]) -> Iterator[DataFinding]:
    """One tag in the text for each picture, video or sound of the row."""
    for column, kind in MEDIA_NAMES.items():
        tag = _MEDIA[kind]
        if not any(column in row for row in rows):
            continue
        bad: list[int] = []
        for number, row in enumerate(rows, 1):
            value = row.get(column)
            items = len(value) if isinstance(value, list) else 0 if value in (None, "") else 1
            text = [s for name, v in row.items() if name not in MEDIA_NAMES for s in strings_in(v)]
            if sum(s.count(tag) for s in text) != items:
                bad.append(number)
        if bad:
            facts[f"{kind[:-1]}_mismatch_rows"] = list(bad[:MAX_SHOWN])
            facts.setdefault("bad_rows", list(bad[:MAX_SHOWN]))
            yield finding_in(
                "image_count_mismatch",
                Severity.ERROR,
                bad,
                field=column,
                found=tag,
                expected=f"one {tag} for each of {column}",
            )


def _old_ranking(rows: Sequence[Row], facts: dict[str, ArgValue]) -> Iterator[DataFinding]:
    """`output: [better, worse]`: the ranking format of early versions."""
    old = [n for n, row in enumerate(rows, 1) if isinstance(v := row.get("output"), list) and len(v) == 2]
    if old and len(old) == len(rows):
        facts["nested_rows"] = list(old[:MAX_SHOWN])
        yield finding_in(
            "nested_answer", Severity.ERROR, old, field="output", found="[better, worse]", expected="chosen, rejected"
        )
