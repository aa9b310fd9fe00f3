"""recorder/rank-*.jsonl of one job in, how far it is out: phase, step, loss, complete checkpoints, how each rank ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from backend.store.json_lines import JsonLines
from backend.store.paths import JobPaths


@dataclass(slots=True)
class RunProgress:
    """Call `refresh` now and then; the fields hold what the ranks have written so far. `loss` may be NaN (diverged)."""

    paths: JobPaths
    phase: str = ""
    step: int | None = None
    max_steps: int | None = None
    world_size: int | None = None
    loss: float | None = None
    stopped: bool = False
    checkpoints: dict[int, str] = field(default_factory=dict)
    """Step to folder (relative to the output folder), once every rank has written its part."""
    done: dict[int, bool] = field(default_factory=dict)
    error: str = ""
    _files: dict[int, JsonLines] = field(default_factory=dict)
    _parts: dict[tuple[int, str], set[int]] = field(default_factory=dict)

    def refresh(self) -> None:
        """Read what the ranks appended since the last call."""
        self._find_files()
        for rank, file in self._files.items():
            for record in file.read_new():
                self._take(rank, record)

    @property
    def all_done(self) -> bool:
        """Every rank said that run_exp returned: the training is proved to have ended well."""
        return self.world_size is not None and len(self.done) == self.world_size and all(self.done.values())

    def _find_files(self) -> None:
        if self.world_size is not None and len(self._files) >= self.world_size:
            return
        for path in self.paths.recorder.glob("rank-*.jsonl"):
            number = path.stem.removeprefix("rank-")
            if number.isdigit():
                self._files.setdefault(int(number), JsonLines(path))

    def _take(self, rank: int, record: dict[str, object]) -> None:
        kind = record.get("k")
        if kind == "start":
            self.world_size = _whole(record.get("world_size"))
        elif kind == "checkpoint":
            self._take_checkpoint(rank, record)
        elif kind == "done":
            self.done[rank] = record.get("ok") is True
            if not self.done[rank] and not self.error:
                self.error = str(record.get("error") or "")
        elif kind == "train_end":
            self.stopped = self.stopped or record.get("stopped") is True
        elif rank == 0:
            self._take_main(kind, record)

    def _take_main(self, kind: object, record: dict[str, object]) -> None:
        if kind == "phase":
            self.phase = str(record.get("phase") or "")
        elif kind == "train_begin":
            self.step, self.max_steps = _whole(record.get("step")), _whole(record.get("max_steps"))
        elif kind == "step":
            self.step = _whole(record.get("s"))
        elif kind == "log":
            values = record.get("v")
            loss = values.get("loss") if isinstance(values, dict) else None
            if loss is not None:
                self.loss = float(loss)  # also "nan" and "inf"

    def _take_checkpoint(self, rank: int, record: dict[str, object]) -> None:
        step, path = _whole(record.get("s")), str(record.get("path") or "")
        if step is None:
            return
        parts = self._parts.setdefault((step, path), set())
        parts.add(rank)
        if len(parts) >= (self.world_size or 1):
            self.checkpoints[step] = path


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
