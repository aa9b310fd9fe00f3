"""The lint rules against the trainer itself: what we call valid it accepts, what we call an error it refuses."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from backend.planning.spec import parse_spec
from backend.services.dry_run import MARK, SCRIPT, DryRunState
from backend.services.environments import Environments
from backend.services.row_lengths import RowLengths
from backend.settings import REPOSITORY
from backend.store.paths import DataPaths
from tests.integration.conftest import Deck
from tests.unit.lint_cases import TRAIN
from tests.unit.test_lint_rules import text_of
from tests.unit.valid_configs import CHANGES, config_text

PYTHON = REPOSITORY / ".venv-training" / "bin" / "python"
pytestmark = [
    pytest.mark.training,
    pytest.mark.skipif(not PYTHON.exists(), reason="no training environment (scripts/setup --training)"),
]

Z3 = {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}
ONE_PROCESS_ONLY = {"galore", "apollo", "badam"}
"""Valid without torchrun on one GPU only; the check stands in for torchrun."""
LATE = {
    "missing_key:output_dir",
    "attention_fa3",
    "attention_broken",
    "wrong_type",
    "quantization_bits",
    "quantized_with_zero3",
    "dora_on_quantized",
    "several_adapters_zero3",
    "neat_packing_batch",
    "neat_packing_template",
    "reporter_unknown",
    "out_of_range",
    "ppo_option",
    "package_missing",
    "deepspeed_config_missing",
    "model_path_missing",
    "path_missing",
    "dataset_undefined",
    "visibility_conflict",
}
"""Errors that the trainer finds only when it loads model or data: `--parse-only` cannot show them."""


OURS = {"secret_argument", "secret_arguments_differ", "secret_without_variable"}
"""Refused by us alone: the trainer would write these values into its files."""


def ask(folder: Path, names: list[str]) -> dict[str, list[str]]:
    command = [str(PYTHON), str(SCRIPT), "--parse-only", "--accelerator", "rocm", *names]
    out = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400).stdout
    answers = [json.loads(line.removeprefix(MARK)) for line in out.splitlines() if line.startswith(MARK)]
    return {Path(a["file"]).stem: [error["message"] for error in a["errors"]] for a in answers}


def test_valid_configs_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "examples" / "deepspeed").mkdir(parents=True)
    for name, stage in (("ds_z3_config.json", 3), ("ds_z2_offload_config.json", 2)):
        content = {**Z3, "zero_optimization": {"stage": stage}}
        (tmp_path / "examples" / "deepspeed" / name).write_text(json.dumps(content))
    for name in CHANGES:
        (tmp_path / f"{name}.yaml").write_text(config_text(name))
    answers = ask(tmp_path, [f"{name}.yaml" for name in CHANGES])
    assert set(answers) == set(CHANGES)
    missing = {name for name, errors in answers.items() if any("distribution was not found" in e for e in errors)}
    old_trl = {name for name, errors in answers.items() if errors and all("needs trl" in error for error in errors)}
    assert old_trl == {"lora_ppo"}, "valid, but for a trl that this environment's other stages cannot use"
    here = missing | ONE_PROCESS_ONLY | old_trl
    refused = {name: errors for name, errors in answers.items() if errors and name not in here}
    refused.pop("described_tokens", None)  # the file it names is not there
    assert refused == {}


def test_errors_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ds_z3_config.json").write_text(json.dumps(Z3))
    wanted = [(number, case) for number, case in enumerate(TRAIN) if case.code in ERRORS]
    for number, case in wanted:
        text = "\n".join(line for line in text_of(case).splitlines() if not line.startswith("tunedeck:"))
        (tmp_path / f"{number}.yaml").write_text(text)
    answers = ask(tmp_path, [f"{number}.yaml" for number, _ in wanted])
    accepted = [(case.code, dict(case.changes)) for number, case in wanted if not answers[str(number)]]
    assert [pair for pair in accepted if pair[0] not in LATE | OURS and pair[1] != {"output_dir": None}] == []


def _error_codes() -> set[str]:
    from backend.domain.problem import Severity
    from backend.planning.linting.lint import lint_train_yaml

    return {
        problem.code
        for case in TRAIN
        for problem in lint_train_yaml(text_of(case), case.context)
        if problem.severity is Severity.ERROR
    }


ERRORS = _error_codes()


def test_final_check_finds_what_only_the_trainer_can_know(real_deck: Deck) -> None:
    text = (
        f"model_name_or_path: {real_deck.model}\nstage: sft\nfinetuning_type: lora\nlora_target: no_such_layer\n"
        f"dataset: demo\ndataset_dir: {real_deck.model.parent}/data\ntemplate: default\nlearning_rate: 1.0e-4\n"
    )
    real_deck.api.environments.describe()
    started = time.monotonic()
    found = real_deck.api.final_check(text, wait=True)
    seconds = time.monotonic() - started
    assert found.state is DryRunState.DONE
    assert any("no_such_layer" in problem.reason for problem in found.problems)
    assert seconds < 60  # 5 s on an idle machine with two cores
    sound = real_deck.api.final_check(text.replace("no_such_layer", "q_proj"), wait=True)
    assert (sound.state, sound.problems) == (DryRunState.DONE, ())
    assert real_deck.api.final_check(text + "made_up: 1\n", wait=True).state is DryRunState.SKIPPED


def test_rows_are_counted_by_the_trainer_on_a_host_with_gpus_and_by_the_final_check(real_deck: Deck) -> None:
    text = (
        f"model_name_or_path: {real_deck.model}\nstage: sft\nfinetuning_type: lora\ndataset: demo,demo_chat\n"
        f"dataset_dir: {real_deck.model.parent}/data\ntemplate: chatml\nlearning_rate: 1.0e-4\n"
    )
    spec, lengths = parse_spec(text), real_deck.api.row_lengths
    assert lengths.known(spec, []).estimate  # type: ignore[union-attr]
    assert real_deck.api.final_check(text, wait=True).problems == ()
    kept = lengths.known(spec, [])
    assert kept is not None and not kept.estimate
    on_gpus = OnGpus(real_deck.api.paths, real_deck.api.environments)
    assert on_gpus.count(parse_spec(text + "bf16: true\n")) == kept


class OnGpus(RowLengths):
    """The same environment as it would be on a GPU host: bf16 is asked for, and no GPU is to be seen by the check."""

    def __init__(self, paths: DataPaths, environments: Environments) -> None:
        super().__init__(paths, environments)
        described = replace(environments.describe(), accelerator="rocm")
        self.environments = cast(Environments, SimpleNamespace(describe=lambda _name: described))
