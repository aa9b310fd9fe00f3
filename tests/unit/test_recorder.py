from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from backend.inside.control import SAVE, STOP, Agreement, RequestFiles
from backend.inside.recorder import Recorder, StepClock
from backend.inside.records import RecordWriter, numbers, plain


@dataclass
class Arguments:
    per_device_train_batch_size: int = 4
    gradient_accumulation_steps: int = 2


@dataclass
class State:
    global_step: int = 0
    max_steps: int = 10
    num_train_epochs: float = 1
    epoch: float = 0.0


@dataclass
class Control:
    should_save: bool = False
    should_evaluate: bool = False
    should_log: bool = False
    should_training_stop: bool = False


@dataclass
class Now:
    seconds: float = 100.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Run:
    """A trainer without a model: the events in the order in which transformers sends them."""

    job: Path
    now: Now = field(default_factory=Now)
    state: State = field(default_factory=State)
    control: Control = field(default_factory=Control)

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.job, monotonic=self.now)
        self.args = Arguments()

    def begin(self) -> None:
        self.recorder.on_train_begin(self.args, self.state, self.control)

    def step(self, *, fetch: float = 0.5, work: float = 2.0) -> None:
        self.control.should_save = self.control.should_evaluate = self.control.should_log = False
        self.now.seconds += fetch
        self.recorder.on_step_begin(self.args, self.state, self.control)
        self.now.seconds += work
        self.state.global_step += 1

    def end_step(self) -> None:
        self.recorder.on_step_end(self.args, self.state, self.control)

    def save(self, seconds: float) -> None:
        self.now.seconds += seconds
        self.control.should_save = False
        self.recorder.on_save(self.args, self.state, self.control)

    def evaluate(self, seconds: float) -> None:
        self.now.seconds += seconds / 2
        self.recorder.on_prediction_step(self.args, self.state, self.control)
        self.now.seconds += seconds / 2
        self.control.should_evaluate = False
        self.recorder.on_evaluate(self.args, self.state, self.control)

    def finish(self) -> None:
        self.recorder.on_train_end(self.args, self.state, self.control)
        self.recorder.done()

    def records(self, kind: str = "") -> list[dict[str, object]]:
        lines = (self.job / "recorder" / "rank-0.jsonl").read_text().splitlines()
        return [record for record in map(json.loads, lines) if not kind or record["k"] == kind]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def ask(job: Path, name: str, **content: object) -> None:
    folder = job / "control"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.tmp").write_text(json.dumps({"at": 1.0} | content))
    (folder / f"{name}.tmp").rename(folder / f"{name}.json")


def test_a_step_lasts_from_step_end_to_step_end(run: Run) -> None:
    run.begin()
    for _ in range(2):
        run.step(fetch=0.5, work=2.0)
        run.end_step()
    assert [(r["s"], r["dt"], r["data"]) for r in run.records("step")] == [(1, 2.5, 0.5), (2, 2.5, 0.5)]


def test_saves_and_evaluations_are_not_part_of_a_step(run: Run) -> None:
    run.begin()
    run.step()
    run.control.should_save = run.control.should_evaluate = True
    run.end_step()
    run.evaluate(30.0)
    run.save(60.0)
    run.step()
    run.end_step()
    assert [(r["dt"], r["data"]) for r in run.records("step")] == [(2.5, 0.5), (2.5, 0.5)]


def test_phases_follow_the_trainer_through_evaluation_and_save(run: Run) -> None:
    run.begin()
    run.step()
    run.control.should_save = run.control.should_evaluate = True
    run.end_step()
    run.evaluate(1.0)
    run.save(1.0)
    run.finish()
    seen = [str(r.get("phase", r["k"])) for r in run.records()]
    assert seen == [
        *(
            "train_begin",
            "training",
            "step",
            "evaluating",
            "eval_begin",
            "eval_end",
            "training",
            "saving",
            "save_begin",
        ),
        *("checkpoint", "training", "train_end", "finishing", "done"),
    ]


def test_an_evaluation_after_training_is_noted_without_flags(run: Run) -> None:
    run.begin()
    run.recorder.on_train_end(run.args, run.state, run.control)
    run.evaluate(1.0)
    assert [r["phase"] for r in run.records("phase")] == ["training", "finishing", "evaluating", "finishing"]
    assert len(run.records("eval_begin")) == len(run.records("eval_end")) == 1


def test_stop_saves_ends_training_and_logs_the_last_values(run: Run) -> None:
    run.begin()
    ask(run.job, "stop", mode="save")
    run.step()
    run.end_step()
    assert run.control.should_save and run.control.should_training_stop and run.control.should_log
    run.save(1.0)
    run.finish()
    assert [(r["s"], r["what"]) for r in run.records("request")] == [(1, "stop")]
    assert run.records("train_end")[0]["stopped"] is True


def test_a_stopped_epoch_is_not_evaluated_and_saved_again_at_its_end(run: Run) -> None:
    run.begin()
    ask(run.job, "stop", mode="save")
    run.step()
    run.end_step()
    run.save(1.0)
    run.control.should_save = run.control.should_evaluate = True
    run.recorder.on_epoch_end(run.args, run.state, run.control)
    assert not run.control.should_save and not run.control.should_evaluate


def test_a_stop_at_the_last_step_is_no_early_end(run: Run) -> None:
    run.state.max_steps = 1
    run.begin()
    ask(run.job, "stop", mode="save")
    run.step()
    run.end_step()
    run.finish()
    assert run.records("train_end")[0]["stopped"] is False


@pytest.mark.parametrize("mode", ["no_save", "kill"])
def test_other_stops_are_left_to_the_supervisor(run: Run, mode: str) -> None:
    run.begin()
    ask(run.job, "stop", mode=mode)
    run.step()
    run.end_step()
    assert not run.control.should_training_stop
    ask(run.job, "stop", mode="save")
    run.step()
    run.end_step()
    assert run.control.should_training_stop


def test_a_broken_stop_file_is_said_and_ignored(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run.begin()
    (run.job / "control").mkdir()
    (run.job / "control" / "stop.json").write_text("[]")
    run.step()
    run.end_step()
    assert not run.control.should_training_stop
    assert "is not a stop request" in capsys.readouterr().err


def test_save_now_saves_once_goes_on_and_takes_the_request_away(run: Run) -> None:
    run.begin()
    ask(run.job, "save")
    run.step()
    run.end_step()
    assert run.control.should_save and not run.control.should_training_stop
    run.save(1.0)
    assert not (run.job / "control" / "save.json").exists()
    run.step()
    run.end_step()
    assert not run.control.should_save
    assert len(run.records("request")) == 1


def test_a_save_request_that_comes_during_a_save_is_carried_out_too(run: Run) -> None:
    run.begin()
    ask(run.job, "save")
    run.step()
    run.end_step()
    ask(run.job, "save", again=True)
    run.save(1.0)
    run.step()
    run.end_step()
    assert [r["s"] for r in run.records("request")] == [1, 2]


def test_a_save_request_nobody_answers_any_more_is_removed(run: Run) -> None:
    run.begin()
    run.step()
    run.end_step()
    ask(run.job, "save")
    run.finish()
    assert not (run.job / "control" / "save.json").exists()


def test_only_rank_zero_writes_logs(tmp_path: Path) -> None:
    for rank in (0, 1):
        recorder = Recorder(tmp_path, rank=rank)
        recorder.on_log(Arguments(), State(global_step=3), Control(), logs={"loss": 1.25, "epoch": 0.5, "note": "x"})
    records = (tmp_path / "recorder" / "rank-0.jsonl").read_text()
    assert json.loads(records)["v"] == {"loss": 1.25} and json.loads(records)["epoch"] == 0.5
    assert not (tmp_path / "recorder" / "rank-1.jsonl").exists()


def test_a_failed_run_says_of_what(tmp_path: Path) -> None:
    Recorder(tmp_path).done(ValueError("Undefined dataset x"))
    record = json.loads((tmp_path / "recorder" / "rank-0.jsonl").read_text())
    assert record["ok"] is False and record["error"] == "ValueError: Undefined dataset x"


def test_a_diverged_loss_is_a_word_not_a_broken_line() -> None:
    assert plain({"a": math.nan, "b": [math.inf, -math.inf], "c": 1e-17}) == {
        "a": "nan",
        "b": ["inf", "-inf"],
        "c": 1e-17,
    }
    assert numbers({"loss": math.nan, "text": "1", "flag": True, "none": None}) == {"loss": "nan"}


def test_a_full_disk_is_said_once_and_training_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = RecordWriter(Path("/dev/full"))
    writer.write("step", s=1)
    writer.write("step", s=2)
    assert capsys.readouterr().err.count("Training goes on") == 1


def test_a_missing_recorder_folder_that_cannot_be_made_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recorder").write_text("in the way")
    RecordWriter(tmp_path / "recorder" / "rank-0.jsonl").write("step", s=1)
    assert "cannot write" in capsys.readouterr().err


def test_half_a_line_spoils_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RecordWriter(tmp_path / "rank-0.jsonl")
    writer.write("step", s=1)
    whole = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: whole(descriptor, data[:9]))
    writer.write("step", s=2)
    monkeypatch.setattr(os, "write", whole)
    writer.write("step", s=3)
    lines = (tmp_path / "rank-0.jsonl").read_text().splitlines()
    assert [json.loads(lines[0])["s"], json.loads(lines[2])["s"], len(lines)] == [1, 3, 3]


def test_watched_batches_are_the_only_waiting() -> None:
    now = Now()
    clock = StepClock(now)
    assert list(clock.watch(iter([1, 2]))) == [1, 2]
    now.seconds += 50  # ranks waiting for each other, not for data
    clock.step_begun()
    seconds, waited = clock.step_ended()
    assert seconds == 50 and waited < 1


def test_one_rank_acts_at_once_and_reports_each_request_once(tmp_path: Path) -> None:
    agreement = Agreement(RequestFiles(tmp_path / "control"), rank=0, world_size=1)
    agreement.open()
    assert agreement.exchange() == 0
    ask(tmp_path, "stop", mode="save")
    ask(tmp_path, "save")
    assert agreement.exchange() == STOP | SAVE
    assert agreement.exchange() == 0
