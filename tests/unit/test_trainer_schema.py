"""What an environment says of itself decides what is an error there."""

from __future__ import annotations

import json

from backend.domain.problem import Severity
from backend.planning.linting.context import LintContext
from backend.planning.linting.lint import lint_deepspeed_file, lint_train_yaml
from backend.planning.schema import Kind, nearest, parse_description
from backend.planning.schema_builtin import BUILTIN_SCHEMA

DESCRIBED = {
    "arguments": [
        {"name": "model_name_or_path", "group": "model", "kind": "str", "default": None, "choices": None},
        {
            "name": "evaluation_strategy",
            "group": "training",
            "kind": "str",
            "default": "no",
            "choices": ["no", "steps"],
        },
        {"name": "lora_rank", "group": "finetuning", "kind": "int", "default": 8},
        {"name": "output_dir", "group": "training", "kind": "str"},
        {"name": "strange", "group": "training", "kind": "no such kind", "loose": True},
    ],
    "templates": ["qwen"],
    "versions": {"deepspeed": "0.14.0", "flash-attn": None},
    "models": {"a/One": "qwen", "b/One": "llama3", "c/Two": "qwen", "d/Three": ""},
    "deepspeed": {
        "top_level": ["new_block"],
        "sections": {
            "zero_optimization": {"stage": {"fields": None}, "new_key": {}, "offload_param": {"fields": {"device": {}}}}
        },
        "optimizers": ["adam"],
    },
}
SCHEMA = parse_description(json.loads(json.dumps(DESCRIBED)))
CONTEXT = LintContext(schema=SCHEMA)


def errors(text: str, context: LintContext) -> list[str]:
    return [p.code for p in lint_train_yaml(text, context) if p.severity is Severity.ERROR]


def test_key_that_one_version_knows_is_fatal_in_another() -> None:
    text = "model_name_or_path: a\noutput_dir: b\nevaluation_strategy: steps\n"
    assert errors(text, CONTEXT) == []
    assert errors(text, LintContext()) == ["renamed_key"]


def test_description_is_read_with_tolerance() -> None:
    assert SCHEMA.arguments["lora_rank"].kind is Kind.INT
    assert SCHEMA.arguments["strange"].kind is Kind.TEXT
    assert parse_description({}).arguments == {}
    assert parse_description({"arguments": 3, "templates": None, "deepspeed": [], "models": 1}).arguments == {}


def test_versions_tell_missing_from_unknown() -> None:
    assert CONTEXT.lacks("flash-attn") is True
    assert CONTEXT.lacks("deepspeed") is False
    assert CONTEXT.lacks("badam") is None
    assert CONTEXT.version("deepspeed") == (0, 14, 0)


def test_deepspeed_keys_are_those_of_the_installed_version() -> None:
    content = {"zero_optimization": {"stage": 1, "new_key": 1, "mics_shard_size": 4}, "new_block": {}, "elasticity": {}}
    assert lint_deepspeed_file(content, CONTEXT) == []
    codes = {p.code for p in lint_deepspeed_file(content, LintContext())}
    assert codes == {"deepspeed_unknown_key", "removed_block", "deepspeed_key_ignored"}


def test_model_template_by_path_and_by_unambiguous_name() -> None:
    assert SCHEMA.model_templates == {"a/One": "qwen", "b/One": "llama3", "c/Two": "qwen", "Two": "qwen"}


def test_nearest_word_minds_neither_case_nor_dashes() -> None:
    assert nearest("Learning-Rate", BUILTIN_SCHEMA.arguments) == "learning_rate"
    assert nearest("zzz", BUILTIN_SCHEMA.arguments) is None
