"""The whole chain with real LLaMA-Factory and DeepSpeed on the CPU: worker, supervisor, torchrun, recorder, end."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from backend.domain.job import Job, JobState, StopMode, TerminationReason
from backend.planning.spec import apply_changes
from backend.services.presets import load_preset
from backend.services.profile import load_profile
from tests.conftest import TRAINING_PYTHON
from tests.integration.conftest import Deck
from tests.integration.test_kill_anywhere import launcher_of, rank_of, records, supervisor_of

pytestmark = pytest.mark.training

SECONDS = 400.0


def two_ranks(demo: Path, **changes: object) -> str:
    """The demo preset: LoRA, ZeRO-3, two ranks."""
    return apply_changes(load_preset("demo/cpu_sft_lora_zero3_2x", demo=demo), {"save_steps": 1000, **changes})  # type: ignore[dict-item]


def losses(deck: Deck, job: Job) -> dict[int, float]:
    found = [record for record in records(deck.api.job_paths(job.id), 0) if record["k"] == "log"]
    return {int(str(r["s"])): r["v"]["loss"] for r in found if "loss" in r["v"]}  # type: ignore[index, operator]


def steps(deck: Deck, job: Job, rank: int) -> list[int]:
    return [int(str(r["s"])) for r in records(deck.api.job_paths(job.id), rank) if r["k"] == "step"]


def check_profile(deck: Deck, job_id: str) -> None:
    """A profile of 3 steps of a running job: every rank answers for the same steps, and its sums are those of torch's table."""
    deck.api.request_profile(job_id)
    asked_at = deck.api.clock()
    deck.until(job_id, lambda job: load_profile(deck.api.job_paths(job_id)).answers(asked_at - 5), SECONDS)
    first, second = load_profile(deck.api.job_paths(job_id)).ranks
    assert (first.error, second.error) == ("", "")
    assert (
        first.first is not None
        and first.last == first.first + 2
        and (second.first, second.last) == (first.first, first.last)
    )
    assert first.shares and first.shares["communication"] > 0, "ZeRO-3 gathers its parameters"
    assert first.seconds == pytest.approx(dict(first.table_seconds or {}), rel=0.02)


def test_zero3_stop_resume_and_pasted_command(real_deck: Deck, demo_inputs: Path) -> None:
    """One story, for each start costs half a minute: stop with a checkpoint, resume to the end, repeat it from a shell."""
    job = real_deck.api.submit(two_ranks(demo_inputs, max_steps=400))
    real_deck.start_worker()
    real_deck.until(job.id, lambda job: (job.step or 0) >= 5, SECONDS)
    check_profile(real_deck, job.id)
    real_deck.api.request_stop(job.id, StopMode.SAVE)
    job = real_deck.end(job.id, SECONDS)
    assert (job.state, job.reason, job.exit_code) == (JobState.CANCELLED, TerminationReason.STOPPED_AFTER_SAVE, 0)
    assert steps(real_deck, job, 0) == steps(real_deck, job, 1), "all ranks stopped at the same step"
    name = real_deck.api.last_checkpoint(job.id)
    assert name == f"checkpoint-{job.step}"
    shards = list((real_deck.api.job_paths(job.id).output / name).glob("global_step*/*optim_states.pt"))
    assert len(shards) == 2, "a ZeRO checkpoint of two ranks"

    assert job.step is not None
    child = real_deck.api.resume(job.id, name, {"max_steps": job.step + 5})
    child = real_deck.end(child.id, SECONDS)
    assert (child.state, child.parent) == (JobState.SUCCEEDED, job.id)
    assert steps(real_deck, child, 1) == list(range(job.step + 1, job.step + 6)), "went on at the right step"
    adapter = real_deck.api.job_paths(child.id).output / "adapter_model.safetensors"
    assert adapter.stat().st_size > 1000

    pasted = subprocess.run(["bash", "-c", real_deck.api.export(child.id).shell], capture_output=True, timeout=SECONDS)
    assert pasted.returncode == 0, pasted.stderr[-2000:]
    rerun = real_deck.api.job_paths(child.id).root / "rerun"
    log = [json.loads(line) for line in (rerun / "trainer_log.jsonl").read_text().splitlines()]
    again = {row["current_steps"]: row["loss"] for row in log if "loss" in row}
    assert again == pytest.approx(losses(real_deck, child), rel=1e-3), "the pasted command trains the same"


def test_plain_command_line_of_llamafactory_trains_too(real_deck: Deck, demo_inputs: Path) -> None:
    text = apply_changes(
        load_preset("demo/cpu_sft_lora", demo=demo_inputs), {"max_steps": 4, "save_steps": 4, "eval_steps": 4}
    )
    job = real_deck.api.submit(text)
    real_deck.start_worker()
    assert real_deck.end(job.id, SECONDS).state is JobState.SUCCEEDED
    command = real_deck.api.export(job.id).llamafactory_cli
    assert any(part.endswith("/llamafactory-cli") for part in shlex.split(command))
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-2000:]


POINTS = [0, 1, *(pytest.param(point, marks=pytest.mark.long) for point in range(2, 20))]
"""Seeds of kill points: two of each kind always, twenty with scripts/test --long."""


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    ("victim", "state", "reason"),
    [
        (supervisor_of, JobState.LOST, TerminationReason.SUPERVISOR_VANISHED),
        (launcher_of, JobState.FAILED, TerminationReason.KILLED_BY_SIGNAL),
        (rank_of, JobState.FAILED, TerminationReason.KILLED_BY_SIGNAL),
    ],
    ids=["supervisor", "launcher", "rank"],
)
def test_killed_process_of_a_real_run(real_deck: Deck, demo_inputs: Path, victim, state, reason, point: int) -> None:  # type: ignore[no-untyped-def]
    """Even points: from when it loads on; odd points: while it trains."""
    job = real_deck.api.submit(two_ranks(demo_inputs, max_steps=2000))
    paths = real_deck.api.job_paths(job.id)
    real_deck.start_worker()
    ready = "loading" if point % 2 == 0 else "training"
    real_deck.until(job.id, lambda job: job.phase == ready and rank_of(paths) is not None, SECONDS)
    time.sleep(random.Random(f"{victim.__name__}{point}").uniform(0, 2 if point < 2 else 10))
    pid = victim(paths)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    job = real_deck.end(job.id, SECONDS)
    assert (job.state, job.reason) == (state, reason)
    assert real_deck.processes_of(job.id) == []


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
def test_killed_worker_leaves_a_real_run_alone(real_deck: Deck, demo_inputs: Path, kills: int) -> None:
    job = real_deck.api.submit(two_ranks(demo_inputs, max_steps=20))
    chance = random.Random(11)
    for _ in range(kills):
        worker = real_deck.start_worker()
        time.sleep(chance.uniform(2, 6))
        worker.kill()
        worker.wait()
    real_deck.start_worker()
    job = real_deck.end(job.id, SECONDS)
    assert (job.state, job.step) == (JobState.SUCCEEDED, 20)
    assert steps(real_deck, job, 0) == list(range(1, 21))


def test_trainer_error_is_told_in_its_own_words(real_deck: Deck, demo_inputs: Path) -> None:
    job = real_deck.api.submit(two_ranks(demo_inputs, lora_target="no_such_module", **{"tunedeck.processes": 1}))
    real_deck.start_worker()
    job = real_deck.end(job.id, SECONDS)
    assert (job.state, job.reason) == (JobState.FAILED, TerminationReason.TRAINER_FAILED)
    assert "No modules were targeted for adaptation" in job.message  # peft's own words


def test_training_environment_is_the_real_one() -> None:
    code = "import torch, transformers, deepspeed; print(transformers.__version__)"
    assert subprocess.run([str(TRAINING_PYTHON), "-c", code], capture_output=True).returncode == 0
