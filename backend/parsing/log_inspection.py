"""All files of one folder that are logs into `LogFacts`: each file for itself, then one answer for the job.

Files of one job (console, trainer_log.jsonl, trainer_state.json) complete one another by trust; several consoles are
variants, whose common facts are the job's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from backend.errors import InvalidInput
from backend.parsing.console import ConsoleReader
from backend.parsing.console_facts import console_facts
from backend.parsing.host_facts import HostFacts, host_json, parse_host_facts
from backend.parsing.log_facts import STOPPED_CAUSES, LogFacts, unique
from backend.parsing.log_hints import LogHints, read_hints
from backend.parsing.performance import check_gpu_table
from backend.parsing.signatures import OWN, PEER, SIGNATURES
from backend.parsing.telemetry.rocm_smi import parse_concise
from backend.parsing.trainer_log_facts import trainer_log_facts, trainer_state_facts

_WEIGHTS: dict[str, int] = {}
for _one in SIGNATURES:
    _WEIGHTS[_one.code] = max(_WEIGHTS.get(_one.code, 0), _one.weight)
_NEARLY_ALL = 0.95
"""A source with this share of the points is as complete as the others: then the one with more digits speaks."""
_LOG_NAMES = (".log", ".out", ".err", ".txt", ".stdout", ".stderr")
_COMMON_FIELDS = (
    "points", "last_step", "total_steps", "first_failing_rank", "final_loss", "eval_points", "phase", "world_size",
    "resumed_from_step",
)  # fmt: skip
_NODE_NAME = re.compile(r"(?:node|host|rank|worker|gpu)[-_]?\w*\d")
_DRIVER_BYTES = re.compile(rb"VRAM Total Memory \(B\): (\d{9,13})")
_HOST_NAMES = ("env", "host", "environment", "versions", "system")


def is_log(name: str, data: bytes) -> bool:
    """By name, and by its first bytes when the name does not tell."""
    base = name.rsplit("/", 1)[-1].lower()
    if base in ("trainer_log.jsonl", "trainer_state.json") or base.endswith(_LOG_NAMES):
        return True
    return base.startswith("slurm-") or (base.endswith(".jsonl") and b'"current_steps"' in data[:2048])


def inspect_logs(files: Mapping[str, bytes]) -> LogFacts | None:
    """Facts of the logs among the files; None when there is none. Configuration beside them only helps to read them."""
    hints = read_hints(files)
    hosts = {
        name: parse_host_facts(data.decode("utf-8", "replace")) for name, data in files.items() if _is_host_file(name)
    }
    answers = {
        name: inspect_log(name, data, hints)
        for name, data in sorted(files.items())
        if is_log(name, data) and name not in hosts
    }
    tables = {name: facts for name, facts in answers.items() if facts.detected_format == "rocm_smi_table"}
    logs = {name: facts for name, facts in answers.items() if name not in tables}
    for name, host in hosts.items():
        answers[name] = inspect_table(files[name]) or _host_answer(host)
    if not logs:
        return _alone(answers)
    whole = next(iter(logs.values())) if len(logs) == 1 else _join(logs, hints)
    for table in tables.values():
        whole = replace(
            whole, warnings=unique([*whole.warnings, *table.warnings]), facts={**table.facts, **whole.facts}
        )
    whole = _with_hosts(whole, hosts)
    return replace(_with_capacity(whole, _driver_gib(files)), files=answers)


def read_log_facts(files: Mapping[str, bytes]) -> dict[str, object]:
    """The same as JSON, empty when there is no log."""
    facts = inspect_logs(files)
    return facts.to_json() if facts else {}


def inspect_log(name: str, data: bytes, hints: LogHints) -> LogFacts:
    """One log file."""
    base = name.rsplit("/", 1)[-1].lower()
    if base == "trainer_state.json":
        try:
            return trainer_state_facts(data)
        except InvalidInput as error:
            return LogFacts(
                detected_format="trainer_state", outcome="unknown", warnings=("log_line_cut",), evidence=(str(error),)
            )
    if base.endswith(".jsonl"):
        return trainer_log_facts(data, hints)
    if table := inspect_table(data):
        return table
    reader = ConsoleReader()
    reader.feed(data)
    reader.flush()
    facts = console_facts(reader, hints)
    return replace(facts, detected_format="llamafactory_running_log") if base == "running_log.txt" else facts


def inspect_table(data: bytes) -> LogFacts | None:
    """A table of rocm-smi; None for other texts."""
    rows = parse_concise(data.decode("utf-8", "replace"))
    if not rows:
        return None
    found = check_gpu_table(rows)
    return LogFacts(
        detected_format="rocm_smi_table", outcome="running", warnings=unique([one.code for one in found]),
        evidence=tuple(one.evidence for one in found), facts={"gpus": len(rows)},
    )  # fmt: skip


def _is_host_file(name: str) -> bool:
    base = name.rsplit("/", 1)[-1].lower()
    return base.endswith(".txt") and base.startswith(_HOST_NAMES)


def _host_answer(host: HostFacts) -> LogFacts:
    return LogFacts(detected_format="host_facts", errors=host.errors, warnings=host.warnings, facts=host_json(host))


def _alone(answers: Mapping[str, LogFacts]) -> LogFacts | None:
    """Only host files: the first one speaks."""
    if not answers:
        return None
    return replace(next(iter(answers.values())), files=answers)


def _with_hosts(whole: LogFacts, hosts: Mapping[str, HostFacts]) -> LogFacts:
    for host in hosts.values():
        whole = replace(
            whole, warnings=unique([*whole.warnings, *host.warnings]), facts={**host_json(host), **whole.facts}
        )
        whole = _with_capacity(whole, host.card_gib)
    return whole


def _driver_gib(files: Mapping[str, bytes]) -> float | None:
    """Memory of one card as rocm-smi or amd-smi prints it, in any of the files."""
    for data in files.values():
        if found := _DRIVER_BYTES.search(data[: 1 << 20]):
            return int(found[1]) / (1 << 30)
    return None


def _with_capacity(whole: LogFacts, card_gib: float | None) -> LogFacts:
    """Out of memory at a capacity far below the card's: PyTorch sees a partition or the wrong size."""
    capacity = whole.facts.get("capacity_gib")
    if (
        whole.root_cause != "gpu_oom"
        or card_gib is None
        or not isinstance(capacity, float)
        or capacity > 0.7 * card_gib
    ):
        return whole
    errors = unique(["gpu_capacity_mismatch" if code == "gpu_oom" else code for code in whole.errors])
    return replace(
        whole, root_cause="gpu_capacity_mismatch", errors=errors, facts={**whole.facts, "card_gib": round(card_gib, 2)}
    )


def _join(logs: Mapping[str, LogFacts], hints: LogHints) -> LogFacts:
    """One answer for several logs."""
    bases = {name.rsplit("/", 1)[-1].lower(): facts for name, facts in logs.items()}
    if _same_run(bases):
        return _merge_run(bases)
    if "console.log" in bases and len(bases) > 1:
        return bases["console.log"]
    return _with_kernels(_common(logs), list(logs.values()))


def _same_run(bases: Mapping[str, LogFacts]) -> bool:
    """A console and the trainer's own files: views of one job."""
    own = {"trainer_log.jsonl", "trainer_state.json", "running_log.txt"}
    return bool(own & bases.keys()) and len(bases.keys() - own) <= 1


def _merge_run(bases: Mapping[str, LogFacts]) -> LogFacts:
    """The console says how it ended; numbers come from the source with the most digits that has them."""
    order = ("trainer_state.json", "trainer_log.jsonl")
    rest = [name for name in bases if name not in order and name != "running_log.txt"]
    console = bases[rest[0]] if rest else None
    sources = [bases[name] for name in order if name in bases]
    base = console or bases.get("trainer_log.jsonl") or bases.get("trainer_state.json") or next(iter(bases.values()))
    if "running_log.txt" in bases:
        sources.append(bases["running_log.txt"])
    most = max(one.points or 0 for one in (base, *sources))
    richest = next(one for one in (*sources, base) if (one.points or 0) >= most * _NEARLY_ALL)
    merged = base
    for source in (richest, *sources):
        merged = _fill(merged, source, overwrite=source is richest and source is not base)
    errors = unique([code for one in (base, *sources) for code in one.errors])
    warnings = unique(
        [
            code
            for one in (base, *sources)
            for code in one.warnings
            if code != "step_unknown" or merged.last_step is None
        ]
    )
    return replace(merged, errors=errors, warnings=warnings, outcome=_joined_outcome(base, sources))


def _joined_outcome(base: LogFacts, sources: Sequence[LogFacts]) -> str | None:
    if base.outcome in ("failed", "stopped", "completed"):
        return base.outcome
    return next((one.outcome for one in sources if one.outcome == "completed"), base.outcome)


_NUMBERS = (
    "points", "eval_points", "first_loss", "final_loss", "final_loss_step", "min_loss", "best_eval_step", "best_eval_loss",
    "final_eval_loss", "last_step", "total_steps", "segments", "writers", "superseded_steps", "resumed_from_step",
    "remaining_seconds", "final_accuracy", "series", "final_values",
)  # fmt: skip


def _fill(into: LogFacts, source: LogFacts, *, overwrite: bool) -> LogFacts:
    changes = {}
    for name in _NUMBERS:
        value = getattr(source, name)
        empty = getattr(into, name) in (None, (), {}, 0)
        if value not in (None, (), {}) and (empty or (overwrite and name not in ("last_step", "resumed_from_step"))):
            changes[name] = value
    facts = {**source.facts, **into.facts}
    return replace(into, facts=facts, **changes)


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
