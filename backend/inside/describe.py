"""A training environment in, one JSON object out: versions, devices, and what its trainer accepts.

Run as a script by the environment's own interpreter. The object is the last line of stdout, behind TUNEDECK_DESCRIPTION;
packages print what they like before it. A part that cannot be read is named in `errors` and left out: never guessed.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import importlib.util
import json
import os
import platform
import sys
import time
import types
import typing
from collections.abc import Callable, Iterable, KeysView, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

MARK = "TUNEDECK_DESCRIPTION "
PACKAGES = (  # as pip names them
    *("torch", "transformers", "llamafactory", "deepspeed", "accelerate", "peft", "trl", "datasets", "tokenizers"),
    *("torchaudio", "torchvision", "triton", "numpy", "pydantic", "omegaconf", "safetensors"),
    *("flash-attn", "flash-attn-3", "flash-linear-attention", "liger-kernel", "unsloth", "kt-kernel", "hyper-parallel"),
    *("bitsandbytes", "hqq", "eetq", "gptqmodel", "autoawq", "torchao", "transformer-engine", "mixture-of-depth"),
    *(
        "galore_torch",
        "apollo_torch",
        "badam",
        "adam-mini",
        "lomo-optim",
        "grokadamw",
        "apex",
        "schedulefree",
        "torch-optimi",
    ),
    *(
        "swanlab",
        "wandb",
        "tensorboard",
        "tensorboardX",
        "mlflow",
        "trackio",
        "comet_ml",
        "neptune",
        "clearml",
        "dvclive",
    ),
    *("codecarbon", "matplotlib", "jieba", "nltk", "rouge_chinese", "ray", "vllm", "amdsmi"),
)
MODULES = {"flash-attn": "flash_attn", "apex": "apex"}  # built from source they may lack a version; their module tells
LOOSE = {  # annotated as text, and taken as a list, mapping or bool as well
    *(
        "dataset_dir",
        "resume_from_checkpoint",
        "ref_model_adapters",
        "reward_model",
        "reward_model_adapters",
        "master_port",
    ),
    *("new_special_tokens_config", "optim_args", "parallelism_config", "generation_config", "profile_modules"),
    *("hyper_parallel_args", "logging_dir", "hub_token", "fp8_backend"),
}


def main() -> None:
    """Print the description."""
    begun = time.monotonic()
    forget_script_folder()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    description = describe()
    description["seconds"] = round(time.monotonic() - begun, 2)
    print(MARK + json.dumps(description, ensure_ascii=False, allow_nan=False), flush=True)


def describe() -> dict[str, Any]:
    """Every part that can be read; `errors` names the rest."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "versions": {name: installed(name) for name in PACKAGES},
    }
    found["broken"] = broken_combinations(found["versions"])
    errors: list[dict[str, str]] = []
    parts: Mapping[str, Callable[[], Mapping[str, Any]]] = {
        "torch": read_torch,
        "torchaudio": read_torchaudio,
        "llamafactory": read_llamafactory,
        "transformers": read_transformers,
        "deepspeed": read_deepspeed,
    }
    for part, read in parts.items():
        if not found["versions"][part]:
            continue
        try:
            found |= read()
        except Exception as error:  # noqa: BLE001 - an environment's packages may raise anything; the page shows it
            errors.append({"part": part, "message": f"{type(error).__name__}: {error}"})
    found["errors"] = errors
    return found


# -- accelerator ----------------------------------------------------------------------------------------------------------


def read_torch() -> dict[str, Any]:
    """What torch was built for and which devices it sees. Memory in bytes."""
    import torch

    built_for = "rocm" if torch.version.hip else "cuda" if torch.version.cuda else "cpu"
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {
        "built_for": built_for,
        "runtime": torch.version.hip or torch.version.cuda or "",
        "accelerator": built_for if count else "cpu",
        "devices": [read_device(torch.cuda.get_device_properties(index), index) for index in range(count)],
        "bf16": bool(count and torch.cuda.is_bf16_supported()),
    }


def read_device(properties: Any, index: int) -> dict[str, Any]:
    """One device as torch describes it; `architecture` is gfx942 or sm_90, `pci` as the kernel writes it."""
    amd = str(getattr(properties, "gcnArchName", ""))
    pci = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    return {
        "index": index,
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "architecture": amd.split(":")[0] if amd.startswith("gfx") else f"sm_{properties.major}{properties.minor}",
        "compute_units": getattr(properties, "multi_processor_count", None),
        "pci": None
        if None in pci
        else ":".join(f"{part:0{width}x}" for part, width in zip(pci, (4, 2, 2), strict=True)) + ".0",
    }


def read_torchaudio() -> dict[str, Any]:
    """LLaMA-Factory 0.9.5 imports torchaudio for every training: say it here when that fails."""
    importlib.import_module("torchaudio")
    return {}


# -- LLaMA-Factory ----------------------------------------------------------------------------------------------------------


def read_llamafactory() -> dict[str, Any]:
    """Arguments of `llamafactory-cli train`, templates, and the models it knows by name."""
    from llamafactory.data.template import TEMPLATES
    from llamafactory.data.tool_utils import TOOLS
    from llamafactory.extras import constants
    from llamafactory.hparams import parser

    return {
        "arguments": [one for group in parser._TRAIN_ARGS for one in read_arguments(group)],
        "templates": sorted(TEMPLATES),
        "reasoning_templates": sorted(name for name, one in TEMPLATES.items() if "Reasoning" in type(one).__name__),
        "strict_eos_templates": sorted(name for name, one in TEMPLATES.items() if getattr(one, "efficient_eos", False)),
        "multimodal_templates": sorted(
            name for name, one in TEMPLATES.items() if type(one.mm_plugin).__name__ != "BasePlugin"
        ),
        "tool_formats": sorted(TOOLS),
        "models": read_models(constants),
        "stages": list(getattr(constants, "TRAINING_STAGES", {}).values()),
        "finetuning_types": list(getattr(constants, "METHODS", ())),
    }


def read_models(constants: Any) -> dict[str, str]:
    """Hub path of each model in LLaMA-Factory's list: its default template ("" when it has none)."""
    found: dict[str, str] = {}
    for name, sources in constants.SUPPORTED_MODELS.items():
        template = str(constants.DEFAULT_TEMPLATE.get(name, ""))
        found |= {str(path): template for path in dict(sources).values()}
    return found


def read_arguments(group: type) -> list[dict[str, Any]]:
    """Every argument of one dataclass of the parser; `group` is its name without "Arguments": model, data, training ..."""
    hints = typing.get_type_hints(group)
    return [
        read_type(hints.get(field.name, str), field.metadata)
        | ({"loose": True} if field.name in LOOSE else {})
        | {"name": field.name, "group": group.__name__.removesuffix("Arguments").lower(), "default": default_of(field)}
        for field in dataclasses.fields(group)
        if field.init
    ]


def read_type(hint: Any, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """`kind` (bool, int, float, str, list, dict), `optional`, `choices` (null = free), `help`, `loose` of an annotation.

    `loose`: a YAML may also give another shape, because the annotation says so or because LLaMA-Factory splits a text at
    commas and takes a list as well.
    """
    options = list(union_members(hint))
    kinds = {plain_type(kind) for kind in options if kind is not type(None)}
    choices = list(metadata.get("choices") or ()) or [one for kind in options for one in choices_of(kind)]
    about = str(metadata.get("help", ""))
    return {
        "kind": next((name for name in ("bool", "str", "float", "int", "list", "dict") if name in kinds), "str"),
        "loose": len(kinds - {"int", "float"}) + bool(kinds & {"int", "float"}) > 1
        or bool(kinds & {"list", "dict"})
        or "comma" in about,
        "optional": type(None) in options,
        "choices": [plain(choice) for choice in choices] or None,
        "help": about,
    }


def union_members(hint: Any) -> Iterable[Any]:
    """The alternatives of a union, itself otherwise."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def choices_of(kind: Any) -> list[Any]:
    """Members of a Literal or an Enum."""
    if typing.get_origin(kind) is typing.Literal:
        return list(typing.get_args(kind))
    return [member.value for member in kind] if isinstance(kind, type) and issubclass(kind, enum.Enum) else []


def plain_type(kind: Any) -> str:
    """The name of a type as YAML knows it."""
    if typing.get_origin(kind) is typing.Literal:
        return type(typing.get_args(kind)[0]).__name__
    base = typing.get_origin(kind) or kind
    if isinstance(base, type):
        for name, candidate in {
            "bool": bool,
            "int": int,
            "float": float,
            "list": (list, tuple, set),
            "dict": dict,
        }.items():
            if issubclass(base, candidate):  # type: ignore[arg-type]
                return name
    return "str"


def default_of(field: dataclasses.Field[Any]) -> Any:
    """The default as YAML knows it; null for none and for required ones."""
    if field.default is not dataclasses.MISSING:
        return plain(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return plain(field.default_factory())
    return None


def plain(value: Any) -> Any:
    """A value as JSON knows it."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return str(value)


# -- transformers -----------------------------------------------------------------------------------------------------------


def read_transformers() -> dict[str, Any]:
    """Names of optimizers, schedulers and model types."""
    from transformers import CONFIG_MAPPING
    from transformers.trainer_utils import SchedulerType
    from transformers.training_args import OptimizerNames

    return {
        "optimizers": [member.value for member in OptimizerNames],
        "schedulers": [member.value for member in SchedulerType],
        "model_types": sorted(CONFIG_MAPPING.keys()),
    }


# -- DeepSpeed --------------------------------------------------------------------------------------------------------------


class Watched(dict[str, Any]):
    """A mapping that remembers which keys were asked for: DeepSpeed reads its top level by hand, and ignores the rest."""

    asked: typing.ClassVar[set[str]] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def keys(self) -> Any:  # `key in config.keys()` asks as well
        return KeysView(self)


def read_deepspeed() -> dict[str, Any]:
    """Legal keys of a DeepSpeed configuration: `top_level`, and the fields of the sections that DeepSpeed validates."""
    from deepspeed.runtime import config, precision_config
    from deepspeed.runtime.zero import config as zero_config

    Watched.asked.clear()
    config.DeepSpeedConfig(Watched({"train_batch_size": 1}))
    sections = {
        "zero_optimization": zero_config.DeepSpeedZeroConfig,
        "fp16": precision_config.DeepSpeedFP16Config,
        "bf16": precision_config.DeepSpeedBF16Config,
    }
    return {
        "deepspeed": {
            "top_level": sorted(Watched.asked | set(sections)),
            "sections": {name: read_model(model) for name, model in sections.items()},
            "optimizers": list(getattr(config, "DEEPSPEED_OPTIMIZERS", ())),
        }
    }


def read_model(model: Any) -> dict[str, Any]:
    """Fields of a pydantic model under the names that JSON may use; nested models with theirs."""
    fields: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        nested = next((kind for kind in union_members(field.annotation) if hasattr(kind, "model_fields")), None)
        entry = read_type(field.annotation, {}) | {
            "default": None if field.is_required() else plain(field.get_default(call_default_factory=True))
        }
        entry |= {"deprecated": bool(extra.get("deprecated", False)), "fields": read_model(nested) if nested else None}
        for known_as in {name, field.alias or name}:
            fields[known_as] = entry
    return fields


# -- packages ---------------------------------------------------------------------------------------------------------------


def broken_combinations(versions: Mapping[str, str | None]) -> list[dict[str, str]]:
    """Combinations of versions that are known to fail, with what to do. `argument` and `value` say when it matters."""
    found: list[dict[str, str]] = []
    if versions.get("transformers") == "5.6.0":
        found.append(
            {
                "code": "transformers-5.6.0-fa2",
                "argument": "flash_attn",
                "value": "fa2",
                "message": "transformers 5.6.0 fails with FlashAttention-2: 'NoneType' object has no attribute 'to'.",
                "remedy": "Use flash_attn: sdpa, or install transformers 5.5.4.",
            }
        )
    trl = versions.get("trl")
    if trl and not trl.startswith(("0.8.", "0.9.")):
        found.append(
            {
                "code": "ppo-needs-old-trl",
                "argument": "stage",
                "value": "ppo",
                "message": f"LLaMA-Factory's PPO needs trl 0.8.6 to 0.9.6, its other stages 0.18 or newer; here is {trl}.",
                "remedy": "Use dpo or kto, or another training environment with trl 0.9.6 for PPO.",
            }
        )
    if (
        versions.get("bitsandbytes")
        and "rocm" in (versions.get("torch") or "")
        and not has_rocm_library("bitsandbytes")
    ):
        found.append(
            {
                "code": "bitsandbytes-without-rocm",
                "argument": "quantization_method",
                "value": "bnb",
                "message": "This bitsandbytes brings no library for ROCm: 4-bit and 8-bit loading and its optimizers fail.",
                "remedy": "Install a bitsandbytes built for your ROCm version.",
            }
        )
    return found


def has_rocm_library(package: str) -> bool:
    """Whether the package's folder holds a compiled ROCm library."""
    spec = importlib.util.find_spec(package)
    return any(Path(folder).glob("*rocm*.so") for folder in (spec.submodule_search_locations if spec else None) or ())


def installed(package: str) -> str | None:
    """The version of an installed package, "unknown" where it has none, None when it is not there. Imports nothing."""
    try:
        return version(package)
    except PackageNotFoundError:
        module = MODULES.get(package)
        return "unknown" if module and importlib.util.find_spec(module) else None


def forget_script_folder() -> None:
    """Python puts a script's folder first on the search path, where our modules could stand in for someone's."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != here]


if __name__ == "__main__":
    main()
