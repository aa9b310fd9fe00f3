"""Code of a finding -> its English reason and remedy; `{field}`, `{found}`, `{expected}` and a code's own params are filled in.

The Chinese texts stand in ui/text/problems_zh.py under the same codes; docs/problems.md lists them all.
"""

# ruff: noqa: E501
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """`reason` says why it matters, `remedy` what to do; both are templates for str.format_map."""

    reason: str
    remedy: str


TEXTS: dict[str, Text] = {
    # arguments
    "unknown_key": Text(
        "The trainer does not know `{field}` and refuses the whole file for it.",
        "Remove `{field}`.",
    ),
    "misspelt_key": Text(
        "The trainer does not know `{field}` and refuses the whole file for it; `{expected}` is the nearest name.",
        "Write `{expected}`.",
    ),
    "renamed_key": Text(
        "`{field}` is an old name; the installed version calls it `{expected}`.",
        "Write `{expected}`.",
    ),
    "removable_key": Text(
        "`{field}` was dropped from the trainer; the file is refused while it stands there.",
        "Remove `{field}`.",
    ),
    "replaced_key": Text(
        "`{field}` was dropped from the trainer; the file is refused while it stands there.",
        "Remove `{field}`; today one writes {expected}.",
    ),
    "compute_type": Text(
        "`compute_type` is a control of LLaMA Board; the trainer does not know it and refuses the file.",
        "Write {expected} instead.",
    ),
    "interface_key": Text(
        "`{field}` is a control of LLaMA Board, not an argument of the trainer.",
        "Remove it; import a LLaMA Board file to have it converted.",
    ),
    "other_backend_key": Text(
        "`{field}` belongs to the Megatron back end ({expected}); the usual trainer refuses the file for it.",
        "Remove it, or run with the Megatron back end.",
    ),
    "fork_key": Text(
        "`{field}` was made for a fork or another program; this trainer refuses the file for it.",
        "Remove it, or use the program it was made for.",
    ),
    "config_flag": Text(
        "`--{field}` belongs to another launcher; the trainer takes the YAML as its first plain word and reports only a missing model.",
        "Write {expected}.",
    ),
    "obsolete_flag": Text(
        "`--{field}` no longer exists; the trainer stops at it.",
        "Write --{expected} instead.",
    ),
    "obsolete_flag_gone": Text(
        "`--{field}` no longer exists; the trainer stops at it.",
        "Remove it.",
    ),
    "duplicate_key": Text(
        "`{field}` stands more than once; the trainer's YAML reader refuses the file.",
        "Keep one of the lines.",
    ),
    "missing_key": Text(
        "`{field}` is needed and not given.",
        "Add `{field}`.",
    ),
    "reward_model_missing": Text(
        "PPO scores its answers with a reward model, and none is given.",
        "Set `reward_model` to the output folder of a reward model run.",
    ),
    "nothing_to_do": Text(
        "Neither training, evaluation nor prediction is switched on: the trainer would load everything and end.",
        "Set do_train: true.",
    ),
    "bad_choice": Text(
        "`{found}` is none of the values that `{field}` takes.",
        "Use one of: {expected}.",
    ),
    "boolean_instead_of_word": Text(
        "YAML reads an unquoted {found} as true or false, so `{field}` gets a boolean where a word is needed.",
        'Put it in quotes: {field}: "no" (or another of: {expected}).',
    ),
    "wrong_type": Text(
        "`{field}` got `{found}`; YAML values are not checked when the file is read, so this fails late or does something else.",
        "Write a value of this kind: {expected}.",
    ),
    "flag_without_value": Text(
        "`--{field}` stands without a value; the command line parser stops at it.",
        "Give it a value: {expected}.",
    ),
    "number_without_dot": Text(
        "The trainer reads {found} as a number, but other YAML readers take it for text.",
        "Write {expected} to be safe everywhere.",
    ),
    "attention_value": Text(
        "`flash_attn: {found}` is accepted when the file is read and refused only after all data is tokenized.",
        "Use one of: {expected}.",
    ),
    "attention_fa3": Text(
        "`fa3` passes the parser of LLaMA-Factory 0.9.5 and then raises NotImplementedError when the model is loaded.",
        "Use one of: {expected}.",
    ),
    "ppo_trl_version": Text(
        "LLaMA-Factory 0.9.5's PPO needs trl 0.8.6 to 0.9.6, and its other stages 0.18 or newer: the training environment has a newer trl.",
        "Use dpo or kto, or name another training environment that has trl 0.9.6.",
    ),
    "attention_broken": Text(
        "transformers 5.6.0 cannot run FlashAttention-2: the first forward pass ends in an AttributeError.",
        "Use flash_attn: sdpa, or another transformers release.",
    ),
    "attention_package_missing": Text(
        "flash-attn is not installed in the training environment: the trainer warns and goes on with SDPA.",
        "Set flash_attn: sdpa, or install flash-attn for this GPU.",
    ),
    "template_unknown": Text(
        "There is no template `{found}`; the trainer finds out after the tokenizer is loaded.",
        "Use {expected}, or leave `template` out to take the model's own.",
    ),
    "template_of_another_model": Text(
        "The trainer's own template for this model is `{expected}`; with another one the model sees turns it was not made for.",
        "Use {expected} unless this is meant.",
    ),
    # combinations
    "pixels_order": Text("The largest picture is smaller than the smallest one allowed.", "Make {expected}."),
    "val_size_without_dataset": Text(
        "`val_size` splits a part off `dataset`, which is not given.", "Add `dataset`, or remove val_size."
    ),
    "val_size_with_eval_dataset": Text(
        "A split and a data set of its own for evaluation exclude each other.", "Keep one of {expected}."
    ),
    "interleave_with_concat": Text(
        "Probabilities need an interleaving mix strategy; data sets are concatenated now.", "Set {expected}."
    ),
    "interleave_length": Text("The number of probabilities differs from the number of data sets.", "Give {expected}."),
    "streaming_val_fraction": Text(
        "A stream has no known length, so no fraction of it can be held out.", "Give val_size as a number of rows."
    ),
    "streaming_max_samples": Text(
        "`max_samples` cannot be used with streaming.", "Remove max_samples and limit the run by max_steps."
    ),
    "streaming_without_max_steps": Text(
        "A stream has no known length, so the trainer cannot count epochs.", "Set max_steps."
    ),
    "mask_history_with_prompt": Text(
        "Training on the prompt and masking the history contradict each other.", "Keep one of {expected}."
    ),
    "aux_quantization_bits": Text("Only 4 or 8 bits are possible here.", "Use {expected}."),
    "ppo_reward_type": Text("A LoRA reward model needs LoRA training.", "Set reward_model_type to {expected}."),
    "label_smoothing_not_sigmoid": Text(
        "Label smoothing exists for the sigmoid loss only.", "Remove it, or set {expected}."
    ),
    "llama_pro_with_full": Text(
        "LLaMA Pro trains added blocks; full training has none.", "Use finetuning_type {expected}."
    ),
    "lora_with_memory_optimizer": Text(
        "GaLore, APOLLO and BAdam replace the optimizer of full training; LoRA cannot use them.",
        "Use finetuning_type {expected}.",
    ),
    "several_memory_optimizers": Text("Only one of GaLore, APOLLO and BAdam can be used.", "Keep one of {expected}."),
    "pissa_stage": Text("PiSSA changes the base weights, which this stage needs as a reference.", "Remove pissa_init."),
    "lora_only_option": Text(
        "`{field}` exists for LoRA only; the trainer refuses it otherwise.", "Remove `{field}`, or set {expected}."
    ),
    "steps_not_whole": Text(
        "Above 1, `{field}` is a number of steps and must be whole.", "Write a whole number, or a fraction below 1."
    ),
    "best_model_strategy": Text(
        "The best model can only be loaded when it was saved at the step it was evaluated.", "Set {expected}."
    ),
    "two_precisions": Text("fp16 and bf16 exclude each other.", "Keep {expected}."),
    "scheduler_needs_eval": Text(
        "This scheduler follows the evaluation loss, and there is no evaluation.",
        "Set {expected}, or use another scheduler.",
    ),
    "prefetch_without_workers": Text(
        "Prefetching needs data loader processes.", "Set {expected}, or remove `{field}`."
    ),
    "bf16_without_gpu": Text(
        "This host has no GPU: there the trainer refuses bf16 unless `use_cpu` is set, which does not go with DeepSpeed.",
        "With DeepSpeed train in fp32 (bf16: false); without it set use_cpu: true.",
    ),
    "cpu_with_deepspeed": Text("DeepSpeed with `use_cpu` does not start.", "Keep one of {expected}."),
    "sft_only_option": Text("`{field}` works in the sft stage only.", "Remove `{field}`."),
    "predict_without_generate": Text("Predictions are written only when answers are generated.", "Set {expected}."),
    "best_model_stage": Text(
        "The rm and ppo stages cannot load the best model at the end.", "Remove load_best_model_at_end."
    ),
    "ppo_without_train": Text("PPO cannot evaluate.", "Set {expected}, or evaluate in the sft stage."),
    "ppo_option": Text("PPO refuses `{field}`.", "Remove `{field}`."),
    "ppo_reporter": Text("PPO reports to {expected} only.", "Use one of {expected}."),
    "eval_without_data": Text("Evaluation is switched on and there is nothing to evaluate on.", "Set {expected}."),
    "predict_with_zero3": Text("Generating answers does not work with ZeRO-3.", "Use {expected}."),
    "predict_with_accuracy": Text(
        "Accuracy and generated answers cannot be computed together.", "Keep one of {expected}."
    ),
    "quantization_device_map": Text("A device map for quantized weights cannot be used in training.", "Remove it."),
    "pissa_with_zero3": Text("PiSSA cannot be initialized under ZeRO-3.", "Use {expected}."),
    "pure_bf16_with_zero3": Text("pure_bf16 is incompatible with ZeRO-3.", "Use {expected}."),
    "layerwise_distributed": Text("The layer-wise variant works on one GPU only.", "Remove `{field}`."),
    "badam_ratio_distributed": Text("BAdam by ratio works on one GPU only.", "Set badam_mode: layer with ZeRO-3."),
    "badam_needs_zero3": Text("On several GPUs layer-wise BAdam needs ZeRO-3.", "Use {expected}."),
    "deepspeed_with_galore": Text("GaLore and APOLLO are incompatible with DeepSpeed.", "Remove deepspeed."),
    "fp8_with_quantization": Text("fp8 training and quantized weights exclude each other.", "Keep one of {expected}."),
    "infer_backend_in_training": Text("vLLM and SGLang are for chat and API only.", "Remove infer_backend."),
    "unsloth_with_zero3": Text("Unsloth is incompatible with ZeRO-3.", "Keep one of {expected}."),
    "kt_with_zero3": Text("KTransformers is incompatible with ZeRO-3.", "Keep one of {expected}."),
    "adapter_needs_lora": Text("An adapter can only be continued with LoRA.", "Set {expected}, or remove the adapter."),
    "quantization_needs_lora": Text(
        "Quantized weights cannot be trained; only LoRA or OFT adapters on top can.",
        "Set {expected}, or remove quantization_bit.",
    ),
    "quantized_option": Text("`{field}` cannot be used on quantized weights.", "Remove `{field}`."),
    "quantized_several_adapters": Text("A quantized model takes one adapter only.", "Merge the adapters first."),
    "prompt_with_strict_eos": Text(
        "This template cannot train on the prompt; the trainer says so after loading the tokenizer.",
        "Remove train_on_prompt.",
    ),
    "quantization_bits": Text("This quantization method does not have {found} bits.", "Use {expected}."),
    "quantization_method_inert": Text(
        "`{found}` does nothing as a value: models quantized by it are recognised by their own config.json.",
        "Remove it, or use {expected}.",
    ),
    "quantized_with_zero3": Text(
        "Quantized weights cannot be split by ZeRO-3 or FSDP; the trainer stops when it loads the model.",
        "Use {expected}, or the unquantized model.",
    ),
    "qlora_with_zero3": Text(
        "Only 4-bit bitsandbytes passes with ZeRO-3, and only with bitsandbytes 0.43 or later.",
        "Prefer {expected} for QLoRA.",
    ),
    "dora_on_quantized": Text("DoRA does not work on GPTQ or AWQ weights.", "Remove use_dora."),
    "several_adapters_zero3": Text("ZeRO-3 cannot load several adapters.", "Merge them first."),
    "oft_with_unsloth": Text("Unsloth has no OFT.", "Remove use_unsloth, or set {expected}."),
    "layerwise_accumulation": Text(
        "The layer-wise optimizer updates at once; gradients cannot be accumulated.", "Set it to 1."
    ),
    "galore_optimizer": Text(
        "GaLore and APOLLO know few optimizers, and the default of transformers 5 is none of them.",
        "Set optim: {expected}.",
    ),
    "galore_optimizer_default": Text(
        "With transformers 5 the default optimizer is one that GaLore and APOLLO do not know.",
        "Set optim: {expected} to be safe.",
    ),
    "neat_packing_batch": Text(
        "FlashAttention-2 with neat packing takes one packed row a step.",
        "Set per_device_train_batch_size: 1 and accumulate.",
    ),
    "neat_packing_template": Text("Neat packing does not work with this model family.", "Remove neat_packing."),
    "reporter_unknown": Text(
        "The trainer knows no reporter of this name; it says so after loading the model.", "Use one of: {expected}."
    ),
    "neat_packing_without_kernel": Text(
        "Without FlashAttention-2 the packed rows need a full mask, whose memory grows with the square of cutoff_len.",
        "Use {expected}, or plain packing.",
    ),
    "resize_without_target": Text("The new tokens' embeddings stay untrained.", "Add {expected}."),
    "no_mixed_precision": Text(
        "Without bf16 or fp16 everything runs in fp32: slower, with twice the memory.", "Set {expected}."
    ),
    "cache_flag_without_effect": Text(
        "An existing tokenized_path is used as it is; overwrite_cache does not renew it.",
        "Use {expected} when the data has changed.",
    ),
    # packages and hardware
    "package_missing": Text(
        "`{field}` needs the package {package}, which the training environment does not have.",
        "Install {package} there, or change `{field}`.",
    ),
    "needs_package": Text(
        "`{field}` needs the package {package}.", "Make sure that {package} is installed in the training environment."
    ),
    "bitsandbytes_on_rocm": Text(
        "`{field}` needs bitsandbytes with a library for this ROCm; older wheels carry none.",
        "Install {expected} and try an import before the run.",
    ),
    "hardware_dependent": Text("`{field}` works on some GPUs only: {expected}.", "Check the GPU before the run."),
    "tf32_on_rocm": Text("transformers refuses tf32 on ROCm: it asks for an Ampere GPU.", "Remove tf32."),
    # sanity
    "out_of_range": Text("`{field}` is {found}; it must be {expected}.", "Write a value {expected}."),
    "learning_rate_high": Text(
        "{found} is far above the usual learning rate for {method} {stage}; the loss is likely to diverge.",
        "Start at {expected} or below.",
    ),
    "epochs_too_many": Text(
        "After {found} passes the data is learned by heart.", "Use {expected} epochs and watch the evaluation loss."
    ),
    "warmup_longer_than_run": Text(
        "The run has about {steps} steps; the learning rate would never reach its full value.",
        "Set warmup_steps {expected}.",
    ),
    "batch_larger_than_data": Text(
        "One step would take {found} rows; the data has {rows}.", "Lower the batch or the accumulation."
    ),
    "checkpoints_exceed_disk": Text(
        "The checkpoints of this run need {found}, the disk has {expected} free.",
        "Set save_total_limit, or save less often.",
    ),
    "ddp_timeout_short": Text(
        "Other ranks wait while rank 0 tokenizes; after {found} seconds they give up.",
        "Set ddp_timeout to {expected} or much more.",
    ),
    "prefer_bf16": Text(
        "fp16 overflows where bf16 does not; Instinct GPUs and NVIDIA GPUs since Ampere have bf16.", "Set {expected}."
    ),
    "lora_alpha_below_rank": Text(
        "With lora_alpha below the rank the update is scaled down.", "Usual is rank or twice the rank."
    ),
    "option_without_effect": Text("{found} have no effect with {expected}.", "Remove them."),
    "file_is_placeholder": Text("`{found}` looks like a name that was never filled in.", "Put in your own."),
    # YAML and kinds of files
    "not_valid_yaml": Text("This is not YAML: {found}.", "Correct the line."),
    "not_valid_json": Text("This is not JSON: {found}.", "Correct the place."),
    "ui_state_file": Text(
        "This is a saved state of LLaMA Board, not a train config; the trainer would refuse it.",
        "Import it: the values are converted to the trainer's own names.",
    ),
    "v1_config": Text(
        "This config is made for the v1 layout of LLaMA-Factory (USE_V1=1), which has other keys.",
        "Run it with USE_V1=1, or rewrite it with the classic keys.",
    ),
    "foreign_config": Text(
        "This is the config of another program ({found}).",
        "Use the program it was written for, or start from a preset.",
    ),
    "placeholder": Text(
        "`{found}` is still to be filled in: {expected}.",
        "Replace the placeholders (envsubst), then import the result.",
    ),
    # paths
    "secret_argument": Text(
        "`{field}` is a secret; the trainer takes the same value from the variable {expected}.",
        "Nothing to do: Tunedeck keeps it as {expected}, in a file only you can read, and out of the run's files.",
    ),
    "secret_arguments_differ": Text(
        "`{field}` holds another value than `{other}`, and both become the variable {expected}.",
        "Leave one of them out.",
    ),
    "secret_without_variable": Text(
        "`{field}` is a secret that the trainer takes from its file only, where everyone who sees the run could read it.",
        "Remove `{field}`; sign in with the service's own program on the training host instead.",
    ),
    "needs_torchrun": Text(
        "A config with a deepspeed key only starts through torchrun, even on one GPU.",
        "Tunedeck does so by itself; elsewhere set {expected}.",
    ),
    "deepspeed_config_missing": Text(
        "`{found}` does not exist; transformers then complains about broken JSON and bad bytes.",
        "Correct the path, or choose a ZeRO stage in the form.",
    ),
    "deepspeed_path_relative": Text(
        "`{found}` is looked up from the folder the trainer is started in.",
        "Use an absolute path, or choose a ZeRO stage in the form.",
    ),
    "model_path_missing": Text("The folder `{found}` does not exist.", "Correct the path."),
    "path_missing": Text("`{found}` does not exist.", "Correct the path."),
    "dataset_undefined": Text(
        "`{found}` is no name in the registry dataset_info.json.", "Use {expected}, or register the file."
    ),
    # DeepSpeed
    "deepspeed_unknown_key": Text(
        "DeepSpeed refuses the key `{key}`, but only after data and model are loaded.",
        "Remove it.",
    ),
    "deepspeed_misspelt_key": Text(
        "DeepSpeed refuses the key `{key}`, but only after data and model are loaded; `{expected}` is the nearest name.",
        "Write `{expected}`, or remove it.",
    ),
    "zero_partition_grads": Text(
        "DeepSpeed has no key `{key}` in any spelling: ZeRO-3 always partitions gradients. It is refused after the model is loaded.",
        "Remove it.",
    ),
    "deepspeed_key_ignored": Text(
        "DeepSpeed ignores the unknown top-level key `{field}` without a word.",
        "Remove it.",
    ),
    "deepspeed_key_ignored_near": Text(
        "DeepSpeed ignores the unknown top-level key `{field}` without a word; `{expected}` is the nearest name.",
        "Write `{expected}`, or remove it.",
    ),
    "deepspeed_key_misplaced": Text(
        "`{field}` stands at the top level, where DeepSpeed ignores it.", "Move it to {expected}."
    ),
    "removed_block": Text(
        "DeepSpeed {since} has removed `{block}` and refuses the file while it stands there.", "Delete `{block}`."
    ),
    "feature_not_used": Text("`{field}` needs {expected}; a transformers trainer never uses it.", "Remove it."),
    "optimizer_not_supported": Text("DeepSpeed no longer has the optimizer {found}.", "Use one of: {expected}."),
    "fixed_batch_value": Text(
        "`{field}` is fixed at {found}: it must equal what the trainer works out, on any number of GPUs.",
        'Write "auto".',
    ),
    "deepspeed_batch_missing": Text(
        "The DeepSpeed config gives no batch size: DeepSpeed stops after data and model are loaded.",
        'Add train_micro_batch_size_per_gpu: "{expected}".',
    ),
    "zero_section_missing": Text(
        "accelerate refuses a DeepSpeed config without zero_optimization.",
        "Add zero_optimization: {expected}.",
    ),
    "deepspeed_batch_mismatch": Text(
        "The batch sizes of DeepSpeed file and trainer disagree: {found} against {expected}.",
        'Write "auto" in the DeepSpeed file.',
    ),
    "deepspeed_value_mismatch": Text(
        "The DeepSpeed file says {found}, the trainer {expected}; transformers refuses to start.",
        'Write "auto" in the DeepSpeed file.',
    ),
    "nvme_path_missing": Text("Offload to NVMe needs a folder.", "Add nvme_path."),
    "offload_param_needs_zero3": Text(
        "Parameters can be offloaded with ZeRO-3 only.", "Remove offload_param, or use {expected}."
    ),
    "offload_without_zero": Text("Without ZeRO there is nothing to offload.", "Use {expected}."),
    "offload_with_free_memory": Text(
        "About {needed} GiB a GPU are needed and {available} GiB are there: CPU offload only makes the run slow.",
        "Remove the offload; ZeRO-2 or no ZeRO may do.",
    ),
    "zero3_gather_off": Text(
        "With ZeRO-3 and without gathering no model.safetensors is written, only DeepSpeed shards.",
        "Set stage3_gather_16bit_weights_on_model_save: {expected}.",
    ),
    "file_name_misleads": Text(
        "The file name says `{expected}`, the content {found}.", "Rename the file or correct the content."
    ),
    # environment variables
    "gfx_override_set": Text(
        "HSA_OVERRIDE_GFX_VERSION forces one instruction set on every GPU; an Instinct is supported without it and may crash with it.",
        "Do not set it.",
    ),
    "build_variable_at_run": Text(
        "`{field}` matters only when extensions are built, not when a job runs.", "Drop it from run scripts."
    ),
    "speed_env": Text(
        "`{field}={found}` is a debugging switch that costs speed.", "Remove it when the search is over."
    ),
    "visibility_empty": Text(
        "An empty `{field}` counts as not set for HIP, while torch then sees no GPU.",
        "Name the devices, or -1 for none.",
    ),
    "visibility_conflict": Text(
        "ROCR hides first and renumbers from 0, so {found} leaves devices that do not exist.",
        "Set HIP_VISIBLE_DEVICES only.",
    ),
    "visibility_several": Text(
        "Several variables choose devices and multiply each other: {found}.", "Set {expected} only."
    ),
    "extra_args_allowed": Text("With ALLOW_EXTRA_ARGS every misspelt key is ignored in silence.", "Do not set it."),
    "nvidia_only_variable": Text("`{field}` has a meaning on NVIDIA GPUs only.", "Remove it."),
    # launch
    "continuation_broken": Text(
        "A blank after the backslash ends the command here; the next lines run as commands of their own.",
        "Delete the blanks behind the backslash.",
    ),
    "unknown_tool": Text(
        "There is no tool `{found}`; the shell says so and goes on.",
        "Remove it; RCCL is set by NCCL_ variables such as {expected}.",
    ),
    "time_limit_short": Text(
        "The job ends after {seconds} seconds, whatever it is doing.", "Ask for hours, or save often."
    ),
    "port_reused": Text(
        "The port {found} is given to two services; the second cannot open it.", "Give each its own port."
    ),
    "port_busy": Text("The port {found} is in use on this host.", "Use another port."),
    "several_launches": Text(
        "The script starts {found} trainings; the last one is taken.", "Import the others one by one."
    ),
    "obsolete_script": Text("`{found}` no longer exists in LLaMA-Factory.", "Use {expected}."),
    "obsolete_launcher": Text("torch.distributed.launch is superseded.", "Use {expected}."),
    "eval_removed": Text("`llamafactory-cli eval` always raises NotImplementedError.", "Use {expected}."),
    "json_config": Text("A JSON config never works: the trainer's reader fails on it.", "Save it as YAML."),
    "flags_after_yaml": Text("Behind a YAML file flags are unknown keys: {found}.", "Write overrides as {expected}."),
    "world_size_ambiguous": Text(
        "WORLD_SIZE counts ranks for torch; here it is used as the number of nodes.", "Use a variable that means nodes."
    ),
    "nproc_exceeds_visible": Text(
        "{processes} processes are started and {visible} devices are visible: the last ones get `invalid device ordinal`.",
        "Start {visible} processes, or make more devices visible.",
    ),
    "tasks_times_torchrun": Text(
        "srun starts the line {tasks} times on a node, and each start launches all ranks: several jobs write to one output.",
        "One task a node: --ntasks-per-node=1.",
    ),
    # data files and registries
    "role_tag_mismatch": Text(
        "The roles in the data ({found}) are not those that the registry names ({expected}): rows {rows} are dropped.",
        "Correct the tags in dataset_info.json, or the roles in the data.",
    ),
    "turns_out_of_order": Text(
        "User and assistant do not take turns in rows {rows}; the trainer drops such rows.",
        "Begin with the user and alternate: {expected}.",
    ),
    "turn_count": Text(
        "Rows {rows} have a turn too many or too few; the trainer drops them.",
        "Each row needs an {expected} number of turns.",
    ),
    "all_samples_dropped": Text(
        "The trainer would drop every row: «Cannot find valid samples».", "Correct the rows or the registry entry."
    ),
    "trailing_comma": Text(
        "A comma before a closing bracket is not JSON; many readers refuse the file.", "Delete these commas."
    ),
    "comma_between_lines": Text(
        "Lines end in a comma, so they are no JSON Lines, and there is no array around them.",
        "Delete the commas, or put [ ] around everything.",
    ),
    "concatenated_objects": Text(
        "JSON objects follow each other without a separator; only small files load, previews fail.",
        "Write one object a line and name the file .jsonl.",
    ),
    "several_arrays": Text(
        "The file holds several JSON arrays one after another; the loader refuses that.",
        "Join them into one array, or write one object a line.",
    ),
    "json_lines_in_json_file": Text(
        "The file is JSON Lines under the name .json; the loader copes, other tools may not.", "Rename it to .jsonl."
    ),
    "comment_lines": Text(
        "Comment lines {rows} are not JSON; the loader only says that row 0 has an invalid value.",
        "Delete these lines.",
    ),
    "utf8_bom": Text(
        "A byte order mark stands in front of the data; JSON readers refuse it or misread the first row.",
        "Save as UTF-8 without a mark.",
    ),
    "not_utf8": Text("The file is not UTF-8 ({found}).", "Save it as UTF-8."),
    "no_rows": Text("The file holds no rows.", "Choose another file."),
    "row_not_an_object": Text("Rows {rows} are no JSON objects.", "Write every row as {expected}."),
    "wrapped_rows": Text(
        "The rows lie inside `{field}`; the loader looks for them at the top and finds one row without the needed columns.",
        "Store the list alone.",
    ),
    "mixed_types": Text(
        "`{field}` holds values of different types ({found}), first odd rows: {rows}; the loader stops with an Arrow error.",
        "Make all of them {expected}.",
    ),
    "extra_column": Text("`{field}` stands in {count} rows and is not used.", "Nothing need be done."),
    "duplicate_rows": Text("Rows {rows} repeat earlier ones.", "Remove the repeats."),
    "near_duplicates": Text(
        "Nearly all answers say the same thing; that is usual for identity data only.",
        "Mix it with other data and train few epochs.",
    ),
    "placeholder_text": Text("Rows {rows} hold placeholders: {found}.", "Replace them by real names before training."),
    "long_sequences": Text(
        "Rows {rows} are very long ({found}); beyond cutoff_len they are cut without a word.",
        "Split them, or raise cutoff_len.",
    ),
    "blank_input": Text(
        "`input` is blanks only in rows {rows}; it adds an empty line to the prompt.", "Set it to an empty string."
    ),
    "empty_instruction": Text("Rows {rows} have no prompt.", "Remove or complete them."),
    "empty_output": Text("Rows {rows} have no answer.", "Remove or complete them."),
    "unregistered_format": Text(
        "Data in this format ({found}) needs an entry in dataset_info.json; without one it is read as alpaca and fails.",
        "Register it with the entry shown.",
    ),
    "columns_unknown": Text(
        "The columns fit no known format: {found}.", "Map them to prompt and response when you register the file."
    ),
    "column_missing": Text(
        "The registry names columns that no row has: {found}.",
        "Correct `columns` in dataset_info.json; the file has: {expected}.",
    ),
    "formatting_missing": Text(
        "The rows hold turns, but the registry entry has no formatting, so they are read as alpaca and fail.",
        "Add formatting: sharegpt and the columns shown.",
    ),
    "formatting_unknown": Text("There is no formatting `{found}`.", "Use {expected}."),
    "openai_formatting": Text(
        '`formatting: openai` adds "detailed thinking off" to every system prompt.',
        "Use {expected} with role and content tags instead.",
    ),
    "answer_not_an_object": Text(
        "The answers in rows {rows} are text; data with turns needs a turn object.", "Write {expected}."
    ),
    "nested_answer": Text(
        "The answers in rows {rows} are nested one level deeper than the trainer reads.", "Write {expected}."
    ),
    "answers_equal": Text(
        "Chosen and rejected are the same in rows {rows}; nothing can be learned from them.", "Remove these rows."
    ),
    "label_not_boolean": Text(
        "The label must be true or false; rows {rows} have something else ({found}).",
        "Write {expected} without quotes.",
    ),
    "one_label_only": Text("All rows have the label {found}; KTO needs both kinds.", "Add rows of the other kind."),
    "image_count_mismatch": Text(
        "Rows {rows} have another number of {field} than of {found} tags in the text; the trainer stops there.",
        "Write {expected}.",
    ),
    "ranking_flag_missing": Text(
        "`{field}` holds comparisons, but the registry does not say ranking: true; dpo and rm refuse it then.",
        "Add {expected}.",
    ),
    "empty_mapping": Text("`{field}` maps {found} to an empty name.", "Remove the empty keys."),
    "entry_key_ignored": Text("The trainer ignores {found} in `{field}`.", "Known are: {expected}."),
    "entry_without_source": Text("The entry `{field}` names no file and no repository.", "Add {expected}."),
    "script_dataset": Text("Loading scripts no longer work with datasets 4 ({found}).", "Use {expected}."),
    "file_missing": Text(
        "The file `{found}` of the entry `{field}` does not exist here.", "Correct the path, or remove the entry."
    ),
    "not_a_registry": Text(
        "This dataset_info.json was written by the datasets library beside saved data; it is no registry.",
        "Load that folder by {expected}, and write a registry of your own.",
    ),
    # the trainer's own check
    "trainer_refuses": Text(
        "The trainer's own check ({stage}) refuses this: {message}",
        "Correct the argument that the message names.",
    ),
    "trainer_warns": Text(
        "The trainer's own check ({stage}) remarks: {message}",
        "Nothing need be done if this is meant.",
    ),
    "dry_run_unavailable": Text(
        "The trainer could not be asked: {found}.",
        "The other checks stand; look at the training environment in Settings.",
    ),
    "hub_not_cached": Text(
        "The model is not in this host's cache, and the check downloads nothing: it was not looked at.",
        "Nothing need be done; it is downloaded when the run starts.",
    ),
    "dataset_wrong_stage": Text(
        "The data set does not fit the stage: comparisons are for rm and dpo only, and these need them.",
        "Choose another data set or stage, or set ranking in dataset_info.json.",
    ),
}
