"""Runs in the training environment: one training step of the real model code on fake tensors, live bytes counted.

Each line of stdin is a JSON object (see `Case`), each line of stdout what was live at the highest point. Fake tensors have
shapes but no storage, so an 8B layer costs nothing. Liger's Triton kernels do not run on fake tensors: `liger` swaps in
stand-ins that allocate and keep what those kernels allocate and keep.
"""

from __future__ import annotations

import gc
import json
import sys
import weakref
from types import MethodType

import torch
import transformers.masking_utils as masks
from accelerate.utils.operations import convert_outputs_to_fp32
from llamafactory.model.model_utils.checkpointing import _gradient_checkpointing_enable
from llamafactory.model.model_utils.misc import find_all_linear_modules
from peft import LoraConfig, TaskType, get_peft_model
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM

# Fake tensors look like tracing to transformers, which then always builds a mask; a real run skips it when nothing is padded.
masks.is_tracing = lambda *_, **__: False
masks.find_packed_sequence_indices = lambda _: None


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of storages alive, rounded to 512 as the caching allocator does, and the highest count per phase."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.now = 0
        self.phase = "build"
        self.peaks: dict[str, int] = {}

    def add(self, tensor: object) -> None:
        if not isinstance(tensor, torch.Tensor):
            return
        storage = tensor.untyped_storage()
        if storage._cdata in self.sizes:
            return
        self.sizes[storage._cdata] = size = -(-storage.nbytes() // 512) * 512
        self.now += size
        weakref.finalize(storage, self.drop, storage._cdata)
        self.peaks[self.phase] = max(self.peaks.get(self.phase, 0), self.now)

    def drop(self, key: int) -> None:
        self.now -= self.sizes.pop(key, 0)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            self.add(leaf)
        return out


class KeptNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight, torch.empty(x.shape[:-1], dtype=torch.float32))
        ctx.trained = weight.requires_grad
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, gradient):
        weight = ctx.saved_tensors[1]
        return gradient, torch.empty_like(weight) if ctx.trained else None


class KeptSwiGlu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return torch.empty_like(gate)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.saved_tensors


class KeptLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, vocab):
        tokens, hidden = x.shape
        wanted = -(-tokens // -(-vocab // hidden))
        chunk = min(tokens, 1 << (wanted - 1).bit_length())
        of_input = torch.zeros_like(x)
        of_weight = torch.zeros_like(weight) if weight.requires_grad else None
        logits = torch.empty((chunk, vocab), dtype=x.dtype)
        ctx.save_for_backward(of_input, of_weight)
        return logits.new_zeros((), dtype=torch.float32)

    @staticmethod
    def backward(ctx, gradient):
        return *ctx.saved_tensors, None


def swap_in_liger(model) -> None:
    for module in model.modules():
        name = type(module).__name__
        if name.endswith("RMSNorm"):
            module.forward = lambda x, m=module: KeptNorm.apply(x, m.weight)
        elif name.endswith("MLP"):
            module.forward = lambda x, m=module: m.down_proj(KeptSwiGlu.apply(m.gate_proj(x), m.up_proj(x)))

    def forward(input_ids=None, labels=None, attention_mask=None, position_ids=None, **_):
        hidden = model.model(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids)[0]
        rows = hidden.reshape(-1, hidden.shape[-1])
        return {"loss": KeptLoss.apply(rows, model.lm_head.weight, model.config.vocab_size)}

    model.forward = forward


def build(case: dict, live: LiveBytes):
    config = AutoConfig.for_model(**case["config"])
    config.use_cache = False
    attention = case.get("attention", "sdpa")
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation=attention)
    for tensor in (*model.parameters(), *model.buffers()):
        live.add(tensor)
    if case.get("liger"):
        swap_in_liger(model)
    if case.get("checkpointing", True):
        enable = MethodType(_gradient_checkpointing_enable, model)
        enable({"use_reentrant": case.get("reentrant", True)})
    model = train_parts(case, model)
    half = case.get("pure_bf16", False)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(torch.bfloat16 if half else torch.float32)
            live.add(parameter)
    return model.train()


def train_parts(case: dict, model):
    method = case.get("method", "lora")
    if method == "freeze":
        count = model.config.num_hidden_layers
        kept = [f".{index}." for index in range(count - 2, count)]
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(any(part in name for part in kept))
    if method != "lora":
        return model
    config = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=case.get("rank", 8),
        target_modules=case.get("targets") or find_all_linear_modules(model, True),
    )
    apply = torch.nn.Module._apply
    torch.nn.Module._apply = lambda self, function, recurse=True: self  # moving modules is refused for fake tensors
    try:
        return get_peft_model(model, config)
    finally:
        torch.nn.Module._apply = apply


def attention_mask(case: dict):
    if not case.get("masked", True):
        return None
    rows, length = case["rows"], case["length"]
    if case.get("attention") == "eager":
        return torch.zeros(rows, 1, length, length, dtype=torch.bfloat16)
    return torch.ones(rows, 1, length, length, dtype=torch.bool)


def trace(case: dict) -> dict[str, object]:
    live = LiveBytes()
    with FakeTensorMode(allow_non_fake_inputs=True), live:
        model = build(case, live)
        gc.collect()
        ids = torch.ones(case["rows"], case["length"], dtype=torch.long)
        inputs = {
            "input_ids": ids,
            "labels": torch.ones_like(ids),
            "attention_mask": attention_mask(case),
            "position_ids": torch.arange(case["length"]).repeat(case["rows"], 1),
        }
        forward = model.forward
        if not case.get("pure_bf16"):
            forward = convert_outputs_to_fp32(torch.autocast("cpu", dtype=torch.bfloat16)(forward))
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
        for _ in range(2):  # the optimizer's state exists from the second step on
            live.phase = "forward"
            loss = forward(**inputs)["loss"]
            live.phase = "backward"
            loss.backward()
            del loss
            live.phase = "step"
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            gc.collect()
        peaks = {phase: size for phase, size in live.peaks.items() if phase != "build"}
        return {"peak": max(peaks.values()), "phases": peaks, "trained": sum(p.numel() for p in trained)}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(trace(json.loads(line))), flush=True)
