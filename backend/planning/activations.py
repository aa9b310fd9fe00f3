"""ModelShape and Workload in, bytes of activations out: what autograd keeps of each layer, and the tops of each phase.

The terms follow what transformers 5, peft 0.18 and Liger 0.8 keep for the backward pass, tensor by tensor; they are
checked against a traced step of the real code (tests/integration/test_memory_oracle.py). Per token, h = hidden width,
f = width of the MLP, q and kv = widths of queries and keys; half precision is 2 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from backend.planning.flops import adapted_matrices
from backend.planning.model_shape import Matrix, ModelShape, Part
from backend.planning.workload import Attention, Checkpointing, Method, Workload

HALF, FULL = 2, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro batch as the model sees it: `sequences` rows padded to `length`. `masked`: some row is padded, so the
    attention needs an explicit mask (torch's sdpa then keeps it and repeats grouped keys)."""

    sequences: float
    length: float
    masked: bool

    @property
    def tokens(self) -> float:
        return self.sequences * self.length


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Bytes. `saved_layer`: kept of one layer when nothing is recomputed; `boundary`: its input (all that checkpointing
    keeps); `forward_top` and `backward_top`: short-lived tensors on top of what is kept, inside one layer; `loss`: kept
    after the last layer until the loss is done; `loss_top`: the highest point there, on top of everything kept."""

    saved_layer: float
    boundary: float
    forward_top: float
    backward_top: float
    loss_forward: float
    loss_backward: float


def build_activations(shape: ModelShape, work: Workload, batch: Batch) -> Activations:
    """Activations of one micro batch on one GPU."""
    facts = _Facts.of(shape, work, batch)
    tokens = batch.tokens
    loss_forward, loss_backward = _loss_bytes(facts, tokens)
    return Activations(
        saved_layer=tokens * _saved_per_token(facts),
        boundary=tokens * facts.stream_bytes * shape.hidden,
        forward_top=tokens * _forward_top(facts),
        backward_top=tokens * _backward_top(facts),
        loss_forward=loss_forward,
        loss_backward=loss_backward,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What the terms below ask about. `casts`: autocast makes a half-precision copy of each trained layer's input."""

    shape: ModelShape
    work: Workload
    batch: Batch
    casts: bool
    trained: bool
    adapted: frozenset[str]
    stream_bytes: int
    """Bytes of one element of the residual stream: 4 when full training keeps fp32 weights under autocast."""

    @classmethod
    def of(cls, shape: ModelShape, work: Workload, batch: Batch) -> _Facts:
        casts = uses_autocast(work) and not _takes_half_inputs(shape, work)
        trained = not work.adapters
        return cls(
            shape=shape,
            work=work,
            batch=batch,
            casts=casts,
            trained=trained,
            adapted=frozenset(matrix.name for matrix in adapted_matrices(shape, work)),
            stream_bytes=FULL if not work.bf16_or_fp16 or (casts and work.method is Method.FULL) else HALF,
        )

    @property
    def element(self) -> int:
        return HALF if self.work.bf16_or_fp16 else FULL

    @property
    def repeats_keys(self) -> bool:
        """Grouped keys are repeated to the width of the queries: always in eager, with a mask in sdpa."""
        grouped = self.shape.kv_heads < self.shape.heads
        return grouped and (
            self.work.attention is Attention.EAGER or (self.work.attention is Attention.SDPA and self.batch.masked)
        )

    @property
    def adapts_product(self) -> bool:
        return any(m.reads == "product" and m.linear for m in adapted_matrices(self.shape, self.work))

    @property
    def active_width(self) -> float:
        """Width of the MLP that one token passes, averaged over layers (experts per token, shared experts)."""
        shape = self.shape
        if not shape.is_moe:
            return float(shape.intermediate)
        sparse = shape.experts_active * shape.expert_intermediate + shape.shared_intermediate
        dense = shape.layers - shape.moe_layers
        return (sparse * shape.moe_layers + shape.intermediate * dense) / shape.layers


def _takes_half_inputs(shape: ModelShape, work: Workload) -> bool:
    """Adapters on bitsandbytes' 4-bit layers leave the cast to autocast: inputs that layers share are kept once, and there
    is no fp32 copy. (Those on 8-bit layers do too, but the layer itself keeps the input's outlier columns: measured with
    random weights that comes to the same as a copy; the plan stays with it.)"""
    return work.adapters and work.quantization_bits == 4


def uses_autocast(work: Workload) -> bool:
    """The trainer wraps the forward in autocast unless DeepSpeed or pure_bf16 made the whole model half precision."""
    return work.bf16_or_fp16 and not work.pure_bf16 and work.zero_stage is None


def _saved_per_token(facts: _Facts) -> float:
    return _norms(facts) + _head_norms(facts) + _inputs(facts) + _attention(facts) + _mlp(facts) + _experts(facts)


def _norms(facts: _Facts) -> float:
    """Norms of the residual stream keep their input: in fp32 in plain transformers, as it is with Liger."""
    shape = facts.shape
    if facts.work.liger:
        return shape.norms_per_layer * facts.stream_bytes * shape.hidden
    kept = FULL * shape.hidden
    if facts.trained:
        kept += (FULL if shape.model_type.startswith("gemma") else facts.stream_bytes) * shape.hidden
    return shape.norms_per_layer * kept


def _head_norms(facts: _Facts) -> float:
    if not facts.shape.norm_head:
        return 0.0
    width = facts.shape.q_width + facts.shape.kv_width
    if facts.work.liger:
        return facts.element * width
    return (FULL + (facts.element if facts.trained else 0)) * width


def _inputs(facts: _Facts) -> float:
    """Inputs of linear layers that are kept for weight gradients; without a trained weight none is."""
    if facts.trained:
        return _inputs_of_trained(facts)
    if not facts.adapted:
        return 0.0
    shape, element = facts.shape, facts.element
    total = 0.0
    seen: set[str] = set()
    for matrix in adapted_matrices(shape, facts.work):
        share = matrix.count / shape.layers
        total += element * facts.work.lora_rank * share
        source = f"{matrix.part}.{matrix.reads}"
        if facts.casts or source not in seen:
            total += _input_bytes(facts, matrix) * share
        seen.add(source)
        if facts.work.lora_dropout:
            total += (1 + (0 if facts.casts else element)) * matrix.fan_in * share
    return total


def _input_bytes(facts: _Facts, matrix: Matrix) -> float:
    """The attention output is shared with sdpa's own saved output when no copy is cast."""
    shared = matrix.reads == "heads" and not facts.casts and facts.work.attention is not Attention.EAGER
    return 0.0 if shared else facts.element * matrix.fan_in


def _inputs_of_trained(facts: _Facts) -> float:
    shape, element = facts.shape, facts.element
    eager = element * shape.heads * shape.value_dim if facts.work.attention is Attention.EAGER else 0
    product = element * facts.active_width
    attention = [m for m in shape.matrices if m.part is Part.ATTENTION and m.reads == "stream"]
    copies = len(attention) if facts.casts else 1
    gates = (1 if shape.fused_mlp or not shape.gated_mlp else 2) if facts.casts else 1
    return eager + product + element * shape.hidden * (copies + gates)


def _attention(facts: _Facts) -> float:
    shape, element = facts.shape, facts.element
    output = shape.heads * shape.value_dim
    keys = 2 * shape.q_width if facts.repeats_keys else shape.kv_width + shape.kv_heads * shape.value_dim
    kept = element * (shape.q_width + keys)
    if facts.work.attention is Attention.EAGER:
        return kept + (FULL + element) * shape.heads * facts.batch.length
    mask = element * facts.batch.length if facts.batch.masked and facts.work.attention is Attention.SDPA else 0
    return kept + element * output + FULL * shape.heads + mask


def _mlp(facts: _Facts) -> float:
    """Gate, activated gate and up (Liger recomputes the activated gate); averaged over the dense layers."""
    shape = facts.shape
    if not shape.gated_mlp:
        return facts.element * shape.intermediate * (1 if facts.trained or facts.adapted else 2)
    width = facts.active_width
    return facts.element * width * (2 if facts.work.liger else 3)


def _experts(facts: _Facts) -> float:
    """Rows gathered for each expert and their outputs before they are weighted and summed."""
    shape = facts.shape
    if not shape.is_moe:
        return 0.0
    share = shape.moe_layers / shape.layers
    return share * (2 * facts.element * shape.experts_active * shape.hidden + FULL * shape.experts)


def _forward_top(facts: _Facts) -> float:
    """In the MLP: the product of gate and up, and, with an adapter on it under autocast, its fp32 copy."""
    shape, width = facts.shape, facts.active_width
    top = facts.element * width + facts.element * 2 * shape.hidden
    if facts.casts and facts.adapts_product:
        top += FULL * width
    return top


def _backward_top(facts: _Facts) -> float:
    """In the MLP's backward: the product's gradient, once more through its adapter, in fp32 too under autocast."""
    shape, width = facts.shape, facts.active_width
    top = facts.element * width + facts.element * 2 * shape.hidden
    if facts.adapts_product or facts.trained:
        top += facts.element * width
    if facts.casts and facts.adapts_product:
        top += FULL * width
    if facts.work.attention is not Attention.EAGER:
        return top
    # Later, in eager attention's backward: gradients of the score matrix; what the MLP kept is free again by then.
    scores = (FULL + facts.element) * shape.heads * facts.batch.length
    return max(top, scores - _mlp(facts) - facts.element * width - (FULL + 2 * facts.element) * shape.hidden)


def _loss_bytes(facts: _Facts, tokens: float) -> tuple[float, float]:
    """(forward, backward) of the final norm, the head and the loss.

    Plain: two fp32 copies of the logits and the half-precision ones in the forward pass, three fp32 copies at the start of
    the backward pass (log-softmax, its gradient, the logits' gradient). Liger never has them all: one chunk of logits, and
    the gradient of the head's input.
    """
    shape, work = facts.shape, facts.work
    norm = tokens * (facts.stream_bytes if work.liger else FULL) * shape.hidden
    if work.method is Method.FULL:
        norm += tokens * (facts.element + facts.stream_bytes) * shape.hidden
    if work.liger and work.stage in ("sft", "pt"):
        chunk = liger_chunk(tokens, shape.vocab, shape.hidden)
        gradient = tokens * facts.element * shape.hidden
        head = shape.vocab * shape.hidden * facts.stream_bytes if work.method is Method.FULL else 0
        return norm + 2 * gradient + head + chunk * shape.vocab * facts.element, norm + gradient + head
    logits = tokens * shape.vocab
    if work.stage == "rm":
        return norm + (FULL + facts.element) * logits, norm
    if work.stage in ("dpo", "kto"):
        # The policy's logits and log-softmax are held while the reference computes its own pair.
        return norm + 4 * FULL * logits, norm + 3 * FULL * logits
    return norm + (2 * FULL + facts.element) * logits, norm + 3 * FULL * logits


def liger_chunk(tokens: float, vocab: int, hidden: int) -> float:
    """Rows of logits that Liger's fused loss holds at a time: a power of two near tokens x hidden / vocab."""
    wanted = -(-tokens // max(1, -(-vocab // hidden)))
    power = 1
    while power < wanted:
        power *= 2
    return min(float(power), tokens)


def kept_layers(shape: ModelShape, work: Workload) -> int:
    """Layers whose activations are kept at once: those that the backward pass walks through."""
    if work.method is Method.FREEZE and work.freeze_layers > 0:
        return min(work.freeze_layers, shape.layers)
    return shape.layers


def checkpointed(work: Workload) -> bool:
    return work.checkpointing is not Checkpointing.NONE
