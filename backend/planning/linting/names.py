"""Name of a config file against its content -> a Problem when the name promises another method."""

from __future__ import annotations

import re
from collections.abc import Iterator

from backend.domain.problem import Problem, Severity
from backend.planning.linting.config import TrainConfig
from backend.planning.linting.report import report

_METHODS = {"lora": "lora", "qlora": "lora", "full": "full", "freeze": "freeze", "oft": "oft"}
_STAGES = {
    "sft": "sft",
    "dpo": "dpo",
    "kto": "kto",
    "ppo": "ppo",
    "rm": "rm",
    "reward": "rm",
    "pretrain": "pt",
    "orpo": "dpo",
    "simpo": "dpo",
}


def file_name(config: TrainConfig) -> Iterator[Problem]:
    """`llama3_lora_sft.yaml` with full training inside. A name that promises nothing is fine."""
    words = re.split(r"[^a-z0-9]+", config.name.rpartition("/")[2].lower().rpartition(".")[0])
    if not config.is_for_training or not config.given("stage"):
        return
    methods = {_METHODS[word] for word in words if word in _METHODS}
    stages = {_STAGES[word] for word in words if word in _STAGES}
    if len(methods) == 1 and config.method and config.method not in methods:
        yield _misleads(config, "finetuning_type", config.method, Severity.WARNING)
    elif len(stages) == 1 and config.stage not in stages:
        yield _misleads(config, "stage", config.stage, Severity.WARNING)
    promised = re.search(r"(?:zero|z|ds|stage)[-_]?([0-3])(?!\d)", "_".join(words))
    if promised and config.uses_deepspeed and config.zero_stage not in (None, int(promised[1])):
        yield _misleads(config, "deepspeed", f"ZeRO-{config.zero_stage}", Severity.NOTE)


def _misleads(config: TrainConfig, field: str, found: str, severity: Severity) -> Problem:
    base = config.name.rpartition("/")[2]
    return report("file_name_misleads", severity, field=field, found=found, expected=base, line=config.line(field))


RULES = (file_name,)
