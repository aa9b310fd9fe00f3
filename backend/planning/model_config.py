"""config.json of a Hugging Face model in, ModelShape out. Any decoder is counted; families not checked say `estimate`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from backend.errors import InvalidInput
from backend.planning.model_shape import Matrix, ModelShape, Part, Quantized

Config = Mapping[str, object]


def parse_model_config(text: str, *, source: str = "config.json") -> ModelShape:
    """Text of a config.json; raises InvalidInput naming what is missing."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InvalidInput(
            source, found=f"text that is not JSON ({error})", expected="a model's config.json"
        ) from error
    if not isinstance(document, dict):
        raise InvalidInput(source, found=type(document).__name__, expected="a JSON object")
    return parse_model_shape(document)


def parse_model_shape(config: Config) -> ModelShape:
    """A parsed config.json of any decoder model; raises InvalidInput when layers or width are not in it."""
    inner = config.get("text_config") or config.get("llm_config") or config.get("language_config")
    if not isinstance(inner, dict):
        return _Reader(config).shape()
    text = {"tie_word_embeddings": config.get("tie_word_embeddings", inner.get("tie_word_embeddings")), **inner}
    if text["tie_word_embeddings"] is None:
        del text["tie_word_embeddings"]
    for key in ("quantization_config", "dtype", "torch_dtype"):
        if key in config and key not in text:
            text[key] = config[key]
    shape = _Reader(text).shape(_vision_parameters(config.get("vision_config")))
    return shape


@dataclass(frozen=True, slots=True)
class _Family:
    """How one `model_type` differs from Llama. Names are those of transformers 5.5 modules."""

    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    tied: bool = False
    q_name: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    o_name: str = "o_proj"
    fused_qkv: str = ""
    mlp: str = "gated"
    """gated (gate, up, down), fused (gate_up, down), plain (two matrices)."""
    mlp_names: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    norms: int = 2
    norm_width: int = 1
    """Vectors a norm holds: 1 = weight, 2 = weight and bias (LayerNorm), 0 = none."""
    head_norm: bool = False
    wide_qk_norm: bool = False
    final_norm: bool = True
    default_head_dim: int = 0
    """What transformers assumes when config.json names no `head_dim` (0 = hidden / heads)."""
    window_every: int = 0
    """n: of n layers n-1 are windowed (2 = every other); 1 = all; 0 = none unless the config lists layer types."""


_LLAMA = _Family()
_GEMMA2 = _Family(tied=True, norms=4, window_every=2, default_head_dim=256)
_FAMILIES: Mapping[str, _Family] = {
    "llama": _LLAMA,
    "mistral": _Family(window_every=1),
    "ministral": _Family(window_every=1),
    "mistral3_text": _LLAMA,
    "mixtral": _Family(window_every=1),
    "qwen2": _Family(qkv_bias=True),
    "qwen2_5_vl_text": _Family(qkv_bias=True),
    "qwen2_vl_text": _Family(qkv_bias=True),
    "qwen2_moe": _Family(qkv_bias=True),
    "qwen3": _Family(head_norm=True, default_head_dim=128),
    "qwen3_moe": _Family(head_norm=True),
    "qwen3_vl_text": _Family(head_norm=True),
    "qwen3_vl_moe_text": _Family(head_norm=True),
    "gemma": _Family(tied=True, default_head_dim=256),
    "gemma2": _GEMMA2,
    "gemma3_text": _Family(tied=True, norms=4, head_norm=True, window_every=6, default_head_dim=256),
    "phi": _Family(
        qkv_bias=True, o_bias=True, mlp_bias=True, head_bias=True, o_name="dense", mlp="plain", mlp_names=("fc1", "fc2"),
        norms=1, norm_width=2,
    ),
    "phi3": _Family(fused_qkv="qkv_proj", mlp="fused", mlp_names=("gate_up_proj", "down_proj"), window_every=1),
    "glm": _Family(qkv_bias=True, mlp="fused", mlp_names=("gate_up_proj", "down_proj"), default_head_dim=128),
    "glm4": _Family(qkv_bias=True, mlp="fused", mlp_names=("gate_up_proj", "down_proj"), norms=4, default_head_dim=128),
    "glm4_moe": _Family(),
    "chatglm": _Family(
        qkv_bias=True, o_name="dense", fused_qkv="query_key_value", mlp="fused",
        mlp_names=("dense_h_to_4h", "dense_4h_to_h"),
    ),
    "internlm2": _Family(fused_qkv="wqkv", o_name="wo", mlp_names=("w1", "w3", "w2")),
    "baichuan": _Family(fused_qkv="W_pack"),
    "deepseek_v2": _Family(),
    "deepseek_v3": _Family(),
    "gpt_oss": _Family(qkv_bias=True, o_bias=True, default_head_dim=64),
    "granite": _LLAMA,
    "olmo2": _Family(wide_qk_norm=True),
    "smollm3": _Family(tied=True),
    "seed_oss": _Family(qkv_bias=True, default_head_dim=128),
    "starcoder2": _Family(
        qkv_bias=True, o_bias=True, mlp_bias=True, tied=True, mlp="plain", mlp_names=("c_fc", "c_proj"), norm_width=2,
    ),
    "ernie4_5": _Family(tied=True, default_head_dim=128),
    "hunyuan_v1_dense": _Family(head_norm=True),
    "exaone4": _Family(head_norm=True),
    "cohere": _Family(tied=True, norms=1),
    "cohere2": _Family(tied=True, norms=1, window_every=4),
    "ministral3": _Family(default_head_dim=128),
    "olmo": _Family(norm_width=0),
    "olmo3": _Family(wide_qk_norm=True, window_every=4),
    "olmoe": _Family(wide_qk_norm=True),
    "minimax_m2": _Family(wide_qk_norm=True),
    "stablelm": _Family(norm_width=2),
    "phimoe": _Family(norm_width=2, window_every=1),
    "arcee": _Family(mlp="plain", mlp_names=("up_proj", "down_proj")),
    "minicpm": _LLAMA,
}  # fmt: skip
"""Families whose counts are checked against transformers (tests/training) or public figures (tests/unit)."""

_BITS = {"gptq": 4.0, "awq": 4.0, "bitsandbytes": 4.0, "fp8": 8.0, "mxfp4": 4.25, "compressed-tensors": 8.0}


class _Reader:
    """Reads one text config. A class only to spare passing the same five values to every step."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.model_type = str(config.get("model_type") or "unknown")
        self.family = _FAMILIES.get(self.model_type, _LLAMA)
        self.layers = self.whole("num_hidden_layers", "num_layers", "n_layer", "n_layers")
        self.hidden = self.whole("hidden_size", "n_embd", "d_model", "dim")
        self.heads = self.whole("num_attention_heads", "n_head", "n_heads", default=max(1, self.hidden // 128))
        self.kv_heads = self._kv_heads()
        self.head_dim = self.whole(
            "head_dim", "kv_channels", default=self.family.default_head_dim or self.hidden // self.heads
        )
        self.intermediate = self.whole(
            "intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", default=4 * self.hidden
        )
        self.vocab = self.whole("padded_vocab_size", "vocab_size", default=0)

    def whole(self, *names: str, default: int | None = None) -> int:
        """First of `names` that holds a positive number."""
        for name in names:
            value = self.config.get(name)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
                return int(value)
        if default is None:
            raise InvalidInput(
                names[0], found="nothing", expected="a positive whole number in config.json",
                remedy="Choose the folder or file of a decoder model's own config.json.",
            )  # fmt: skip
        return default

    def optional(self, name: str) -> int | None:
        value = self.config.get(name)
        return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def flag(self, name: str, default: bool) -> bool:
        value = self.config.get(name)
        return value if isinstance(value, bool) else default

    def _kv_heads(self) -> int:
        if self.model_type == "chatglm":
            return (
                self.whole("multi_query_group_num", default=self.heads)
                if self.flag("multi_query_attention", False)
                else self.heads
            )
        return self.whole("num_key_value_heads", "num_kv_heads", default=self.heads)

    def shape(self, vision_parameters: int = 0) -> ModelShape:
        mixture = self._mixture()
        attention = self._attention()
        mla = self.optional("kv_lora_rank") is not None
        head_dim = (
            self.whole("qk_nope_head_dim", default=0) + self.whole("qk_rope_head_dim", default=0)
            if mla
            else self.head_dim
        )
        windowed = self._window_layers()
        return ModelShape(
            model_type=self.model_type,
            layers=self.layers,
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=self.heads if mla else self.kv_heads,
            head_dim=head_dim,
            value_dim=self.whole("v_head_dim", default=head_dim) if mla else head_dim,
            intermediate=self.intermediate,
            vocab=self.vocab,
            tied=self._tied(),
            matrices=attention + self._dense_mlp(mixture) + mixture.matrices,
            vectors=self._vectors(mla) + mixture.vectors,
            final_norm=self.family.norm_width * self.hidden,
            embedding_parameters=self._embedding(),
            head_bias=self.family.head_bias,
            other_parameters=vision_parameters,
            experts=mixture.experts,
            experts_active=mixture.active,
            moe_layers=mixture.layers,
            expert_intermediate=mixture.intermediate,
            shared_intermediate=mixture.shared,
            sliding_window=self.optional("sliding_window") if windowed else None,
            window_layers=windowed,
            attention_layers=self._attention_layers(),
            max_positions=self.optional("max_position_embeddings") or self.optional("seq_length"),
            gated_mlp=self.family.mlp != "plain",
            fused_mlp=self.family.mlp == "fused",
            norms_per_layer=self.family.norms,
            norm_head=self.family.head_norm or self.flag("use_qk_norm", False),
            logit_softcap=self.config.get("final_logit_softcapping") is not None,
            attention_softcap=self.config.get("attn_logit_softcapping") is not None,
            dtype=str(self.config.get("dtype") or self.config.get("torch_dtype") or "bfloat16"),
            quantized=_quantized(self.config.get("quantization_config")),
            estimate=self._doubt(vision_parameters),
        )

    def _doubt(self, vision_parameters: int) -> str:
        if self.model_type not in _FAMILIES:
            return f"model type {self.model_type!r} is not among the checked families; counted as a Llama-like decoder"
        if self._attention_layers() != self.layers:
            return "some layers use linear attention; they are counted as full attention layers"
        if vision_parameters:
            return "the vision or audio tower is estimated from its width and depth"
        return ""

    def _attention_layers(self) -> int:
        kinds = self.config.get("layer_types")
        if not isinstance(kinds, list):
            return self.layers
        return sum("linear" not in str(kind) for kind in kinds) or self.layers

    def _tied(self) -> bool:
        return self.flag("tie_word_embeddings", self.family.tied)

    def _embedding(self) -> int:
        return self.vocab * self.hidden

    def _window_layers(self) -> int:
        kinds = self.config.get("layer_types")
        if isinstance(kinds, list):
            return sum("sliding" in str(kind) for kind in kinds)
        if self.optional("sliding_window") is None:
            return 0
        if self.model_type.startswith("qwen2") or self.model_type.startswith("qwen3"):
            used = self.flag("use_sliding_window", False)
            return max(0, self.layers - self.whole("max_window_layers", default=0)) if used else 0
        if self.model_type == "gpt_oss":
            return (self.layers + 1) // 2
        every = self.whole("sliding_window_pattern", default=self.family.window_every or 0)
        return 0 if not every else self.layers if every == 1 else self.layers - self.layers // every

    def _attention(self) -> tuple[Matrix, ...]:
        if self.optional("kv_lora_rank") is not None:
            return self._latent_attention()
        family, count = self.family, self.layers
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        qkv_bias = self._qkv_bias()
        o_bias = self.flag("attention_out_bias", self.flag("attention_bias", False)) if not family.o_bias else True
        if self.model_type in ("qwen2", "qwen2_moe", "glm", "glm4", "glm4_moe", "phi3"):
            o_bias = False
        if self.model_type == "chatglm":
            o_bias = self.flag("add_bias_linear", False)
        output = _attention_matrix(family.o_name, q, self.hidden, count, o_bias, "heads")
        if family.fused_qkv:
            return _attention_matrix(family.fused_qkv, self.hidden, q + 2 * kv, count, qkv_bias), output
        names = family.q_name
        inputs = [
            _attention_matrix(name, self.hidden, width, count, qkv_bias)
            for name, width in zip(names, (q, kv, kv), strict=True)
        ]
        return (*inputs, output)

    def _qkv_bias(self) -> bool:
        if self.model_type == "chatglm":
            return self.flag("add_qkv_bias", False) or self.flag("add_bias_linear", False)
        if self.model_type.startswith("qwen2"):
            return self.flag("qkv_bias", True)
        if self.model_type == "starcoder2":
            return self.flag("use_bias", True)
        default = self.family.qkv_bias
        return self.flag("attention_bias", self.flag("use_bias", default))

    def _latent_attention(self) -> tuple[Matrix, ...]:
        """DeepSeek's MLA: queries and keys/values through low-rank bottlenecks."""
        nope, rope = self.whole("qk_nope_head_dim"), self.whole("qk_rope_head_dim")
        value, rank, count = self.whole("v_head_dim"), self.whole("kv_lora_rank"), self.layers
        query_rank, query = self.optional("q_lora_rank"), self.heads * (nope + rope)
        bias = self.flag("attention_bias", False)
        queries: tuple[Matrix, ...]
        if query_rank:
            queries = (
                _attention_matrix("q_a_proj", self.hidden, query_rank, count, bias),
                _attention_matrix("q_b_proj", query_rank, query, count, False, "latent_q"),
            )
        else:
            queries = (_attention_matrix("q_proj", self.hidden, query, count, False),)
        return (
            *queries,
            _attention_matrix("kv_a_proj_with_mqa", self.hidden, rank + rope, count, bias),
            _attention_matrix("kv_b_proj", rank, self.heads * (nope + value), count, False, "latent_kv"),
            _attention_matrix("o_proj", self.heads * value, self.hidden, count, bias, "heads"),
        )

    def _dense_mlp(self, mixture: _Mixture) -> tuple[Matrix, ...]:
        count = self.layers - mixture.layers
        if count == 0:
            return ()
        return self._mlp(self.intermediate, count, Part.MLP)

    def _mlp(self, width: int, count: int, part: Part) -> tuple[Matrix, ...]:
        family, bias = self.family, self._mlp_bias()
        *inputs, output = family.mlp_names
        first = 2 * width if family.mlp == "fused" else width
        return (
            *(
                Matrix(name=name, part=part, fan_in=self.hidden, fan_out=first, count=count, bias=bias)
                for name in inputs
            ),
            Matrix(name=output, part=part, fan_in=width, fan_out=self.hidden, count=count, bias=bias, reads="product"),
        )

    def _mlp_bias(self) -> bool:
        if self.model_type == "chatglm":
            return self.flag("add_bias_linear", False)
        return self.flag("mlp_bias", self.flag("use_bias", self.family.mlp_bias))

    def _mixture(self) -> _Mixture:
        experts = self.whole("num_local_experts", "num_experts", "n_routed_experts", default=0)
        if not experts:
            return _Mixture()
        layers = self._moe_layers()
        width = self.whole("moe_intermediate_size", default=self.intermediate)
        active = self.whole("num_experts_per_tok", "moe_top_k", default=1)
        share = active / experts
        routed = _Routed(layers=layers, experts=experts, width=width, share=share, biased=self.model_type == "gpt_oss")
        router = _router(self.hidden, routed, linear=self.model_type == "deepseek_v2")
        matrices = [router, *_expert_matrices(self.hidden, routed)]
        shared = self._shared_width(width)
        if shared:
            matrices += self._mlp(shared, layers, Part.MLP)
        if self.model_type == "qwen2_moe":
            matrices.append(
                Matrix(name="shared_expert_gate", part=Part.ROUTER, fan_in=self.hidden, fan_out=1, count=layers)
            )
        return _Mixture(
            matrices=tuple(matrices), layers=layers, experts=experts, active=active, intermediate=width, shared=shared
        )

    def _moe_layers(self) -> int:
        first_dense = self.optional("first_k_dense_replace")
        if first_dense is not None:
            return max(0, self.layers - first_dense)
        only_dense = self.config.get("mlp_only_layers")
        dense = {int(layer) for layer in only_dense} if isinstance(only_dense, list) else set()
        step = self.whole("decoder_sparse_step", default=1)
        return sum(layer not in dense and (layer + 1) % step == 0 for layer in range(self.layers))

    def _shared_width(self, width: int) -> int:
        shared = self.optional("n_shared_experts")
        if shared:
            return shared * width
        return self.whole("shared_expert_intermediate_size", default=0)

    def _vectors(self, mla: bool) -> int:
        """Norm weights and other one-dimensional parameters of all layers."""
        family = self.family
        per_layer = family.norms * family.norm_width * self.hidden
        if family.head_norm or (self.model_type == "glm4_moe" and self.flag("use_qk_norm", False)):
            per_layer += 2 * self.head_dim
        if family.wide_qk_norm:
            per_layer += (self.heads + self.kv_heads) * self.head_dim
        if mla:
            per_layer += self.whole("kv_lora_rank") + (self.optional("q_lora_rank") or 0)
        if self.model_type == "gpt_oss":
            per_layer += self.heads  # attention sinks
        return per_layer * self.layers


@dataclass(frozen=True, slots=True)
class _Mixture:
    matrices: tuple[Matrix, ...] = ()
    vectors: int = 0
    layers: int = 0
    experts: int = 0
    active: int = 0
    intermediate: int = 0
    shared: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Routed:
    """The routed experts of all mixture layers: `width` of one expert, `share` that a token passes."""

    layers: int
    experts: int
    width: int
    share: float
    biased: bool


def _router(hidden: int, routed: _Routed, *, linear: bool) -> Matrix:
    return Matrix(
        name="gate",
        part=Part.ROUTER,
        fan_in=hidden,
        fan_out=routed.experts,
        count=routed.layers,
        bias=routed.biased,
        linear=linear,
    )


def _expert_matrices(hidden: int, routed: _Routed) -> tuple[Matrix, Matrix]:
    def fused(name: str, fan_in: int, fan_out: int) -> Matrix:
        return Matrix(
            name=name,
            part=Part.EXPERTS,
            fan_in=fan_in,
            fan_out=fan_out,
            count=routed.layers * routed.experts,
            bias=routed.biased,
            active=routed.share,
            linear=False,
        )

    return fused("gate_up_proj", hidden, 2 * routed.width), fused("down_proj", routed.width, hidden)


def _attention_matrix(name: str, fan_in: int, fan_out: int, count: int, bias: bool, reads: str = "stream") -> Matrix:
    return Matrix(name=name, part=Part.ATTENTION, fan_in=fan_in, fan_out=fan_out, count=count, bias=bias, reads=reads)


def _quantized(value: object) -> Quantized | None:
    if not isinstance(value, dict):
        return None
    block = cast("Config", value)
    method = str(block.get("quant_method") or "unknown")
    bits = block.get("bits")
    if isinstance(bits, (int, float)):
        return Quantized(method=method, bits=float(bits))
    if method == "bitsandbytes" and block.get("load_in_8bit") is True:
        return Quantized(method=method, bits=8.0)
    return Quantized(method=method, bits=_BITS.get(method, 8.0))


def _vision_parameters(value: object) -> int:
    """A vision transformer's size from its own config: 4 h² of attention and two or three matrices of the MLP a layer."""
    if not isinstance(value, dict):
        return 0
    vision = cast("Config", value)
    depth = _number(vision, "num_hidden_layers", "depth", "layers")
    width = _number(vision, "hidden_size", "embed_dim", "width")
    inner = _number(vision, "intermediate_size") or 4 * width
    return depth * (4 * width * width + 2 * width * inner)


def _number(config: Config, *names: str) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return 0
