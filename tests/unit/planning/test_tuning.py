"""The search against a made-up machine whose true speeds differ from the step model's."""

import random
from dataclasses import replace

import pytest

from backend.domain.job import JobSpec
from backend.planning.known_models import known_shape
from backend.planning.lengths import build_lengths
from backend.planning.memory import Card
from backend.planning.speed import SpeedContext
from backend.planning.tuning import (
    MOST_TRIALS,
    Outcome,
    Search,
    Trial,
    TrialResult,
    begin_search,
    best_result,
    corrected_rate,
    group_of,
    next_trial,
    report_search,
    steps_of,
    trial_seconds,
)
from backend.planning.variants import Abilities
from backend.planning.workload import Attention, Checkpointing, Workload
from tests.unit.planning.test_speed import H200, alpaca_like


def context(work: Workload | None = None, card: Card | None = H200) -> SpeedContext:
    return SpeedContext(
        spec=JobSpec(name="job", train={}),
        work=work or Workload(micro_batch=2, accumulation=8, attention=Attention.EAGER),
        shape=known_shape("Meta-Llama-3-8B"),
        lengths=alpaca_like(),
        card=card,
        abilities=Abilities(liger=True),
    )


def truth(trial: Trial, seed: int) -> float:
    """Tokens a second on the made-up machine: every switch is worth something else than predicted."""
    rng = random.Random(seed)
    factor = {name: rng.uniform(0.75, 1.3) for name in ("packing", "liger", "ckpt", "sdpa", "all", "micro")}
    work = trial.work
    rate = trial.predicted.tokens_per_second * factor["all"]
    for name, on in (
        ("packing", work.packing),
        ("liger", work.liger),
        ("ckpt", work.checkpointing is Checkpointing.NONE),
        ("sdpa", work.attention is Attention.SDPA),
        ("micro", work.micro_batch > 2),
    ):
        rate *= factor[name] if on else 1.0
    return rate


def measured(trial: Trial, rate: float) -> TrialResult:
    return TrialResult(trial=trial.id, outcome=Outcome.OK, step_seconds=(1.0, 1.0), tokens=(int(rate), int(rate)))


def search_all(search: Search, seed: int, seconds: float = 480.0) -> tuple[Search, float]:
    group, spent = "", 0.0
    while (trial := next_trial(search, seconds_left=seconds - spent, loaded_group=group)) is not None:
        spent += trial_seconds(search, trial, group)
        group = trial.group
        search = search.tell(measured(trial, truth(trial, seed)))
    return search, spent


@pytest.mark.parametrize("seed", range(12))
def test_search_ends_near_the_true_best_within_its_budget(seed: int) -> None:
    search, spent = search_all(begin_search(context()), seed)
    best = best_result(search)
    assert best is not None and best.tokens_per_second is not None
    true_best = max(truth(trial, seed) for trial in search.trials)
    assert best.tokens_per_second >= 0.95 * int(true_best)
    assert spent <= 480
    assert len(search.results) < len(search.trials)


def test_present_settings_are_measured_first() -> None:
    search = begin_search(context())
    first = next_trial(search, seconds_left=480)
    assert first is not None
    assert first.work == search.context.work and not first.fix.set and not first.fix.remove


def test_every_candidate_sees_the_same_rows_a_step() -> None:
    for trial in begin_search(context()).trials:
        assert trial.rows_per_step == pytest.approx(16, rel=0.101)


def test_what_cannot_fit_is_left_out_and_listed() -> None:
    search = begin_search(context(card=Card(capacity_bytes=22 << 30)))
    assert search.excluded
    assert all(trial.memory.may_fit is False for trial in search.excluded)
    listed = {row.trial.id for row in report_search(search, seconds=1).rows}
    assert {trial.id for trial in search.excluded} <= listed


def test_out_of_memory_rules_out_everything_larger() -> None:
    search = begin_search(context())
    smallest = min(search.trials, key=lambda trial: trial.memory.used)
    search = search.tell(measured(search.base, 1000.0)).tell(TrialResult(trial=smallest.id, outcome=Outcome.OOM))
    assert next_trial(search, seconds_left=480) is None


def test_measurements_correct_similar_candidates_most() -> None:
    search = begin_search(context())
    packed = next(trial for trial in search.trials if trial.work.packing and trial.work.liger)
    alike = next(t for t in search.trials if t.work == replace(packed.work, attention=Attention.SDPA))
    before = corrected_rate(search, alike), corrected_rate(search, search.base)
    told = search.tell(measured(packed, packed.predicted.tokens_per_second / 2))
    told = told.tell(measured(search.base, search.base.predicted.tokens_per_second))
    assert corrected_rate(told, alike) < 0.75 * before[0]
    assert corrected_rate(told, search.base) > 0.85 * before[1]


def test_no_time_left_means_no_trial() -> None:
    search = begin_search(context()).tell(measured(begin_search(context()).base, 1000.0))
    assert next_trial(search, seconds_left=1.0, loaded_group="plain") is None


def test_heavier_zero_is_never_tried_lighter_is() -> None:
    search = begin_search(context(Workload(micro_batch=2, accumulation=8, zero_stage=2)))
    assert {trial.group for trial in search.trials} == {"zero2", "plain"}
    assert {trial.group for trial in begin_search(context()).trials} == {"plain"}
    assert group_of(Workload(zero_stage=3, offload_param=True, compile=True)) == "zero3-offload-compile"


def test_report_has_the_best_first_and_its_gain_over_the_present_settings() -> None:
    search, spent = search_all(begin_search(context()), 3)
    report = report_search(search, seconds=spent)
    rates = [row.tokens_per_second for row in report.rows if row.tokens_per_second is not None]
    assert rates == sorted(rates, reverse=True)
    assert report.best is not None and report.rows[0].trial == report.best
    assert report.gain is not None and report.gain > 4
    assert report.rows[0].use is not None and report.rows[0].use.of_peak is None  # no card named: no MFU


def test_failed_trials_have_no_rate() -> None:
    search = begin_search(context())
    search = search.tell(TrialResult(trial=search.base.id, outcome=Outcome.ERROR, error="RuntimeError: boom"))
    report = report_search(search, seconds=1)
    assert (report.best, report.gain, report.best_fix) == (None, None, None)
    assert next(row for row in report.rows if row.result).tokens_per_second is None


def test_tokens_that_could_not_be_counted_give_no_rate() -> None:
    result = TrialResult(trial="t", outcome=Outcome.OK, step_seconds=(1.0, 1.0), tokens=(5, None))
    assert result.tokens_per_second is None
    assert TrialResult(trial="t", outcome=Outcome.OK, step_seconds=(1.0,), tokens=(5,)).spread is None


def test_long_steps_are_measured_less_often() -> None:
    assert steps_of(20.0) == (1, 2)
    assert steps_of(0.5)[1] >= 4


def test_context_without_a_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        begin_search(replace(context(), shape=None))
    assert build_lengths([1]) is not None


def test_without_a_card_the_step_model_rules_nothing_out() -> None:
    search, spent = search_all(begin_search(context(card=None)), seed=1, seconds=1e6)
    assert len(search.results) == min(MOST_TRIALS, len(search.trials)) and spent < 1e6
    with_card, _ = search_all(begin_search(context()), seed=1, seconds=1e6)
    assert len(with_card.results) < len(search.results)


def test_energy_has_a_spread_once_it_was_measured_twice() -> None:
    search = begin_search(context())
    first = replace(measured(search.base, 1000.0), energy_joules=100.0, energy_windows=(0.10,))
    assert first.energy_spread is None
    (both,) = search.tell(first).add(replace(first, energy_windows=(0.12,))).results
    assert both.energy_spread == pytest.approx(0.01 / 0.11)
