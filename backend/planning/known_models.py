"""A hub name in, the config of that well-known model out, so that plans work without a network and without weights.

Only the shape: nothing here is downloaded or guessed. Fine-tunes and chat variants of a base keep its shape, so names are
matched by family and size; a name that says neither is unknown (None).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from backend.planning.model_config import Config, parse_model_shape
from backend.planning.model_shape import ModelShape


def known_shape(name: str) -> ModelShape | None:
    """Shape of a public model by its hub name or the last part of a local path; None when it is not in the table."""
    key = known_key(name)
    return None if key is None else _shape(key)


def known_key(name: str) -> str | None:
    """The table's own name for a hub name, e.g. `Qwen/Qwen2.5-7B-Instruct` -> `qwen2.5-7b`."""
    last = name.rstrip("/").rsplit("/", 1)[-1].lower().replace("_", "-")
    last = re.sub(r"^(meta-)+", "", last)
    alias = next((target for pattern, target in _ALIASES if re.search(pattern, last)), None)
    if alias:
        return alias
    found = [key for key in _CONFIGS if re.match(rf"{re.escape(key)}(?![0-9a-z.])", last)]
    return max(found, key=len, default=None)


@lru_cache(maxsize=64)
def _shape(key: str) -> ModelShape:
    return parse_model_shape(_CONFIGS[key])


def _config(
    model_type: str, layers: int, hidden: int, heads: int, kv: int, inner: int, vocab: int, *,
    head_dim: int = 0, positions: int = 0, **more: object,
) -> Config:  # fmt: skip
    config: dict[str, object] = {
        "model_type": model_type, "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
        "num_key_value_heads": kv, "intermediate_size": inner, "vocab_size": vocab, "tie_word_embeddings": False,
    }  # fmt: skip
    if head_dim:
        config["head_dim"] = head_dim
    if positions:
        config["max_position_embeddings"] = positions
    return config | more


_TIED = {"tie_word_embeddings": True}
_K = 1024
_MLA = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}

_CONFIGS: Mapping[str, Config] = {
    "llama-2-7b": _config("llama", 32, 4096, 32, 32, 11008, 32000, positions=4 * _K),
    "llama-2-13b": _config("llama", 40, 5120, 40, 40, 13824, 32000, positions=4 * _K),
    "llama-2-70b": _config("llama", 80, 8192, 64, 8, 28672, 32000, positions=4 * _K),
    "llama-3-8b": _config("llama", 32, 4096, 32, 8, 14336, 128256, positions=8 * _K),
    "llama-3-70b": _config("llama", 80, 8192, 64, 8, 28672, 128256, positions=8 * _K),
    "llama-3.1-8b": _config("llama", 32, 4096, 32, 8, 14336, 128256, positions=128 * _K),
    "llama-3.1-70b": _config("llama", 80, 8192, 64, 8, 28672, 128256, positions=128 * _K),
    "llama-3.1-405b": _config("llama", 126, 16384, 128, 8, 53248, 128256, positions=128 * _K),
    "llama-3.2-1b": _config("llama", 16, 2048, 32, 8, 8192, 128256, head_dim=64, positions=128 * _K, **_TIED),
    "llama-3.2-3b": _config("llama", 28, 3072, 24, 8, 8192, 128256, head_dim=128, positions=128 * _K, **_TIED),
    "llama-3.3-70b": _config("llama", 80, 8192, 64, 8, 28672, 128256, positions=128 * _K),
    "tinyllama-1.1b": _config("llama", 22, 2048, 32, 4, 5632, 32000, positions=2 * _K),
    "yi-6b": _config("llama", 32, 4096, 32, 4, 11008, 64000, positions=4 * _K),
    "yi-1.5-9b": _config("llama", 48, 4096, 32, 4, 11008, 64000, positions=4 * _K),
    "yi-34b": _config("llama", 60, 7168, 56, 8, 20480, 64000, positions=4 * _K),
    "mistral-7b": _config("mistral", 32, 4096, 32, 8, 14336, 32000, positions=32 * _K),
    "mistral-7b-v0.3": _config("mistral", 32, 4096, 32, 8, 14336, 32768, positions=32 * _K),
    "mistral-nemo": _config("mistral", 40, 5120, 32, 8, 14336, 131072, head_dim=128, positions=128 * _K),
    "mistral-small-24b": _config("mistral", 40, 5120, 32, 8, 32768, 131072, head_dim=128, positions=32 * _K),
    "mixtral-8x7b": _config("mixtral", 32, 4096, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2),
    "mixtral-8x22b": _config("mixtral", 56, 6144, 48, 8, 16384, 32768, num_local_experts=8, num_experts_per_tok=2),
    "qwen1.5-7b": _config("qwen2", 32, 4096, 32, 32, 11008, 151936, positions=32 * _K),
    "qwen1.5-14b": _config("qwen2", 40, 5120, 40, 40, 13696, 152064, positions=32 * _K),
    "qwen2-0.5b": _config("qwen2", 24, 896, 14, 2, 4864, 151936, positions=32 * _K, **_TIED),
    "qwen2-1.5b": _config("qwen2", 28, 1536, 12, 2, 8960, 151936, positions=32 * _K, **_TIED),
    "qwen2-7b": _config("qwen2", 28, 3584, 28, 4, 18944, 152064, positions=32 * _K),
    "qwen2-72b": _config("qwen2", 80, 8192, 64, 8, 29568, 152064, positions=32 * _K),
    "qwen2.5-0.5b": _config("qwen2", 24, 896, 14, 2, 4864, 151936, positions=32 * _K, **_TIED),
    "qwen2.5-1.5b": _config("qwen2", 28, 1536, 12, 2, 8960, 151936, positions=32 * _K, **_TIED),
    "qwen2.5-3b": _config("qwen2", 36, 2048, 16, 2, 11008, 151936, positions=32 * _K, **_TIED),
    "qwen2.5-7b": _config("qwen2", 28, 3584, 28, 4, 18944, 152064, positions=32 * _K),
    "qwen2.5-14b": _config("qwen2", 48, 5120, 40, 8, 13824, 152064, positions=32 * _K),
    "qwen2.5-32b": _config("qwen2", 64, 5120, 40, 8, 27648, 152064, positions=32 * _K),
    "qwen2.5-72b": _config("qwen2", 80, 8192, 64, 8, 29568, 152064, positions=32 * _K),
    "qwq-32b": _config("qwen2", 64, 5120, 40, 8, 27648, 152064, positions=128 * _K),
    "qwen3-0.6b": _config("qwen3", 28, 1024, 16, 8, 3072, 151936, head_dim=128, positions=40 * _K, **_TIED),
    "qwen3-1.7b": _config("qwen3", 28, 2048, 16, 8, 6144, 151936, head_dim=128, positions=40 * _K, **_TIED),
    "qwen3-4b": _config("qwen3", 36, 2560, 32, 8, 9728, 151936, head_dim=128, positions=40 * _K, **_TIED),
    "qwen3-8b": _config("qwen3", 36, 4096, 32, 8, 12288, 151936, head_dim=128, positions=40 * _K),
    "qwen3-14b": _config("qwen3", 40, 5120, 40, 8, 17408, 151936, head_dim=128, positions=40 * _K),
    "qwen3-32b": _config("qwen3", 64, 5120, 64, 8, 25600, 151936, head_dim=128, positions=40 * _K),
    "qwen3-30b-a3b": _config(
        "qwen3_moe", 48, 2048, 32, 4, 6144, 151936, head_dim=128, positions=40 * _K,
        moe_intermediate_size=768, num_experts=128, num_experts_per_tok=8,
    ),
    "qwen3-235b-a22b": _config(
        "qwen3_moe", 94, 4096, 64, 4, 12288, 151936, head_dim=128, positions=40 * _K,
        moe_intermediate_size=1536, num_experts=128, num_experts_per_tok=8,
    ),
    "gemma-2-2b": _config("gemma2", 26, 2304, 8, 4, 9216, 256000, head_dim=256, positions=8 * _K, sliding_window=4096,
                          attn_logit_softcapping=50.0, final_logit_softcapping=30.0, **_TIED),
    "gemma-2-9b": _config("gemma2", 42, 3584, 16, 8, 14336, 256000, head_dim=256, positions=8 * _K, sliding_window=4096,
                          attn_logit_softcapping=50.0, final_logit_softcapping=30.0, **_TIED),
    "gemma-2-27b": _config("gemma2", 46, 4608, 32, 16, 36864, 256000, head_dim=128, positions=8 * _K, sliding_window=4096,
                           attn_logit_softcapping=50.0, final_logit_softcapping=30.0, **_TIED),
    "gemma-3-1b": _config("gemma3_text", 26, 1152, 4, 1, 6912, 262144, head_dim=256, positions=32 * _K, sliding_window=512,
                          **_TIED),
    "phi-4": _config("phi3", 40, 5120, 40, 10, 17920, 100352, positions=16 * _K),
    "phi-3-mini": _config("phi3", 32, 3072, 32, 32, 8192, 32064, positions=4 * _K),
    "phi-3-medium": _config("phi3", 40, 5120, 40, 10, 17920, 32064, positions=4 * _K),
    "phi-2": _config("phi", 32, 2560, 32, 32, 10240, 51200, positions=2 * _K),
    "glm-4-9b-0414": _config("glm4", 40, 4096, 32, 2, 13696, 151552, head_dim=128, positions=32 * _K, attention_bias=True),
    "glm-4-32b-0414": _config("glm4", 61, 6144, 48, 2, 23040, 151552, head_dim=128, positions=32 * _K,
                              attention_bias=False),
    "glm-4-9b": _config("glm", 40, 4096, 32, 2, 13696, 151552, head_dim=128, positions=128 * _K, attention_bias=True),
    "chatglm3-6b": _config("chatglm", 28, 4096, 32, 2, 13696, 65024, num_layers=28, ffn_hidden_size=13696, kv_channels=128,
                           padded_vocab_size=65024, multi_query_attention=True, multi_query_group_num=2, add_qkv_bias=True),
    "internlm2-7b": _config("internlm2", 32, 4096, 32, 8, 14336, 92544, positions=32 * _K),
    "internlm2.5-7b": _config("internlm2", 32, 4096, 32, 8, 14336, 92544, positions=32 * _K),
    "internlm2.5-20b": _config("internlm2", 48, 6144, 48, 8, 16384, 92544, positions=32 * _K),
    "baichuan2-7b": _config("baichuan", 32, 4096, 32, 32, 11008, 125696, positions=4 * _K),
    "baichuan2-13b": _config("baichuan", 40, 5120, 40, 40, 13696, 125696, positions=4 * _K),
    "deepseek-v2-lite": _config(
        "deepseek_v2", 27, 2048, 16, 16, 10944, 102400, n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6,
        moe_intermediate_size=1408, first_k_dense_replace=1, positions=160 * _K, **_MLA,
    ),
    "deepseek-v3": _config(
        "deepseek_v3", 61, 7168, 128, 128, 18432, 129280, q_lora_rank=1536, n_routed_experts=256, n_shared_experts=1,
        num_experts_per_tok=8, moe_intermediate_size=2048, first_k_dense_replace=3, positions=160 * _K, **_MLA,
    ),
    "gpt-oss-20b": _config("gpt_oss", 24, 2880, 64, 8, 2880, 201088, head_dim=64, positions=128 * _K,
                           num_local_experts=32, num_experts_per_tok=4, sliding_window=128, attention_bias=True),
    "gpt-oss-120b": _config("gpt_oss", 36, 2880, 64, 8, 2880, 201088, head_dim=64, positions=128 * _K,
                            num_local_experts=128, num_experts_per_tok=4, sliding_window=128, attention_bias=True),
}  # fmt: skip

_ALIASES: tuple[tuple[str, str], ...] = (
    (r"deepseek-r1-distill-qwen-1\.5b", "qwen2.5-1.5b"),
    (r"deepseek-r1-distill-qwen-7b", "qwen2.5-7b"),
    (r"deepseek-r1-distill-qwen-14b", "qwen2.5-14b"),
    (r"deepseek-r1-distill-qwen-32b", "qwen2.5-32b"),
    (r"deepseek-r1-distill-llama-8b", "llama-3.1-8b"),
    (r"deepseek-r1-distill-llama-70b", "llama-3.3-70b"),
    (r"deepseek-r1$|deepseek-r1-0528$|deepseek-v3", "deepseek-v3"),
    (r"^qwen2\.5-(coder|math)-0\.5b", "qwen2.5-0.5b"),
    (r"^qwen2\.5-(coder|math)-1\.5b", "qwen2.5-1.5b"),
    (r"^qwen2\.5-(coder|math)-3b", "qwen2.5-3b"),
    (r"^qwen2\.5-(coder|math)-7b", "qwen2.5-7b"),
    (r"^qwen2\.5-coder-14b", "qwen2.5-14b"),
    (r"^qwen2\.5-coder-32b", "qwen2.5-32b"),
    (r"^qwen2\.5-math-72b", "qwen2.5-72b"),
    (r"^mistral-7b-(instruct-)?v0\.3", "mistral-7b-v0.3"),
    (r"^internlm2-5-7b", "internlm2.5-7b"),
    (r"^internlm2-5-20b", "internlm2.5-20b"),
    (r"^codellama-7b", "llama-2-7b"),
    (r"^codellama-13b", "llama-2-13b"),
    (r"^vicuna-7b", "llama-2-7b"),
    (r"^vicuna-13b", "llama-2-13b"),
    (r"^yi-9b", "yi-1.5-9b"),
    (r"^yi-1\.5-6b", "yi-6b"),
    (r"^yi-1\.5-34b", "yi-34b"),
)
