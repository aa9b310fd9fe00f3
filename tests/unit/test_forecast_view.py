"""What the New run page says of memory and speed before a launch, in both languages, and what "Apply" writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.domain.gpu import Device
from backend.errors import InvalidInput
from backend.planning.advice_texts import TEXTS as ADVICE
from backend.planning.spec import parse_spec
from backend.planning.workload import build_workload
from backend.services.api import Api
from backend.services.form import FormService
from backend.settings import load_settings
from ui.pages.forecast_view import build_forecast_view, gib
from ui.pages.new_run import TEXTS

CONFIG = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16",
}  # fmt: skip


def card(gibibytes: int) -> Device:
    return Device(id="0000:01:00.0", vendor="amd", name="AMD Instinct MI300X", vram_total_bytes=gibibytes << 30)


@pytest.fixture
def spec_text(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    rows = [{"instruction": "w" * 200, "input": "", "output": "w" * (100 + 20 * (i % 20))} for i in range(300)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    (tmp_path / "dataset_info.json").write_text(json.dumps({"rows": {"file_name": "rows.json"}}))
    return (
        f"# mine\nmodel_name_or_path: {tmp_path}\nstage: sft\nfinetuning_type: lora\nbf16: true\ntemplate: default\n"
        f"dataset: rows\ndataset_dir: {tmp_path}\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 8\n"
        "tunedeck:\n  zero:\n    stage: 3\n"
    )


def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *devices: Device) -> FormService:
    settings = load_settings({"TUNEDECK_DATA": str(tmp_path / "deck"), "TUNEDECK_TRAINING_PYTHON": "/nowhere/python"})
    made = FormService(Api(settings, start_worker=lambda _: None))
    monkeypatch.setattr(made, "_devices", lambda: devices)
    return made


@pytest.mark.parametrize(("gibibytes", "state"), [(192, "fits"), (4, "over")])
def test_the_bar_compares_with_the_card_of_this_host(
    tmp_path: Path, spec_text: str, monkeypatch: pytest.MonkeyPatch, gibibytes: int, state: str
) -> None:
    text = spec_text.replace("tunedeck:\n  zero:\n    stage: 3\n", "")
    forecast = service(tmp_path, monkeypatch, card(gibibytes)).forecast(text)
    assert forecast is not None and forecast.memory is not None
    memory = build_forecast_view(forecast, TEXTS["en"], on_gpu=True).memory
    assert memory is not None and memory.state == state
    assert f"{gibibytes:.0f}" in memory.title
    assert sum(bar.share for bar in memory.bars) == pytest.approx(
        forecast.memory.used / max(gibibytes << 30, forecast.memory.high)
    )
    assert memory.low < sum(bar.share for bar in memory.bars) < memory.high <= 1.0
    assert memory.capacity is not None and (memory.capacity < 1) == (state == "over")


def test_without_a_gpu_no_gain_is_named_and_no_verdict_given(
    tmp_path: Path, spec_text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forecast = service(tmp_path, monkeypatch).forecast(spec_text)
    assert forecast is not None
    view = build_forecast_view(forecast, TEXTS["en"], on_gpu=False)
    assert view.memory is not None and view.memory.state == "unknown" and view.memory.capacity is None
    assert view.advice and not any(advice.gain for advice in view.advice)
    assert view.headline == TEXTS["en"]["new.speed.some"]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_advice_says_its_gain_and_what_it_changes_in_the_result(
    tmp_path: Path, spec_text: str, monkeypatch: pytest.MonkeyPatch, lang: str
) -> None:
    forecast = service(tmp_path, monkeypatch, card(192)).forecast(spec_text)
    assert forecast is not None
    view = build_forecast_view(forecast, TEXTS[lang], on_gpu=True)
    shown = {advice.id: advice for advice in view.advice}
    assert {"packing_saves_padding", "zero3_unneeded"} <= shown.keys()
    packing = shown["packing_saves_padding"]
    assert packing.gain.endswith("×") and float(packing.gain[:-1]) > 2
    assert packing.effects and packing.reason and "{" not in packing.reason + packing.remedy
    chinese = any("\u4e00" <= letter <= "\u9fff" for letter in "".join(packing.effects))
    assert chinese == (lang == "zh")
    assert view.faster


def test_one_advice_or_all_are_written_into_the_document_and_comments_stay(
    tmp_path: Path, spec_text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = service(tmp_path, monkeypatch, card(192))
    one = form.faster_text(spec_text, "zero3_unneeded")
    assert parse_spec(one).zero.stage is None and "packing" not in one and "# mine" in one
    every = form.faster_text(spec_text)
    forecast = form.forecast(spec_text)
    assert forecast is not None
    assert build_workload(parse_spec(every)) == forecast.speed.best_work
    assert form.faster_text(spec_text, "no_such_advice") == spec_text


def test_a_document_that_cannot_be_read_has_no_forecast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    form = service(tmp_path, monkeypatch)
    assert form.forecast("a: [1") is None
    with pytest.raises(InvalidInput):
        form.faster_text("a: [1")


def test_every_advice_before_a_launch_has_a_title() -> None:
    titled = {key.removeprefix("advice.") for key in TEXTS["en"] if key.startswith("advice.")}
    assert titled <= set(ADVICE) | {"environment_preset"}


def test_sizes_are_short() -> None:
    assert [gib(size) for size in (0, 5 << 20, 1 << 30, 141 << 30)] == ["< 1 MiB", "5 MiB", "1.0 GiB", "141 GiB"]
