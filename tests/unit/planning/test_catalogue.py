"""The field catalogue and its texts: every argument exists in the trainer, every field speaks both languages."""

from __future__ import annotations

import re

import pytest

from backend.domain.form import Kind, Level
from backend.planning.fields import COVERED, FIELDS, TEMPLATES
from backend.planning.schema_builtin import BUILTIN_SCHEMA
from backend.planning.spec import SECTION
from ui.text import fields_en, fields_zh

LANGUAGES = {"en": fields_en.TEXTS, "zh": fields_zh.TEXTS}
ISSUE_SWITCHES = {
    "stage", "finetuning_type", "lora_rank", "lora_alpha", "lora_dropout", "lora_target", "use_rslora", "use_dora",
    "pissa_init", "loraplus_lr_ratio", "freeze_trainable_layers", "oft_block_size", "quantization_bit", "template",
    "dataset", "dataset_dir", "mix_strategy", "interleave_probs", "cutoff_len", "packing", "neat_packing", "max_samples",
    "val_size", "num_train_epochs", "max_steps", "per_device_train_batch_size", "gradient_accumulation_steps",
    "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "optim", "weight_decay",
    "max_grad_norm", "bf16", "fp16", "pure_bf16", "flash_attn", "enable_liger_kernel", "disable_gradient_checkpointing",
    "torch_compile", "tunedeck.zero.stage", "tunedeck.zero.offload_optimizer", "tunedeck.zero.offload_param",
    "logging_steps", "eval_steps", "save_steps", "save_total_limit", "seed", "tunedeck.processes", "tunedeck.gpus",
    "pref_beta", "pref_loss", "kto_chosen_weight", "ppo_epochs", "reward_model", "tunedeck.env", "report_to",
    "resume_from_checkpoint", "*",
}  # fmt: skip


def test_every_switch_that_was_asked_for_has_a_field() -> None:
    assert not ISSUE_SWITCHES - COVERED


def test_every_argument_exists_in_the_trainer() -> None:
    known = set(BUILTIN_SCHEMA.arguments)
    assert len(known) > 300
    assert {name for name in COVERED if not name.startswith(SECTION) and name != "*"} - known == set()


def test_names_are_unique_and_no_argument_has_two_fields() -> None:
    arguments = [name for field in FIELDS for name in field.arguments]
    assert len(arguments) == len(set(arguments))
    assert len({field.name for field in FIELDS}) == len(FIELDS)


def test_simple_view_is_short() -> None:
    always = [field.name for field in FIELDS if field.level is Level.SIMPLE and not field.when]
    assert 12 <= len(always) <= 22


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_field_group_unit_and_choice_has_a_text(language: str) -> None:
    texts = LANGUAGES[language]
    wanted = {f"{kind}.{field.name}" for field in FIELDS for kind in ("field", "help")}
    wanted |= {f"group.{field.group.value}" for field in FIELDS}
    wanted |= {f"unit.{field.unit}" for field in FIELDS if field.unit}
    assert {name for name in wanted if not texts.get(name, "").strip()} == set()
    fields = {field.name: field for field in FIELDS}
    for key in texts:
        if key.startswith("choice."):
            name, _, value = key.removeprefix("choice.").rpartition(".")
            assert value in fields[name].choices, key


def test_both_languages_have_the_same_texts_and_the_chinese_are_chinese() -> None:
    assert fields_en.TEXTS.keys() == fields_zh.TEXTS.keys()
    assert [
        key for key, text in fields_zh.TEXTS.items() if key.startswith("help.") and not re.search("[一-鿿]", text)
    ] == []
    assert [key for key, text in fields_en.TEXTS.items() if re.search("[一-鿿]", text)] == []


def test_choices_are_known_where_the_field_is_closed() -> None:
    assert all(field.choices for field in FIELDS if field.kind is Kind.CHOICE)
    assert len(TEMPLATES) == len(set(TEMPLATES)) > 100
