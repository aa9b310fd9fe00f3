"""Document <-> widgets: what the form shows is what the document says, and only what a person changes is written."""

from __future__ import annotations

import pytest

from backend.domain.form import FormValue
from backend.planning.fields import FIELDS
from backend.services.form import edit_text, open_form, show_text

DOCUMENT = """\
tunedeck:
  env: {A: no, B: 1}       # as written
  zero: {stage: 3, offload_optimizer: cpu}
  gpus: ["0000:c1:00.0"]
model_name_or_path: /m   # keep me
stage: sft
learning_rate: 2e-5
bf16: true
dataset: a,b
quantization_bit: 4
disable_gradient_checkpointing: true
lora_target: [q_proj, v_proj]
dataloader_persistent_workers: false
lr_scheduler_kwargs: {min_lr: 1e-6}
max_steps: 100
"""


def change(**values: FormValue) -> str:
    shown = dict(open_form(DOCUMENT).values)
    return edit_text(DOCUMENT, shown | {name.replace("__", "."): value for name, value in values.items()}).text


def test_document_is_shown_as_it_is() -> None:
    values = open_form(DOCUMENT).values
    assert values["tunedeck.env"] == "A=no\nB=1"
    assert values["zero_stage"] == "3"
    assert values["offload_optimizer"] == "cpu"
    assert values["tunedeck.gpus"] == ["0000:c1:00.0"]
    assert values["learning_rate"] == "2e-5"
    assert values["precision"] == "bf16"
    assert values["dataset"] == ["a", "b"]
    assert values["quantization_bit"] == "4"
    assert values["gradient_checkpointing"] is False
    assert values["lora_target"] == "q_proj, v_proj"
    assert values["extra"] == "dataloader_persistent_workers: false"
    assert values["lr_scheduler_kwargs"] == "{min_lr: 1.0e-6}"
    assert values["max_steps"] == 100
    assert values["stage"] == "sft"
    assert values["packing"] is False
    assert values["num_train_epochs"] == ""


def test_untouched_form_changes_nothing() -> None:
    edited = edit_text(DOCUMENT, open_form(DOCUMENT).values)
    assert edited.text == DOCUMENT
    assert edited.errors == ()


@pytest.mark.parametrize(
    ("values", "present", "absent"),
    [
        ({"learning_rate": "1e-4"}, ["learning_rate: 1.0e-4"], []),
        ({"learning_rate": ""}, [], ["learning_rate"]),
        ({"precision": "fp16"}, ["fp16: true"], ["bf16"]),
        ({"precision": "fp32"}, [], ["bf16"]),
        ({"precision": "pure_bf16"}, ["pure_bf16: true"], ["\nbf16"]),
        ({"gradient_checkpointing": True}, [], ["disable_gradient_checkpointing"]),
        ({"zero_stage": "2"}, ["zero: {stage: 2, offload_optimizer: cpu}"], []),
        ({"zero_stage": "none"}, [], ["zero"]),
        ({"offload_optimizer": "none"}, ["zero: {stage: 3}"], ["offload"]),
        ({"quantization_bit": "none"}, [], ["quantization_bit"]),
        ({"quantization_bit": "8"}, ["quantization_bit: 8"], []),
        ({"dataset": ["b", "c"]}, ["dataset: b,c"], []),
        ({"tunedeck__env": "A=no\nexport C=x y"}, ["env: {A: no, C: x y}"], ["B: 1"]),
        ({"extra": "tf32: false\nadam_epsilon: 1e-6"}, ["tf32: false", "adam_epsilon: 1.0e-6"], ["persistent"]),
        ({"max_steps": None, "num_train_epochs": "2"}, ["num_train_epochs: 2"], ["max_steps"]),
        ({"save_strategy": "no"}, ['save_strategy: "no"'], []),
        ({"packing": True}, ["packing: true"], []),
        ({"tunedeck__gpus": []}, [], ["gpus"]),
        ({"tunedeck__tags": ["a", "b"]}, ["tags: [a, b]"], []),
        ({"lr_scheduler_kwargs": "{min_lr: 0}"}, ["lr_scheduler_kwargs: {min_lr: 0}"], []),
    ],
)
def test_changed_widgets_are_written_in_the_trainers_words(
    values: dict[str, FormValue], present: list[str], absent: list[str]
) -> None:
    text = change(**values)
    assert [part for part in present if part not in text] == []
    assert [part for part in absent if part in text] == []
    assert "/m   # keep me" in text


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"learning_rate": "fast"}, "a number, 0 or more"),
        ({"learning_rate": "-1"}, "a number, 0 or more"),
        ({"lora_dropout": "1.5"}, "a number from 0 to 1"),
        ({"lora_rank": 0}, "a whole number, 1 or more"),
        ({"extra": "a: ["}, "line 1, column 5"),
        ({"extra": "learning_rate: 1"}, "learning_rate has a field of its own"),
        ({"tunedeck__env": "just words"}, "`NAME=value` lines"),
        ({"tunedeck__env": 'A="open'}, "a closed quote"),
        ({"lr_scheduler_kwargs": "{a"}, "a YAML value"),
    ],
)
def test_impossible_widget_is_named_and_the_document_stays(values: dict[str, FormValue], expected: str) -> None:
    shown = dict(open_form(DOCUMENT).values)
    edited = edit_text(DOCUMENT, shown | {name.replace("__", "."): value for name, value in values.items()})
    assert edited.text == DOCUMENT
    assert [expected in error.expected for error in edited.errors] == [True]


def test_value_that_the_form_cannot_show_survives_other_edits() -> None:
    text = "stage: sft\nlearning_rate: quick\npacking: maybe\nlora_rank: [1]\nmax_steps: -1\nsave_strategy: no\n"
    values = dict(open_form(text).values)
    edited = edit_text(text, values | {"seed": 7})
    assert [line for line in edited.text.splitlines() if line != "seed: 7"] == text.splitlines()
    assert "seed: 7" in edited.text
    assert [error.field for error in edited.errors] == ["learning_rate"]


def test_lines_of_variables_keep_quotes_blanks_and_line_breaks() -> None:
    text = 'tunedeck:\n  env: {A: "a\\nb", B: " x ", C: "", D: \'"q"\'}\n'
    values = dict(open_form(text).values)
    assert edit_text(text, values).text == text
    again = edit_text("stage: sft\n", {"tunedeck.env": values["tunedeck.env"]}).text
    assert open_form(again).values["tunedeck.env"] == values["tunedeck.env"]


def test_fields_show_only_where_they_are_of_use() -> None:
    lora = open_form("stage: sft\nfinetuning_type: lora\n").visible
    full = open_form("stage: sft\nfinetuning_type: full\n").visible
    dpo = open_form("stage: dpo\npref_loss: simpo\n").visible
    assert {"lora_rank", "quantization_bit"} <= lora
    assert not {"lora_rank", "quantization_bit", "freeze_trainable_layers"} & full
    assert {"pref_beta", "simpo_gamma"} <= dpo
    assert not {"simpo_gamma", "dpo_label_smoothing"} & lora
    assert "dpo_label_smoothing" not in dpo


def test_every_condition_names_a_field_and_values_it_can_have() -> None:
    known = {field.name: field for field in FIELDS}
    checked = 0
    for field in FIELDS:
        for condition in field.when:
            target = known[condition.field]
            assert set(condition.values) <= set(target.choices or (True, False)), field.name
            checked += 1
    assert checked > 60


def test_defaults_are_possible_and_shown_as_people_write_them() -> None:
    for field in FIELDS:
        assert not field.choices or field.default is None or field.default in field.choices, field.name
    assert show_text(5e-5) == "5e-5"
    assert show_text(True) == "true"
