"""A job's forecast in, trials to measure out, one at a time; measured results in, the next trial or the verdict out.

The candidates are all variants that do the same training (same rows a step). The memory plan throws out what cannot fit, the
step model orders the rest; each measurement corrects the model for candidates that share its settings. So few trials are
needed: the present settings first (everything is compared with them), then whatever promises most, until nothing left could
still win or the time is up. Why no search library: docs/adr/0007-tuner-without-optuna.md.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from backend.domain.problem import Fix
from backend.planning.flops import Utilization, count_flops, utilization
from backend.planning.memory import MemoryPlan, plan_memory
from backend.planning.speed import SpeedContext
from backend.planning.steptime import StepTime, mean_batch, predict_step
from backend.planning.variants import build_fix, describe_variant, enumerate_variants, rows_per_step
from backend.planning.workload import Attention, Checkpointing, Workload

MOST_TRIALS = 24
LOAD_SECONDS = 60.0
"""First guess of the time until a fresh process has loaded the model; replaced by the first measurement."""
SETUP_SECONDS = 6.0
"""First guess of what a trial costs beside its steps."""

STEPS_FOR_MEDIAN = 5
CLOSE, MOST_LEADERS = 0.92, 3
"""Candidates within this share of the best, and at most so many, are measured again at the end."""
WORTH = 1.02
"""A candidate must promise this much more than the best so far."""
OTHER_GROUP = 0.8
"""A candidate that needs a fresh process must promise clearly more than one that does not."""
MACHINE_SPREAD, SWITCH_SPREAD, NOISE, HOPE = 1.0, 0.25, 0.05, 2.0
"""Prior beliefs about log(measured / predicted): the machine as a whole, one switch, what no switch explains; and how many
standard deviations of hope a candidate is given."""


class Outcome(StrEnum):
    """How a trial ended. LOST: it took the whole process down."""

    OK = "ok"
    OOM = "oom"
    ERROR = "error"
    STOPPED = "stopped"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One candidate. `group`: trials of one group share a loaded model. `fix` turns the present document into this one."""

    id: str
    work: Workload
    label: str
    fix: Fix
    group: str
    predicted: StepTime
    memory: MemoryPlan
    rows_per_step: float

    @property
    def changes(self) -> Mapping[str, object]:
        """The trainer's own arguments among the changes; the rest belongs to the group's job."""
        return {name: value for name, value in self.fix.set.items() if not name.startswith("tunedeck.")}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """What was measured. Tokens are without padding, over all ranks, one number a measured step (None = not countable)."""

    trial: str
    outcome: Outcome
    error: str = ""
    step_seconds: tuple[float, ...] = ()
    tokens: tuple[int | None, ...] = ()
    padding: tuple[int | None, ...] = ()
    samples_per_step: int = 0
    peak_bytes: int | None = None
    wall_seconds: float = 0.0
    energy_joules: float | None = None
    energy_windows: tuple[float, ...] = ()
    """Joules per token of each time this trial was measured."""

    @property
    def energy_spread(self) -> float | None:
        """Half the distance between lowest and highest window, as a share of their mean; None when measured only once."""
        if len(self.energy_windows) < 2:
            return None
        return (max(self.energy_windows) - min(self.energy_windows)) / 2 / statistics.fmean(self.energy_windows)

    @property
    def tokens_per_second(self) -> float | None:
        """Of the middle step; with fewer than STEPS_FOR_MEDIAN all measured tokens over all measured seconds.

        A few steps hold more than their share of half-empty blocks (each shard of the data ends with one), and a shared host
        stalls now and then: both would weigh on a mean of a dozen steps far more than on the run.
        """
        counted = [tokens for tokens in self.tokens if tokens is not None]
        if len(counted) != len(self.step_seconds) or not counted or sum(self.step_seconds) <= 0:
            return None
        if len(counted) >= STEPS_FOR_MEDIAN and min(self.step_seconds) > 0:
            return statistics.median(self._rates())
        return sum(counted) / sum(self.step_seconds)

    @property
    def spread(self) -> float | None:
        """Of the steps' rates, as a share of their median: the median deviation, scaled to what would be a standard deviation
        of even noise. None with fewer than two steps."""
        rates = self._rates()
        if len(rates) < 2:
            return None
        middle = statistics.median(rates)
        return 1.4826 * statistics.median(abs(rate - middle) for rate in rates) / middle

    def _rates(self) -> list[float]:
        steps = zip(self.tokens, self.step_seconds, strict=False)
        return [tokens / seconds for tokens, seconds in steps if tokens and seconds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """State of one search: all candidates, the present settings first, and what was measured so far."""

    context: SpeedContext
    trials: tuple[Trial, ...]
    excluded: tuple[Trial, ...] = ()
    """Candidates that cannot fit by the memory plan."""
    results: tuple[TrialResult, ...] = ()

    def tell(self, result: TrialResult) -> Search:
        """A trial that was measured again counts as it was last, unless it failed then."""
        earlier = next((known for known in self.results if known.trial == result.trial), None)
        if earlier is not None and earlier.outcome is Outcome.OK and result.outcome is not Outcome.OK:
            return self
        others = tuple(known for known in self.results if known.trial != result.trial)
        return replace(self, results=(*others, result))

    def add(self, result: TrialResult) -> Search:
        """Further steps of a trial that was measured before: they count together with the earlier ones."""
        earlier = next((known for known in self.results if known.trial == result.trial), None)
        if earlier is None or earlier.outcome is not Outcome.OK or result.outcome is not Outcome.OK:
            return self.tell(result)
        return self.tell(
            replace(
                result,
                step_seconds=(*earlier.step_seconds, *result.step_seconds),
                tokens=(*earlier.tokens, *result.tokens),
                padding=(*earlier.padding, *result.padding),
                peak_bytes=max((peak for peak in (earlier.peak_bytes, result.peak_bytes) if peak), default=None),
                energy_joules=_both(earlier.energy_joules, result.energy_joules),
                energy_windows=(*earlier.energy_windows, *result.energy_windows),
            )
        )

    def find(self, trial_id: str) -> Trial:
        return next(trial for trial in self.trials if trial.id == trial_id)

    @property
    def base(self) -> Trial:
        return self.trials[0]


def _both(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


def close_leaders(search: Search) -> list[Trial]:
    """The best candidates that one measurement each cannot tell apart; empty when the first is clearly ahead."""
    measured = [(result.tokens_per_second or 0.0, result) for result in search.results if result.outcome is Outcome.OK]
    measured.sort(key=lambda pair: -pair[0])
    near = [result for rate, result in measured if rate >= CLOSE * measured[0][0]][:MOST_LEADERS]
    return [search.find(result.trial) for result in near] if len(near) > 1 else []


def begin_search(context: SpeedContext) -> Search:
    """Candidates for `context`, whose shape must be known (ValueError otherwise)."""
    if context.shape is None:
        raise ValueError("the model's shape is not known")
    variants = enumerate_variants(context.shape, context.work, context.lengths, context.abilities)
    trials = [_trial(context, index, work) for index, work in enumerate(variants)]
    base, rest = trials[0], trials[1:]
    rest.sort(key=lambda trial: -trial.predicted.tokens_per_second)
    possible = [trial for trial in rest if trial.memory.may_fit is not False]
    excluded = tuple(trial for trial in rest if trial.memory.may_fit is False)
    return Search(context=context, trials=(base, *possible), excluded=excluded)


def _trial(context: SpeedContext, index: int, work: Workload) -> Trial:
    shape = context.shape
    assert shape is not None
    return Trial(
        id=f"t{index}",
        work=work,
        label=describe_variant(work),
        fix=build_fix(context.work, work),
        group=group_of(work),
        predicted=predict_step(shape, work, context.lengths, context.machine),
        memory=plan_memory(shape, work, context.lengths, context.card, history=context.history),
        rows_per_step=rows_per_step(work, context.lengths),
    )


def group_of(work: Workload) -> str:
    """What a process must be started anew for: ZeRO, offloading, compiled code."""
    zero = "plain" if work.zero_stage is None else f"zero{work.zero_stage}"
    offload = "-offload" if work.offload_optimizer or work.offload_param else ""
    return f"{zero}{offload}{'-compile' if work.compile else ''}"


def next_trial(search: Search, *, seconds_left: float, loaded_group: str = "") -> Trial | None:
    """The trial to measure now; None when nothing left is likely to win by more than WORTH, or the time is up."""
    done = {result.trial for result in search.results}
    if search.base.id not in done:
        return search.base
    if len(done) >= MOST_TRIALS:
        return None
    best = best_result(search)
    # The step model is one of cards: without a card nothing is ruled out by it, it only says what to try first.
    target = WORTH * (best.tokens_per_second or 0.0) if best and search.context.card is not None else 0.0
    beliefs = _Beliefs(search)
    open_trials = [trial for trial in search.trials if trial.id not in done and not _ruled_out(search, trial)]
    promising = [(beliefs.hoped(trial), trial) for trial in open_trials if beliefs.hoped(trial) > target]
    affordable = [
        (hoped, trial)
        for hoped, trial in promising
        if trial_seconds(search, trial, loaded_group, beliefs.expected(trial)) < seconds_left
    ]

    def score(pair: tuple[float, Trial]) -> float:
        return pair[0] if not loaded_group or pair[1].group == loaded_group else OTHER_GROUP * pair[0]

    return max(affordable, key=score)[1] if affordable else None


def _ruled_out(search: Search, trial: Trial) -> bool:
    """A neighbour that needs no more memory has run out of it."""
    for result in search.results:
        if result.outcome is Outcome.OOM and search.find(result.trial).memory.used <= trial.memory.used:
            return True
    return False


def trial_seconds(search: Search, trial: Trial, loaded_group: str, rate: float | None = None) -> float:
    """Expected cost of a trial: loading if the group is another one, setting up, warm-up and steps."""
    load = LOAD_SECONDS if trial.group != loaded_group else 0.0
    found = _Beliefs(search).expected(trial) if rate is None else rate
    step = trial.predicted.tokens * search.context.work.world / found if found else trial.predicted.seconds
    warm_up, steps = steps_of(step)
    return load + SETUP_SECONDS + (warm_up + steps) * step


def steps_of(step_seconds: float) -> tuple[int, int]:
    """(warm-up, measured) steps: enough to average short steps, few when one alone takes long."""
    if step_seconds > 6:
        return 1, 2
    if step_seconds > 2:
        return 2, 3
    return 2, max(4, min(12, round(6 / max(step_seconds, 0.05))))


def corrected_rate(search: Search, trial: Trial) -> float:
    """Predicted tokens a second over all ranks, corrected by how far the measured trials were off."""
    return _Beliefs(search).expected(trial)


class _Beliefs:
    """How far the step model is off, learnt from the measured trials: a Bayesian linear regression of log(measured /
    predicted) on the settings. One term for the machine, one for each switch; little is believed of a switch before it is
    measured, and that uncertainty is what makes untried switches worth a trial."""

    def __init__(self, search: Search) -> None:
        told = [
            (features(search.find(result.trial).work), math.log(rate / _predicted(search.find(result.trial))))
            for result in search.results
            if result.outcome is Outcome.OK and (rate := result.tokens_per_second)
        ]
        prior = np.diag([1 / MACHINE_SPREAD**2] + [1 / SWITCH_SPREAD**2] * (FEATURES - 1))
        rows = np.array([row for row, _ in told]).reshape(len(told), FEATURES)
        values = np.array([value for _, value in told])
        self._covariance = np.linalg.inv(prior + rows.T @ rows / NOISE**2)
        self._mean = self._covariance @ (rows.T @ values) / NOISE**2

    def expected(self, trial: Trial) -> float:
        """Tokens a second over all ranks."""
        return _predicted(trial) * math.exp(float(np.array(features(trial.work)) @ self._mean))

    def hoped(self, trial: Trial) -> float:
        """What it may well reach: HOPE standard deviations above the expected."""
        row = np.array(features(trial.work))
        deviation = math.sqrt(float(row @ self._covariance @ row) + NOISE**2)
        return self.expected(trial) * math.exp(HOPE * deviation)


def _predicted(trial: Trial) -> float:
    return trial.predicted.tokens_per_second * trial.work.world


FEATURES = 9


def features(work: Workload) -> list[float]:
    """Settings as numbers: 1 for the machine itself, then each switch, then the size of the micro batch in octaves."""
    return [
        1.0,
        float(work.packing),
        float(work.liger),
        float(work.checkpointing is Checkpointing.NONE),
        float(work.attention is Attention.EAGER),
        float(work.attention is Attention.FA2),
        float(work.zero_stage is not None),
        float(work.compile),
        0.3 * math.log2(work.micro_batch * (work.cutoff if work.packing else 256) / 1024),
    ]


def best_result(search: Search) -> TrialResult | None:
    measured = [result for result in search.results if result.outcome is Outcome.OK and result.tokens_per_second]
    return max(measured, key=lambda result: result.tokens_per_second or 0.0, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRow:
    """One line of the result table."""

    trial: Trial
    result: TrialResult | None
    tokens_per_second: float | None
    samples_per_second: float | None
    use: Utilization | None
    joules_per_token: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningReport:
    """The whole search, best first; trials that were never measured (excluded, out of time) come last."""

    rows: tuple[TuningRow, ...]
    best: Trial | None
    base: Trial
    gain: float | None
    """Best over present settings, both measured; None when either is missing."""
    seconds: float
    stopped: str = ""
    """Why the search ended early, if it did."""
    excluded: int = 0
    """Candidates that cannot fit by the memory plan; they are among the rows."""
    lengths_estimate: str = ""
    """How the rows of a step were estimated when no tokenizer counted their tokens."""

    @property
    def best_fix(self) -> Fix | None:
        return None if self.best is None or self.best.id == self.base.id else self.best.fix


def report_search(
    search: Search, *, seconds: float, stopped: str = "", measured_matmul: float | None = None
) -> TuningReport:
    rows = [_row(search, trial, measured_matmul) for trial in (*search.trials, *search.excluded)]
    rows.sort(key=lambda row: (-(row.tokens_per_second or 0.0), row.result is None))
    best = best_result(search)
    base = next((result for result in search.results if result.trial == search.base.id), None)
    gain = None
    if best and base and best.tokens_per_second and base.tokens_per_second:
        gain = best.tokens_per_second / base.tokens_per_second
    lengths = search.context.lengths
    return TuningReport(
        rows=tuple(rows), best=search.find(best.trial) if best else None, base=search.base, gain=gain, seconds=seconds,
        stopped=stopped, excluded=len(search.excluded), lengths_estimate=lengths.estimate if lengths else "",
    )  # fmt: skip


def _row(search: Search, trial: Trial, measured_matmul: float | None) -> TuningRow:
    result = next((each for each in search.results if each.trial == trial.id), None)
    if result is None or result.outcome is not Outcome.OK:
        return TuningRow(
            trial=trial, result=result, tokens_per_second=None, samples_per_second=None, use=None, joules_per_token=None
        )
    seconds, rate = sum(result.step_seconds), result.tokens_per_second
    tokens = sum(count or 0 for count in result.tokens)
    rows = trial.rows_per_step * len(result.step_seconds)
    return TuningRow(
        trial=trial,
        result=result,
        tokens_per_second=rate,
        samples_per_second=rows / seconds if seconds else None,
        use=_use(search, trial, result, measured_matmul),
        joules_per_token=result.energy_joules / tokens if result.energy_joules is not None and tokens else None,
    )


def _use(search: Search, trial: Trial, result: TrialResult, measured_matmul: float | None) -> Utilization | None:
    """MFU of one GPU: FLOPs of the tokens that count (no padding, no recomputation)."""
    context = search.context
    rate = result.tokens_per_second
    if context.shape is None or rate is None:
        return None
    batch = mean_batch(trial.work, context.lengths)
    per_token = count_flops(
        context.shape, trial.work, sequences=1, length=batch.length, needed_only=True
    ).model_per_token
    return utilization(per_token * rate / trial.work.world, 1.0, context.peak, measured_matmul=measured_matmul)
