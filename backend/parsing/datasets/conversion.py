"""Rows and their registry entry -> findings: what LLaMA-Factory's converter will refuse, drop or change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from backend.domain.problem import ArgValue, Severity
from backend.parsing.datasets.answers import check_answers, check_empty_turns, check_labels, check_media
from backend.parsing.datasets.formats import columns_of, message_column, needed_entry, roles_of, turns_of
from backend.parsing.datasets.records import MAX_SHOWN, DataFinding, RegistryEntry, Row, finding_in


def check_conversion(
    rows: Sequence[Row], kind: str, entry: RegistryEntry, facts: dict[str, ArgValue]
) -> Iterator[DataFinding]:
    if entry.formatting not in ("alpaca", "sharegpt", "openai"):
        yield DataFinding(
            code="formatting_unknown",
            severity=Severity.ERROR,
            field="formatting",
            found=entry.formatting,
            expected="alpaca | sharegpt | openai",
        )
        return
    missing = _missing_columns(rows, entry)
    if missing:
        facts["missing_columns"] = list(missing)
        turned = (
            entry.formatting == "alpaca"
            and kind in ("sharegpt", "multimodal", "kto", "preference")
            and bool(message_column(rows[0]))
        )
        code = "formatting_missing" if turned else "column_missing"
        facts["registry_entry"] = needed_entry(kind, rows)
        yield DataFinding(
            code=code,
            severity=Severity.ERROR,
            field="columns",
            found=", ".join(missing),
            expected=", ".join(columns_of(rows))[:200],
        )
        return
    if entry.formatting == "openai":
        yield DataFinding(
            code="openai_formatting", severity=Severity.WARNING, field="formatting", found="openai", expected="sharegpt"
        )
    if entry.formatting in ("sharegpt", "openai"):
        yield from _converted_turns(rows, entry, facts)
    if entry.ranking:
        yield from check_answers(rows, entry.formatting != "alpaca", facts)
    elif kind == "preference":
        yield DataFinding(
            code="ranking_flag_missing", severity=Severity.WARNING, field="ranking", found="false", expected="true"
        )
    if entry.columns.get("kto_tag"):
        yield from check_labels(rows, entry.columns["kto_tag"] or "", facts)
    yield from check_media(rows, entry.columns.get("messages") or "", facts)


def _missing_columns(rows: Sequence[Row], entry: RegistryEntry) -> tuple[str, ...]:
    """Columns that the converter will read and no row has: a KeyError for the first row."""
    present = set(columns_of(rows))
    if entry.formatting == "alpaca":
        read = ["prompt", "query", "response", "history", "system", "tools", "images", "videos", "audios", "kto_tag"]
        if entry.ranking:
            read = [name for name in read if name != "response"]
    else:
        read = ["messages", "system", "tools", "images", "videos", "audios", "kto_tag"]
    if entry.ranking:
        read += ["chosen", "rejected"]
    if entry.formatting == "alpaca" and entry.columns.get("kto_tag"):
        read.append("response")
    wanted = {column for name in read if (column := entry.columns.get(name))}
    if entry.formatting == "alpaca" and entry.columns.get("prompt") == "text" and "columns" in entry.raw:
        wanted.discard("output")
    return tuple(sorted(wanted - present)) if rows else ()


def _converted_turns(rows: Sequence[Row], entry: RegistryEntry, facts: dict[str, ArgValue]) -> Iterator[DataFinding]:
    """The converter's own checks: roles in turn, an even number of turns (odd with ranking)."""
    tags, column = entry.tags, entry.columns.get("messages") or "conversations"
    role_tag = tags.get("role_tag") or "from"
    roles = roles_of(rows, column, role_tag)
    facts["roles_found"] = list(roles)
    known = {tags.get(name) for name in ("user_tag", "assistant_tag", "observation_tag", "function_tag", "system_tag")}
    expected = sorted(tag for name in ("assistant_tag", "user_tag") if (tag := tags.get(name)))
    wrong: dict[str, list[int]] = {"role": [], "order": [], "count": []}
    for number, row in enumerate(rows, 1):
        verdict = _turn_verdict([str(turn.get(role_tag)) for turn in turns_of(row, column)], tags, known, entry.ranking)
        if verdict:
            wrong[verdict].append(number)
    bad_roles, bad_order, bad_count = wrong.values()
    bad = sorted([*bad_roles, *bad_order, *bad_count])
    if bad:
        facts["bad_rows"] = list(bad[:MAX_SHOWN])
    if bad_roles:
        facts["roles_expected"] = list(expected)
        yield finding_in(
            "role_tag_mismatch",
            Severity.ERROR,
            bad_roles,
            field=role_tag,
            found=", ".join(roles),
            expected=", ".join(expected),
        )
    if bad_order:
        yield finding_in(
            "turns_out_of_order", Severity.WARNING, bad_order, field=column, expected=" / ".join(reversed(expected))
        )
    if bad_count:
        expected_count = "odd" if entry.ranking else "even"
        yield finding_in("turn_count", Severity.WARNING, bad_count, field=column, expected=expected_count)
    if bad and len(bad) == len(rows) and not bad_roles:
        yield DataFinding(code="all_samples_dropped", severity=Severity.ERROR, count=len(rows))
    yield from check_empty_turns(rows, column, facts)


def _turn_verdict(roles: list[str], tags: Mapping[str, str | None], known: set[str | None], ranking: bool) -> str:
    """ "" fine, "role" an unknown role, "order" user and assistant do not take turns, "count" a turn too many."""
    if roles and roles[0] == tags.get("system_tag"):
        roles = roles[1:]
    if any(role not in known for role in roles):
        return "role"
    asks = (tags.get("user_tag"), tags.get("observation_tag"))
    answers = (tags.get("assistant_tag"), tags.get("function_tag"))
    if any(role not in (asks, answers)[index % 2] for index, role in enumerate(roles)):
        return "order"
    return "count" if len(roles) % 2 != (1 if ranking else 0) else ""
