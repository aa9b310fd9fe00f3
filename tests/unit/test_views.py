"""What pages read of the job table and the job folders."""

from __future__ import annotations

import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from backend.domain.events import Alert, CheckpointSaved
from backend.domain.job import JobState
from backend.domain.problem import Severity
from backend.errors import Conflict, NotFound, PathRefused
from backend.services.api import Api
from backend.services.cursor import Cursor, parse_cursor
from backend.services.views import MAX_BYTES_BEHIND, Views
from backend.store.events import append_event
from backend.store.paths import JobPaths
from backend.store.series import Mark
from tests.checkpoint_files import write_adapter, write_checkpoint, write_zero3_checkpoint
from tests.job_folders import add_job, open_api
from tests.recorder_files import RecorderFiles


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return open_api(tmp_path)


@pytest.fixture
def views(api: Api) -> Views:
    return Views(api, clock=lambda: 1_000_100.0)


def trained(paths: JobPaths, steps: int = 10) -> RecorderFiles:
    files = RecorderFiles(paths.recorder)
    files.start()
    for step in range(1, steps + 1):
        files.step(step, loss=3 - step / 10)
    return files


def test_cursor_is_text_and_back() -> None:
    cursor = Cursor(mark=Mark(load="ab12", rows=1, logs=2, markers=3, cuts=0), events=4, log=5)
    assert parse_cursor(str(cursor)) == cursor


@pytest.mark.parametrize(
    "text", ["", "x", "a.1.2.3.4.5", "a.1.2.3.4.5.-6", "a.1.2.3.4.5.6.7", ".1.2.3.4.5.6", "a.1.2.3.4.5.²"]
)
def test_what_is_no_cursor_starts_anew(text: str) -> None:
    assert parse_cursor(text) is None


def test_unknown_run_is_not_found(views: Views) -> None:
    for ask in (views.run, views.series, views.console):
        with pytest.raises(NotFound):
            ask("nope")


def test_home_groups_jobs_by_what_they_do(api: Api, views: Views) -> None:
    trained(add_job(api, "a"))
    add_job(api, "b", JobState.QUEUED)
    add_job(api, "c", JobState.FAILED, ended_at=5.0, loss=float("nan"))
    add_job(api, "d", JobState.SUCCEEDED, ended_at=9.0)
    state = views.state()
    assert [[row["id"] for row in rows] for rows in (state.running, state.queued, state.recent)] == [
        ["a"],
        ["b"],
        ["d", "c"],
    ]
    assert state.counts == {"running": 1, "queued": 1, "failed": 1, "succeeded": 1}
    assert state.recent[1]["loss"] == "nan"
    assert len(state.running[0]["spark"]) == 10  # type: ignore[arg-type]
    assert state.disk.total_bytes > state.disk.free_bytes > 0
    assert state.gpus == ()


def test_run_detail_of_a_waiting_job_is_empty_but_whole(api: Api, views: Views) -> None:
    add_job(api, "a", JobState.QUEUED)
    detail = views.run("a")
    assert (detail.plan, detail.checkpoints, detail.segments, detail.files, detail.keys) == (None, (), (), (), ())
    assert detail.headline.step is None and detail.headline.elapsed_seconds is None
    assert (detail.can.cancel, detail.can.stop, detail.can.delete) == (True, False, False)
    assert detail.events[0]["kind"] == "state"


def test_run_detail_tells_phases_with_their_length(api: Api, views: Views) -> None:
    files = trained(add_job(api, "a"))
    files.evaluation(10, eval_loss=1.25)
    files.finish(10)
    phases = views.run("a").segments[0].phases
    assert [(phase.phase, phase.seconds) for phase in phases] == [
        ("importing", 0.0),
        ("loading", 5.0),
        ("training", 5.0),
        ("evaluating", 3.0),
        ("training", 0.0),
        ("finishing", 0.0),
    ]


def test_checkpoint_shows_the_eval_loss_of_its_step(api: Api, views: Views) -> None:
    paths = add_job(api, "a")
    files = trained(paths)
    files.evaluation(10, eval_loss=1.25)
    write_checkpoint(paths.output, 10)
    files.checkpoint(10)
    assert [(found.name, found.complete, found.eval_loss) for found in views.run("a").checkpoints] == [
        ("checkpoint-10", True, 1.25)
    ]


def test_series_of_a_range_hold_that_range_only(api: Api, views: Views) -> None:
    trained(add_job(api, "a"), steps=50)
    answer = views.series("a", ["loss", "rank_seconds", "nothing"], first=10, last=20)
    assert sorted(answer.series) == ["loss", "rank_seconds.0"]
    assert answer.series["loss"].x.tolist() == list(range(10, 21))
    assert answer.span == (1, 50)
    assert "rank_seconds.0" not in views.series("a").series


def test_series_are_bounded_by_the_points_asked_for(api: Api, views: Views) -> None:
    trained(add_job(api, "a"), steps=300)
    answer = views.series("a", points=50)
    assert all(len(curve.x) <= 50 for curve in answer.series.values())
    assert answer.series["loss"].x[-1] == 300


def test_update_after_a_snapshot_holds_only_what_came_since(api: Api, views: Views) -> None:
    paths = add_job(api, "a")
    files = trained(paths)
    paths.console.write_bytes(b"before\n")
    cursor = parse_cursor(views.series("a").cursor)
    files.step(11, loss=1.5)
    with paths.console.open("ab") as console:
        console.write(b"[WARNING|x] new\n 50%|#")
    append_event(paths.events, CheckpointSaved(at=1.0, step=11, path="checkpoint-11"))
    update = views.update("a", cursor)
    assert not update.reset
    assert update.rows["loss"].x.tolist() == [11] and update.rows["seconds_per_step"].x.tolist() == [11]
    assert [event["kind"] for event in update.events] == ["checkpoint"]
    assert update.checkpoints == ()
    assert update.log is not None and [line.text for line in update.log.lines] == ["[WARNING|x] new"]
    assert update.log.open is not None and update.log.open.text == " 50%|#"
    again = views.update("a", update.cursor)
    assert (again.reset, again.rows, again.events, again.checkpoints) == (False, {}, (), None)
    assert again.log is not None and again.log.lines == () and again.log.open == update.log.open


def test_update_without_or_with_a_foreign_cursor_is_a_reset(api: Api, views: Views) -> None:
    trained(add_job(api, "a"))
    fresh = views.update("a", None)
    assert fresh.reset and fresh.rows == {} and fresh.checkpoints == ()
    foreign = Cursor(mark=Mark(load="other", rows=1, logs=1, markers=0, cuts=0), events=0, log=0)
    assert views.update("a", foreign).reset
    assert not views.update("a", fresh.cursor).reset


def test_reader_far_behind_in_a_flood_of_log_is_reset(api: Api, views: Views) -> None:
    paths = add_job(api, "a")
    trained(paths)
    cursor = parse_cursor(views.series("a").cursor)
    paths.console.write_bytes(b"x" * 99 + b"\n" * (MAX_BYTES_BEHIND + 1))
    assert views.update("a", cursor).reset


def test_log_lines_have_number_level_rank_and_what_a_terminal_shows(api: Api, views: Views) -> None:
    paths = add_job(api, "a")
    paths.console.write_bytes(b"one\n  0%|\r 50%|\r100%|##\n[rank1]: ValueError: bad\n\x1b[31mred\x1b[0m")
    view = views.log("a", offset=-3, before=None, limit=500)
    assert [(line.n, line.text) for line in view.lines] == [(1, "one"), (2, "100%|##"), (3, "[rank1]: ValueError: bad")]
    assert (view.lines[2].rank, view.lines[2].level) == (1, "error")
    assert view.open is not None and (view.open.n, view.open.text) == (4, "red")
    assert [line.n for line in views.log("a", offset=None, before=view.lines[2].at, limit=1).lines] == [2]


def test_archive_holds_the_folder_under_a_telling_name(api: Api, views: Views) -> None:
    paths = add_job(api, "a", JobState.SUCCEEDED)
    write_zero3_checkpoint(paths.output, 7)
    for only_inference, count in ((False, 13), (True, 3)):
        content = views.archive("a", "checkpoint-7", only_inference=only_inference)
        data = b"".join(content.read(0, content.size))
        with tarfile.open(fileobj=BytesIO(data)) as archive:
            names = archive.getnames()
        assert len(names) == count and "a-checkpoint-7/adapter_model.safetensors" in names


def test_archive_of_the_final_model_leaves_checkpoints_out(api: Api, views: Views) -> None:
    paths = add_job(api, "a", JobState.SUCCEEDED)
    write_checkpoint(paths.output, 7)
    write_adapter(paths.output)
    content = views.archive("a", "final", only_inference=False)
    with tarfile.open(fileobj=BytesIO(b"".join(content.read(0, content.size)))) as archive:
        assert sorted(archive.getnames()) == [
            "a/adapter_config.json",
            "a/adapter_model.safetensors",
            "a/tokenizer.json",
        ]


def test_incomplete_or_unknown_checkpoint_is_refused(api: Api, views: Views) -> None:
    paths = add_job(api, "a", JobState.FAILED)
    (write_checkpoint(paths.output, 7) / "trainer_state.json").unlink()
    with pytest.raises(Conflict, match=r"trainer_state\.json is missing"):
        views.archive("a", "checkpoint-7", only_inference=False)
    for name in ("checkpoint-8", "..", "checkpoint-7/..", "/etc"):
        with pytest.raises(NotFound):
            views.archive("a", name, only_inference=False)


def test_shards_alone_are_not_offered_for_inference(api: Api, views: Views) -> None:
    paths = add_job(api, "a", JobState.SUCCEEDED)
    (write_zero3_checkpoint(paths.output, 7) / "adapter_model.safetensors").unlink()
    assert views.archive("a", "checkpoint-7", only_inference=False).size
    with pytest.raises(Conflict, match="shards"):
        views.archive("a", "checkpoint-7", only_inference=True)


@pytest.mark.parametrize(
    "name", ["../spec.yaml", "../../job-2/output/x", "/etc/passwd", "out", "sub/../../spec.yaml", "a\0b"]
)
def test_file_outside_the_output_folder_is_refused(api: Api, views: Views, name: str) -> None:
    paths = add_job(api, "a")
    (paths.output / "out").symlink_to("/etc/passwd")
    with pytest.raises(PathRefused):
        views.output_file("a", name)


def test_link_out_of_the_output_folder_is_not_archived(api: Api, views: Views) -> None:
    paths = add_job(api, "a", JobState.SUCCEEDED)
    (write_checkpoint(paths.output, 7) / "secret").symlink_to("/etc/passwd")
    with pytest.raises(PathRefused):
        views.archive("a", "checkpoint-7", only_inference=False)


def test_output_folder_elsewhere_is_served_through_its_link(api: Api, views: Views, tmp_path: Path) -> None:
    paths = add_job(api, "a", JobState.SUCCEEDED)
    elsewhere = tmp_path / "elsewhere"
    write_checkpoint(elsewhere, 7)
    paths.output.rmdir()
    paths.output.symlink_to(elsewhere)
    assert views.output_file("a", "checkpoint-7/tokenizer.json").size == 2
    assert views.run("a").checkpoints[0].complete
    with pytest.raises(NotFound):
        views.output_file("a", "checkpoint-7/missing")


def test_lists_show_the_newest_alarm_of_each_kind_and_no_notes(api: Api, views: Views) -> None:
    paths = add_job(api, "sick")
    add_job(api, "fine")
    told = [
        Alert(at=1.0, code="loss_spike", severity=Severity.WARNING, message="first", step=10),
        Alert(at=2.0, code="grad_norm_elevated", severity=Severity.NOTE, message="a note", step=11),
        Alert(at=3.0, code="gpu_lost", severity=Severity.ERROR, message="not about numbers"),
    ]
    for alert in told:
        append_event(paths.events, alert)
    rows = {row["id"]: row for row in views.runs("", (), 10, 0)[1]}
    assert [alarm["step"] for alarm in rows["sick"]["alarms"]] == [10]  # type: ignore[attr-defined]
    assert "alarms" not in rows["fine"]
    append_event(paths.events, Alert(at=4.0, code="loss_spike", severity=Severity.WARNING, message="again", step=40))
    (running,) = (row for row in views.state().running if row["id"] == "sick")
    assert [alarm["step"] for alarm in running["alarms"]] == [40]  # type: ignore[attr-defined]
