"""Valid train configs, one for each feature that LLaMA-Factory documents: written for these tests, none may give an error."""

from __future__ import annotations

BASE = """\
### model
model_name_or_path: /models/tiny-3b
trust_remote_code: true

### method
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all

### dataset
dataset: manuals,tickets  # two sets
template: qwen3_nothink
cutoff_len: 2048
max_samples: 1000
overwrite_cache: true
preprocessing_num_workers: 16
dataloader_num_workers: 4

### output
output_dir: saves/tiny
logging_steps: 10
save_steps: 500
plot_loss: true
overwrite_output_dir: true
save_only_model: false
report_to: none  # or tensorboard

### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
resume_from_checkpoint: null
"""

FULL = {"finetuning_type": "full", "learning_rate": "1.0e-5", "lora_rank": None, "lora_target": None}

CHANGES: dict[str, dict[str, str | None]] = {
    "lora_sft": {},
    "lora_sft_eval": {
        "val_size": "0.1",
        "eval_strategy": "steps",
        "eval_steps": "500",
        "per_device_eval_batch_size": "1",
    },
    "lora_own_eval_set": {"eval_dataset": "held_out", "eval_strategy": "epoch", "do_eval": "true"},
    "lora_dpo": {"stage": "dpo", "pref_beta": "0.1", "pref_loss": "sigmoid", "learning_rate": "5.0e-6"},
    "lora_simpo": {"stage": "dpo", "pref_loss": "simpo", "simpo_gamma": "0.5", "learning_rate": "5.0e-6"},
    "lora_orpo": {"stage": "dpo", "pref_loss": "orpo", "learning_rate": "5.0e-6"},
    "lora_kto": {"stage": "kto", "pref_beta": "0.1", "learning_rate": "5.0e-6"},
    "lora_rm": {"stage": "rm"},
    "lora_ppo": {
        "stage": "ppo",
        "reward_model": "saves/rm",
        "learning_rate": "1.0e-5",
        "max_new_tokens": "512",
        "top_k": "0",
        "top_p": "0.9",
    },
    "lora_pretrain": {"stage": "pt", "template": None},
    "full_zero3": {**FULL, "deepspeed": "examples/deepspeed/ds_z3_config.json"},
    "full_zero2_offload": {**FULL, "deepspeed": "examples/deepspeed/ds_z2_offload_config.json"},
    "full_inline_zero": {
        **FULL,
        "deepspeed": "{train_micro_batch_size_per_gpu: auto, zero_optimization: {stage: 2}, bf16: {enabled: auto}}",
    },
    "full_predict": {
        **FULL,
        "do_train": None,
        "do_predict": "true",
        "predict_with_generate": "true",
        "eval_dataset": "held_out",
        "dataset": None,
    },
    "qlora_bnb": {"quantization_bit": "4", "quantization_method": "bnb", "double_quantization": "false"},
    "qlora_hqq": {"quantization_bit": "4", "quantization_method": "hqq"},
    "qlora_eetq": {"quantization_bit": "8", "quantization_method": "eetq"},
    "lora_on_gptq": {"model_name_or_path": "acme/Tiny-3B-Instruct-GPTQ"},
    "lora_on_awq": {"model_name_or_path": "acme/Tiny-3B-Instruct-AWQ"},
    "oft": {"finetuning_type": "oft", "lora_rank": None, "oft_block_size": "32", "oft_target": "all"},
    "freeze_llama_pro": {
        "finetuning_type": "freeze",
        "freeze_trainable_layers": "8",
        "freeze_trainable_modules": "all",
        "use_llama_pro": "true",
        "lora_rank": None,
        "lora_target": None,
    },
    "galore": {
        **FULL,
        "use_galore": "true",
        "galore_layerwise": "true",
        "galore_target": "mlp,self_attn",
        "galore_rank": "128",
        "galore_scale": "2.0",
        "pure_bf16": "true",
        "bf16": None,
        "gradient_accumulation_steps": "1",
    },
    "apollo": {
        **FULL,
        "use_apollo": "true",
        "apollo_layerwise": "true",
        "apollo_target": "all",
        "apollo_rank": "128",
        "apollo_scale": "32.0",
        "gradient_accumulation_steps": "1",
    },
    "badam": {**FULL, "use_badam": "true", "badam_mode": "layer", "badam_switch_mode": "ascending"},
    "muon": {**FULL, "use_muon": "true"},
    "adam_mini": {**FULL, "use_adam_mini": "true"},
    "mod": {**FULL, "mixture_of_depths": "convert", "optim": "paged_adamw_8bit", "pure_bf16": "true", "bf16": None},
    "pissa": {"pissa_init": "true", "pissa_iter": "16", "pissa_convert": "true"},
    "loraplus": {"loraplus_lr_ratio": "16.0"},
    "dora": {"use_dora": "true", "use_rslora": "true"},
    "dft": {**FULL, "use_dft_loss": "true"},
    "eaft": {**FULL, "use_eaft_loss": "true"},
    "fp8": {**FULL, "fp8": "true", "fp8_backend": "torchao"},
    "vision": {
        "template": "qwen2_vl",
        "image_max_pixels": "262144",
        "video_max_pixels": "16384",
        "freeze_vision_tower": "true",
        "freeze_multi_modal_projector": "true",
        "freeze_language_model": "false",
    },
    "streaming_pretrain": {
        "stage": "pt",
        "template": None,
        "streaming": "true",
        "buffer_size": "128",
        "max_steps": "5000",
        "num_train_epochs": None,
        "max_samples": None,
        "preprocessing_num_workers": None,
    },
    "interleaved": {"mix_strategy": "interleave_under", "interleave_probs": "0.7,0.3"},
    "packed": {"packing": "true"},
    "neat_packed": {"neat_packing": "true", "flash_attn": "fa2"},
    "ray": {"ray_num_workers": "4", "dataset_dir": "REMOTE:acme/demo_data"},
    "fsdp": {
        **FULL,
        "fsdp": "full_shard auto_wrap",
        "fsdp_config": "{transformer_layer_cls_to_wrap: [LlamaDecoderLayer]}",
    },
    "fsdp_qlora": {"quantization_bit": "4", "fsdp": "full_shard auto_wrap"},
    "unsloth": {"use_unsloth": "true"},
    "unsloth_gc": {"use_unsloth_gc": "true"},
    "liger": {"enable_liger_kernel": "true"},
    "kt": {"use_kt": "true", "kt_weight_path": "/models/kt"},
    "rope": {"rope_scaling": "yarn"},
    "new_tokens": {
        "add_special_tokens": "<a>,<b>",
        "resize_vocab": "true",
        "additional_target": "embed_tokens,lm_head",
    },
    "described_tokens": {
        "new_special_tokens_config": "cfg/tokens.yaml",
        "init_special_tokens": "desc_init",
        "additional_target": "embed_tokens",
    },
    "best_model": {
        "load_best_model_at_end": "true",
        "val_size": "0.1",
        "eval_strategy": "steps",
        "eval_steps": "100",
        "save_steps": "200",
        "metric_for_best_model": "eval_loss",
        "early_stopping_steps": "3",
        "save_total_limit": "2",
    },
    "several_adapters": {"adapter_name_or_path": "saves/a,saves/b"},
    "targets_as_list": {"lora_target": "[q_proj, v_proj]"},
    "datasets_as_list": {"dataset": "[manuals, tickets]"},
    "report_list": {"report_to": "[tensorboard, wandb]"},
    "scheduler_kwargs": {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": "{min_lr: 1.0e-6}"},
    "quoted_no": {"save_strategy": '"no"', "eval_strategy": "'no'"},
    "tokens_seen": {"include_num_input_tokens_seen": "true", "include_effective_tokens_per_second": "true"},
    "tokens_seen_word": {"include_num_input_tokens_seen": "non_padding"},
    "thinking": {"template": "qwen3", "enable_thinking": "false"},
    "fractional_steps": {"save_steps": "0.1", "warmup_steps": "0.05", "warmup_ratio": None},
    "hub_push": {
        "push_to_hub": "true",
        "hub_model_id": "acme/tiny",
        "hub_strategy": "every_save",
        "hub_private_repo": "true",
    },
    "cpu": {"use_cpu": "true", "bf16": "false"},
    "preprocess_only": {"tokenized_path": "cache/manuals", "overwrite_cache": None},
    "online_set": {"dataset": "acme/manuals", "dataset_dir": "ONLINE"},
    "swanlab": {"use_swanlab": "true", "swanlab_project": "tiny", "swanlab_mode": "local"},
    "neftune": {"neftune_noise_alpha": "5"},
    "compile": {"torch_compile": "true", "torch_compile_backend": "inductor"},
    "jit_checkpoint": {"enable_jit_checkpoint": "true"},
    "reference_model": {
        "stage": "dpo",
        "ref_model": "saves/sft",
        "ref_model_quantization_bit": "8",
        "learning_rate": "5.0e-6",
    },
}

OTHERS = {
    "merge": "model_name_or_path: /models/tiny\nadapter_name_or_path: saves/a\ntemplate: qwen\ntrust_remote_code: true\n"
    "export_dir: out\nexport_size: 5\nexport_device: cpu\nexport_legacy_format: false\n",
    "export_gptq": "model_name_or_path: /models/tiny\ntemplate: qwen\nexport_dir: out\nexport_quantization_bit: 4\n"
    "export_quantization_dataset: data/c4.jsonl\n",
    "chat": "model_name_or_path: /models/tiny\nadapter_name_or_path: saves/a\ntemplate: qwen\n"
    "infer_backend: vllm\nvllm_enforce_eager: true\ntrust_remote_code: true\n",
}


def config_text(name: str) -> str:
    """The base with one set of changes (None removes a key)."""
    changes = CHANGES[name]
    lines = [line for line in BASE.splitlines() if line.partition(":")[0] not in changes]
    lines += [f"{key}: {value}" for key, value in changes.items() if value is not None]
    return "\n".join(lines) + "\n"


ALL = {**{name: config_text(name) for name in CHANGES}, **OTHERS}
