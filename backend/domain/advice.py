"""Advice: one change that would make a run faster, with the numbers behind it and what else it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as default_of
from enum import StrEnum

from backend.domain.problem import Fix, Problem, Severity


class Effect(StrEnum):
    """What a change does to the result. An advice without effects computes the same training, only faster."""

    EFFECTIVE_BATCH = "effective_batch"
    ROW_ORDER = "row_order"
    LOSS = "loss"
    ROWS_DROPPED = "rows_dropped"
    ROUNDING = "rounding"
    PRECISION = "precision"


class Basis(StrEnum):
    """Where `gain` comes from."""

    ESTIMATE = "estimate"
    MEASURED = "measured"
    RULE = "rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """`code` names the rule (words of docs/speed.md). Texts are English, translated by `code` and `params`.

    `gain` is times faster in tokens without padding a second (None: not estimated), for this change alone; `gain_in_plan` is
    what it still adds when all advices of the list before it are taken. `evidence` holds the numbers that made the rule speak.
    `effects` is empty when the result stays the same; `effect_text` says it in words.
    """

    code: str
    severity: Severity
    field: str = ""
    found: str = ""
    expected: str = ""
    reason: str = ""
    remedy: str = ""
    evidence: Mapping[str, float] = default_of(default_factory=dict)
    gain: float | None = None
    gain_in_plan: float | None = None
    basis: Basis = Basis.ESTIMATE
    effects: tuple[Effect, ...] = ()
    effect_text: str = ""
    fix: Fix | None = None
    params: Mapping[str, str] = default_of(default_factory=dict)

    def to_problem(self) -> Problem:
        """The same as a finding of the preflight list."""
        return Problem(
            code=self.code,
            severity=self.severity,
            field=self.field,
            found=self.found,
            expected=self.expected,
            reason=self.reason,
            remedy=" ".join(part for part in (self.remedy, self.effect_text) if part),
            evidence=", ".join(f"{name} {value:.3g}" for name, value in self.evidence.items()),
            fix=self.fix,
            params=self.params,
        )
