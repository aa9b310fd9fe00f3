"""A Workload in, its variants out that do the same training (same rows a step) with other switches; and the way back to YAML."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from backend.domain.problem import ArgValue, Fix
from backend.planning.lengths import Lengths
from backend.planning.model_shape import ModelShape
from backend.planning.workload import Attention, Checkpointing, Workload

LIGER_MODELS = frozenset(
    [
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "glm",
        "glm4",
        "glm4v",
        "granite",
        "llama",
        "llava",
        "mistral",
        "mixtral",
        "mllama",
        "olmo2",
        "paligemma",
        "phi3",
        "qwen2",
        "qwen2_vl",
        "qwen2_5_vl",
        "qwen3",
        "qwen3_moe",
        "qwen3_next",
        "qwen3_5",
        "gpt_oss",
    ]
)
"""Model types that LLaMA-Factory 0.9.5 patches; it warns and skips all others."""

_GRAIN = 64
"""Block lengths are multiples of this."""

BATCH_TOLERANCE = 0.1
"""Rows a step may differ by this share and still count as the same effective batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What the training environment and the model allow. Unknown packages count as absent."""

    liger: bool = False
    flash_attention: bool = False
    compile: bool = False
    packing: bool = True


def rows_per_step(work: Workload, lengths: Lengths | None) -> float:
    """Rows of data that one optimizer step sees over all ranks; a packed block counts the rows in it."""
    if not work.packing or lengths is None:
        return float(work.effective_batch)
    return work.effective_batch * lengths.rows_per_block(work.cutoff)


def batch_splits(rows_per_rank: int) -> Iterator[tuple[int, int]]:
    """(micro batch, accumulation) with exactly that many rows a step, largest micro batch first."""
    for accumulation in range(1, rows_per_rank + 1):
        if rows_per_rank % accumulation == 0:
            yield rows_per_rank // accumulation, accumulation


def packed_like(work: Workload, lengths: Lengths, *, longest: int | None = None) -> list[Workload]:
    """Packed forms of `work` that see as many rows a step (within BATCH_TOLERANCE).

    Blocks keep `cutoff_len` where that works out; where one block of that length is already too few or too many rows, blocks
    of another length are offered (never shorter than the longest row that is whole today, so that nothing more is dropped).
    """
    rows = rows_per_step(work, lengths) / work.world
    found: list[Workload] = []
    for block in _block_lengths(work, lengths, rows, longest):
        per_block = lengths.rows_per_block(block)
        blocks = max(1, round(rows / per_block))
        if abs(blocks * per_block / rows - 1) > BATCH_TOLERANCE:
            continue
        found += [
            replace(work, packing=True, cutoff=block, micro_batch=micro, accumulation=accumulation)
            for micro, accumulation in batch_splits(blocks)
        ]
        if found and block == work.cutoff:
            break
    return found


def _block_lengths(work: Workload, lengths: Lengths, rows: float, longest: int | None) -> list[int]:
    """`cutoff_len` itself, then for 1 to 8 blocks a step the length that comes nearest to `rows` rows."""
    whole = lengths.packable(work.cutoff)
    kept = whole[-1] if whole else work.cutoff
    most = longest or 32768
    first, last = math.ceil(kept / _GRAIN), most // _GRAIN
    blocks = [work.cutoff]
    for count in range(1, 9):
        step = bisect_left(range(first, last + 1), rows, key=lambda size: count * lengths.rows_per_block(size * _GRAIN))
        blocks += [_GRAIN * (first + near) for near in (step - 1, step) if 0 <= near <= last - first]
    return [block for block in dict.fromkeys(blocks) if kept <= block <= most]


def enumerate_variants(
    shape: ModelShape,
    work: Workload,
    lengths: Lengths | None,
    abilities: Abilities,
    *,
    micro_batches: Sequence[int] | None = None,
) -> list[Workload]:
    """All combinations at the same rows a step, `work` itself first. Pruning by memory is the caller's."""
    shapes = _batch_shapes(work, lengths, abilities, shape.max_positions, micro_batches)
    ligers = {work.liger, abilities.liger and shape.model_type in LIGER_MODELS}
    checkpoints = {work.checkpointing, Checkpointing.NONE, Checkpointing.LAYERS}
    attentions = {work.attention, *_faster_attention(work, abilities)}
    stages = _zero_choices(work)
    compiles = {work.compile, *([True] if abilities.compile else [])}
    variants = [work]
    for base, liger, checkpointing, attention, zero, compiled in itertools.product(
        shapes, sorted(ligers), sorted(checkpoints), sorted(attentions), stages, sorted(compiles)
    ):
        variants.append(
            replace(
                base,
                liger=liger,
                checkpointing=checkpointing,
                attention=attention,
                zero_stage=zero[0],
                offload_optimizer=zero[1],
                offload_param=zero[2],
                compile=compiled,
            )
        )
    return list(dict.fromkeys(variants))


def _batch_shapes(
    work: Workload, lengths: Lengths | None, abilities: Abilities, longest: int | None, micro: Sequence[int] | None
) -> list[Workload]:
    splits = [
        replace(work, micro_batch=size, accumulation=accumulation)
        for size, accumulation in batch_splits(work.micro_batch * work.accumulation)
        if micro is None or size in micro
    ]
    if work.packing or lengths is None or not abilities.packing or work.stage not in ("sft", "pt"):
        return splits
    return splits + packed_like(work, lengths, longest=longest)


def _faster_attention(work: Workload, abilities: Abilities) -> list[Attention]:
    return [Attention.SDPA, Attention.FA2] if abilities.flash_attention else [Attention.SDPA]


_Zero = tuple[int | None, bool, bool]


def _zero_choices(work: Workload) -> list[_Zero]:
    """The present choice and everything lighter than it; heavier ones are never a speed-up."""
    present: _Zero = (work.zero_stage, work.offload_optimizer, work.offload_param)
    lighter: list[_Zero] = [(None, False, False)]
    if work.world > 1 and (work.zero_stage or 0) >= 2:
        lighter.append((2, False, False))
    if work.zero_stage == 3:
        lighter.append((3, False, False))
    return list(dict.fromkeys([present, *lighter]))


def build_fix(before: Workload, after: Workload) -> Fix:
    """The change of the document that turns `before` into `after`, in the trainer's own argument names."""
    set_: dict[str, ArgValue] = {}
    remove: list[str] = []
    if after.micro_batch != before.micro_batch:
        set_["per_device_train_batch_size"] = after.micro_batch
    if after.accumulation != before.accumulation:
        set_["gradient_accumulation_steps"] = after.accumulation
    if after.packing != before.packing:
        set_["packing"] = after.packing
    if after.cutoff != before.cutoff:
        set_["cutoff_len"] = after.cutoff
    if after.liger != before.liger:
        set_["enable_liger_kernel"] = after.liger
    if after.attention != before.attention:
        set_["flash_attn"] = {"eager": "disabled"}.get(after.attention.value, after.attention.value)
    if after.compile != before.compile:
        set_["torch_compile"] = after.compile
    if after.checkpointing != before.checkpointing:
        _set_checkpointing(before, after, set_, remove)
    if _zero(after) != _zero(before):
        _set_zero(after, set_, remove)
    return Fix(set=set_, remove=tuple(remove))


def _set_checkpointing(before: Workload, after: Workload, set_: dict[str, ArgValue], remove: list[str]) -> None:
    set_["disable_gradient_checkpointing"] = after.checkpointing is Checkpointing.NONE
    if before.checkpointing is Checkpointing.HOST:
        remove.append("use_unsloth_gc")


def _set_zero(after: Workload, set_: dict[str, ArgValue], remove: list[str]) -> None:
    remove.append("deepspeed")
    if after.zero_stage is None:
        remove.append("tunedeck.zero")
        return
    set_["tunedeck.zero.stage"] = after.zero_stage
    set_["tunedeck.zero.offload_optimizer"] = "cpu" if after.offload_optimizer else "none"
    set_["tunedeck.zero.offload_param"] = "cpu" if after.offload_param else "none"


def _zero(work: Workload) -> _Zero:
    return (work.zero_stage, work.offload_optimizer, work.offload_param)


def describe_variant(work: Workload) -> str:
    """One line for tables: `micro 4 x 2, packed 2048, liger, sdpa, no checkpointing`."""
    parts = [f"micro {work.micro_batch} x {work.accumulation}"]
    if work.packing:
        parts.append(f"packed {work.cutoff}")
    if work.liger:
        parts.append("liger")
    parts.append(work.attention.value)
    if work.checkpointing is Checkpointing.NONE:
        parts.append("no checkpointing")
    elif work.checkpointing is Checkpointing.HOST:
        parts.append("checkpointing to host")
    if work.zero_stage is not None:
        offload = ", offload" if work.offload_optimizer or work.offload_param else ""
        parts.append(f"ZeRO-{work.zero_stage}{offload}")
    if work.compile:
        parts.append("compile")
    return ", ".join(parts)
