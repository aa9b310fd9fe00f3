"""The job table: compare-and-set states, all-or-nothing leases, order of the queue, search."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from backend.domain.job import Job, JobState, TerminationReason
from backend.errors import Conflict, NotFound, StoreFault
from backend.store.database import Database
from backend.store.jobs import SORTS, JobTable


@pytest.fixture
def table(tmp_path: Path) -> JobTable:
    return JobTable(Database(tmp_path / "deck.sqlite"))


def job(name: str, **changes: object) -> Job:
    return replace(Job(id=name, name=name, state=JobState.QUEUED), **changes)  # type: ignore[arg-type]


def test_job_comes_back_as_it_was_stored(table: JobTable) -> None:
    stored = table.insert(job("a", tags=("x", "中文"), loss=1.5, reason=TerminationReason.COMPLETED))
    assert table.get("a") == stored
    assert stored.tags == ("x", "中文")


def test_state_changes_only_from_an_expected_state(table: JobTable) -> None:
    table.insert(job("a"))
    with pytest.raises(Conflict, match="queued"):
        table.transition("a", (JobState.RUNNING,), JobState.STOPPING)
    assert table.get("a").state is JobState.QUEUED


def test_lease_is_all_or_nothing(table: JobTable) -> None:
    table.insert(job("a"))
    table.insert(job("b"))
    table.lease("a", ("gpu0", "gpu1"))
    with pytest.raises(Conflict, match="gpu1 is in use by job a"):
        table.lease("b", ("gpu2", "gpu1"))
    assert table.leases() == {"gpu0": "a", "gpu1": "a"}
    assert table.get("b").state is JobState.QUEUED


def test_final_state_gives_devices_back(table: JobTable) -> None:
    table.insert(job("a"))
    table.lease("a", ("gpu0",))
    table.transition("a", (JobState.STARTING,), JobState.FAILED)
    assert table.leases() == {}


def test_random_histories_never_lease_twice_and_never_leak(table: JobTable) -> None:
    chance, cards = random.Random(7), [f"gpu{n}" for n in range(4)]
    for number in range(150):
        name = f"j{number}"
        table.insert(job(name))
        wanted = chance.sample(cards, chance.randint(1, 3))
        held = table.leases()
        if any(card in held for card in wanted):
            with pytest.raises(Conflict):
                table.lease(name, wanted)
        else:
            table.lease(name, wanted)
        active = table.in_states(JobState.STARTING)
        if active and chance.random() < 0.6:
            table.transition(chance.choice(active).id, (JobState.STARTING,), JobState.LOST)
        expected = {card: owner.id for owner in table.in_states(JobState.STARTING) for card in owner.devices}
        assert table.leases() == expected


def test_queue_order_is_priority_then_position(table: JobTable) -> None:
    for name in "abc":
        table.insert(job(name))
    table.update("c", priority=1)
    table.move("b", "a")
    assert [queued.id for queued in table.in_states(JobState.QUEUED)] == ["c", "b", "a"]
    table.move("b", None)
    assert [queued.id for queued in table.in_states(JobState.QUEUED)] == ["c", "a", "b"]


def test_only_waiting_jobs_can_be_moved(table: JobTable) -> None:
    table.insert(job("a"))
    with pytest.raises(Conflict):
        table.move("a", "gone")


def test_search_takes_words_literally(table: JobTable) -> None:
    table.insert(job("a", model="Qwen/Qwen3-8B", notes="100% done"))
    table.insert(job("b", model="meta/Llama"))
    assert [found.id for found in table.find("qwen 100%")[1]] == ["a"]
    assert table.find("%")[0] == 1
    assert table.find("_")[0] == 0


def test_tag_is_found_whole_whatever_it_is_made_of(table: JobTable) -> None:
    tags = {"plain": ("t1",), "longer": ("t12",), "quoted": ('say "t1"',), "chinese": ("中文", "t2"), "none": ()}
    for name, carried in tags.items():
        table.insert(job(name, tags=carried))
    for wanted, names in {"t1": ["plain"], 'say "t1"': ["quoted"], "中文": ["chinese"], "t": []}.items():
        total, found = table.find(tags=(wanted,))
        assert (total, [each.id for each in found]) == (len(names), names)
    table.insert(job("tricky", tags=('a"t9\\',)))
    assert table.find(tags=("t9\\",)) == (0, [])


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("descending", [True, False])
def test_pages_put_together_are_every_job_once_and_those_without_a_value_last(
    table: JobTable, sort: str, descending: bool
) -> None:
    for number in range(23):
        started = None if number % 3 == 0 else float(number % 5)
        ended = None if started is None else started + number % 4
        loss = None if number % 4 == 0 else float("nan") if number % 7 == 0 else 1 / number
        table.insert(job(f"j{number}", created_at=float(number % 6), started_at=started, ended_at=ended, loss=loss))
    pages = [table.find(limit=5, offset=offset, sort=sort, descending=descending) for offset in range(0, 25, 5)]
    found = [each for total, page in pages for each in page if total == 23]
    assert sorted(each.id for each in found) == sorted(f"j{number}" for number in range(23))
    values = {
        "loss": lambda each: each.loss, "duration": lambda each: each.ended_at, "ended": lambda each: each.ended_at,
        "started": lambda each: each.started_at,
    }.get(sort, lambda each: each.created_at)  # fmt: skip
    missing = [values(each) is None for each in found]
    assert missing == sorted(missing)


def test_running_job_cannot_be_deleted(table: JobTable) -> None:
    table.insert(job("a", state=JobState.RUNNING))
    with pytest.raises(Conflict, match="stop"):
        table.delete("a")
    with pytest.raises(NotFound):
        table.delete("b")


def test_folder_that_cannot_be_written_is_a_store_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreFault, match="Cannot open the database"):
        Database(tmp_path / "file" / "deck.sqlite")
