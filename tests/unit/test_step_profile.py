"""The ranks' answers on disk to the account of a page: shares, failures, half-written files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.errors import NotFound
from backend.services.profile import load_profile, measure_parts, read_table
from backend.store.paths import JobPaths

ANSWER = {
    "at": 100.0, "rank": 0, "from": 7, "to": 9, "window_seconds": 2.0, "data_seconds": 0.1, "device": "accelerator",
    "busy_seconds": 1.5, "communication_seconds": 0.5, "communication_exposed_seconds": 0.2,
    "categories": {"matmul": 1.2, "communication": 0.5}, "table": {"matmul": 1.2, "communication": 0.5},
    "kernels": [{"name": "gemm", "category": "matmul", "calls": 12, "seconds": 1.2}],
}  # fmt: skip


@pytest.fixture
def paths(tmp_path: Path) -> JobPaths:
    for folder in ("profile", "recorder", "control"):
        (tmp_path / folder).mkdir()
    for rank in range(2):
        (tmp_path / "recorder" / f"rank-{rank}.jsonl").touch()
    return JobPaths(tmp_path)


def test_shares_are_of_the_window(paths: JobPaths) -> None:
    (paths.profile / "rank-0.json").write_text(json.dumps(ANSWER))
    (rank,) = load_profile(paths).ranks
    assert rank.shares == {"matmul": 0.6, "communication": 0.25}
    assert (rank.idle_share, rank.data_share) == (pytest.approx(0.25), pytest.approx(0.05))
    assert (rank.communication_share, rank.communication_exposed_share) == (pytest.approx(0.25), pytest.approx(0.1))


def test_request_is_answered_when_every_rank_has_answered_it(paths: JobPaths) -> None:
    paths.profile_request.write_text('{"at": 90.0}')
    (paths.profile / "rank-0.json").write_text(json.dumps(ANSWER))
    (paths.profile / "rank-1.json").write_text(json.dumps(ANSWER | {"rank": 1, "at": 50.0}))
    found = load_profile(paths)
    assert found.asked_at == 90.0 and not found.answers(90.0), "rank 1's answer is an older one"
    (paths.profile / "rank-1.json").write_text(json.dumps({"rank": 1, "at": 99.0, "error": "no tracer"}))
    assert load_profile(paths).answers(90.0)


@pytest.mark.parametrize(
    ("talk", "late"), [((0.30, 0.05, 0.28), 1), ((0.12, 0.08, 0.1), None), ((0.0, 0.0, 0.0), None)]
)
def test_late_rank_is_the_one_that_does_not_wait(paths: JobPaths, talk: tuple[float, ...], late: int | None) -> None:
    for rank, share in enumerate(talk):
        answer = ANSWER | {"rank": rank, "communication_seconds": 2.0 * share}
        (paths.profile / f"rank-{rank}.json").write_text(json.dumps(answer))
    found = load_profile(paths).late
    assert (found.rank if found else None) == late
    assert found is None or found.share == pytest.approx(0.24)


def test_ranks_of_different_windows_are_not_compared(paths: JobPaths) -> None:
    (paths.profile / "rank-0.json").write_text(json.dumps(ANSWER))
    (paths.profile / "rank-1.json").write_text(json.dumps(ANSWER | {"rank": 1, "communication_seconds": 1.9, "to": 30}))
    assert load_profile(paths).late is None


def test_half_written_and_foreign_files_are_left_out(paths: JobPaths) -> None:
    (paths.profile / "rank-0.json").write_text(json.dumps(ANSWER)[:40])
    (paths.profile / "rank-1.json").write_text("[1]")
    assert load_profile(paths).ranks == ()


def test_unprofiled_run_has_no_answer_and_no_table(tmp_path: Path) -> None:
    paths = JobPaths(tmp_path)
    assert load_profile(paths).ranks == () and load_profile(paths).asked_at is None
    with pytest.raises(NotFound):
        read_table(paths, 0)


def test_parts_for_advice_are_of_the_rank_that_waits_least_in_the_newest_window(paths: JobPaths) -> None:
    (paths.profile / "rank-0.json").write_text(json.dumps(ANSWER))
    (paths.profile / "rank-1.json").write_text(json.dumps(ANSWER | {"rank": 1, "communication_exposed_seconds": 0.8}))
    parts = measure_parts(load_profile(paths))
    assert parts is not None and parts.steps == "7-9"
    assert parts.communication == pytest.approx(0.1) and parts.idle == pytest.approx(0.25)
    (paths.profile / "rank-1.json").write_text(json.dumps(ANSWER | {"rank": 1, "at": 50.0, "from": 1, "to": 3}))
    parts = measure_parts(load_profile(paths))
    assert parts is not None and parts.communication is None, "one rank alone has nobody to talk to"
    for rank in range(2):
        (paths.profile / f"rank-{rank}.json").write_text(json.dumps(ANSWER | {"rank": rank, "device": "cpu"}))
    assert measure_parts(load_profile(paths)) is None, "on a CPU nothing is traced while a rank waits"
