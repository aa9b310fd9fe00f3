"""LaunchPlan to and from plan.json."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from backend.domain.launch import LaunchPlan
from backend.errors import NotFound
from backend.store.files import read_json, write_json

_TUPLES = ("argv", "unset", "devices", "secrets")


def save_plan(path: Path, plan: LaunchPlan) -> None:
    """Write-then-rename. Secret values are not part of a plan."""
    write_json(path, asdict(plan))


def load_plan(path: Path) -> LaunchPlan:
    """Raises NotFound when there is no readable plan."""
    record = read_json(path)
    if not isinstance(record, dict):
        raise NotFound(f"No launch plan at {path}.")
    values: dict[str, Any] = {field.name: record[field.name] for field in fields(LaunchPlan) if field.name in record}
    values.update({name: tuple(values[name]) for name in _TUPLES if name in values})
    return LaunchPlan(**values)
