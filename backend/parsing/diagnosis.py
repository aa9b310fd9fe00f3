"""A failed job's console and exit into a Diagnosis: the cause, what proves it, what to do. Called when a job has ended.

A console of any size is read from two windows (its first and last megabytes); the caller does the reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from backend.domain.problem import Problem, Severity
from backend.parsing.causes import CAUSES, FINDINGS, cause_of, remedy_of
from backend.parsing.console import ConsoleReader
from backend.parsing.console_facts import console_facts
from backend.parsing.failure import Evidence
from backend.parsing.log_facts import STOPPED_CAUSES, LogFacts, unique
from backend.parsing.log_hints import NO_HINTS, LogHints

HEAD_BYTES = 1 << 20
TAIL_BYTES = 8 << 20
"""How much of both ends a caller should hand over: headers stand at the start, the failure at the end."""

_BY_SIGNAL = {1: "terminal_hangup", 2: "cancelled", 3: "cancelled", 9: "killed_without_reason", 15: "cancelled"}
_SECONDARY = {"killed_without_reason", "collective_timeout", "cancelled", "terminal_hangup"}
"""Causes that a record of the job may explain better: a person's stop is not a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRun:
    """What records other than the console say. None: not known. `stop_requested`: a person asked for the end."""

    exit_code: int | None = None
    signal: int | None = None
    last_step: int | None = None
    last_checkpoint_step: int | None = None
    phase: str | None = None
    stop_requested: bool = False
    error: str = ""


NOTHING_KNOWN = KnownRun()


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why a job ended. `root_cause` is a code of causes.py, None when nothing failed or nothing single can be named.

    `title` and `remedy` are English; pages translate by code (ui/text/diagnosis_zh.py) and fill in `facts`. `problems`
    lists the cause first, then what else is worth knowing. `outcome`: completed, failed, stopped, running or unknown.
    """

    outcome: str
    root_cause: str | None
    title: str
    remedy: str
    evidence: tuple[Evidence, ...] = ()
    suspects: tuple[str, ...] = ()
    first_failing_rank: int | None = None
    failing_ranks: tuple[int, ...] = ()
    reporting_ranks: tuple[int, ...] = ()
    phase: str | None = None
    last_step: int | None = None
    last_checkpoint_step: int | None = None
    incomplete_checkpoint_step: int | None = None
    problems: tuple[Problem, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)


def diagnose(console: bytes, known: KnownRun = NOTHING_KNOWN, hints: LogHints = NO_HINTS) -> Diagnosis:
    """Diagnose from a console that fits into memory."""
    reader = ConsoleReader()
    reader.feed(console)
    reader.flush()
    return diagnosis_of(reader, known, hints)


def diagnose_windows(
    head: bytes, tail: bytes, *, tail_offset: int, known: KnownRun = NOTHING_KNOWN, hints: LogHints = NO_HINTS
) -> Diagnosis:
    """Diagnose from both ends of a console. `tail` begins at byte `tail_offset`; what overlaps is read once."""
    reader = ConsoleReader()
    reader.feed(head)
    if tail_offset > len(head):
        reader.skip_to(tail_offset)
        reader.feed(tail)
    else:
        reader.feed(tail[len(head) - tail_offset :])
    reader.flush()
    return diagnosis_of(reader, known, hints)


def diagnosis_of(reader: ConsoleReader, known: KnownRun = NOTHING_KNOWN, hints: LogHints = NO_HINTS) -> Diagnosis:
    """Diagnose from a reader that has followed the console all along."""
    ended_badly = bool(known.exit_code or known.signal)
    facts = _with_exit(console_facts(reader, hints, failed=ended_badly), known)
    facts = _with_records(facts, known)
    numbers = {**facts.facts, **_known_numbers(facts)}
    title, remedy = _words(facts, numbers, known)
    verdict = reader.conclude(failed=ended_badly)
    proofs = tuple(verdict.root.evidence) if verdict.root else ()
    if not proofs and (text := verdict.exception.text if verdict.exception else known.error):
        proofs = (Evidence(text=text, offset=verdict.exception.offset if verdict.exception else -1),)
    return Diagnosis(
        outcome=facts.outcome or "unknown", root_cause=facts.root_cause, title=title, remedy=remedy, evidence=proofs,
        suspects=facts.suspects, first_failing_rank=facts.first_failing_rank, failing_ranks=facts.failing_ranks,
        reporting_ranks=facts.reporting_ranks, phase=facts.phase, last_step=facts.last_step,
        last_checkpoint_step=facts.last_checkpoint_step, incomplete_checkpoint_step=facts.incomplete_checkpoint_step,
        problems=_problems(facts, numbers, proofs), facts=numbers,
    )  # fmt: skip


def _with_exit(facts: LogFacts, known: KnownRun) -> LogFacts:
    """What the process's own end adds: a log may stop in the middle of a line."""
    if known.exit_code == 0 and known.signal is None:
        return replace(facts, outcome="completed", root_cause=None, errors=()) if facts.outcome == "failed" else facts
    signal = known.signal or (known.exit_code - 128 if known.exit_code and 128 < known.exit_code < 160 else None)
    told_more = facts.root_cause is not None and facts.root_cause not in _SECONDARY
    if signal in _BY_SIGNAL and not told_more:
        code = facts.root_cause or _BY_SIGNAL[signal]
        outcome = "stopped" if code in STOPPED_CAUSES else "failed"
        return replace(facts, root_cause=code, outcome=outcome, errors=unique([*facts.errors, code]))
    if (known.exit_code or signal) and facts.outcome in ("running", "unknown", "completed"):
        return replace(facts, outcome="failed")
    return facts


def _with_records(facts: LogFacts, known: KnownRun) -> LogFacts:
    """The recorder saw more than the console: its step, checkpoint and phase win; a wanted stop is no failure."""
    facts = replace(
        facts, last_step=facts.last_step if known.last_step is None else known.last_step,
        last_checkpoint_step=facts.last_checkpoint_step if known.last_checkpoint_step is None else known.last_checkpoint_step,
        phase=known.phase or facts.phase,
    )  # fmt: skip
    if known.stop_requested and (facts.root_cause is None or facts.root_cause in _SECONDARY):
        return replace(facts, outcome="stopped", root_cause="cancelled", errors=("cancelled",))
    return facts


def _known_numbers(facts: LogFacts) -> dict[str, object]:
    told = {
        "last_checkpoint_step": facts.last_checkpoint_step,
        "checkpoint_step": facts.resumed_from_step,
        "last_step": facts.last_step,
    }
    return {name: value for name, value in told.items() if value is not None}


def _words(facts: LogFacts, numbers: Mapping[str, object], known: KnownRun) -> tuple[str, str]:
    if facts.root_cause is not None:
        cause = cause_of(facts.root_cause)
        return cause.title, remedy_of(cause, numbers)
    if facts.outcome == "failed":
        said = facts.evidence[0] if facts.evidence else known.error
        how = (
            f"exit code {known.exit_code}"
            if known.exit_code
            else f"signal {known.signal}"
            if known.signal
            else "an error"
        )
        return (
            said[:160] if said else f"The job ended with {how}",
            "Look at the first error in the log; its text is not in the table of known causes.",
        )
    return "", ""


def _problems(facts: LogFacts, numbers: Mapping[str, object], proofs: tuple[Evidence, ...]) -> tuple[Problem, ...]:
    found = []
    if facts.root_cause is not None:
        cause = CAUSES[facts.root_cause]
        found.append(
            Problem(
                code=facts.root_cause, severity=Severity.ERROR, reason=cause.title, remedy=remedy_of(cause, numbers),
                evidence=proofs[0].text if proofs else "", params={name: str(value) for name, value in numbers.items()},
            )
        )  # fmt: skip
    for severity, codes in (
        (Severity.ERROR, facts.errors),
        (Severity.WARNING, facts.warnings),
        (Severity.NOTE, facts.notes),
    ):
        found += [_finding(code, severity, numbers) for code in codes if code != facts.root_cause]
    return tuple(found)


def _finding(code: str, severity: Severity, numbers: Mapping[str, object]) -> Problem:
    cause = FINDINGS.get(code) or CAUSES[code]
    return Problem(code=code, severity=severity, reason=cause.title, remedy=remedy_of(cause, numbers))
