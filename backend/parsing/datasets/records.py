"""Records of data files: rows, findings, registry entries and the report that pages and `inspect` show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from backend.domain.problem import ArgValue, Severity

Row = Mapping[str, ArgValue]


MAX_SHOWN = 50
"""Row numbers listed for one finding; the count is always complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFinding:
    """One thing about the data. `rows` count from 1; `count` is complete when `rows` is cut."""

    code: str
    severity: Severity
    field: str = ""
    rows: tuple[int, ...] = ()
    count: int = 0
    found: str = ""
    expected: str = ""
    evidence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryEntry:
    """One entry of dataset_info.json. Columns and tags that the entry does not name have the trainer's defaults,
    unless it has a `columns` (or `tags`) mapping at all: then every name left out is None.
    """

    name: str
    raw: Row
    formatting: str = "alpaca"
    ranking: bool = False
    columns: Mapping[str, str | None] = field(default_factory=dict)
    tags: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        found = self.raw.get("file_name")
        return found if isinstance(found, str) else ""

    @property
    def is_remote(self) -> bool:
        return any(
            key in self.raw for key in ("hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DataReport:
    """What a data file is. `rows` None: not countable (a binary file, or text that cannot be read)."""

    format: str
    container: str = ""
    rows: int | None = None
    columns: tuple[str, ...] = ()
    findings: tuple[DataFinding, ...] = ()
    facts: Mapping[str, ArgValue] = field(default_factory=dict)
    samples: tuple[Row, ...] = ()
    registry_entry: Mapping[str, ArgValue] = field(default_factory=dict)
    """The entry that this file needs in dataset_info.json, beside file_name; {} when the defaults fit."""


def finding_in(
    code: str,
    severity: Severity,
    rows: Sequence[int],
    *,
    field: str = "",
    found: str = "",
    expected: str = "",
    evidence: str = "",
) -> DataFinding:
    return DataFinding(
        code=code,
        severity=severity,
        field=field,
        rows=tuple(rows[:MAX_SHOWN]),
        count=len(rows),
        found=found,
        expected=expected,
        evidence=evidence,
    )
