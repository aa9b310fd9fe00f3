"""ModelShape against transformers itself: models built on the meta device, parameters and linear layers counted."""

import pytest

from backend.planning.model_config import parse_model_shape
from tests.training.inside import run_inside

pytestmark = pytest.mark.training

SMALL = {
    "vocab_size": 1000, "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 5,
    "num_attention_heads": 8, "num_key_value_heads": 2, "pad_token_id": 0,
}  # fmt: skip
MLA = {"kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}
ROUTED = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96, "first_k_dense_replace": 2}
DENSE = (
    "llama", "mistral", "ministral3", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "glm", "glm4",
    "granite", "olmo", "olmo2", "olmo3", "seed_oss", "starcoder2", "ernie4_5", "exaone4", "cohere", "cohere2", "stablelm",
    "smollm3", "arcee",
)  # fmt: skip
CASES = [
    *({"model_type": name, **SMALL} for name in DENSE),
    {"model_type": "mixtral", "num_local_experts": 4, **SMALL},
    {"model_type": "phimoe", "num_local_experts": 4, **SMALL},
    {"model_type": "olmoe", "num_experts": 4, "num_experts_per_tok": 2, **SMALL},
    {"model_type": "minimax_m2", "head_dim": 64, "num_local_experts": 4, "num_experts_per_tok": 2, **SMALL},
    {"model_type": "qwen2_moe", "moe_intermediate_size": 96, "shared_expert_intermediate_size": 320, "num_experts": 8,
     "num_experts_per_tok": 2, **SMALL},
    {"model_type": "qwen3_moe", "head_dim": 64, "moe_intermediate_size": 96, "num_experts": 8, "num_experts_per_tok": 2,
     **SMALL},
    {"model_type": "qwen3_moe", "head_dim": 64, "moe_intermediate_size": 96, "num_experts": 8, "num_experts_per_tok": 2,
     "decoder_sparse_step": 2, "mlp_only_layers": [3], **SMALL},
    {"model_type": "gpt_oss", "head_dim": 64, "num_local_experts": 8, "num_experts_per_tok": 2, **SMALL},
    {"model_type": "deepseek_v2", "q_lora_rank": None, "n_shared_experts": 2, **ROUTED, **MLA, **SMALL},
    {"model_type": "deepseek_v2", "q_lora_rank": 64, "n_shared_experts": 1, **ROUTED, **MLA, **SMALL},
    {"model_type": "deepseek_v3", "q_lora_rank": 64, "n_shared_experts": 1, "n_group": 2, "topk_group": 1, **ROUTED, **MLA,
     **SMALL},
    {"model_type": "glm4_moe", "head_dim": 64, "n_shared_experts": 1, "use_qk_norm": True, "attention_bias": True, **ROUTED,
     **SMALL},
    {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, **SMALL},
    {"model_type": "llama", "head_dim": 48, **SMALL},
]  # fmt: skip


def test_every_checked_family_has_the_parameters_and_linear_layers_that_transformers_builds() -> None:
    answers = run_inside("count.py", CASES)
    assert len(answers) == len(CASES)
    wrong = []
    for case, answer in zip(CASES, answers, strict=True):
        config = answer["config"]
        assert isinstance(config, dict)
        for source in (config, case):  # as transformers completes it, and as terse as a config.json may be
            shape = parse_model_shape(source)
            adapted = sum((m.fan_in + m.fan_out) * m.count for m in shape.matrices if m.linear)
            names = sorted({m.name for m in shape.matrices if m.linear})
            found = (shape.parameters, adapted, names, shape.estimate)
            expected = (answer["parameters"], answer["lora"], answer["linear"], "")
            if found != expected:
                wrong.append((case["model_type"], found, expected))
    assert not wrong
