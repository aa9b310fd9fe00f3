"""presets/: every file has its header in both languages, parses, and sticks to what is measured and documented."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.domain.form import Preset
from backend.errors import InvalidInput, NotFound
from backend.planning.presets import parse_preset, preset_document
from backend.planning.spec import parse_spec
from backend.services.form import open_form
from backend.services.presets import list_presets, load_preset

PRESETS = list_presets()
IDS = [preset.name for preset in PRESETS]
MEMORY_GIB = {"mi300x": 192, "mi325x": 256, "mi355x": 288, "mi250x": 64, "mi210": 64}


def test_presets_cover_the_cards_and_methods() -> None:
    made = {(preset.hardware, preset.method, "70b" if "70b" in preset.name else "8b") for preset in PRESETS}
    cards = ("mi300x", "mi325x", "mi250x", "mi210")
    wanted = {
        (card, method, size) for card in cards for method in ("lora", "qlora", "full", "dpo") for size in ("8b", "70b")
    }
    assert wanted - made == set()
    assert {preset.name for preset in PRESETS if preset.hardware == "cpu"} == {
        "demo/cpu_sft_lora", "demo/cpu_sft_lora_zero3_2x",
    }  # fmt: skip
    assert any(preset.hardware == "mi355x" for preset in PRESETS)
    assert PRESETS[0].hardware == "cpu"


@pytest.mark.parametrize("preset", PRESETS, ids=IDS)
def test_preset_parses_and_every_value_fits_its_field(preset: Preset) -> None:
    text = preset_document(preset, demo="/data/demo folder")
    spec = parse_spec(text)
    assert "${" not in text
    assert spec.train["dataset_dir"] == "/data/demo folder/data"
    assert spec.name
    assert "#" in text, "comments of the body stay"
    from backend.planning.form_values import find_changes, load_form

    assert find_changes(load_form(text), open_form(text).values).errors == []


@pytest.mark.parametrize("preset", PRESETS, ids=IDS)
def test_header_says_estimate_and_what_was_tested(preset: Preset) -> None:
    assert "estimate" in preset.memory["en"]
    assert "估算" in preset.memory["zh"]
    assert all(preset.tested_on[language] for language in ("en", "zh"))


@pytest.mark.parametrize("preset", [preset for preset in PRESETS if preset.hardware != "cpu"], ids=str)
def test_gpu_presets_use_what_is_fast_and_documented(preset: Preset) -> None:
    spec = parse_spec(preset_document(preset, demo="/demo"))
    train = spec.train
    assert spec.processes == preset.gpus
    assert train["bf16"] is True
    assert train["flash_attn"] == "sdpa"
    assert train["enable_liger_kernel"] is True
    assert train.get("packing") is (True if train["stage"] == "sft" else None)
    assert "HSA_OVERRIDE_GFX_VERSION" not in spec.env
    assert "PYTORCH_ROCM_ARCH" not in spec.env
    assert spec.env["HIP_FORCE_DEV_KERNARG"] == "1"
    channels = "112" if preset.gpus == 8 and preset.hardware in ("mi300x", "mi325x") else None
    assert spec.env.get("NCCL_MIN_NCHANNELS") == channels
    if preset.gpus > 1:
        assert (spec.env["GPU_MAX_HW_QUEUES"], spec.env["TORCH_NCCL_HIGH_PRIORITY"]) == ("2", "1")
    if preset.method == "qlora":
        assert (train["quantization_bit"], spec.zero.stage) == (4, None)
    fits = MEMORY_GIB[preset.hardware] > (140 if "70b" in preset.name else 20)
    if preset.method in ("lora", "dpo"):
        assert spec.zero.stage == (None if fits else 3), "ZeRO-3 only where the model does not fit"


def test_cpu_demos_follow_what_works_on_a_cpu() -> None:
    single = parse_spec(load_preset("demo/cpu_sft_lora", demo=Path("/d")))
    double = parse_spec(load_preset("demo/cpu_sft_lora_zero3_2x", demo=Path("/d")))
    assert (single.train["bf16"], single.train["use_cpu"], single.zero.stage) == (True, True, None)
    assert (double.train.get("bf16"), double.train.get("use_cpu"), double.zero.stage) == (None, None, 3)
    assert double.processes == 2
    assert single.train["model_name_or_path"] == "/d/model"


def test_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(NotFound, match="demo/cpu_sft_lora"):
        load_preset("nope", demo=Path("/d"))


def test_header_without_a_line_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match=r"presets/x\.yaml.*title-zh"):
        parse_preset("x", "# title: A\nstage: sft\n")
