"""The form's field catalogue against the installed trainer: arguments, choices, defaults and templates are its own."""

from __future__ import annotations

from typing import Any

import pytest

from backend.domain.form import Kind
from backend.planning.fields import FIELDS, TEMPLATES
from tests.integration.inside_run import INSIDE, inside, marked

pytestmark = pytest.mark.training

OTHER_DEFAULTS = {
    "quantization_bit": "the form says none where the trainer has no value",
    "rope_scaling": "the form says none where the trainer has no value",
    "packing": "the trainer packs by itself for pre-training only",
    "logging_steps": "the launcher's own default, so that short runs have points",
}


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    (found,) = marked(inside(INSIDE / "describe.py"), "TUNEDECK_DESCRIPTION ")
    return found


def test_every_field_is_an_argument_with_the_trainers_choices_and_default(description: dict[str, Any]) -> None:
    arguments = {argument["name"]: argument for argument in description["arguments"]}
    checked = 0
    for field in FIELDS:
        if field.name != field.arguments[0] or field.name.startswith("tunedeck."):
            continue
        argument = arguments[field.name]
        allowed = {str(choice) for choice in argument["choices"] or field.choices} | {"none"}
        assert {str(choice) for choice in field.choices} <= allowed, field.name
        if field.default is not None and field.name not in OTHER_DEFAULTS:
            assert str(argument["default"]) == str(field.default), field.name
        checked += 1
    assert checked > 95


def test_templates_optimizers_and_schedulers_are_those_of_the_trainer(description: dict[str, Any]) -> None:
    offered = {field.name: set(field.choices) for field in FIELDS if field.kind in (Kind.CHOICE, Kind.OPEN_CHOICE)}
    assert set(TEMPLATES) == set(description["templates"])
    assert offered["optim"] <= set(description["optimizers"])
    assert offered["lr_scheduler_type"] <= set(description["schedulers"])
    assert offered["tool_format"] == set(description["tool_formats"])
