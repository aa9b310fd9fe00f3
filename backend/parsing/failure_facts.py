"""The text of a failure into its numbers and names (GiB tried, port, path, package ...)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_NUMBER = re.compile(r"^-?\d+$")
_FLOAT = re.compile(r"^-?\d+\.\d+$")
_TEXT_KEYS = frozenset(
    {"found", "minimum", "maximum", "package", "path", "name", "repo", "symbol", "op", "compiler", "value"}
)


def read_facts(code: str, groups: Mapping[str, str], text: str) -> dict[str, object]:
    """Named groups of the signature, and what the code's own reader adds."""
    facts: dict[str, object] = {key: _typed(key, value) for key, value in groups.items()}
    reader = _READERS.get(code)
    return facts | reader(text, facts) if reader else facts


def memory_gib(text: str, pattern: str) -> float | None:
    """The amount behind a pattern with two groups (number, unit), in GiB."""
    found = re.search(pattern, text)
    return float(found[1]) * _GIB[found[2]] if found else None


_GIB = {"KiB": 1 / (1 << 20), "MiB": 1 / 1024, "GiB": 1.0, "TiB": 1024.0, "bytes": 1 / (1 << 30)}
_AMOUNT = r"(\d+(?:\.\d+)?) ([KMGT]iB)"
_OOM_PARTS = (
    ("tried", rf"Tried to allocate {_AMOUNT}"),
    ("capacity", rf"total capacity of {_AMOUNT}"),
    ("free", rf"of which {_AMOUNT} is free"),
    ("process", rf"this process has {_AMOUNT} memory in use"),
    ("allocated", rf"{_AMOUNT} is allocated by PyTorch"),
    ("reserved_unallocated", rf"{_AMOUNT} is reserved by PyTorch but unallocated"),
)
_OLD_OOM = re.compile(
    rf"Tried to allocate {_AMOUNT} \(GPU (\d+); {_AMOUNT} total capacity; {_AMOUNT} already allocated; {_AMOUNT} free; "
    rf"{_AMOUNT} reserved"
)
_OTHER_PROCESS = re.compile(rf"Process (\d+) has {_AMOUNT} memory in use")


def _read_oom(text: str, _: Mapping[str, object]) -> dict[str, object]:
    facts: dict[str, object] = {}
    gib: dict[str, float] = {}
    for name, pattern in _OOM_PARTS:
        if found := re.search(pattern, text):
            facts[f"{name}_{found[2][:3].lower()}"] = float(found[1])
            gib[name] = float(found[1]) * _GIB[found[2]]
    if found := _OLD_OOM.search(text):
        names = ("tried", None, "capacity", "allocated", "free", "reserved")
        gib |= _read_old_oom(found, names, facts)
    if gpu := re.search(r"GPU (\d+)", text):
        facts["gpu"] = int(gpu[1])
    held = _held_elsewhere(text, gib)
    if held is not None:
        facts["held_elsewhere_gib"] = held
    if "reserved_unallocated" in gib and "tried" in gib:
        facts["fragmentation"] = gib["reserved_unallocated"] >= gib["tried"]
    return facts


def _read_old_oom(found: re.Match[str], names: tuple[str | None, ...], facts: dict[str, object]) -> dict[str, float]:
    """Text of torch before 2.1, all numbers in one pair of parentheses."""
    pairs = {"tried": (1, 2), "capacity": (4, 5), "allocated": (6, 7), "free": (8, 9), "reserved": (10, 11)}
    gib = {}
    for name in names:
        if name is not None:
            number, unit = (found[group] for group in pairs[name])
            facts[f"{name}_{unit[:3].lower()}"] = float(number)
            gib[name] = float(number) * _GIB[unit]
    return gib


def _held_elsewhere(text: str, gib: Mapping[str, float]) -> float | None:
    """GiB that are neither free nor this process's: only said by the numbers, never by the text."""
    named = {pid: float(number) * _GIB[unit] for pid, number, unit in _OTHER_PROCESS.findall(text)}
    others = sum(named.values())
    if others:
        return round(others, 2)
    if "capacity" not in gib or "free" not in gib:
        return None
    own = gib.get("process")
    if own is None:
        if "allocated" not in gib:  # the message is cut: nothing is known of this process
            return None
        own = gib["allocated"] + gib.get("reserved_unallocated", 0.0)
    held = gib["capacity"] - gib["free"] - own
    return round(held, 2) if held >= 1.0 else None


def _read_pin(text: str, facts: Mapping[str, object]) -> dict[str, object]:
    found = re.search(
        r"([\w-]+?)([<>=!~].*?) is required for a normal functioning of this module, but found [\w-]+==([\w.+-]*\w)",
        text,
    )
    if found is None:
        return {}
    bounds: dict[str, object] = {"package": found[1], "found": found[3]}
    for sign, version in re.findall(r"([<>=!~]=?)([\w.+-]+)", found[2].split(";")[0]):
        name = {
            ">=": "minimum",
            ">": "minimum",
            "<=": "maximum",
            "<": "maximum",
            "==": "exactly",
            "!=": "excluded",
        }.get(sign)
        if name:
            bounds.setdefault(name, version)
    return bounds


def _read_gated(text: str, facts: Mapping[str, object]) -> dict[str, object]:
    result: dict[str, object] = {}
    if status := re.search(r"\b(401|403) Client Error", text):
        result["status"] = int(status[1])
    if repo := re.search(r"huggingface\.co/((?!api/|datasets/)[\w.-]+/[\w.-]+?)(?:/|\.?(?:\s|$)|\.\n)", text):
        result["repo"] = repo[1]
    elif named := re.search(r"Access to model (\S+) is restricted", text):
        result["repo"] = named[1]
    if "authorized list" in text or "403" in str(result.get("status", "")):
        result["missing"] = "permission"
    elif "log in" in text or "authenticated" in text or result.get("status") == 401:
        result["missing"] = "token"
    return result


def _read_offline(text: str, facts: Mapping[str, object]) -> dict[str, object]:
    if found := re.search(r"Couldn't reach '?([\w./-]+?)'? on the Hub", text):
        return {"repo": found[1], "repo_kind": "dataset"}
    if found := re.search(
        r"couldn't find (?:it|them) in the cached files.*?([\w-]+/[\w.-]+) is not the path", text, re.DOTALL
    ):
        return {"repo": found[1], "repo_kind": "model"}
    return {}


def _read_batch(text: str, facts: Mapping[str, object]) -> dict[str, object]:
    flat = " ".join(text.split())
    if found := re.search(r"world_size (\d+) != (\d+) \* (\d+) \* (\d+)", flat):
        names = ("train_batch_size", "micro_batch", "accumulation", "world_size")
        return dict(zip(names, (int(part) for part in found.groups()), strict=True))
    if found := re.search(r"ds (\w+)=(\S+) vs hf \w+=(\S+)", flat):
        return {"deepspeed": _typed("", found[2]), "trainer": _typed("", found[3]), "key": found[1]}
    return {}


def _read_sequence(text: str, facts: Mapping[str, object]) -> dict[str, object]:
    found = re.search(r"DataLoader worker process (\d+)", text)
    return {"worker": int(found[1])} if found else {}


def _read_shared_memory(text: str, facts: Mapping[str, object]) -> dict[str, object]:
    pids = list(dict.fromkeys(int(pid) for pid in re.findall(r"DataLoader worker \(pid (\d+)\)", text)))
    return {"worker_pids": pids, "processes": len(pids)} if pids else {}


def _read_memory_fault(text: str, facts: Mapping[str, object]) -> dict[str, object]:
    return {"exit_signal": 6} if "Aborted" in text else {}


def _read_watchdog(text: str, facts: Mapping[str, object]) -> dict[str, object]:
    flat = text.replace("\n", "")
    found = re.search(r"watchdog got stuck for (\d+) seconds", flat)
    return {"heartbeat_seconds": int(found[1])} if found else {}


def _read_dataset(text: str, facts: Mapping[str, object]) -> dict[str, object]:
    name = str(facts.get("name", ""))
    return {"is_path": True} if "/" in name or "\\" in name else {}


_READERS: dict[str, Callable[[str, Mapping[str, object]], dict[str, object]]] = {
    "gpu_oom": _read_oom, "gpu_memory_held_elsewhere": _read_oom, "gpu_capacity_mismatch": _read_oom,
    "package_version_rejected": _read_pin, "hub_gated": _read_gated, "hub_offline_miss": _read_offline,
    "deepspeed_batch_mismatch": _read_batch, "sequence_too_long": _read_sequence, "shared_memory_full": _read_shared_memory,
    "gpu_memory_fault": _read_memory_fault, "watchdog_stuck": _read_watchdog, "dataset_undefined": _read_dataset,
}  # fmt: skip


def _typed(key: str, value: str) -> object:
    if key in _TEXT_KEYS:
        return value
    if _NUMBER.match(value):
        return int(value)
    return float(value) if _FLOAT.match(value) else value
