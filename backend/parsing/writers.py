"""Rows of one growing log in, whether two runs write to it at the same time out.

A resume steps back once and a run begun anew starts over once: the rows of the run before never come again. Two runs at
work take turns: rows that continue the one and rows that continue the other follow each other again and again.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field

from backend.domain.problem import Severity
from backend.parsing.alarms import Alarm

TURNS = 6
"""Changes between two runs, among the last RECENT rows, that no series of resumes makes."""
RECENT = 24
_LINES = 8
_LEAST_ROWS = 3


@dataclass(slots=True)
class _Line:
    """The rows that continue one another: place (step or epoch) and time both grow."""

    number: int
    place: float
    clock: float


@dataclass(slots=True)
class WriterWatch:
    """Takes rows in the order of the file; `file` and `unit` ("step" or "epoch") name them in the alarm."""

    file: str
    unit: str = "step"
    _lines: list[_Line] = field(default_factory=list)
    _turns: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=RECENT))
    _seen: deque[tuple[float, object]] = field(default_factory=lambda: deque(maxlen=RECENT))
    _count: int = 0

    def take(self, place: float, clock: float = 0.0, value: object = None) -> None:
        """One row. `clock`: a time that grows within a run. Copies of other ranks (same place and `value`) do not count."""
        if value is not None and (place, value) in self._seen:
            return
        self._seen.append((place, value))
        fitting = [line for line in self._lines if place > line.place and clock >= line.clock]
        if fitting:
            line = max(fitting, key=lambda one: (one.place, one.clock))
        else:
            self._count += 1
            line = _Line(self._count, place, clock)
            self._lines = [*self._lines[1 - _LINES :], line]
        line.place, line.clock = place, clock
        self._turns.append((line.number, place))

    def alarm(self, *, step: int | None = None) -> Alarm | None:
        """The finding when two runs have taken turns lately. `step`: that of our own run now, where rows count epochs."""
        numbers = [number for number, _ in self._turns]
        newest = {number: place for number, place in self._turns}
        busy = sorted((number for number in newest if numbers.count(number) >= _LEAST_ROWS), key=numbers.count)[-2:]
        if len(busy) < 2:
            return None
        pair = [number for number in numbers if number in busy]
        if sum(a != b for a, b in itertools.pairwise(pair)) < TURNS:
            return None
        first, second = (newest[number] for number in sorted(busy))
        if self.unit == "step":
            told: dict[str, int | float | str] = {"file": self.file, "first": int(first), "second": int(second)}
            return Alarm(code="two_writers", severity=Severity.ERROR, step=int(max(first, second)), numbers=told)
        told = {"file": self.file, "first": first, "second": second}
        return Alarm(code="two_writers", form="two_writers.epoch", severity=Severity.ERROR, step=step, numbers=told)
