"""What the trainer's own check reported (inside/dry_run.py) -> Problems with our codes, so that both halves speak alike."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from backend.domain.problem import ArgValue, Problem, Severity
from backend.planning.linting.report import report

_KNOWN: tuple[tuple[str, str, str], ...] = (
    (r"Please provide `model_name_or_path`", "missing_key", "model_name_or_path"),
    (r"Please specify dataset for training", "missing_key", "dataset"),
    (r"image_max_pixels", "pixels_order", "image_max_pixels"),
    (r"video_max_pixels", "pixels_order", "video_max_pixels"),
    (r"Cannot specify `val_size` if `dataset` is None", "val_size_without_dataset", "val_size"),
    (r"Cannot specify `val_size` if `eval_dataset`", "val_size_with_eval_dataset", "val_size"),
    (r"only valid for interleaved mixing", "interleave_with_concat", "interleave_probs"),
    (r"interleave probs should be identical", "interleave_length", "interleave_probs"),
    (r"Streaming mode should have an integer val size", "streaming_val_fraction", "val_size"),
    (r"`max_samples` is incompatible with `streaming`", "streaming_max_samples", "max_samples"),
    (r"specify `max_steps` in streaming", "streaming_without_max_steps", "max_steps"),
    (r"`mask_history` is incompatible", "mask_history_with_prompt", "mask_history"),
    (r"`reward_model` is necessary", "reward_model_missing", "reward_model"),
    (r"`reward_model_type` cannot be", "ppo_reward_type", "reward_model_type"),
    (r"`dpo_label_smoothing` is only valid", "label_smoothing_not_sigmoid", "dpo_label_smoothing"),
    (r"`use_llama_pro` is only valid", "llama_pro_with_full", "use_llama_pro"),
    (r"Cannot use LoRA with GaLore", "lora_with_memory_optimizer", "finetuning_type"),
    (r"Cannot use GaLore, APOLLO or BAdam together", "several_memory_optimizers", "use_galore"),
    (r"Cannot use PiSSA for current", "pissa_stage", "pissa_init"),
    (r"`(loraplus_lr_ratio|use_rslora|use_dora|pissa_init)` is only valid for LoRA", "lora_only_option", r"\1"),
    (r"--(logging|eval|save)_steps must be an integer", "steps_not_whole", r"\1_steps"),
    (r"--load_best_model_at_end requires", "best_model_strategy", "load_best_model_at_end"),
    (r"At most one of fp16 and bf16", "two_precisions", "fp16"),
    (r"requires an eval strategy", "scheduler_needs_eval", "lr_scheduler_type"),
    (r"--dataloader_prefetch_factor can only", "prefetch_without_workers", "dataloader_prefetch_factor"),
    (r"--tf32 requires", "tf32_on_rocm", "tf32"),
    (r"Your setup doesn't support bf16", "bf16_without_gpu", "bf16"),
    (r"use_cpu does not go with deepspeed", "cpu_with_deepspeed", "use_cpu"),
    (r"`(predict_with_generate|neat_packing)` cannot be set as True except SFT", "sft_only_option", r"\1"),
    (r"enable `predict_with_generate` to save", "predict_without_generate", "do_predict"),
    (r"do not support `load_best_model_at_end`", "best_model_stage", "load_best_model_at_end"),
    (r"PPO training does not support evaluation", "ppo_without_train", "do_train"),
    (r"eval_dataset be provided or val_size", "eval_without_data", "eval_strategy"),
    (r"`predict_with_generate` is incompatible with DeepSpeed ZeRO-3", "predict_with_zero3", "predict_with_generate"),
    (r"`predict_with_generate` and `compute_accuracy`", "predict_with_accuracy", "compute_accuracy"),
    (r"Cannot use device map for quantized", "quantization_device_map", "quantization_device_map"),
    (r"initialize PiSSA in DeepSpeed ZeRO-3", "pissa_with_zero3", "pissa_init"),
    (r"`pure_bf16` is incompatible with DeepSpeed ZeRO-3", "pure_bf16_with_zero3", "pure_bf16"),
    (r"does not support layer-wise GaLore", "layerwise_distributed", "galore_layerwise"),
    (r"does not support layer-wise APOLLO", "layerwise_distributed", "apollo_layerwise"),
    (r"Radio-based BAdam|Ratio-based BAdam", "badam_ratio_distributed", "badam_mode"),
    (r"Layer-wise BAdam only supports", "badam_needs_zero3", "use_badam"),
    (r"GaLore and APOLLO are incompatible with DeepSpeed", "deepspeed_with_galore", "deepspeed"),
    (r"FP8 training is not compatible with quantization", "fp8_with_quantization", "fp8"),
    (r"backend is only available for API", "infer_backend_in_training", "infer_backend"),
    (r"Unsloth is incompatible with DeepSpeed ZeRO-3", "unsloth_with_zero3", "use_unsloth"),
    (r"KTransformers is incompatible with DeepSpeed ZeRO-3", "kt_with_zero3", "use_kt"),
    (r"Adapter is only valid for the LoRA", "adapter_needs_lora", "adapter_name_or_path"),
    (r"Quantization is only compatible with", "quantization_needs_lora", "quantization_bit"),
    (r"Quantized model only accepts a single adapter", "quantized_several_adapters", "adapter_name_or_path"),
    (r"specify the ZeRO optimization config", "zero_section_missing", "deepspeed.zero_optimization"),
    (r"Either train_batch_size or train_micro", "deepspeed_batch_missing", "deepspeed.train_micro_batch_size_per_gpu"),
    (r"Expected a string path to an existing deepspeed config", "deepspeed_config_missing", "deepspeed"),
    (r"Cannot find valid samples", "all_samples_dropped", "dataset"),
    (r"not applicable in the current training stage", "dataset_wrong_stage", "dataset"),
)
"""Text of a refusal, our code, the argument it is about."""


def translate_findings(
    errors: Sequence[Mapping[str, ArgValue]], warnings: Sequence[Mapping[str, ArgValue]]
) -> list[Problem]:
    """Findings of one checked file as Problems; what we have no code for keeps the trainer's own words."""
    found = [problem for error in errors for problem in _translate(error, Severity.ERROR)]
    return found + [problem for warning in warnings for problem in _translate(warning, Severity.WARNING)]


def _translate(finding: Mapping[str, ArgValue], severity: Severity) -> Iterator[Problem]:
    message = str(finding.get("message") or "")
    if unused := re.search(
        r"Some (?:keys|specified arguments) are not used by the HfArgumentParser: \[(.*?)\]", message
    ):
        for name in re.findall(r"'-{0,2}([A-Za-z_]\w*)'", unused[1]):
            yield report("unknown_key", severity, field=name, found=name, evidence=message[:400])
        return
    if package := re.search(r"The '([\w.<>=-]+)' distribution was not found", message):
        name = re.split(r"[<>=]", package[1])[0]
        yield report(
            "package_missing", severity, field=name, found="", expected=name, evidence=message[:400], package=name
        )
        return
    if unknown := re.search(r"Template (\S+) does not exist", message):
        yield report("template_unknown", severity, field="template", found=unknown[1], expected="-", evidence=message)
        return
    if undefined := re.search(r"Undefined dataset (\S+) in", message):
        yield report(
            "dataset_undefined",
            severity,
            field="dataset",
            found=undefined[1],
            expected="dataset_info.json",
            evidence=message,
        )
        return
    if finding.get("stage") in ("model", "tokenizer") and _NOT_CACHED.search(message):
        yield report("hub_not_cached", Severity.NOTE, field="model_name_or_path", found="", evidence=message[:400])
        return
    yield _by_table(finding, message, severity)


_NOT_CACHED = re.compile(
    r"offline|couldn't connect|LocalEntryNotFound|cached|not a local folder|does not appear to have a file", re.I
)
"""The check downloads nothing: a hub model that is not in the cache cannot be looked at."""


def _by_table(finding: Mapping[str, ArgValue], message: str, severity: Severity) -> Problem:
    for pattern, code, field in _KNOWN:
        if match := re.search(pattern, message):
            name = match.expand(field)
            return report(code, severity, field=name, found="", expected=name, evidence=message[:400], rows="-")
    place = str(finding.get("dataset") or finding.get("argument") or "")
    return report(
        "trainer_refuses" if severity is Severity.ERROR else "trainer_warns",
        severity,
        field=str(finding.get("argument") or ("dataset" if finding.get("dataset") else "")),
        found=place or "-",
        evidence=message[:400],
        stage=str(finding.get("stage") or "-"),
        message=" ".join(message.split())[:300],
    )
