"""All files of one folder that are logs into `LogFacts`: each file for itself, then one answer for the job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from backend.errors import InvalidInput
from backend.parsing.console import ConsoleReader
from backend.parsing.console_facts import console_facts
from backend.parsing.console_series import points_of, read_series
from backend.parsing.host_facts import HostFacts, host_json, parse_host_facts
from backend.parsing.log_facts import LogFacts, unique
from backend.parsing.log_hints import LogHints, read_hints
from backend.parsing.log_joining import ReadLog, join_logs
from backend.parsing.performance import check_gpu_table
from backend.parsing.telemetry.rocm_smi import parse_concise
from backend.parsing.trainer_log import TrainerLog
from backend.parsing.trainer_log_facts import facts_of_log, plain_points, trainer_state_facts
from backend.parsing.trainer_state import parse_trainer_state

_LOG_NAMES = (".log", ".out", ".err", ".txt", ".stdout", ".stderr")
_DRIVER_MEMORY = (
    (re.compile(rb"VRAM Total Memory \(B\): (\d{9,13})"), 1),
    (re.compile(rb"(?i)\btotal_vram\"?:\s*(?:\{\s*\"value\":\s*)?(\d{4,7})\b"), 1 << 20),
    (
        re.compile(rb"(?i)\bvram\"?:\s(?:[^{}\[\]]|\{\s*\"){0,200}?\bsize\"?:\s*(?:\{\s*\"value\":\s*)?(\d{4,7})\b"),
        1 << 20,
    ),
)
"""Memory of a card as rocm-smi (bytes) and amd-smi (MB, which are MiB) print it, as text and as JSON."""
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
    read = [
        read_log(name, data, hints) for name, data in sorted(files.items()) if is_log(name, data) and name not in hosts
    ]
    tables = [log for log in read if log.facts.detected_format == "rocm_smi_table"]
    logs = [log for log in read if log not in tables]
    answers = {log.name: log.facts for log in read}
    for name, host in hosts.items():
        answers[name] = inspect_table(files[name]) or _host_answer(host)
    if not logs:
        return _alone(answers)
    whole = join_logs(logs)
    for table in tables:
        whole = replace(
            whole, warnings=unique([*whole.warnings, *table.facts.warnings]), facts={**table.facts.facts, **whole.facts}
        )  # fmt: skip
    whole = _with_hosts(whole, hosts)
    return replace(_with_capacity(whole, _driver_gib(files)), files=answers)


def read_log_facts(files: Mapping[str, bytes]) -> dict[str, object]:
    """The same as JSON, empty when there is no log."""
    facts = inspect_logs(files)
    return facts.to_json() if facts else {}


def read_log(name: str, data: bytes, hints: LogHints) -> ReadLog:
    """One log file, told by its name and content."""
    base = name.rsplit("/", 1)[-1].lower()
    if base == "trainer_state.json":
        return _read_state(name, data)
    if base.endswith(".jsonl"):
        return _read_trainer_log(name, data, hints)
    if table := inspect_table(data):
        return ReadLog(name=name, facts=table)
    return _read_console(name, data, hints)


def _read_state(name: str, data: bytes) -> ReadLog:
    try:
        state = parse_trainer_state(data)
    except InvalidInput as error:
        refused = LogFacts(
            detected_format="trainer_state", outcome="unknown", warnings=("log_line_cut",), evidence=(str(error),)
        )  # fmt: skip
        return ReadLog(name=name, facts=refused)
    return ReadLog(
        name=name, facts=trainer_state_facts(state), train=plain_points(state.train_rows), evals=plain_points(state.eval_rows)
    )  # fmt: skip


def _read_trainer_log(name: str, data: bytes, hints: LogHints) -> ReadLog:
    log = TrainerLog()
    log.feed(data)
    log.flush()
    rows = log.current()
    train, evals = [row for row in rows if row.is_train], [row for row in rows if "eval_loss" in row.values]
    return ReadLog(name=name, facts=facts_of_log(log, hints), train=plain_points(train), evals=plain_points(evals))


def _read_console(name: str, data: bytes, hints: LogHints) -> ReadLog:
    reader = ConsoleReader()
    reader.feed(data)
    reader.flush()
    facts = console_facts(reader, hints)
    if name.rsplit("/", 1)[-1].lower() == "running_log.txt":
        facts = replace(facts, detected_format="llamafactory_running_log")
    series = read_series(reader, hints)
    return ReadLog(name=name, facts=facts, train=points_of(series.train), evals=points_of(series.evals))


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
        for pattern, unit in _DRIVER_MEMORY:
            if found := pattern.search(data[: 1 << 20]):
                return int(found[1]) * unit / (1 << 30)
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
