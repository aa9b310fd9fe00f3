"""Sweeps to and from `sweeps/<id>.json`, with the document that is varied while some of its runs are not queued yet.

<id>.json  which jobs were given what    <id>.yaml  the varied document, as long as it is needed (secrets may stand in it)
<id>.lock  held by who changes a sweep   <id>.halt  do not queue the rest of it
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from backend.errors import NotFound
from backend.planning.sweeping import Values
from backend.store.files import held, read_json, write_json, write_text

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One group. `jobs`: id to the values it was given, in the order of submission; `waiting`: number to the values of runs
    that are not queued yet. Jobs that go on from one of `jobs` are not named here: they are found by tag and parent."""

    id: str
    name: str
    created_at: float
    keys: tuple[str, ...]
    early_stop: bool
    jobs: Mapping[str, Values]
    stopped_early: tuple[str, ...] = ()
    waiting: Mapping[str, Values] = field(default_factory=dict)


class SweepStore:
    """All sweeps in one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def get(self, sweep_id: str) -> Sweep:
        """Raises NotFound."""
        record = read_json(self.root / f"{sweep_id}.json") if _ID.fullmatch(sweep_id) else None
        if not isinstance(record, dict):
            raise NotFound(f"No sweep has the id {sweep_id!r}.")
        try:
            return _parse(record)
        except (KeyError, TypeError, ValueError) as error:
            raise NotFound(f"The record of sweep {sweep_id} cannot be read: {error!r}.") from error

    def every(self) -> list[Sweep]:
        """Newest first; a record that cannot be read hides no other."""
        found = []
        for path in sorted(self.root.glob("*.json"), reverse=True):
            with suppress(NotFound):
                found.append(self.get(path.stem))
        return found

    def save(self, sweep: Sweep) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        write_json(self.root / f"{sweep.id}.json", asdict(sweep))
        if not sweep.waiting:
            self._document(sweep.id).unlink(missing_ok=True)

    def save_document(self, sweep_id: str, text: str) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        write_text(self._document(sweep_id), text, mode=0o600)

    def document(self, sweep_id: str) -> str:
        """Raises NotFound when no run is waiting."""
        try:
            return self._document(sweep_id).read_text("utf-8")
        except FileNotFoundError as error:
            raise NotFound(f"The document of sweep {sweep_id} is not there.") from error

    def halt(self, sweep_id: str) -> None:
        write_text(self.root / f"{sweep_id}.halt", "")

    def go_on(self, sweep_id: str) -> None:
        (self.root / f"{sweep_id}.halt").unlink(missing_ok=True)

    def is_halted(self, sweep_id: str) -> bool:
        return (self.root / f"{sweep_id}.halt").exists()

    def locked(self, sweep_id: str, *, wait: bool = True) -> AbstractContextManager[bool]:
        """True inside when nobody else changes this sweep meanwhile; with `wait=False` False at once when somebody does."""
        self.root.mkdir(parents=True, exist_ok=True)
        return held(self.root / f"{sweep_id}.lock", wait=wait)

    def _document(self, sweep_id: str) -> Path:
        return self.root / f"{sweep_id}.yaml"


def _parse(record: Mapping[str, Any]) -> Sweep:
    return Sweep(
        id=str(record["id"]), name=str(record["name"]), created_at=float(record["created_at"]),
        keys=tuple(record["keys"]), early_stop=bool(record["early_stop"]), jobs=dict(record["jobs"]),
        stopped_early=tuple(record.get("stopped_early") or ()), waiting=dict(record.get("waiting") or {}),
    )  # fmt: skip
