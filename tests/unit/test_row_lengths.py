"""Where the token lengths of a job's rows come from: the trainer's count, what an earlier check counted, or an estimate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.adapters.process import ToolResult
from backend.domain.environment import TrainingEnvironment
from backend.domain.job import JobSpec
from backend.errors import EnvironmentFault
from backend.services.dry_run import MARK
from backend.services.environments import Environments
from backend.services.row_lengths import Counted, RowLengths, merge_counts
from backend.settings import load_settings
from backend.store.paths import DataPaths


class Described(Environments):
    """One environment on a host with GPUs of AMD."""

    def describe(self, name: str = "", *, refresh: bool = False) -> TrainingEnvironment:
        return TrainingEnvironment(name="default", python="/env/bin/python", accelerator="rocm")


class Trainer:
    """Stands for dry_run.py in the training environment: keeps its command, gives its answer."""

    def __init__(self, facts: object, *, errors: object = (), said: bool = True) -> None:
        self.answer = {"ok": True, "errors": errors, "warnings": [], "facts": facts}
        self.said, self.argv = said, list[str]()

    def __call__(self, argv: list[str], **_more: object) -> ToolResult:
        self.argv = argv
        text = MARK + json.dumps(self.answer) if self.said else ""
        return ToolResult(exit_code=0, stdout=text.encode(), stderr=b"no such module", timed_out=False)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [{"instruction": "w" * 200, "input": "", "output": "w" * 300} for _ in range(30)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    (tmp_path / "dataset_info.json").write_text(json.dumps({"rows": {"file_name": "rows.json"}}))
    return tmp_path


def lengths_of(tmp_path: Path, trainer: Trainer) -> RowLengths:
    paths = DataPaths(tmp_path / "deck")
    return RowLengths(paths, Described(paths, load_settings({"TUNEDECK_DATA": str(paths.root)})), run=trainer)


def spec_of(data: Path, **changes: object) -> JobSpec:
    train = {
        "model_name_or_path": "m",
        "dataset": "rows",
        "dataset_dir": str(data),
        "template": "default",
        "bf16": True,
    }
    return JobSpec(name="job", train={**train, **changes})  # type: ignore[dict-item]


COUNTED = {"datasets": {"rows": {"lengths": [9, 5, 7], "rows": 30}, "held_out": {"lengths": [999], "rows": 1}}}


def test_the_accelerator_is_named_because_the_gpus_are_hidden(tmp_path: Path, data: Path) -> None:
    trainer = Trainer(COUNTED)
    lengths_of(tmp_path, trainer).count(spec_of(data))
    assert trainer.argv[trainer.argv.index("--accelerator") + 1] == "rocm"


def test_only_data_that_is_trained_on_counts(tmp_path: Path, data: Path) -> None:
    counted = lengths_of(tmp_path, Trainer(COUNTED)).count(spec_of(data, eval_dataset="held_out"))
    assert counted is not None
    assert (counted.sample, counted.rows, counted.estimate) == ((5, 7, 9), 30, "")


def test_a_count_is_kept_for_later_plans_until_the_data_changes(tmp_path: Path, data: Path) -> None:
    lengths, spec = lengths_of(tmp_path, Trainer(COUNTED)), spec_of(data)
    lengths.count(spec)
    known = lengths.known(spec, [])
    assert known is not None and known.sample == (5, 7, 9)
    (data / "rows.json").write_text("[]")
    assert lengths.known(spec, []) is None


def test_what_the_last_check_of_the_form_counted_is_kept_too(tmp_path: Path, data: Path) -> None:
    lengths, spec = lengths_of(tmp_path, Trainer(None)), spec_of(data)
    before = lengths.known(spec, [])
    lengths.keep(spec, COUNTED)
    after = lengths.known(spec, [])
    assert before is not None and after is not None
    assert (bool(before.estimate), after.estimate) == (True, "")


def test_an_unanswered_question_is_a_fault_and_data_without_counts_is_not(tmp_path: Path, data: Path) -> None:
    with pytest.raises(EnvironmentFault, match="no such module"):
        lengths_of(tmp_path, Trainer(None, said=False)).count(spec_of(data))
    assert lengths_of(tmp_path, Trainer({}, errors=[])).count(spec_of(data)) is None


def test_max_samples_bounds_the_rows_of_each_data_set(tmp_path: Path, data: Path) -> None:
    counted = lengths_of(tmp_path, Trainer(COUNTED)).count(spec_of(data, max_samples=10))
    assert counted is not None and counted.rows == 10


def test_without_data_the_note_says_what_is_assumed(tmp_path: Path) -> None:
    notes: list[str] = []
    assert lengths_of(tmp_path, Trainer(None)).known(spec_of(tmp_path), notes) is None
    assert "cutoff_len" in notes[0]


def test_data_sets_weigh_as_many_rows_as_they_have() -> None:
    short, long = Counted(sample=(10,) * 50, rows=900), Counted(sample=(100,) * 50, rows=100)
    sample, rows = merge_counts([short, long])
    assert rows == 1000
    assert sample.count(10) == 9 * sample.count(100)


def test_sets_of_unknown_size_weigh_what_was_counted() -> None:
    sample, rows = merge_counts([Counted(sample=(1, 2), rows=None), Counted(sample=(3,), rows=7)])
    assert (sample, rows) == ([1, 2, 3], None)


def test_a_spread_sample_keeps_the_middle_of_each_part() -> None:
    sample, _ = merge_counts([Counted(sample=tuple(range(100)), rows=2), Counted(sample=(1000,), rows=2)], most=8)
    assert sample == [12, 37, 62, 87, 1000, 1000, 1000, 1000]
