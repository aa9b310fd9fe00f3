"""Tuning searches on disk: what is refused, what a page sees at each moment, and what a dead process leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.domain.job import JobState
from backend.errors import Conflict, InvalidInput, NotFound
from backend.planning.spec import parse_spec
from backend.services.api import Api
from backend.services.gpus import open_gpus
from backend.services.searches import Searches, describe_rows, parse_record
from backend.services.tuning import Progress, Tuner
from backend.settings import load_settings
from tests.job_folders import add_job
from tests.unit.test_tuner import Clock, FakeQueue, Known, speed, world

__all__ = ["world"]
SPEC = "model_name_or_path: m\ndataset: rows\ntunedeck:\n  name: Mine\n"


@pytest.fixture
def searches(tmp_path: Path) -> Searches:
    settings = load_settings({"TUNEDECK_DATA": str(tmp_path / "deck")})
    api = Api(settings, start_worker=lambda _: None)
    return Searches(api, open_gpus(api.paths), clock=lambda: 1000.0)


def test_a_budget_or_document_that_cannot_be_used_is_named(searches: Searches) -> None:
    with pytest.raises(InvalidInput, match="budget"):
        searches.create(SPEC, 5.0)
    with pytest.raises(InvalidInput, match="dataset"):
        searches.create("model_name_or_path: m\n", 60.0)
    assert searches.list() == []


def test_a_stored_search_is_found_again_and_one_whose_process_is_gone_has_failed(searches: Searches) -> None:
    made = searches.create(SPEC, 60.0)
    assert made.id.endswith(made.id[-4:]) and "-mine-" in made.id
    assert searches.get(made.id).state == "running"
    file = searches.root / made.id / "state.json"
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, "pid": 1, "start_ticks": 7}))
    (searches.root / made.id / "tuner.log").write_text("first\nerror: the model is not there\n")
    gone = searches.get(made.id)
    assert (gone.state, gone.message) == ("failed", "error: the model is not there")
    with pytest.raises(Conflict):
        searches.request_stop(made.id)
    with pytest.raises(Conflict, match="no result"):
        searches.best_text(made.id)


@pytest.mark.parametrize("name", ["nope", "../../etc", "", "a/b"])
def test_an_unknown_search_is_not_found(searches: Searches, name: str) -> None:
    with pytest.raises(NotFound):
        searches.get(name)


def test_a_second_search_waits_for_the_first(searches: Searches) -> None:
    searches.create(SPEC, 60.0)
    with pytest.raises(Conflict, match="Mine"):
        searches.start(SPEC, 60.0)


def use_fake_queue(monkeypatch: pytest.MonkeyPatch, folder: Path, forecaster: Known) -> None:
    """Searches measure with a tuner whose jobs and clock are made up."""
    clock = Clock()

    def fake_tuner(_api: object, _forecaster: object, **given: object) -> Tuner:
        return Tuner(
            FakeQueue(folder, speed), forecaster, clock=clock, sleep=clock.sleep, **given  # type: ignore[arg-type]
        )  # fmt: skip

    monkeypatch.setattr("backend.services.searches.Tuner", fake_tuner)


def test_the_page_sees_each_result_and_the_end_has_the_tuned_document(
    searches: Searches, tmp_path: Path, world: tuple[Known, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    forecaster, text = world
    made = searches.create(text, 480.0)
    use_fake_queue(monkeypatch, tmp_path / "queue", forecaster)

    seen = []
    done = searches.run(made.id, lambda progress: seen.append((progress.event, len(searches.get(made.id).rows))))
    counts = [rows for event, rows in seen if event == "result"]
    assert counts[0] == 1 and counts[-1] == len(done.rows) > 2
    assert (
        done == searches.get(made.id) == parse_record(json.loads((searches.root / made.id / "state.json").read_text()))
    )
    assert done.state == "finished" and done.gain == pytest.approx(4.0)
    assert [row.label for row in done.rows if row.best] == [done.best]
    assert sum(row.base for row in done.rows) == 1
    assert {row.job for row in done.rows} == {"trial-0"} == set(done.jobs), (
        "each line leads to the run that measured it"
    )
    spec = parse_spec((tmp_path / "queue" / "spec.yaml").read_text())
    assert spec.tags == (f"tuning:{made.id}",)
    assert done.packs_rows and done.best_rows_per_step == pytest.approx(done.base_rows_per_step, rel=0.1)
    best = searches.best_text(made.id)
    assert "packing: true" in best and "# keep me" in best and "-tuned" in best
    assert any(line.startswith("*") for line in describe_rows(done))


def test_an_interrupted_search_keeps_the_best_it_had(
    searches: Searches, tmp_path: Path, world: tuple[Known, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    forecaster, text = world
    made = searches.create(text, 480.0)
    use_fake_queue(monkeypatch, tmp_path / "queue", forecaster)

    def interrupt(progress: Progress) -> None:
        if progress.event == "result":
            seen.append(progress.text)
        if len(seen) == 3:
            raise KeyboardInterrupt

    seen: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        searches.run(made.id, interrupt)
    left = searches.get(made.id)
    assert left.state == "stopped" and len(left.rows) == 3 and left.best
    assert parse_spec(searches.best_text(made.id)).name.endswith("-tuned")


def store_dead(searches: Searches, log: str) -> str:
    """A search whose process is gone, with its log."""
    made = searches.create(SPEC, 60.0)
    file = searches.root / made.id / "state.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "pid": 1, "start_ticks": 7}))
    (searches.root / made.id / "tuner.log").write_text(log)
    return made.id


def test_a_killed_search_does_not_give_its_last_progress_as_the_reason(searches: Searches) -> None:
    killed = searches.get(store_dead(searches, "micro 4 x 1: 9,000 tokens/s\n"))
    assert killed.state == "failed" and killed.message.startswith("The tuner's process was ended from outside")


def test_a_killed_search_keeps_the_best_that_it_had(
    searches: Searches, tmp_path: Path, world: tuple[Known, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    forecaster, text = world
    made = searches.create(text, 480.0)
    use_fake_queue(monkeypatch, tmp_path / "queue", forecaster)
    seen: list[str] = []

    def look(progress: Progress) -> None:
        if progress.event == "result":
            seen.append(searches.best_text(made.id))  # what a page could launch if we were killed now

    searches.run(made.id, look)
    assert len(seen) > 2 and parse_spec(seen[0]).name.endswith("-tuned")
    assert seen[0] != seen[-1]


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.RUNNING])
def test_trials_of_a_dead_search_are_ended_and_those_of_a_living_one_are_not(
    searches: Searches, state: JobState
) -> None:
    dead, living = store_dead(searches, ""), searches.create(SPEC, 60.0).id
    for name, search in (("orphan", dead), ("asked", living)):
        add_job(searches.api, name, state, tags=(f"tuning:{search}",))
    add_job(searches.api, "training", state)
    assert searches.end_orphans() == ["orphan"]
    assert searches.api.get_job("orphan").state in (JobState.CANCELLED, JobState.STOPPING)
    assert {searches.api.get_job(name).state for name in ("asked", "training")} == {state}
    assert searches.end_orphans() == []


def test_a_search_from_the_terminal_waits_for_its_turn_too(searches: Searches) -> None:
    first = searches.claim(SPEC, 60.0)
    with pytest.raises(Conflict, match=first.id):
        searches.claim(SPEC, 60.0)
