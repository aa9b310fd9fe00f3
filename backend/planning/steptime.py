"""ModelShape, Workload, row lengths and speeds of the machine in, seconds per optimizer step out, with what they go to.

A model of the step, not a measurement: the time to launch the kernels from Python against the time that the GPU needs for
matrix products, attention and memory traffic, whichever is longer; ZeRO's own work, transfers and all-reduce on top. Counts of
kernels and bytes per token follow a trace of transformers 5, peft 0.18 and Liger 0.8. `Machine` holds the few speeds that
differ between hosts; a measured step corrects them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from backend.planning.activations import Batch, uses_autocast
from backend.planning.cards import CardPeak
from backend.planning.flops import adapted_matrices, attention_forward, count_flops
from backend.planning.lengths import Lengths
from backend.planning.memory import trainable_parameters, weight_bytes
from backend.planning.model_shape import ModelShape
from backend.planning.workload import Attention, Checkpointing, Method, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Speeds of one host. Defaults are an H200 host measured with 8B LoRA runs (docs/speed.md); `scale` stretches the whole
    step after a calibration."""

    matmul_flops: float = 7.9e14
    memory_bytes_per_second: float = 4.0e12
    kernel_seconds: float = 28e-6
    """Python, dispatcher and driver per launched kernel."""
    zero_hook_seconds: float = 0.4e-3
    """DeepSpeed's Python per gradient (stage 1 and 2) or per module and pass (stage 3): three hosts gave 0.33 to 0.45 ms."""
    host_link_bytes_per_second: float = 2.0e10
    bus_bytes_per_second: float = 2.5e11
    """All-reduce bus bandwidth between the GPUs."""
    scale: float = 1.0
    source: str = "defaults"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one optimizer step on one rank, and what it does. `bound`: launch, gpu, zero or link, the largest of them."""

    seconds: float
    launch: float
    matmul: float
    attention: float
    traffic: float
    zero: float
    link: float
    communication: float
    computed_tokens: float
    tokens: float
    rows: float

    @property
    def bound(self) -> str:
        gpu = self.matmul + self.attention + self.traffic
        parts = {"gpu": gpu, "launch": self.launch, "zero": self.zero, "link": self.link}
        return max(parts, key=lambda name: parts[name])

    @property
    def tokens_per_second(self) -> float:
        """Of one rank, without padding."""
        return self.tokens / self.seconds

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds

    @property
    def padding_share(self) -> float:
        return 1 - self.tokens / self.computed_tokens


def machine_of(
    card: CardPeak | None, *, matmul_flops: float | None = None, memory_bytes_per_second: float | None = None
) -> Machine:
    """Speeds from a card's table and this host's own check, where there is one."""
    if card is None and matmul_flops is None:
        return Machine()
    peak = matmul_flops or (card.matmul_flops if card else None) or (0.55 * card.bf16_flops if card else 0) or 7.9e14
    bandwidth = memory_bytes_per_second or (0.85 * card.memory_bytes_per_second if card else 4.0e12)
    source = "measured on this host" if matmul_flops else f"{card.name} table" if card else "defaults"
    return Machine(matmul_flops=peak, memory_bytes_per_second=bandwidth, source=source)


def calibrate(machine: Machine, predicted: StepTime, measured_seconds: float) -> Machine:
    """The same machine with every speed stretched so that `predicted` becomes what was measured."""
    if measured_seconds <= 0 or predicted.seconds <= 0:
        return machine
    return replace(machine, scale=machine.scale * measured_seconds / predicted.seconds, source="measured steps")


def mean_batch(work: Workload, lengths: Lengths | None) -> Batch:
    """The usual micro batch: packed blocks, or rows padded to the longest of them (multiple of 8)."""
    if work.packing:
        return Batch(sequences=work.micro_batch, length=work.cutoff, masked=work.neat_packing)
    if lengths is None:
        return Batch(sequences=work.sequences, length=work.cutoff, masked=work.sequences > 1)
    longest = lengths.mean_longest_of(work.sequences, work.cutoff)
    padded = min(8.0 * math.ceil(work.cutoff / 8), longest + (3.5 if work.cutoff > 8 else 0))
    return Batch(sequences=work.sequences, length=padded, masked=work.sequences > 1)


def predict_step(shape: ModelShape, work: Workload, lengths: Lengths | None, machine: Machine) -> StepTime:
    """One optimizer step of `work` on one rank of `machine`."""
    batch = mean_batch(work, lengths)
    micro = work.accumulation
    matmul, attention = _product_seconds(shape, work, batch, machine)
    traffic = _traffic_bytes(shape, work, batch) / machine.memory_bytes_per_second
    launch = machine.kernel_seconds * kernel_count(shape, work, batch)
    zero = machine.zero_hook_seconds * _zero_hooks(shape, work)
    link = _link_bytes(shape, work) / machine.host_link_bytes_per_second
    gpu = matmul + attention + traffic
    communication = _communication_bytes(shape, work) / machine.bus_bytes_per_second
    once = _once_seconds(shape, work, machine)
    # Launching and computing overlap; near the balance the overlap is not perfect.
    busy = max(launch + zero, gpu) + 0.15 * min(launch + zero, gpu)
    tokens, rows = _useful(work, lengths, batch)
    return StepTime(
        seconds=machine.scale * (micro * (busy + link) + communication + once),
        launch=micro * launch,
        matmul=micro * matmul,
        attention=micro * attention,
        traffic=micro * traffic,
        zero=micro * zero,
        link=micro * link,
        communication=communication,
        computed_tokens=micro * batch.tokens,
        tokens=micro * tokens,
        rows=micro * rows,
    )


def _useful(work: Workload, lengths: Lengths | None, batch: Batch) -> tuple[float, float]:
    """(tokens without padding, rows) of one micro batch."""
    if lengths is None:
        return batch.tokens, float(work.micro_batch)
    if work.packing:
        share = 1 - lengths.packed_padding_share(work.cutoff)
        return batch.tokens * share, work.micro_batch * lengths.rows_per_block(work.cutoff)
    return batch.sequences * lengths.mean_kept(work.cutoff), float(work.micro_batch)


def _passes(work: Workload) -> float:
    """Forward passes over the layers: one more when they are recomputed."""
    return 1.0 if work.checkpointing is Checkpointing.NONE else 2.0


def _product_seconds(shape: ModelShape, work: Workload, batch: Batch, machine: Machine) -> tuple[float, float]:
    """(matrix products, attention). Attention kernels reach about half of the matmul rate, a third with an explicit mask."""
    flops = count_flops(shape, work, sequences=batch.sequences, length=batch.length)
    square = attention_forward(shape, sequences=batch.sequences, length=batch.length)
    factor = _passes(work) + (2.0 if work.attention is Attention.EAGER else 2.5)
    products = flops.hardware - factor * square
    explicit = batch.masked and work.attention is not Attention.FA2
    needed = square if explicit else square / 2
    share = 0.3 if explicit or work.attention is Attention.EAGER else 0.5
    rate = machine.matmul_flops * (0.92 if work.bf16_or_fp16 else 0.08)
    weights = _weight_reads(shape, work) / machine.memory_bytes_per_second
    return max(products / rate, weights), factor * needed / (rate * share)


def _weight_reads(shape: ModelShape, work: Workload) -> float:
    """Bytes of weights that every micro batch reads, however few tokens it has."""
    reads = _passes(work) + (2.0 if work.method is Method.FULL else 1.0)
    extra = 3.0 if work.quantization_bits else 1.0  # dequantized into a temporary each time
    return 2.0 * shape.active_parameters * reads * extra


def _traffic_bytes(shape: ModelShape, work: Workload, batch: Batch) -> float:
    """Bytes that element-wise kernels, casts and the thin products of adapters read and write in one micro batch."""
    forward, backward = _layer_traffic(shape, work, batch)
    per_token = shape.layers * (_passes(work) * forward + backward) + _loss_traffic(shape, work)
    weights = 0.0
    if uses_autocast(work) and not work.adapters:
        weights = trainable_parameters(shape, work) * (6 * _passes(work) + 10)
    compiled = 0.55 if work.compile else 1.0
    return compiled * batch.tokens * per_token + weights


def _layer_traffic(shape: ModelShape, work: Workload, batch: Batch) -> tuple[float, float]:
    """(forward, backward) bytes per token of one layer."""
    hidden, heads = shape.hidden, shape.q_width + shape.kv_width
    width = float(shape.intermediate) if not shape.is_moe else _mixture_width(shape)
    forward, backward = 12.0 * hidden + 27.0 * heads, 18.0 * hidden + 47.0 * heads
    if work.liger:
        forward += 4 * shape.norms_per_layer * hidden + 6 * width
        backward += 6 * shape.norms_per_layer * hidden + 10 * width
    else:
        forward += 36 * shape.norms_per_layer * hidden + 10 * width
        backward += 88 * shape.norms_per_layer * hidden + 18 * width
    if shape.norm_head:
        forward, backward = forward + (4 if work.liger else 36) * heads, backward + (6 if work.liger else 88) * heads
    for matrix in adapted_matrices(shape, work):
        share = matrix.count * matrix.active / shape.layers
        casts = 12 if uses_autocast(work) else 0
        forward += share * ((2 + casts) * matrix.fan_in + 12 * matrix.fan_out)
        backward += share * ((10 + casts) * matrix.fan_in + 8 * matrix.fan_out)
    if work.attention is Attention.EAGER:
        forward += 36 * shape.heads * batch.length
        backward += 41 * shape.heads * batch.length
    return forward, backward


def _mixture_width(shape: ModelShape) -> float:
    return float(shape.experts_active * shape.expert_intermediate + shape.shared_intermediate)


def _loss_traffic(shape: ModelShape, work: Workload) -> float:
    """Per token: log-softmax and its copies over the vocabulary; Liger's fused loss passes over it three times."""
    return (10.0 if work.liger and work.stage in ("sft", "pt") else 55.0) * shape.vocab


def kernel_count(shape: ModelShape, work: Workload, batch: Batch) -> float:
    """Kernels launched in one micro batch, forward, recomputation and backward."""
    per_layer = sum(matrix.count for matrix in shape.matrices if matrix.linear) / shape.layers
    adapted = sum(matrix.count for matrix in adapted_matrices(shape, work)) / shape.layers
    casts = uses_autocast(work)
    linear = (per_layer - adapted) * (3 if casts and not work.adapters else 1) + adapted * (9 if casts else 5.5)
    # One of Liger's kernels replaces six of a norm, but Triton's launcher and an autograd function in Python cost what five of
    # PyTorch's own launches do: where launches decide, Liger gains next to nothing (docs/evidence/one-h200.md).
    norms = shape.norms_per_layer * (5 if work.liger else 6) + (0 if not shape.norm_head else 10 if work.liger else 12)
    attention = 13.0 if work.attention is Attention.EAGER else 8.0 if batch.masked else 4.0
    experts = 12.0 * shape.moe_layers / shape.layers + (4.0 * shape.experts if shape.is_moe else 0.0)
    forward = linear + norms + attention + experts + 12 + (4 if work.liger else 2)
    backward = forward * (1.3 if work.adapters else 1.6)
    total = shape.layers * (_passes(work) * forward + backward) + 60
    return total * (0.35 if work.compile else 1.0)


def _zero_hooks(shape: ModelShape, work: Workload) -> float:
    """Times that DeepSpeed's Python runs in one micro batch: per gradient, or per module and pass in stage 3."""
    if not work.zero_stage:
        return 0.0
    adapted = sum(matrix.count for matrix in adapted_matrices(shape, work))
    linear = sum(matrix.count for matrix in shape.matrices if matrix.linear)
    gradients = 2.0 * adapted if work.adapters else linear + shape.norms_per_layer * shape.layers
    if work.zero_stage < 3:
        return gradients
    modules = linear + 4.0 * adapted + (3 + shape.norms_per_layer) * shape.layers
    return modules * (_passes(work) + 1) + gradients


def _link_bytes(shape: ModelShape, work: Workload) -> float:
    """Bytes over the host link in one micro batch: weights that live in host memory, activations kept there."""
    moved = 0.0
    if work.offload_param and work.zero_stage == 3:
        moved += weight_bytes(shape, work) / work.world * (_passes(work) + 1)
    return moved


def _communication_bytes(shape: ModelShape, work: Workload) -> float:
    """Bytes through the bus of one GPU in one step; ZeRO-3 gathers the weights in every pass of every micro batch."""
    if work.world == 1:
        return 0.0
    share = (work.world - 1) / work.world
    moved = 2 * share * trainable_parameters(shape, work) * (4 if work.zero_stage is None else 2)
    if work.zero_stage == 3:
        moved += share * weight_bytes(shape, work) * (_passes(work) + 1) * work.accumulation
    return moved


def _once_seconds(shape: ModelShape, work: Workload, machine: Machine) -> float:
    """Gradient clipping, optimizer and the trainer's own work, once a step."""
    trained = trainable_parameters(shape, work) / (work.world if work.zero_stage else 1)
    update = trained * 36 / machine.memory_bytes_per_second
    if work.offload_optimizer:
        update += trained * (
            4 / machine.host_link_bytes_per_second + 1 / 1.5e9
        )  # CPU Adam: about 1.5e9 parameters a second
    return update + 400 * machine.kernel_seconds
