"""The tuner's conversation with trial jobs, played by a fake queue that answers like backend/inside/trial.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.domain.job import Job, JobSpec, JobState, StopMode, Task, TerminationReason
from backend.errors import InvalidInput
from backend.planning.spec import parse_spec
from backend.planning.steptime import Machine
from backend.planning.tuning import Outcome
from backend.services.environments import Environments
from backend.services.forecast import Forecaster, abilities_of, find_config
from backend.services.row_lengths import RowLengths
from backend.services.tuning import Tuner, best_text, parse_result, report_table, save_report
from backend.settings import Settings, load_settings
from backend.store.paths import DataPaths, JobPaths

CONFIG = {
    "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4,
    "intermediate_size": 512, "vocab_size": 1000,
}  # fmt: skip

Answer = Callable[[dict[str, object]], dict[str, object] | None]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.5)


class FakeQueue:
    """Jobs that start at once; each asked trial is answered when the tuner next looks. `answer` None: the job dies."""

    def __init__(self, root: Path, answer: Answer, final: JobState = JobState.FAILED) -> None:
        self.paths, self.answer, self.final = DataPaths(root), answer, final
        self.specs: dict[str, str] = {}
        self.states: dict[str, JobState] = {}
        self.read: dict[str, int] = {}
        self.stops: list[tuple[str, StopMode]] = []

    def submit(self, spec_text: str) -> Job:
        job_id = f"trial-{len(self.specs)}"
        self.specs[job_id], self.states[job_id], self.read[job_id] = spec_text, JobState.RUNNING, 0
        self.job_paths(job_id).root.mkdir(parents=True)
        (self.paths.root / "spec.yaml").write_text(spec_text)
        return self.get_job(job_id)

    def job_paths(self, job_id: str) -> JobPaths:
        return self.paths.job(job_id)

    def request_stop(self, job_id: str, mode: StopMode) -> Job:
        self.stops.append((job_id, mode))
        self.states[job_id] = JobState.CANCELLED
        return self.get_job(job_id)

    def get_job(self, job_id: str) -> Job:
        self._answer(job_id)
        return Job(id=job_id, name="tune", state=self.states[job_id], started_at=1.0, message="it died",
                   reason=TerminationReason.TRAINER_FAILED)  # fmt: skip

    def _answer(self, job_id: str) -> None:
        file = self.job_paths(job_id).trials_asked
        if self.states[job_id].is_final or not file.exists():
            return
        lines = file.read_text().splitlines()
        for line in lines[self.read[job_id] :]:
            asked = json.loads(line)
            if asked.get("end"):
                self.states[job_id] = JobState.SUCCEEDED
                break
            result = self.answer(asked)
            if result is None:
                self.states[job_id] = self.final
                break
            with self.job_paths(job_id).trials_done.open("a") as stream:
                stream.write(json.dumps({"k": "begin", "id": asked["id"]}) + "\n")
                stream.write(json.dumps({"k": "result", "id": asked["id"], **result}) + "\n")
        self.read[job_id] = len(lines)


class Known(Forecaster):
    """Row lengths that are estimated: no training environment is asked."""

    def __init__(self, settings: Settings, paths: DataPaths, environments: Environments) -> None:
        super().__init__(settings, paths, environments)
        self.row_lengths = Uncounted(paths, environments)


class Uncounted(RowLengths):
    def count(self, spec: JobSpec, *, timeout_seconds: float = 0) -> None:
        return None


@pytest.fixture
def world(tmp_path: Path) -> tuple[Known, str]:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    data = tmp_path / "data"
    data.mkdir()
    rows = [{"instruction": "w" * 200, "input": "", "output": "w" * (100 + 20 * (i % 20))} for i in range(300)]
    (data / "rows.json").write_text(json.dumps(rows))
    (data / "dataset_info.json").write_text(json.dumps({"rows": {"file_name": "rows.json"}}))
    settings = load_settings(
        {"TUNEDECK_DATA": str(tmp_path / "deck"), "TUNEDECK_TRAINING_PYTHON": str(tmp_path / "python")}
    )
    paths = DataPaths(settings.data_dir)
    text = (
        f"# keep me\nmodel_name_or_path: {model}\nstage: sft\nfinetuning_type: lora\nbf16: true\ntemplate: default\n"
        f"dataset: rows\ndataset_dir: {data}\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 8\n"
    )
    forecaster = Known(settings, paths, Environments(paths, settings))
    forecaster.environments.describe = lambda name="": None  # type: ignore[assignment, method-assign, return-value]
    return forecaster, text


def speed(asked: dict[str, object]) -> dict[str, object]:
    """Packing and no checkpointing double the speed each."""
    changes = asked["changes"]
    assert isinstance(changes, dict)
    rate = 1000 * (2 if changes.get("packing") else 1) * (2 if changes.get("disable_gradient_checkpointing") else 1)
    return {
        "outcome": "ok",
        "step_seconds": [1.0, 1.0],
        "tokens": [rate, rate],
        "padding": [0, 0],
        "peak_bytes": 1 << 30,
    }


def tuner(queue: FakeQueue, forecaster: Known, budget: float = 480.0) -> Tuner:
    clock = Clock()
    return Tuner(queue, forecaster, budget_seconds=budget, clock=clock, sleep=clock.sleep)


def test_best_settings_are_found_in_one_job_and_written_into_the_document(
    tmp_path: Path, world: tuple[Known, str]
) -> None:
    forecaster, text = world
    queue = FakeQueue(tmp_path / "q", speed)
    report = tuner(queue, forecaster).run(text)
    assert len(queue.specs) == 1 and queue.states["trial-0"] is JobState.SUCCEEDED
    assert parse_spec(queue.specs["trial-0"]).task is Task.TRIAL
    assert report.gain == pytest.approx(4.0)
    tuned = parse_spec(best_text(report, text))
    assert tuned.train["packing"] is True and tuned.train["disable_gradient_checkpointing"] is True
    assert best_text(report, text).startswith("# keep me")
    assert "| 4,000 |" in report_table(report)
    best = save_report(report, text, tmp_path / "report")
    assert parse_spec(best.read_text()).train == tuned.train
    assert "4.00 times" in (tmp_path / "report" / "tuning.md").read_text()


def test_a_trial_that_kills_the_process_is_lost_and_the_search_goes_on_in_a_new_job(
    tmp_path: Path, world: tuple[Known, str]
) -> None:
    forecaster, text = world
    died: list[object] = []

    def answer(asked: dict[str, object]) -> dict[str, object] | None:
        changes = asked["changes"]
        assert isinstance(changes, dict)
        if changes.get("packing") and not died:
            died.append(asked["id"])
            return None
        return speed(asked)

    queue = FakeQueue(tmp_path / "q", answer)
    report = tuner(queue, forecaster).run(text)
    outcomes = {row.trial.id: row.result.outcome for row in report.rows if row.result}
    assert outcomes[str(died[0])] is Outcome.LOST
    assert len(queue.specs) == 2
    assert report.gain is not None and report.gain >= 2


def test_out_of_memory_and_errors_are_results(tmp_path: Path, world: tuple[Known, str]) -> None:
    forecaster, text = world

    def answer(asked: dict[str, object]) -> dict[str, object]:
        changes = asked["changes"]
        assert isinstance(changes, dict)
        if changes.get("packing"):
            return {"outcome": "oom", "error": "OutOfMemoryError: HIP out of memory"}
        return speed(asked)

    report = tuner(FakeQueue(tmp_path / "q", answer), forecaster).run(text)
    assert report.best is not None and not report.best.work.packing
    assert any(row.result and row.result.outcome is Outcome.OOM for row in report.rows)


def test_stopping_the_trial_job_ends_the_search_with_what_was_measured(
    tmp_path: Path, world: tuple[Known, str]
) -> None:
    forecaster, text = world
    seen: list[object] = []

    def answer(asked: dict[str, object]) -> dict[str, object] | None:
        seen.append(asked["id"])
        return speed(asked) if len(seen) < 2 else None

    queue = FakeQueue(tmp_path / "q", answer, final=JobState.CANCELLED)
    report = tuner(queue, forecaster).run(text)
    assert report.stopped == "stopped by a person"
    assert len(queue.specs) == 1
    assert [row.result.outcome for row in report.rows if row.result and not row.tokens_per_second] == [Outcome.STOPPED]
    assert report.best is not None


def test_budget_ends_the_search(tmp_path: Path, world: tuple[Known, str]) -> None:
    forecaster, text = world
    report = tuner(FakeQueue(tmp_path / "q", speed), forecaster, budget=1.0).run(text)
    assert [row.trial.id for row in report.rows if row.result] == ["t0"]


def test_zero_of_the_present_settings_and_none_are_two_jobs(tmp_path: Path, world: tuple[Known, str]) -> None:
    forecaster, text = world
    queue = FakeQueue(tmp_path / "q", speed)
    tuner(queue, forecaster).run(text + "tunedeck: {zero: {stage: 2}}\n")
    stages = [parse_spec(spec).zero.stage for spec in queue.specs.values()]
    assert {2, None} == set(stages)
    assert len(stages) <= 4, "each start loads the model again"


def test_model_of_unknown_shape_is_refused_by_name(tmp_path: Path, world: tuple[Known, str]) -> None:
    forecaster, text = world
    with pytest.raises(InvalidInput, match="model_name_or_path"):
        tuner(FakeQueue(tmp_path / "q", speed), forecaster).run(
            text.replace("model_name_or_path: ", "model_name_or_path: x")
        )


@pytest.mark.parametrize("record", [{}, {"id": "t", "outcome": "flew"}, {"id": "t", "outcome": "ok", "tokens": ["x"]}])
def test_strange_result_lines_are_refused(record: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        parse_result(record)


def test_forecast_reads_config_and_estimates_lengths_and_says_so(world: tuple[Known, str]) -> None:
    forecaster, text = world
    forecast = forecaster.forecast(text)
    assert forecast.shape is not None and forecast.shape.layers == 4
    assert forecast.lengths is not None and forecast.lengths.estimate
    assert forecast.memory is not None and forecast.memory.fits is None
    assert any("No GPU" in note for note in forecast.notes)
    assert forecast.speed.present is not None


def test_forecast_without_model_or_data_still_answers(world: tuple[Known, str]) -> None:
    forecaster, _ = world
    forecast = forecaster.forecast("model_name_or_path: nobody/knows-this\ndataset: nowhere\n")
    assert forecast.memory is None
    assert any("neither a folder" in note for note in forecast.notes)


def test_finished_run_corrects_the_next_plan(world: tuple[Known, str]) -> None:
    forecaster, text = world
    before = forecaster.forecast(text).memory
    paths = forecaster.paths.job("done-1")
    paths.recorder.mkdir(parents=True)
    paths.spec.write_text(text)
    assert before is not None
    lines = [
        {"k": "step", "s": 1, "mem": before.allocated},
        {"k": "step", "s": 2, "mem": round(1.2 * before.allocated)},
    ]
    paths.rank_records(0).write_text("\n".join(json.dumps(line) for line in lines) + '\n{"k":"step","mem')
    learnt = forecaster.learn("done-1")
    assert learnt is not None and learnt.measured == round(1.2 * before.allocated)
    after = forecaster.forecast(text).memory
    assert after is not None and after.corrected_by == 1
    assert after.allocated > before.allocated


def test_hub_names_are_looked_up_in_the_cache(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--name" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    assert find_config("org/name", tmp_path) == snapshot / "config.json"
    assert find_config("org/other", tmp_path) is None


def test_nothing_is_assumed_of_an_environment_that_is_not_known() -> None:
    assert not abilities_of(None).liger
    assert Machine().source == "defaults"


def test_the_present_settings_are_measured_again_warm_so_that_the_gain_is_not_flattered(
    tmp_path: Path, world: tuple[Known, str]
) -> None:
    forecaster, text = world
    asked_before: list[object] = []

    def cold_first(asked: dict[str, object]) -> dict[str, object]:
        answer = speed(asked)
        if not asked_before:
            answer["step_seconds"] = [10.0, 10.0]
        asked_before.append(asked["id"])
        return answer

    report = tuner(FakeQueue(tmp_path, cold_first), forecaster).run(text)
    assert asked_before[0] == asked_before[-1] == report.base.id
    assert report.gain == pytest.approx(4.0)


def test_a_second_measurement_that_fails_does_not_undo_the_first(tmp_path: Path, world: tuple[Known, str]) -> None:
    forecaster, text = world
    asked_before: list[object] = []

    def broken_later(asked: dict[str, object]) -> dict[str, object]:
        again = asked["id"] in asked_before
        asked_before.append(asked["id"])
        return {"outcome": "error", "error": "gone"} if again else speed(asked)

    report = tuner(FakeQueue(tmp_path, broken_later), forecaster).run(text)
    assert report.gain == pytest.approx(4.0)
