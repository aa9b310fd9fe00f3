"""The growing files of an attached run in, recorder records of its job out, and how the run stands.

Charts, headline, checkpoints and alarms read the records as they read those of our own runs. Times of points are what the
files tell: exact to the second in trainer_log.jsonl, an estimate from the bar's mean pace in a console.
"""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from backend.adapters.process import find_descendants, kill_all
from backend.domain.job import StopMode, TerminationReason
from backend.parsing.console import ConsoleReader
from backend.parsing.console_facts import console_facts
from backend.parsing.console_series import read_series, total_steps
from backend.parsing.log_hints import NO_HINTS
from backend.parsing.trainer_log import TrainerLog
from backend.services.attach import Attachment, is_finished
from backend.store.files import read_json, write_text
from backend.store.paths import JobPaths

PORTION = 8 << 20
"""Bytes of a file taken in at one look: a huge log is read over several."""
LOOK_SECONDS = 2.0
SILENT_SECONDS = 3600.0
"""A run whose process is not known counts as ended when its files have not grown for so long."""
SETTLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One logged point. `seconds`: since the start of training, None when the file does not tell."""

    step: int
    epoch: float | None
    seconds: float | None
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the run ended, as its files tell; there is no exit code of a process that we did not start."""

    reason: TerminationReason
    message: str
    at: float


class AttachedRun:
    """Call `look` now and then."""

    def __init__(self, paths: JobPaths, attachment: Attachment, clock: Callable[[], float]) -> None:
        self.paths, self.attachment, self.clock = paths, attachment, clock
        self._trainer_log = _Source(attachment.trainer_log)
        self._console = _Source(attachment.console)
        self._log, self._reader = TrainerLog(), ConsoleReader()
        self._written: list[tuple[int, str]] = []
        self._looked_at = float("-inf")
        self._asked_at: float | None = None
        self._begun = False
        self._behind = True
        self._is_quiet = False
        self._total: int | None = None
        self.started_at: float | None = None
        """When training began, as far as the files tell."""

    @property
    def changed_at(self) -> float:
        """When the newest of its files was written to."""
        return max(self._trainer_log.changed_at, self._console.changed_at)

    def look(self) -> Ending | None:
        """Take in what the files got since the last look; how the run ended when it has."""
        now = self.clock()
        if now - self._looked_at < LOOK_SECONDS:
            return None
        self._looked_at = now
        fresh = self._read()
        self._is_quiet = not fresh
        if fresh or not self._begun:
            self._write()
        if self._behind:
            self._looked_at = float("-inf")  # more of a long file waits
            return None
        self._carry_out_stop(now)
        return self._ending(now)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(self) -> bool:
        if self._trainer_log.was_replaced():
            self._trainer_log, self._log = _Source(self.attachment.trainer_log), TrainerLog()
        if self._console.was_replaced():
            self._console, self._reader = _Source(self.attachment.console), ConsoleReader()
        told, said = self._trainer_log.read(), self._console.read()
        if told:
            self._log.feed(told)
        if said:
            self._reader.feed(said)
        self._behind = len(told) == PORTION or len(said) == PORTION
        return bool(told or said)

    def _rows(self) -> list[Row]:
        """The points that count: of the trainer's own log, else of the console."""
        if self._log.rows:
            self._total = next((row.total for row in reversed(self._log.rows) if row.total), None)
            return [
                Row(step=row.step, epoch=row.epoch, seconds=row.elapsed, values=row.values)
                for row in self._log.current()
            ]
        series = read_series(self._reader, NO_HINTS)
        self._total = total_steps(self._reader)
        pace = self._pace()
        rows = [
            Row(step=row.step, epoch=row.epoch, seconds=None if pace is None else row.step * pace, values=row.values)
            for row in (*series.train, *series.evals)
            if row.step is not None
        ]
        return sorted(rows, key=lambda row: row.step)

    def _pace(self) -> float | None:
        """Mean seconds a step on the console's bar."""
        bars = self._reader.bars
        return bars.elapsed / bars.step if bars.elapsed and bars.step else None

    # -- writing ------------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Append what is new; when older points changed (a resume, a copy from another rank), write the file anew."""
        rows = self._rows()
        self._add_state_steps(rows)
        records = [(row.step, json.dumps({"epoch": row.epoch, "v": _plain(row.values)})) for row in rows]
        is_longer = self._begun and records[: len(self._written)] == self._written
        first = len(self._written) if is_longer else 0
        end = self.changed_at or self.clock()
        last = next((row.seconds for row in reversed(rows) if row.seconds is not None), None)
        base = end - (last or 0.0)
        self.started_at = base if last is not None and self.started_at is None else self.started_at
        lines = [] if is_longer else _head(base, self._total)
        before = rows[first - 1] if first else None
        for row in rows[first:]:
            at = end if row.seconds is None else base + row.seconds
            lines += _records(row, before, at)
            before = row
        path = self.paths.rank_records(0)
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        if is_longer:
            with path.open("a") as file:
                file.write(text)
        else:
            write_text(path, text)
        self._written, self._begun = records, True

    def _add_state_steps(self, rows: list[Row]) -> None:
        """A folder without any log still has the points in its newest checkpoint's trainer_state.json."""
        if rows or self._log.rows or not self.attachment.output or self._behind:
            return
        states = sorted(
            Path(self.attachment.output).glob("checkpoint-*/trainer_state.json"), key=lambda path: path.stat().st_mtime
        )
        record = read_json(states[-1]) if states else None
        history = record.get("log_history") if isinstance(record, dict) else None
        for entry in history if isinstance(history, list) else ():
            values = {key: float(value) for key, value in entry.items() if isinstance(value, (int, float))}
            step = int(values.pop("step", 0))
            rows.append(Row(step=step, epoch=values.pop("epoch", None), seconds=None, values=values))
        if isinstance(record, dict) and isinstance(record.get("max_steps"), int):
            self._total = record["max_steps"]

    # -- the end ------------------------------------------------------------------------------------------------------

    def _carry_out_stop(self, now: float) -> None:
        request = read_json(self.paths.stop_request)
        process = self.attachment.process
        if not isinstance(request, dict) or process is None:
            return
        if request.get("mode") == StopMode.KILL.value or (self._asked_at and now - self._asked_at > 30):
            kill_all([process, *find_descendants(process)], wait_seconds=2.0)
        elif self._asked_at is None:
            self._asked_at = now
            os.kill(process.pid, signal.SIGTERM)

    def _ending(self, now: float) -> Ending | None:
        at = self.changed_at or now
        known, silent = self.attachment.pid is not None, now - at
        if self.attachment.process is not None:
            return None
        if self.paths.stop_request.exists() and known:
            return Ending(reason=TerminationReason.STOPPED_WITHOUT_SAVE, message="Its process has ended.", at=now)
        finished = any(row.is_end for row in self._log.rows[-2:])
        if not (finished or self._is_quiet or known):
            return None  # it is being written to
        facts = console_facts(self._reader) if self.attachment.console else None
        outcome = facts.outcome if facts else ""
        if finished or outcome == "completed" or (silent > SETTLE_SECONDS and self._has_results(at)):
            return Ending(reason=TerminationReason.COMPLETED, message="", at=at)
        if outcome in ("failed", "stopped") and (known or silent > SETTLE_SECONDS):
            text = "; ".join(facts.evidence[:1]) if facts and facts.evidence else f"The log says: {outcome}."
            return Ending(reason=TerminationReason.TRAINER_FAILED, message=text, at=at)
        if known or silent > SILENT_SECONDS:
            text = "Its process is gone" if known else f"Its files have not grown for {silent / 3600:.1f} hours"
            return Ending(
                reason=TerminationReason.SUPERVISOR_VANISHED,
                at=at,
                message=f"{text}, and they do not tell how it ended.",
            )
        return None

    def _has_results(self, at: float) -> bool:
        return bool(self.attachment.output) and is_finished(Path(self.attachment.output))


class _Source:
    """A file that may grow, be truncated or not be there at all."""

    def __init__(self, path: str) -> None:
        self.path = Path(path) if path else None
        self.offset = 0
        self.changed_at = 0.0
        self._inode: int | None = None

    def was_replaced(self) -> bool:
        """It is shorter than what was read of it, or another file."""
        try:
            status = self.path.stat() if self.path else None
        except FileNotFoundError:
            return False
        return status is not None and self._inode is not None and (
            status.st_size < self.offset or status.st_ino != self._inode
        )  # fmt: skip

    def read(self) -> bytes:
        try:
            if self.path is None:
                return b""
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                self._inode, self.changed_at = status.st_ino, status.st_mtime
                file.seek(self.offset)
                data = file.read(PORTION)
        except FileNotFoundError:
            return b""
        self.offset += len(data)
        return data


def _head(at: float, total: int | None) -> list[dict[str, object]]:
    return [
        {"t": at, "k": "phase", "phase": "training"},
        {"t": at, "k": "start", "rank": 0, "local_rank": 0, "world_size": 1, "pid": 0, "device": "", "versions": {}},
        {"t": at, "k": "train_begin", "step": 0, "max_steps": total, "world_size": 1},
    ]


def _records(row: Row, before: Row | None, at: float) -> list[dict[str, object]]:
    """The step with its mean time since the point before, and what was logged."""
    seconds: float | None = None
    if before is not None and row.seconds is not None and before.seconds is not None and row.step > before.step:
        mean = (row.seconds - before.seconds) / (row.step - before.step)
        seconds = mean if mean > 0 else None
    logged: dict[str, object] = {"t": at, "k": "log", "s": row.step, "epoch": row.epoch, "v": _plain(row.values)}
    if before is not None and row.step == before.step:
        return [logged]
    step = {"t": at, "k": "step", "s": row.step, "dt": seconds, "data": None, "tok": None, "pad": None, "mem": None}
    return [step, logged]


def _plain(values: Mapping[str, float]) -> dict[str, float | str]:
    return {
        name: value if math.isfinite(value) else str(float(value)) for name, value in values.items() if name != "epoch"
    }
