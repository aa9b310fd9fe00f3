"""Each rule finds its mistake, names the field, and its one-click fix takes the mistake away."""

from __future__ import annotations

import json

import pytest

from backend.domain.problem import Severity
from backend.planning.importing.imported import apply_fixes
from backend.planning.linting.context import LintContext
from backend.planning.linting.lint import lint_deepspeed_file, lint_train_yaml
from backend.services.importing import lint_text
from tests.unit.lint_cases import DEEPSPEED, SCRIPTS, TRAIN, WHOLE, Case, installed
from tests.unit.valid_configs import BASE


def text_of(case: Case) -> str:
    raw = case.changes.get("__raw")
    lines = [line for line in BASE.splitlines() if line.partition(":")[0] not in case.changes]
    lines += [f"{key}: {value}" for key, value in case.changes.items() if value is not None and key != "__raw"]
    return "\n".join([*lines, *([raw] if raw else [])]) + "\n"


def name_of(case: Case) -> str:
    return f"{case.code}:{','.join(k for k in case.changes if not k.startswith('__'))[-40:]}"


@pytest.mark.parametrize("case", TRAIN, ids=name_of)
def test_mistake_is_found_and_its_fix_takes_it_away(case: Case) -> None:
    text = text_of(case)
    problems = lint_train_yaml(text, case.context)
    found = [p for p in problems if p.code == case.code]
    assert found, [p.code for p in problems]
    for problem in found:
        assert problem.reason and problem.remedy
        assert "{" not in problem.reason.replace("{file_name", "") or "{" in problem.found
    fixable = [p for p in found if p.fix]
    if fixable:
        after = lint_train_yaml(apply_fixes(text, fixable), case.context)
        assert [p.code for p in after if p.code == case.code] == []


@pytest.mark.parametrize(("code", "text"), DEEPSPEED)
def test_mistake_in_a_deepspeed_file_is_found(code: str, text: str) -> None:
    problems = lint_text(text, filename="ds_config.json")
    assert code in [p.code for p in problems], [(p.code, p.field) for p in problems]


def test_sound_deepspeed_files_give_nothing() -> None:
    for content in (
        {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none"}}, "bf16": {"enabled": "auto"}},
        {
            "train_batch_size": "auto",
            "zero_optimization": {"stage": 2, "overlap_comm": False, "reduce_bucket_size": 5e8},
        },
        {
            "zero_optimization": {"stage": 0},
            "fp16": {"enabled": "auto", "loss_scale": 0},
            "zero_allow_untested_optimizer": True,
        },
        {"_comment": "x", "zero_optimization": {"stage": 2}, "tensor_parallel": {"autotp_size": 2}},
        {"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True, "sub_group_size": 1e9}},
    ):
        loaded = json.loads(json.dumps(content))
        assert lint_deepspeed_file(loaded, LintContext(), name="ds_config.json") == []


def test_file_name_that_promises_another_stage() -> None:
    problems = lint_text('{"zero_optimization": {"stage": 2}}', filename="ds_z3_config.json")
    assert [p.code for p in problems] == ["file_name_misleads"]


@pytest.mark.parametrize(("code", "text"), SCRIPTS)
def test_mistake_in_a_script_is_found(code: str, text: str) -> None:
    problems = lint_text(text, filename="run.sh")
    assert code in [p.code for p in problems], [(p.code, p.field) for p in problems]


def test_port_in_use_is_named() -> None:
    text = "torchrun --nproc_per_node 1 --master_port 29500 src/train.py a.yaml\n"
    problems = lint_text(text, filename="run.sh", context=LintContext(ports_in_use=frozenset({29500})))
    assert "port_busy" in [p.code for p in problems]


@pytest.mark.parametrize(("code", "name", "text"), WHOLE)
def test_file_that_cannot_be_a_train_config_is_named(code: str, name: str, text: str) -> None:
    problems = lint_text(text, filename=name)
    assert [p.code for p in problems if p.severity is Severity.ERROR] == [code]


def test_error_of_broken_yaml_has_its_line() -> None:
    problem = lint_text("stage: sft\ndo_train: true\ndataset: [a\noutput_dir: x\n", filename="a.yaml")[0]
    assert (problem.code, problem.line) == ("not_valid_yaml", 4)


def test_problems_carry_the_line_of_their_key() -> None:
    problems = lint_train_yaml(BASE + "compute_type: bf16\n", LintContext())
    (problem,) = [p for p in problems if p.code == "compute_type"]
    assert problem.line == BASE.count("\n") + 1


def test_known_missing_package_is_an_error_and_unknown_is_a_note() -> None:
    text = BASE + "enable_liger_kernel: true\n"
    unknown = {p.severity for p in lint_train_yaml(text, LintContext()) if p.code == "needs_package"}
    assert unknown == {Severity.NOTE}


def test_values_on_a_command_line_are_judged_like_those_in_a_file() -> None:
    text = "llamafactory-cli train --stage sft --do_train --model_name_or_path a --dataset b --num_train_epochs 400"
    assert "epochs_too_many" in [p.code for p in lint_text(text)]


@pytest.mark.parametrize(
    ("trl", "refused"), [("0.8.6", False), ("0.9.6", False), ("0.24.0", True), ("1.2.0", True), (None, False)]
)
def test_ppo_is_refused_only_where_the_environments_trl_is_known_to_be_too_new(trl: str | None, refused: bool) -> None:
    text = "stage: ppo\ndo_train: true\nreward_model: a\nmodel_name_or_path: m\ndataset: d\ntemplate: llama3\noutput_dir: o\n"
    codes = {problem.code for problem in lint_train_yaml(text, LintContext(schema=installed(trl=trl)))}
    assert ("ppo_trl_version" in codes) == refused
