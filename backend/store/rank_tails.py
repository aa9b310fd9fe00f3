"""Recorder files of a job in, the newest steps of each rank out, each with its own wait for data (curves keep the longest)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import isfinite, nan
from pathlib import Path

from backend.domain.metrics import StepRecord
from backend.store.record_file import Record, RecordFile, Replaced

KEPT = 128
TAIL_BYTES = 96 << 10
"""Read of each file at first: what a worker that has just started may learn about the last minutes."""


class RankTails:
    """`read_new` gives each new step of rank 0 once; `recent` the last KEPT of every rank since the newest start."""

    def __init__(self, recorder: Path) -> None:
        self.recorder = recorder
        self._files: dict[int, RecordFile] = {}
        self._steps: dict[int, deque[StepRecord]] = {}

    @property
    def recent(self) -> Mapping[int, Sequence[StepRecord]]:
        return self._steps

    def read_new(self) -> list[StepRecord]:
        """Steps of rank 0, all starts in the order of the file."""
        for path in self.recorder.glob("rank-*.jsonl"):
            number = path.stem.removeprefix("rank-")
            if number.isdigit() and int(number) not in self._files:
                self._files[int(number)] = RecordFile.near_end(path, TAIL_BYTES)
        found = {rank: self._read(rank, file) for rank, file in sorted(self._files.items())}
        return found.get(0, [])

    def _read(self, rank: int, file: RecordFile) -> list[StepRecord]:
        kept = self._steps.setdefault(rank, deque(maxlen=KEPT))
        fresh: list[StepRecord] = []
        try:
            for records in file.read_new():
                for record in records:
                    if record.get("k") in ("start", "train_begin"):
                        kept.clear()
                    elif step := _step(rank, record):
                        kept.append(step)
                        fresh.append(step)
        except Replaced:
            del self._files[rank], self._steps[rank]
        return fresh


def _step(rank: int, record: Record) -> StepRecord | None:
    """A usable `step` record (docs/contracts.md); what it does not tell is NaN or None."""
    step, at = record.get("s"), _number(record.get("t"))
    if record.get("k") != "step" or not isinstance(step, int) or not isfinite(at):
        return None
    tokens, memory = record.get("tok"), record.get("mem")
    return StepRecord(
        at=at, rank=rank, step=step, seconds=_number(record.get("dt")), data_seconds=_number(record.get("data")),
        tokens=tokens if isinstance(tokens, int) else None, peak_memory_bytes=memory if isinstance(memory, int) else None,
    )  # fmt: skip


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else nan
