"""Runs in the training environment: configs on stdin, exact parameter counts (meta device) and linear module names on stdout."""

import json
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

for line in sys.stdin:
    values = json.loads(line)
    config = AutoConfig.for_model(**values)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    linear = {
        name.rsplit(".", 1)[-1]
        for name, module in model.named_modules()
        if "Linear" in type(module).__name__ and not name.endswith("lm_head")
    }
    print(
        json.dumps(
            {
                "parameters": sum(p.numel() for p in model.parameters()),
                "config": config.to_dict(),
                "linear": sorted(linear),
                "lora": sum(
                    module.in_features + module.out_features
                    for name, module in model.named_modules()
                    if "Linear" in type(module).__name__ and not name.endswith("lm_head")
                ),
            },
            default=str,
        ),
        flush=True,
    )
