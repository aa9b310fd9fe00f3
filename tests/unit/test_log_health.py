"""Alarms on the numbers: each with a healthy twin that must stay silent."""

from __future__ import annotations

import math
import random

import pytest

from backend.parsing.health import Health, Point, check_health
from backend.parsing.sources import Source, merge_points


def series(
    losses: list[float], *, norms: list[float] | None = None, rates: list[float] | None = None, **more: float
) -> list[Point]:
    norms = norms or [1.0] * len(losses)
    rates = rates or [1e-5] * len(losses)
    rows = zip(losses, norms, rates, strict=True)
    return [
        Point(
            step=(at + 1) * 10, epoch=at / 10, values={"loss": loss, "grad_norm": norm, "learning_rate": rate, **more}
        )
        for at, (loss, norm, rate) in enumerate(rows)
    ]


def codes(health: Health) -> set[str]:
    return {one.code for one in health.findings}


FALLING = [2.0, 1.8, 1.65, 1.5, 1.42, 1.35, 1.3, 1.26, 1.22, 1.2, 1.18, 1.17]
NOISY = [2.0, 1.7, 2.1, 1.6, 1.9, 1.5, 1.8, 1.4, 1.7, 1.45, 1.6, 1.4]


@pytest.mark.parametrize("losses", [FALLING, NOISY, [1.0] * 3, [5.0], [], [11.8, 9.0, 7.0, 5.5]])
def test_ordinary_runs_raise_no_alarm(losses: list[float]) -> None:
    health = check_health(series(losses))
    assert (codes(health), health.root_cause) == (set(), None)


@pytest.mark.parametrize(
    ("losses", "code"),
    [
        ([*FALLING, 6.0, 1.15, 1.14], "loss_spike"),
        ([2.0, 1.5, 1.2, 1.1, 1.4, 1.9, 2.6, 3.4, 4.3, 5.1], "loss_diverging"),
        ([2.0, 0.0, 0.0, 0.0], "loss_zero"),
        ([15.0, 9.0, 8.0], "initial_loss_high"),
        ([1.337] * 9, "loss_flat"),
        ([1.2, 1.1, math.nan, math.nan], "loss_not_finite"),
    ],
)
def test_a_sick_loss_is_told_apart(losses: list[float], code: str) -> None:
    assert code in codes(check_health(series(losses)))


@pytest.mark.parametrize("kind", ["gauss", "lognormal"])
def test_the_noise_of_small_batches_is_no_divergence_and_no_spike(kind: str) -> None:
    """At every length that a run passes through, as a live look meets them."""
    dice = random.Random(7)
    falling = [0.8 + 1.7 * math.exp(-at / 50) for at in range(200)]
    spread = {"gauss": lambda: 1 + dice.gauss(0, 0.25), "lognormal": lambda: math.exp(dice.gauss(0, 0.3))}[kind]
    losses = [max(0.05, loss * spread()) for loss in falling]
    told = {code for end in range(12, 200, 4) for code in codes(check_health(series(losses[:end])))}
    assert told == set()


def test_a_rise_out_of_the_noise_is_a_divergence() -> None:
    dice = random.Random(7)
    course = [2.5 - at / 50 for at in range(60)] + [1.3 * 1.05**at for at in range(40)]
    noisy = [loss * (1 + dice.gauss(0, 0.15)) for loss in course]
    assert "loss_diverging" in codes(check_health(series(noisy)))


def test_a_spike_that_heals_is_no_divergence() -> None:
    assert codes(check_health(series([*FALLING, 6.0, 1.15, 1.14]))) == {"loss_spike"}


def test_divergence_is_blamed_on_the_rate_only_when_they_rise_together() -> None:
    rising = [2.0, 1.5, 1.2, 1.1, 1.4, 1.9, 2.6, 3.4, 4.3, 5.1]
    decayed = [1e-5, 9e-6, 8e-6, 3e-6, 3e-6, 2e-6, 2e-6, 1e-6, 1e-6, 1e-6]
    assert check_health(series(rising, rates=decayed)).root_cause is None
    warm_up = [1e-6 * (at + 1) for at in range(10)]
    assert check_health(series(rising, rates=warm_up)).root_cause == "lr_too_high"


def test_zero_loss_is_healthy_in_preference_training_and_dead_in_sft() -> None:
    zeros = [0.4, 0.1, 0.0, 0.0, 0.0]
    assert "loss_zero" in codes(check_health(series(zeros)))
    assert "loss_zero" in codes(check_health(series(zeros), stage="sft"))
    assert "loss_zero" not in codes(check_health(series(zeros), stage="dpo"))
    assert "loss_zero" not in codes(check_health(series(zeros, **{"rewards/accuracies": 1.0})))


def test_some_rows_without_a_norm_are_skipped_steps_and_all_are_a_dead_run() -> None:
    nan = math.nan
    some = check_health(series(FALLING, norms=[1.0, nan] + [1.0] * 10))
    assert (codes(some), some.root_cause) == ({"grad_norm_nan_sporadic"}, None)
    dead = check_health(series([0.0] * 5, norms=[nan] * 5))
    assert (codes(dead), dead.root_cause) == ({"grad_norm_nan", "loss_zero"}, "gradients_not_finite")


def test_a_broken_norm_is_an_error_and_a_large_one_a_note() -> None:
    broken = check_health(series(FALLING, norms=[4000.0] * 12))
    assert (codes(broken), broken.root_cause) == ({"grad_norm_high"}, "gradient_explosion")
    assert codes(check_health(series(FALLING, norms=[150.0] * 12))) == {"grad_norm_elevated"}


def evaluations(losses: list[float]) -> list[Point]:
    return [Point(step=(at + 1) * 100, epoch=None, values={"eval_loss": loss}) for at, loss in enumerate(losses)]


def test_a_rising_evaluation_is_seen_and_noise_is_not() -> None:
    assert "eval_loss_rising" in codes(check_health(series(FALLING), evaluations([1.5, 1.3, 1.35, 1.45])))
    assert "eval_loss_rising" not in codes(check_health(series(FALLING), evaluations([1.5, 1.3, 1.301, 1.299])))
    assert "eval_loss_rising" not in codes(check_health(series(FALLING), evaluations([1.5, 1.3, 1.31])))


def test_coarse_accuracy_is_a_note_only_when_it_is_coarse() -> None:
    coarse = series(FALLING[:4])
    for point, value in zip(coarse, (0.25, 0.5, 0.75, 1.0), strict=True):
        point.values["rewards/accuracies"] = value  # type: ignore[index]
    assert "accuracy_coarse" in codes(check_health(coarse))
    for point, value in zip(coarse, (0.251, 0.517, 0.702, 0.913), strict=True):
        point.values["rewards/accuracies"] = value  # type: ignore[index]
    assert "accuracy_coarse" not in codes(check_health(coarse))


def test_the_most_trusted_source_speaks_and_the_others_fill_in() -> None:
    console = [
        Point(step=10, epoch=0.1, values={"loss": 1.23, "grad_norm": 0.5}),
        Point(step=20, epoch=0.2, values={"loss": 1.1}),
    ]
    log = [Point(step=10, epoch=0.1003, values={"loss": 1.2345})]
    merged = merge_points({Source.TRAINER_LOG: log, Source.CONSOLE: console})
    assert [(point.step, dict(point.values)) for point in merged] == [
        (10, {"loss": 1.2345, "grad_norm": 0.5}),
        (20, {"loss": 1.1}),
    ]
    assert merged[0].epoch == 0.1003


def test_points_without_steps_count_only_when_no_source_knows_steps() -> None:
    blind = [Point(step=None, epoch=0.1, values={"loss": 2.0})]
    assert merge_points({Source.CONSOLE: blind}) == blind
    assert (
        len(merge_points({Source.CONSOLE: blind, Source.TRAINER_LOG: [Point(step=5, epoch=0.1, values={"loss": 2.0})]}))
        == 1
    )
