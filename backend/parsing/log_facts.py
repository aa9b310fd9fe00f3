"""What the readers of one file found into one record in the words of pages and checks: `LogFacts`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

STOPPED_CAUSES = frozenset({"time_limit", "cancelled", "terminal_hangup", "node_terminated"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """Everything a log tells. None: it does not tell. Codes are those of docs/diagnosis.md.

    `points` counts training points after copies and superseded steps are left out; `series` names what else can be drawn;
    `facts` holds further numbers of the one finding. Losses are the trainer's own; seconds everywhere.
    """

    detected_format: str
    outcome: str | None = None
    phase: str | None = None
    job: str | None = None
    stage: str | None = None
    root_cause: str | None = None
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    first_failing_rank: int | None = None
    first_printing_rank: int | None = None
    first_failing_node: int | str | None = None
    failing_ranks: tuple[int, ...] = ()
    reporting_ranks: tuple[int, ...] = ()
    hsa_node: int | None = None
    last_step: int | None = None
    total_steps: int | None = None
    points: int | None = None
    eval_points: int | None = None
    first_loss: float | None = None
    final_loss: float | None = None
    final_loss_step: int | None = None
    min_loss: float | None = None
    best_eval_step: int | None = None
    best_eval_loss: float | None = None
    final_eval_loss: float | None = None
    final_accuracy: float | None = None
    final_values: Mapping[str, float] = field(default_factory=dict)
    series: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    segments: int | None = None
    launches: int | None = None
    writers: int | None = None
    processes: int | None = None
    processes_ok: int | None = None
    hosts: int | None = None
    world_size: int | None = None
    resumed_from_step: int | None = None
    superseded_steps: tuple[int, ...] = ()
    last_checkpoint_step: int | None = None
    incomplete_checkpoint_step: int | None = None
    remaining_seconds: float | None = None
    skipped_steps: int | None = None
    skipped_steps_by_engine: Mapping[str, int] = field(default_factory=dict)
    loss_scale: float | None = None
    throughput: float | None = None
    timed_steps: int | None = None
    unknown_keys: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
    files: Mapping[str, LogFacts] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Fields that are told, as JSON. The lists of codes are always there: nothing found is an answer too."""
        told = {one.name: _plain(getattr(self, one.name)) for one in fields(self)}
        kept = ("errors", "warnings", "notes", "root_cause")
        return {name: value for name, value in told.items() if name in kept or value not in (None, [], {})}


def unique(codes: Sequence[str]) -> tuple[str, ...]:
    """In order, each once."""
    return tuple(dict.fromkeys(codes))


def _plain(value: object) -> object:
    if isinstance(value, LogFacts):
        return value.to_json()
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
