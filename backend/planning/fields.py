"""The field catalogue: every entry of the launch form with its argument, kind, choices, default and when it is of use.

Names, choices and defaults are LLaMA-Factory 0.9.5's with transformers 5.5 (facts checked by tests against the installed
trainer: tests/integration/test_catalogue.py). Texts in English and Chinese: ui/text/fields_en.py, fields_zh.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from backend.domain.form import Field, FormValue, Group, Kind, Level, When

SIMPLE, ADVANCED = Level.SIMPLE, Level.ADVANCED

OPTIMIZERS = (
    "adamw_torch",
    "adamw_torch_fused",
    "adafactor",
    "adamw_8bit",
    "adamw_bnb_8bit",
    "paged_adamw_8bit",
    "paged_adamw_32bit",
    "lion_8bit",
    "lion_32bit",
    "paged_lion_8bit",
    "paged_lion_32bit",
    "adamw_torch_8bit",
    "adamw_torch_4bit",
    "ademamix",
    "sgd",
    "adagrad",
    "rmsprop",
    "schedule_free_adamw",
    "stable_adamw",
)
SCHEDULERS = (
    "linear",
    "cosine",
    "cosine_with_restarts",
    "cosine_with_min_lr",
    "cosine_warmup_with_min_lr",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
    "warmup_stable_decay",
    "reduce_lr_on_plateau",
)
TOOL_FORMATS = (
    "default", "gemma4", "glm4", "glm4_moe", "lfm2", "ling", "llama3", "minimax1", "minimax2", "mistral", "qwen",
    "qwen3_5", "seed_oss",
)  # fmt: skip
REPORTERS = ("none", "tensorboard", "wandb", "swanlab", "mlflow", "trackio", "comet_ml", "clearml", "neptune")
TEMPLATES = tuple(
    """aeva alpaca bailing bailing_v2 breeze chatglm3 chatml chatml_de cohere cpm4 dbrx deepseek deepseek3 deepseekcoder
    deepseekr1 default dots_ocr empty ernie ernie_nothink ernie_vl exaone falcon falcon_h1 fewshot gemma gemma2 gemma3
    gemma3n gemma4 gemma4n glm4 glm4_5v glm4_7 glm4_moe glm4v glm_ocr glmz1 gpt_oss granite3 granite3_vision granite4
    hunyuan hunyuan_small hy3 index intern2 intern_s1 intern_vl keye_vl kimi_vl lfm2 lfm2_vl llama2 llama2_zh llama3
    llama4 llava llava_next llava_next_llama3 llava_next_mistral llava_next_qwen llava_next_video
    llava_next_video_mistral llava_next_video_yi llava_next_yi mimo mimo_v2 mimo_vl minicpm_o minicpm_v minicpm_v_4_6
    minimax1 minimax2 ministral ministral3 mistral mistral_small mllama moonlight olmo openchat openchat-3.6 opencoder
    paligemma paligemma_chat phi phi4 phi4_mini phi_small pixtral qwen qwen2_audio qwen2_omni qwen2_vl qwen3 qwen3_5
    qwen3_5_nothink qwen3_6 qwen3_nothink qwen3_omni qwen3_omni_nothink qwen3_vl qwen3_vl_nothink sailor seed_coder
    seed_oss smollm smollm2 solar starchat telechat2 vicuna video_llava xuanyuan yi yi_vl youtu youtu_vl yuan
    zephyr""".split()  # noqa: SIM905
)


def _when(**fields: FormValue | tuple[FormValue, ...]) -> tuple[When, ...]:
    """Conditions by field name; `zero_stage=("2", "3")` means one of the two."""
    return tuple(
        When(field=name, values=values if isinstance(values, tuple) else (values,)) for name, values in fields.items()
    )


def _field(
    group: Group,
    name: str,
    kind: Kind,
    default: FormValue = None,
    *choices: FormValue,
    level: Level = ADVANCED,
    arguments: tuple[str, ...] = (),
    when: tuple[When, ...] = (),
    unit: str = "",
    least: float | None = None,
    most: float | None = None,
) -> Field:
    return Field(
        name=name,
        group=group,
        kind=kind,
        arguments=arguments or (name,),
        default=default,
        choices=choices,
        level=level,
        when=when,
        unit=unit,
        minimum=least,
        maximum=most,
    )


_LORA = _when(finetuning_type="lora")
_FREEZE = _when(finetuning_type="freeze")
_OFT = _when(finetuning_type="oft")
_QUANTIZED = _when(finetuning_type=("lora", "oft"), quantization_bit=("4", "8"))
_SFT = _when(stage="sft")
_DPO = _when(stage="dpo")
_KTO = _when(stage="kto")
_PPO = _when(stage="ppo")
_SAVED_BY_STEPS = _when(save_strategy="steps")
_EVALUATED = _when(eval_strategy=("steps", "epoch"))

_RUN = (
    _field(Group.RUN, "tunedeck.name", Kind.TEXT, level=SIMPLE),
    _field(Group.RUN, "tunedeck.tags", Kind.NAMES),
    _field(Group.RUN, "tunedeck.notes", Kind.LONG_TEXT),
    _field(Group.RUN, "tunedeck.priority", Kind.WHOLE, 0),
    _field(Group.RUN, "output_dir", Kind.PATH),
    _field(Group.RUN, "resume_from_checkpoint", Kind.PATH),
)

_MODEL = (
    _field(Group.MODEL, "model_name_or_path", Kind.PATH, level=SIMPLE),
    _field(Group.MODEL, "template", Kind.OPEN_CHOICE, None, *TEMPLATES, level=SIMPLE),
    _field(
        Group.MODEL, "quantization_bit", Kind.CHOICE, "none", "none", "8", "4", level=SIMPLE,
        when=_when(finetuning_type=("lora", "oft")),
    ),
    _field(Group.MODEL, "quantization_method", Kind.CHOICE, "bnb", "bnb", "hqq", "eetq", when=_QUANTIZED),
    _field(
        Group.MODEL, "quantization_type", Kind.CHOICE, "nf4", "nf4", "fp4",
        when=_when(finetuning_type=("lora", "oft"), quantization_bit="4", quantization_method="bnb"),
    ),
    _field(
        Group.MODEL, "double_quantization", Kind.SWITCH, True,
        when=_when(finetuning_type=("lora", "oft"), quantization_bit="4", quantization_method="bnb"),
    ),
    _field(Group.MODEL, "adapter_name_or_path", Kind.PATH, when=_LORA),
    _field(Group.MODEL, "create_new_adapter", Kind.SWITCH, False, when=_LORA),
    _field(Group.MODEL, "trust_remote_code", Kind.SWITCH, False),
    _field(Group.MODEL, "model_revision", Kind.TEXT, "main"),
    _field(Group.MODEL, "cache_dir", Kind.PATH),
    _field(Group.MODEL, "rope_scaling", Kind.CHOICE, "none", "none", "linear", "dynamic", "yarn", "llama3"),
    _field(Group.MODEL, "resize_vocab", Kind.SWITCH, False),
    _field(Group.MODEL, "add_tokens", Kind.TEXT),
    _field(Group.MODEL, "add_special_tokens", Kind.TEXT),
    _field(Group.MODEL, "upcast_layernorm", Kind.SWITCH, False),
)  # fmt: skip

_DATA = (
    _field(Group.DATA, "dataset", Kind.NAMES, level=SIMPLE),
    _field(Group.DATA, "dataset_dir", Kind.PATH, level=SIMPLE),
    _field(Group.DATA, "cutoff_len", Kind.WHOLE, 2048, level=SIMPLE, unit="tokens", least=1),
    _field(Group.DATA, "packing", Kind.SWITCH, False, level=SIMPLE),
    _field(Group.DATA, "neat_packing", Kind.SWITCH, False, when=_SFT),
    _field(Group.DATA, "max_samples", Kind.WHOLE, least=1),
    _field(
        Group.DATA, "mix_strategy", Kind.CHOICE, "concat", "concat", "interleave_under", "interleave_over",
        "interleave_once",
    ),
    _field(
        Group.DATA, "interleave_probs", Kind.TEXT,
        when=_when(mix_strategy=("interleave_under", "interleave_over", "interleave_once")),
    ),
    _field(Group.DATA, "train_on_prompt", Kind.SWITCH, False, when=_SFT),
    _field(Group.DATA, "mask_history", Kind.SWITCH, False, when=_SFT),
    _field(Group.DATA, "default_system", Kind.LONG_TEXT),
    _field(Group.DATA, "enable_thinking", Kind.SWITCH, True),
    _field(Group.DATA, "tool_format", Kind.OPEN_CHOICE, None, *TOOL_FORMATS),
    _field(Group.DATA, "preprocessing_num_workers", Kind.WHOLE, least=1),
    _field(Group.DATA, "overwrite_cache", Kind.SWITCH, False),
    _field(Group.DATA, "tokenized_path", Kind.PATH),
    _field(Group.DATA, "streaming", Kind.SWITCH, False),
    _field(Group.DATA, "buffer_size", Kind.WHOLE, 16384, when=_when(streaming=True), unit="rows", least=1),
)  # fmt: skip

_METHOD = (
    _field(Group.METHOD, "stage", Kind.CHOICE, "sft", "sft", "dpo", "kto", "rm", "ppo", "pt", level=SIMPLE),
    _field(Group.METHOD, "finetuning_type", Kind.CHOICE, "lora", "lora", "full", "freeze", "oft", level=SIMPLE),
    _field(Group.METHOD, "lora_rank", Kind.WHOLE, 8, level=SIMPLE, when=_LORA, least=1),
    _field(Group.METHOD, "freeze_trainable_layers", Kind.WHOLE, 2, level=SIMPLE, when=_FREEZE),
    _field(Group.METHOD, "oft_block_size", Kind.WHOLE, 32, level=SIMPLE, when=_OFT, least=0),
    _field(Group.METHOD, "pref_beta", Kind.NUMBER, 0.1, level=SIMPLE, when=_when(stage=("dpo", "kto")), least=0),
    _field(
        Group.METHOD, "pref_loss", Kind.CHOICE, "sigmoid", "sigmoid", "hinge", "ipo", "kto_pair", "orpo", "simpo",
        level=SIMPLE, when=_DPO,
    ),
    _field(Group.METHOD, "reward_model", Kind.PATH, level=SIMPLE, when=_PPO),
    _field(Group.METHOD, "lora_alpha", Kind.WHOLE, when=_LORA, least=1),
    _field(Group.METHOD, "lora_dropout", Kind.NUMBER, 0.0, when=_LORA, least=0, most=1),
    _field(Group.METHOD, "lora_target", Kind.TEXT, "all", when=_when(finetuning_type=("lora", "oft"))),
    _field(Group.METHOD, "additional_target", Kind.TEXT, when=_when(finetuning_type=("lora", "oft"))),
    _field(Group.METHOD, "use_rslora", Kind.SWITCH, False, when=_LORA),
    _field(Group.METHOD, "use_dora", Kind.SWITCH, False, when=_LORA),
    _field(Group.METHOD, "loraplus_lr_ratio", Kind.NUMBER, when=_LORA, least=0),
    _field(Group.METHOD, "pissa_init", Kind.SWITCH, False, when=_LORA),
    _field(
        Group.METHOD, "pissa_iter", Kind.WHOLE, 16, when=_when(finetuning_type="lora", pissa_init=True), least=-1
    ),
    _field(Group.METHOD, "pissa_convert", Kind.SWITCH, False, when=_when(finetuning_type="lora", pissa_init=True)),
    _field(Group.METHOD, "freeze_trainable_modules", Kind.TEXT, "all", when=_FREEZE),
    _field(Group.METHOD, "freeze_extra_modules", Kind.TEXT, when=_FREEZE),
    _field(Group.METHOD, "use_llama_pro", Kind.SWITCH, False, when=_when(finetuning_type=("lora", "freeze"))),
    _field(Group.METHOD, "oft_rank", Kind.WHOLE, 0, when=_OFT, least=0),
    _field(Group.METHOD, "module_dropout", Kind.NUMBER, 0.0, when=_OFT, least=0, most=1),
    _field(Group.METHOD, "pref_ftx", Kind.NUMBER, 0.0, when=_when(stage=("dpo", "kto")), least=0),
    _field(
        Group.METHOD, "dpo_label_smoothing", Kind.NUMBER, 0.0, when=_when(stage="dpo", pref_loss="sigmoid"), least=0,
        most=0.5,
    ),
    _field(Group.METHOD, "simpo_gamma", Kind.NUMBER, 0.5, when=_when(stage="dpo", pref_loss="simpo"), least=0),
    _field(Group.METHOD, "kto_chosen_weight", Kind.NUMBER, 1.0, when=_KTO, least=0),
    _field(Group.METHOD, "kto_rejected_weight", Kind.NUMBER, 1.0, when=_KTO, least=0),
    _field(Group.METHOD, "ref_model", Kind.PATH, when=_when(stage=("dpo", "kto", "ppo"))),
    _field(Group.METHOD, "reward_model_type", Kind.CHOICE, "lora", "lora", "full", "api", when=_PPO),
    _field(Group.METHOD, "ppo_buffer_size", Kind.WHOLE, 1, when=_PPO, least=1),
    _field(Group.METHOD, "ppo_epochs", Kind.WHOLE, 4, when=_PPO, least=1),
    _field(Group.METHOD, "ppo_target", Kind.NUMBER, 6.0, when=_PPO, least=0),
    _field(Group.METHOD, "ppo_score_norm", Kind.SWITCH, False, when=_PPO),
    _field(Group.METHOD, "ppo_whiten_rewards", Kind.SWITCH, False, when=_PPO),
)  # fmt: skip

_TRAINING = (
    _field(Group.TRAINING, "num_train_epochs", Kind.NUMBER, 3.0, level=SIMPLE, least=0),
    _field(Group.TRAINING, "max_steps", Kind.WHOLE, level=SIMPLE, least=1),
    _field(Group.TRAINING, "learning_rate", Kind.NUMBER, 5e-5, level=SIMPLE, least=0),
    _field(Group.TRAINING, "per_device_train_batch_size", Kind.WHOLE, 8, level=SIMPLE, unit="rows", least=1),
    _field(Group.TRAINING, "gradient_accumulation_steps", Kind.WHOLE, 1, level=SIMPLE, least=1),
    _field(Group.TRAINING, "lr_scheduler_type", Kind.CHOICE, "linear", *SCHEDULERS),
    _field(Group.TRAINING, "lr_scheduler_kwargs", Kind.YAML),
    _field(Group.TRAINING, "warmup_steps", Kind.NUMBER, 0, unit="steps_or_share", least=0),
    _field(Group.TRAINING, "optim", Kind.OPEN_CHOICE, "adamw_torch_fused", *OPTIMIZERS),
    _field(Group.TRAINING, "weight_decay", Kind.NUMBER, 0.0, least=0),
    _field(Group.TRAINING, "max_grad_norm", Kind.NUMBER, 1.0, least=0),
    _field(Group.TRAINING, "adam_beta1", Kind.NUMBER, 0.9, least=0, most=1),
    _field(Group.TRAINING, "adam_beta2", Kind.NUMBER, 0.999, least=0, most=1),
    _field(Group.TRAINING, "neftune_noise_alpha", Kind.NUMBER, least=0),
    _field(Group.TRAINING, "seed", Kind.WHOLE, 42, least=0),
)

_SPEED = (
    _field(
        Group.SPEED, "precision", Kind.CHOICE, "fp32", "bf16", "fp16", "fp32", "pure_bf16", level=SIMPLE,
        arguments=("bf16", "fp16", "pure_bf16"),
    ),
    _field(Group.SPEED, "enable_liger_kernel", Kind.SWITCH, False, level=SIMPLE),
    _field(
        Group.SPEED, "gradient_checkpointing", Kind.SWITCH, True, level=SIMPLE,
        arguments=("disable_gradient_checkpointing",),
    ),
    _field(Group.SPEED, "flash_attn", Kind.CHOICE, "auto", "auto", "sdpa", "fa2", "disabled"),
    _field(Group.SPEED, "torch_compile", Kind.SWITCH, False),
    _field(Group.SPEED, "use_reentrant_gc", Kind.SWITCH, True, when=_when(gradient_checkpointing=True)),
    _field(Group.SPEED, "dataloader_num_workers", Kind.WHOLE, 0, least=0),
    _field(Group.SPEED, "dataloader_pin_memory", Kind.SWITCH, True),
    _field(Group.SPEED, "use_cpu", Kind.SWITCH, False),
)  # fmt: skip

_HARDWARE = (
    _field(Group.HARDWARE, "tunedeck.processes", Kind.WHOLE, level=SIMPLE, least=1),
    _field(Group.HARDWARE, "tunedeck.gpus", Kind.NAMES, level=SIMPLE),
    _field(
        Group.HARDWARE, "zero_stage", Kind.CHOICE, "none", "none", "0", "1", "2", "3", level=SIMPLE,
        arguments=("tunedeck.zero.stage",),
    ),
    _field(
        Group.HARDWARE, "offload_optimizer", Kind.CHOICE, "none", "none", "cpu",
        arguments=("tunedeck.zero.offload_optimizer",), when=_when(zero_stage=("1", "2", "3")),
    ),
    _field(
        Group.HARDWARE, "offload_param", Kind.CHOICE, "none", "none", "cpu",
        arguments=("tunedeck.zero.offload_param",), when=_when(zero_stage="3"),
    ),
    _field(Group.HARDWARE, "ddp_timeout", Kind.WHOLE, 1800, unit="seconds", least=1),
    _field(Group.HARDWARE, "tunedeck.env", Kind.VARIABLES),
    _field(Group.HARDWARE, "tunedeck.environment", Kind.OPEN_CHOICE),
)  # fmt: skip

_OUTPUT = (
    _field(Group.OUTPUT, "logging_steps", Kind.NUMBER, 5, unit="steps_or_share", least=0),
    _field(Group.OUTPUT, "save_strategy", Kind.CHOICE, "steps", "steps", "epoch", "no"),
    _field(
        Group.OUTPUT, "save_steps", Kind.NUMBER, 500, when=_SAVED_BY_STEPS, unit="steps_or_share", least=0
    ),
    _field(
        Group.OUTPUT, "save_total_limit", Kind.WHOLE, when=_when(save_strategy=("steps", "epoch")), least=1,
    ),
    _field(Group.OUTPUT, "save_only_model", Kind.SWITCH, False),
    _field(Group.OUTPUT, "val_size", Kind.NUMBER, 0.0, unit="rows_or_share", least=0),
    _field(Group.OUTPUT, "eval_dataset", Kind.NAMES),
    _field(Group.OUTPUT, "eval_strategy", Kind.CHOICE, "no", "no", "steps", "epoch"),
    _field(
        Group.OUTPUT, "eval_steps", Kind.NUMBER, when=_when(eval_strategy="steps"), unit="steps_or_share", least=0
    ),
    _field(Group.OUTPUT, "per_device_eval_batch_size", Kind.WHOLE, 8, when=_EVALUATED, unit="rows", least=1),
    _field(Group.OUTPUT, "load_best_model_at_end", Kind.SWITCH, False, when=_EVALUATED),
    _field(Group.OUTPUT, "early_stopping_steps", Kind.WHOLE, when=_EVALUATED, unit="evaluations", least=1),
    _field(Group.OUTPUT, "report_to", Kind.OPEN_CHOICE, "none", *REPORTERS),
    _field(Group.OUTPUT, "run_name", Kind.TEXT),
    _field(Group.OUTPUT, "include_num_input_tokens_seen", Kind.CHOICE, "no", "no", "all", "non_padding"),
    _field(Group.OUTPUT, "plot_loss", Kind.SWITCH, False),
)  # fmt: skip

EXTRA = _field(Group.EXPERT, "extra", Kind.YAML, arguments=("*",))
"""All arguments of the document that no other field shows, as typed YAML: false stays false, 2e-5 stays a number."""

FIELDS: tuple[Field, ...] = (
    *_MODEL, *_DATA, *_METHOD, *_TRAINING, *_SPEED, *_HARDWARE, *_RUN, *_OUTPUT, EXTRA,
)  # fmt: skip
BY_NAME = {field.name: field for field in FIELDS}
IMPLIED = ("do_train",)
"""Set by the launcher (a run that does not train is no run): shown in the YAML only."""
COVERED = frozenset((*IMPLIED, *(name for field in FIELDS for name in field.arguments)))
"""Keys of the document that need no line in the extra arguments."""


def visible_fields(values: Mapping[str, FormValue]) -> frozenset[str]:
    """Names of the fields that are of use for these form values."""
    return frozenset(field.name for field in FIELDS if field.is_useful(values))
