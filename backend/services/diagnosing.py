"""An ended job in, why it ended out: both ends of its console together with its exit record and the ranks' last words."""

from __future__ import annotations

from pathlib import Path

from backend.domain.job import Job
from backend.parsing.diagnosis import TAIL_BYTES, Diagnosis, KnownRun, diagnose_windows
from backend.store.paths import JobPaths

__all__ = ["Diagnosis", "diagnose_job"]


def diagnose_job(job: Job, paths: JobPaths) -> Diagnosis:
    """Reads at most twice TAIL_BYTES, whatever the size of the log."""
    head, tail, offset = read_windows(paths.console)
    known = KnownRun(
        exit_code=job.exit_code,
        signal=job.signal,
        last_step=job.step,
        phase=job.phase or None,
        stop_requested=paths.stop_request.exists(),
        error=job.message,
    )
    return diagnose_windows(head, tail, tail_offset=offset, known=known)


def read_windows(path: Path) -> tuple[bytes, bytes, int]:
    """The first and the last TAIL_BYTES of a file and where the last begin; empty for a file that is not there."""
    try:
        with path.open("rb") as file:
            head = file.read(TAIL_BYTES)
            offset = max(0, file.seek(0, 2) - TAIL_BYTES)
            file.seek(offset)
            return head, file.read(), offset
    except OSError:
        return b"", b"", 0
