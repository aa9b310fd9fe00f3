"""Facts of several logs into one answer: views of one run complete one another, variants share what is common."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from backend.parsing.health import Point
from backend.parsing.log_facts import STOPPED_CAUSES, LogFacts, unique
from backend.parsing.signatures import OWN, PEER, SIGNATURES
from backend.parsing.sources import Source, merge_points
from backend.parsing.trainer_log_facts import with_series

_WEIGHTS: dict[str, int] = {}
for _one in SIGNATURES:
    _WEIGHTS[_one.code] = max(_WEIGHTS.get(_one.code, 0), _one.weight)
_OWN_NAMES = {
    "trainer_log.jsonl": Source.TRAINER_LOG, "trainer_state.json": Source.TRAINER_STATE, "running_log.txt": Source.RUNNING_LOG,
}  # fmt: skip
_COMMON_FIELDS = (
    "points", "last_step", "total_steps", "first_failing_rank", "final_loss", "eval_points", "phase", "world_size",
    "resumed_from_step",
)  # fmt: skip
_FILLED_FIELDS = (
    "last_step", "total_steps", "segments", "writers", "superseded_steps", "resumed_from_step", "remaining_seconds",
    "final_accuracy", "series", "final_values", "throughput",
)  # fmt: skip
_NODE_NAME = re.compile(r"(?:node|host|rank|worker|gpu)[-_]?\w*\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLog:
    """One file as read: its facts and the points that count in it."""

    name: str
    facts: LogFacts
    train: Sequence[Point] = ()
    evals: Sequence[Point] = ()

    @property
    def base(self) -> str:
        """File name without folders, in lower case."""
        return self.name.rsplit("/", 1)[-1].lower()

    @property
    def source(self) -> Source:
        """How far its numbers are trusted."""
        return _OWN_NAMES.get(self.base, Source.CONSOLE)


def join_logs(logs: Sequence[ReadLog]) -> LogFacts:
    """One answer for one or more logs of one folder."""
    if len(logs) == 1:
        return logs[0].facts
    if _same_run(logs):
        return _merge_run(logs)
    if main := next((log for log in logs if log.base == "console.log"), None):
        return main.facts
    return _with_kernels(_common({log.name: log.facts for log in logs}), [log.facts for log in logs])


def _same_run(logs: Sequence[ReadLog]) -> bool:
    """At most one console, and files that the trainer itself writes: views of one job."""
    sources = Counter(log.source for log in logs)
    return max(sources.values()) == 1 and len(sources) > 1


def _merge_run(logs: Sequence[ReadLog]) -> LogFacts:
    """The console says how the run ended; of each number the most trusted source speaks."""
    by_trust = sorted(logs, key=lambda log: -log.source)
    base = min(logs, key=lambda log: log.source).facts
    merged = base
    for log in by_trust:
        merged = _fill(merged, log.facts)
    train = merge_points({log.source: log.train for log in logs})
    evals = merge_points({log.source: log.evals for log in logs})
    merged = with_series(merged, train, [point for point in evals if "eval_loss" in point.values])
    return replace(
        merged, errors=_codes(logs, "errors"), notes=_codes(logs, "notes"),
        warnings=tuple(code for code in _codes(logs, "warnings") if code != "step_unknown" or merged.last_step is None),
        root_cause=next((log.facts.root_cause for log in (*reversed(by_trust),) if log.facts.root_cause), None),
        outcome=_joined_outcome(base, [log.facts for log in by_trust]),
    )  # fmt: skip


def _codes(logs: Sequence[ReadLog], name: str) -> tuple[str, ...]:
    return unique([code for log in sorted(logs, key=lambda one: one.source) for code in getattr(log.facts, name)])


def _joined_outcome(base: LogFacts, sources: Sequence[LogFacts]) -> str | None:
    if base.outcome in ("failed", "stopped", "completed"):
        return base.outcome
    return next((one.outcome for one in sources if one.outcome == "completed"), base.outcome)


def _fill(into: LogFacts, source: LogFacts) -> LogFacts:
    """Fields that `into` does not tell, from a source that does."""
    changes = {}
    for name in _FILLED_FIELDS:
        value = getattr(source, name)
        if value not in (None, (), {}) and getattr(into, name) in (None, (), {}):
            changes[name] = value
    return replace(into, facts={**source.facts, **into.facts}, **changes)


def _common(logs: Mapping[str, LogFacts]) -> LogFacts:
    """What variants share; the cause that most of them name, the more exact one when they are level.

    Logs of several nodes are views of one job: a node that only waited for another one names no cause.
    """
    facts = list(logs.values())
    causes = Counter(one.root_cause for one in facts if one.root_cause)
    own = {code: count for code, count in causes.items() if _WEIGHTS.get(code, OWN) > PEER} or dict(causes)
    root = max(own, key=lambda code: (own[code], _WEIGHTS.get(code, OWN)), default=None)
    speaker = next(
        (name for name, one in logs.items() if one.root_cause == root and root is not None), next(iter(logs))
    )
    changes: dict[str, object] = {}
    for name in _COMMON_FIELDS:
        values = {getattr(one, name) for one in facts}
        changes[name] = values.pop() if len(values) == 1 else None
    if root is not None and _are_nodes(logs):
        changes |= {"first_failing_node": speaker, "first_failing_rank": logs[speaker].first_failing_rank}
    return replace(
        logs[speaker], root_cause=root, outcome=_common_outcome(facts), detected_format=_common_format(facts),
        warnings=unique([code for one in facts for code in one.warnings]),
        notes=unique([code for one in facts for code in one.notes]), **changes,  # type: ignore[arg-type]
    )  # fmt: skip


def _are_nodes(logs: Mapping[str, LogFacts]) -> bool:
    return all(_NODE_NAME.search(name.rsplit("/", 1)[-1].lower()) for name in logs)


def _with_kernels(whole: LogFacts, facts: Sequence[LogFacts]) -> LogFacts:
    """The same job with two attention kernels: a flash kernel that is not faster had too little to do."""
    timed = [one.facts for one in facts if {"attention", "seconds_per_step"} <= one.facts.keys()]
    speeds = {str(one["attention"]): one["seconds_per_step"] for one in timed}
    flash, plain = speeds.get("FlashAttention-2"), speeds.get("torch SDPA")
    if whole.root_cause is not None or not isinstance(flash, float) or not isinstance(plain, float) or flash <= plain:
        return whole
    return replace(whole, root_cause="short_sequences", errors=unique([*whole.errors, "short_sequences"]))


def _common_outcome(facts: Sequence[LogFacts]) -> str | None:
    outcomes = {one.outcome for one in facts}
    if "failed" in outcomes:
        return "failed"
    if any(one.root_cause in STOPPED_CAUSES for one in facts):
        return "stopped"
    return outcomes.pop() if len(outcomes) == 1 else "unknown"


def _common_format(facts: Sequence[LogFacts]) -> str:
    failed = [one.detected_format for one in facts if one.outcome == "failed"]
    return Counter(failed or [one.detected_format for one in facts]).most_common(1)[0][0]
