"""The growing trainer_log.jsonl and console of a running job in, alarms out that no recorded number shows."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backend.domain.problem import Severity
from backend.parsing.alarms import Alarm
from backend.parsing.progress import parse_clock
from backend.parsing.writers import WriterWatch
from backend.services.headline import estimated_rest
from backend.store.record_file import Record, RecordFile, Replaced
from backend.store.series import Progress

TAIL_BYTES = 96 << 10
LONGEST_TAIL = 1 << 20
SCALE_AT_FLOOR = b"Current loss scale already at minimum"
WRONG_FACTOR = 3.0
WORTH_SECONDS = 120.0
ENOUGH_STEPS = 10
WARM_STEPS = 100
"""Before so many steps a remaining time that is too long only counts the slow first steps."""
_ROWS = 3
_SCALE = re.compile(rb"loss scale(?:: | from )(\d[\d.]*(?:e\+?\d+)?),? (?:reducing )?to (\d[\d.]*(?:e\+?\d+)?)")
_ROW = re.compile(rb"'loss': '?([-+\w.]+)'?,.{0,2000}?'epoch': '?([\d.]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerRow:
    """A training row of trainer_log.jsonl; seconds since the start of training and what it says is left."""

    step: int
    total: int
    elapsed: float
    remaining: float


class TrainerLogTail:
    """The last training rows, and whether two runs write them. `path` None: there is no such file."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._begin()

    def _begin(self) -> None:
        self.rows: deque[TrainerRow] = deque(maxlen=_ROWS)
        self.writers = WriterWatch(file="trainer_log.jsonl")
        self._file = RecordFile.near_end(self.path, TAIL_BYTES) if self.path else None

    def refresh(self) -> None:
        """Take in what was appended."""
        if self._file is None:
            return
        try:
            for records in self._file.read_new():
                for record in records:
                    self._take(record)
        except Replaced:
            self._begin()

    def _take(self, record: Record) -> None:
        step, total = record.get("current_steps"), record.get("total_steps")
        elapsed, remaining = (_clock(record.get(name)) for name in ("elapsed_time", "remaining_time"))
        if not isinstance(step, int) or elapsed is None or record.get("loss") is None:
            return
        self.writers.take(step, elapsed)
        if self.rows and elapsed < self.rows[-1].elapsed:
            self.rows.clear()  # another start
        if isinstance(total, int) and remaining is not None:
            self.rows.append(TrainerRow(step=step, total=total, elapsed=elapsed, remaining=remaining))


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingTime:
    """What is left by the measured steps of the newest start: `seconds` a step, and `pauses` still to come."""

    seconds: float
    steps: int
    pauses: float

    @classmethod
    def of(cls, progress: Progress) -> RemainingTime | None:
        """None before enough steps are measured."""
        known, segment = progress.seconds[np.isfinite(progress.seconds)], progress.segment
        if segment is None or progress.step is None or len(known) < ENOUGH_STEPS:
            return None
        seconds = float(np.median(known))
        left = max(0, (segment.max_steps or 0) - progress.step) * seconds
        whole = estimated_rest(progress, segment, progress.step, segment.max_steps)
        return cls(
            seconds=seconds, steps=progress.step - (segment.begin_step or 0), pauses=max(0.0, (whole or left) - left)
        )

    def check(self, rows: Sequence[TrainerRow]) -> list[Alarm]:
        """The log's own remaining time is far off in every recent row, by any way to count pauses."""
        if len(rows) < _ROWS:
            return []
        wrong = [self._is_wrong(row) for row in rows]
        if not all(wrong) or len(set(wrong)) > 1:
            return []
        last = rows[-1]
        measured = (last.total - last.step) * self.seconds + self.pauses
        numbers: dict[str, int | float | str] = {
            "file": "trainer_log.jsonl", "said_seconds": last.remaining, "measured_seconds": measured,
        }  # fmt: skip
        return [Alarm(code="remaining_time_unreliable", severity=Severity.WARNING, step=last.step, numbers=numbers)]

    def _is_wrong(self, row: TrainerRow) -> str:
        least = (row.total - row.step) * self.seconds
        most = least + self.pauses
        if least > WORTH_SECONDS and row.remaining < least / WRONG_FACTOR:
            return "short"
        late = row.remaining > max(WORTH_SECONDS, most * WRONG_FACTOR)
        return "long" if late and self.steps >= WARM_STEPS else ""


class ConsoleWatch:
    """New lines of the console: DeepSpeed's loss scale, and the rows of two runs that share an attached console."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writers = WriterWatch(file=path.name, unit="epoch")
        self._at = 0
        self._half = b""

    def check(self, step: int | None, *, watch_writers: bool) -> Iterator[Alarm]:
        """`step`: where the run is now."""
        data = self._read()
        if SCALE_AT_FLOOR in data or SCALE_AT_FLOOR in self._half:
            yield Alarm(code="loss_scale_collapse", severity=Severity.ERROR, step=step)
        elif scales := [float(new) for old, new in _SCALE.findall(data) if float(old) == float(new)]:
            numbers = {"scale": scales[-1]}
            yield Alarm(code="loss_scale_at_floor", severity=Severity.ERROR, step=step, numbers=numbers)
        if not watch_writers:
            return
        for loss, epoch in _ROW.findall(data):
            self.writers.take(float(epoch), value=loss)
        if two := self.writers.alarm(step=step):
            yield two

    def _read(self) -> bytes:
        """Whole lines that were not looked at before; of a huge new part only its end."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                if size < self._at:
                    self._at, self._half = 0, b""
                file.seek(max(self._at, size - LONGEST_TAIL))
                data = self._half + file.read(LONGEST_TAIL)
                self._at = file.tell()
        except FileNotFoundError:
            return b""
        whole, _, rest = data.rpartition(b"\n")
        self._half = rest[-LONGEST_TAIL:]
        return whole


def _clock(value: object) -> float | None:
    if isinstance(value, str):
        return parse_clock(value)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
