"""Points of one run from several sources (recorder, trainer state, trainer log, console) into one series, by trust."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from backend.parsing.health import Point


class Source(IntEnum):
    """The higher, the more trusted: the console rounds to four digits, the recorder and the state hold full precision."""

    CONSOLE = 1
    RUNNING_LOG = 2
    TRAINER_LOG = 3
    TRAINER_STATE = 4
    RECORDER = 5


def merge_points(sources: Mapping[Source, Sequence[Point]]) -> list[Point]:
    """One point a step with the values of all sources; of one value the most trusted source speaks.

    Points without a step (a console without a bar) count only when no source knows steps.
    """
    placed: dict[int, tuple[float | None, dict[str, float]]] = {}
    for source in sorted(sources):
        for point in sources[source]:
            if point.step is not None:
                epoch, values = placed.get(point.step, (None, {}))
                placed[point.step] = (point.epoch if point.epoch is not None else epoch, {**values, **point.values})
    if not placed:
        return list(_richest(sources.values()))
    return [Point(step=step, epoch=epoch, values=values) for step, (epoch, values) in sorted(placed.items())]


def _richest(series: Iterable[Sequence[Point]]) -> Sequence[Point]:
    return max(series, key=len, default=())
