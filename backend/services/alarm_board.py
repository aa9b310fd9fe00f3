"""Events of many jobs in, the alarms that lists show out: of each job the newest of a kind, read again when its file grew."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from backend.domain.events import Alert
from backend.domain.problem import Severity
from backend.services.health_watch import ALARMS
from backend.store.events import load_events
from backend.store.paths import DataPaths

KEPT_JOBS = 4096
_MARK = b'"kind": "alert"'


class AlarmBoard:
    """Safe to use from several threads: the worst that may happen is that a file is read twice."""

    def __init__(self, paths: DataPaths) -> None:
        self.paths = paths
        self._known: OrderedDict[str, tuple[tuple[int, int], tuple[Alert, ...]]] = OrderedDict()

    def alarms(self, job_id: str) -> tuple[Alert, ...]:
        """Alarms on the numbers of a job but mere notes, the newest of each code, oldest first."""
        path = self.paths.job(job_id).events
        try:
            status = path.stat()
        except OSError:
            return ()
        state = (status.st_size, status.st_mtime_ns)
        known = self._known.get(job_id)
        if known is None or known[0] != state:
            known = self._known[job_id] = (state, _read(path))
            while len(self._known) > KEPT_JOBS:
                self._known.popitem(last=False)
        return known[1]


def _read(path: Path) -> tuple[Alert, ...]:
    if _MARK not in path.read_bytes():  # most runs: no line has to be parsed
        return ()
    newest: dict[str, Alert] = {}
    for event in load_events(path):
        if isinstance(event, Alert) and event.code in ALARMS and event.severity is not Severity.NOTE:
            newest.pop(event.code, None)
            newest[event.code] = event
    return tuple(newest.values())
