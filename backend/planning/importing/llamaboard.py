"""LLaMA Board's saved settings (`top.*`, `train.*`) -> the trainer's own arguments, as LLaMA Board itself would pass them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from backend.domain.problem import ArgValue
from backend.planning.importing.yaml_text import read_scalar
from backend.planning.words import words

STAGES = {
    "supervised fine-tuning": "sft",
    "reward modeling": "rm",
    "ppo": "ppo",
    "dpo": "dpo",
    "kto": "kto",
    "pre-training": "pt",
}
_RENAMED = {
    "train.batch_size": "per_device_train_batch_size",
    "train.neftune_alpha": "neftune_noise_alpha",
    "top.model_path": "model_name_or_path",
}
_NUMBERS = ("learning_rate", "num_train_epochs", "max_grad_norm", "max_samples")
_SAME = (
    "dataset_dir cutoff_len learning_rate num_train_epochs max_samples gradient_accumulation_steps "
    "lr_scheduler_type max_grad_norm logging_steps save_steps warmup_steps packing neat_packing "
    "train_on_prompt mask_history resize_vocab use_llama_pro "
    "enable_thinking use_galore use_apollo use_badam use_swanlab"
)
_LORA = "lora_rank lora_alpha lora_dropout loraplus_lr_ratio create_new_adapter use_rslora use_dora lora_target additional_target"
_BY_SWITCH = {
    "use_galore": "galore_rank galore_update_interval galore_scale galore_target",
    "use_apollo": "apollo_rank apollo_update_interval apollo_scale apollo_target",
    "use_badam": "badam_mode badam_switch_mode badam_switch_interval badam_update_ratio",
    "use_swanlab": "swanlab_project swanlab_run_name swanlab_workspace swanlab_mode",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """`values` for the trainer; `dropped` controls that were set and have no counterpart; `notes` what was decided."""

    values: Mapping[str, ArgValue]
    dropped: tuple[str, ...] = ()


def is_board_state(values: Mapping[str, ArgValue]) -> bool:
    """Keys with LLaMA Board's prefixes."""
    prefixed = [name for name in values if name.startswith(("top.", "train.", "eval.", "infer."))]
    return len(prefixed) >= 3 and 2 * len(prefixed) >= len(values)


def convert_board_state(state: Mapping[str, ArgValue]) -> Converted:
    """Empty fields, `none` and switched-off options are left out: the trainer's default is the same."""
    method = str(state.get("top.finetuning_type") or "lora")
    out: dict[str, ArgValue] = {"stage": _stage(state), "do_train": True, "finetuning_type": method}
    model = state.get("top.model_path") or state.get("top.model_name")
    out.update({"model_name_or_path": model} if model else {})
    out.update({"template": state["top.template"]} if _set(state.get("top.template")) else {})
    out.update(_booster(str(state.get("top.booster") or "")))
    out.update(_quantization(state))
    if _set(state.get("top.rope_scaling")):
        out["rope_scaling"] = state["top.rope_scaling"]
    out.update(_dataset(state))
    for name in _SAME.split():
        out.update(_kept(name, state.get(f"train.{name}")))
    for control, name in _RENAMED.items():
        out.update(_kept(name, state.get(control)))
    out.update(_precision(str(state.get("train.compute_type") or "")))
    out.update(_reporting(state.get("train.report_to")))
    out.update(_method_options(state, method))
    out.update(_evaluation(state, out))
    if _set(state.get("train.output_dir")):
        out["output_dir"] = (
            f"saves/{_folder(str(state.get('top.model_name') or 'model'))}/{method}/{state['train.output_dir']}"
        )
    out.update(_extra(state.get("train.extra_args")))
    out.update(_deepspeed(state))
    return Converted(values={name: value for name, value in out.items() if value is not None}, dropped=_dropped(state))


def _stage(state: Mapping[str, ArgValue]) -> str:
    text = str(state.get("train.training_stage") or "").strip().lower()
    return STAGES.get(text, text if text in STAGES.values() else "sft")


def _set(value: ArgValue) -> bool:
    return value not in (None, "", "none", [], False, 0, "0", "default")


def _kept(name: str, value: ArgValue) -> dict[str, ArgValue]:
    if not _set(value):
        return {}
    if isinstance(value, str) and (name in _NUMBERS or re.fullmatch(r"[-+]?\d[\d.eE+-]*", value)):
        value = read_scalar(value)
    if name in ("num_train_epochs", "max_grad_norm") and isinstance(value, int):
        value = float(value)
    return {name: value}


def _booster(booster: str) -> dict[str, ArgValue]:
    return {
        "flashattn2": {"flash_attn": "fa2"},
        "unsloth": {"use_unsloth": True},
        "liger_kernel": {"enable_liger_kernel": True},
    }.get(booster, {})  # type: ignore[return-value]


def _quantization(state: Mapping[str, ArgValue]) -> dict[str, ArgValue]:
    bits = state.get("top.quantization_bit")
    if not _set(bits):
        return {}
    method = str(state.get("top.quantization_method") or "bnb")
    short = {"bitsandbytes": "bnb", "bnb": "bnb"}.get(method, method)
    return {"quantization_bit": read_scalar(str(bits)), "quantization_method": short}


def _dataset(state: Mapping[str, ArgValue]) -> dict[str, ArgValue]:
    names = state.get("train.dataset")
    joined = ",".join(str(name) for name in names) if isinstance(names, list) else str(names or "")
    return {"dataset": joined} if joined else {}


def _precision(kind: str) -> dict[str, ArgValue]:
    return {kind: True} if kind in ("bf16", "fp16", "pure_bf16") else {}


def _reporting(value: ArgValue) -> dict[str, ArgValue]:
    """Old versions had a switch, new ones a name or a list."""
    if isinstance(value, bool) or value in (None, ""):
        return {"report_to": "none"} if value is False else {}
    return {"report_to": value}


def _method_options(state: Mapping[str, ArgValue], method: str) -> dict[str, ArgValue]:
    out: dict[str, ArgValue] = {}
    names: list[str] = []
    if method == "lora":
        names += _LORA.split()
        if _set(state.get("train.use_pissa")):
            out.update(pissa_init=True, pissa_convert=True)
    if method == "freeze":
        names += ["freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules"]
    if out.get("stage") in ("dpo", "kto") or _stage(state) in ("dpo", "kto"):
        names += ["pref_beta", "pref_ftx", "pref_loss"]
    if _stage(state) == "ppo":
        names += ["ppo_score_norm", "ppo_whiten_rewards"]
    for switch, options in _BY_SWITCH.items():
        if _set(state.get(f"train.{switch}")):
            names += options.split()
    for name in names:
        out.update(_kept(name, state.get(f"train.{name}")))
    return out


def _evaluation(state: Mapping[str, ArgValue], out: Mapping[str, ArgValue]) -> dict[str, ArgValue]:
    share = state.get("train.val_size")
    if not isinstance(share, (int, float)) or share <= 1e-6 or _stage(state) == "ppo":
        return {}
    return {
        "val_size": share,
        "eval_strategy": "steps",
        "eval_steps": out.get("save_steps"),
        "per_device_eval_batch_size": out.get("per_device_train_batch_size"),
    }


def _extra(value: ArgValue) -> dict[str, ArgValue]:
    """`extra_args` is JSON in a text box."""
    try:
        extra = json.loads(value) if isinstance(value, str) and value.strip() else {}
    except ValueError:
        return {}
    return extra if isinstance(extra, dict) else {}


def _deepspeed(state: Mapping[str, ArgValue]) -> dict[str, ArgValue]:
    """The ZeRO stage goes into our own section: LLaMA Board's generated JSON lies in its cache folder."""
    stage = read_scalar(str(state.get("train.ds_stage") or "none"))
    if not isinstance(stage, int) or isinstance(stage, bool):
        return {}
    offload = "cpu" if _set(state.get("train.ds_offload")) else "none"
    return {
        "tunedeck": {
            "zero": {"stage": stage, "offload_optimizer": offload, "offload_param": offload if stage == 3 else "none"}
        }
    }


def _folder(model: str) -> str:
    return model.rpartition("/")[2]


_USED_TOP = (
    "finetuning_type model_name model_path template booster quantization_bit quantization_method rope_scaling "
    "lang hub_name"
)
_USED_TRAIN = (
    "training_stage dataset compute_type report_to extra_args output_dir val_size ds_stage ds_offload use_pissa batch_size "
    "neftune_alpha freeze_trainable_layers freeze_trainable_modules freeze_extra_modules pref_beta pref_ftx pref_loss "
    "ppo_score_norm ppo_whiten_rewards"
)


def _dropped(state: Mapping[str, ArgValue]) -> tuple[str, ...]:
    used = {f"top.{name}" for name in words(_USED_TOP)}
    for names in (_SAME, _LORA, _USED_TRAIN, *_BY_SWITCH.values()):
        used |= {f"train.{name}" for name in words(names)}
    return tuple(sorted(name for name, value in state.items() if name not in used and _set(value)))
