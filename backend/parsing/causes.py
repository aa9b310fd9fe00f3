"""Codes of failures and findings into their English title and remedy. Chinese ones: ui/text/diagnosis_zh.py. Listed in docs/diagnosis.md.

`detail` is a remedy with numbers from the log, used when all names in braces are among the facts.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """`title` fits in one line of a page; `remedy` says what to do."""

    title: str
    remedy: str
    detail: str = ""


CAUSES: Mapping[str, Cause] = {
    "gpu_oom": Cause(
        "The GPU ran out of memory",
        "Lower per_device_train_batch_size or cutoff_len, switch gradient checkpointing on, or shard more (ZeRO-2, ZeRO-3, offload).",
        "{tried_gib} GiB more were asked for on a card of {capacity_gib} GiB: lower per_device_train_batch_size or cutoff_len, switch gradient checkpointing on, or shard more (ZeRO-2, ZeRO-3, offload).",
    ),
    "gpu_memory_held_elsewhere": Cause(
        "Other processes hold the GPU's memory",
        "Find and end the processes that hold it (the GPU page lists them), or choose another GPU; this job itself needed little.",
        "About {held_elsewhere_gib} GiB are held outside this process: find and end what holds them (the GPU page lists processes), or choose another GPU.",
    ),
    "gpu_capacity_mismatch": Cause(
        "PyTorch sees much less memory than the driver",
        "Check the partition mode (SPX/CPX, NPS) and the visibility variables; use a PyTorch build for this ROCm version.",
    ),
    "gpu_ecc_error": Cause(
        "Uncorrectable memory error of a GPU",
        "Take the card out of use and reset it or reboot the host; replace it when the error comes back. Resume on other GPUs.",
    ),
    "gpu_hang": Cause(
        "A GPU hung",
        "Look at dmesg for the card, update ROCm and firmware, and resume from the last checkpoint; if it is always the same card, take it out of use.",
    ),
    "gpu_memory_fault": Cause(
        "A GPU kernel touched memory that is not mapped",
        "Run again with AMD_SERIALIZE_KERNEL=3 to find the kernel; try another attention kernel and a newer ROCm; look at dmesg for amdgpu page faults.",
    ),
    "gpu_code_object_missing": Cause(
        "This build has no kernels for this GPU",
        "Install PyTorch (and extensions) built for this GPU architecture; unset HSA_OVERRIDE_GFX_VERSION on Instinct cards.",
    ),
    "gpu_not_visible": Cause(
        "PyTorch sees no GPU",
        "Use a ROCm build of PyTorch, pass /dev/kfd and /dev/dri into the container, join the groups render and video, and check HIP_VISIBLE_DEVICES.",
    ),
    "hipblaslt_unsupported": Cause(
        "hipBLASLt refuses this GPU",
        "Set TORCH_BLAS_PREFER_HIPBLASLT=0 or use a release build of PyTorch; on MI200 and MI300 unset HSA_OVERRIDE_GFX_VERSION.",
    ),
    "device_ordinal_invalid": Cause(
        "A rank asks for a GPU that it cannot see",
        "Start as many processes as GPUs are visible, or make more GPUs visible (one visibility variable only).",
        "{processes} processes were started for {visible} visible GPUs: make the two numbers equal.",
    ),
    "host_oom_job_limit": Cause(
        "The job's host memory limit was reached",
        "Ask for more job memory, or lower preprocessing_num_workers and dataloader_num_workers; tokenize once with tokenized_path; avoid CPU offload.",
    ),
    "host_oom_node": Cause(
        "The host ran out of memory",
        "Lower preprocessing_num_workers and dataloader_num_workers, avoid CPU offload, or run fewer jobs on this host.",
    ),
    "killed_without_reason": Cause(
        "A process was killed and the log does not say why",
        "Look in dmesg for an out-of-memory kill of the host at that time: it is the usual reason. Check the last checkpoint before resuming.",
    ),
    "shared_memory_full": Cause(
        "/dev/shm is full",
        "Give the container more shared memory (--shm-size=16g or --ipc=host), or lower dataloader_num_workers.",
    ),
    "shared_memory_denied": Cause(
        "Shared memory could not be made in /dev/shm",
        "Correct the permissions of /dev/shm (mode 1777) or start the container with --ipc=host; NCCL_DEBUG=WARN shows such lines.",
    ),
    "pci_topology_hidden": Cause(
        "The container hides PCI information",
        "Mount /sys as the host has it (no masked paths), or run the container with --privileged.",
    ),
    "collective_timeout": Cause(
        "Ranks waited for one another until the time-out",
        "Find the rank that does not report: it hung, ended or was still busy (tokenizing, saving). Tokenize before the run, or raise ddp_timeout.",
        "{op} waited {timeout_ms} ms: find the rank that does not report (hung, ended, still tokenizing or saving), or raise ddp_timeout.",
    ),
    "collective_desync": Cause(
        "A rank did not join a collective",
        "Look at what the named rank did instead: different data per rank, an early exit, or a branch that only some ranks take.",
    ),
    "watchdog_stuck": Cause(
        "A rank's watchdog hung",
        "Look for a driver call or a lock that hangs on that rank (py-spy dump), not for a slow collective; check dmesg on its host.",
    ),
    "p2p_transport_failed": Cause(
        "GPUs cannot reach one another's memory",
        "Start the container with --ipc=host and access to all GPUs, check iommu=pt and ACS; NCCL_P2P_DISABLE=1 is a slow way around.",
    ),
    "port_in_use": Cause(
        "The launcher's port is taken",
        "Choose a free MASTER_PORT, or end the process that owns it (often a former run).",
        "Port {port} is taken: choose a free MASTER_PORT, or end the process that owns it (often a former run).",
    ),
    "node_terminated": Cause(
        "A node was stopped or preempted",
        "Nothing is wrong with the run: resume from the last checkpoint, with requeue where the scheduler offers it.",
    ),
    "terminal_hangup": Cause(
        "The terminal was closed",
        "Start the job detached (the dashboard does, or setsid, tmux) and resume from the last checkpoint.",
    ),
    "time_limit": Cause(
        "The scheduler's time limit was reached",
        "Resume from the last checkpoint with a longer limit; save often enough that little is lost.",
        "Resume from checkpoint-{last_checkpoint_step} with a longer time limit.",
    ),
    "cancelled": Cause(
        "The job was cancelled",
        "Somebody or the scheduler ended it; resume from the last checkpoint when that was not wanted.",
    ),
    "disk_full": Cause(
        "The disk is full",
        "Free space or choose another output_dir, set save_total_limit, then resume from the last complete checkpoint.",
    ),
    "checkpoint_incomplete": Cause(
        "Files of the checkpoint are missing",
        "Resume from an older checkpoint: this one was not written completely.",
        "checkpoint-{checkpoint_step} was not written completely: resume from the one before it.",
    ),
    "checkpoint_not_found": Cause(
        "The path is no checkpoint",
        "Point resume_from_checkpoint at a folder checkpoint-N that holds a trainer state; an adapter belongs into adapter_name_or_path.",
    ),
    "checkpoint_world_size": Cause(
        "The checkpoint was written by another number of ranks",
        "Resume on as many GPUs as before, convert to a universal checkpoint, or start from the weights alone.",
        "Resume on {saved_world_size} GPUs (now {current_world_size}), convert to a universal checkpoint, or start from the weights alone.",
    ),
    "checkpoint_rename_race": Cause(
        "Ranks renamed one temporary checkpoint folder at the same time",
        "Upgrade transformers (fixed after 4.37), or save on one node only; the temporary folder may be complete.",
    ),
    "checkpoint_load_refused": Cause(
        "torch refuses to unpickle part of the checkpoint",
        "Upgrade transformers and torch (2.6 or newer) together; the checkpoint itself is sound.",
    ),
    "weights_file_corrupt": Cause(
        "A weights file is damaged or cut short",
        "Download or copy the model again and compare sizes; with Git, run git lfs pull.",
    ),
    "embedding_size_mismatch": Cause(
        "Vocabulary sizes of model and adapter differ",
        "Use the base model and tokenizer that the adapter was trained with, or resize the vocabulary in the same way (resize_vocab).",
        "The saved vocabulary has {saved_rows} rows, the model {model_rows}: use the same base model and tokenizer, or resize_vocab.",
    ),
    "hub_offline_miss": Cause(
        "Not in the cache, and the hub was not reached",
        "Download the model or data set first, or give a local folder; unset HF_HUB_OFFLINE where a network exists.",
    ),
    "hub_gated": Cause(
        "The repository is gated",
        "With 401 set HF_TOKEN; with 403 ask for access on the model's page; or give a local folder.",
    ),
    "model_path_missing": Cause(
        "The model folder does not exist",
        "Correct model_name_or_path: there is no such folder (with a config.json), and no such model on the hub.",
        "Correct model_name_or_path: there is no folder {path} with a config.json.",
    ),
    "model_name_missing": Cause("No model was given", "Set model_name_or_path."),
    "native_library_missing": Cause(
        "A shared library is missing",
        "Install the ROCm package that holds it or correct LD_LIBRARY_PATH; PyTorch and ROCm versions must fit.",
        "{library} is missing: install the package that holds it or correct LD_LIBRARY_PATH; PyTorch and ROCm versions must fit.",
    ),
    "cache_dir_unwritable": Cause(
        "A cache folder cannot be written",
        "Point TORCH_EXTENSIONS_DIR, TRITON_CACHE_DIR and HF_HOME at folders that this user may write.",
        "{path} cannot be written: point TORCH_EXTENSIONS_DIR, TRITON_CACHE_DIR or HF_HOME at a folder that this user may write.",
    ),
    "op_build_failed": Cause(
        "A native op could not be compiled",
        "Read the compiler's first error above; install the ROCm development packages, or use an optimizer that needs no build.",
    ),
    "toolchain_missing": Cause(
        "The compiler is missing",
        "Install a compiler (gcc, hipcc) or correct CC, CXX, CUDA_HOME or ROCM_HOME, which point at nothing.",
    ),
    "triton_hip_mismatch": Cause(
        "Triton needs a newer HIP library",
        "Install the Triton that belongs to this PyTorch build, or a newer ROCm; empty ~/.triton/cache.",
    ),
    "package_missing": Cause(
        "A Python package is missing",
        "Install it into the training environment.",
        "Install {package} into the training environment.",
    ),
    "package_version_rejected": Cause(
        "A package has a version that is refused",
        "Install a version in the accepted range, with the requirement in quotes.",
        "{package} {found} is installed and refused: install an accepted version, with the requirement in quotes.",
    ),
    "attention_package_missing": Cause(
        "Flash attention was asked for but is missing",
        "Set flash_attn: sdpa, or install flash-attn for this ROCm version.",
    ),
    "bf16_unavailable": Cause(
        "bf16 was refused",
        "Make torch see the GPU (ROCm build, /dev/kfd in the container, HIP_VISIBLE_DEVICES not empty): Instinct cards do support bf16.",
    ),
    "cli_value_rejected": Cause(
        "The argument parser refused a value",
        "Put the arguments into a YAML file and pass that: it is parsed in another way and accepts the value.",
    ),
    "unknown_key": Cause(
        "LLaMA-Factory does not know an argument",
        "Remove or rename it; the form lists all arguments.",
    ),
    "template_unknown": Cause(
        "There is no such template", "Choose one of the templates in the form.", "There is no template {template}: choose one from the form."
    ),
    "deepspeed_config_missing": Cause(
        "The DeepSpeed file does not exist",
        "Correct the path: it is taken relative to the working directory, so an absolute one is safer.",
    ),
    "deepspeed_batch_mismatch": Cause(
        "Batch values of DeepSpeed and the trainer disagree",
        'Set the batch values in the DeepSpeed file to "auto".',
    ),
    "unsloth_with_zero3": Cause("Unsloth cannot be used with ZeRO-3", "Use ZeRO-2 or no ZeRO, or switch use_unsloth off."),
    "quantized_with_zero3": Cause(
        "A quantized model cannot be used with ZeRO-3", "Use ZeRO-2 or no ZeRO, or load the model without quantization."
    ),
    "streaming_without_max_steps": Cause(
        "Streaming needs max_steps", "Set max_steps: with streaming an epoch has no known length."
    ),
    "dataset_undefined": Cause(
        "The data set is not registered",
        "Use a name of dataset_info.json; register a file before naming it; check dataset_dir.",
        "{name} is no name of dataset_info.json: use one of its names, or register the file; check dataset_dir.",
    ),
    "dataset_registry_missing": Cause(
        "There is no dataset_info.json", "Point dataset_dir at the folder that holds dataset_info.json."
    ),
    "not_valid_json": Cause(
        "A file is not valid JSON",
        "Correct it at the place that the message names: a comma too many or missing, a comment, a missing quote, a cut end (the data page shows the line).",
        "Correct line {line} of {path}: a comma too many or missing, a comment, a missing quote.",
    ),
    "dataset_type_conflict": Cause(
        "A column holds values of different types", "Make the column's values one type in all rows (the data page shows the row)."
    ),
    "role_tag_mismatch": Cause(
        "Roles in the data and tags in the registry differ",
        "Set user_tag, assistant_tag and the others in dataset_info.json to the roles that the data use.",
    ),
    "all_samples_dropped": Cause(
        "No row survived preprocessing",
        "Check formatting and columns of the data set: the data page shows why rows are dropped.",
    ),
    "image_count_mismatch": Cause(
        "A row has another number of images than image tags", "Make them equal: one <image> in the text for each image of the row."
    ),
    "sequence_too_long": Cause(
        "A sample is longer than the cutoff",
        "Drop or shorten the sample (fewer or smaller images), or raise cutoff_len.",
        "A sample has {tokens} tokens, the cutoff is {cutoff}: drop or shorten it (fewer or smaller images), or raise cutoff_len.",
    ),
    "utf8_bom": Cause("The file begins with a byte order mark", "Save the file as UTF-8 without BOM; the rows are valid."),
    "loss_scale_collapse": Cause(
        "The loss scale fell to its minimum", "Use bf16 instead of fp16; if the hardware has none, lower the learning rate."
    ),
    "gradients_not_finite": Cause(
        "Loss zero or gradients not a number",
        "Stop the run: it learns nothing. Use bf16 and a usual learning rate; check labels and base weights.",
    ),
    "gradient_explosion": Cause(
        "The gradient norm is far out of range",
        "Use a release pair of torch and ROCm; compare one GPU and another attention kernel; lower the learning rate when it is high.",
    ),
    "lr_too_high": Cause("The loss rises with the learning rate", "Stop and start again with a learning rate several times lower."),
    "data_starved": Cause(
        "Ranks wait for data", "Raise dataloader_num_workers, tokenize before the run, and keep the data on a fast disk."
    ),
    "short_sequences": Cause(
        "Sequences are too short for the kernel to pay off", "Use flash_attn: sdpa, or pack short rows together (packing)."
    ),
}  # fmt: skip

FINDINGS: Mapping[str, Cause] = {
    "accuracy_coarse": Cause("Accuracy moves in coarse steps", "Smooth the curve: a batch holds few pairs."),
    "attention_fallback": Cause("No flash attention, another kernel is used", "Install flash-attn, or set flash_attn: sdpa to make it a choice."),
    "bitsandbytes_on_rocm": Cause("bitsandbytes has no library for ROCm", "Build it for ROCm before using 4- or 8-bit loading or paged optimizers; bf16 needs none."),
    "blas_fallback": Cause("Another BLAS library is used", "Sound but slower: set TORCH_BLAS_PREFER_HIPBLASLT=0 to silence it."),
    "checkpoint_suspect": Cause("The last checkpoint may be incomplete", "Look at it before resuming; use the one before when files are missing."),
    "device_index_differs": Cause("Runtime and tool number the GPUs differently", "Compare PCI addresses, not indices."),
    "eval_loss_rising": Cause("The evaluation loss rises after its minimum", "Use the checkpoint near the minimum; train fewer epochs or add data."),
    "gfx_override_set": Cause("HSA_OVERRIDE_GFX_VERSION is set", "Unset it on Instinct cards: kernels for another GPU are loaded."),
    "gpu_idle_in_preprocessing": Cause("GPUs wait while data is prepared", "Tokenize once on a CPU host with tokenized_path and more workers."),
    "grad_norm_elevated": Cause("The gradient norm is high", "Watch it; lower the learning rate when it grows."),
    "grad_norm_high": Cause("The gradient norm is far above normal", "Check the torch build, the attention kernel and the learning rate."),
    "grad_norm_nan": Cause("The gradient norm is not a number", "Stop the run; use bf16 and a usual learning rate."),
    "grad_norm_nan_sporadic": Cause("The gradient norm is not a number in some rows", "Under fp16 these are skipped steps: keep the run, prefer bf16."),
    "initial_loss_high": Cause("The first loss is far too high", "Check template, tokenizer and base weights: the model does not know the text."),
    "learning_rate_high": Cause("The learning rate is far above usual", "Usual values: 1e-4 for LoRA, 1e-5 for full fine-tuning."),
    "log_line_cut": Cause("The last line is not complete", "Nothing to do when the run goes on; else it was ended while writing."),
    "log_without_end": Cause("The log stops without a closing line", "The run goes on, or it was ended from outside."),
    "long_sequences": Cause("Samples are longer than the model's limit", "Raise cutoff_len if the model allows it, or shorten the samples."),
    "loss_diverging": Cause("The loss keeps rising", "Stop and resume from a checkpoint before the rise, with a lower learning rate."),
    "loss_flat": Cause("The loss does not move at all", "Check that parameters are trained and the learning rate is not 0."),
    "loss_not_finite": Cause("The loss is not a number", "Stop the run; use bf16 and a usual learning rate."),
    "loss_scale_at_floor": Cause("The loss scale is at its minimum", "Use bf16: steps are being skipped."),
    "loss_spike": Cause("The loss jumped", "One spike heals by itself; look at the data of that step when they come often."),
    "loss_zero": Cause("The loss is exactly zero", "Stop the run: no label is trained on, or numbers overflowed."),
    "model_not_saved": Cause("The final weights were not written", "Set stage3_gather_16bit_weights_on_model_save, or convert the ZeRO checkpoint."),
    "network_socket_fallback": Cause("Nodes talk over plain sockets", "Install the fast network's library in the container."),
    "nightly_build": Cause("A nightly build of torch is used", "Use a release pair of torch and ROCm."),
    "no_loss_series": Cause("The log has no loss", "Set logging_steps, or give the trainer's own log."),
    "nproc_exceeds_visible": Cause("More processes than visible GPUs", "Make the two numbers equal."),
    "numa_balancing_on": Cause("Automatic NUMA balancing is on", "Switch it off on the host: sysctl kernel.numa_balancing=0."),
    "overfit_risk": Cause("The data is learned by heart", "Train fewer epochs, or add data."),
    "pipeline_bubble": Cause("Time is lost waiting in the pipeline", "Use more micro batches, or fewer stages."),
    "remaining_time_unreliable": Cause("The remaining time in the log is wrong", "Use the time shown here: it counts from the resume."),
    "secondary_error": Cause("Further errors are only consequences", "Look at the cause first."),
    "several_launches": Cause("Several launches in one file", "The page shows the last one."),
    "shutdown_noise": Cause("Messages of shutting down", "Harmless."),
    "slow_drift": Cause("Steps become slower", "Look at temperature, memory and disk over the same time; restart from a checkpoint when memory grows."),
    "stalled": Cause("No step for a long time", "Look at the ranks (py-spy dump) and dmesg: a hang, or a long evaluation or save."),
    "straggler": Cause("One rank is later than the others", "Look at its data loading and its GPU: all ranks wait for the slowest."),
    "speed_env": Cause("Variables that cost speed are set", "Unset debug variables for long runs."),
    "stack_location_unreliable": Cause("The place in the stack cannot be trusted", "Run again with AMD_SERIALIZE_KERNEL=3 to see the true one."),
    "step_unknown": Cause("The step cannot be read from the lines", "Points are counted instead."),
    "step_went_back": Cause("The step counter went back", "A resume: newer values replace older ones."),
    "telemetry_failed": Cause("GPU monitoring failed", "The job did not fail of it."),
    "throughput_zero": Cause("Throughput 0.00 means that it was not counted", "Set include_num_input_tokens_seen."),
    "timeout_setting_ignored": Cause("A timeout setting did not reach the process group", "Set ddp_timeout in the train config; environment variables do not change it."),
    "two_writers": Cause("Two jobs write to one log", "Give each run its own output_dir."),
    "utilisation_misleads": Cause("100 % utilisation is waiting", "Low power at full utilisation: kernels spin in a collective. Look for the rank that is late."),
}  # fmt: skip


def cause_of(code: str) -> Cause:
    """Title and remedy of a cause or finding; raises KeyError for an unknown code."""
    return CAUSES[code] if code in CAUSES else FINDINGS[code]


def remedy_of(cause: Cause, facts: Mapping[str, object]) -> str:
    """The remedy with the log's own numbers when all of them are known."""
    names = [name for _, name, _, _ in string.Formatter().parse(cause.detail) if name]
    return cause.detail.format_map(facts) if names and all(name in facts for name in names) else cause.remedy
