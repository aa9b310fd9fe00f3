"""Code of an advice -> its English texts; the Chinese ones stand in ui/text/advice_zh.py under the same codes."""

# ruff: noqa: E501
from __future__ import annotations

from dataclasses import dataclass

from backend.domain.advice import Effect


@dataclass(frozen=True, slots=True)
class AdviceText:
    """`reason` says why it is slow, `remedy` what to do; both are templates. `effect_text` says what it does to the result."""

    reason: str
    remedy: str
    field: str = ""
    effects: tuple[Effect, ...] = ()
    effect_text: str = ""


TEXTS: dict[str, AdviceText] = {
    # before launch, with an estimate
    "packing_saves_padding": AdviceText(
        "{padding} of the computed tokens are padding, and micro batches of {micro} short rows leave the GPU waiting for kernel launches.",
        "Pack rows into blocks of {block} tokens, {micro_after} x {accumulation_after} a step.",
        "packing",
    ),
    "micro_batch_small": AdviceText(
        "With {micro} rows a micro batch the GPU waits for kernel launches: {launch_seconds} s of a step of {step_seconds} s.",
        "Take {micro_after} rows and accumulate {accumulation_after} times; the effective batch stays the same.",
        "per_device_train_batch_size",
    ),
    "liger_saves_traffic": AdviceText(
        "Norms, activations and the loss write and read intermediate copies, the loss several times the whole vocabulary in fp32.",
        "Set enable_liger_kernel: true (fused kernels; needs the liger-kernel package).",
        "enable_liger_kernel",
    ),
    "attention_slow": AdviceText(
        "`{attention}` attention writes the whole score matrix for every layer.",
        "Set flash_attn: {attention_after}.",
        "flash_attn",
    ),
    "checkpointing_unneeded": AdviceText(
        "Gradient checkpointing computes every layer's forward pass twice to save memory, and there is room without it.",
        "Set disable_gradient_checkpointing: true.",
        "disable_gradient_checkpointing",
    ),
    "zero3_unneeded": AdviceText(
        "ZeRO-3 gathers every layer's weights in every pass, module by module, although the model fits whole: {zero_seconds} s of a step of {step_seconds} s.",
        "Use no ZeRO (or ZeRO-2 when the optimizer must be shared).",
        "tunedeck.zero.stage",
    ),
    "zero_unneeded": AdviceText(
        "ZeRO-{stage} handles each gradient in Python and shares states that are small here: {zero_seconds} s of a step of {step_seconds} s.",
        "Use no ZeRO: the model, its gradients and the optimizer fit on each GPU.",
        "tunedeck.zero.stage",
    ),
    "offload_unneeded": AdviceText(
        "Offloading moves weights or optimizer states over the host link in every step ({link_seconds} s of {step_seconds} s), although the GPU has room.",
        "Turn offloading off, and ZeRO-3 with it.",
        "tunedeck.zero.offload_param",
    ),
    # before launch, rules
    "half_precision_off": AdviceText(
        "Training in fp32 uses a small part of the matrix units and twice the memory.",
        "Set bf16: true.",
        "bf16",
        (Effect.PRECISION,),
        "Products are rounded to bf16; weights that are trained stay in fp32.",
    ),
    "quantization_unneeded": AdviceText(
        "{found}-bit weights are unpacked again for every product, and the model fits in half precision ({expected} at most).",
        "Remove quantization_bit.",
        "quantization_bit",
        (Effect.PRECISION,),
        "The base weights are no longer rounded: results differ, usually for the better.",
    ),
    "host_activations_unneeded": AdviceText(
        "Activations travel to host memory and back although the GPU has room for them.",
        "Remove use_unsloth_gc.",
        "use_unsloth_gc",
    ),
    "neat_packing_mask": AdviceText(
        "Without FlashAttention-2 neat_packing builds a mask of cutoff_len x cutoff_len ({found} MiB a micro batch) in the data loader and a slower kernel is taken.",
        "Use flash_attn: fa2 with a micro batch of 1, or packing without neat_packing.",
        "neat_packing",
    ),
    "optimizer_not_fused": AdviceText(
        "`adamw_torch` updates in many small kernels.",
        "Set optim: adamw_torch_fused.",
        "optim",
        (Effect.ROUNDING,),
        "The same update in one kernel: last digits differ.",
    ),
    "preprocessing_single": AdviceText(
        "One process tokenizes {rows} rows while the GPU waits.",
        "Set preprocessing_num_workers: {expected}, and tokenized_path to keep the result.",
        "preprocessing_num_workers",
    ),
    "rows_truncated": AdviceText(
        "{found} of the rows are longer than cutoff_len {cutoff}: their end is cut off, or with packing the whole row is dropped.",
        "Raise cutoff_len if their ends matter.",
        "cutoff_len",
        (Effect.LOSS,),
        "Longer rows change what is learned and need more memory.",
    ),
    "saves_too_often": AdviceText(
        "About {found} of the time goes to writing checkpoints.",
        "Set save_steps: {expected}, or save_only_model: true.",
        "save_steps",
    ),
    "find_unused_parameters": AdviceText(
        "DDP walks the whole graph in every step to look for unused parameters; there are none.",
        "Set ddp_find_unused_parameters: false.",
        "ddp_find_unused_parameters",
    ),
    # while running
    "data_wait": AdviceText(
        "{found} of the step time is spent waiting for the next batch.",
        "Set dataloader_num_workers: {expected}.",
        "dataloader_num_workers",
    ),
    "rank_slow": AdviceText(
        "Rank {rank} takes {found} longer than the others, and all wait for it.",
        "Look at that GPU: clock, temperature, power cap, another process on it.",
    ),
    "power_capped": AdviceText(
        "{device} runs at its power cap of {found} W.",
        "Its default is {expected} W: ask for the cap to be raised, or live with the lower clock.",
    ),
    "thermal_throttling": AdviceText(
        "{device} was slowed by temperature {found} of the time.",
        "Check cooling and the neighbouring jobs.",
    ),
    "gpu_idle": AdviceText(
        "The GPU was busy {found} of the time: Python cannot launch kernels fast enough, or data and communication are waited for.",
        "Larger micro batches, packing and fewer adapters give each launch more work.",
    ),
    "memory_left": AdviceText(
        "The measured peak is {found} of {capacity}: {left} are never used.",
        "A micro batch of {expected} should fit; raise it and lower the accumulation by the same factor.",
        "per_device_train_batch_size",
        (Effect.ROUNDING,),
        "The effective batch stays the same; losses differ in the last digits.",
    ),
    "saves_measured": AdviceText(
        "Checkpoints have taken {found} of the time so far ({seconds} s each).",
        "Save less often, or save_only_model: true when no resume is needed.",
        "save_steps",
    ),
    "evaluation_measured": AdviceText(
        "Evaluation has taken {found} of the time so far.",
        "Evaluate less often or on fewer rows.",
        "eval_steps",
    ),
    "slower_than_before": AdviceText(
        "Steps take {found} longer than in the first part of the run.",
        "Compare clocks, temperature, other processes and the length of rows.",
    ),
    "rank_late": AdviceText(
        "In the profiled steps {steps} the other ranks wait {found} of the time for rank {rank}, which waits for nobody.",
        "Look at that GPU: clock, temperature, power cap, another process on it; and at the lengths of its rows.",
    ),
    "communication_zero": AdviceText(
        "In the profiled steps {steps}, {found} of the time only communication ran. ZeRO-{stage} sends gradients (stage 3: the weights as well, twice) in every micro batch.",
        "Use {expected}: it fits by the memory plan and sends {kept} of the bytes.",
        "tunedeck.zero.stage",
        (Effect.ROUNDING,),
        "The same training; sums are taken in another order and precision, so that losses differ in the last digits.",
    ),
    "communication_batch": AdviceText(
        "In the profiled steps {steps}, {found} of the time only communication ran, and ZeRO-{stage} communicates in every micro batch.",
        "Take {expected} rows a micro batch and accumulate {accumulation} times: {kept} of the bytes at the same effective batch, and it fits by the memory plan.",
        "per_device_train_batch_size",
        (Effect.ROUNDING,),
        "The effective batch stays the same; losses differ in the last digits.",
    ),
    "communication_high": AdviceText(
        "In the profiled steps {steps}, {found} of the time only communication ran, and no lighter setting that fits would save much of it.",
        "Run the check on the GPUs page: it tells whether the links reach their usual bandwidth, and which environment profile is faster. More accumulation (a larger effective batch) communicates less often.",
    ),
    # the host
    "numa_balancing_on": AdviceText(
        "Automatic NUMA balancing is on; RCCL warns of it and kernels can stall while pages move.",
        "As root: sysctl kernel.numa_balancing=0.",
    ),
    "environment_preset": AdviceText(
        "On {found} AMD's guides set these variables for training: {expected}.",
        "Add them under tunedeck.env (each can be taken out again).",
        "tunedeck.env",
    ),
}
