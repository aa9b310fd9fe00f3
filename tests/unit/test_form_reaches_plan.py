"""Each switch of the launch form to what the trainer is given: train.yaml, DeepSpeed JSON, environment."""

from __future__ import annotations

import json

import pytest

from backend.domain.form import FormValue
from backend.domain.launch import LaunchPlan
from backend.domain.problem import ArgValue
from backend.planning.command import Host, build_plan
from backend.planning.document import load_document
from backend.planning.fields import FIELDS
from backend.planning.spec import parse_spec
from backend.services.form import edit_text, open_form

HOST = Host(python="/env/bin/python", entry="/td/train.py", accelerator="rocm", cpu_count=16)
BASE = "model_name_or_path: /models/a\ndataset: a\ntemplate: qwen\n"

SWITCHES: tuple[tuple[str, FormValue, dict[str, ArgValue]], ...] = (
    *(("stage", stage, {"stage": stage}) for stage in ("pt", "rm", "dpo", "kto", "ppo")),
    *(("finetuning_type", kind, {"finetuning_type": kind}) for kind in ("full", "freeze", "oft")),
    ("lora_rank", 24, {"lora_rank": 24}),
    ("lora_alpha", 48, {"lora_alpha": 48}),
    ("lora_dropout", 0.1, {"lora_dropout": 0.1}),
    ("lora_target", "q_proj,v_proj", {"lora_target": "q_proj,v_proj"}),
    ("use_rslora", True, {"use_rslora": True}),
    ("use_dora", True, {"use_dora": True}),
    ("quantization_bit", "4", {"quantization_bit": 4}),
    ("template", "llama3", {"template": "llama3"}),
    ("dataset", ["a", "b"], {"dataset": "a,b"}),
    ("mix_strategy", "interleave_over", {"mix_strategy": "interleave_over"}),
    ("interleave_probs", "0.7,0.3", {"interleave_probs": "0.7,0.3"}),
    ("cutoff_len", 4096, {"cutoff_len": 4096}),
    ("packing", True, {"packing": True}),
    ("neat_packing", True, {"neat_packing": True}),
    ("max_samples", 500, {"max_samples": 500}),
    ("num_train_epochs", 2.5, {"num_train_epochs": 2.5}),
    ("max_steps", 70, {"max_steps": 70}),
    ("per_device_train_batch_size", 3, {"per_device_train_batch_size": 3}),
    ("gradient_accumulation_steps", 5, {"gradient_accumulation_steps": 5}),
    ("learning_rate", 2e-6, {"learning_rate": 2e-6}),
    ("lr_scheduler_type", "polynomial", {"lr_scheduler_type": "polynomial"}),
    ("warmup_steps", 0.05, {"warmup_steps": 0.05}),
    ("optim", "adafactor", {"optim": "adafactor"}),
    ("weight_decay", 0.01, {"weight_decay": 0.01}),
    ("max_grad_norm", 0.5, {"max_grad_norm": 0.5}),
    ("precision", "bf16", {"bf16": True}),
    ("precision", "fp16", {"fp16": True}),
    ("precision", "pure_bf16", {"pure_bf16": True}),
    *(("flash_attn", kind, {"flash_attn": kind}) for kind in ("sdpa", "fa2", "disabled")),
    ("enable_liger_kernel", True, {"enable_liger_kernel": True}),
    ("gradient_checkpointing", False, {"disable_gradient_checkpointing": True}),
    ("torch_compile", True, {"torch_compile": True}),
    ("logging_steps", 3, {"logging_steps": 3}),
    ("eval_strategy", "steps", {"eval_strategy": "steps"}),
    ("eval_steps", 40, {"eval_steps": 40}),
    ("save_steps", 25, {"save_steps": 25}),
    ("save_total_limit", 2, {"save_total_limit": 2}),
    ("seed", 7, {"seed": 7}),
    ("extra", "dataloader_persistent_workers: false\na_key: 1.0e-3", {"dataloader_persistent_workers": False, "a_key": 1e-3}),
)  # fmt: skip


def plan_of(values: dict[str, FormValue], base: str = BASE) -> LaunchPlan:
    edited = edit_text(base, {**open_form(base).values, **values})
    assert edited.errors == ()
    return build_plan(parse_spec(edited.text), job_id="j", job_dir="/jobs/j", host=HOST)


def train_of(plan: LaunchPlan) -> dict[str, ArgValue]:
    return load_document(plan.files["train.yaml"])


@pytest.mark.parametrize(("widget", "value", "expected"), SWITCHES, ids=lambda value: str(value)[:24])
def test_switch_reaches_the_trainers_file(widget: str, value: FormValue, expected: dict[str, ArgValue]) -> None:
    assert widget in {field.name for field in FIELDS}
    untouched, train = train_of(plan_of({})), train_of(plan_of({widget: value}))
    assert {name: train.get(name) for name in expected} == expected
    allowed = {*expected, "output_dir"}
    changed = {name for name in {*train, *untouched} if train.get(name) != untouched.get(name)}
    assert changed <= allowed, "one switch changes nothing else"


@pytest.mark.parametrize(
    ("widget", "other", "default"),
    [("stage", "dpo", "sft"), ("finetuning_type", "full", "lora"), ("flash_attn", "fa2", "auto")],
)
def test_trainers_default_can_be_chosen_again(widget: str, other: str, default: str) -> None:
    train = train_of(plan_of({widget: default}, base=f"{BASE}{widget}: {other}\n"))
    assert train.get(widget, default) == default


def test_fp32_is_neither_of_the_half_precisions() -> None:
    train = train_of(plan_of({"precision": "fp32"}))
    assert not any(train.get(name) for name in ("bf16", "fp16", "pure_bf16"))


@pytest.mark.parametrize("stage", ["0", "1", "2", "3"])
def test_zero_stage_reaches_deepspeeds_file(stage: str) -> None:
    plan = plan_of({"zero_stage": stage})
    assert json.loads(plan.files["ds_config.json"])["zero_optimization"]["stage"] == int(stage)
    assert train_of(plan)["deepspeed"] == "/jobs/j/ds_config.json"


def test_offload_reaches_deepspeeds_file_and_none_leaves_no_word() -> None:
    both = plan_of({"zero_stage": "3", "offload_optimizer": "cpu", "offload_param": "cpu"})
    zero = json.loads(both.files["ds_config.json"])["zero_optimization"]
    assert (zero["offload_optimizer"]["device"], zero["offload_param"]["device"]) == ("cpu", "cpu")
    none = json.loads(plan_of({"zero_stage": "3"}).files["ds_config.json"])["zero_optimization"]
    assert not {"offload_optimizer", "offload_param"} & none.keys()
    assert "ds_config.json" not in plan_of({}).files


def test_processes_and_variables_reach_the_command() -> None:
    plan = plan_of({"tunedeck.processes": 3, "tunedeck.env": "NCCL_DEBUG=INFO\nEMPTY="})
    assert plan.processes == 3 and "--nproc_per_node 3" in " ".join(plan.argv)
    assert (plan.env["NCCL_DEBUG"], plan.env["EMPTY"]) == ("INFO", "")
