"""Runs in the training environment: Liger put on and taken off a loaded LoRA model, and what that leaves behind.

Liger's kernels need a GPU, so only the taking off can be computed with here: losses before and after must be the same.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
from pathlib import Path
from unittest.mock import MagicMock

import torch
from peft import LoraConfig, TaskType, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

TRIAL = Path(__file__).resolve().parents[2] / "backend" / "inside" / "trial.py"


class TritonStandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """CPU builds of torch come without Triton; Liger needs it only to be importable here."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "triton":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = MagicMock(name=spec.name)
        module.__spec__, module.__path__, module.__version__, module.__name__ = spec, [], "3.6.0", spec.name
        module.jit = lambda function=None, **_: function if function else (lambda inner: inner)
        return module

    def exec_module(self, module):
        return None


sys.meta_path.insert(0, TritonStandIn())


def load_trial():
    spec = importlib.util.spec_from_file_location("trial", TRIAL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def patched(base) -> list[bool]:
    """Is Liger's code in force: the loss, a norm, an MLP?"""
    layer = base.model.layers[0]
    owners = (base.forward, layer.input_layernorm.forward, layer.mlp.forward)
    return [
        "liger" in str(getattr(owner, "__module__", "")) + str(getattr(owner, "__func__", owner).__module__)
        for owner in owners
    ]


def check(case: dict) -> dict[str, object]:
    torch.manual_seed(0)
    trial = load_trial()
    config = AutoConfig.for_model(**case["config"])
    base = AutoModelForCausalLM.from_config(config)
    model = get_peft_model(base, LoraConfig(task_type=TaskType.CAUSAL_LM, r=4, target_modules=["q_proj", "down_proj"]))
    ids = torch.randint(0, config.vocab_size, (2, 16))
    losses, states = [float(model(input_ids=ids, labels=ids).loss)], [patched(base)]
    switch = trial.LigerSwitch()
    for on in (True, False, True, False):
        switch.set(base, on=on, keeps_logits=False)
        states.append(patched(base))
        if not on:
            losses.append(float(model(input_ids=ids, labels=ids).loss))
    return {"losses": losses, "states": states}


for line in sys.stdin:
    print(json.dumps(check(json.loads(line))), flush=True)
