"""ModelShape and Workload in, FLOPs per step out; FLOPs and seconds in, MFU out.

Counted as torch.utils.flop_counter counts: a multiply-add is two FLOPs, only matrix products, attention over the whole
square whatever the mask. `Flops.needed` leaves out what a causal mask or a sliding window makes unnecessary.
"""

from __future__ import annotations

from dataclasses import dataclass

from backend.planning.cards import CardPeak
from backend.planning.model_shape import Matrix, ModelShape
from backend.planning.workload import Attention, Checkpointing, Method, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Flops:
    """FLOPs of one pass over `sequences` rows of `length` tokens on one rank.

    `model` (forward + backward) is what MFU counts; `recompute` is what checkpointing adds (hardware FLOPs = both).
    """

    sequences: float
    length: float
    forward: float
    backward: float
    recompute: float

    @property
    def model(self) -> float:
        return self.forward + self.backward

    @property
    def hardware(self) -> float:
        return self.forward + self.backward + self.recompute

    @property
    def model_per_token(self) -> float:
        return self.model / (self.sequences * self.length)


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilization:
    """Shares 0..1. `of_peak` is MFU; `of_matmul` compares with the largest matmul measured (None = not known)."""

    flops_per_second: float
    of_peak: float | None
    of_matmul: float | None
    peak_source: str = ""
    matmul_source: str = ""


def count_flops(
    shape: ModelShape, work: Workload, *, sequences: float, length: float, needed_only: bool = False
) -> Flops:
    """FLOPs of a forward and backward pass over `sequences` x `length` tokens (padding included, if it is computed)."""
    tokens = sequences * length
    layer_forward = 2 * tokens * sum(matrix.multiply_adds_per_token for matrix in shape.matrices)
    scores = attention_forward(shape, sequences=sequences, length=length, needed_only=needed_only)
    head = 2.0 * tokens * shape.hidden * shape.vocab
    adapters = 2 * tokens * adapter_multiply_adds(shape, work)
    trained = _weight_gradient_share(shape, work)
    passed = _input_gradient_share(shape, work)
    score_backward = (2.0 if work.attention is Attention.EAGER else 2.5) * scores * passed
    backward = layer_forward * (passed + trained.layers) + score_backward + head * (1 + trained.head) + 2 * adapters
    recomputed = 0.0
    if work.checkpointing is not Checkpointing.NONE:
        recomputed = (layer_forward + scores + adapters) * passed
    return Flops(
        sequences=sequences,
        length=length,
        forward=layer_forward + scores + head + adapters,
        backward=backward,
        recompute=recomputed,
    )


def attention_forward(shape: ModelShape, *, sequences: float, length: float, needed_only: bool = False) -> float:
    """FLOPs of Q·Kᵀ and P·V. `needed_only`: the lower triangle, and only the window in windowed layers."""
    per_pair = 2.0 * shape.heads * (shape.head_dim + shape.value_dim)
    if not needed_only:
        return per_pair * sequences * length * length * shape.layers
    full_pairs = length * (length + 1) / 2
    window = min(float(shape.sliding_window or length), length)
    window_pairs = window * (window + 1) / 2 + (length - window) * window
    full_layers = shape.layers - shape.window_layers
    return per_pair * sequences * (full_layers * full_pairs + shape.window_layers * window_pairs)


def adapted_matrices(shape: ModelShape, work: Workload) -> tuple[Matrix, ...]:
    """Matrices that carry an adapter: every linear layer for `all` (never the head), otherwise those named."""
    if not work.adapters:
        return ()
    linear = tuple(matrix for matrix in shape.matrices if matrix.linear)
    if "all" in work.lora_targets:
        return linear
    return tuple(matrix for matrix in linear if matrix.name in work.lora_targets)


def adapter_multiply_adds(shape: ModelShape, work: Workload) -> float:
    """Multiply-adds that adapters add per token."""
    return sum(
        work.lora_rank * (matrix.fan_in + matrix.fan_out) * matrix.count * matrix.active
        for matrix in adapted_matrices(shape, work)
    )


def utilization(
    flops: float, seconds: float, card: CardPeak | None, *, measured_matmul: float | None = None
) -> Utilization:
    """`flops` done by one device in `seconds`. `measured_matmul` (FLOP/s of this host's own check) wins over the table."""
    if seconds <= 0:
        raise ValueError(f"seconds must be positive, found {seconds}")
    rate = flops / seconds
    matmul = measured_matmul or (card.matmul_flops if card else None)
    return Utilization(
        flops_per_second=rate,
        of_peak=rate / card.bf16_flops if card else None,
        of_matmul=rate / matmul if matmul else None,
        peak_source=card.source if card else "",
        matmul_source="measured on this host" if measured_matmul else (card.matmul_source if card else ""),
    )


@dataclass(frozen=True, slots=True)
class _Trained:
    layers: float
    head: float


def _weight_gradient_share(shape: ModelShape, work: Workload) -> _Trained:
    """Share of the layers' (and the head's) matrices whose own gradient is computed."""
    if work.method is Method.FULL:
        return _Trained(1.0, 1.0)
    if work.method is Method.FREEZE:
        return _Trained(min(abs(work.freeze_layers), shape.layers) / shape.layers, 0.0)
    return _Trained(0.0, 0.0)


def _input_gradient_share(shape: ModelShape, work: Workload) -> float:
    """Share of the layers that the backward pass walks through: all, or only those above the first trained one."""
    if work.method is Method.FREEZE and work.freeze_layers > 0:
        return min(work.freeze_layers, shape.layers) / shape.layers
    return 1.0
