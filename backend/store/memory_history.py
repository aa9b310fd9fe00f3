"""Finished runs' peaks on disk, planned beside measured: what corrects the next memory plan. One writer: services/forecast.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from backend.planning.memory import MeasuredPeak
from backend.store.files import append_line
from backend.store.paths import JobPaths

LAST = 20
"""Runs of one family that count: older ones may be of another version."""


class MemoryHistory:
    """Lines `{"family", "job", "planned", "measured"}`, appended. A line that cannot be read is passed over."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, family: str, job_id: str, peak: MeasuredPeak) -> None:
        record = {"family": family, "job": job_id, "planned": peak.planned, "measured": peak.measured}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        append_line(self._path, json.dumps(record))

    def peaks(self, family: str) -> list[MeasuredPeak]:
        """The last runs of `family` (model type and method), oldest first; a job counts once."""
        found = {record["job"]: record for record in self._records() if record["family"] == family}
        return [
            MeasuredPeak(planned=int(record["planned"]), measured=int(record["measured"]))
            for record in list(found.values())[-LAST:]
        ]

    def _records(self) -> Iterator[dict[str, str]]:
        try:
            lines = self._path.read_text("utf-8").splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and {"family", "job", "planned", "measured"} <= record.keys():
                yield record


def peak_of_run(paths: JobPaths) -> int | None:
    """Highest peak that any rank's recorder wrote, in bytes; None where no accelerator memory was measured."""
    peak: int | None = None
    for file in sorted(paths.recorder.glob("rank-*.jsonl")):
        with file.open("rb") as stream:
            for line in stream:
                found = _memory(line)
                if found is not None and (peak is None or found > peak):
                    peak = found
    return peak


def _memory(line: bytes) -> int | None:
    if b'"mem"' not in line:
        return None
    try:
        value = json.loads(line).get("mem")
    except ValueError:
        return None
    return value if isinstance(value, int) else None
