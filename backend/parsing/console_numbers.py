"""A read console into further numbers and names: memory, time-outs, parts of a step, rates, rows of data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from backend.parsing.console import ConsoleReader
from backend.parsing.console_findings import ranks_without_device
from backend.parsing.console_series import Series
from backend.parsing.failure import Verdict
from backend.parsing.health import Health
from backend.parsing.log_hints import LogHints


def further_facts(
    reader: ConsoleReader, series: Series, verdict: Verdict, health: Health, hints: LogHints
) -> dict[str, object]:
    """What belongs to the one finding first, then what the run itself tells."""
    facts: dict[str, object] = {}
    if verdict.root is not None:
        facts |= {
            key: value
            for key, value in verdict.root.facts.items()
            if key not in ("hsa_node", "checkpoint_step", "lagging_rank")
        }
        facts["findings"] = len(verdict.root.texts) if verdict.root.code != "gpu_oom" else 1
        if verdict.root.code == "role_tag_mismatch" and reader.bars.data_bar is not None:
            facts |= {"dropped": verdict.root.count, "total": reader.bars.data_bar.total}
        if "name" in verdict.root.groups and (near := _nearest(verdict.root.groups["name"], hints.datasets)):
            facts["suggested"] = near
    if missing := ranks_without_device(hints):
        facts |= {"visible": hints.visible_devices, "processes": hints.processes, "ranks_without_device": missing}
    facts |= _rccl_facts(reader)
    facts |= _deepspeed_facts(reader)
    facts |= _run_facts(reader, series, hints)
    return {**facts, **health.facts}


def _nearest(name: str, known: Sequence[str]) -> str | None:
    stem = re.sub(r"\.jsonl?$", "", name)
    if stem in known and stem != name:
        return stem
    near = get_close_matches(stem, known, n=1, cutoff=0.75)
    return near[0] if near and near[0] != name else None


def _rccl_facts(reader: ConsoleReader) -> dict[str, object]:
    rccl = reader.rccl
    facts: dict[str, object] = {}
    for name in ("network", "provider", "nics", "interface"):
        if (value := getattr(rccl, name)) is not None:
            facts[name] = value
    if rccl.devices_with_warnings:
        devices = sorted(rccl.devices_with_warnings)
        facts |= {"local_gpu": devices[0]} if len(devices) == 1 else {"local_gpus": devices}
    if rccl.timeouts:
        first = rccl.timeouts[0]
        told = {
            "seq": first.sequence,
            "op": first.operation,
            "timeout_ms": first.timeout_ms,
            "ran_ms": first.ran_ms,
            "repeated": first.repeated,
        }
        facts |= {key: value for key, value in told.items() if value is not None}
    if rccl.fatal_after_seconds is not None:
        facts["fatal_after_seconds"] = rccl.fatal_after_seconds
    if rccl.stack:
        facts["stuck_at"] = rccl.stack[0]
    return facts


def _deepspeed_facts(reader: ConsoleReader) -> dict[str, object]:
    found = reader.deepspeed
    facts: dict[str, object] = {f"{name}_ms": value for name, value in found.times.items()}
    for name, value in (
        ("max_mem_gb", found.max_memory_gb),
        ("grad_accumulation", found.gradient_accumulation),
        ("param_groups", found.param_groups),
    ):
        if value is not None:
            facts[name] = value
    if found.killed:
        facts["killed_pids"] = list(dict.fromkeys(found.killed))
    return facts


def _run_facts(reader: ConsoleReader, series: Series, hints: LogHints) -> dict[str, object]:
    facts: dict[str, object] = {}
    if reader.rows.finals:
        facts |= {
            key: reader.rows.finals[-1][key] for key in ("train_runtime", "train_loss") if key in reader.rows.finals[-1]
        }
        facts |= _counted_steps(reader, series)
    if reader.bars.seconds_per_step is not None:
        facts["seconds_per_step"] = reader.bars.seconds_per_step
    runtimes = [row.values["eval_runtime"] for row in series.evals if "eval_runtime" in row.values]
    if runtimes:
        facts["eval_runtimes"] = runtimes
    if reader.job.attention is not None:
        facts["attention"] = reader.job.attention
    if reader.marks.ansi:
        facts["ansi"] = True
    if reader.marks.cut_dict:
        facts["cut_rows"] = 1
    if series.train:
        last = series.train[-1].values
        facts |= {
            key: last[key] for key in ("learning_rate", "epoch", "num_tokens") if key in last and key not in facts
        }
    facts |= _data_facts(reader) | reader.job.chat
    for name, value in (
        ("save_steps", hints.save_steps),
        ("launcher", hints.launcher),
        ("port", reader.failure.launcher.port),
        ("nodes", reader.failure.launcher.nodes),
    ):
        if value is not None and name not in facts:
            facts[name] = value
    return facts


def _counted_steps(reader: ConsoleReader, series: Series) -> dict[str, object]:
    """Without any step in the log, the closing rates bound the number of optimizer steps."""
    final = reader.rows.finals[-1]
    rate, seconds = final.get("train_steps_per_second"), final.get("train_runtime")
    if series.train or rate is None or seconds is None:
        return {}
    return {"max_optimizer_steps": int(rate * seconds)}


def _data_facts(reader: ConsoleReader) -> dict[str, object]:
    facts: dict[str, object] = {}
    bar = reader.bars.data_bar
    if bar is not None:
        facts |= {"done_examples": bar.done, "total_examples": bar.total, "phase_seconds": bar.elapsed}
        if bar.workers is not None:
            facts["workers"] = bar.workers
    if reader.job.gpus is not None:
        facts["gpus"] = reader.job.gpus
    return facts
