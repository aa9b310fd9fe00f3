"""The memory plan against a traced training step of the real code (transformers, peft, LLaMA-Factory's checkpointing)."""

import statistics

import pytest

from backend.planning.activations import Batch
from backend.planning.memory import peak_terms, trainable_parameters
from backend.planning.model_config import parse_model_shape
from backend.planning.workload import Attention, Checkpointing, Method, Workload
from tests.training.inside import run_inside

pytestmark = pytest.mark.training

LLAMA = {
    "model_type": "llama", "vocab_size": 64128, "hidden_size": 2048, "intermediate_size": 7168, "num_hidden_layers": 6,
    "num_attention_heads": 16, "num_key_value_heads": 4, "pad_token_id": 0,
}  # fmt: skip
QWEN2 = LLAMA | {"model_type": "qwen2", "intermediate_size": 9472, "num_key_value_heads": 2}
QWEN3 = LLAMA | {"model_type": "qwen3", "head_dim": 128}
OLD_LLAMA = LLAMA | {"num_key_value_heads": 16, "vocab_size": 16000}
PHI = LLAMA | {"model_type": "phi3"}
GLM = LLAMA | {"model_type": "glm4", "head_dim": 128, "attention_bias": True}
GEMMA = LLAMA | {"model_type": "gemma3_text", "head_dim": 256, "num_attention_heads": 8, "tie_word_embeddings": True}

CASES: list[dict[str, object]] = [
    *(
        {"config": config, "checkpointing": checkpointing, "masked": config is not GEMMA}
        for config in (LLAMA, QWEN2, QWEN3, OLD_LLAMA, PHI, GLM, GEMMA)
        for checkpointing in (True, False)
    ),
    *(
        {"config": config, "checkpointing": checkpointing, "liger": True, "masked": masked}
        for config in (LLAMA, QWEN2, QWEN3, OLD_LLAMA)
        for checkpointing in (True, False)
        for masked in (True, False)
    ),
    *({"config": LLAMA, "checkpointing": ck, "attention": "eager", "liger": li} for ck in (True, False) for li in (True, False)),
    *({"config": LLAMA, "checkpointing": ck, "method": "full", "liger": li} for ck in (True, False) for li in (True, False)),
    *({"config": LLAMA, "checkpointing": ck, "method": "full", "pure_bf16": True} for ck in (True, False)),
    *({"config": QWEN2, "checkpointing": ck, "method": "full", "pure_bf16": True} for ck in (True, False)),
    *({"config": LLAMA, "checkpointing": ck, "method": "freeze"} for ck in (True, False)),
    *({"config": LLAMA, "checkpointing": ck, "pure_bf16": True} for ck in (True, False)),
    *({"config": LLAMA, "checkpointing": ck, "rank": 64} for ck in (True, False)),
    *({"config": LLAMA, "checkpointing": ck, "liger": True, "targets": ["q_proj", "v_proj"]} for ck in (True, False)),
    {"config": LLAMA, "checkpointing": True, "reentrant": False},
    {"config": LLAMA, "checkpointing": False, "rows": 1, "length": 4096, "masked": False},
    {"config": LLAMA, "checkpointing": False, "rows": 1, "length": 4096, "masked": False, "liger": True},
]  # fmt: skip


def with_defaults(case: dict[str, object]) -> dict[str, object]:
    return {"rows": 4, "length": 512, "masked": True} | case


def workload(case: dict[str, object]) -> Workload:
    targets = case.get("targets", ["all"])
    assert isinstance(targets, list)
    return Workload(
        method=Method(str(case.get("method", "lora"))),
        attention=Attention(str(case.get("attention", "sdpa"))),
        checkpointing=Checkpointing.LAYERS if case["checkpointing"] else Checkpointing.NONE,
        liger=bool(case.get("liger")),
        pure_bf16=bool(case.get("pure_bf16")),
        lora_rank=int(str(case.get("rank", 8))),
        lora_targets=tuple(targets),
    )


def test_planned_peak_agrees_with_the_traced_step() -> None:
    cases = [with_defaults(case) for case in CASES]
    answers = run_inside("trace_memory.py", cases)
    assert len(answers) == len(cases)
    errors: list[float] = []
    for case, answer in zip(cases, answers, strict=True):
        config, traced = case["config"], answer["peak"]
        assert isinstance(config, dict) and isinstance(traced, int)
        shape, work = parse_model_shape(config), workload(case)
        batch = Batch(
            sequences=float(str(case["rows"])), length=float(str(case["length"])), masked=bool(case["masked"])
        )
        terms = peak_terms(shape, work, batch)
        errors.append(abs(terms.peak / traced - 1))
        assert trainable_parameters(shape, work) == answer["trained"], case
        assert errors[-1] < 0.05, (case, terms.phases, answer)
    assert statistics.median(errors) < 0.01
