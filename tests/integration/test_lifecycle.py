"""Jobs from submit to their end with real worker and supervisor processes; only the trainer is a stand-in."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from backend.domain.events import CheckpointSaved, StateChanged
from backend.domain.job import JobState, StopMode, TerminationReason
from backend.errors import Conflict, SpecRejected
from backend.services.dry_run import DryRunState
from tests.integration.conftest import Deck


def states(deck: Deck, job_id: str) -> list[JobState]:
    return [event.state for event in deck.api.read_events(job_id) if isinstance(event, StateChanged)]


def last_steps(deck: Deck, job_id: str) -> set[int]:
    """The step at which each rank ended."""
    steps = set()
    for path in deck.api.job_paths(job_id).recorder.glob("rank-*.jsonl"):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        steps.add(max(record["s"] for record in records if record["k"] == "step"))
    return steps


def test_run_goes_from_queue_to_success(deck: Deck) -> None:
    job = deck.api.submit(deck.spec(steps=5, seconds=0.3, save_steps=5))
    assert job.state is JobState.QUEUED
    deck.start_worker()
    job = deck.end(job.id)
    assert (job.state, job.reason, job.exit_code, job.step) == (JobState.SUCCEEDED, TerminationReason.COMPLETED, 0, 5)
    assert states(deck, job.id) == [JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.SUCCEEDED]
    assert [event.step for event in deck.api.read_events(job.id) if isinstance(event, CheckpointSaved)] == [5]
    assert deck.processes_of(job.id) == []


def test_stop_after_saving_ends_all_ranks_at_one_step(deck: Deck) -> None:
    job = deck.api.submit(deck.spec(steps=1000, seconds=0.02))
    deck.start_worker()
    deck.at_step(job.id, 3)
    deck.api.request_stop(job.id, StopMode.SAVE)
    job = deck.end(job.id)
    assert (job.state, job.reason) == (JobState.CANCELLED, TerminationReason.STOPPED_AFTER_SAVE)
    assert len(last_steps(deck, job.id)) == 1
    assert deck.api.last_checkpoint(job.id) == f"checkpoint-{job.step}"


@pytest.mark.parametrize("deaf", [False, True])
def test_stop_without_saving_ends_every_rank_even_deaf_ones(deck: Deck, deaf: bool) -> None:
    job = deck.api.submit(deck.spec(steps=1000, seconds=0.02, deaf=deaf))
    deck.start_worker()
    deck.at_step(job.id, 2)
    deck.api.request_stop(job.id, StopMode.NO_SAVE)
    job = deck.end(job.id)
    assert (job.state, job.reason) == (JobState.CANCELLED, TerminationReason.STOPPED_WITHOUT_SAVE)
    assert deck.processes_of(job.id) == []


def test_kill_now_may_follow_a_stop_that_hangs(deck: Deck) -> None:
    job = deck.api.submit(deck.spec(steps=1000, seconds=20, deaf=True))
    deck.start_worker()
    deck.until(job.id, lambda job: job.phase == "training")
    deck.api.request_stop(job.id, StopMode.SAVE)
    deck.api.request_stop(job.id, StopMode.KILL)
    job = deck.end(job.id)
    assert job.reason is TerminationReason.KILLED_BY_USER
    assert deck.processes_of(job.id) == []


def test_stop_before_the_first_step_does_not_wait_for_training(deck: Deck) -> None:
    job = deck.api.submit(deck.spec(tokenizing=60))
    deck.start_worker()
    deck.until(job.id, lambda job: job.phase == "tokenizing")
    deck.api.request_stop(job.id, StopMode.SAVE)
    job = deck.end(job.id)
    assert job.reason is TerminationReason.STOPPED_WITHOUT_SAVE
    assert "nothing to save" in job.message


def test_resume_is_a_new_job_that_goes_on_from_the_checkpoint(deck: Deck) -> None:
    job = deck.api.submit(deck.spec(steps=40, seconds=0.05))
    deck.start_worker()
    deck.at_step(job.id, 2)
    deck.api.request_stop(job.id, StopMode.SAVE)
    stopped = deck.end(job.id)
    child = deck.api.resume(job.id, deck.api.last_checkpoint(job.id))
    assert child.parent == job.id
    child = deck.end(child.id)
    assert (child.state, child.step) == (JobState.SUCCEEDED, 40)
    first = json.loads((deck.api.job_paths(child.id).recorder / "rank-0.jsonl").read_text().splitlines()[3])
    assert (first["k"], first["step"]) == ("train_begin", stopped.step)


def test_resume_from_what_is_no_complete_checkpoint_is_refused(deck: Deck) -> None:
    job = deck.api.submit(deck.spec(steps=2, seconds=0.01))
    deck.start_worker()
    deck.end(job.id)
    with pytest.raises(Conflict, match="checkpoint-7 is not a complete checkpoint"):
        deck.api.resume(job.id, "checkpoint-7")


def test_failed_rank_fails_the_job_with_its_error(deck: Deck) -> None:
    job = deck.api.submit(deck.spec(steps=50, seconds=0.01, fail_rank=1, fail_at=3))
    deck.start_worker()
    job = deck.end(job.id)
    assert (job.state, job.reason) == (JobState.FAILED, TerminationReason.TRAINER_FAILED)
    assert job.message == "RuntimeError: made to fail"


def test_queue_is_first_in_first_out_within_priority_and_can_be_changed(deck: Deck) -> None:
    first = deck.api.submit(deck.spec("first", steps=2, seconds=0.01))
    second = deck.api.submit(deck.spec("second", steps=2, seconds=0.01))
    third = deck.api.submit(deck.spec("third", steps=2, seconds=0.01))
    gone = deck.api.submit(deck.spec("gone", steps=2, seconds=0.01))
    urgent = deck.api.submit(deck.spec("urgent", steps=2, seconds=0.01))
    deck.api.set_priority(urgent.id, 5)
    deck.api.move(third.id, first.id)
    deck.api.cancel(gone.id)
    deck.start_worker()
    ended = [deck.end(job.id) for job in (urgent, third, first, second)]
    begun = [job.started_at for job in ended]
    assert all(time is not None for time in begun)
    assert begun == sorted(begun)  # two processes on two slots: strictly one after the other
    assert deck.api.get_job(gone.id).reason is TerminationReason.CANCELLED_IN_QUEUE


def test_jobs_run_side_by_side_when_slots_allow(deck: Deck) -> None:
    jobs = [deck.api.submit(deck.spec(f"side-{n}", processes=1, steps=1000, seconds=0.05)) for n in range(3)]
    deck.start_worker()
    for job in jobs[:2]:
        deck.until(job.id, lambda job: job.state is JobState.RUNNING)
    assert deck.api.get_job(jobs[2].id).state is JobState.QUEUED
    deck.api.request_stop(jobs[0].id, StopMode.KILL)
    deck.until(jobs[2].id, lambda job: job.state is JobState.RUNNING)


def test_program_that_cannot_be_started_is_a_launch_failure(deck: Deck) -> None:
    job = deck.api.submit(deck.spec(steps=2))
    assert deck.settings.training_python is not None
    deck.settings.training_python.chmod(0o644)
    deck.start_worker()
    job = deck.end(job.id)
    assert (job.state, job.reason) == (JobState.FAILED, TerminationReason.LAUNCH_FAILED)
    assert "stand-in-python" in job.message


def test_killed_rank_is_named_with_its_signal(deck: Deck) -> None:
    job = deck.api.submit(deck.spec(steps=1000, seconds=0.05))
    deck.start_worker()
    deck.at_step(job.id, 2)
    records = (deck.api.job_paths(job.id).recorder / "rank-1.jsonl").read_text().splitlines()
    os.kill(json.loads(records[1])["pid"], signal.SIGKILL)
    job = deck.end(job.id)
    assert (job.state, job.reason) == (JobState.FAILED, TerminationReason.KILLED_BY_SIGNAL)
    assert "SIGKILL (9)" in job.message
    assert deck.processes_of(job.id) == []


def test_rejected_job_leaves_nothing_behind(deck: Deck) -> None:
    before = sorted(path.name for path in deck.api.paths.jobs.iterdir())
    with pytest.raises(SpecRejected, match="model_name_or_path"):
        deck.api.submit("stage: sft\n")
    with pytest.raises(SpecRejected, match="does-not-exist"):
        deck.api.submit("model_name_or_path: /does-not-exist\n")
    assert sorted(path.name for path in deck.api.paths.jobs.iterdir()) == before
    assert deck.api.list_jobs()[0] == 0


@pytest.mark.parametrize("given", ["variable", "argument"])
def test_secret_values_reach_the_run_and_no_file_of_the_job(deck: Deck, given: str) -> None:
    text = deck.spec(steps=1000, seconds=0.05)
    if given == "variable":
        text = text.replace("  env:\n", "  env:\n    HF_TOKEN: hf_verysecret\n", 1)
    else:
        text += "hf_hub_token: hf_verysecret\n"
    job = deck.api.submit(text)
    deck.start_worker()
    deck.at_step(job.id, 1)
    environ = Path(f"/proc/{deck.processes_of(job.id)[0]}/environ").read_bytes()
    assert b"HF_TOKEN=hf_verysecret" in environ
    written = [path for path in deck.api.job_paths(job.id).root.rglob("*") if path.is_file()]
    assert len(written) > 5
    assert not [path for path in written if b"verysecret" in path.read_bytes()]
    assert deck.api.paths.secrets.stat().st_mode & 0o777 == 0o600


def test_first_check_of_an_installation_says_that_it_is_under_way(deck: Deck) -> None:
    """Nobody has described the training environment yet: that is begun, and the page asks again."""
    text = deck.spec()
    assert deck.api.final_check(text).state is DryRunState.CHECKING
    deadline = time.monotonic() + 60
    while (found := deck.api.final_check(text)).state is DryRunState.CHECKING:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert found.state is DryRunState.DONE
