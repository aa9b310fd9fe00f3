"""The series of a run into alarms: what is wrong with the numbers, what proves it, and what may cause it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from backend.domain.problem import Severity
from backend.parsing.alarms import Alarm, Number

INITIAL_LOSS_HIGH = 12.5
"""An untrained model of 150,000 words guesses at ln(150000) = 11.9: a first loss above that is no guess, it is broken."""
GRAD_NORM_HIGH = 100.0
GRAD_NORM_BROKEN = 1000.0
LEARNING_RATE_HIGH = 2e-3
SPIKE_FACTOR = 2.0
BEYOND_NOISE = 5.0
"""So many times the spread that the values have anyway: what is nearer is no alarm."""
_BEND_OF_NOISE = 1.652
"""Median size of a second difference of Gaussian noise of spread 1: 0.6745 times the root of 6."""
DIVERGED_FACTOR = 1.5
EVAL_RISE = 1.01
EVAL_RISE_AT_ONCE = 1.05
_FEW = 3

_ACCURACY_KEYS = ("accuracy", "rewards/accuracies", "eval_rewards/accuracies")
_PREFERENCE_KEYS = (
    "rewards/accuracies",
    "rewards/margins",
    "accuracy",
    "rewards/chosen",
    "reward",
    "kl",
    "objective/kl",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One training or evaluation point. `step` None: the log does not tell."""

    step: int | None
    epoch: float | None
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """All findings on one run. `root_cause` and `suspects` (most likely first) only when the run is sick."""

    findings: tuple[Alarm, ...] = ()
    root_cause: str | None = None
    suspects: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)


def check_health(
    train: Sequence[Point],
    evals: Sequence[Point] = (),
    *,
    stage: str | None = None,
    fp16: bool = False,
    epochs: float | None = None,
) -> Health:
    """Look at the points of one run, oldest first. `stage`: pt, sft, rm, ppo, dpo or kto; `fp16`: it was asked for."""
    findings: list[Alarm] = []
    facts: dict[str, object] = {}
    losses = [(point.step, point.values["loss"]) for point in train if "loss" in point.values]
    norms = [(point.step, point.values["grad_norm"]) for point in train if "grad_norm" in point.values]
    rates = [(point.step, point.values["learning_rate"]) for point in train if "learning_rate" in point.values]
    preference = stage in ("dpo", "kto", "ppo", "rm") or any(
        key in point.values for point in train[-8:] for key in _PREFERENCE_KEYS
    )
    findings += _check_finite(losses, norms, preference, facts)
    findings += _check_norms(norms, facts)
    findings += _check_losses(losses)
    findings += _check_rates(rates, facts)
    findings += _check_evals(train, evals, epochs)
    findings += _check_accuracy(train)
    root, suspects = _weigh({one.code for one in findings}, train, fp16=fp16)
    return Health(findings=tuple(findings), root_cause=root, suspects=suspects, facts=facts)


def _check_finite(
    losses: Sequence[tuple[int | None, float]],
    norms: Sequence[tuple[int | None, float]],
    preference: bool,
    facts: dict[str, object],
) -> list[Alarm]:
    found = []
    bad_norms = [step for step, value in norms if not math.isfinite(value)]
    bad_losses = [step for step, value in losses if not math.isfinite(value)]
    dead = _tail_length(losses, lambda value: value == 0.0 or not math.isfinite(value))
    zero = _tail_length(losses, lambda value: value == 0.0)
    if bad_norms:
        facts["nan_grad_rows"] = len(bad_norms)
        alive = (
            bool(losses) and math.isfinite(losses[-1][1]) and losses[-1][1] != 0.0 and len(bad_norms) * 2 < len(norms)
        )
        code, severity = ("grad_norm_nan_sporadic", Severity.WARNING) if alive else ("grad_norm_nan", Severity.ERROR)
        found.append(
            Alarm(
                code=code,
                severity=severity,
                step=bad_norms[0],
                numbers={"bad": len(bad_norms), "rows": len(norms)},
            )
        )
    if bad_losses and dead:
        found.append(
            Alarm(
                code="loss_not_finite",
                severity=Severity.ERROR,
                step=bad_losses[0],
                numbers={"bad": len(bad_losses), "rows": len(losses)},
            )
        )
    healthy_zero = preference and not bad_norms
    if zero and (zero >= _FEW or bad_norms or zero == len(losses) > 1) and not healthy_zero:
        found.append(
            Alarm(
                code="loss_zero",
                severity=Severity.ERROR,
                step=losses[-zero][0],
                numbers={"rows": zero},
            )
        )
    return found


def _tail_length(rows: Sequence[tuple[int | None, float]], is_bad: object) -> int:
    count = 0
    for _, value in reversed(rows):
        if not is_bad(value):  # type: ignore[operator]
            break
        count += 1
    return count


def _check_norms(norms: Sequence[tuple[int | None, float]], facts: dict[str, object]) -> list[Alarm]:
    finite = [value for _, value in norms if math.isfinite(value)]
    if not finite:
        return []
    recent, top = median(finite[-5:]), max(finite)
    broken = recent >= GRAD_NORM_BROKEN or (
        len(finite) >= 6 and recent >= GRAD_NORM_HIGH and recent >= 50 * median(finite[:5])
    )
    if broken:
        facts["max_grad_norm_seen"] = top
        first = next(step for step, value in norms if value >= GRAD_NORM_HIGH)
        return [
            Alarm(
                code="grad_norm_high",
                severity=Severity.ERROR,
                step=first,
                numbers={"recent": recent, "top": top},
            )
        ]
    if recent >= GRAD_NORM_HIGH:
        return [Alarm(code="grad_norm_elevated", severity=Severity.NOTE, step=norms[-1][0], numbers={"recent": recent})]
    return []


def _check_losses(losses: Sequence[tuple[int | None, float]]) -> list[Alarm]:
    finite = [(step, value) for step, value in losses if math.isfinite(value)]
    if not finite:
        return []
    found = []
    first = finite[0][1]
    if first > INITIAL_LOSS_HIGH:
        found.append(
            Alarm(
                code="initial_loss_high",
                severity=Severity.WARNING,
                step=finite[0][0],
                numbers={"value": first},
            )
        )
    if diverging := _diverging(finite):
        found.append(diverging)
    elif spike := _spike(finite):
        found.append(spike)
    if flat := _flat(finite):
        found.append(flat)
    return found


def _diverging(losses: Sequence[tuple[int | None, float]]) -> Alarm | None:
    """The end lies far above the lowest part, farther than noise reaches, and came there by rising, not by one spike."""
    values = [value for _, value in losses]
    if len(values) < 5:
        return None
    width = max(1, len(values) // 8)
    smooth = [
        sum(values[max(0, at - width + 1) : at + 1]) / (at + 1 - max(0, at - width + 1)) for at in range(len(values))
    ]
    low_at = min(range(len(smooth)), key=smooth.__getitem__)
    after = smooth[low_at:]
    tail = values[-max(_FEW, len(values) // 6) :]
    if len(after) < _FEW or smooth[low_at] <= 0:
        return None
    rising = sum(b > a for a, b in itertools.pairwise(after)) / (len(after) - 1)
    usual = _noise(values) * math.sqrt(1 / len(tail) + 1 / width)
    if median(tail) < smooth[low_at] * math.exp(BEYOND_NOISE * usual):
        return None
    if min(tail) > smooth[low_at] * DIVERGED_FACTOR and rising >= 0.6 and after[-1] >= max(after) * 0.8:
        return Alarm(
            code="loss_diverging", severity=Severity.ERROR, step=losses[low_at][0],
            numbers={"low": values[low_at], "last": values[-1]},
        )  # fmt: skip
    return None


def _noise(values: Sequence[float]) -> float:
    """Spread of one value around its course, as a share of it: from second differences, which a trend leaves alone."""
    logs = [math.log(max(value, 1e-12)) for value in values]
    bends = [abs(a - 2 * b + c) for a, b, c in zip(logs, logs[1:], logs[2:], strict=False)]
    return median(bends) / _BEND_OF_NOISE if bends else 0.0


def _spike(losses: Sequence[tuple[int | None, float]]) -> Alarm | None:
    """One point far above those before it, farther than their noise. Steps up at an epoch's start are far smaller."""
    values = [value for _, value in losses]
    for at in range(_FEW, len(values)):
        before, value = values[max(0, at - 8) : at], values[at]
        usual = median(before)
        if usual <= 0 or value <= usual * SPIKE_FACTOR:
            continue
        spread = median(abs(one - usual) for one in before)
        context = values[max(0, at - 48) : at]
        if (
            value > usual + 6 * spread
            and value > usual * math.exp(BEYOND_NOISE * _noise(context))
            and value > 1.25 * max(context[1:])
        ):
            return Alarm(
                code="loss_spike",
                severity=Severity.WARNING,
                step=losses[at][0],
                numbers={"usual": usual, "value": value},
            )
    return None


def _flat(losses: Sequence[tuple[int | None, float]]) -> Alarm | None:
    """The very same loss again and again: nothing is learned."""
    values = [value for _, value in losses]
    if len(values) >= 8 and values[-1] != 0.0 and len(set(values[-8:])) == 1:
        return Alarm(
            code="loss_flat",
            severity=Severity.WARNING,
            step=losses[-8][0],
            numbers={"value": values[-1], "rows": 8},
        )
    return None


def _check_rates(rates: Sequence[tuple[int | None, float]], facts: dict[str, object]) -> list[Alarm]:
    step, top = max(rates, key=lambda row: row[1], default=(None, 0.0))
    if top < LEARNING_RATE_HIGH:
        return []
    facts["learning_rate"] = float(f"{top:.2g}")
    step = next(at for at, rate in rates if rate >= LEARNING_RATE_HIGH)
    return [Alarm(code="learning_rate_high", severity=Severity.WARNING, step=step, numbers={"value": top})]


def _check_evals(train: Sequence[Point], evals: Sequence[Point], epochs: float | None) -> list[Alarm]:
    series = [(point, point.values["eval_loss"]) for point in evals if "eval_loss" in point.values]
    if len(series) < 2:
        return []
    low = min(range(len(series)), key=lambda at: series[at][1])
    after = [value for _, value in series[low:]]
    if len(after) < 2 or after[-1] < after[0] * (EVAL_RISE if len(after) >= _FEW else EVAL_RISE_AT_ONCE):
        return []
    best, last = series[low][0], series[-1][0]
    found = [
        Alarm(
            code="eval_loss_rising", severity=Severity.WARNING, step=best.step,
            numbers={"low": after[0], "low_step": _told(best.step), "last": after[-1], "last_step": _told(last.step)},
        )
    ]  # fmt: skip
    losses = [point.values["loss"] for point in train if "loss" in point.values]
    if losses and losses[-1] < after[-1] * 0.75:
        found.append(
            Alarm(
                code="overfit_risk",
                severity=Severity.WARNING,
                step=best.step,
                numbers={"train": losses[-1], "evaluation": after[-1]},
            )
        )
    return found


def _told(step: int | None) -> Number:
    return "?" if step is None else step


def _check_accuracy(train: Sequence[Point]) -> list[Alarm]:
    """With few pairs in a batch the accuracy can only take a few values: it jumps, although nothing happened."""
    key = next((key for key in _ACCURACY_KEYS if any(key in point.values for point in train)), None)
    values = [point.values[key] for point in train if key is not None and key in point.values]
    if len(values) < _FEW or len(set(values)) == 1:
        return []
    for parts in (2, 3, 4, 5, 6, 8, 10, 12, 16):
        if all(abs(value * parts - round(value * parts)) < 1e-3 for value in values):
            return [Alarm(code="accuracy_coarse", severity=Severity.NOTE, numbers={"name": str(key), "parts": parts})]
    return []


def _weigh(codes: set[str], train: Sequence[Point], *, fp16: bool) -> tuple[str | None, tuple[str, ...]]:
    """The one cause to name, and what to look at first."""
    if codes & {"loss_zero", "grad_norm_nan", "loss_not_finite"}:
        likely = (
            ("learning_rate", "precision", "base_weights")
            if "learning_rate_high" in codes
            else ("precision", "base_weights", "learning_rate")
        )
        return "gradients_not_finite", likely
    if "grad_norm_high" in codes:
        if "learning_rate_high" in codes:
            return "gradient_explosion", ("learning_rate", "precision", "torch_build")
        return "gradient_explosion", ("torch_build", "attention_backend", "multi_gpu_transport")
    if "loss_diverging" in codes:
        rising = "learning_rate_high" in codes or _rises_with_rate(train)
        return ("lr_too_high", ("learning_rate", "precision")) if rising else (None, ("learning_rate", "precision"))
    return None, ()


def _rises_with_rate(train: Sequence[Point]) -> bool:
    """Loss and learning rate grow together (warm-up), or the loss left its minimum while the rate was near its peak."""
    rows = [
        (point.values["learning_rate"], point.values["loss"])
        for point in train
        if {"learning_rate", "loss"} <= point.values.keys()
    ]
    if len(rows) < 5:
        return False
    low = min(range(len(rows)), key=lambda at: rows[at][1])
    peak = max(rate for rate, _ in rows)
    return rows[low][0] < rows[-1][0] or rows[low][0] > 0.5 * peak
