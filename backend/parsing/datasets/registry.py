"""Content of dataset_info.json -> its entries as LLaMA-Factory reads them, and what is wrong with them by themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from backend.domain.problem import ArgValue, Severity
from backend.parsing.datasets.records import DataFinding, RegistryEntry, Row

DEFAULT_COLUMNS: Mapping[str, str | None] = {
    "prompt": "instruction",
    "query": "input",
    "response": "output",
    "messages": "conversations",
}


COLUMN_NAMES = [
    "prompt",
    "query",
    "response",
    "history",
    "messages",
    "system",
    "tools",
    "images",
    "videos",
    "audios",
    "chosen",
    "rejected",
    "kto_tag",
]


DEFAULT_TAGS: Mapping[str, str | None] = {
    "role_tag": "from",
    "content_tag": "value",
    "user_tag": "human",
    "assistant_tag": "gpt",
    "observation_tag": "observation",
    "function_tag": "function_call",
    "system_tag": "system",
}


def parse_entry(name: str, raw: Row) -> RegistryEntry:
    """An entry as LLaMA-Factory's DatasetAttr.join reads it."""
    columns, tags = raw.get("columns"), raw.get("tags")
    named = (
        {key: _text(columns.get(key)) for key in COLUMN_NAMES} if isinstance(columns, dict) else dict(DEFAULT_COLUMNS)
    )
    tagged = {key: _text(tags.get(key)) for key in DEFAULT_TAGS} if isinstance(tags, dict) else dict(DEFAULT_TAGS)
    return RegistryEntry(
        name=name,
        raw=raw,
        formatting=str(raw.get("formatting") or "alpaca"),
        ranking=bool(raw.get("ranking", False)),
        columns=named,
        tags=tagged,
    )


def _text(value: ArgValue) -> str | None:
    return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryReport:
    """Entries of a dataset_info.json, and what is wrong with them before any data file is looked at."""

    entries: tuple[RegistryEntry, ...]
    findings: tuple[DataFinding, ...] = ()
    facts: Mapping[str, ArgValue] = field(default_factory=dict)


_PREFERENCE_NAME = re.compile(
    r"compar|pref|(?:^|[_-])(?:dpo|rm|rlhf|ranking|reward|pairs?|pairwise)(?:[_-]|\d|$)|hh[_-]|ultrafeedback|feedback|chosen",
    re.I,
)


def inspect_registry(content: Row) -> RegistryReport:
    """Read every entry; an entry that is no mapping or names no source is an error of its own."""
    entries, findings = [], []
    facts: dict[str, ArgValue] = {"entries": len(content)}
    for name, raw in content.items():
        if not isinstance(raw, dict):
            findings.append(
                DataFinding(
                    code="entry_without_source",
                    severity=Severity.ERROR,
                    field=name,
                    found=str(raw)[:80],
                    expected="{file_name: ...}",
                )
            )
            continue
        entry = parse_entry(name, raw)
        entries.append(entry)
        findings.extend(_entry_findings(entry, facts))
    files = {entry.file_name for entry in entries if entry.file_name}
    facts["distinct_files"] = len(files)
    return RegistryReport(entries=tuple(entries), findings=tuple(findings), facts=facts)


def _entry_findings(entry: RegistryEntry, facts: dict[str, ArgValue]) -> Iterator[DataFinding]:
    if not entry.file_name and not entry.is_remote:
        yield DataFinding(
            code="entry_without_source", severity=Severity.ERROR, field=entry.name, expected="file_name | hf_hub_url"
        )
    if entry.formatting not in ("alpaca", "sharegpt", "openai"):
        yield DataFinding(
            code="formatting_unknown",
            severity=Severity.ERROR,
            field=entry.name,
            found=entry.formatting,
            expected="alpaca | sharegpt | openai",
        )
    for part in ("columns", "tags"):
        mapping = entry.raw.get(part)
        empty = [key for key, value in mapping.items() if value == ""] if isinstance(mapping, dict) else []
        if empty:
            facts.setdefault("entry", entry.name)
            facts.setdefault("empty_keys", list(empty))
            yield DataFinding(
                code="empty_mapping",
                severity=Severity.WARNING,
                field=f"{entry.name}.{part}",
                found=", ".join(empty),
                expected="-",
            )
        known = set(COLUMN_NAMES) if part == "columns" else set(DEFAULT_TAGS)
        odd = [key for key in mapping if key not in known] if isinstance(mapping, dict) else []
        if odd:
            yield DataFinding(
                code="entry_key_ignored",
                severity=Severity.WARNING,
                field=f"{entry.name}.{part}",
                found=", ".join(odd),
                expected=", ".join(sorted(known)),
            )
    ranked = {"chosen", "rejected"} & {key for key, value in entry.columns.items() if value}
    named = bool(_PREFERENCE_NAME.search(entry.name)) and not entry.columns.get("kto_tag") and not entry.is_remote
    if not entry.ranking and (ranked or (named and "columns" not in entry.raw)):
        facts.setdefault("entry", entry.name)
        yield DataFinding(
            code="ranking_flag_missing",
            severity=Severity.WARNING,
            field=entry.name,
            found="false",
            expected="ranking: true",
        )
    if "script_url" in entry.raw:
        yield DataFinding(
            code="script_dataset",
            severity=Severity.WARNING,
            field=entry.name,
            found=str(entry.raw["script_url"])[:80],
            expected="file_name | hf_hub_url",
        )
