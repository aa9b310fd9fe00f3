"""A read console into the points that count, with their steps, and how far the run came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from backend.parsing.console import ConsoleReader
from backend.parsing.health import Point
from backend.parsing.log_hints import LogHints
from backend.parsing.trainer_rows import Row, current_rows, place_by_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The points that count."""

    train: tuple[Row, ...]
    evals: tuple[Row, ...]
    form: str

    @property
    def points(self) -> int:
        """Training points after copies and superseded steps are left out."""
        return len(self.train)


def read_series(reader: ConsoleReader, hints: LogHints) -> Series:
    """Current rows with their steps: from the bar, else from the epoch, else from the logging interval."""
    rows = reader.rows
    train: Sequence[Row] = current_rows(rows.train)
    epochs = reader.job.epochs or hints.epochs
    total = reader.job.total_steps
    if train and epochs and total:
        train = place_by_epoch(train, epochs=epochs, total_steps=total)
    if train and hints.logging_steps and all(row.step is None for row in train) and len(rows.segment_starts) == 1:
        first = rows.segment_starts[0] or 0
        train = [replace(row, step=first + (at + 1) * hints.logging_steps) for at, row in enumerate(train)]
    evals = current_rows(rows.evals)
    if train or evals or not reader.steps.lines:
        return Series(train=tuple(train), evals=tuple(evals), form="hf")
    lines = reader.steps.lines
    made = [
        Row(values=dict(one.values), offset=at, step=one.step, epoch=None, segment=0)
        for at, one in enumerate(lines)
        if one.kind == "train"
    ]
    evaluated = [
        Row(values=dict(one.values), offset=at, step=one.step, epoch=None, segment=0)
        for at, one in enumerate(lines)
        if one.kind == "eval"
    ]
    _segment_by_step(made)
    return Series(train=tuple(current_rows(made)), evals=tuple(evaluated), form=lines[0].form)


def total_steps(reader: ConsoleReader) -> int | None:
    candidates = [reader.bars.total, reader.job.total_steps, reader.deepspeed.planned]
    if reader.steps.progress is not None:
        candidates.insert(0, reader.steps.progress.total)
    candidates += [line.total for line in reader.steps.lines[-1:]]
    return next((one for one in candidates if one is not None), None)


def last_step(reader: ConsoleReader, series: Series) -> int | None:
    progress = reader.steps.progress
    told = [
        reader.bars.step, progress.step if progress else None, reader.deepspeed.last_step, reader.deepspeed.rate_step,
        max((row.step for row in series.train if row.step is not None), default=None),
    ]  # fmt: skip
    known = [one for one in told if one is not None]
    if not known:
        return None
    segments = reader.rows.segment_starts
    resumed = segments[-1] if len(segments) == 1 else reader.job.resumed_from
    return max([*known, resumed or 0])


def stage_of(reader: ConsoleReader, series: Series) -> str | None:
    """Named in a stack or script, or told by the values that only one stage logs."""
    if reader.job.stage is not None or not series.train:
        return reader.job.stage
    names = set().union(*(row.values.keys() for row in series.train[-8:]))
    if "rewards/chosen" in names or "rewards/accuracies" in names:
        return "kto" if "kl" in names else "dpo"
    return "ppo" if {"reward", "objective/kl", "actor_loss"} & names else None


def points_of(rows: Sequence[Row]) -> list[Point]:
    """The same as plain points."""
    return [Point(step=row.step, epoch=row.epoch, values=row.values) for row in rows]


def _segment_by_step(rows: Sequence[Row]) -> None:
    segment, last = 0, -1
    for row in rows:
        if row.step is not None and row.step < last:
            segment += 1
        row.segment = segment
        last = row.step if row.step is not None else last
