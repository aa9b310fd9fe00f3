"""ModelShape, Workload and row lengths in, MemoryPlan out: what one GPU, the host and the disk must hold, with an error band.

Every part is counted as the trainer allocates it (weights, gradients, optimizer, activations, loss), for one rank. What it
cannot know is said in `MemoryPlan.doubts`, and the band is wider for it. A finished run's measured peak corrects the next plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from backend.planning.activations import (
    FULL,
    HALF,
    Activations,
    Batch,
    build_activations,
    checkpointed,
    kept_layers,
    uses_autocast,
)
from backend.planning.flops import adapted_matrices
from backend.planning.lengths import Lengths
from backend.planning.model_shape import ModelShape
from backend.planning.workload import Checkpointing, Method, Optimizer, Workload

GIB = 1 << 30
_DEFAULT_BUCKET = 500_000_000
"""Elements of DeepSpeed's reduce bucket when the configuration names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The GPU as measured: `capacity_bytes` is what the driver reports in total. `context_bytes`: what the runtime itself
    takes before the first tensor (CUDA or HIP context, BLAS workspaces). None = take the usual figure."""

    capacity_bytes: int
    context_bytes: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bytes:
    """One bar of the chart. `name` is a message key."""

    name: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """`allocated` is torch's peak of live tensors (compare with max_memory_allocated); `used` what the driver sees at that
    moment (allocator slack, context and communication buffers added). `low` and `high` bound `used`.

    `parts` sum up to `used`. `phase` names the moment of the peak: forward, loss, backward, step.
    """

    parts: tuple[Bytes, ...]
    allocated: int
    used: int
    low: int
    high: int
    phase: str
    host_bytes: int
    host_parts: tuple[Bytes, ...]
    checkpoint_bytes: int
    disk_bytes: int
    capacity_bytes: int | None
    batch: Batch
    doubts: tuple[str, ...]
    corrected_by: int = 0
    """Finished runs whose measured peak corrected this plan."""

    @property
    def fits(self) -> bool | None:
        """True only when the upper bound fits; None without a known capacity."""
        return None if self.capacity_bytes is None else self.high <= self.capacity_bytes

    @property
    def may_fit(self) -> bool | None:
        """False: even the lower bound is too large."""
        return None if self.capacity_bytes is None else self.low <= self.capacity_bytes

    @property
    def free_bytes(self) -> int | None:
        """What is certainly left (negative: missing)."""
        return None if self.capacity_bytes is None else self.capacity_bytes - self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPeak:
    """A finished run of this installation: the plan's `allocated` and the peak that torch measured, in bytes."""

    planned: int
    measured: int
    same_family: bool = True
    """Same model family and method: counts in full; others only widen the band."""


def plan_memory(
    shape: ModelShape,
    work: Workload,
    lengths: Lengths | None = None,
    card: Card | None = None,
    *,
    micro_batches: int = 2000,
    history: Iterable[MeasuredPeak] = (),
) -> MemoryPlan:
    """The plan for one rank. `micro_batches` is how many a run will see: the longest of them decides the peak."""
    batch = peak_batch(work, lengths, micro_batches)
    terms = peak_terms(shape, work, batch)
    factor, runs, spread = _correction(history)
    dynamic = round((terms.peak - terms.resident) * factor)
    allocated = terms.resident + dynamic
    overhead = _overhead(work, card, allocated, terms)
    used = allocated + sum(part.size for part in overhead)
    band = _band(shape, work, lengths, spread)
    host_parts = _host_parts(shape, work, terms)
    checkpoint = checkpoint_bytes(shape, work)
    return MemoryPlan(
        parts=(*_resident_parts(terms), *_dynamic_parts(terms, dynamic), *overhead),
        allocated=allocated,
        used=used,
        low=round(used - terms.resident * band.resident - dynamic * band.dynamic),
        high=round(used + terms.resident * band.resident + dynamic * band.dynamic),
        phase=terms.phase,
        host_bytes=sum(part.size for part in host_parts),
        host_parts=host_parts,
        checkpoint_bytes=checkpoint,
        disk_bytes=checkpoint * (work.save_total_limit or 3),
        capacity_bytes=card.capacity_bytes if card else None,
        batch=batch,
        doubts=_doubts(shape, work, lengths),
        corrected_by=runs,
    )


def largest_micro_batch(
    shape: ModelShape, work: Workload, card: Card, lengths: Lengths | None = None, *, limit: int = 512
) -> int:
    """Largest micro batch whose upper bound fits the card; 0 when not even one row does."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        plan = plan_memory(shape, replace(work, micro_batch=middle), lengths, card)
        low, high = (middle, high) if plan.fits else (low, middle - 1)
    return low


def peak_batch(work: Workload, lengths: Lengths | None, micro_batches: int) -> Batch:
    """The micro batch that decides the peak: packed blocks, or the longest rows that a run will meet."""
    if work.packing:
        return Batch(sequences=work.micro_batch, length=work.cutoff, masked=work.neat_packing)
    length = float(work.cutoff)
    if lengths is not None:
        length = lengths.mean_longest_of(work.sequences * max(1, micro_batches), work.cutoff)
    length = 8 * math.ceil(length / 8)
    return Batch(sequences=work.sequences, length=length, masked=work.sequences > 1 or lengths is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakTerms:
    """Bytes on one GPU. `phases` are the highs of forward, loss, backward (start, end) and step."""

    weights: int
    adapters: int
    masters: int
    gradients: int
    optimizer: int
    buffers: int
    reference: int
    activations: Activations
    kept: int
    forward: int
    loss: int
    backward_start: int
    backward_end: int
    step: int
    host_optimizer: int
    host_weights: int

    @property
    def resident(self) -> int:
        """Held from step to step; gradients are not among them, they are freed after each step."""
        return self.weights + self.adapters + self.masters + self.optimizer + self.buffers + self.reference

    @property
    def phases(self) -> tuple[int, ...]:
        return (self.forward, self.loss, self.backward_start, self.backward_end, self.step)

    @property
    def peak(self) -> int:
        return max(self.phases)

    @property
    def phase(self) -> str:
        return ("forward", "loss", "backward", "backward", "step")[self.phases.index(self.peak)]


def trainable_parameters(shape: ModelShape, work: Workload) -> int:
    """Parameters that get a gradient, as the trainer prints them."""
    if work.method is Method.FULL:
        return shape.parameters - shape.other_parameters
    if work.method is Method.FREEZE:
        return shape.layer_parameters * min(abs(work.freeze_layers), shape.layers) // shape.layers
    count = sum(work.lora_rank * (m.fan_in + m.fan_out) * m.count for m in adapted_matrices(shape, work))
    if work.dora:
        count += sum(m.fan_out * m.count for m in adapted_matrices(shape, work))
    return count + sum(_extra_parameters(shape, name) for name in work.extra_targets)


def _extra_parameters(shape: ModelShape, name: str) -> int:
    """`additional_target` trains a full copy of a module: mostly the embedding or the head."""
    return shape.vocab * shape.hidden if name in ("embed_tokens", "lm_head", "wte", "embeddings") else 0


def weight_bytes(shape: ModelShape, work: Workload) -> int:
    """Bytes of the model's own weights as loaded, before any cast of trained ones."""
    element = FULL if shape.dtype in ("float32", "torch.float32") else HALF
    bits = _quantized_bits(shape, work)
    if bits is None:
        return shape.parameters * element
    linear = sum(m.parameters for m in shape.matrices if m.linear or shape.quantized)
    return round(linear * bits / 8 + (shape.parameters - linear) * element)


def _quantized_bits(shape: ModelShape, work: Workload) -> float | None:
    """Bits per weight of the linear layers, scales included (nf4: one fp32 scale per 64 weights, itself 8 bit when doubled)."""
    if work.quantization_bits is not None:
        if work.quantization_bits == 4:
            return 4 + (8 + 32 / 256) / 64 if work.double_quantization else 4.5
        return float(work.quantization_bits)
    if shape.quantized is None:
        return None
    return shape.quantized.bits + (0.25 if shape.quantized.bits <= 4 else 0.05)


def peak_terms(shape: ModelShape, work: Workload, batch: Batch) -> PeakTerms:
    """Counts every part for one rank; `batch` is the micro batch that decides the peak."""
    act = build_activations(shape, work, batch)
    state = _model_state(shape, work)
    layers = kept_layers(shape, work)
    ckpt = checkpointed(work)
    host_kept = work.checkpointing is Checkpointing.HOST
    boundary = 0.0 if host_kept else act.boundary
    kept = shape.layers * boundary if ckpt else layers * act.saved_layer
    resident = state.resident
    carried = state.gradients if work.accumulation > 1 else 0
    cache = _autocast_cache(shape, work)
    within = act.saved_layer + act.backward_top if ckpt else act.backward_top
    last = boundary + act.saved_layer + act.backward_top
    head = state.head_gradients
    unfinished = _gradients_still_missing(shape, work, state)
    return PeakTerms(
        weights=state.weights,
        adapters=state.adapters,
        masters=state.masters,
        gradients=state.gradients,
        optimizer=state.optimizer,
        buffers=state.buffers,
        reference=state.reference,
        activations=act,
        kept=round(kept),
        forward=round(resident + carried + kept + act.forward_top + cache.forward),
        loss=round(
            resident
            + carried
            + kept
            + max(act.loss_forward + cache.forward + cache.head, act.loss_backward + cache.backward)
        ),
        backward_start=round(resident + max(carried, head) + kept + within + cache.backward),
        backward_end=round(resident + state.gradients - (0 if carried else unfinished) + last),
        step=round(resident + state.gradients + state.step_top),
        host_optimizer=state.host_optimizer,
        host_weights=state.host_weights,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """Bytes of one rank that do not depend on the batch."""

    weights: int
    adapters: int
    masters: int
    gradients: int
    head_gradients: int
    optimizer: int
    buffers: int
    reference: int
    step_top: int
    host_optimizer: int = 0
    host_weights: int = 0

    @property
    def resident(self) -> int:
        return self.weights + self.adapters + self.masters + self.optimizer + self.buffers + self.reference


def _model_state(shape: ModelShape, work: Workload) -> _State:
    return _plain_state(shape, work) if work.zero_stage is None else _zero_state(shape, work)


def _plain_state(shape: ModelShape, work: Workload) -> _State:
    trained = trainable_parameters(shape, work)
    element = HALF if work.pure_bf16 else FULL
    base = weight_bytes(shape, work)
    own = not work.adapters
    # Trained weights of the model itself are cast to fp32 in place of their half-precision copy.
    weights = base - trained * HALF + trained * element if own and base < shape.parameters * FULL else base
    gradients = trained * element
    return _State(
        weights=weights,
        adapters=trained * element if work.adapters else 0,
        masters=0,
        gradients=gradients,
        head_gradients=shape.vocab * shape.hidden * element if work.method is Method.FULL else 0,
        optimizer=round(trained * _state_bytes(work.optimizer, element)),
        buffers=gradients if work.world > 1 else 0,
        reference=_reference_bytes(shape, work, base),
        step_top=0,
    )


def _zero_state(shape: ModelShape, work: Workload) -> _State:
    """DeepSpeed: half-precision weights, fp32 masters and states in shards, gradients in shards from stage 2 on."""
    stage, ranks = work.zero_stage or 0, work.world
    trained = trainable_parameters(shape, work)
    element = HALF if work.bf16_or_fp16 else FULL
    base = weight_bytes(shape, work)
    shards = ranks if stage >= 1 else 1
    states = round(trained * (FULL + _state_bytes(work.optimizer, FULL)) / shards)
    gradients = round(trained * element / (ranks if stage >= 2 else 1))
    weights = base // ranks if stage == 3 else base
    host_weights = 0
    if work.offload_param and stage == 3:
        weights, host_weights = 0, base // ranks
    offloaded = work.offload_optimizer and stage >= 1
    live = _live_parameters(shape, element) if stage == 3 else 0
    return _State(
        weights=weights,
        adapters=round(trained * element / (ranks if stage == 3 else 1)) if work.adapters else 0,
        masters=0 if offloaded else round(trained * FULL / shards),
        gradients=0 if offloaded else gradients,
        head_gradients=0,
        optimizer=0 if offloaded else states - round(trained * FULL / shards),
        buffers=_bucket_bytes(shape, work, element) + live,
        reference=_reference_bytes(shape, work, base // (ranks if stage == 3 else 1)),
        step_top=0 if offloaded else round(trained * FULL / shards),
        host_optimizer=round(states + trained * FULL / shards) if offloaded else 0,
        host_weights=host_weights,
    )


def _bucket_bytes(shape: ModelShape, work: Workload, element: int) -> int:
    """Flat buffers that gradients are gathered in: allocated in full size however few parameters are trained."""
    stage = work.zero_stage or 0
    if stage == 0:
        return 0
    elements = work.reduce_bucket or (shape.hidden**2 if stage == 3 else _DEFAULT_BUCKET)
    return elements * element * (2 if stage <= 2 else 1)


def _live_parameters(shape: ModelShape, element: int) -> int:
    """ZeRO-3 gathers a few layers ahead: at most `stage3_max_live_parameters` (1e9) of them, or the largest module."""
    layer = shape.layer_parameters // shape.layers
    largest = max(shape.vocab * shape.hidden, layer)
    return min(1_000_000_000, max(largest, 2 * layer)) * element


def _state_bytes(optimizer: Optimizer, element: int) -> float:
    """Optimizer state per trained parameter, in bytes; Adam keeps its two moments in the weights' own precision."""
    table = {
        Optimizer.ADAM: 2.0 * element,
        Optimizer.ADAM_8BIT: 2.03,
        Optimizer.ADAFACTOR: 0.02,
        Optimizer.SGD: 0.0,
        Optimizer.LION: 1.0 * element,
        Optimizer.MUON: 1.1 * element,
        Optimizer.GALORE: 0.3 * element,
        Optimizer.APOLLO: 0.2 * element,
        Optimizer.BADAM: 0.1 * element,
        Optimizer.ADAM_MINI: 1.05 * element,
    }
    return table[optimizer]


def _reference_bytes(shape: ModelShape, work: Workload, base: int) -> int:
    """Frozen second models: DPO's and KTO's reference, PPO's reference (the reward model is one more when it is full)."""
    return base if work.reference_model else 0


def _gradients_still_missing(shape: ModelShape, work: Workload, state: _State) -> int:
    """Gradients that do not exist yet while the first layer's MLP is walked back: that layer's and the embedding's."""
    if work.method is not Method.FULL or not state.gradients:
        return 0
    element = state.gradients / trainable_parameters(shape, work)
    table = 0 if shape.tied else shape.embedding_parameters
    return round(element * (shape.layer_parameters / shape.layers + table))


@dataclass(frozen=True, slots=True)
class _Cache:
    forward: float
    head: float
    backward: float


def _autocast_cache(shape: ModelShape, work: Workload) -> _Cache:
    """Autocast keeps a half-precision copy of each fp32 weight while the forward pass lasts, and what the backward needs."""
    if not uses_autocast(work) or work.adapters:
        return _Cache(0, 0, 0)
    share = 1.0 if work.method is Method.FULL else min(abs(work.freeze_layers), shape.layers) / shape.layers
    layers = sum(matrix.parameters for matrix in shape.matrices) * share * HALF
    head = shape.vocab * shape.hidden * HALF if work.method is Method.FULL else 0
    return _Cache(layers, head, head + (layers / shape.layers if checkpointed(work) else layers))


def checkpoint_bytes(shape: ModelShape, work: Workload) -> int:
    """Disk of one `checkpoint-N`: weights (or the adapter), and unless `save_only_model` the optimizer of all ranks."""
    trained = trainable_parameters(shape, work)
    weights = trained * FULL if work.adapters else weight_bytes(shape, work)
    if not work.adapters and work.zero_stage is None and not work.pure_bf16:
        weights = max(weights, trained * FULL)
    if work.save_only_model:
        return weights
    states = trained * _state_bytes(work.optimizer, HALF if work.pure_bf16 and work.zero_stage is None else FULL)
    masters = trained * FULL if work.zero_stage is not None else 0
    copies = trained * HALF if work.zero_stage in (1, 2) and not work.adapters else 0
    return round(weights + states + masters + copies)


def _overhead(work: Workload, card: Card | None, allocated: int, terms: PeakTerms) -> tuple[Bytes, ...]:
    """What the driver sees beyond torch's live tensors."""
    context = card.context_bytes if card and card.context_bytes is not None else round(0.6 * GIB)
    communication = round(0.6 * GIB) if work.world > 1 else 0
    slack = round(0.02 * terms.resident + 0.04 * max(0, allocated - terms.resident)) + 64 * (1 << 20)
    parts = (
        Bytes(name="slack", size=slack),
        Bytes(name="context", size=context),
        Bytes(name="communication", size=communication),
    )
    return tuple(part for part in parts if part.size)


def _resident_parts(terms: PeakTerms) -> tuple[Bytes, ...]:
    parts = (
        Bytes(name="weights", size=terms.weights),
        Bytes(name="adapters", size=terms.adapters),
        Bytes(name="masters", size=terms.masters),
        Bytes(name="optimizer", size=terms.optimizer),
        Bytes(name="buffers", size=terms.buffers),
        Bytes(name="reference", size=terms.reference),
    )
    return tuple(part for part in parts if part.size)


def _dynamic_parts(terms: PeakTerms, dynamic: int) -> tuple[Bytes, ...]:
    """Gradients, kept activations and what comes on top at the peak (loss or one layer), scaled to sum up to `dynamic`."""
    at_end = terms.phase in ("step",) or terms.peak == terms.backward_end
    gradients = min(terms.gradients, dynamic) if at_end or terms.phase == "backward" else 0
    kept = min(terms.kept, dynamic - gradients) if not at_end else 0
    rest = dynamic - gradients - kept
    top = "logits" if terms.phase == "loss" else "layer"
    parts = (
        Bytes(name="gradients", size=gradients),
        Bytes(name="activations", size=kept),
        Bytes(name=top, size=rest),
    )
    return tuple(part for part in parts if part.size > 0)


def _host_parts(shape: ModelShape, work: Workload, terms: PeakTerms) -> tuple[Bytes, ...]:
    """Host memory of one node: every rank's Python and libraries, the weights while they load, and what is offloaded."""
    ranks = work.gpus_per_node
    loading = weight_bytes(shape, replace(work, quantization_bits=None))
    parts = [
        Bytes(name="processes", size=round(3.5 * GIB) * ranks),
        Bytes(name="loading", size=loading if work.zero_stage == 3 else round(0.1 * loading) * ranks),
        Bytes(name="offloaded_optimizer", size=terms.host_optimizer * ranks),
        Bytes(name="offloaded_weights", size=terms.host_weights * ranks),
    ]
    if work.checkpointing is Checkpointing.HOST:
        parts.append(Bytes(name="offloaded_activations", size=round(shape.layers * terms.activations.boundary) * ranks))
    return tuple(part for part in parts if part.size)


@dataclass(frozen=True, slots=True)
class _Band:
    resident: float
    dynamic: float


def _band(shape: ModelShape, work: Workload, lengths: Lengths | None, spread: float | None) -> _Band:
    """Relative uncertainty of the two halves. Weights are counted; activations were checked to a few per cent."""
    dynamic = 0.06 if spread is None else max(0.02, spread)
    resident = 0.005
    if shape.estimate:
        resident, dynamic = 0.05, dynamic + 0.15
    if shape.is_moe or (shape.kv_heads != shape.heads and shape.value_dim != shape.head_dim):
        dynamic += 0.10
    if work.zero_stage == 3 or work.reference_model or work.compile:
        dynamic += 0.10
    if work.stage in ("ppo", "dpo", "kto", "rm"):
        dynamic += 0.10
    if lengths is not None and lengths.estimate:
        dynamic += 0.05
    return _Band(resident, dynamic)


def _doubts(shape: ModelShape, work: Workload, lengths: Lengths | None) -> tuple[str, ...]:
    doubts = []
    if shape.estimate:
        doubts.append(shape.estimate)
    if lengths is None and not work.packing:
        doubts.append("row lengths are not known; every row is taken to reach cutoff_len")
    elif lengths is not None and lengths.estimate:
        doubts.append(f"row lengths are an estimate: {lengths.estimate}")
    if work.compile:
        doubts.append("torch.compile changes what is kept; not modelled")
    if shape.is_moe:
        doubts.append("how many rows each expert gets varies from step to step")
    return tuple(doubts)


def _correction(history: Iterable[MeasuredPeak]) -> tuple[float, int, float | None]:
    """(factor on the dynamic half, runs used, their relative spread) from the installation's finished runs."""
    ratios = sorted(run.measured / run.planned for run in history if run.planned > 0 and run.same_family)
    if not ratios:
        return 1.0, 0, None
    middle = ratios[len(ratios) // 2]
    factor = min(1.5, max(0.6, middle))
    if len(ratios) < 3:
        return factor, len(ratios), None
    return factor, len(ratios), 1.5 * (ratios[-1] - ratios[0]) / middle / 2
