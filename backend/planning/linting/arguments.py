"""Single arguments of a train config -> Problems: unknown and renamed keys, missing keys, types, choices, attention, template."""

from __future__ import annotations

import re
from collections.abc import Iterator

from backend.domain.problem import ArgValue, Fix, Problem, Severity
from backend.planning.linting.config import OWN_SECTION, TrainConfig
from backend.planning.linting.report import report
from backend.planning.schema import Argument, Kind, nearest
from backend.planning.words import words

RENAMED = {
    "evaluation_strategy": "eval_strategy",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "no_cuda": "use_cpu",
    "checkpoint_dir": "adapter_name_or_path",
    "lora_rank_alpha": "lora_alpha",
    "dpo_beta": "pref_beta",
    "dpo_loss": "pref_loss",
    "dpo_ftx": "pref_ftx",
    "orpo_beta": "pref_beta",
    "kto_beta": "pref_beta",
    "kto_ftx": "pref_ftx",
    "name_module_trainable": "freeze_trainable_modules",
    "num_layer_trainable": "freeze_trainable_layers",
    "sft_packing": "packing",
    "efficient_packing": "neat_packing",
    "max_source_length": "cutoff_len",
    "max_length_source": "cutoff_len",
    "cutoff_length": "cutoff_len",
    "max_seq_length": "cutoff_len",
    "max_seq_len": "cutoff_len",
    "system_prompt": "default_system",
    "use_fast_tokenizer_": "use_fast_tokenizer",
    "visual_inputs": "",
    "lora_bf16_mode": "pure_bf16",
    "image_resolution": "image_max_pixels",
    "video_resolution": "video_max_pixels",
    "reserved_label_len": "",
    "cpu_load": "low_cpu_mem_usage",
    "flash_attention": "flash_attn",
    "use_flash_attn": "flash_attn",
    "attn_implementation": "flash_attn",
    "liger_kernel": "enable_liger_kernel",
    "include_tokens_per_second": "include_num_input_tokens_seen",
}
"""Names of earlier LLaMA-Factory and transformers versions (and of other trainers) and what they are called now."""

_VALUE_CHANGES = frozenset(
    (
        "no_cuda",
        "flash_attention",
        "use_flash_attn",
        "attn_implementation",
        "include_tokens_per_second",
        "lora_bf16_mode",
    )
)

OBSOLETE_FLAGS = {
    "checkpoint_dir": "adapter_name_or_path",
    "use_v2": "",
    "resume_lora_training": "create_new_adapter",
    "reserved_label_len": "",
    "plot_loss_": "",
    "prompt_template": "template",
    "source_prefix": "",
    "dev_ratio": "val_size",
    "padding_side": "",
    "use_ptuning_v2": "",
    "pre_seq_len": "",
    "prefix_projection": "",
    "evaluation_strategy": "eval_strategy",
    "no_cuda": "use_cpu",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "dpo_beta": "pref_beta",
    "dpo_loss": "pref_loss",
    "dpo_ftx": "pref_ftx",
    "kto_beta": "pref_beta",
    "orpo_beta": "pref_beta",
    "sft_packing": "packing",
    "name_module_trainable": "freeze_trainable_modules",
    "num_layer_trainable": "freeze_trainable_layers",
    "max_source_length": "cutoff_len",
    "max_target_length": "cutoff_len",
    "visual_inputs": "",
    "image_resolution": "image_max_pixels",
    "save_safetensors": "",
    "group_by_length": "train_sampling_strategy",
    "include_tokens_per_second": "include_num_input_tokens_seen",
}
"""Command line flags that no longer exist; the value is what took their place ("" = nothing)."""

_TODAYS_WAY = {
    **dict.fromkeys(
        [
            "save_safetensors",
            "use_ipex",
            "jit_mode_eval",
            "push_to_hub_token",
            "include_inputs_for_metrics",
            "mp_parameters",
            "use_v2",
            "resume_lora_training",
            "fp16_backend",
            "fp16_opt_level",
            "half_precision_backend",
            "past_index",
            "tpu_num_cores",
            "dispatch_batches",
            "split_batches",
            "ray_scope",
            "ray_storage_path",
            "ray_storage_filesystem",
            "ray_run_name",
            "placement_strategy",
            "resources_per_worker",
        ],
        "",
    ),
    "disable_torch_compile": "torch_compile: false",
}
"""Keys that were valid once and now stop the run; they can go without changing what is trained."""

_MEGATRON = re.compile(
    r"(?:tensor|pipeline|expert|context|virtual_pipeline)_model_parallel|sequence_parallel|moe_|recompute_|"
    r"use_distributed_optimizer|overlap_(?:grad|param)|bias_activation_fusion|apply_rope_fusion|expert_|"
    r"swiglu_|transformer_impl|attention_backend|additional_configs|calculate_per_token_loss|distribute_saved"
)
_FORK = frozenset(
    (
        "grpo_",
        "sequence_parallel_size",
        "sequence_parallel_mode",
        "rlhf_type",
        "teacher_model",
        "num_generations",
        "vllm_mode",
    )
)
_CONTROL_IDS = words(
    "compute_type booster batch_size training_stage ds_stage ds_offload neftune_alpha lang model_name "
    "model_path checkpoint_path extra_args use_pissa"
)
"""Names of LLaMA Board's own controls; the trainer does not know them."""

_COMPUTE_TYPES = {
    "bf16": Fix(set={"bf16": True}, remove=("compute_type",)),
    "fp16": Fix(set={"fp16": True}, remove=("compute_type",)),
    "fp32": Fix(remove=("compute_type",)),
    "pure_bf16": Fix(set={"pure_bf16": True}, remove=("compute_type",)),
}
_LAUNCHER_WORDS = frozenset(
    ("config_file", "config", "config_path", "yaml", "num_gpus", "num_processes", "nproc_per_node", "hostfile")
)


def unknown_keys(config: TrainConfig) -> Iterator[Problem]:
    """Every key that the trainer does not know: it refuses the whole file for any of them."""
    trainer = config.context.trainer
    for name, value in config.values.items():
        if name == OWN_SECTION or trainer.knows(name):
            continue
        yield _unknown(config, name, value)


def _unknown(config: TrainConfig, name: str, value: ArgValue) -> Problem:
    """The most helpful name for one unknown key."""
    line = config.line(name)
    gone = Fix(remove=(name,))

    def error(code: str, expected: str, fix: Fix | None = gone, found: ArgValue = value) -> Problem:
        return report(code, Severity.ERROR, field=name, found=found, expected=expected, line=line, fix=fix)

    if config.from_command and name in OBSOLETE_FLAGS:
        new = OBSOLETE_FLAGS[name]
        keeps = bool(new) and name not in _VALUE_CHANGES and value is not None
        code = "obsolete_flag" if new else "obsolete_flag_gone"
        return error(code, new, Fix(set={new: value} if keeps else {}, remove=(name,)), name)
    if config.from_command and name in _LAUNCHER_WORDS:
        return error("config_flag", "llamafactory-cli train <file>.yaml", None)
    if name == "compute_type":
        return error("compute_type", "bf16: true | fp16: true", _COMPUTE_TYPES.get(str(value).lower()))
    if new_name := RENAMED.get(name):
        return error(
            "renamed_key", new_name, gone if config.given(new_name) else _renaming(name, new_name, value), name
        )
    if name in _TODAYS_WAY:
        return error("replaced_key" if _TODAYS_WAY[name] else "removable_key", _TODAYS_WAY[name])
    if name == "group_by_length":
        sampling = {"train_sampling_strategy": "group_by_length"} if value else {}
        return error(
            "replaced_key", "train_sampling_strategy: group_by_length", Fix(set=dict(sampling), remove=(name,))
        )
    if _MEGATRON.match(name):
        return error("other_backend_key", "USE_MCA=1")
    if name in _CONTROL_IDS:
        return error("interface_key", "")
    if any(name == mark or (mark.endswith("_") and name.startswith(mark)) for mark in _FORK):
        return error("fork_key", "")
    near = config.context.trainer.nearest(name)
    if near is not None and not config.given(near):
        return error("misspelt_key", near, Fix(set={near: value}, remove=(name,)), name)
    return error("unknown_key", "")


def _renaming(name: str, new_name: str, value: ArgValue) -> Fix:
    if name in _VALUE_CHANGES:
        return _value_fix(name, value)
    return Fix(set={new_name: value}, remove=(name,))


def _value_fix(name: str, value: ArgValue) -> Fix:
    if name == "no_cuda":
        return Fix(set={"use_cpu": bool(value)}, remove=(name,))
    if name == "include_tokens_per_second":
        return Fix(set={"include_num_input_tokens_seen": bool(value)}, remove=(name,))
    if name == "lora_bf16_mode":
        return Fix(set={"pure_bf16": bool(value)}, remove=(name,))
    return Fix(set={"flash_attn": "auto" if value else "disabled"}, remove=(name,))


def duplicate_keys(config: TrainConfig) -> Iterator[Problem]:
    """OmegaConf refuses a file in which a key stands twice."""
    for name in config.source.duplicates:
        yield report("duplicate_key", Severity.ERROR, field=name, found=name, expected="1", line=config.line(name))


def missing_keys(config: TrainConfig) -> Iterator[Problem]:
    """Keys without which the trainer stops at once (or, for output_dir, writes where nobody looks)."""
    needed = ["model_name_or_path"]
    if config.trains and not config.given("tokenized_path"):
        needed.append("dataset")
    if not config.own and not config.context.launched_here and config.is_for_training:
        needed.append("output_dir")
    for name in needed:
        if not config.given(name) or config.values.get(name) == "":
            yield report("missing_key", Severity.ERROR, field=name, expected=name)
    if config.stage == "ppo" and not config.given("reward_model"):
        yield report("reward_model_missing", Severity.ERROR, field="reward_model", expected="reward_model")


def nothing_to_do(config: TrainConfig) -> Iterator[Problem]:
    """Without do_train, do_eval or do_predict the trainer loads everything and ends."""
    if not config.is_for_training:
        return
    if not (config.trains or config.on("do_eval") or config.on("do_predict")):
        yield report(
            "nothing_to_do",
            Severity.WARNING,
            field="do_train",
            expected="do_train: true",
            fix=Fix(set={"do_train": True}),
        )


def values_of_their_kind(config: TrainConfig) -> Iterator[Problem]:
    """Types and choices. YAML values are not checked by the trainer, so a wrong one surfaces minutes later or never."""
    for name, value in config.values.items():
        argument = config.context.trainer.arguments.get(name)
        if argument is None or value is None or name in ("flash_attn", "template"):
            continue
        problem = _choice(config, argument, value) or _kind(config, argument, value)
        if problem:
            yield problem


def valueless_flags(config: TrainConfig) -> Iterator[Problem]:
    """`--flag` without a value on a command line, for an argument that needs one."""
    for name, value in config.values.items():
        argument = config.context.trainer.arguments.get(name)
        if config.from_command and value is None and argument is not None:
            yield report("flag_without_value", Severity.ERROR, field=name, expected=_expected(argument))


def _choice(config: TrainConfig, argument: Argument, value: ArgValue) -> Problem | None:
    name, line = argument.name, config.line(argument.name)
    if not argument.choices or (isinstance(value, str) and value in argument.choices):
        return None
    expected = " | ".join(argument.choices)
    raw = config.source.raw.get(name, "")
    if isinstance(value, bool):
        word = raw.lower()
        fix = (
            Fix(set={name: word})
            if word in argument.choices
            else Fix(set={name: "no"})
            if value is False and "no" in argument.choices
            else None
        )
        return report(
            "boolean_instead_of_word",
            Severity.ERROR,
            field=name,
            found=raw or value,
            expected=expected,
            line=line,
            fix=fix,
        )
    if argument.name.endswith("_bit") and str(value) in argument.choices:
        return None
    near = nearest(str(value), argument.choices)
    fix = Fix(set={name: near}) if near else None
    return report("bad_choice", Severity.ERROR, field=name, found=value, expected=expected, line=line, fix=fix)


def _kind(config: TrainConfig, argument: Argument, value: ArgValue) -> Problem | None:
    if argument.choices or argument.loose or _fits(argument.kind, value):
        return None
    name, line = argument.name, config.line(argument.name)
    fixed = _coerced(argument.kind, value)
    fix = Fix(set={name: fixed}) if fixed is not None else None
    severity = Severity.WARNING if _harmless(argument.kind, value) and not config.from_command else Severity.ERROR
    return report("wrong_type", severity, field=name, found=value, expected=_expected(argument), line=line, fix=fix)


def _fits(kind: Kind, value: ArgValue) -> bool:
    if kind is Kind.BOOL:
        return isinstance(value, bool)
    if kind is Kind.INT:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is Kind.FLOAT:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is Kind.TEXT:
        return isinstance(value, (str, int, float)) and not isinstance(value, bool)
    if kind is Kind.LIST:
        return isinstance(value, (list, str))
    return isinstance(value, (dict, str))


def _harmless(kind: Kind, value: ArgValue) -> bool:
    """Wrong by type, yet Python takes it for what is meant: a whole float as a count, 0/1 or a text as a switch."""
    if kind is Kind.INT:
        return isinstance(value, float) and value.is_integer()
    return kind is Kind.BOOL and isinstance(value, int)


def _coerced(kind: Kind, value: ArgValue) -> ArgValue:
    """The value that is meant, if there is just one."""
    text = str(value).strip().strip("\"'").lower()
    if kind is Kind.BOOL:
        if text in ("true", "yes", "on", "1", "y", "t"):
            return True
        return False if text in ("false", "no", "off", "0", "n", "f") else None
    if kind in (Kind.INT, Kind.FLOAT) and not isinstance(value, bool):
        try:
            number = float(text)
        except ValueError:
            return None
        return (
            int(number)
            if number.is_integer() and (kind is Kind.INT or "e" not in text)
            else number
            if kind is Kind.FLOAT
            else None
        )
    return None


def _expected(argument: Argument) -> str:
    if argument.choices:
        return " | ".join(argument.choices)
    return {Kind.BOOL: "true | false", Kind.INT: "int", Kind.FLOAT: "float", Kind.TEXT: "text"}.get(
        argument.kind, str(argument.kind)
    )


def numbers_without_dot(config: TrainConfig) -> Iterator[Problem]:
    """`2e-5`: a float for the trainer, text for every program that reads YAML 1.1 strictly."""
    for name in config.source.raw:
        if config.source.without_dot(name):
            raw = config.source.raw[name]
            mantissa, _, exponent = raw.lower().partition("e")
            yield report(
                "number_without_dot",
                Severity.WARNING,
                field=name,
                found=raw,
                expected=f"{mantissa}.0e{exponent}",
                line=config.line(name),
            )


def attention(config: TrainConfig) -> Iterator[Problem]:
    """`flash_attn`: checked only when the model is loaded, after all data is tokenized."""
    value = config.values.get("flash_attn")
    if value is None:
        return
    line, expected = config.line("flash_attn"), "auto | disabled | sdpa | fa2"
    word = str(value).lower()
    argument = config.context.trainer.arguments.get("flash_attn")
    choices = argument.choices if argument else ()
    if isinstance(value, bool) or word in (
        "true",
        "false",
        "fa",
        "flash",
        "flash_attention",
        "flash_attn",
        "flash_attention_2",
        "flashattn2",
        "fa1",
    ):
        meant = "disabled" if value is False or word == "false" else "auto"
        fix = Fix(set={"flash_attn": meant})
        yield report(
            "attention_value", Severity.ERROR, field="flash_attn", found=value, expected=expected, line=line, fix=fix
        )
    elif choices and value not in choices:
        fix = Fix(set={"flash_attn": nearest(word, choices) or "auto"})
        yield report(
            "attention_value", Severity.ERROR, field="flash_attn", found=value, expected=expected, line=line, fix=fix
        )
    elif (
        value == "fa3"
        and config.context.model_type != "gpt_oss"
        and "gpt-oss" not in config.text("model_name_or_path").lower()
    ):
        fix = Fix(set={"flash_attn": "auto"})
        yield report(
            "attention_fa3", Severity.ERROR, field="flash_attn", found=value, expected=expected, line=line, fix=fix
        )
    elif value == "fa2":
        yield from _flash_attention_2(config, line)


def _flash_attention_2(config: TrainConfig, line: int | None) -> Iterator[Problem]:
    fix = Fix(set={"flash_attn": "sdpa"})
    if config.context.version("transformers") == (5, 6, 0) and config.context.lacks("flash-attn") is not True:
        yield report(
            "attention_broken", Severity.ERROR, field="flash_attn", found="fa2", expected="sdpa", line=line, fix=fix
        )
    elif config.context.lacks("flash-attn"):
        yield report(
            "attention_package_missing",
            Severity.WARNING,
            field="flash_attn",
            found="fa2",
            expected="sdpa",
            line=line,
            fix=fix,
        )
    elif config.context.lacks("flash-attn") is None:
        yield report("needs_package", Severity.NOTE, field="flash_attn", found="fa2", line=line, package="flash-attn")


def template(config: TrainConfig) -> Iterator[Problem]:
    """The chat template must be one of the trainer's names; it is looked up only after the tokenizer is loaded."""
    name = config.values.get("template")
    known = config.context.trainer.templates
    if name is None or not known or name in known:
        return
    near = TEMPLATE_NAMES.get(str(name).lower()) or nearest(str(name), known)
    fix = Fix(set={"template": near}) if near else None
    yield report(
        "template_unknown",
        Severity.WARNING if config.context.has_run else Severity.ERROR,
        field="template",
        found=name,
        expected=near or "121 names",
        line=config.line("template"),
        fix=fix,
    )


def template_of_model(config: TrainConfig) -> Iterator[Problem]:
    """A template other than the one the trainer uses for this model (`_nothink` variants of it are the same family)."""
    templates = config.context.trainer.model_templates
    model, name = config.text("model_name_or_path").rstrip("/"), config.text("template")
    usual = templates.get(model) or templates.get(model.rpartition("/")[2])
    if not usual or not name or name not in config.context.trainer.templates:
        return
    if name.removesuffix("_nothink") != usual.removesuffix("_nothink") and name != "default":
        yield report(
            "template_of_another_model",
            Severity.NOTE,
            field="template",
            found=name,
            expected=usual,
            line=config.line("template"),
            fix=Fix(set={"template": usual}),
        )


TEMPLATE_NAMES = {
    "qwen2": "qwen",
    "qwen2.5": "qwen",
    "qwen2_5": "qwen",
    "qwen1.5": "qwen",
    "qwen2_5_vl": "qwen2_vl",
    "qwen2.5_vl": "qwen2_vl",
    "qwen2.5-vl": "qwen2_vl",
    "llama3.1": "llama3",
    "llama3.2": "llama3",
    "llama-3": "llama3",
    "llama3_1": "llama3",
    "llama31": "llama3",
    "deepseek_r1": "deepseekr1",
    "deepseek-r1": "deepseekr1",
    "deepseek_v3": "deepseek3",
    "chatglm2": "chatglm3",
    "glm3": "chatglm3",
    "internlm2": "intern2",
    "baichuan2": "default",
    "vanilla": "empty",
}
"""Names often written for a template, and the trainer's own."""

RULES = (
    unknown_keys,
    duplicate_keys,
    missing_keys,
    nothing_to_do,
    values_of_their_kind,
    valueless_flags,
    numbers_without_dot,
    attention,
    template,
    template_of_model,
)
