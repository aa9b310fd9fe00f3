"""Configuration files beside a log into the few settings that help to read it. Only plain `key: value` words are used."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

_NUMBERS = (
    "cutoff_len",
    "save_steps",
    "logging_steps",
    "num_train_epochs",
    "ddp_timeout",
    "learning_rate",
    "eval_steps",
)
_VISIBLE = re.compile(r"\b(?:HIP|ROCR|CUDA)_VISIBLE_DEVICES=[\"']?([\d,]*)")
_NPROC = re.compile(r"(?:--nproc[-_]per[-_]node[= ]|--num_processes[= ]|--num_gpus[= ]|NPROC_PER_NODE=)[\"']?(\d+)")
_INCLUDE = re.compile(r"--include[= ][\"']?localhost:([\d,]+)")
_STAGE = re.compile(r"(?:--stage[ =]|^\s*stage:\s*)[\"']?(pt|sft|rm|ppo|dpo|kto)\b", re.MULTILINE)
_BOARD_LOGGING = re.compile(r"^train\.logging_steps:\s*(\d+)", re.MULTILINE)
_ATTENTION = re.compile(r"(?:^\s*flash_attn:\s*|--flash_attn[ =])[\"']?(\w+)", re.MULTILINE)
_TIMEOUT = re.compile(
    r"\b(NCCL_TIMEOUT\w*|TORCH_NCCL_TIMEOUT\w*|DDP_TIMEOUT|DEEPSPEED_TIMEOUT|TORCH_DISTRIBUTED_TIMEOUT)\s*[=:]\s*(\d+)"
)
_PRECISION = re.compile(r"(?:--fp16\b(?!\s+[Ff]alse)|^\s*fp16:\s*[\"']?true)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHints:
    """What a configuration beside the log says. None or empty: not said."""

    save_steps: int | None = None
    logging_steps: int | None = None
    epochs: float | None = None
    ddp_timeout: float | None = None
    timeout_variable: float | None = None
    """Seconds in an environment variable that people set for a longer time-out."""
    cutoff_len: int | None = None
    flash_attn: str | None = None
    learning_rate: float | None = None
    stage: str | None = None
    fp16: bool = False
    datasets: tuple[str, ...] = ()
    visible_devices: int | None = None
    processes: int | None = None
    launcher: str | None = None


NO_HINTS = LogHints()


def read_hints(files: Mapping[str, bytes]) -> LogHints:
    """Settings in YAML files, launch scripts and the data registry; logs and data are not looked at."""
    texts = {name: data.decode("utf-8", "replace") for name, data in files.items() if _is_config(name)}
    joined = "\n".join(texts.values())
    numbers = {key: _number(joined, key) for key in _NUMBERS}
    visible = _VISIBLE.search(joined)
    processes = _NPROC.search(joined)
    stage = _STAGE.search(joined)
    board = _BOARD_LOGGING.search(joined)
    return LogHints(
        save_steps=_whole(numbers["save_steps"]),
        logging_steps=_whole(numbers["logging_steps"]) or (int(board[1]) if board else None),
        epochs=numbers["num_train_epochs"], ddp_timeout=numbers["ddp_timeout"],
        timeout_variable=_timeout_variable(files), cutoff_len=_whole(numbers["cutoff_len"]),
        flash_attn=attention[1] if (attention := _ATTENTION.search(joined)) else None, learning_rate=numbers["learning_rate"],
        stage=stage[1] if stage else None, fp16=_PRECISION.search(joined) is not None, datasets=_dataset_names(files),
        visible_devices=len([one for one in visible[1].split(",") if one]) if visible else None,
        processes=int(processes[1]) if processes else _included(joined),
        launcher="deepspeed" if re.search(r"^\s*deepspeed ", joined, re.MULTILINE) else None,
    )  # fmt: skip


def _is_config(name: str) -> bool:
    return name.endswith((".yaml", ".yml", ".sh", ".slurm", ".sbatch")) and len(name) < 512


def _number(text: str, key: str) -> float | None:
    found = re.search(
        rf"(?:^\s*{key}:\s*|--{key}[ =]){'[ ]*'}[\"']?(-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)", text, re.MULTILINE
    )
    return float(found[1]) if found else None


def _timeout_variable(files: Mapping[str, bytes]) -> float | None:
    """Set in a launch script or among host settings; DeepSpeed counts minutes."""
    for name, data in files.items():
        if name.endswith((".sh", ".slurm", ".sbatch", ".txt", ".env")) and len(data) < 1 << 20:
            found = _TIMEOUT.search(data.decode("utf-8", "replace"))
            if found:
                return float(found[2]) * (60 if found[1].startswith("DEEPSPEED") else 1)
    return None


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and value >= 1 else None


def _included(text: str) -> int | None:
    found = _INCLUDE.search(text)
    return len(found[1].split(",")) if found else None


def _dataset_names(files: Mapping[str, bytes]) -> tuple[str, ...]:
    for name, data in files.items():
        if name.rsplit("/", 1)[-1] == "dataset_info.json" and len(data) < 4 << 20:
            try:
                registry = json.loads(data.decode("utf-8-sig", "replace"))
            except ValueError:
                return ()
            return tuple(str(key) for key in registry) if isinstance(registry, dict) else ()
    return ()
