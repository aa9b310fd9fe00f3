"""Text and file name -> what kind of configuration it is. Only the kind: the readers and the rules do the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum

from backend.domain.problem import ArgValue
from backend.errors import InvalidInput
from backend.planning.importing.llamaboard import is_board_state
from backend.planning.importing.yaml_text import read_yaml
from backend.planning.linting.deepspeed import REMOVED_BLOCKS, TOP_KEYS
from backend.planning.schema_builtin import BUILTIN_SCHEMA
from backend.planning.words import words


class Kind(StrEnum):
    """Kinds of configuration files; the values are the words that `inspect` prints."""

    TRAIN = "llamafactory_train"
    V1 = "llamafactory_v1"
    BOARD = "llamaboard_state"
    TEMPLATE = "envsubst_template"
    FOREIGN = "other_program"
    DEEPSPEED = "deepspeed_config"
    SCRIPT = "launch_script"
    REGISTRY = "dataset_registry"
    ARROW_INFO = "arrow_dataset_info"


_V1_KEYS = words(
    "model model_class init_config peft_config kernel_config quant_config train_dataset micro_batch_size global_batch_size "
    "batching_strategy batching_workers enable_activation_checkpointing dist_config optim_config lr_scheduler_config "
    "sample_backend save_ckpt_as_hf save_epochs"
)
_V1_ONLY = _V1_KEYS - words("model micro_batch_size")
_REGISTRY_KEYS = words("file_name hf_hub_url ms_hub_url om_hub_url script_url cloud_file_name")
_ARROW_KEYS = words(
    "citation description features homepage license splits builder_name dataset_name config_name version download_checksums "
    "download_size dataset_size size_in_bytes supervised_keys task_templates"
)
_FOREIGN_MARKS = {
    "axolotl": words(
        "base_model sequence_len micro_batch_size adapter datasets load_in_4bit lora_target_modules wandb_project"
    ),
    "accelerate": words(
        "compute_environment distributed_type machine_rank main_training_function num_machines num_processes"
    ),
    "torchtune": words("tokenizer checkpointer batch_size epochs loss compile dtype enable_activation_checkpointing"),
    "ms-swift": words(
        "model train_type tuner_type model_id_or_path custom_train_dataset_path rlhf_type torch_dtype target_modules max_length "
        "tuner_backend model_type"
    ),
    "TRL": words(
        "dataset_name dataset_train_split dataset_test_split model_name_or_path dataset_text_field max_length max_seq_length "
        "dataset_mixer dataset_splits attn_implementation use_peft torch_dtype lora_target_modules dataset_num_proc"
    ),
    "verl": words("actor_rollout_ref critic algorithm trainer data"),
    "Megatron": words(
        "tensor_model_parallel_size pipeline_model_parallel_size num_layers hidden_size num_attention_heads"
    ),
    "Docker Compose": words("services volumes networks"),
    "Kubernetes": words("apiVersion kind metadata spec"),
}
_DEEPSPEED_STRONG = words(
    "zero_optimization train_batch_size train_micro_batch_size_per_gpu zero_allow_untested_optimizer wall_clock_breakdown "
    "steps_per_print zero_force_ds_cpu_optimizer"
)
_PLACEHOLDER = re.compile(
    r"\$\{([A-Za-z_]\w*)(?::?[-=?+][^}]*)?\}|\$([A-Za-z_]\w*)|\{\{\s*([\w.]+)\s*\}\}|@@?([A-Z][A-Z0-9_]+)@@?"
)
_LAUNCH_WORDS = re.compile(
    r"(?m)^(?!\s*#).*(?:llamafactory-cli|torchrun|accelerate\s+launch|deepspeed\s+[-\w./]|torch\.distributed|train_bash\.py|"
    r"src/train\.py|python3?\s+\S+\.py|\bsrun\b)"
)


def placeholders_of(text: str) -> tuple[str, ...]:
    """Names still to be filled in, sorted; comment lines do not count."""
    names: set[str] = set()
    for line in text.splitlines():
        for match in _PLACEHOLDER.finditer(re.sub(r"(?:^|\s)#.*", "", line)):
            names.add(next(group for group in match.groups() if group))
    return tuple(sorted(names))


def detect_yaml(text: str) -> Kind | None:
    """Kind of a YAML text; None when it is not one mapping (broken YAML that looks like a train config is TRAIN)."""
    try:
        values = read_yaml(text).values
    except InvalidInput:
        values = _loose_keys(text)
        if placeholders_of(text) and values:
            return Kind.TEMPLATE
        return Kind.TRAIN if len(_known(values)) >= 2 else None
    if not values:
        return None
    return detect_values(values, text)


def detect_values(values: Mapping[str, ArgValue], text: str = "") -> Kind:
    """Kind of a configuration that was read already."""
    if isinstance(values.get("tunedeck"), dict):
        return Kind.TRAIN
    if is_board_state(values):
        return Kind.BOARD
    if _looks_v1(values):
        return Kind.V1
    foreign = foreign_program(values)
    if foreign:
        return Kind.FOREIGN
    if _filled_in_later(values):
        return Kind.TEMPLATE
    return Kind.TRAIN


def foreign_program(values: Mapping[str, ArgValue]) -> str:
    """Name of the program a config seems to be made for, "another program", or "" for the trainer's own."""
    names = set(values)
    known = _known(values)
    for program, marks in _FOREIGN_MARKS.items():
        hits = names & marks
        if len(hits) >= 3 and len(hits - known) >= 2 and len(names - known) > len(known) / 2:
            return program
    sections = [
        name for name, value in values.items() if isinstance(value, dict) and name not in BUILTIN_SCHEMA.arguments
    ]
    sections = [name for name in sections if name != "tunedeck"]
    if len(sections) >= 2 and len(sections) >= len(known):
        return "another program"
    if len(known) * 3 < len(names) or not known:
        return "another program"
    return ""


def _known(values: Mapping[str, object]) -> set[str]:
    return {name for name in values if name in BUILTIN_SCHEMA.arguments or name == "tunedeck"}


def _looks_v1(values: Mapping[str, ArgValue]) -> bool:
    if "model_name_or_path" in values or "stage" in values or "finetuning_type" in values:
        return False
    only = set(values) & _V1_ONLY
    return len(only) >= 2 or (bool(only) and "model" in values)


def _filled_in_later(values: Mapping[str, ArgValue]) -> bool:
    return any(_PLACEHOLDER.search(text) for text in _texts(list(values.values())))


def _texts(values: list[ArgValue]) -> list[str]:
    out: list[str] = []
    for value in values:
        if isinstance(value, str):
            out.append(value)
        elif isinstance(value, dict):
            out += [*value, *_texts(list(value.values()))]
        elif isinstance(value, list):
            out += _texts(value)
    return out


def _loose_keys(text: str) -> dict[str, ArgValue]:
    return {match[1]: None for match in re.finditer(r"(?m)^([A-Za-z_][\w.]*)\s*:", text)}


def detect_json(content: ArgValue, name: str = "") -> Kind | None:
    """Kind of a JSON object by its keys; lists and unknown objects give None (they may be data)."""
    if not isinstance(content, dict):
        return None
    base = name.rpartition("/")[2]
    keys = set(content)
    if base == "dataset_info.json" or _is_registry(content):
        return Kind.ARROW_INFO if _is_arrow_info(content) else Kind.REGISTRY
    if _is_arrow_info(content):
        return Kind.ARROW_INFO
    if keys & _DEEPSPEED_STRONG or (
        keys & {"fp16", "bf16"} and isinstance(content.get("fp16") or content.get("bf16"), dict)
    ):
        return Kind.DEEPSPEED
    if (
        len(keys & (TOP_KEYS | REMOVED_BLOCKS)) >= 2
        and len(keys & TOP_KEYS) * 2 >= len(keys)
        and "instruction" not in keys
    ):
        return Kind.DEEPSPEED
    if is_board_state(content):
        return Kind.BOARD
    if len(_known(content)) >= 4 and {"stage", "model_name_or_path", "output_dir", "dataset"} & keys:
        return Kind.TRAIN
    return None


def _is_registry(content: Mapping[str, ArgValue]) -> bool:
    entries = [value for value in content.values() if isinstance(value, dict)]
    return bool(entries) and len(entries) == len(content) and any(set(entry) & _REGISTRY_KEYS for entry in entries)


def _is_arrow_info(content: Mapping[str, ArgValue]) -> bool:
    return len(set(content) & _ARROW_KEYS) >= 2 and not _is_registry(content)


def detect_script(text: str, name: str = "") -> bool:
    """A shell or Slurm script (or a pasted command line) that starts something."""
    if name.endswith((".sh", ".slurm", ".sbatch", ".bash", ".job", ".bat", ".cmd", ".ps1")):
        return True
    if text.startswith("#!") and "sh" in text.partition("\n")[0]:
        return True
    return not name and bool(_LAUNCH_WORDS.search(text))


def detect_config(text: str, name: str = "") -> Kind | None:
    """Kind of any configuration text, by name and content. None: no configuration (a log, data, something else)."""
    text = text.lstrip("\ufeff")
    stripped = text.lstrip()
    if detect_script(text, name):
        return Kind.SCRIPT
    if name.endswith((".yaml", ".yml")):
        return detect_yaml(text) or Kind.FOREIGN
    if stripped.startswith("{") and name.endswith((".json", "")):
        try:
            return detect_json(json.loads(text), name)
        except ValueError:
            keys = set(re.findall(r'"(\w+)"\s*:', text))
            return Kind.DEEPSPEED if len(keys & TOP_KEYS) >= 2 and keys & _DEEPSPEED_STRONG else None
        except RecursionError:
            return None
    if not name:
        return detect_yaml(text)
    return None
