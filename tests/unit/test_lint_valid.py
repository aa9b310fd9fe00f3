"""No false alarm: valid configs of every documented feature give no error, and only the warnings that belong to them."""

from __future__ import annotations

import time

import pytest

from backend.domain.problem import Severity
from backend.planning.importing.detect import Kind, detect_config
from backend.planning.linting.context import LintContext
from backend.planning.linting.lint import lint_train_yaml
from tests.unit.valid_configs import ALL

EXPECTED_WARNINGS: dict[str, set[str]] = {}


def test_there_are_configs_for_all_features() -> None:
    assert len(ALL) > 60


@pytest.mark.parametrize("name", ALL)
def test_valid_config_gives_no_error(name: str) -> None:
    problems = lint_train_yaml(ALL[name], LintContext())
    errors = [(p.code, p.field, p.found) for p in problems if p.severity is Severity.ERROR]
    warnings = {p.code for p in problems if p.severity is Severity.WARNING}
    assert errors == []
    assert warnings == EXPECTED_WARNINGS.get(name, set())


@pytest.mark.parametrize("name", ALL)
def test_valid_config_is_recognised(name: str) -> None:
    assert detect_config(ALL[name], f"{name}.yaml") is Kind.TRAIN
    assert detect_config(ALL[name]) is Kind.TRAIN


def test_linting_one_change_is_fast() -> None:
    text = ALL["lora_sft_eval"]
    lint_train_yaml(text, LintContext())
    started = time.process_time()
    for number in range(5):
        lint_train_yaml(text + f"# {number}\n", LintContext())
    assert (time.process_time() - started) / 5 < 0.05
