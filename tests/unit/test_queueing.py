"""Who starts next: first in first out, no starving, no idle cards that nobody waits for."""

from dataclasses import replace

import pytest

from backend.domain.job import Job, JobState
from backend.planning.queueing import Capacity, count_slots, plan_starts

CARDS = tuple(f"0000:{n:02x}:00.0" for n in range(4))


def job(name: str, processes: int = 1) -> Job:
    return Job(id=name, name=name, state=JobState.QUEUED, processes=processes)


def starts(
    queue: list[Job], free: tuple[str, ...] = CARDS, named: dict[str, tuple[str, ...]] | None = None
) -> dict[str, tuple]:  # type: ignore[type-arg]
    capacity = Capacity(total=CARDS, free=free, cpu_slots=0, cpu_used=0)
    return {
        start.job.id: start.devices for start in plan_starts(queue, lambda job: (named or {}).get(job.id, ()), capacity)
    }


def on_cpu(queue: list[Job], slots: int, used: int) -> list[str]:
    capacity = Capacity(total=(), free=(), cpu_slots=slots, cpu_used=used)
    return [start.job.id for start in plan_starts(queue, lambda job: (), capacity)]


def test_jobs_fill_free_cards_in_order() -> None:
    assert starts([job("a", 2), job("b", 1), job("c", 1)]) == {"a": CARDS[:2], "b": CARDS[2:3], "c": CARDS[3:]}


def test_big_job_is_not_starved_by_small_ones_behind_it() -> None:
    assert starts([job("big", 4), job("small", 1)], free=CARDS[:3]) == {}


def test_job_on_other_named_cards_passes_by_a_waiting_one() -> None:
    named = {"waits": CARDS[:2], "passes": CARDS[2:3]}
    assert starts([job("waits", 2), job("passes", 1)], free=CARDS[1:], named=named) == {"passes": CARDS[2:3]}


def test_named_cards_of_a_waiting_job_are_kept_for_it() -> None:
    named = {"waits": CARDS[:2]}
    assert starts([job("waits", 2), job("any", 1)], free=CARDS[1:], named=named) == {"any": CARDS[2:3]}


def test_no_card_is_given_twice() -> None:
    given = starts([job("a", 2), job("b", 2), job("c", 2)], named={"b": CARDS[1:3]})
    assert [card for cards in given.values() for card in cards] == sorted(
        {card for cards in given.values() for card in cards}
    )


def test_cpu_host_counts_slots() -> None:
    assert on_cpu([job("a", 1), job("b", 1), job("c", 1)], slots=2, used=0) == ["a", "b"]
    assert on_cpu([job("a", 2), job("b", 1)], slots=2, used=1) == []


def test_job_larger_than_the_cpu_host_runs_alone_rather_than_never() -> None:
    assert on_cpu([job("big", 8), job("b", 1)], slots=2, used=0) == ["big"]
    assert on_cpu([job("big", 8)], slots=2, used=1) == []


@pytest.mark.parametrize("tag", ["host-check", "tuning:t-1"])
def test_what_measures_a_cpu_host_runs_alone(tag: str) -> None:
    measuring = replace(job("m", 1), tags=(tag,))
    assert on_cpu([measuring, replace(measuring, id="n"), job("a", 1)], slots=2, used=0) == ["m"]
    assert on_cpu([measuring], slots=2, used=1) == []
    assert count_slots(measuring, 2) == 2 and count_slots(job("a", 1), 2) == 1
