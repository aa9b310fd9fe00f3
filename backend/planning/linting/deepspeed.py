"""DeepSpeed JSON -> Problems, by the rules of DeepSpeed 0.19's own config model; with a train config beside it, both together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from backend.domain.problem import ArgValue, Fix, Problem, Severity
from backend.planning.linting.config import TrainConfig
from backend.planning.linting.context import LintContext
from backend.planning.linting.report import report
from backend.planning.schema import nearest
from backend.planning.words import words

TOP_KEYS = words(
    "train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps "
    "managed_gradient_accumulation steps_per_print dump_state disable_python_gc disable_allgather "
    "communication_data_type seq_parallel_communication_data_type prescale_gradients "
    "gradient_predivide_factor gradient_allreduce_op zero_optimization activation_checkpointing comms_logger "
    "tensorboard wandb csv_monitor comet gradient_clipping fp16 bf16 bfloat16 torch_autocast optimizer "
    "scheduler zero_allow_untested_optimizer zero_force_ds_cpu_optimizer flops_profiler wall_clock_breakdown "
    "memory_breakdown autotuning use_data_before_expert_parallelism hybrid_engine pipeline data_efficiency "
    "checkpoint data_types aio dataloader_drop_last log_level nebula weight_quantization compile timers "
    "tensor_parallel expert_parallel monitor_config vocabulary_size sequence_parallel_size datastates "
    "datastates_config inference fp8 allgather_size seed hidden_size num_hidden_layers"
)
ZERO_KEYS = words(
    "stage contiguous_gradients reduce_scatter reduce_bucket_size use_multi_rank_bucket_allreduce "
    "allgather_partitions allgather_bucket_size overlap_comm compute_grad_norm load_from_fp32_weights "
    "elastic_checkpoint offload_param offload_optimizer zenflow sub_group_size cpu_offload_param "
    "cpu_offload_use_pin_memory cpu_offload prefetch_bucket_size stage3_prefetch_bucket_size "
    "param_persistence_threshold stage3_param_persistence_threshold model_persistence_threshold "
    "stage3_model_persistence_threshold max_live_parameters stage3_max_live_parameters max_reuse_distance "
    "stage3_max_reuse_distance gather_16bit_weights_on_model_save stage3_gather_16bit_weights_on_model_save "
    "module_granularity_threshold stage3_module_granularity_threshold use_all_reduce_for_fetch_params "
    "stage3_use_all_reduce_for_fetch_params allgather_sequential stage3_allgather_sequential "
    "stage3_gather_fp16_weights_on_model_save ignore_unused_parameters legacy_stage1 round_robin_gradients "
    "parameter_alignment zero_hpz_partition_size zero_quantized_weights zero_quantized_nontrainable_weights "
    "zero_quantized_gradients memory_efficient_linear pipeline_loading_checkpoint override_module_apply "
    "log_trace_cache_warnings enable_sanity_checks save_muon_momentum_buffer_in_memory leaf_module"
)
OFFLOAD_PARAM_KEYS = words("device nvme_path buffer_count buffer_size max_in_cpu pin_memory")
OFFLOAD_OPTIMIZER_KEYS = words(
    "device nvme_path buffer_count pin_memory pipeline_read pipeline_write fast_init ratio super_offload "
    "cpuadam_cores_perc"
)
FP16_KEYS = words(
    "enabled auto_cast loss_scale initial_scale_power loss_scale_window hysteresis consecutive_hysteresis "
    "min_loss_scale fp16_master_weights_and_grads master_weights_and_grads"
)
BF16_KEYS = frozenset(
    [
        "enabled",
        "immediate_grad_update",
        "check_grad_overflow",
        "bf16_master_weights_and_grads",
        "bf16_optimizer_states",
    ]
)
REMOVED_BLOCKS = words(
    "nebula compression_training amp quantize_training sparse_gradients eigenvalue sparse_attention "
    "elasticity graph_harvesting curriculum_learning progressive_layer_drop"
)
REMOVED_ZERO = frozenset(("mics_shard_size", "mics_hierarchical_params_gather", "zeropp_loco_param"))
BUILTIN_SECTIONS = {
    "zero_optimization": ZERO_KEYS,
    "zero_optimization.offload_param": OFFLOAD_PARAM_KEYS,
    "zero_optimization.offload_optimizer": OFFLOAD_OPTIMIZER_KEYS,
    "fp16": FP16_KEYS,
    "bf16": BF16_KEYS,
}
RENAMED_ZERO = {
    "stage3_gather_fp16_weights_on_model_save": "stage3_gather_16bit_weights_on_model_save",
    "cpu_offload": "offload_optimizer",
    "cpu_offload_param": "offload_param",
    "cpu_offload_params": "offload_param",
    "cpu_offload_use_pin_memory": "offload_optimizer.pin_memory",
}
RENAMED_TOP = {
    "bfloat16": "bf16",
    "micro_batch_per_gpu": "train_micro_batch_size_per_gpu",
    "micro_batch_size": "train_micro_batch_size_per_gpu",
}
OPTIMIZERS = words("adagrad adam adamw lamb muadam muadamw musgd lion muon")
REMOVED_OPTIMIZERS = frozenset(["onebitadam", "zerooneadam", "onebitlamb"])
_UNUSED_FEATURES = {
    "pipeline": "PipelineModule",
    "hybrid_engine": "RLHF",
    "data_efficiency": "DeepSpeed data sampler",
    "autotuning": "deepspeed --autotuning",
    "weight_quantization": "inference",
    "inference": "inference",
    "expert_parallel": "MoE",
    "datastates": "checkpoint engine",
}
"""Blocks that DeepSpeed reads and a transformers trainer never brings to life, and what they would need."""

BATCH_KEYS = {
    "train_batch_size": "",
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}
_PAIRS = (
    ("optimizer.params.lr", "learning_rate"),
    ("optimizer.params.weight_decay", "weight_decay"),
    ("optimizer.params.eps", "adam_epsilon"),
    ("scheduler.params.warmup_max_lr", "learning_rate"),
    ("gradient_clipping", "max_grad_norm"),
)
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Keys:
    """What the DeepSpeed that will run takes: read from the environment, else what 0.19 takes."""

    top: frozenset[str]
    sections: Mapping[str, frozenset[str]]
    optimizers: frozenset[str]
    removed: frozenset[str]

    @staticmethod
    def of(context: LintContext) -> Keys:
        sections = dict(BUILTIN_SECTIONS)
        sections.update({name: found for name, found in context.trainer.deepspeed_sections.items() if name and found})
        top = TOP_KEYS | context.trainer.deepspeed_sections.get("", frozenset())
        version = context.version("deepspeed")
        older = version is not None and version < (0, 19)
        return Keys(
            top=top | REMOVED_BLOCKS if older else top,
            sections=sections,
            optimizers=OPTIMIZERS | context.trainer.deepspeed_optimizers,
            removed=frozenset() if older else REMOVED_BLOCKS | REMOVED_ZERO,
        )


def lint_deepspeed(content: Mapping[str, ArgValue], context: LintContext, *, name: str = "") -> Iterator[Problem]:
    """Everything that the file alone shows. `name` is its file name, for the promise that a name makes."""
    zero = content.get("zero_optimization")
    keys = Keys.of(context)
    yield from _top_level(content, keys)
    yield from _blocks(content, keys)
    if isinstance(zero, dict):
        yield from _zero(zero, keys)
    elif zero is not None and not isinstance(zero, bool):
        yield report("wrong_type", Severity.ERROR, field="zero_optimization", found=zero, expected="{...}")
    yield from _precision(content, keys)
    yield from _optimizer(content, keys)
    yield from _batch(content)
    yield from _name(content, name)


def lint_deepspeed_with(
    config: TrainConfig, content: Mapping[str, ArgValue], *, ours: bool = False
) -> Iterator[Problem]:
    """Contradictions between a train config and its DeepSpeed file. `ours`: an inline mapping, which we can complete."""
    yield from _incomplete(content, ours)
    yield from _mismatches(config, content)
    yield from _gather(config, content)


# --- the file alone ------------------------------------------------------------------------------------------------


def _top_level(content: Mapping[str, ArgValue], keys: Keys) -> Iterator[Problem]:
    for key in content:
        if (key in keys.top and key not in RENAMED_TOP) or key in REMOVED_BLOCKS:
            continue
        if key in RENAMED_TOP:
            yield report("renamed_key", Severity.WARNING, field=key, found=key, expected=RENAMED_TOP[key])
        elif key in ZERO_KEYS:
            yield report(
                "deepspeed_key_misplaced", Severity.WARNING, field=key, found=key, expected=f"zero_optimization.{key}"
            )
        elif not key.startswith(("_", "#", "//", "comment")):
            near = nearest(key, keys.top)
            code = "deepspeed_key_ignored_near" if near else "deepspeed_key_ignored"
            yield report(code, Severity.WARNING, field=key, found=key, expected=near or "")


def _blocks(content: Mapping[str, ArgValue], keys: Keys) -> Iterator[Problem]:
    for key in content:
        if key in keys.removed:
            yield report(
                "removed_block",
                Severity.ERROR,
                field=key,
                found=key,
                expected="",
                fix=Fix(remove=(key,)),
                since="0.19",
                block=key,
            )
    for key, needs in _UNUSED_FEATURES.items():
        block = content.get(key)
        if block and not (isinstance(block, dict) and block.get("enabled") is False):
            yield report(
                "feature_not_used", Severity.WARNING, field=key, found=key, expected=needs, fix=Fix(remove=(key,))
            )
    if "activation_checkpointing" in content:
        yield report(
            "feature_not_used",
            Severity.NOTE,
            field="activation_checkpointing",
            found="activation_checkpointing",
            expected="Megatron-DeepSpeed",
            fix=Fix(remove=("activation_checkpointing",)),
        )
    fp8 = content.get("fp8")
    if isinstance(fp8, dict) and fp8.get("enabled") not in (False, None):
        yield report("hardware_dependent", Severity.NOTE, field="fp8", found="fp8", expected="MI300 | MI350 | H100")


def _zero(zero: Mapping[str, ArgValue], keys: Keys) -> Iterator[Problem]:
    known_keys = keys.sections["zero_optimization"]
    stage = zero.get("stage", 0)
    if stage not in (0, 1, 2, 3) or isinstance(stage, bool):
        yield report(
            "bad_choice", Severity.ERROR, field="zero_optimization.stage", found=stage, expected="0 | 1 | 2 | 3"
        )
    for key, value in zero.items():
        path = f"zero_optimization.{key}"
        if key in keys.removed:
            yield report(
                "removed_block",
                Severity.ERROR,
                field=path,
                found=key,
                expected="",
                fix=Fix(remove=(path,)),
                since="0.19",
                block=key,
            )
        elif key == "cpu_offload_params" or (key in RENAMED_ZERO and key in known_keys):
            severity = Severity.WARNING if key in known_keys else Severity.ERROR
            yield report("renamed_key", severity, field=path, found=key, expected=RENAMED_ZERO[key])
        elif key not in known_keys and not (key in REMOVED_ZERO and not keys.removed):
            yield _unknown_zero_key(path, key, value, known_keys)
    for key in ("offload_param", "offload_optimizer"):
        yield from _offload(zero, key, keys.sections[f"zero_optimization.{key}"], stage)


def _unknown_code(near: str | None) -> str:
    return "deepspeed_misspelt_key" if near else "deepspeed_unknown_key"


def _unknown_zero_key(path: str, key: str, value: ArgValue, known_keys: frozenset[str]) -> Problem:
    if re.search(r"stage3_part?ition_?grad", key):
        return report(
            "zero_partition_grads",
            Severity.ERROR,
            field=path,
            found=key,
            expected="",
            fix=Fix(remove=(path,)),
            key=key,
        )
    near = nearest(key, known_keys)
    fix = Fix(set={f"zero_optimization.{near}": value}, remove=(path,)) if near else Fix(remove=(path,))
    return report(_unknown_code(near), Severity.ERROR, field=path, found=key, expected=near or "", fix=fix, key=key)


def _offload(zero: Mapping[str, ArgValue], key: str, known: frozenset[str], stage: ArgValue) -> Iterator[Problem]:
    block, path = zero.get(key), f"zero_optimization.{key}"
    if block is None:
        return
    if not isinstance(block, dict):
        yield report("wrong_type", Severity.ERROR, field=path, found=block, expected="{device: cpu}")
        return
    device = block.get("device", "none")
    if device not in ("none", "cpu", "nvme"):
        yield report("bad_choice", Severity.ERROR, field=f"{path}.device", found=device, expected="none | cpu | nvme")
    if device == "nvme" and not block.get("nvme_path"):
        yield report("nvme_path_missing", Severity.ERROR, field=f"{path}.nvme_path", expected="nvme_path")
    if key == "offload_param" and device in ("cpu", "nvme") and stage in (0, 1, 2):
        yield report(
            "offload_param_needs_zero3",
            Severity.ERROR,
            field=path,
            found=device,
            expected="stage: 3",
            fix=Fix(remove=(path,)),
        )
    if key == "offload_optimizer" and device in ("cpu", "nvme") and stage == 0:
        yield report("offload_without_zero", Severity.WARNING, field=path, found=device, expected="stage: 1 | 2 | 3")
    for name, value in block.items():
        if name not in known:
            near = nearest(name, known)
            fix = (
                Fix(set={f"{path}.{near}": value}, remove=(f"{path}.{name}",))
                if near
                else Fix(remove=(f"{path}.{name}",))
            )
            yield report(
                _unknown_code(near),
                Severity.ERROR,
                field=f"{path}.{name}",
                found=name,
                expected=near or "",
                fix=fix,
                key=name,
            )


def _precision(content: Mapping[str, ArgValue], keys: Keys) -> Iterator[Problem]:
    enabled = []
    for key in ("fp16", "bf16"):
        known = keys.sections[key] | (FP16_KEYS if key == "fp16" else BF16_KEYS)
        block = content.get(key)
        if not isinstance(block, dict):
            continue
        if block.get("enabled") is True:
            enabled.append(key)
        for name in block:
            if name not in known:
                near = nearest(name, known)
                yield report(
                    _unknown_code(near),
                    Severity.ERROR,
                    field=f"{key}.{name}",
                    found=name,
                    expected=near or "",
                    fix=Fix(remove=(f"{key}.{name}",)),
                    key=name,
                )
    if len(enabled) > 1:
        yield report(
            "two_precisions",
            Severity.ERROR,
            field="fp16",
            found="fp16 + bf16",
            expected="bf16",
            fix=Fix(remove=("fp16",)),
        )


def _optimizer(content: Mapping[str, ArgValue], keys: Keys) -> Iterator[Problem]:
    block = content.get("optimizer")
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        return
    if not keys.removed or kind.lower() in keys.optimizers:
        return
    if kind.lower() in REMOVED_OPTIMIZERS or kind.lower().startswith(("onebit", "zeroone")):
        yield report(
            "optimizer_not_supported",
            Severity.ERROR,
            field="optimizer.type",
            found=kind,
            expected="AdamW | Adam | Lamb | Lion | Muon | Adagrad",
            fix=Fix(set={"optimizer.type": "AdamW"}),
        )


def _batch(content: Mapping[str, ArgValue]) -> Iterator[Problem]:
    fixed = {key: content[key] for key in BATCH_KEYS if key in content and content[key] != "auto"}
    for key, value in fixed.items():
        yield report(
            "fixed_batch_value", Severity.WARNING, field=key, found=value, expected="auto", fix=Fix(set={key: "auto"})
        )
    total, micro, accumulation = (fixed.get(key) for key in BATCH_KEYS)
    if isinstance(total, int) and isinstance(micro, int) and micro > 0:
        per_step = micro * (accumulation if isinstance(accumulation, int) else 1)
        if total % per_step:
            yield report(
                "deepspeed_batch_mismatch",
                Severity.ERROR,
                field="train_batch_size",
                found=total,
                expected=f"n x {per_step}",
                fix=Fix(set={key: "auto" for key in fixed}),
            )


def _name(content: Mapping[str, ArgValue], name: str) -> Iterator[Problem]:
    base = name.rpartition("/")[2].lower()
    promised = re.search(r"(?:z|zero|stage)[-_]?([0-3])(?!\d)", base)
    zero = content.get("zero_optimization")
    stage = zero.get("stage", 0) if isinstance(zero, dict) else 0
    if promised and isinstance(stage, int) and stage != int(promised[1]):
        yield report(
            "file_name_misleads",
            Severity.WARNING,
            field="zero_optimization.stage",
            found=f"stage {stage}",
            expected=base,
        )
    elif "offload" in base and isinstance(zero, dict) and not _offloads(zero):
        yield report(
            "file_name_misleads", Severity.WARNING, field="zero_optimization", found="no offload", expected=base
        )


def _offloads(zero: Mapping[str, ArgValue]) -> bool:
    if zero.get("cpu_offload") is True:
        return True
    blocks = (zero.get(key) for key in ("offload_optimizer", "offload_param"))
    return any(isinstance(block, dict) and block.get("device") in ("cpu", "nvme") for block in blocks)


# --- together with the train config --------------------------------------------------------------------------------


def _mismatches(config: TrainConfig, content: Mapping[str, ArgValue]) -> Iterator[Problem]:
    for key, argument in BATCH_KEYS.items():
        value = content.get(key, "auto")
        ours = config.number(argument) if argument else None
        if isinstance(value, int) and ours is not None and value != ours:
            yield report(
                "deepspeed_batch_mismatch",
                Severity.ERROR,
                field=argument,
                found=f"{key}: {value}",
                expected=f"{ours:g} | auto",
                line=config.line(argument),
            )
    total, ranks = content.get("train_batch_size", "auto"), config.context.processes
    micro, steps = config.number("per_device_train_batch_size"), config.number("gradient_accumulation_steps")
    if isinstance(total, int) and ranks and micro and steps and total != micro * steps * ranks:
        yield report(
            "deepspeed_batch_mismatch",
            Severity.ERROR,
            field="per_device_train_batch_size",
            found=f"train_batch_size: {total}",
            expected=f"{micro:g} x {steps:g} x {ranks} = {micro * steps * ranks:g} | auto",
            line=config.line("per_device_train_batch_size"),
        )
    for path, argument in _PAIRS:
        value, ours = _at(content, path), config.number(argument)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and ours is not None and value != ours:
            yield report(
                "deepspeed_value_mismatch",
                Severity.ERROR,
                field=argument,
                found=f"{path}: {value:g}",
                expected=f"{ours:g} | auto",
                line=config.line(argument),
            )
    for key, other in (("bf16", "fp16"), ("fp16", "bf16")):
        block = content.get(key)
        if isinstance(block, dict) and block.get("enabled") is True and (config.on(other) or not config.on(key)):
            yield report(
                "deepspeed_value_mismatch",
                Severity.ERROR,
                field=key,
                found=f"{key}.enabled: true",
                expected=f"{key}: true | auto",
                line=config.line(key) or config.line(other),
                fix=Fix(set={key: True}, remove=(other,)) if not config.on(other) else None,
            )


def _incomplete(content: Mapping[str, ArgValue], ours: bool) -> Iterator[Problem]:
    """DeepSpeed wants a batch size, accelerate a ZeRO section: `"auto"` and stage 0 will do."""
    severity = Severity.ERROR if ours else Severity.WARNING
    prefix = "deepspeed." if ours else ""
    if "train_batch_size" not in content and "train_micro_batch_size_per_gpu" not in content:
        key = f"{prefix}train_micro_batch_size_per_gpu"
        fix = Fix(set={key: "auto"}) if ours else None
        yield report("deepspeed_batch_missing", severity, field=key, expected="auto", fix=fix)
    if "zero_optimization" not in content:
        fix = Fix(set={f"{prefix}zero_optimization": {"stage": 0}}) if ours else None
        yield report(
            "zero_section_missing", severity, field=f"{prefix}zero_optimization", expected="{stage: 0}", fix=fix
        )


def _gather(config: TrainConfig, content: Mapping[str, ArgValue]) -> Iterator[Problem]:
    zero = content.get("zero_optimization")
    if not isinstance(zero, dict) or zero.get("stage") != 3 or config.method not in ("full", "freeze"):
        return
    names = (
        "stage3_gather_16bit_weights_on_model_save",
        "gather_16bit_weights_on_model_save",
        "stage3_gather_fp16_weights_on_model_save",
    )
    if not any(zero.get(name) is True for name in names):
        yield report(
            "zero3_gather_off",
            Severity.WARNING,
            field="deepspeed",
            found="stage3_gather_16bit_weights_on_model_save: false",
            expected="true",
        )


def _at(content: Mapping[str, ArgValue], path: str) -> ArgValue:
    value: ArgValue = dict(content)
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def offload_with_room(
    content: Mapping[str, ArgValue],
    context: LintContext,
    *,
    method: str,
    parameters: int | None,
    quantized: bool = False,
) -> Iterator[Problem]:
    """CPU offload although weights, gradients and optimizer states would fit on the GPUs several times over."""
    zero = content.get("zero_optimization")
    if not isinstance(zero, dict) or not _offloads(zero) or not context.gpu_memory_bytes:
        return
    if parameters is None:
        return
    ranks = max(1, context.processes or context.gpu_count or 1)
    weights = parameters * (1 if quantized else 2)
    states = parameters * 14 if method in ("full", "freeze", "") else parameters * 14 // 50
    need = (weights + states) / ranks if zero.get("stage") == 3 else weights + states / ranks
    if need * 2 < context.gpu_memory_bytes:
        yield report(
            "offload_with_free_memory",
            Severity.WARNING,
            field="zero_optimization.offload_optimizer",
            found="cpu",
            expected="none",
            fix=Fix(remove=("zero_optimization.offload_optimizer", "zero_optimization.offload_param")),
            needed=f"{need / (1024 * _MIB):.0f}",
            available=f"{context.gpu_memory_bytes / (1024 * _MIB):.0f}",
        )


def parameters_of_name(model: str) -> int | None:
    """Parameters that a model's name states (`...-8B-...`, `0.5b`, `8x7B`), or None."""
    name = model.rpartition("/")[2]
    experts = re.search(r"(?<![\w.])(\d+)x(\d+(?:\.\d+)?)b(?![a-z])", name, re.I)
    if experts:
        return int(int(experts[1]) * float(experts[2]) * 1e9)
    plain = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)([bm])(?![a-z])", name, re.I)
    return int(float(plain[1]) * (1e9 if plain[2].lower() == "b" else 1e6)) if plain else None
