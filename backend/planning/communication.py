"""A run's settings and the share of its step that is communication in, the change of settings that would save most of it out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from backend.planning.activations import FULL, HALF
from backend.planning.lengths import Lengths
from backend.planning.memory import Card, MeasuredPeak, plan_memory, trainable_parameters, weight_bytes
from backend.planning.model_shape import ModelShape
from backend.planning.variants import batch_splits
from backend.planning.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class LessTraffic:
    """`work` moves `kept` (0..1) of the bytes that the present settings move between the ranks in an optimizer step."""

    work: Workload
    kept: float

    def gain(self, share: float) -> float:
        """Times faster when `share` (0..1) of a step is communication that nothing covers, and time goes with the bytes."""
        return 1 / (1 - share * (1 - self.kept))


def moved_bytes(shape: ModelShape, work: Workload) -> int:
    """Bytes that one rank sends in an optimizer step, the common factor (ranks - 1) / ranks left out.

    DDP and ZeRO-0/1 reduce gradients once a step, whatever the accumulation; ZeRO-2 after every micro batch; ZeRO-3 gathers
    the weights for the forward and once more for the backward pass of every micro batch.
    """
    element = HALF if work.pure_bf16 or (work.zero_stage is not None and work.bf16_or_fp16) else FULL
    gradients = trainable_parameters(shape, work) * element
    match work.zero_stage:
        case 3:
            return (2 * weight_bytes(shape, work) + gradients) * work.accumulation
        case 2:
            return gradients * (work.accumulation + 1)
        case _:
            return 2 * gradients


def reduce_traffic(
    shape: ModelShape, work: Workload, lengths: Lengths | None, card: Card, history: Sequence[MeasuredPeak]
) -> LessTraffic | None:
    """The one change (lighter ZeRO, or larger micro batches at the same effective batch) that saves most and certainly fits."""
    before = moved_bytes(shape, work)
    found = [
        LessTraffic(work=other, kept=moved_bytes(shape, other) / before)
        for other in _changes(work)
        if before
        and moved_bytes(shape, other) < before
        and plan_memory(shape, other, lengths, card, history=history).fits
    ]
    return min(found, key=lambda change: change.kept, default=None)


def _changes(work: Workload) -> Iterator[Workload]:
    if (work.zero_stage or 0) >= 2:
        for stage in (2, None) if work.zero_stage == 3 else (None,):
            yield replace(work, zero_stage=stage, offload_optimizer=False, offload_param=False)
    for micro, accumulation in batch_splits(work.micro_batch * work.accumulation):
        if micro > work.micro_batch:
            yield replace(work, micro_batch=micro, accumulation=accumulation)
