"""Rows -> which of the data formats they are, and the registry entry that they need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from backend.domain.problem import ArgValue
from backend.parsing.datasets.records import Row
from backend.parsing.datasets.registry import COLUMN_NAMES

ROLE_TAGS = ("from", "role")


CONTENT_TAGS = ("value", "content")


MESSAGE_COLUMNS = ("conversations", "messages", "conversation", "dialog", "dialogue", "turns")


PROMPTS = ("prompt", "question", "query", "input_text", "source", "problem", "instruct")


RESPONSES = ("completion", "response", "answer", "target", "output_text", "solution", "reply")


MEDIA_NAMES = {
    "image": "images",
    "video": "videos",
    "audio": "audios",
    "images": "images",
    "videos": "videos",
    "audios": "audios",
}


def message_column(row: Row) -> str:
    """The column that holds a list of turns, or ""."""
    for name in MESSAGE_COLUMNS:
        if _is_turns(row.get(name)):
            return name
    return next(
        (name for name, value in row.items() if name not in ("chosen", "rejected", "history") and _is_turns(value)), ""
    )


def _is_turns(value: ArgValue) -> bool:
    if not isinstance(value, list) or not value or not all(isinstance(turn, dict) for turn in value):
        return False
    first = value[0]
    return isinstance(first, dict) and bool(set(first) & set(ROLE_TAGS)) and bool(set(first) & set(CONTENT_TAGS))


def detect_format(rows: Sequence[Row]) -> str:
    """One of the format words, judged by the first rows."""
    votes = Counter(_row_format(row) for row in rows[:50])
    return votes.most_common(1)[0][0] if votes else "unknown_dataset"


def _row_format(row: Row) -> str:
    names = set(row)
    turns = message_column(row)
    if {"chosen", "rejected"} <= names:
        return "preference"
    if names & set(MEDIA_NAMES) and (turns or "instruction" in names or "prompt" in names):
        return "multimodal"
    if kto_column(row) and (turns or names & {"instruction", "prompt", "completion", "output"}):
        return "kto"
    if turns:
        return "sharegpt"
    if "instruction" in names and ("output" in names or "input" in names):
        return "alpaca"
    if {"instruction", "response"} <= names or prompt_pair(row):
        return "prompt_completion"
    if "text" in names and isinstance(row.get("text"), str) and not names & {"label", "labels"}:
        return "pretrain_text"
    return "unknown_dataset"


def kto_column(row: Row) -> str:
    for name in ("kto_tag", "label", "desirable", "is_desirable"):
        value = row.get(name)
        if isinstance(value, bool) or (name == "kto_tag" and value is not None):
            return name
    return ""


def prompt_pair(row: Row) -> tuple[str, str] | None:
    names = {name.lower(): name for name in row}
    prompt = next((names[word] for word in (*PROMPTS, "instruction") if word in names), "")
    response = next((names[word] for word in (*RESPONSES, "output") if word in names), "")
    return (prompt, response) if prompt and response else None


def needed_entry(kind: str, rows: Sequence[Row]) -> dict[str, ArgValue]:
    """What dataset_info.json must say beside file_name for these rows; {} when LLaMA-Factory's defaults fit."""
    if not rows:
        return {}
    row = rows[0]
    entry: dict[str, ArgValue] = {}
    columns: dict[str, ArgValue] = {}
    turns = message_column(row)
    if kind in ("sharegpt", "kto", "multimodal", "preference") and turns:
        entry["formatting"] = "sharegpt"
        columns["messages"] = turns
        entry.update(_needed_tags(rows, turns))
    elif kind == "prompt_completion" and (pair := prompt_pair(row)):
        columns.update(prompt=pair[0], response=pair[1])
        context = next((name for name in ("input", "context") if name in row and name not in pair), "")
        columns.update({"query": context} if context else {})
    elif kind == "pretrain_text":
        columns["prompt"] = "text"
    elif kind in ("preference", "kto", "multimodal"):
        columns.update(_plain_columns(row))
    if kind == "preference":
        entry["ranking"] = True
        columns.update(chosen="chosen", rejected="rejected")
    if kind == "kto":
        columns["kto_tag"] = kto_column(row)
    if kind == "multimodal" or (kind == "preference" and set(row) & set(MEDIA_NAMES)):
        columns.update({MEDIA_NAMES[name]: name for name in row if name in MEDIA_NAMES})
    if columns and kind != "alpaca":
        for name in ("system", "tools"):
            if name in row:
                columns[name] = name
        ordered = {key: columns[key] for key in COLUMN_NAMES if key in columns}
        tags = entry.pop("tags", None)
        entry["columns"] = ordered
        if tags:
            entry["tags"] = tags
    return entry


def _plain_columns(row: Row) -> dict[str, ArgValue]:
    found: dict[str, ArgValue] = {}
    prompt = next((name for name in ("instruction", *PROMPTS) if name in row), "")
    if prompt:
        found["prompt"] = prompt
    if "input" in row and prompt == "instruction":
        found["query"] = "input"
    response = next((name for name in ("output", *RESPONSES) if name in row), "")
    if response and "chosen" not in row:
        found["response"] = response
    return found


_OTHER_ROLES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("user_tag", "human", ("user",)),
    ("assistant_tag", "gpt", ("assistant", "bot", "model")),
    ("observation_tag", "observation", ("tool", "ipython")),
    ("function_tag", "function_call", ("function", "tool_call")),
)
"""Tag, its default, and the roles that other tools write for it."""


def _needed_tags(rows: Sequence[Row], turns: str) -> dict[str, ArgValue]:
    """Tags that differ from LLaMA-Factory's defaults (from/value, human/gpt)."""
    first = rows[0].get(turns)
    turn = first[0] if isinstance(first, list) and first and isinstance(first[0], dict) else {}
    role = next((name for name in ROLE_TAGS if name in turn), "from")
    content = next((name for name in CONTENT_TAGS if name in turn), "value")
    roles = roles_of(rows, turns, role)
    tags: dict[str, ArgValue] = {}
    if role != "from":
        tags["role_tag"] = role
    if content != "value":
        tags["content_tag"] = content
    for key, default, others in _OTHER_ROLES:
        other = next((name for name in others if name in roles), "")
        if default not in roles and other:
            tags[key] = other
    return {"tags": tags} if tags else {}


def roles_of(rows: Sequence[Row], column: str, role_tag: str) -> tuple[str, ...]:
    """Roles that occur, sorted."""
    return tuple(
        sorted(
            {
                str(turn.get(role_tag))
                for row in rows
                for turn in turns_of(row, column)
                if turn.get(role_tag) is not None
            }
        )
    )


def turns_of(row: Row, column: str | None) -> Iterator[Row]:
    value = row.get(column) if column else None
    if isinstance(value, list):
        yield from (turn for turn in value if isinstance(turn, dict))


def columns_of(rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(sorted({name for row in rows for name in row}))
