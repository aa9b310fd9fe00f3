"""Sweeps: which combinations are trained, what is refused, which runs stop early, and how the runs compare."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from backend.domain.events import CheckpointSaved
from backend.domain.job import JobState, TerminationReason
from backend.errors import Conflict, InvalidInput, NotFound, SpecRejected
from backend.planning.spec import parse_spec
from backend.planning.sweep_ranges import parse_range
from backend.planning.sweeping import MOST_JOBS, Range, Trace, build_combinations, runs_to_stop
from backend.services.api import Api, Preview
from backend.services.sweep_view import describe_sweep
from backend.services.sweeps import Sweeps
from backend.store.events import append_event
from tests.checkpoint_files import write_checkpoint
from tests.job_folders import add_job, open_api
from tests.recorder_files import RecorderFiles

SPEC = "# mine\nmodel_name_or_path: m\ndataset: d\neval_strategy: steps\ntunedeck:\n  name: Demo\n  tags: [old]\n"


# ---- ranges ----


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1e-5,1e-4", (1e-5, 1e-4)),
        ("8, 16,16", (8, 16)),
        ("true,false", (True, False)),
        ("cosine,linear", ("cosine", "linear")),
        ("q_proj,v_proj;all", ("q_proj,v_proj", "all")),
    ],
)
def test_values_are_read_as_the_trainer_reads_them(text: str, values: tuple[object, ...]) -> None:
    assert parse_range("key", text).values == values


@pytest.mark.parametrize("text", ["", "1,,2", "3..1", "0..1:log", "1..1"])
def test_a_range_that_cannot_be_read_names_its_setting(text: str) -> None:
    with pytest.raises(InvalidInput, match="learning_rate"):
        build_combinations([parse_range("learning_rate", text)], samples=3)


def test_a_grid_is_every_combination_and_a_span_needs_samples() -> None:
    grid = build_combinations([parse_range("a", "1,2"), parse_range("b", "x,y,z")])
    assert len(grid) == 6 and grid[0] == {"a": 1, "b": "x"} and grid[-1] == {"a": 2, "b": "z"}
    with pytest.raises(InvalidInput, match="samples"):
        build_combinations([parse_range("a", "1..5")])
    with pytest.raises(InvalidInput, match="at least one"):
        build_combinations([])
    with pytest.raises(InvalidInput, match="twice"):
        build_combinations([parse_range("a", "1,2"), parse_range("a", "3")])
    with pytest.raises(InvalidInput, match=str(MOST_JOBS)):
        build_combinations([Range(key="a", values=tuple(range(MOST_JOBS + 1)))])


def test_samples_differ_stay_inside_and_come_again_with_the_seed() -> None:
    ranges = [parse_range("lr", "1e-5..1e-3:log"), parse_range("rank", "4..64"), parse_range("s", "a,b")]
    drawn = build_combinations(ranges, samples=40, seed=3)
    assert drawn == build_combinations(ranges, samples=40, seed=3) != build_combinations(ranges, samples=40, seed=4)
    assert len({repr(values) for values in drawn}) == 40
    rates = [values["lr"] for values in drawn]
    assert all(isinstance(rate, float) and 1e-5 <= rate <= 1e-3 for rate in rates)
    assert 10 <= sum(rate < 1e-4 for rate in rates) <= 30, "half of them below the middle order of magnitude"  # type: ignore[operator]
    assert all(isinstance(values["rank"], int) and 4 <= values["rank"] <= 64 for values in drawn)
    assert len(build_combinations([parse_range("s", "a,b")], samples=10)) == 2, "no more than there are"


# ---- early stopping ----


def trace(job: str, *losses: float, running: bool = True) -> Trace:
    return Trace(job=job, steps=tuple(range(10, 10 * len(losses) + 1, 10)), losses=losses, running=running)


def test_a_run_above_the_median_of_the_others_stops_after_its_second_evaluation() -> None:
    others = [trace("a", 2.0, 1.0, running=False), trace("b", 2.1, 1.2), trace("c", 1.9, 1.1)]
    assert runs_to_stop([*others, trace("late", 3.0, 2.5)]) == ("b", "late")
    assert runs_to_stop([*others[:1], trace("young", 9.0)]) == ()
    assert runs_to_stop([trace("a", 2.0, 1.0), trace("b", 2.0, 1.5)]) == (), "two runs are no sweep"


def test_a_diverged_run_is_behind_and_a_loss_is_compared_at_the_same_step_only() -> None:
    far = [trace("a", 2.0, 1.8, 0.5, running=False), trace("b", 2.0, 1.8, 0.5, running=False)]
    assert runs_to_stop([*far, trace("even", 2.0, 1.8)]) == (), "the others were no better at step 20"
    assert runs_to_stop([*far, trace("nan", math.nan, math.nan)]) == ("nan",)


# ---- the group ----


@pytest.fixture
def sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweeps:
    api = open_api(tmp_path)
    refused: list[str] = []

    def submit(text: str) -> object:
        spec = parse_spec(text)
        job_id = f"job-{spec.name.lower()}"
        while (api.paths.jobs / job_id).exists():
            job_id += "x"
        created = 1000.0 + api.list_jobs()[0]
        add_job(api, job_id, JobState.QUEUED, name=spec.name, tags=spec.tags, parent=spec.parent, created_at=created)
        api.paths.job(job_id).spec.write_text(text)
        return api.get_job(job_id)

    def preview(_self: Api, text: str) -> Preview:
        spec = parse_spec(text)
        refused.append(text)
        return Preview(spec=spec, plan=None, problems=(), facts={})

    monkeypatch.setattr(api, "submit", submit)
    monkeypatch.setattr(Api, "preview", preview)
    return Sweeps(api)


def test_every_job_has_its_values_its_name_and_the_groups_tag(sweeps: Sweeps) -> None:
    sweep = sweeps.start(SPEC, [parse_range("learning_rate", "1e-5,1e-4"), parse_range("lora_rank", "8,16")])
    assert sweeps.get(sweep.id) == sweep and sweeps.every() == [sweep]
    texts = [sweeps.api.read_spec_text(job) for job in sweep.jobs]
    assert [parse_spec(text).train["learning_rate"] for text in texts] == [1e-5, 1e-5, 1e-4, 1e-4]
    assert all(text.startswith("# mine") for text in texts)
    assert parse_spec(texts[3]).name == "Demo-s04"
    assert parse_spec(texts[0]).tags == ("old", f"sweep:{sweep.id}")
    with pytest.raises(NotFound):
        sweeps.get("../x")


def test_nothing_is_submitted_when_one_combination_is_wrong(tmp_path: Path) -> None:
    sweeps = Sweeps(open_api(tmp_path))
    with pytest.raises(SpecRejected, match="lora_rank=-3"):
        sweeps.start("stage: sft\n", [parse_range("lora_rank", "-3,8")])
    assert sweeps.every() == [] and sweeps.api.list_jobs()[0] == 0


def test_early_stopping_needs_evaluations(sweeps: Sweeps) -> None:
    with pytest.raises(InvalidInput, match="eval_strategy"):
        sweeps.start(SPEC.replace("eval_strategy: steps\n", ""), [parse_range("seed", "1,2")], early_stop=True)


def test_runs_are_compared_by_eval_loss_and_those_behind_are_stopped(sweeps: Sweeps) -> None:
    sweep = sweeps.start(SPEC, [parse_range("seed", "1,2,3,4")], early_stop=True)
    jobs = list(sweep.jobs)
    for job, last in zip(jobs, (1.0, 3.0, 1.1, float("nan")), strict=True):
        sweeps.api.jobs.transition(job, (JobState.QUEUED,), JobState.STARTING)
        sweeps.api.jobs.transition(job, (JobState.STARTING,), JobState.RUNNING, started_at=sweeps.api.clock() - 60)
        files = RecorderFiles(sweeps.api.paths.job(job).recorder)
        files.start()
        for step in range(1, 21):
            files.step(step, loss=4 - step / 10)
        files.evaluation(10, eval_loss=2.0)
        files.evaluation(20, eval_loss=last if last == last else "nan")
    view = sweeps.view(sweep.id)
    assert view.metric == "eval_loss" and view.active == 4
    assert [row.job for row in view.rows][:2] == [jobs[0], jobs[2]] and view.rows[0].best
    assert view.rows[0].best_eval_loss == 1.0 and view.rows[0].values == {"seed": 1}
    stopped = sweeps.beat()
    assert set(stopped) == {jobs[1], jobs[3]}
    assert {job for job in jobs if sweeps.api.get_job(job).state is JobState.STOPPING} == set(stopped)
    assert sweeps.beat() == [], "told once"
    assert {row.job for row in sweeps.view(sweep.id).rows if row.stopped_early} == set(stopped)
    assert any("(early)" in line for line in describe_sweep(sweeps.view(sweep.id)))


def test_a_sweep_without_losses_has_no_best_and_can_be_stopped(sweeps: Sweeps) -> None:
    sweep = sweeps.start(SPEC, [parse_range("seed", "1,2")])
    view = sweeps.view(sweep.id)
    assert view.metric == "loss" and not any(row.best for row in view.rows)
    assert sweeps.stop(sweep.id).active == 0


# ---- stops, resumes and deaths ----


def end(sweeps: Sweeps, job: str, reason: TerminationReason, *, checkpoint: int = 0) -> None:
    """As the worker leaves a job that ended."""
    sweeps.api.jobs.update(job, state=reason.state, reason=reason, started_at=1000.0, ended_at=1060.0)
    if checkpoint:
        paths = sweeps.api.paths.job(job)
        write_checkpoint(paths.output, checkpoint)
        append_event(paths.events, CheckpointSaved(at=1050.0, step=checkpoint, path=f"checkpoint-{checkpoint}"))


def test_resume_goes_on_with_what_a_person_stopped_and_leaves_the_rest_alone(sweeps: Sweeps) -> None:
    sweep = sweeps.start(SPEC, [parse_range("seed", "1,2,3,4")])
    done, saved, cancelled, failed = list(sweep.jobs)
    end(sweeps, done, TerminationReason.COMPLETED)
    end(sweeps, saved, TerminationReason.STOPPED_AFTER_SAVE, checkpoint=20)
    end(sweeps, cancelled, TerminationReason.CANCELLED_IN_QUEUE)
    end(sweeps, failed, TerminationReason.TRAINER_FAILED)
    assert (sweeps.view(sweep.id).to_resume, sweeps.view(sweep.id).failed) == (2, 1)
    rows = {row.values["seed"]: row for row in sweeps.resume(sweep.id).rows}
    assert [rows[seed].state for seed in (1, 2, 3, 4)] == ["succeeded", "queued", "queued", "failed"]
    assert rows[2].job != saved and rows[2].step == 20 == rows[2].resumed_from and rows[3].resumed_from is None
    assert parse_spec(sweeps.api.read_spec_text(rows[2].job)).parent == saved
    assert "resume_from_checkpoint" not in sweeps.api.read_spec_text(rows[3].job)
    with pytest.raises(Conflict, match="No run of this sweep can be resumed"):
        sweeps.resume(sweep.id)
    assert sweeps.api.list_jobs()[0] == 6, "a second click queues nothing"
    assert {row.values["seed"]: row.state for row in sweeps.resume(sweep.id, failed=True).rows}[4] == "queued"


def test_run_resumed_on_its_own_page_takes_its_place_in_the_sweep_but_a_clone_does_not(sweeps: Sweeps) -> None:
    sweep = sweeps.start(SPEC, [parse_range("seed", "1,2")])
    first = next(iter(sweep.jobs))
    end(sweeps, first, TerminationReason.STOPPED_AFTER_SAVE, checkpoint=20)
    resumed = sweeps.api.submit(sweeps.api.resume_text(first, "checkpoint-20"))
    clone = parse_spec(sweeps.api.clone_text(first))
    assert clone.tags == ("old",)
    assert {row.job for row in sweeps.view(sweep.id).rows} == {resumed.id, list(sweep.jobs)[1]}


def test_evaluations_after_the_checkpoint_that_a_run_goes_on_from_do_not_count(sweeps: Sweeps) -> None:
    sweep = sweeps.start(SPEC, [parse_range("seed", "1")])
    (job,) = sweep.jobs
    write_evaluations(sweeps, job, {10: 3.0, 20: 2.5, 30: 1.0})
    end(sweeps, job, TerminationReason.STOPPED_AFTER_SAVE, checkpoint=20)
    (row,) = sweeps.resume(sweep.id).rows
    assert row.best_eval_loss == 2.5, "what followed step 20 was not kept"
    assert row.seconds == 60.0
    end(sweeps, row.job, TerminationReason.CANCELLED_IN_QUEUE)
    (row,) = sweeps.resume(sweep.id).rows
    assert row.step == 20 and row.best_eval_loss == 2.5, (
        "cancelled before it began: it goes on from the same checkpoint"
    )


def test_a_run_that_stopped_early_is_not_resumed(sweeps: Sweeps) -> None:
    sweep = sweeps.start(SPEC, [parse_range("seed", "1,2")])
    first, second = sweep.jobs
    sweeps.store.save(replace(sweep, stopped_early=(first, second)))
    end(sweeps, first, TerminationReason.STOPPED_AFTER_SAVE, checkpoint=20)
    end(sweeps, second, TerminationReason.COMPLETED)
    assert {row.job: row.stopped_early for row in sweeps.view(sweep.id).rows} == {first: True, second: False}
    with pytest.raises(Conflict):
        sweeps.resume(sweep.id, failed=True)


@pytest.mark.parametrize("at", ["before_submit", "after_submit"])
def test_who_dies_while_queueing_loses_no_run_and_doubles_none(
    sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    submit, calls = sweeps.api.submit, []

    def dies_at_the_third(text: str) -> object:
        calls.append(text)
        if len(calls) < 3:
            return submit(text)
        if at == "after_submit":
            submit(text)
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeps.api, "submit", dies_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        sweeps.start(SPEC, [parse_range("seed", "1,2,3,4,5")])
    monkeypatch.setattr(sweeps.api, "submit", submit)
    (sweep,) = sweeps.every()
    assert len(sweep.waiting) == 3 and sweeps.view(sweep.id).waiting == 3
    sweeps.beat()  # the worker's
    whole = sweeps.get(sweep.id)
    assert not whole.waiting and [values["seed"] for values in whole.jobs.values()] == [1, 2, 3, 4, 5]
    assert sweeps.api.list_jobs()[0] == 5
    assert not (sweeps.store.root / f"{sweep.id}.yaml").exists(), "the document is kept no longer than it is needed"


def test_a_stop_in_the_middle_of_queueing_keeps_the_rest_for_a_resume(
    sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = sweeps.api.submit

    def stops_at_the_second(text: str) -> object:
        if "seed: 2" in text:
            sweeps.store.halt(sweeps.every()[0].id)  # the first thing that a stop does, in another process
        return submit(text)

    monkeypatch.setattr(sweeps.api, "submit", stops_at_the_second)
    sweep = sweeps.start(SPEC, [parse_range("seed", "1,2,3,4")])
    sweeps.beat()
    view = sweeps.stop(sweep.id)
    assert (len(view.rows), view.waiting, view.halted, view.active) == (2, 2, True, 0)
    monkeypatch.setattr(sweeps.api, "submit", submit)
    view = sweeps.resume(sweep.id)
    assert (len(view.rows), view.waiting, view.active) == (4, 0, 4)


def test_a_rest_that_is_refused_waits_for_a_person_and_holds_up_nobody(
    sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_text: str) -> object:
        raise SpecRejected((), "the environment is gone")

    submit = sweeps.api.submit
    monkeypatch.setattr(sweeps.api, "submit", refuse)
    with pytest.raises(SpecRejected):
        sweeps.start(SPEC, [parse_range("seed", "1,2")])
    (sweep,) = sweeps.every()
    sweeps.store.go_on(sweep.id)
    assert sweeps.beat() == [] and sweeps.view(sweep.id).halted
    monkeypatch.setattr(sweeps.api, "submit", submit)
    assert sweeps.resume(sweep.id).active == 2


def test_the_best_settings_become_a_run_of_their_own(sweeps: Sweeps) -> None:
    sweep = sweeps.start(SPEC, [parse_range("seed", "1,2")])
    with pytest.raises(Conflict, match="has a loss yet"):
        sweeps.launch(sweep.id)
    for job, loss in zip(sweep.jobs, (2.0, 1.0), strict=True):
        write_evaluations(sweeps, job, {10: loss})
    best = parse_spec(sweeps.api.read_spec_text(sweeps.launch(sweep.id).id))
    assert (best.name, best.train["seed"], best.tags, best.parent) == ("Demo-best", 2, ("old",), list(sweep.jobs)[1])
    assert len(sweeps.view(sweep.id).rows) == 2


def test_a_broken_record_hides_no_other_sweep(sweeps: Sweeps) -> None:
    sweep = sweeps.start(SPEC, [parse_range("seed", "1,2")])
    (sweeps.store.root / "zz.json").write_text('{"id": "zz"}')
    assert [each.id for each in sweeps.every()] == [sweep.id]
    with pytest.raises(NotFound, match="cannot be read"):
        sweeps.get("zz")


def write_evaluations(sweeps: Sweeps, job: str, losses: dict[int, float]) -> None:
    files = RecorderFiles(sweeps.api.paths.job(job).recorder)
    files.start()
    for step in range(1, max(losses) + 1):
        files.step(step, loss=4 - step / 100)
    for step, loss in losses.items():
        files.evaluation(step, eval_loss=loss)
