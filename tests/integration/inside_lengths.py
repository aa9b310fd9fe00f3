"""Runs in the training environment: a train YAML in, the token count of every row that LLaMA-Factory would train on out."""

import json
import os
import sys

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
from llamafactory.hparams import get_train_args
from llamafactory.model import load_tokenizer
from omegaconf import OmegaConf

settings = OmegaConf.to_container(OmegaConf.load(sys.argv[1]))
settings.pop("deepspeed", None)
settings["output_dir"] = "/nonexistent"  # where the run was, LLaMA-Factory would refuse to start another
model, data, training, finetuning, _ = get_train_args(settings)
loaded = load_tokenizer(model)
template = get_template_and_fix_tokenizer(loaded["tokenizer"], data)
rows = get_dataset(template, model, data, training, stage=finetuning.stage, **loaded)["train_dataset"]
print("LENGTHS " + json.dumps({"lengths": [len(row["input_ids"]) for row in rows]}))
