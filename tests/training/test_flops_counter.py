"""Our FLOPs against torch's own counter on real models (forward, backward, recomputation)."""

import pytest

from backend.planning.flops import count_flops
from backend.planning.model_config import parse_model_shape
from backend.planning.workload import Attention, Checkpointing, Method, Workload
from tests.training.inside import run_inside

pytestmark = pytest.mark.training

SMALL = {
    "vocab_size": 1000, "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 8, "pad_token_id": 0,
}  # fmt: skip
MOE = {"head_dim": 32, "moe_intermediate_size": 96, "num_experts": 8, "num_experts_per_tok": 2}
CONFIGS = {
    "dense": {"model_type": "llama", **SMALL},
    "grouped": {"model_type": "qwen2", **SMALL, "num_key_value_heads": 2},
    "tied": {"model_type": "qwen3", **SMALL, "num_key_value_heads": 4, "head_dim": 64, "tie_word_embeddings": True},
    "fused": {"model_type": "phi3", **SMALL, "num_key_value_heads": 4},
    "mixture": {"model_type": "qwen3_moe", **SMALL, **MOE},
    "shared": {"model_type": "qwen2_moe", **SMALL, **MOE, "shared_expert_intermediate_size": 128},
    "latent": {"model_type": "deepseek_v3", **SMALL, "q_lora_rank": 64, "kv_lora_rank": 32, "qk_nope_head_dim": 32,
               "qk_rope_head_dim": 16, "v_head_dim": 32, "n_routed_experts": 8, "n_shared_experts": 1,
               "num_experts_per_tok": 2, "moe_intermediate_size": 96, "first_k_dense_replace": 1, "n_group": 2,
               "topk_group": 1},
}  # fmt: skip


def test_flops_agree_with_torch_within_two_per_cent() -> None:
    cases = [
        {"config": config, "method": method, "checkpointing": checkpointing, "rows": 2, "length": length, "name": name}
        for name, config in CONFIGS.items()
        for method, checkpointing, length in (
            ("full", False, 64),
            ("lora", False, 64),
            ("lora", True, 64),
            ("full", False, 256),
        )
    ]
    answers = run_inside("count_flops.py", cases)
    assert len(answers) == len(cases)
    wrong = []
    for case, answer in zip(cases, answers, strict=True):
        config = case["config"]
        assert isinstance(config, dict)
        work = Workload(
            method=Method(str(case["method"])),
            attention=Attention.EAGER,
            checkpointing=Checkpointing.LAYERS if case["checkpointing"] else Checkpointing.NONE,
        )
        flops = count_flops(parse_model_shape(config), work, sequences=2, length=float(str(case["length"])))
        forward, total = float(str(answer["forward"])), float(str(answer["total"]))
        errors = (flops.forward / forward - 1, flops.hardware / total - 1)
        if max(map(abs, errors)) > 0.02:
            wrong.append((case["name"], case["method"], case["checkpointing"], errors))
    assert not wrong
