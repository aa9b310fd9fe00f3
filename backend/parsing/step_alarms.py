"""Times of the steps of one start of a run into alarms on its pace: it stands still, slows down, waits for data or for one rank.

What is slow once is no alarm: first steps (compilation, caches), single long waits and short bursts are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, median_low

from backend.domain.metrics import StepRecord
from backend.domain.problem import Severity
from backend.parsing.alarms import Alarm

WARM_UP_STEPS = 3
STALL_FACTOR = 10.0
STALL_SECONDS = 120.0
EARLY_STALL_SECONDS = 600.0
"""While a run has made fewer than EARLY_STEPS: a shape that was not met before is compiled for minutes."""
EARLY_STEPS = 8
NO_FIRST_STEP_SECONDS = 1800.0
DRIFT_FACTOR = 1.2
DRIFT_PER_POSITION = 1.15
DRIFT_LASTS_SECONDS = 180.0
DATA_SHARE = 0.25
DATA_SHARE_SEVERE = 0.5
SINGLE_WAITS = 3
STRAGGLER_SHARE = 0.15
PERSISTENT_SHARE = 0.75
RECENT = 64
_ENOUGH = 32
_ENOUGH_FOR_DRIFT = 96
_NARROWEST_WINDOW = 32
_WIDEST_WINDOW = 512
_BEYOND_NOISE = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """One step of all ranks. `seconds` of the slowest, `data_seconds` the longest wait for data; `positions`: tokens and
    padding that were computed. NaN = not reported. Pauses for evaluation and saving are in none of them."""

    step: int
    seconds: float
    data_seconds: float = math.nan
    positions: float = math.nan


def check_stall(
    seconds: Sequence[float], silent: float | None, *, step: int | None = None, least_seconds: float = STALL_SECONDS
) -> list[Alarm]:
    """`silent`: seconds since the last step that no evaluation or save explains. `seconds`: from one record to the next."""
    known = [one for one in seconds if math.isfinite(one)]
    if silent is None or len(known) < WARM_UP_STEPS:
        return []
    usual = median(known[-RECENT:])
    least = least_seconds if len(known) >= EARLY_STEPS else max(least_seconds, EARLY_STALL_SECONDS)
    if silent <= max(least, STALL_FACTOR * usual):
        return []
    numbers = {"silent_seconds": silent, "usual_seconds": usual}
    return [Alarm(code="stalled", severity=Severity.ERROR, step=step, numbers=numbers)]


def check_first_step(waited: float, *, begin_step: int = 0) -> list[Alarm]:
    """`waited`: seconds since training began, without any step. A resume skips the data seen before: it may take longer."""
    if waited <= NO_FIRST_STEP_SECONDS * (4 if begin_step else 1):
        return []
    numbers = {"silent_seconds": waited}
    return [Alarm(code="stalled", form="stalled.first", severity=Severity.ERROR, step=begin_step, numbers=numbers)]


def check_drift(rows: Sequence[Pace]) -> list[Alarm]:
    """Steps have become slower for good, also for the same number of tokens, and by more than they vary anyway."""
    rows = [row for row in rows[max(WARM_UP_STEPS, min(200, len(rows) // 8)) :] if math.isfinite(row.seconds)]
    if len(rows) < _ENOUGH_FOR_DRIFT:
        return []
    width = min(_WIDEST_WINDOW, max(_NARROWEST_WINDOW, len(rows) // 4))
    early, late = rows[:width], rows[-width:]
    usual = median(_seconds(early))
    if not _is_slower(early, late, _seconds, DRIFT_FACTOR) or sum(_seconds(late)) < DRIFT_LASTS_SECONDS:
        return []
    if min(median(_seconds(late[: width // 2])), median(_seconds(late[width // 2 :]))) < 1.15 * usual:
        return []  # a burst, or it is over
    counted = all(math.isfinite(row.positions) and row.positions > 0 for row in (*early, *late))
    if counted and not _is_slower(early, late, _seconds_per_position, DRIFT_PER_POSITION):
        return []  # the samples have become longer
    numbers = {"early_seconds": usual, "late_seconds": median(_seconds(late))}
    step = _begin_of_drift(rows, usual, max(8, width // 4))
    return [Alarm(code="slow_drift", severity=Severity.WARNING, step=step, numbers=numbers)]


def check_data(rows: Sequence[Pace]) -> list[Alarm]:
    """Much of the recent steps goes by waiting for data; a few longest waits (a new epoch, a cold cache) do not count."""
    recent = [row for row in rows[WARM_UP_STEPS:] if math.isfinite(row.seconds + row.data_seconds)][-RECENT:]
    if len(recent) < _ENOUGH:
        return []
    kept = sorted(recent, key=lambda row: row.data_seconds)[: len(recent) - SINGLE_WAITS]
    whole = sum(row.seconds for row in kept)
    share = sum(row.data_seconds for row in kept) / whole if whole > 0 else 0.0
    if share < DATA_SHARE:
        return []
    severity = Severity.ERROR if share >= DATA_SHARE_SEVERE else Severity.WARNING
    numbers = {"waiting_share": min(share, 1.0), "steps": len(recent)}
    return [Alarm(code="data_starved", severity=severity, step=recent[0].step, numbers=numbers)]


def check_stragglers(by_rank: Mapping[int, Sequence[StepRecord]]) -> list[Alarm]:
    """One rank is late in most of the recent steps, by its own wait for data or by its own pace.

    Ranks wait for one another in each step, so a rank that is late for its data does not take longer than the others: its
    wait shows it.
    """
    common = set.intersection(*({one.step for one in steps} for steps in by_rank.values())) if by_rank else set()
    shared = sorted(common)[WARM_UP_STEPS:][-RECENT:]
    if len(by_rank) < 2 or len(shared) < _ENOUGH:
        return []
    table = {rank: {one.step: one for one in steps} for rank, steps in by_rank.items()}
    whole = median(table[min(table)][step].seconds for step in shared)
    for form, value in (("straggler", _wait), ("straggler.pace", _own_seconds)):
        late = [found for rank in table if (found := _lateness(table, rank, shared, value, whole, form))]
        if late:
            return [max(late, key=lambda alarm: float(alarm.numbers["late_share"]))]
    return []


def _lateness(
    table: Mapping[int, Mapping[int, StepRecord]],
    rank: int,
    steps: Sequence[int],
    value: Callable[[StepRecord], float],
    whole: float,
    form: str,
) -> Alarm | None:
    own = [value(table[rank][step]) for step in steps]
    others = [median_low(value(rows[step]) for other, rows in table.items() if other != rank) for step in steps]
    excess = [mine - theirs for mine, theirs in zip(own, others, strict=True)]
    if not all(math.isfinite(one) for one in excess) or not whole > 0:
        return None
    behind = [one > STRAGGLER_SHARE / 2 * whole for one in excess]
    late = sum(behind) / len(steps)
    if late < PERSISTENT_SHARE or median(excess) <= STRAGGLER_SHARE * whole:
        return None
    name = "wait_seconds" if form == "straggler" else "own_seconds"
    numbers = {
        "rank": rank,
        name: median(own),
        "others_seconds": median(others),
        "late_share": late,
        "steps": len(steps),
    }
    return Alarm(
        code="straggler", form=form, severity=Severity.WARNING, step=steps[behind.index(True)], numbers=numbers
    )


def _wait(one: StepRecord) -> float:
    return one.data_seconds


def _own_seconds(one: StepRecord) -> float:
    return one.seconds


def _seconds(rows: Sequence[Pace]) -> list[float]:
    return [row.seconds for row in rows]


def _seconds_per_position(rows: Sequence[Pace]) -> list[float]:
    return [row.seconds / row.positions for row in rows]


def _is_slower(
    early: Sequence[Pace], late: Sequence[Pace], measure: Callable[[Sequence[Pace]], list[float]], factor: float
) -> bool:
    before, after = measure(early), measure(late)
    usual, now = median(before), median(after)
    noise = math.hypot(_error_of_median(before, usual), _error_of_median(after, now))
    return usual > 0 and now >= factor * usual and now - usual > _BEYOND_NOISE * noise


def _error_of_median(values: Sequence[float], middle: float) -> float:
    """Standard error of a median, from the median deviation (both as for Gaussian noise)."""
    spread = 1.4826 * median(abs(one - middle) for one in values)
    return 1.2533 * spread / math.sqrt(len(values))


def _begin_of_drift(rows: Sequence[Pace], usual: float, width: int) -> int:
    """First step of the last stretch in which every block is clearly slower than the first steps were."""
    begin = rows[-1].step
    for end in range(len(rows), width, -width):
        block = rows[end - width : end]
        if median(_seconds(block)) < 1.1 * usual:
            break
        begin = block[0].step
    return begin
