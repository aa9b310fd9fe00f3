"""A checkpoint folder in, its files and what is missing or cut short in it out; reads headers and ends, never whole weights."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

UNFINISHED_MARK = "checkpoint-is-incomplete.txt"
CHECKPOINT_NAME = re.compile(r"checkpoint-(\d+)")
_WEIGHTS = ("adapter_model", "model", "pytorch_model")
_OPTIM_SHARD = re.compile(r"(?:bf16_)?zero_pp_rank_(\d+)_mp_rank_\d+_optim_states\.pt")
_RNG = re.compile(r"rng_state_(\d+)\.pth")
_TRAINING_ONLY = re.compile(
    r"optimizer\.(pt|bin)|scheduler\.pt|scaler\.pt|rng_state.*\.pth|trainer_state\.json|trainer_log\.jsonl|training_args\.(bin|yaml)"
    r"|latest|zero_to_.*\.py|.*_results\.json|training_.*\.png|running_log\.txt|llamaboard_config\.yaml|events\.out\.tfevents.*"
    + "|"
    + re.escape(UNFINISHED_MARK)
)
_MAX_HEADER = 100 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFact:
    """One regular file; `name` is relative to the folder, with slashes."""

    name: str
    path: Path
    size_bytes: int
    modified_ns: int

    @property
    def for_inference(self) -> bool:
        """Whether a model that only answers needs it."""
        return "/" not in self.name and not _TRAINING_ONLY.fullmatch(self.name)

    @property
    def is_weights(self) -> bool:
        return "/" not in self.name and self.name.startswith(_WEIGHTS) and self.name.endswith((".safetensors", ".bin"))


def list_files(folder: Path, *, without_checkpoints: bool = False) -> tuple[FileFact, ...]:
    """Every regular file below `folder`, sorted by name; links to files count as their targets, links to folders do not."""
    return tuple(sorted(_walk(folder, "", without_checkpoints), key=lambda fact: fact.name))


def _walk(folder: Path, prefix: str, without_checkpoints: bool) -> Iterator[FileFact]:
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if not (without_checkpoints and not prefix and CHECKPOINT_NAME.fullmatch(entry.name)):
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/", without_checkpoints)
            continue
        try:
            status = entry.stat()
            if entry.is_file():
                yield FileFact(
                    name=prefix + entry.name,
                    path=Path(entry.path),
                    size_bytes=status.st_size,
                    modified_ns=status.st_mtime_ns,
                )
        except FileNotFoundError:  # removed meanwhile, or a link to nothing
            continue


def what_is_missing(files: Sequence[FileFact], *, step: int | None) -> str:
    """The first thing that makes these files of a checkpoint unusable, or "". `step` None: the final model, no trainer state."""
    named = {fact.name: fact for fact in files}
    if UNFINISHED_MARK in named:
        return f"the trainer's own mark {UNFINISHED_MARK} says that saving was cut short"
    return (
        _trainer_state_fault(named.get("trainer_state.json"), step)
        or _weights_fault(files, named)
        or _deepspeed_fault(files, named)
        or _ranks_fault(files)
        or next((fault for fact in files if (fault := _content_fault(fact))), "")
    )


def shard_ranks(files: Sequence[FileFact]) -> int | None:
    """How many ranks wrote this checkpoint, as far as its files tell."""
    shards = [int(match[1]) for fact in files if (match := _OPTIM_SHARD.fullmatch(fact.name.rpartition("/")[2]))]
    states = [int(match[1]) for fact in files if (match := _RNG.fullmatch(fact.name))]
    if shards or states:
        return max(shards + states) + 1
    return 1 if any(fact.name == "rng_state.pth" for fact in files) else None


def read_step(files: Sequence[FileFact]) -> int | None:
    """`global_step` of trainer_state.json, None when there is none."""
    state = next((fact for fact in files if fact.name == "trainer_state.json"), None)
    return _global_step(state.path, state.size_bytes, state.modified_ns) if state else None


def _trainer_state_fault(state: FileFact | None, step: int | None) -> str:
    if step is None:
        return ""
    if state is None:
        return "trainer_state.json is missing (the trainer writes it last)"
    found = _global_step(state.path, state.size_bytes, state.modified_ns)
    return "" if found == step else f"trainer_state.json is not whole (step {found}, expected {step})"


@lru_cache(maxsize=8192)
def _global_step(path: Path, size: int, modified_ns: int) -> int | None:
    """The file holds the whole log of a long run: it is parsed once for each state it was in."""
    record = _read_json(path)
    step = record.get("global_step") if isinstance(record, dict) else None
    return step if isinstance(step, int) else None


def _weights_fault(files: Sequence[FileFact], named: dict[str, FileFact]) -> str:
    for fact in files:
        if "/" not in fact.name and fact.name.endswith(".index.json"):
            record = _read_json(fact.path)
            shards = record.get("weight_map") if isinstance(record, dict) else None
            if not isinstance(shards, dict):
                return f"{fact.name} is not whole"
            missing = sorted({str(name) for name in shards.values()} - named.keys())
            if missing:
                return f"{missing[0]} is missing ({len(missing)} of {len(set(shards.values()))} weight files)"
    has_shards = any("/" in fact.name and fact.name.endswith("_model_states.pt") for fact in files)
    return "" if has_shards or any(fact.is_weights for fact in files) else "there are no weights"


def _deepspeed_fault(files: Sequence[FileFact], named: dict[str, FileFact]) -> str:
    folders = {fact.name.split("/")[0] for fact in files if fact.name.startswith("global_step")}
    if not folders:
        return f"`latest` names no folder of shards ({_text(named['latest'])})" if "latest" in named else ""
    if "latest" not in named:
        return "DeepSpeed's file `latest` is missing (it is written last)"
    latest = _text(named["latest"])
    if latest not in folders:
        return f"DeepSpeed's folder {latest} is missing"
    return ""


def _ranks_fault(files: Sequence[FileFact]) -> str:
    """Shards of ranks 0, 1, ... without a hole, as many as random states."""
    expected = shard_ranks(files)
    for what, pattern in (("optimizer shard", _OPTIM_SHARD), ("random state", _RNG)):
        ranks = {int(match[1]) for fact in files if (match := pattern.fullmatch(fact.name.rpartition("/")[2]))}
        missing = sorted(set(range(expected or 0)) - ranks) if ranks else []
        if missing:
            return f"the {what} of rank {missing[0]} is missing ({len(missing)} of {expected} ranks)"
    return ""


def _content_fault(fact: FileFact) -> str:
    if fact.name.endswith(".safetensors"):
        return _safetensors_fault(fact.path, fact.size_bytes, fact.modified_ns)
    if fact.name.endswith((".pt", ".pth", ".bin")):
        return _torch_fault(fact.path, fact.size_bytes, fact.modified_ns)
    return ""


@lru_cache(maxsize=8192)
def _safetensors_fault(path: Path, size: int, modified_ns: int) -> str:
    """The header names every tensor's place, so that a file cut short shows itself (safetensors format)."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length)) if length <= min(size, _MAX_HEADER) else None
        tensors = [value for name, value in header.items() if name != "__metadata__"] if header else []
        end = max((int(tensor["data_offsets"][1]) for tensor in tensors), default=0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return f"{path.name} has no whole header"
    if not end:
        return f"{path.name} holds no weights"
    return "" if 8 + length + end == size else f"{path.name} has {size} bytes, its header says {8 + length + end}"


@lru_cache(maxsize=8192)
def _torch_fault(path: Path, size: int, modified_ns: int) -> str:
    """torch.save writes a zip archive, whose end record comes last."""
    if size == 0:
        return f"{path.name} is empty"
    try:
        with path.open("rb") as file:
            is_zip = file.read(4) == b"PK\x03\x04"
            file.seek(max(0, size - 22))
            whole = file.read(4) == b"PK\x05\x06"
    except OSError as error:
        return f"{path.name} cannot be read ({error.strerror})"
    return f"{path.name} is cut short" if is_zip and not whole else ""


def _read_json(path: Path) -> object | None:
    try:
        parsed: object = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return parsed


def _text(fact: FileFact) -> str:
    try:
        return fact.path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""
