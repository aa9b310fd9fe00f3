"""events.jsonl of a job: event records appended as JSON lines, read back oldest first."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from enum import StrEnum
from pathlib import Path
from typing import get_args

from backend.domain.events import Event
from backend.domain.job import JobState, StopMode, TerminationReason
from backend.domain.problem import Severity
from backend.store.files import append_line

_KINDS: dict[str, type[Event]] = {kind.kind: kind for kind in get_args(Event)}
_ENUMS: dict[str, type[StrEnum]] = {
    "state": JobState,
    "reason": TerminationReason,
    "mode": StopMode,
    "severity": Severity,
}


def append_event(path: Path, event: Event) -> None:
    """One line on disk before it returns."""
    append_line(path, json.dumps({"kind": event.kind, **asdict(event)}, ensure_ascii=False))


def load_events(path: Path) -> list[Event]:
    """Events oldest first. A torn last line and kinds of a newer version are left out."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [event for line in lines if (event := _parse(line)) is not None]


def _parse(line: str) -> Event | None:
    try:
        record = json.loads(line)
        kind = _KINDS[record["kind"]]
        known = {field.name: record[field.name] for field in fields(kind) if field.name in record}
        for name, enum in _ENUMS.items():
            if known.get(name) is not None:
                known[name] = enum(known[name])
        return kind(**known)
    except (ValueError, KeyError, TypeError):
        return None
