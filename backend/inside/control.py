"""Request files of a job folder in, the same decision at the same step on every rank out.

Rank 0 looks at the files (one `stat` each) when a step ends and starts a broadcast that nobody waits for; it is collected
when the next step ends. So no step is held up, and all ranks act together, one step after rank 0 saw the request.
With one rank there is nothing to agree on, and a request acts at once.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

STOP = 1
SAVE = 2
PROFILE = 4
_PATIENCE = timedelta(
    days=7
)  # a rank may wait through another's long evaluation or save; a dead peer is noticed at once


class RequestFiles:
    """`control/stop.json`, `save.json` and `profile.json` as rank 0 sees them; each request is reported once."""

    def __init__(self, folder: Path) -> None:
        self._stop = folder / "stop.json"
        self._answered = {SAVE: folder / "save.json", PROFILE: folder / "profile.json"}
        self._seen: dict[Path, tuple[int, int]] = {}

    def look(self) -> int:
        """New requests as a sum of STOP, SAVE and PROFILE. Stops of other modes are the supervisor's business."""
        asked = STOP if self._appeared(self._stop) and _mode(self._stop) == "save" else 0
        return asked + sum(what for what, path in self._answered.items() if self._appeared(path))

    def done(self, what: int) -> None:
        """Remove the request (SAVE or PROFILE) that was carried out, and leave one that arrived since."""
        path = self._answered[what]
        if self._seen.get(path) == _identity(path):
            _remove(path)

    def drop(self) -> None:
        """Remove all requests that wait for an answer: nothing will answer them any more."""
        for path in self._answered.values():
            _remove(path)

    def _appeared(self, path: Path) -> bool:
        identity = _identity(path)
        if identity is None or identity == self._seen.get(path):
            return False
        self._seen[path] = identity
        return True


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        print(f"tunedeck: cannot remove {path}: {error}", file=sys.stderr)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _mode(path: Path) -> str:
    try:
        return str(json.loads(path.read_bytes())["mode"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"tunedeck: {path} is not a stop request: {error!r}", file=sys.stderr)
        return ""


class Agreement:
    """The decision of rank 0, the same on every rank: `exchange` once when a step ends, on all ranks."""

    def __init__(self, files: RequestFiles, *, rank: int, world_size: int) -> None:
        self._files = files
        self._rank = rank
        self._world_size = world_size
        self._group: Any = None
        self._pending: tuple[Any, Any] | None = None

    def open(self) -> None:
        """On all ranks when training begins: a gloo group of its own, and the first look.

        Raises what torch raises when the ranks cannot reach each other: they could not train either.
        """
        if self._world_size > 1 and self._group is None:
            import torch.distributed as dist

            self._group = dist.new_group(backend="gloo", timeout=_PATIENCE)
            self._begin()

    def exchange(self) -> int:
        """What all ranks do at this step: a sum of STOP, SAVE and PROFILE."""
        if self._world_size == 1:
            return self._files.look()
        asked = self.collect()
        self._begin()
        return asked

    def collect(self) -> int:
        """The last look's result without a new look: at the end, so that no broadcast is left in the air."""
        if self._pending is None:
            return 0
        (work, flag), self._pending = self._pending, None
        work.wait()
        return int(flag.item())

    def _begin(self) -> None:
        if self._group is None:
            return
        import torch
        import torch.distributed as dist

        flag = torch.tensor([self._files.look() if self._rank == 0 else 0], dtype=torch.int64)
        self._pending = (dist.broadcast(flag, src=0, group=self._group, async_op=True), flag)
