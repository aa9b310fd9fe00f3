"""The WebSocket: increments exactly once, resets, slow readers, ends (docs/contracts.md, "WebSocket")."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient, WebSocketTestSession
from starlette.websockets import WebSocketDisconnect

from backend.domain.job import JobState
from backend.services.api import Api
from backend.services.views import Views
from tests.checkpoint_files import write_checkpoint
from tests.job_folders import add_job, open_api
from tests.recorder_files import RecorderFiles
from ui.live import QUEUE_LENGTH, Client
from ui.server import create_app
from ui.sessions import COOKIE, hash_password

BASE = "http://127.0.0.1:7860"
HOST = {"Host": "127.0.0.1:7860"}  # the test client connects WebSockets to a host of its own
Json = dict[str, Any]


class Readings:
    """GPU readings that a test sets."""

    def __init__(self) -> None:
        self.now: list[object] = []

    def __call__(self) -> list[object]:
        return self.now


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return open_api(tmp_path)


@pytest.fixture
def readings() -> Readings:
    return Readings()


@pytest.fixture
def client(api: Api, readings: Readings) -> Iterator[TestClient]:
    views = Views(api, gpu_readings=readings)
    with TestClient(create_app(api, views, {}, api.settings, interval=0.02), base_url=BASE, headers=HOST) as client:
        yield client


@pytest.fixture
def files(api: Api) -> RecorderFiles:
    files = RecorderFiles(add_job(api).recorder)
    files.start()
    for step in range(1, 6):
        files.step(step, loss=1.0)
    return files


def until(socket: WebSocketTestSession, key: str, tries: int = 200) -> Json:
    """The next message that has `key`."""
    for _ in range(tries):
        message: Json = json.loads(socket.receive_text())
        if key in message:
            return message
    raise AssertionError(f"no message with {key}")


def snapshot(client: TestClient) -> tuple[list[int], str]:
    answer = client.get("/api/runs/job-1/series?keys=loss").json()
    return answer["series"]["loss"]["x"], answer["cursor"]


def test_first_message_without_a_cursor_is_a_reset(client: TestClient, files: RecorderFiles) -> None:
    with client.websocket_connect("/api/ws?run=job-1") as socket:
        message = json.loads(socket.receive_text())
    assert message["reset"] is True and message["c"]
    assert message["job"]["id"] == "job-1" and message["headline"]["step"] == 5
    assert message["checkpoints"] == [] and message["can"]["stop"] is True
    assert "rows" not in message


def test_snapshot_then_increments_then_reconnect_give_every_step_once(client: TestClient, files: RecorderFiles) -> None:
    steps, cursor = snapshot(client)
    number = 5
    for _ in range(4):
        with client.websocket_connect(f"/api/ws?run=job-1&after={cursor}") as socket:
            for _ in range(3):
                number += 1
                files.step(number, loss=1.0)
                message = until(socket, "rows")
                steps += message["rows"]["loss"]["x"]
                cursor = message["c"]
                if message["rows"]["loss"]["x"][-1] < number:  # the tick fell between two lines
                    message = until(socket, "rows")
                    steps += message["rows"].get("loss", {"x": []})["x"]
                    cursor = message["c"]
        number += 1
        files.step(number, loss=1.0)  # while nobody is connected
    steps += client.get("/api/runs/job-1/since", params={"c": cursor}).json()["rows"]["loss"]["x"]
    assert steps == list(range(1, number + 1))


def test_reader_that_comes_later_gets_exactly_what_it_lacks(client: TestClient, files: RecorderFiles) -> None:
    _, early = snapshot(client)
    with client.websocket_connect(f"/api/ws?run=job-1&after={early}") as first:
        json.loads(first.receive_text())
        files.step(6, loss=1.0)
        assert until(first, "rows")["rows"]["loss"]["x"] == [6]
        with client.websocket_connect(f"/api/ws?run=job-1&after={early}") as second:
            assert json.loads(second.receive_text())["rows"]["loss"]["x"] == [6]
            files.step(7, loss=1.0)
            assert until(first, "rows")["rows"]["loss"]["x"] == until(second, "rows")["rows"]["loss"]["x"] == [7]


def test_step_back_is_a_reset(client: TestClient, files: RecorderFiles) -> None:
    _, cursor = snapshot(client)
    with client.websocket_connect(f"/api/ws?run=job-1&after={cursor}") as socket:
        json.loads(socket.receive_text())
        files.now += 100
        files.start(step=3)
        files.step(4, loss=9.0)
        assert until(socket, "reset")["reset"] is True
    steps, _ = snapshot(client)
    assert steps == [1, 2, 3, 4]


def test_unknown_cursor_of_a_server_before_is_a_reset(client: TestClient, files: RecorderFiles) -> None:
    with client.websocket_connect("/api/ws?run=job-1&after=deadbeef.5.5.0.0.1.0") as socket:
        assert json.loads(socket.receive_text())["reset"] is True


def test_log_lines_come_once_and_the_open_line_is_replaced(client: TestClient, api: Api, files: RecorderFiles) -> None:
    console = api.paths.job("job-1").console
    console.write_text("old\n")
    _, cursor = snapshot(client)
    window = client.get("/api/runs/job-1/log?offset=-500").json()
    with console.open("a") as file:
        file.write("between\n 10%|")
    with client.websocket_connect(f"/api/ws?run=job-1&after={cursor}&log={window['next']}") as socket:
        first = json.loads(socket.receive_text())["log"]
        assert [line["text"] for line in first["lines"]] == ["between"] and first["open"]["text"] == " 10%|"
        with console.open("a") as file:
            file.write("\r 20%|")
        moved = until(socket, "log")["log"]
        assert moved["lines"] == [] and moved["open"]["text"] == " 20%|"
        with console.open("a") as file:
            file.write("\r done\n")
        ended = until(socket, "log")["log"]
        assert [(line["at"], line["n"], line["text"]) for line in ended["lines"]] == [(12, 3, " done")]
        assert ended["open"] is None


def test_message_comes_only_when_something_changed(client: TestClient, api: Api, files: RecorderFiles) -> None:
    api.jobs.transition("job-1", (JobState.RUNNING,), JobState.FAILED, ended_at=1_000_010.0)
    _, cursor = snapshot(client)
    with client.websocket_connect(f"/api/ws?run=job-1&after={cursor}") as socket:
        json.loads(socket.receive_text())
        time.sleep(0.2)
        api.annotate("job-1", "seen", ())
        message = json.loads(socket.receive_text())
        assert message["job"] == {"notes": "seen"}
        assert set(message) == {"c", "job"}


def test_messages_put_together_are_the_record_itself(client: TestClient, api: Api, files: RecorderFiles) -> None:
    """Only what changed is sent; a reader that comes later starts with all of it."""
    _, cursor = snapshot(client)
    with client.websocket_connect(f"/api/ws?run=job-1&after={cursor}") as socket:
        held = json.loads(socket.receive_text())
        api.jobs.update("job-1", step=6, loss=1.5)
        files.step(6, loss=1.5)
        while (held["job"]["step"], held["headline"]["step"]) != (6, 6):
            message = json.loads(socket.receive_text())
            for part in ("job", "headline"):
                assert "id" not in message.get(part, {}) and "max_steps" not in message.get(part, {})
                held[part] |= message.get(part, {})
        now = client.get("/api/runs/job-1").json()
        assert held["job"] == now["job"]
        same = held["headline"].keys() - {"elapsed_seconds", "stalled_seconds"}  # they go on with the clock
        assert {key: held["headline"][key] for key in same} == {key: now["headline"][key] for key in same}
        with client.websocket_connect(f"/api/ws?run=job-1&after={cursor}") as late:
            assert json.loads(late.receive_text())["job"] == now["job"]


def test_checkpoint_list_follows_a_save(client: TestClient, api: Api, files: RecorderFiles) -> None:
    _, cursor = snapshot(client)
    with client.websocket_connect(f"/api/ws?run=job-1&after={cursor}") as socket:
        json.loads(socket.receive_text())
        write_checkpoint(api.paths.job("job-1").output, 5)
        files.checkpoint(5)
        message = until(socket, "checkpoints")
    assert [found["name"] for found in message["checkpoints"]] == ["checkpoint-5"]
    assert message["markers"][0]["kind"] == "checkpoint"


def test_gpu_readings_come_with_every_view(client: TestClient, readings: Readings, files: RecorderFiles) -> None:
    _, cursor = snapshot(client)
    with (
        client.websocket_connect(f"/api/ws?run=job-1&after={cursor}") as run,
        client.websocket_connect("/api/ws") as home,
    ):
        assert json.loads(run.receive_text())["gpus"] == [] and json.loads(home.receive_text())["gpus"] == []
        readings.now = [{"id": "0000:01:00.0", "gfx_activity_percent": None}]
        assert until(run, "gpus")["gpus"] == until(home, "gpus")["gpus"] == readings.now


def test_home_sends_all_first_and_then_only_what_changed(client: TestClient, api: Api) -> None:
    with client.websocket_connect("/api/ws") as socket:
        first = json.loads(socket.receive_text())
        assert {"c", "host", "worker", "gpus", "disk", "counts", "running", "queued", "recent"} <= set(first)
        add_job(api, "new", JobState.QUEUED)
        message = until(socket, "queued")
    assert [row["id"] for row in message["queued"]] == ["new"] and message["counts"] == {"queued": 1}
    assert "host" not in message and "recent" not in message


def test_unknown_run_is_closed_with_its_code(client: TestClient) -> None:
    with client.websocket_connect("/api/ws?run=nope") as socket, pytest.raises(WebSocketDisconnect) as closed:
        socket.receive_text()
    assert closed.value.code == 4404


def test_deleted_run_is_closed_with_its_code(client: TestClient, api: Api, files: RecorderFiles) -> None:
    api.jobs.transition("job-1", (JobState.RUNNING,), JobState.FAILED, ended_at=1_000_010.0)
    with client.websocket_connect("/api/ws?run=job-1") as socket:
        json.loads(socket.receive_text())
        api.delete("job-1")
        with pytest.raises(WebSocketDisconnect) as closed:
            until(socket, "never")
    assert closed.value.code == 4404


def test_fault_of_one_look_is_shown_and_the_view_goes_on(
    client: TestClient, api: Api, files: RecorderFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, cursor = snapshot(client)
    with client.websocket_connect(f"/api/ws?run=job-1&after={cursor}") as socket:
        json.loads(socket.receive_text())
        with monkeypatch.context() as patch:
            patch.setattr(api, "read_events", lambda _: 1 / 0)
            assert "ZeroDivisionError" in until(socket, "problem")["problem"]
        files.step(6, loss=1.0)
        assert until(socket, "rows")["rows"]["loss"]["x"] == [6]


def test_reader_that_cannot_keep_up_is_told_to_start_anew() -> None:
    async def fill() -> list[str | int]:
        client = Client(None)  # type: ignore[arg-type]
        for number in range(QUEUE_LENGTH + 3):
            client.put(f"m{number}", f"c{number}")
        return [client.queue.get_nowait() for _ in range(client.queue.qsize())]

    queue = asyncio.run(fill())
    assert [json.loads(str(queue[0]))] == [{"c": f"c{QUEUE_LENGTH}", "reset": True}]
    assert queue[1:] == [f"m{QUEUE_LENGTH + 1}", f"m{QUEUE_LENGTH + 2}"]


def test_channel_stops_looking_when_nobody_does(api: Api, files: RecorderFiles) -> None:
    looks = 0

    class Counting(Views):
        def update(self, *given: Any) -> Any:
            nonlocal looks
            looks += 1
            return super().update(*given)

    app = create_app(api, Counting(api), {}, api.settings, interval=0.02)
    with TestClient(app, base_url=BASE, headers=HOST) as client:
        with client.websocket_connect("/api/ws?run=job-1") as socket:
            socket.receive_text()
        time.sleep(0.1)
        before = looks
        time.sleep(0.2)
        assert before >= 2 and looks == before


def test_websocket_of_another_site_is_refused(client: TestClient, files: RecorderFiles) -> None:
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9999"):
        with pytest.raises(WebSocketDisconnect), client.websocket_connect("/api/ws", headers={"Origin": origin}):
            pass
    with client.websocket_connect("/api/ws", headers={"Origin": BASE}) as socket:
        assert json.loads(socket.receive_text())["host"]


def test_websocket_without_a_session_is_closed_with_its_code(api: Api, tmp_path: Path) -> None:
    users = tmp_path / "users.json"
    users.write_text(json.dumps({"ann": hash_password("correct horse")}))
    settings = replace(api.settings, auth_file=users)
    with TestClient(create_app(api, Views(api), {}, settings), base_url=BASE, headers=HOST) as client:
        with client.websocket_connect("/api/ws") as socket, pytest.raises(WebSocketDisconnect) as closed:
            socket.receive_text()
        assert closed.value.code == 4401
        client.post("/login", data={"username": "ann", "password": "correct horse"})
        session = {"Cookie": f"{COOKIE}={client.cookies[COOKIE]}"}
        with client.websocket_connect("/api/ws", headers=session) as socket:
            assert json.loads(socket.receive_text())["host"]
