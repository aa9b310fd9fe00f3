"""Arguments that exclude or need each other -> Problems: the trainer's own refusals, early and late, as one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from backend.domain.problem import Fix, Problem, Severity
from backend.planning.linting.config import TrainConfig
from backend.planning.linting.report import report
from backend.planning.words import words

Test = Callable[[TrainConfig], bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """A combination that is refused (or loses something) when `when` is true. `field` is where the page shows it."""

    code: str
    field: str
    when: Test
    expected: str = ""
    fix: Fix | None = None
    severity: Severity = Severity.ERROR


def combinations(config: TrainConfig) -> Iterator[Problem]:
    """Every row of the table that applies."""
    for row in TABLE:
        if row.when(config):
            found = config.values.get(row.field)
            yield report(
                row.code,
                row.severity,
                field=row.field,
                found="" if found is None else found,
                expected=row.expected,
                line=config.line(row.field),
                fix=row.fix,
            )


def _val_size(c: TrainConfig) -> float:
    return c.number("val_size") or 0.0


def _evaluates(c: TrainConfig) -> bool:
    return (
        c.on("do_eval")
        or c.on("do_predict")
        or c.on("predict_with_generate")
        or _eval_strategy(c) in ("steps", "epoch")
    )


def _eval_strategy(c: TrainConfig) -> str:
    return c.text("eval_strategy") or "no"


def _save_strategy(c: TrainConfig) -> str:
    return c.text("save_strategy") or "steps"


def _zero3(c: TrainConfig) -> bool:
    return c.uses_deepspeed and c.zero_stage == 3


def _fsdp(c: TrainConfig) -> bool:
    return bool(c.value("fsdp"))


def _bits(c: TrainConfig) -> float | None:
    return c.number("quantization_bit")


def _method(c: TrainConfig) -> str:
    return c.text("quantization_method") or "bnb"


def _prequantized(c: TrainConfig) -> bool:
    """The model's name says that its weights are quantized by GPTQ, AWQ, AQLM (their config.json tells the trainer)."""
    name = c.text("model_name_or_path").lower()
    return any(mark in name for mark in ("gptq", "-awq", "_awq", "aqlm", "-int4", "-int8"))


def _probabilities(c: TrainConfig) -> int:
    return len(c.words("interleave_probs"))


def _best_model_mismatch(c: TrainConfig) -> bool:
    if not c.on("load_best_model_at_end") or _save_strategy(c) == "best":
        return False
    if _eval_strategy(c) != _save_strategy(c):
        return True
    save, evaluate = c.number("save_steps"), c.number("eval_steps") or c.number("logging_steps")
    return bool(_eval_strategy(c) == "steps" and save and evaluate and save >= 1 and evaluate >= 1 and save % evaluate)


def _adapters(c: TrainConfig) -> int:
    return len(c.words("adapter_name_or_path"))


def _reference_model(c: TrainConfig) -> bool:
    return c.stage == "dpo" and c.text("pref_loss") not in ("orpo", "simpo")


def _memory_optimizers(c: TrainConfig) -> int:
    return sum(c.on(name) for name in ("use_galore", "use_apollo", "use_badam"))


_REPORTERS = words(
    "all none azure_ml comet_ml mlflow neptune tensorboard trackio wandb codecarbon clearml dagshub flyte "
    "dvclive swanlab"
)


def _reporters(c: TrainConfig) -> tuple[str, ...]:
    found = c.values.get("report_to")
    return c.words("report_to") if isinstance(found, (str, list)) else ()


def _settled(c: TrainConfig) -> bool:
    """The optimizer is written down, or its default is known because the trainer that will run is."""
    return c.given("optim") or c.context.schema is not None


_GALORE_OPTIMIZERS = frozenset(("adamw_torch", "adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit", "adafactor"))

TABLE: tuple[Combination, ...] = (
    # dataclass checks of the trainer, in their order
    Combination(
        code="pixels_order",
        field="image_max_pixels",
        when=lambda c: (c.number("image_max_pixels") or 0) < (c.number("image_min_pixels") or 0),
        expected="image_max_pixels >= image_min_pixels",
    ),
    Combination(
        code="pixels_order",
        field="video_max_pixels",
        when=lambda c: (c.number("video_max_pixels") or 0) < (c.number("video_min_pixels") or 0),
        expected="video_max_pixels >= video_min_pixels",
    ),
    Combination(
        code="val_size_without_dataset",
        field="val_size",
        when=lambda c: _val_size(c) > 1e-6 and not c.given("dataset"),
        expected="dataset",
    ),
    Combination(
        code="val_size_with_eval_dataset",
        field="val_size",
        when=lambda c: _val_size(c) > 1e-6 and c.given("eval_dataset"),
        expected="val_size | eval_dataset",
        fix=Fix(remove=("val_size",)),
    ),
    Combination(
        code="interleave_with_concat",
        field="interleave_probs",
        when=lambda c: c.given("interleave_probs") and c.text("mix_strategy") == "concat",
        expected="mix_strategy: interleave_under",
        fix=Fix(set={"mix_strategy": "interleave_under"}),
    ),
    Combination(
        code="interleave_length",
        field="interleave_probs",
        when=lambda c: bool(_probabilities(c) and c.given("dataset") and _probabilities(c) != len(c.words("dataset"))),
        expected="one number for each data set",
    ),
    Combination(
        code="streaming_val_fraction",
        field="val_size",
        when=lambda c: c.on("streaming") and 1e-6 < _val_size(c) < 1,
        expected="int >= 1",
    ),
    Combination(
        code="streaming_max_samples",
        field="max_samples",
        when=lambda c: c.on("streaming") and c.given("max_samples"),
        fix=Fix(remove=("max_samples",)),
    ),
    Combination(
        code="mask_history_with_prompt",
        field="mask_history",
        when=lambda c: c.on("mask_history") and c.on("train_on_prompt"),
        expected="mask_history | train_on_prompt",
    ),
    Combination(
        code="aux_quantization_bits",
        field="ref_model_quantization_bit",
        when=lambda c: c.number("ref_model_quantization_bit") not in (None, 4, 8),
        expected="4 | 8",
    ),
    Combination(
        code="aux_quantization_bits",
        field="reward_model_quantization_bit",
        when=lambda c: c.number("reward_model_quantization_bit") not in (None, 4, 8),
        expected="4 | 8",
    ),
    Combination(
        code="ppo_trl_version",
        field="stage",
        when=lambda c: c.stage == "ppo" and not (0, 8) <= (c.context.version("trl") or (0, 9))[:2] <= (0, 9),
        expected="dpo | kto",
    ),
    Combination(
        code="ppo_reward_type",
        field="reward_model_type",
        when=lambda c: c.stage == "ppo" and c.text("reward_model_type") == "lora" and c.method != "lora",
        expected="full | api",
        fix=Fix(set={"reward_model_type": "full"}),
    ),
    Combination(
        code="label_smoothing_not_sigmoid",
        field="dpo_label_smoothing",
        when=lambda c: (
            c.stage == "dpo" and c.text("pref_loss") != "sigmoid" and (c.number("dpo_label_smoothing") or 0) > 1e-6
        ),
        expected="pref_loss: sigmoid",
        fix=Fix(remove=("dpo_label_smoothing",)),
    ),
    Combination(
        code="llama_pro_with_full",
        field="use_llama_pro",
        when=lambda c: c.on("use_llama_pro") and c.method == "full",
        expected="freeze | lora",
    ),
    Combination(
        code="lora_with_memory_optimizer",
        field="finetuning_type",
        when=lambda c: c.method == "lora" and _memory_optimizers(c) > 0,
        expected="full | freeze",
        fix=Fix(set={"finetuning_type": "full"}),
    ),
    Combination(
        code="several_memory_optimizers",
        field="use_galore",
        when=lambda c: _memory_optimizers(c) > 1,
        expected="use_galore | use_apollo | use_badam",
    ),
    Combination(
        code="pissa_stage",
        field="pissa_init",
        when=lambda c: c.on("pissa_init") and (c.stage in ("ppo", "kto") or _reference_model(c)),
        expected="false",
        fix=Fix(remove=("pissa_init",)),
    ),
    *(
        Combination(
            code="lora_only_option",
            field=name,
            when=lambda c, name=name: c.method in ("full", "freeze", "oft") and c.given(name) and c.on(name),  # type: ignore[misc]
            expected="finetuning_type: lora",
            fix=Fix(remove=(name,)),
        )
        for name in ("loraplus_lr_ratio", "use_rslora", "use_dora", "pissa_init")
    ),
    # checks of transformers
    *(
        Combination(
            code="steps_not_whole",
            field=name,
            when=lambda c, name=name: bool((n := c.number(name)) is not None and n > 1 and not n.is_integer()),  # type: ignore[misc]
            expected="int",
        )
        for name in ("logging_steps", "eval_steps", "save_steps")
    ),
    Combination(
        code="best_model_strategy",
        field="load_best_model_at_end",
        when=_best_model_mismatch,
        expected="eval_strategy = save_strategy, save_steps = n x eval_steps",
    ),
    Combination(
        code="two_precisions",
        field="fp16",
        when=lambda c: c.on("fp16") and c.on("bf16"),
        expected="bf16: true",
        fix=Fix(remove=("fp16",)),
    ),
    Combination(
        code="scheduler_needs_eval",
        field="lr_scheduler_type",
        when=lambda c: c.text("lr_scheduler_type") in ("reduce_lr_on_plateau", "greedy") and _eval_strategy(c) == "no",
        expected="eval_strategy: steps",
    ),
    Combination(
        code="prefetch_without_workers",
        field="dataloader_prefetch_factor",
        when=lambda c: c.given("dataloader_prefetch_factor") and not c.number("dataloader_num_workers"),
        expected="dataloader_num_workers >= 1",
        fix=Fix(remove=("dataloader_prefetch_factor",)),
    ),
    Combination(
        code="cpu_with_deepspeed",
        field="use_cpu",
        when=lambda c: c.on("use_cpu") and c.uses_deepspeed,
        expected="use_cpu | deepspeed",
    ),
    # get_train_args
    *(
        Combination(
            code="sft_only_option",
            field=name,
            when=lambda c, name=name: bool(c.stage and c.stage != "sft" and c.on(name)),  # type: ignore[misc]
            expected="stage: sft",
            fix=Fix(remove=(name,)),
        )
        for name in ("predict_with_generate", "neat_packing", "train_on_prompt", "mask_history")
    ),
    Combination(
        code="predict_without_generate",
        field="do_predict",
        when=lambda c: c.stage == "sft" and c.on("do_predict") and not c.on("predict_with_generate"),
        expected="predict_with_generate: true",
        fix=Fix(set={"predict_with_generate": True}),
    ),
    Combination(
        code="best_model_stage",
        field="load_best_model_at_end",
        when=lambda c: c.stage in ("rm", "ppo") and c.on("load_best_model_at_end"),
        expected="false",
        fix=Fix(remove=("load_best_model_at_end",)),
    ),
    Combination(
        code="ppo_without_train",
        field="do_train",
        when=lambda c: c.stage == "ppo" and not c.trains,
        expected="do_train: true",
        fix=Fix(set={"do_train": True}),
    ),
    Combination(
        code="ppo_option",
        field="shift_attn",
        when=lambda c: c.stage == "ppo" and c.on("shift_attn"),
        fix=Fix(remove=("shift_attn",)),
    ),
    Combination(
        code="ppo_option",
        field="use_unsloth",
        when=lambda c: c.stage == "ppo" and c.on("use_unsloth") and c.text("reward_model_type") == "lora",
        fix=Fix(remove=("use_unsloth",)),
    ),
    Combination(
        code="ppo_reporter",
        field="report_to",
        when=lambda c: c.stage == "ppo" and bool(set(_reporters(c)) - {"wandb", "tensorboard", "trackio", "none"}),
        expected="wandb | tensorboard | trackio | none",
        fix=Fix(set={"report_to": "none"}),
    ),
    Combination(
        code="streaming_without_max_steps",
        field="max_steps",
        when=lambda c: c.on("streaming") and (c.number("max_steps") or -1) <= 0,
        expected="int >= 1",
    ),
    Combination(
        code="eval_without_data",
        field="eval_strategy",
        when=lambda c: _evaluates(c) and not c.given("eval_dataset") and _val_size(c) < 1e-6,
        expected="val_size | eval_dataset",
        fix=Fix(set={"val_size": 0.05}),
    ),
    Combination(
        code="predict_with_zero3",
        field="predict_with_generate",
        when=lambda c: c.on("predict_with_generate") and _zero3(c),
        expected="ZeRO 0-2",
    ),
    Combination(
        code="predict_with_accuracy",
        field="compute_accuracy",
        when=lambda c: c.on("predict_with_generate") and c.on("compute_accuracy"),
        expected="predict_with_generate | compute_accuracy",
        fix=Fix(remove=("compute_accuracy",)),
    ),
    Combination(
        code="quantization_device_map",
        field="quantization_device_map",
        when=lambda c: c.trains and c.text("quantization_device_map") == "auto",
        fix=Fix(remove=("quantization_device_map",)),
    ),
    Combination(
        code="pissa_with_zero3",
        field="pissa_init",
        when=lambda c: c.on("pissa_init") and _zero3(c),
        expected="ZeRO 0-2",
    ),
    Combination(
        code="pure_bf16_with_zero3",
        field="pure_bf16",
        when=lambda c: c.on("pure_bf16") and _zero3(c),
        expected="bf16: true",
        fix=Fix(set={"bf16": True}, remove=("pure_bf16",)),
    ),
    Combination(
        code="layerwise_distributed",
        field="galore_layerwise",
        when=lambda c: c.distributed and c.on("use_galore") and c.on("galore_layerwise"),
        expected="false",
        fix=Fix(remove=("galore_layerwise",)),
    ),
    Combination(
        code="layerwise_distributed",
        field="apollo_layerwise",
        when=lambda c: c.distributed and c.on("use_apollo") and c.on("apollo_layerwise"),
        expected="false",
        fix=Fix(remove=("apollo_layerwise",)),
    ),
    Combination(
        code="badam_ratio_distributed",
        field="badam_mode",
        when=lambda c: c.distributed and c.on("use_badam") and c.text("badam_mode") == "ratio",
        expected="layer",
        fix=Fix(set={"badam_mode": "layer"}),
    ),
    Combination(
        code="badam_needs_zero3",
        field="use_badam",
        when=lambda c: c.distributed and c.on("use_badam") and c.text("badam_mode") == "layer" and not _zero3(c),
        expected="ZeRO-3",
    ),
    Combination(
        code="deepspeed_with_galore",
        field="deepspeed",
        when=lambda c: c.uses_deepspeed and (c.on("use_galore") or c.on("use_apollo")),
        fix=Fix(remove=("deepspeed",)),
    ),
    Combination(
        code="fp8_with_quantization",
        field="fp8",
        when=lambda c: c.on("fp8") and _bits(c) is not None,
        expected="fp8 | quantization_bit",
    ),
    Combination(
        code="infer_backend_in_training",
        field="infer_backend",
        when=lambda c: c.is_for_training and c.text("infer_backend") in ("vllm", "sglang"),
        expected="huggingface",
        fix=Fix(remove=("infer_backend",)),
    ),
    Combination(
        code="unsloth_with_zero3",
        field="use_unsloth",
        when=lambda c: c.on("use_unsloth") and _zero3(c),
        expected="use_unsloth | ZeRO-3",
        fix=Fix(remove=("use_unsloth",)),
    ),
    Combination(
        code="kt_with_zero3",
        field="use_kt",
        when=lambda c: c.on("use_kt") and _zero3(c),
        expected="use_kt | ZeRO-3",
    ),
    # _verify_model_args
    Combination(
        code="adapter_needs_lora",
        field="adapter_name_or_path",
        when=lambda c: c.given("adapter_name_or_path") and c.method in ("full", "freeze", "oft"),
        expected="finetuning_type: lora",
        fix=Fix(set={"finetuning_type": "lora"}),
    ),
    Combination(
        code="quantization_needs_lora",
        field="quantization_bit",
        when=lambda c: _bits(c) is not None and c.method in ("full", "freeze"),
        expected="finetuning_type: lora",
    ),
    Combination(
        code="quantized_option",
        field="pissa_init",
        when=lambda c: _bits(c) is not None and c.on("pissa_init"),
        expected="false",
        fix=Fix(remove=("pissa_init",)),
    ),
    Combination(
        code="quantized_option",
        field="resize_vocab",
        when=lambda c: _bits(c) is not None and c.on("resize_vocab"),
        expected="false",
        fix=Fix(remove=("resize_vocab",)),
    ),
    Combination(
        code="quantized_option",
        field="create_new_adapter",
        when=lambda c: _bits(c) is not None and c.given("adapter_name_or_path") and c.on("create_new_adapter"),
        expected="false",
        fix=Fix(remove=("create_new_adapter",)),
    ),
    Combination(
        code="quantized_several_adapters",
        field="adapter_name_or_path",
        when=lambda c: _bits(c) is not None and _adapters(c) > 1,
        expected="1",
    ),
    # late: after tokenizing or loading
    Combination(
        code="prompt_with_strict_eos",
        field="train_on_prompt",
        when=lambda c: c.on("train_on_prompt") and c.text("template") in c.context.trainer.strict_eos_templates,
        expected="false",
        fix=Fix(remove=("train_on_prompt",)),
    ),
    Combination(
        code="quantization_bits",
        field="quantization_bit",
        when=lambda c: _bits(c) is not None and _method(c) == "bnb" and _bits(c) not in (4, 8),
        expected="4 | 8",
    ),
    Combination(
        code="quantization_bits",
        field="quantization_bit",
        when=lambda c: _bits(c) is not None and _method(c) == "hqq" and _bits(c) not in (1, 2, 3, 4, 5, 6, 8),
        expected="1 | 2 | 3 | 4 | 5 | 6 | 8",
    ),
    Combination(
        code="quantization_bits",
        field="quantization_bit",
        when=lambda c: _bits(c) is not None and _method(c) == "eetq" and _bits(c) != 8,
        expected="8",
        fix=Fix(set={"quantization_bit": 8}),
    ),
    Combination(
        code="quantization_method_inert",
        field="quantization_method",
        when=lambda c: _method(c) in ("gptq", "awq", "aqlm", "quanto", "mxfp4", "fp8") and _bits(c) is not None,
        expected="bnb | hqq | eetq",
        severity=Severity.WARNING,
        fix=Fix(remove=("quantization_method", "quantization_bit")),
    ),
    Combination(
        code="quantized_with_zero3",
        field="quantization_bit",
        when=lambda c: (_zero3(c) or _fsdp(c)) and _bits(c) is not None and not (_method(c) == "bnb" and _bits(c) == 4),
        expected="ZeRO 0-2",
    ),
    Combination(
        code="quantized_with_zero3",
        field="model_name_or_path",
        when=lambda c: (_zero3(c) or _fsdp(c)) and _prequantized(c),
        expected="ZeRO 0-2",
    ),
    Combination(
        code="qlora_with_zero3",
        field="quantization_bit",
        when=lambda c: _zero3(c) and _method(c) == "bnb" and _bits(c) == 4,
        expected="ZeRO 0-2",
        severity=Severity.WARNING,
    ),
    Combination(
        code="dora_on_quantized",
        field="use_dora",
        when=lambda c: c.on("use_dora") and c.method == "lora" and _prequantized(c),
        expected="false",
        fix=Fix(remove=("use_dora",)),
    ),
    Combination(
        code="several_adapters_zero3",
        field="adapter_name_or_path",
        when=lambda c: _zero3(c) and _adapters(c) > 1,
        expected="1",
    ),
    Combination(
        code="oft_with_unsloth",
        field="use_unsloth",
        when=lambda c: c.method == "oft" and c.on("use_unsloth"),
        expected="finetuning_type: lora",
    ),
    Combination(
        code="layerwise_accumulation",
        field="gradient_accumulation_steps",
        when=lambda c: (
            ((c.on("use_galore") and c.on("galore_layerwise")) or (c.on("use_apollo") and c.on("apollo_layerwise")))
            and (c.number("gradient_accumulation_steps") or 1) > 1
        ),
        expected="1",
        fix=Fix(set={"gradient_accumulation_steps": 1}),
    ),
    Combination(
        code="galore_optimizer",
        field="optim",
        when=lambda c: c.on("use_galore") and _settled(c) and c.text("optim") not in _GALORE_OPTIMIZERS,
        expected="adamw_torch",
        fix=Fix(set={"optim": "adamw_torch"}),
    ),
    Combination(
        code="galore_optimizer",
        field="optim",
        when=lambda c: c.on("use_apollo") and _settled(c) and c.text("optim") != "adamw_torch",
        expected="adamw_torch",
        fix=Fix(set={"optim": "adamw_torch"}),
    ),
    Combination(
        code="galore_optimizer_default",
        field="optim",
        when=lambda c: (c.on("use_galore") or c.on("use_apollo")) and not _settled(c),
        expected="adamw_torch",
        severity=Severity.NOTE,
        fix=Fix(set={"optim": "adamw_torch"}),
    ),
    Combination(
        code="neat_packing_batch",
        field="per_device_train_batch_size",
        when=lambda c: (
            c.on("neat_packing")
            and c.text("flash_attn") == "fa2"
            and (c.number("per_device_train_batch_size") or 1) > 1
        ),
        expected="1",
        fix=Fix(set={"per_device_train_batch_size": 1}),
    ),
    Combination(
        code="neat_packing_template",
        field="neat_packing",
        when=lambda c: c.on("neat_packing") and c.text("template") in ("gemma4", "gemma4n", "gpt_oss"),
        expected="false",
        fix=Fix(remove=("neat_packing",)),
    ),
    Combination(
        code="ppo_option",
        field="eval_dataset",
        when=lambda c: c.stage == "ppo" and c.given("eval_dataset"),
        fix=Fix(remove=("eval_dataset",)),
    ),
    Combination(
        code="ppo_option",
        field="resume_from_checkpoint",
        when=lambda c: c.stage == "ppo" and c.given("resume_from_checkpoint"),
        fix=Fix(remove=("resume_from_checkpoint",)),
    ),
    Combination(
        code="reporter_unknown",
        field="report_to",
        when=lambda c: bool(set(_reporters(c)) - _REPORTERS - {"kubeflow"}),
        expected="none | tensorboard | wandb | swanlab | mlflow | trackio | all",
        fix=Fix(set={"report_to": "none"}),
    ),
    # losses without a refusal
    Combination(
        code="neat_packing_without_kernel",
        field="neat_packing",
        when=lambda c: c.on("neat_packing") and c.stage == "sft" and c.text("flash_attn") in ("sdpa", "disabled"),
        expected="flash_attn: fa2",
        severity=Severity.WARNING,
    ),
    Combination(
        code="resize_without_target",
        field="resize_vocab",
        when=lambda c: (
            c.trains
            and c.method == "lora"
            and _bits(c) is None
            and c.on("resize_vocab")
            and not c.given("additional_target")
        ),
        expected="additional_target: embed_tokens,lm_head",
        severity=Severity.WARNING,
    ),
    *(
        Combination(
            code="bf16_without_gpu",
            field="bf16",
            when=lambda c, sharded=sharded: (  # type: ignore[misc]
                c.on("bf16")
                and not c.on("use_cpu")
                and c.uses_deepspeed is sharded
                and c.context.accelerator == "cpu"
                and c.context.launched_here
            ),
            expected="bf16: false" if sharded else "use_cpu: true",
            severity=Severity.WARNING,
            fix=Fix(set={"bf16": False}) if sharded else Fix(set={"use_cpu": True}),
        )
        for sharded in (False, True)
    ),
    Combination(
        code="no_mixed_precision",
        field="bf16",
        when=lambda c: (
            c.trains
            and not (c.on("bf16") or c.on("fp16") or c.on("pure_bf16") or c.on("use_cpu"))
            and c.context.accelerator != "cpu"
        ),
        expected="bf16: true",
        severity=Severity.NOTE,
        fix=Fix(set={"bf16": True}),
    ),
    Combination(
        code="cache_flag_without_effect",
        field="overwrite_cache",
        when=lambda c: c.on("overwrite_cache") and c.given("tokenized_path"),
        expected="a new tokenized_path",
        severity=Severity.WARNING,
        fix=Fix(remove=("overwrite_cache",)),
    ),
)

RULES = (combinations,)
