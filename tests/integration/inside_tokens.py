"""Runs in the training environment: our token counter on batches of every shape, its counts as JSON."""

import json
import os
import sys
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
sys.path.append(str(Path(__file__).resolve().parents[2]))

import torch
from llamafactory.data import SFTDataCollatorWith4DAttentionMask, get_dataset, get_template_and_fix_tokenizer
from llamafactory.hparams import get_train_args
from llamafactory.model import load_tokenizer
from transformers import AutoConfig, AutoModelForCausalLM

from backend.inside.tokens import TokenCounter, count_tokens

demo = Path(sys.argv[1])
ids = torch.arange(12).reshape(2, 6)
counts = {
    "no_mask": count_tokens((), {"input_ids": ids}),
    "positional": count_tokens((ids,), {}),
    "padded": count_tokens(
        (), {"input_ids": ids, "attention_mask": torch.tensor([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0]])}
    ),
    "left_padded": count_tokens(
        (), {"input_ids": ids, "attention_mask": torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])}
    ),
    "sequence_numbers": count_tokens(
        (), {"input_ids": ids, "attention_mask": torch.tensor([[1, 1, 2, 2, 3, 0], [1, 2, 0, 0, 0, 0]])}
    ),
    "boolean_4d": count_tokens(
        (), {"input_ids": ids, "attention_mask": torch.eye(6, dtype=torch.bool)[None, None].repeat(2, 1, 1, 1)}
    ),
    "wrapped": count_tokens((), {"data": {"input_ids": ids, "attention_mask": torch.ones(2, 6)}, "input_ids": ids}),
    "embeddings_only": count_tokens((), {"inputs_embeds": torch.zeros(2, 6, 4)}),
    "strange_mask": count_tokens((), {"input_ids": ids, "attention_mask": torch.ones(2, 3)}),
}


def packed(**changes):
    """Batches as LLaMA-Factory's own data set and collator make them, and how many tokens the rows really have."""
    settings = {
        "model_name_or_path": str(demo / "model"),
        "stage": "sft",
        "do_train": True,
        "dataset": "demo",
        "dataset_dir": str(demo / "data"),
        "template": "chatml",
        "cutoff_len": 160,
        "output_dir": "/nonexistent",
        "use_cpu": True,
        "report_to": "none",
    }
    model, data, training, _, _ = get_train_args(settings | changes)
    loaded = load_tokenizer(model)
    template = get_template_and_fix_tokenizer(loaded["tokenizer"], data)
    rows = get_dataset(template, model, data, training, stage="sft", **loaded)["train_dataset"]
    collator = SFTDataCollatorWith4DAttentionMask(
        template=template,
        pad_to_multiple_of=8,
        label_pad_token_id=-100,
        block_diag_attn=model.block_diag_attn,
        neat_packing=data.neat_packing,
        attn_implementation=changes.get("attention", "sdpa"),
        compute_dtype=torch.float32,
        **loaded,
    )
    batches = [collator([rows[number]]) for number in range(len(rows))]
    total = sum(count_tokens((), batch) for batch in batches)
    return total.tolist()


counts["rows"] = packed()
counts["packing"] = packed(packing=True)
counts["neat_packing"] = packed(packing=True, neat_packing=True)

model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(demo / "model"))
counter = TokenCounter()
counter.attach(model)
batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
model.train()
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
model.enable_input_require_grads()
model(**batch).loss.backward()
with torch.no_grad():
    model(**batch)  # a reference pass
model.eval()
model(**batch)  # an evaluation
counts["trained_once"] = counter.take()
counts["taken_twice"] = counter.take()
model.train()
model.gradient_checkpointing_disable()
compiled = torch.compile(model, backend="aot_eager")
for _ in range(3):
    compiled(**batch).loss.backward()
counts["compiled"] = counter.take()
counter.detach()
model(**batch)
counts["detached"] = counter.take()
print(
    "COUNTS "
    + json.dumps({name: value.tolist() if torch.is_tensor(value) else value for name, value in counts.items()})
)
