"""Bytes of a data file (and its registry entry) -> DataReport: format, container, rows, facts and findings by code."""

from __future__ import annotations

from backend.domain.problem import ArgValue, Severity
from backend.parsing.datasets.answers import check_format
from backend.parsing.datasets.container import Table, read_table
from backend.parsing.datasets.conversion import check_conversion
from backend.parsing.datasets.formats import columns_of, detect_format, needed_entry
from backend.parsing.datasets.records import DataFinding, DataReport, RegistryEntry
from backend.parsing.datasets.rows import check_rows


def inspect_data(data: bytes, name: str, entry: RegistryEntry | None = None) -> DataReport:
    """Everything that a data file alone tells, and with its registry entry what the trainer will make of it."""
    suffix = name.rpartition(".")[2].lower() if "." in name else ""
    if suffix in ("parquet", "arrow", "feather"):
        return DataReport(format="unknown_dataset", facts={"binary": suffix})
    table = read_table(data, suffix)
    if not table.readable:
        return DataReport(
            format="unknown_dataset" if not table.rows else detect_format(table.rows),
            container=table.container,
            rows=len(table.rows) or None,
            findings=table.findings,
            facts=table.facts,
        )
    return _report(table, entry)


def _report(table: Table, entry: RegistryEntry | None) -> DataReport:
    rows = table.rows
    kind = detect_format(rows)
    if entry is not None and entry.columns.get("kto_tag") and kind in ("sharegpt", "alpaca", "prompt_completion"):
        kind = "kto"  # whatever the labels are: a word or a number is a mistake, not another format
    facts: dict[str, ArgValue] = dict(table.facts)
    findings = [*table.findings, *check_rows(rows, kind, facts)]
    needed = needed_entry(kind, rows)
    if entry is None:
        if kind not in ("alpaca", "unknown_dataset") and needed:
            findings.append(
                DataFinding(
                    code="unregistered_format", severity=Severity.WARNING, found=kind, expected="dataset_info.json"
                )
            )
            facts["registry_entry"] = needed
        if kind == "unknown_dataset":
            facts["missing_columns"] = ["instruction", "output"]
            shown = ", ".join(columns_of(rows))[:200]
            findings.append(DataFinding(code="columns_unknown", severity=Severity.ERROR, found=shown))
        findings.extend(check_format(rows, kind, facts))
    else:
        findings.extend(check_conversion(rows, kind, entry, facts))
    if kind in ("prompt_completion", "unknown_dataset"):
        facts["columns"] = list(columns_of(rows))
    return DataReport(
        format=kind,
        container=table.container,
        rows=len(rows),
        columns=columns_of(rows),
        findings=tuple(findings),
        facts=facts,
        samples=rows[:20],
        registry_entry=needed if kind != "alpaca" else {},
    )
