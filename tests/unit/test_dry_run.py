"""The trainer's own check: asked in the background, cached by content, its words turned into our Problems."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.adapters.process import ToolResult
from backend.domain.environment import TrainingEnvironment
from backend.domain.launch import LaunchPlan
from backend.domain.problem import Severity
from backend.planning.linting.dry_run import translate_findings
from backend.services.dry_run import DryRuns, DryRunState, digest_of, unavailable_problem

ENVIRONMENT = TrainingEnvironment(name="t", python="/opt/t/bin/python", accelerator="rocm")


def plan(text: str = "stage: sft\n", job_dir: str = "/jobs/1") -> LaunchPlan:
    return LaunchPlan(
        job_id="1",
        job_dir=job_dir,
        argv=("python",),
        env={},
        unset=(),
        cwd=job_dir,
        files={"train.yaml": text + f"output_dir: {job_dir}/output\n"},
        processes=2,
    )


def answer(errors: list[dict[str, str]] | None = None, **facts: object) -> bytes:
    report = {"file": "x", "ok": not errors, "errors": errors or [], "warnings": [], "facts": facts, "seconds": 1.5}
    return b"a package prints its own line\nTUNEDECK_DRY_RUN " + json.dumps(report).encode() + b"\n"


class FakeTool:
    """Answers each call with the next output; waits for `gate` when there is one."""

    def __init__(self, *outputs: bytes, gate: threading.Event | None = None) -> None:
        self.outputs, self.gate, self.calls = list(outputs), gate, []  # type: ignore[var-annotated]

    def __call__(self, argv: list[str], *, cwd: Path, **_: Any) -> ToolResult:
        self.calls.append((argv, (cwd / "train.yaml").read_text()))
        if self.gate is not None:
            assert self.gate.wait(5)
        out = self.outputs.pop(0) if len(self.outputs) > 1 else self.outputs[0]
        return ToolResult(exit_code=0, stdout=out, stderr=b"Traceback\nImportError: no torch\n", timed_out=False)


def wait_for(runs: DryRuns, wanted: LaunchPlan) -> DryRunState:
    for _ in range(500):
        state = runs.request(wanted, ENVIRONMENT).state
        if state is not DryRunState.CHECKING:
            return state
        threading.Event().wait(0.01)
    return DryRunState.CHECKING


def test_request_says_checking_and_then_gives_the_answer() -> None:
    gate = threading.Event()
    tool = FakeTool(answer(model_type="llama"), gate=gate)
    runs = DryRuns(run=tool)
    assert runs.request(plan(), ENVIRONMENT).state is DryRunState.CHECKING
    gate.set()
    assert wait_for(runs, plan()) is DryRunState.DONE
    found = runs.request(plan(), ENVIRONMENT)
    assert found.facts["model_type"] == "llama"
    assert len(tool.calls) == 1


def test_same_content_in_another_job_folder_is_asked_once() -> None:
    tool = FakeTool(answer())
    runs = DryRuns(run=tool)
    runs.check(plan(), ENVIRONMENT)
    runs.check(plan(job_dir="/jobs/2"), ENVIRONMENT)
    assert len(tool.calls) == 1
    assert "/jobs/1" not in tool.calls[0][1]


def test_changed_content_environment_or_data_is_asked_again(tmp_path: Path) -> None:
    base = digest_of(plan(), ENVIRONMENT)
    assert digest_of(plan("stage: dpo\n"), ENVIRONMENT) != base
    assert digest_of(plan(), replace(ENVIRONMENT, accelerator="cpu")) != base
    assert digest_of(replace(plan(), processes=4), ENVIRONMENT) != base
    with_data = plan(f"dataset_dir: {tmp_path}\n")
    before = digest_of(with_data, ENVIRONMENT)
    (tmp_path / "dataset_info.json").write_text("{}")
    assert digest_of(with_data, ENVIRONMENT) != before


def test_while_one_check_runs_only_the_last_request_waits() -> None:
    gate = threading.Event()
    tool = FakeTool(answer(), gate=gate)
    runs = DryRuns(run=tool)
    for number in range(5):
        runs.request(plan(f"seed: {number}\n"), ENVIRONMENT)
    gate.set()
    assert wait_for(runs, plan("seed: 4\n")) is DryRunState.DONE
    assert [text.splitlines()[0] for _, text in tool.calls] == ["seed: 0", "seed: 4"]


def test_trainer_that_cannot_be_asked_is_a_note_with_the_reason() -> None:
    found = DryRuns(run=FakeTool(b"nothing useful\n")).check(plan(), ENVIRONMENT)
    assert found.state is DryRunState.UNAVAILABLE
    problem = unavailable_problem(found)
    assert problem is not None and problem.severity is Severity.NOTE
    assert "ImportError: no torch" in problem.reason


@pytest.mark.parametrize(
    ("message", "code", "field"),
    [
        ("Some keys are not used by the HfArgumentParser: ['--lr', 'a']", "unknown_key", "lr"),
        ("`use_dora` is only valid for LoRA training.", "lora_only_option", "use_dora"),
        ("--save_steps must be an integer if bigger than 1: 1.5", "steps_not_whole", "save_steps"),
        ("Template llama9 does not exist.", "template_unknown", "template"),
        ("Undefined dataset abc in dataset_info.json.", "dataset_undefined", "dataset"),
        ("No package metadata was found for The 'badam>=1.2.1' distribution was not found", "package_missing", "badam"),
        ("Please specify `max_steps` in streaming mode.", "streaming_without_max_steps", "max_steps"),
        (
            "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided",
            "deepspeed_batch_missing",
            "deepspeed.train_micro_batch_size_per_gpu",
        ),
    ],
)
def test_refusal_of_the_trainer_gets_our_code(message: str, code: str, field: str) -> None:
    problem = translate_findings([{"stage": "parse", "type": "ValueError", "message": message}], [])[0]
    assert (problem.code, problem.field, problem.severity) == (code, field, Severity.ERROR)
    assert problem.evidence


def test_hub_model_that_is_not_cached_is_no_error() -> None:
    message = (
        "We couldn't connect to 'https://hub.invalid' to load the files, and couldn't find them in the cached files."
    )
    (problem,) = translate_findings([{"stage": "model", "type": "OSError", "message": message}], [])
    assert (problem.code, problem.severity) == ("hub_not_cached", Severity.NOTE)


def test_unknown_words_of_the_trainer_are_kept() -> None:
    problems = translate_findings(
        [{"stage": "data", "message": "KeyError: 'answr'", "dataset": "a"}], [{"stage": "data", "message": "slow"}]
    )
    assert [(p.code, p.field) for p in problems] == [("trainer_refuses", "dataset"), ("trainer_warns", "")]
    assert "'answr'" in problems[0].reason
