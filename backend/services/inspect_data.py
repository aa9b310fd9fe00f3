"""Data files and registries of a folder -> their facts in the words of `inspect`; a registered file is read with its entry."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from backend.domain.problem import ArgValue, Problem, Severity
from backend.parsing.datasets.records import DataFinding, RegistryEntry
from backend.parsing.datasets.registry import RegistryReport, inspect_registry
from backend.parsing.datasets.report import inspect_data
from backend.planning.importing.detect import Kind
from backend.planning.linting.report import report
from backend.services.inspect_config import Facts, findings

_SHOWN_ROWS = 8


def data_problems(found: Iterable[DataFinding]) -> list[Problem]:
    """Findings of the data readers as Problems with their texts."""
    return [_problem(finding) for finding in found]


def _problem(finding: DataFinding) -> Problem:
    shown = ", ".join(map(str, finding.rows[:_SHOWN_ROWS])) + (" …" if finding.count > _SHOWN_ROWS else "")
    return report(
        finding.code,
        finding.severity,
        field=finding.field,
        found=finding.found,
        expected=finding.expected,
        evidence=finding.evidence,
        rows=shown or "-",
        count=finding.count,
    )


def data_facts(name: str, data: bytes, entry: RegistryEntry | None = None) -> tuple[Facts, list[Problem]]:
    """Facts and Problems of one data file."""
    found = inspect_data(data, name, entry)
    problems = data_problems(found.findings)
    out: Facts = {"detected_format": found.format, **findings(problems), "facts": dict(found.facts)}
    if found.container:
        out["container"] = found.container
    if found.rows is not None:
        out["rows"] = found.rows
    for key in ("missing_columns", "placeholders"):
        if key in found.facts:
            out["missing_keys" if key == "missing_columns" else key] = found.facts[key]
    return out, problems


def registry_facts(
    kind: Kind, content: Mapping[str, ArgValue], report_: RegistryReport, missing: Iterable[tuple[str, str, Severity]]
) -> tuple[Facts, list[Problem]]:
    """Facts of a dataset_info.json. `missing`: (entry, file, severity) of data files that are not there."""
    if kind is Kind.ARROW_INFO:
        problem = report(
            "not_a_registry", Severity.ERROR, found=", ".join(sorted(content))[:80], expected="load_from_disk"
        )
        return {"detected_format": kind.value, **findings([problem])}, [problem]
    problems = data_problems(report_.findings)
    problems += [
        report("file_missing", severity, field=entry, found=file, expected="file_name")
        for entry, file, severity in missing
    ]
    return {"detected_format": kind.value, **findings(problems), "facts": dict(report_.facts)}, problems


def read_registry(text: str) -> tuple[dict[str, ArgValue], RegistryReport] | None:
    """Content and entries; None when the text is no JSON object."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return (content, inspect_registry(content)) if isinstance(content, dict) else None
