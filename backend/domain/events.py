"""Events of a job: small frozen records, one JSON object a line in events.jsonl, newest last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from backend.domain.job import JobState, StopMode, TerminationReason
from backend.domain.problem import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged:
    """The job went to `state`; `reason` and `message` are given for final states."""

    kind: ClassVar[str] = "state"
    at: float
    state: JobState
    reason: TerminationReason | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved:
    """A checkpoint is complete on every rank."""

    kind: ClassVar[str] = "checkpoint"
    at: float
    step: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """A person (or the time limit) asked for the end of the run."""

    kind: ClassVar[str] = "stop_requested"
    at: float
    mode: StopMode


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveRequested:
    """A person asked for a checkpoint now."""

    kind: ClassVar[str] = "save_requested"
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequested:
    """A person asked where the time of the next steps goes."""

    kind: ClassVar[str] = "profile_requested"
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something a person should know; `code` is a Problem code. `step`: since when.

    `evidence`: what proves it, in English; `numbers` are those in it, for other languages: the words are found by `form`
    (the code itself when "").
    """

    kind: ClassVar[str] = "alert"
    at: float
    code: str
    severity: Severity
    message: str
    evidence: str = ""
    step: int | None = None
    form: str = ""
    numbers: Mapping[str, int | float | str] = field(default_factory=dict)


Event = StateChanged | CheckpointSaved | StopRequested | SaveRequested | ProfileRequested | Alert


def saved_checkpoints(events: Iterable[Event]) -> dict[str, int]:
    """Folder (relative to the output folder) to step of every complete checkpoint, oldest first."""
    return {event.path: event.step for event in events if isinstance(event, CheckpointSaved)}
