"""What the training environment says about itself, and what it rejects before training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backend.domain.form import Preset
from backend.planning.command import Host, build_plan
from backend.planning.schema import parse_description
from backend.planning.schema_builtin import BUILTIN_SCHEMA
from backend.planning.spec import parse_spec
from backend.services.presets import list_presets, load_preset
from tests.integration.inside_run import INSIDE, ZERO, arguments, inside, marked

pytestmark = pytest.mark.training


@pytest.fixture(scope="session")
def description() -> dict[str, Any]:
    (found,) = marked(inside(INSIDE / "describe.py"), "TUNEDECK_DESCRIPTION ")
    return found


def test_the_description_is_whole(description: dict[str, Any]) -> None:
    assert description["errors"] == []
    assert [one["code"] for one in description["broken"]] == ["ppo-needs-old-trl"]
    assert (description["accelerator"], description["devices"]) == ("cpu", [])
    assert description["versions"]["llamafactory"] == "0.9.5" and description["versions"]["flash-attn"] is None
    assert {"chatml", "llama3", "qwen"} <= set(description["templates"])
    assert "adamw_torch" in description["optimizers"] and "cosine" in description["schedulers"]
    assert description["models"]["Qwen/Qwen2.5-7B-Instruct"] == "qwen"


def test_the_arguments_are_those_that_linting_assumes_without_an_environment(description: dict[str, Any]) -> None:
    found, assumed = parse_description(description).arguments, BUILTIN_SCHEMA.arguments
    assert found.keys() == assumed.keys() and len(found) > 300
    for name in (
        "learning_rate",
        "lora_rank",
        "bf16",
        "stage",
        "flash_attn",
        "lora_target",
        "eval_strategy",
        "dataset",
    ):
        assert (found[name].kind, found[name].choices) == (assumed[name].kind, assumed[name].choices), name
    assert found["pref_loss"].choices == ("sigmoid", "hinge", "ipo", "kto_pair", "orpo", "simpo")
    assert found["lora_target"].loose and not found["learning_rate"].loose


def test_deepspeeds_keys_are_read_from_deepspeed(description: dict[str, Any]) -> None:
    zero = description["deepspeed"]["sections"]["zero_optimization"]
    assert zero["stage"]["choices"] == [0, 1, 2, 3]
    assert zero["offload_param"]["fields"]["device"]["choices"] == ["none", "cpu", "nvme"]
    assert "stage3_gather_16bit_weights_on_model_save" in zero and "stage3_partition_grads" not in zero
    assert {"optimizer", "scheduler", "activation_checkpointing"} <= set(description["deepspeed"]["top_level"])


def changed(zero: int, **changes: object) -> dict[str, Any]:
    return json.loads(json.dumps(ZERO[zero])) | changes


CASES: dict[str, tuple[dict[str, object], list[tuple[str, str]]]] = {
    # name: (changes to a good training, [(stage, part of the message)])
    "good": ({}, []),
    "dpo": ({"stage": "dpo", "dataset": "demo_preference"}, []),
    "kto": ({"stage": "kto", "dataset": "demo_feedback"}, []),
    "pt": ({"stage": "pt", "dataset": "demo_text", "disable_shuffling": False}, []),
    "zero3": ({"deepspeed": changed(3)}, []),
    "unknown_key": ({"compute_type": "bf16"}, [("parse", "['compute_type']")]),
    "bad_enum": ({"eval_strategy": "sometimes"}, [("parse", "not a valid IntervalStrategy")]),
    "bad_choice": ({"pref_loss": "sigmod"}, [("arguments", "pref_loss: found 'sigmod'")]),
    "flash_attention_switch": (
        {"flash_attn": True},
        [("arguments", "flash_attn"), ("attention", "Unknown attention type")],
    ),
    "bf16_on_cpu": ({"bf16": True}, [("parse", "doesn't support bf16/gpu")]),
    "template": ({"template": "llama3.1"}, [("template", "Template llama3.1 does not exist")]),
    "target": ({"lora_target": "nope"}, [("modules", "It has: down_proj")]),
    "no_model": ({"model_name_or_path": "/nowhere"}, [("model", "expected a folder with a config.json")]),
    "no_dataset": ({"dataset": "nowhere"}, [("data", "Undefined dataset nowhere")]),
    "wrong_stage": ({"stage": "dpo"}, [("data", "not applicable in the current training stage")]),
    "zero_key": (
        {"deepspeed": changed(3, zero_optimization={"stage": 3, "stage3_parition_grads": True})},
        [("deepspeed", "stage3_parition_grads")],
    ),
    "zero_batch": ({"deepspeed": changed(2, train_batch_size=16)}, [("deepspeed", "train_batch_size=16 vs hf")]),
    "zero_batch_fits": ({"deepspeed": changed(2, train_batch_size=8)}, []),
    "zero_on_cpu": ({"deepspeed": changed(2), "use_cpu": True}, [("deepspeed", "use_cpu does not go with deepspeed")]),
    "zero_file": ({"deepspeed": "/nowhere.json"}, [("parse", "existing deepspeed config")]),
    "ppo": ({"stage": "ppo", "reward_model": "/nowhere"}, [("packages", "ppo needs trl")]),
    "column": ({"dataset": "column"}, [("data", "output")]),
    "empty": ({"dataset": "empty"}, [("data", "no data")]),
    "some_invalid": ({"dataset": "some_invalid"}, []),
}


@pytest.fixture(scope="session")
def verdicts(demo_inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """All cases in one start of the training stack."""
    folder = tmp_path_factory.mktemp("dry")
    data = {
        "column": [{"instruction": "a", "input": "", "answer": "b"}],
        "empty": [],
        "some_invalid": [{"instruction": "a", "input": "", "output": answer} for answer in ("b", None, "c", None)],
    }
    for name, rows in data.items():
        (folder / f"{name}.json").write_text(json.dumps(rows))
    (folder / "dataset_info.json").write_text(json.dumps({name: {"file_name": f"{name}.json"} for name in data}))
    for name, (changes, _) in CASES.items():
        usual = {"disable_shuffling": None, "max_steps": 4}
        own_data = {"dataset_dir": str(folder)} if changes.get("dataset") in data else {}
        (folder / f"{name}.yaml").write_text(json.dumps(arguments(demo_inputs, folder, **usual | own_data | changes)))
    files = [str(folder / f"{name}.yaml") for name in CASES]
    output = inside(INSIDE / "dry_run.py", "--processes", "2", *files, codes=(1,))
    return {Path(verdict["file"]).stem: verdict for verdict in marked(output, "TUNEDECK_DRY_RUN ")}


@pytest.mark.parametrize("name", CASES)
def test_a_dry_run_says_what_training_would_reject(verdicts: dict[str, dict[str, Any]], name: str) -> None:
    verdict, expected = verdicts[name], CASES[name][1]
    assert verdict["ok"] is not bool(expected)
    assert len(verdict["errors"]) == len(expected), verdict["errors"]
    for error, (stage, part) in zip(verdict["errors"], expected, strict=True):
        assert error["stage"] == stage and part in error["message"], error


def test_a_dry_run_measures_the_rows(verdicts: dict[str, dict[str, Any]]) -> None:
    facts = verdicts["good"]["facts"]["datasets"]["demo"]
    assert (facts["rows"], facts["sampled"], facts["valid"], facts["over_cutoff"]) == (120, 64, 64, 0)
    assert 10 < facts["tokens"]["p50"] <= facts["tokens"]["p95"] <= facts["tokens"]["max"] < 256
    assert "2 of the first 4 rows are invalid" in verdicts["some_invalid"]["warnings"][0]["message"]


def test_a_dry_run_sees_the_ranks_and_the_zero_stage(verdicts: dict[str, dict[str, Any]]) -> None:
    assert verdicts["zero3"]["facts"]["world_size"] == 2 and verdicts["zero3"]["facts"]["zero_stage"] == 3


def train_yaml(preset: Preset, folder: Path, demo: Path) -> Path:
    """The files of a preset's plan, as a job would get them."""
    folder = folder / preset.name.replace("/", "-")
    accelerator = "cpu" if preset.hardware == "cpu" else "rocm"
    host = Host(python="/python", entry="/train.py", accelerator=accelerator, cpu_count=64)
    plan = build_plan(parse_spec(load_preset(preset.name, demo=demo)), job_id="preset", job_dir=str(folder), host=host)
    folder.mkdir()
    for name, text in plan.files.items():
        (folder / name).write_text(text)
    return folder / "train.yaml"


def test_every_preset_passes_the_trainers_own_parser(demo_inputs: Path, tmp_path: Path) -> None:
    checked = 0
    for accelerator, processes in (("cpu", "2"), ("rocm", "8")):
        presets = [preset for preset in list_presets() if (preset.hardware == "cpu") == (accelerator == "cpu")]
        files = [str(train_yaml(preset, tmp_path, demo_inputs)) for preset in presets]
        options = ("--parse-only", "--accelerator", accelerator, "--processes", processes)
        verdicts = marked(inside(INSIDE / "dry_run.py", *options, *files, codes=(0, 1)), "TUNEDECK_DRY_RUN ")
        assert [verdict["file"] for verdict in verdicts] == files
        for verdict in verdicts:
            assert verdict["ok"], (verdict["file"], verdict["errors"])
        checked += len(verdicts)
    assert checked == len(list_presets()) >= 30
