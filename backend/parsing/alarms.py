"""What is wrong with a run, as a record of numbers, into the English sentence that proves it. Chinese: ui/text/alarms_zh.py.

The name of a number tells how it is written: `..._seconds` as a duration, `..._share` as a percentage, any other as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from backend.domain.problem import Severity

Number = int | float | str

PROOFS: Mapping[str, str] = {
    "accuracy_coarse": "{name} moves in steps of 1/{parts}.",
    "data_starved": "{waiting_share} of the time of the last {steps} steps went by waiting for data.",
    "eval_loss_rising": "The evaluation loss rose from {low} (step {low_step}) to {last} (step {last_step}).",
    "grad_norm_elevated": "The gradient norm is {recent}.",
    "grad_norm_high": "The gradient norm is {recent}, its peak was {top}.",
    "grad_norm_nan": "The gradient norm is not a number in {bad} of {rows} rows.",
    "grad_norm_nan_sporadic": "The gradient norm is not a number in {bad} of {rows} rows.",
    "initial_loss_high": "The first loss is {value}; a model that only guesses has about 12.",
    "learning_rate_high": "The learning rate reaches {value}.",
    "loss_diverging": "The loss rose from {low} to {last}.",
    "loss_flat": "The loss is {value} in each of the last {rows} rows.",
    "loss_not_finite": "The loss is not a number in {bad} of {rows} rows.",
    "loss_scale_at_floor": "DeepSpeed skips steps: the loss scale is at its minimum of {scale}.",
    "loss_scale_collapse": "DeepSpeed has given up: “Current loss scale already at minimum”.",
    "loss_spike": "The loss jumped from {usual} to {value}.",
    "loss_zero": "The loss is exactly 0 in the last {rows} rows.",
    "overfit_risk": "The training loss is {train}, the evaluation loss {evaluation}.",
    "remaining_time_unreliable": "{file} says {said_seconds} to go; at the measured pace it is {measured_seconds}.",
    "slow_drift": "A step took {early_seconds} and takes {late_seconds} now.",
    "stalled": "No step for {silent_seconds}; a step usually takes {usual_seconds}.",
    "stalled.first": "No first step within {silent_seconds} of training.",
    "straggler": "Rank {rank} waits {wait_seconds} for data in a step, the others {others_seconds} "
    "({late_share} of the last {steps} steps).",
    "straggler.pace": "Rank {rank} takes {own_seconds} for a step, the others {others_seconds} "
    "({late_share} of the last {steps} steps).",
    "two_writers": "In {file} the rows of two runs take turns, near step {first} and near step {second}.",
    "two_writers.epoch": "In {file} the rows of two runs take turns, near epoch {first} and near epoch {second}.",
}
"""By form: the code of the alarm, or `code.variant` where one alarm has several proofs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """`step` is where it began, None when the log does not tell. `form` "" : the proof of the code itself."""

    code: str
    severity: Severity
    numbers: Mapping[str, Number] = field(default_factory=dict)
    step: int | None = None
    form: str = ""

    @property
    def evidence(self) -> str:
        """The numbers that prove it, in an English sentence."""
        return prove(self.form or self.code, self.numbers)


def prove(form: str, numbers: Mapping[str, Number], proofs: Mapping[str, str] = PROOFS) -> str:
    """The sentence of `form` with its numbers. Raises KeyError for an unknown form or a number that is missing."""
    return proofs[form].format_map({name: spell(name, value) for name, value in numbers.items()})


def spell(name: str, value: Number) -> str:
    """A number as people read it, by the unit in its name."""
    if isinstance(value, str):
        return value
    if name.endswith("_seconds"):
        return _spell_seconds(value)
    if name.endswith("_share"):
        return f"{value:.0%}"
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _spell_seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.3g} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"
