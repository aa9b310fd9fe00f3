"""Recorder files into curves, incrementally."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from backend.store.columns import Curve
from backend.store.series import Mark, RunSeries
from backend.store.series_cache import SeriesCache
from backend.store.step_table import MAX_LAG
from tests.recorder_files import RecorderFiles


def points(curve: Curve) -> list[tuple[float, float]]:
    return list(zip(curve.x.tolist(), curve.y.tolist(), strict=True))


def one(run: RunSeries, key: str) -> list[tuple[float, float]]:
    return points(run.curves([key])[key])


def steps_of(run: RunSeries, key: str = "seconds_per_step") -> list[float]:
    curve = run.curves([key]).get(key)
    return [] if curve is None else curve.x.tolist()


def test_run_that_has_written_nothing_has_no_series(tmp_path: Path) -> None:
    run = RunSeries(tmp_path / "recorder")
    run.refresh()
    assert run.names() == [] and run.curves(["loss"]) == {} and run.segments == []


def test_ranks_are_merged_into_the_slowest_the_sum_and_the_highest(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path, world_size=3)
    files.start()
    files.step(1, seconds=0.5)
    run = RunSeries(tmp_path)
    run.refresh()
    assert one(run, "seconds_per_step") == [(1, 0.52)]
    assert one(run, "tokens_per_second") == [(1, pytest.approx(300 / 0.52))]
    assert one(run, "memory_bytes") == [(1, 12)]
    assert one(run, "data_seconds") == [(1, 0.03)]
    assert one(run, "padding_share") == [(1, 0.2)]
    assert one(run, "tokens") == [(1, 300)]
    assert [one(run, f"rank_seconds.{rank}") for rank in range(3)] == [[(1, 0.5)], [(1, 0.51)], [(1, 0.52)]]


def test_step_is_shown_only_when_every_rank_has_reported_it(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path, world_size=2)
    files.start()
    files.step(1)
    files.step_of(0, 2)
    run = RunSeries(tmp_path)
    run.refresh()
    assert steps_of(run) == [1]
    files.step_of(1, 2)
    run.refresh()
    assert steps_of(run) == [1, 2]


def test_last_step_of_a_killed_run_is_shown_without_a_false_token_sum(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path, world_size=2)
    files.start()
    files.step(1)
    files.step_of(0, 2)
    run = RunSeries(tmp_path)
    run.refresh(ended=True)
    assert steps_of(run) == [1, 2]
    assert math.isnan(one(run, "tokens_per_second")[1][1])


def test_silent_rank_does_not_hold_up_the_chart_for_ever(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path, world_size=2)
    files.start()
    for step in range(1, MAX_LAG + 2):
        files.step_of(0, step)
    run = RunSeries(tmp_path)
    run.refresh()
    assert steps_of(run)[-1] == MAX_LAG + 1
    files.step_of(0, MAX_LAG + 2)
    run.refresh()
    assert steps_of(run)[-1] == MAX_LAG + 2
    assert "tokens_per_second" not in run.names()


def test_uncountable_tokens_are_missing_not_zero(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path)
    files.start()
    files.step(1, tokens=None)
    run = RunSeries(tmp_path)
    run.refresh()
    assert "tokens_per_second" not in run.names() and "tokens" not in run.names()
    assert "seconds_per_step" in run.names()


def test_diverged_loss_is_named_and_not_zero(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path)
    files.start()
    for step, loss in enumerate([2.5, "nan", "inf", 1.0], start=1):
        files.step(step, loss=loss)
    run = RunSeries(tmp_path)
    run.refresh()
    curve = run.curves(["loss"])["loss"]
    assert curve.y.tolist()[::3] == [2.5, 1.0] and np.isnan(curve.y[1:3]).all()
    assert [(step, str(value)) for step, value in curve.odd] == [(2, "nan"), (3, "inf")]


def build_eventful(folder: Path) -> None:
    files = RecorderFiles(folder, world_size=2)
    files.start()
    for step in range(1, 13):
        files.step(step, loss=3 - step / 10)
        if step % 5 == 0:
            files.evaluation(step, eval_loss=step / 7)
            files.checkpoint(step)
    files.now += 60
    files.start(step=10)
    for step in range(11, 15):
        files.step(step, loss=1.5)
    files.finish(14)


def test_files_cut_at_every_byte_give_the_same_run(tmp_path: Path) -> None:
    build_eventful(tmp_path / "whole")
    whole = RunSeries(tmp_path / "whole")
    whole.refresh(ended=True)
    expected = {key: points(curve) for key, curve in whole.curves(whole.names()).items()}
    data = (tmp_path / "whole" / "rank-0.jsonl").read_bytes()
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "rank-1.jsonl").write_bytes((tmp_path / "whole" / "rank-1.jsonl").read_bytes())
    run = RunSeries(tmp_path / "cut")
    with (tmp_path / "cut" / "rank-0.jsonl").open("ab", buffering=0) as file:
        for at in range(len(data)):
            file.write(data[at : at + 1])
            run.refresh()
    run.refresh(ended=True)
    assert {key: points(curve) for key, curve in run.curves(run.names()).items()} == expected
    assert [(m.kind, m.step) for m in run.markers if m.kind != "checkpoint"] == [
        (m.kind, m.step) for m in whole.markers if m.kind != "checkpoint"
    ]
    assert run.skipped == 0


def test_snapshot_and_increments_hold_each_point_once(tmp_path: Path) -> None:
    build_eventful(tmp_path / "whole")
    lines = {
        rank: (tmp_path / "whole" / f"rank-{rank}.jsonl").read_bytes().splitlines(keepends=True) for rank in range(2)
    }
    (tmp_path / "live").mkdir()
    run = RunSeries(tmp_path / "live")
    held: dict[str, list[tuple[float, float]]] = {}
    mark: Mark | None = None
    resets = 0
    for index in range(max(map(len, lines.values()))):
        for rank in range(2):
            with (tmp_path / "live" / f"rank-{rank}.jsonl").open("ab") as file:
                file.writelines(lines[rank][index : index + 1])
        run.refresh()
        until = run.mark()
        rows = run.changes(mark, until) if mark else None
        if rows is None:
            resets += 1
            held = {key: points(curve) for key, curve in run.curves(run.names()).items()}
        else:
            for key, curve in rows.items():
                before = held.setdefault(key, [])
                assert not before or before[-1][0] <= curve.x[0]
                if before and before[-1][0] == curve.x[0]:
                    before.pop()
                before.extend(points(curve))
        mark = until
    assert held == {key: points(curve) for key, curve in run.curves(run.names()).items()}
    assert resets == 2  # the first read and the step back


def test_resumed_run_shows_the_line_of_steps_that_led_here(tmp_path: Path) -> None:
    build_eventful(tmp_path)
    run = RunSeries(tmp_path)
    run.refresh(ended=True)
    loss = dict(one(run, "loss"))
    assert list(loss) == list(range(1, 15))
    assert loss[10] == 2.0 and loss[11] == loss[12] == 1.5
    assert steps_of(run) == list(range(1, 15))
    assert dict(one(run, "tokens"))[14] == 14 * 200
    assert [(m.kind, m.step) for m in run.markers if m.kind in ("resume", "end")] == [("resume", 10), ("end", 14)]
    assert [(s.begin_step, s.last_step) for s in run.segments] == [(0, 12), (10, 14)]


def test_abandoned_steps_are_left_out_while_the_new_start_is_behind_them(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path)
    files.start()
    for step in range(1, 9):
        files.step(step, loss=1.0)
    files.now += 9
    files.start(step=4)
    files.step(5, loss=2.0)
    run = RunSeries(tmp_path)
    run.refresh()
    assert [x for x, _ in one(run, "loss")] == [1, 2, 3, 4, 5]
    assert steps_of(run) == [1, 2, 3, 4, 5]


def test_start_that_failed_before_training_changes_no_curve(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path)
    files.every("phase", phase="importing")
    files.every("start", rank=0, world_size=1)
    files.now += 30
    files.start()
    files.step(1, loss=1.0)
    files.now += 30
    files.every("phase", phase="importing")
    run = RunSeries(tmp_path)
    run.refresh()
    assert len(run.segments) == 3
    assert one(run, "loss") == [(1, 1.0)] and steps_of(run) == [1]


def test_rank_that_missed_a_start_is_matched_by_time(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path, world_size=2)
    files.start()
    files.step(1)
    files.now += 100
    files.write(0, "phase", phase="importing")
    files.write(0, "start", rank=0, world_size=2)
    files.now += 100
    files.start(step=1)
    files.step(2)
    run = RunSeries(tmp_path)
    run.refresh()
    assert steps_of(run) == [1, 2]
    assert dict(one(run, "tokens"))[2] == 400


def test_torn_line_in_the_middle_costs_only_itself(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path)
    files.start()
    files.step(1, loss=1.0)
    with files.path(0).open("a") as file:
        file.write('{"t":1,"k":"st\n{"k":"step","s":"x","t":1}\n[1]\n')
    files.step(2, loss=2.0)
    run = RunSeries(tmp_path)
    run.refresh()
    assert [x for x, _ in one(run, "loss")] == [1, 2] and steps_of(run) == [1, 2]
    assert run.skipped == 3


def test_replaced_file_is_read_anew_and_old_marks_are_void(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path)
    files.start()
    files.step(1, loss=1.0)
    run = RunSeries(tmp_path)
    run.refresh()
    mark = run.mark()
    files.path(0).write_text("")
    files.start()
    files.step(1, loss=9.0)
    run.refresh()
    assert one(run, "loss") == [(1, 9.0)]
    assert run.changes(mark, run.mark()) is None


def test_checkpoint_is_marked_when_every_rank_wrote_its_part(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path, world_size=2)
    files.start()
    files.step(5)
    files.checkpoint(5, seconds=2.0)
    files.step(10)
    files.checkpoint(10, ranks=1)
    run = RunSeries(tmp_path)
    run.refresh()
    assert run.checkpoint_parts() == {"checkpoint-5": (2, 2), "checkpoint-10": (1, 2)}
    saved = [marker for marker in run.markers if marker.kind == "checkpoint"]
    assert [(m.step, m.text, m.seconds) for m in saved] == [(5, "checkpoint-5", 2.0)]


def test_cache_drops_the_least_recently_used_run(tmp_path: Path) -> None:
    for name in "abc":
        files = RecorderFiles(tmp_path / name)
        files.start()
        for step in range(200):
            files.step(step, loss=1.0)
    cache = SeriesCache(budget_bytes=60_000)
    runs = {}
    for name in "abc":
        runs[name] = cache.open(tmp_path / name)
    assert cache.open(tmp_path / "c") is runs["c"]
    assert cache.open(tmp_path / "a") is not runs["a"]


def test_many_records_at_once_are_taken_as_each_by_itself(tmp_path: Path) -> None:
    """Plain records are taken by the column; one that is not plain must not change what becomes of its neighbours."""
    files = RecorderFiles(tmp_path / "whole")
    files.start()
    odd: list[dict[str, object]] = [
        {"s": 3, "epoch": 0.3, "v": {"loss": "nan", "grad_norm": 1}},
        {"s": 4, "epoch": None, "v": {"loss": 1.5}},
        {"s": 4, "epoch": 0.4, "v": {"eval_loss": 2.5, "epoch": 9.0}},
        {"s": 5, "v": {"loss": "soon", "note": "text", "flag": True, "list": [1]}},
        {"s": 6, "epoch": 0.6, "v": {}},
        {"s": 6, "epoch": 0.6, "v": "no object"},
        {"s": True, "epoch": 0.7, "v": {"loss": 1.25}},
        {"s": 8, "epoch": 0.8, "v": {"grad_norm": 2, "loss": 3}},
    ]
    for step in range(1, 30):
        files.step(step, loss=3 / step)
        if step % 7 == 0:
            files.write(0, "log", s=step, epoch=step / 10, v={"eval_loss": 4 / step})
        if step % 3 == 0:
            files.write(0, "log", **odd[step // 3 % len(odd)])
    with files.path(0).open("a") as file:
        file.write('{"k":["step"],"t":1}\n{"k":"log","t":"late","s":1,"v":{"loss":7}}\n{"k":"step","t":null,"s":30}\n')
    whole = RunSeries(tmp_path / "whole")
    whole.refresh(ended=True)
    (tmp_path / "single").mkdir()
    single = RunSeries(tmp_path / "single")
    with (tmp_path / "single" / "rank-0.jsonl").open("ab", buffering=0) as file:
        for line in files.path(0).read_bytes().splitlines(keepends=True):
            file.write(line)
            single.refresh()
    single.refresh(ended=True)
    assert picture(whole) == picture(single)
    assert {"loss", "eval_loss", "grad_norm", "epoch"} <= set(whole.names())
    assert not {"note", "flag", "list"} & set(whole.names())


# ---- copies of ended runs ----


def copied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[RecorderFiles, SeriesCache]:
    """A run with a resume, a gap, a NaN and two ranks, kept as a copy."""
    monkeypatch.setattr("backend.store.series.WORTH_A_COPY", 1)
    files = RecorderFiles(folder / "recorder", world_size=2)
    files.start()
    for step in range(1, 11):
        files.step(step, tokens=None if step == 3 else 100, loss="nan" if step == 5 else 1 / step)
    files.checkpoint(10)
    files.now += 100
    files.start(step=6)
    for step in range(7, 21):
        files.step(step, loss=2 / step)
    files.finish(20)
    cache = SeriesCache(copies=folder / "copies")
    cache.open(folder / "recorder", ended=True)
    return files, cache


def picture(run: RunSeries) -> tuple[object, ...]:
    """Everything a page can ask of a run, as comparable text."""
    curves = {
        key: (curve.x.tolist(), repr(curve.y.tolist()), repr(curve.odd))
        for key, curve in run.curves(run.names()).items()
    }
    return (
        curves,
        run.markers,
        repr(run.segments),
        repr(run.progress().total_tokens),
        run.checkpoint_parts(),
        run.skipped,
    )


def test_a_copy_is_the_run_and_goes_on_with_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, _ = copied(tmp_path, monkeypatch)
    read = RunSeries(tmp_path / "recorder")
    read.refresh(ended=True)
    again = RunSeries(tmp_path / "recorder")
    assert again.load_saved(tmp_path / "copies")
    again.refresh(ended=True)
    assert picture(again) == picture(read)
    files.step(21, loss=9.0)
    for run in (read, again):
        run.refresh(ended=True)
    assert picture(again) == picture(read)
    assert again.curves(["loss"])["loss"].y[-1] == 9.0


@pytest.mark.parametrize(
    "harm", ["rewrite", "rewrite longer", "change a value", "cut numbers", "break names", "new rank"]
)
def test_a_copy_of_other_files_or_a_broken_one_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    files, _ = copied(tmp_path, monkeypatch)
    numbers, names = sorted((tmp_path / "copies").iterdir())
    lines = files.path(0).read_text().splitlines(keepends=True)
    match harm:
        case "rewrite":
            files.path(0).write_text("".join(lines[:5] + lines[:-5]))
        case "rewrite longer":
            longer = "".join([*lines, lines[-1].replace("done", "phase")])
            files.path(0).write_text(longer.replace('"ok":true', '"ok":1234'))
        case "change a value":
            files.path(0).write_text("".join(lines).replace('"loss":0.25', '"loss":0.75'))
        case "cut numbers":
            numbers.write_bytes(numbers.read_bytes()[:-8])
        case "break names":
            names.write_text(names.read_text()[:-9])
        case _:
            files.path(2).write_text("{}\n")
    again = RunSeries(tmp_path / "recorder")
    assert not again.load_saved(tmp_path / "copies")
    read = RunSeries(tmp_path / "recorder")
    for run in (read, again):
        run.refresh(ended=True)
    assert picture(again) == picture(read)


def test_a_copy_of_a_living_run_goes_on_with_what_came_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dashboard was restarted: only the rest is read, and rows that waited for a slower rank are not lost."""
    files = RecorderFiles(tmp_path / "recorder", world_size=2)
    files.start()
    for step in range(1, 8):
        files.step(step, loss=1 / step)
    for step in (8, 9):
        files.step_of(0, step)
    with files.path(1).open("a") as file:
        file.write('{"t":1000005,"k":"st')
    before = RunSeries(tmp_path / "recorder")
    before.refresh()
    before.save(tmp_path / "copies")
    with files.path(1).open("a") as file:
        file.write('ep","s":8,"dt":0.5,"data":0,"tok":100,"pad":25,"mem":null}\n')
    files.step_of(1, 9)
    files.step(10, loss=9.0)
    again = RunSeries(tmp_path / "recorder")
    assert again.load_saved(tmp_path / "copies")
    assert steps_of(again) == list(range(1, 8)) and 0 < again.unread_bytes() < 1000
    read = RunSeries(tmp_path / "recorder")
    for run in (read, again, before):
        run.refresh()
    assert picture(again) == picture(read) == picture(before)
    assert steps_of(again) == list(range(1, 11)) and again.skipped == 0


def test_a_living_run_is_copied_when_it_has_grown_by_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.store.series.WORTH_A_COPY", 1)
    monkeypatch.setattr("backend.store.series.LEAST_GROWTH_BYTES", 1)
    files = RecorderFiles(tmp_path / "recorder")
    files.start()
    run = RunSeries(tmp_path / "recorder")
    sizes = []
    for step in range(1, 201):
        files.step(step)
        run.refresh()
        if run.needs_copy(ended=False):
            run.save(tmp_path / "copies")
            sizes.append(run.read_bytes)
    assert 5 < len(sizes) < 20
    assert all(later >= 1.5 * earlier for earlier, later in itertools.pairwise(sizes))


def test_short_runs_leave_no_copy(tmp_path: Path) -> None:
    RecorderFiles(tmp_path / "recorder").start()
    cache = SeriesCache(copies=tmp_path / "copies")
    cache.open(tmp_path / "recorder", ended=True)
    assert not (tmp_path / "copies").exists()


def test_a_run_begun_anew_in_its_folder_is_marked_as_restart_not_as_resume(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path)
    for _ in range(2):
        files.start()
        files.step(1)
    run = RunSeries(tmp_path)
    run.refresh()
    assert [(marker.kind, marker.step) for marker in run.markers] == [("restart", 0)]


def test_the_stride_tells_how_many_steps_lie_between_two_records(tmp_path: Path) -> None:
    files = RecorderFiles(tmp_path)
    files.start()
    for step in (10, 20, 30):
        files.step(step)
    run = RunSeries(tmp_path)
    run.refresh()
    assert run.progress().stride == 10
