"""Tokens and keys among the trainer's arguments become variables; nothing that is written shows them."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from backend.planning.command import Host, build_plan
from backend.planning.document import load_document
from backend.planning.linting.context import LintContext
from backend.planning.linting.lint import lint_train_yaml
from backend.planning.secret_arguments import VARIABLES
from backend.planning.spec import parse_spec
from backend.services.api import hide_secrets
from backend.services.form import command_line

VALUE = "hf_0123456789"
HOST = Host(python="/env/bin/python", entry="/td/train.py", accelerator="cpu", cpu_count=4)


@pytest.mark.parametrize(("argument", "variable"), VARIABLES.items())
def test_secret_argument_becomes_the_variable_its_library_reads(argument: str, variable: str) -> None:
    spec = parse_spec(f"stage: sft\n{argument}: {VALUE}\n")
    assert spec.train == {"stage": "sft"} and spec.env == {variable: VALUE}
    plan = build_plan(spec, job_id="j", job_dir="/jobs/j", host=HOST)
    assert VALUE not in json.dumps([dict(plan.files), plan.argv]) and plan.env[variable] == VALUE
    assert VALUE not in command_line(plan)


def test_argument_wins_over_the_variable_and_an_empty_one_says_nothing() -> None:
    env = "tunedeck: {env: {HF_TOKEN: hf_old, A: b}}\n"
    assert parse_spec(f"hf_hub_token: {VALUE}\n{env}").env == {"HF_TOKEN": VALUE, "A": "b"}
    assert parse_spec(f"hf_hub_token:\n{env}").env["HF_TOKEN"] == "hf_old"


def test_stored_document_keeps_all_but_the_secret() -> None:
    text = f"# mine\nstage: sft  # kept\nhf_hub_token: {VALUE}\nswanlab_api_key: {VALUE}\ntunedeck:\n  env: {{A: b}}\n"
    hidden = hide_secrets(text, parse_spec(text).env.keys() - {"A"})
    assert VALUE not in hidden and "# mine" in hidden and "# kept" in hidden
    assert load_document(hidden) == {
        "stage": "sft",
        "tunedeck": {"env": {"A": "b", "HF_TOKEN": "${secret}", "SWANLAB_API_KEY": "${secret}"}},
    }


@pytest.mark.parametrize("name", [*VARIABLES, "om_hub_token", "swanlab_lark_secret", "swanlab_lark_webhook_url"])
def test_finding_about_a_secret_never_shows_it(name: str) -> None:
    problems = lint_train_yaml(f"stage: sft\n{name}: {VALUE}\n", LintContext(launched_here=True))
    assert any(problem.field == name for problem in problems)
    assert VALUE not in json.dumps([asdict(problem) for problem in problems])
