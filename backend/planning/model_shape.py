"""ModelShape: layers, matrices and exact parameter counts of a decoder model, without its weights.

One list of matrices serves everything that follows: parameters (all of them), LoRA adapters (those that are linear
layers), FLOPs (those that a token passes through) and activations. Families are described as transformers 5 builds them:
the experts of a mixture are fused parameters there, so `lora_target: all` does not reach them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Part(StrEnum):
    """Where a matrix stands in a layer; the names are message keys of the memory chart."""

    ATTENTION = "attention"
    MLP = "mlp"
    ROUTER = "router"
    EXPERTS = "experts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """`count` equal weights of shape [fan_out, fan_in]; `name` is the module's own name, as `lora_target` takes it.

    `active` is the share of the copies that one token passes through (experts per token / experts).
    `linear` False: a bare parameter that no adapter can wrap.
    """

    name: str
    part: Part
    fan_in: int
    fan_out: int
    count: int
    bias: bool = False
    active: float = 1.0
    linear: bool = True
    reads: str = "stream"
    """Which tensor it multiplies: stream (the normed hidden state), heads (attention's output), product (of the MLP), or
    the name of a low-rank bottleneck. Matrices that read the same tensor share what is kept of it."""

    @property
    def parameters(self) -> int:
        return self.count * (self.fan_in * self.fan_out + (self.fan_out if self.bias else 0))

    @property
    def multiply_adds_per_token(self) -> float:
        return self.active * self.count * self.fan_in * self.fan_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantized:
    """Weights stored in fewer bits by the model itself (`quantization_config`): GPTQ, AWQ, FP8, MXFP4, bitsandbytes."""

    method: str
    bits: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What memory, FLOPs and adapters depend on. Lengths are counts of elements; parameters are exact unless `estimate`.

    `estimate` says in words why a count may be off ("" = exact). `kv_width` and `q_width` are the widths of the projected
    keys (or values) and queries over all heads. `window_layers` attend to the last `sliding_window` tokens only.
    """

    model_type: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    intermediate: int
    vocab: int
    tied: bool
    matrices: tuple[Matrix, ...]
    vectors: int
    """One-dimensional parameters of all layers (norms, sinks); `final_norm` holds those after the last layer."""
    final_norm: int
    embedding_parameters: int
    head_bias: bool = False
    other_parameters: int = 0
    experts: int = 0
    experts_active: int = 0
    moe_layers: int = 0
    expert_intermediate: int = 0
    shared_intermediate: int = 0
    sliding_window: int | None = None
    window_layers: int = 0
    attention_layers: int = 0
    max_positions: int | None = None
    gated_mlp: bool = True
    fused_mlp: bool = False
    norms_per_layer: int = 2
    norm_head: bool = False
    logit_softcap: bool = False
    attention_softcap: bool = False
    dtype: str = "bfloat16"
    quantized: Quantized | None = None
    estimate: str = ""

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def head_parameters(self) -> int:
        """Parameters of the output head that are not the embedding's."""
        return (0 if self.tied else self.vocab * self.hidden) + (self.vocab if self.head_bias else 0)

    @property
    def layer_parameters(self) -> int:
        return sum(matrix.parameters for matrix in self.matrices) + self.vectors

    @property
    def parameters(self) -> int:
        """All parameters, as `sum(p.numel() for p in model.parameters())` counts them."""
        outside = self.final_norm + self.embedding_parameters + self.head_parameters + self.other_parameters
        return self.layer_parameters + outside

    @property
    def active_parameters(self) -> int:
        """Parameters that one token passes through, embedding table included."""
        idle = sum(matrix.parameters * (1 - matrix.active) for matrix in self.matrices)
        return self.parameters - round(idle)

    @property
    def parameters_by_part(self) -> Mapping[str, int]:
        parts = {
            "embedding": self.embedding_parameters,
            "head": self.head_parameters,
            "norms": self.vectors + self.final_norm,
        }
        for matrix in self.matrices:
            parts[matrix.part.value] = parts.get(matrix.part.value, 0) + matrix.parameters
        if self.other_parameters:
            parts["other"] = self.other_parameters
        return parts

    @property
    def is_moe(self) -> bool:
        return self.experts > 0
