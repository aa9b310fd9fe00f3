"""What the recorder writes and the page draws: steps, logs and their series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One optimizer step of one rank. Seconds are wall time from step end to step end; tokens are without padding."""

    at: float
    rank: int
    step: int
    seconds: float
    data_seconds: float
    tokens: int | None
    peak_memory_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """One `on_log` of the trainer at full precision: `loss`, `grad_norm`, `learning_rate`, `eval_loss`, rewards ..."""

    at: float
    step: int
    epoch: float | None
    values: Mapping[str, float] = field(default_factory=dict)
