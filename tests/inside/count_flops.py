"""Runs in the training environment: one forward and backward of a small real model under torch's own FLOP counter."""

from __future__ import annotations

import json
import sys

import torch
from llamafactory.model.model_utils.misc import find_all_linear_modules
from peft import LoraConfig, TaskType, get_peft_model
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM


def count(case: dict) -> dict[str, int]:
    config = AutoConfig.for_model(**case["config"])
    config.use_cache = False
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager")
    model.enable_input_require_grads()
    if case.get("method", "lora") == "lora":
        targets = find_all_linear_modules(model, True)
        model = get_peft_model(model, LoraConfig(task_type=TaskType.CAUSAL_LM, r=8, target_modules=targets))
    model.train()
    if case.get("checkpointing"):
        model.gradient_checkpointing_enable({"use_reentrant": True})
    ids = torch.randint(0, config.vocab_size, (case["rows"], case["length"]))
    with FlopCounterMode(display=False) as counter:
        loss = model(input_ids=ids, labels=ids).loss
        forward = counter.get_total_flops()
        loss.backward()
    return {"forward": forward, "total": counter.get_total_flops()}


if __name__ == "__main__":
    torch.manual_seed(0)
    for line in sys.stdin:
        print(json.dumps(count(json.loads(line))), flush=True)
