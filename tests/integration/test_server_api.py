"""Our HTTP routes on a real store, without pages (docs/contracts.md, "HTTP")."""

from __future__ import annotations

import json
import os
import resource
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from backend.domain.job import JobState
from backend.services.api import Api
from backend.services.views import Views
from tests.checkpoint_files import write_checkpoint
from tests.job_folders import add_job, open_api
from tests.recorder_files import RecorderFiles
from ui.server import create_app

BASE = "http://127.0.0.1:7860"


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return open_api(tmp_path)


@pytest.fixture
def client(api: Api) -> Iterator[TestClient]:
    with TestClient(
        create_app(api, Views(api), {}, api.settings), base_url=BASE, raise_server_exceptions=False
    ) as client:
        yield client


def error(answer: Any) -> tuple[int, str, str]:
    found = answer.json()["error"]
    assert found["message"]
    return answer.status_code, found["code"], found["field"]


def trained(
    api: Api, job_id: str = "job-1", state: JobState = JobState.RUNNING, steps: int = 5, **fields: object
) -> RecorderFiles:
    files = RecorderFiles(add_job(api, job_id, state, **fields).recorder)
    files.start()
    for step in range(1, steps + 1):
        files.step(step, loss=1 / step)
    return files


def test_health_and_state_of_an_empty_installation(client: TestClient) -> None:
    assert client.get("/api/health").json()["ok"] is True
    state = client.get("/api/state").json()
    assert state["running"] == state["queued"] == state["recent"] == state["gpus"] == []
    assert state["worker"]["alive"] is False and state["disk"]["free_bytes"] > 0 and state["counts"] == {}


def test_running_job_has_headline_and_spark_on_the_home_page(api: Api, client: TestClient) -> None:
    trained(api)
    row = client.get("/api/state").json()["running"][0]
    assert row["state"] == "running" and row["headline"]["step"] == 5
    assert row["spark"] == [1.0, 0.5, 1 / 3, 0.25, 0.2]


def test_runs_are_searched_filtered_sorted_and_paged(api: Api, client: TestClient) -> None:
    for name, loss, state in (
        ("apple", 2.0, "succeeded"),
        ("banana", 1.0, "failed"),
        ("cherry", float("nan"), "failed"),
    ):
        add_job(api, name, JobState(state), loss=loss, ended_at=1.0)

    def names(query: str) -> list[str]:
        return [row["name"] for row in client.get(f"/api/runs?{query}").json()["runs"]]

    assert names("q=an") == ["banana"]
    assert names("state=failed&sort=name&order=asc") == ["banana", "cherry"]
    assert names("state=failed,succeeded&sort=loss&order=asc") == ["banana", "apple", "cherry"]
    assert names("sort=name&order=asc&limit=1&offset=1") == ["banana"]
    page = client.get("/api/runs?sort=loss&limit=1").json()
    assert (page["total"], page["runs"][0]["loss"]) == (3, "nan")


@pytest.mark.parametrize(("query", "field"), [
    ("limit=0", "limit"), ("limit=501", "limit"), ("offset=-1", "offset"), ("state=nope", "state"), ("sort=nope", "sort"),
    ("order=up", "order"), ("limit=x", "limit"),
])  # fmt: skip
def test_bad_question_names_the_field(client: TestClient, query: str, field: str) -> None:
    assert error(client.get(f"/api/runs?{query}")) == (400, "invalid_input", field)


def test_run_detail_has_everything_of_the_contract(api: Api, client: TestClient) -> None:
    trained(api)
    detail = client.get("/api/runs/job-1").json()
    assert set(detail) >= {
        "job", "plan", "spec_text", "events", "checkpoints", "segments", "headline", "files", "keys", "can",
    }  # fmt: skip
    assert detail["plan"] is None and detail["spec_text"] == "stage: sft\n"
    assert set(detail["headline"]) == {
        "step", "max_steps", "percent", "loss", "epoch", "tokens_per_second", "mean_tokens_per_second", "seconds_per_step",
        "eta_seconds", "elapsed_seconds", "phase", "tokens", "last_step_at", "stalled_seconds",
    }  # fmt: skip
    assert detail["segments"][0]["versions"] == {"torch": "2.13"}
    assert detail["can"] == {"stop": True, "save": True, "cancel": False, "resume": False, "delete": False}


@pytest.mark.parametrize(
    "path", ["", "/series", "/log", "/log.txt", "/files/x", "/archive/final.tar", "/since", "/export"]
)
@pytest.mark.parametrize("job_id", ["nope", "..", "%2e%2e", "a%2f..%2fb"])
def test_unknown_run_is_404(client: TestClient, path: str, job_id: str) -> None:
    assert client.get(f"/api/runs/{job_id}{path}").status_code == 404


def test_unknown_address_is_an_error_of_the_contract(client: TestClient) -> None:
    assert error(client.get("/api/nothing"))[:2] == (404, "not_found")
    assert error(client.delete("/api/runs/x"))[0] in (404, 405)
    assert client.get("/docs").status_code in (403, 404)
    assert client.get("/openapi.json").status_code in (403, 404)


def test_series_are_json_with_gaps_as_null_and_odd_values_named(api: Api, client: TestClient) -> None:
    files = trained(api)
    files.step(6, tokens=None, loss="nan")
    answer = client.get("/api/runs/job-1/series?keys=loss,tokens_per_second").json()
    assert answer["series"]["loss"] == {
        "x": [1, 2, 3, 4, 5, 6],
        "y": [1.0, 0.5, 1 / 3, 0.25, 0.2, None],
        "odd": [[6, "nan"]],
    }
    assert answer["series"]["tokens_per_second"]["y"] == [200.0] * 5 + [None]
    assert answer["span"] == [1, 6]
    assert client.get("/api/runs/job-1/series?keys=loss&from=2&to=3").json()["series"]["loss"]["x"] == [2, 3]
    assert error(client.get("/api/runs/job-1/series?px=1")) == (400, "invalid_input", "px")


def test_large_answers_are_compressed_for_those_who_ask(api: Api, client: TestClient) -> None:
    trained(api, steps=500)
    plain = client.get("/api/runs/job-1/series", headers={"Accept-Encoding": "identity"})
    packed = client.get("/api/runs/job-1/series", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in plain.headers and packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 2
    assert plain.json()["series"] == packed.json()["series"]


def test_since_continues_a_snapshot(api: Api, client: TestClient) -> None:
    files = trained(api)
    cursor = client.get("/api/runs/job-1/series").json()["cursor"]
    files.step(6, loss=0.1)
    message = client.get("/api/runs/job-1/since", params={"c": cursor}).json()
    assert message["rows"]["loss"] == {"x": [6], "y": [0.1]}
    assert "reset" not in message and message["headline"]["step"] == 6 and message["job"]["id"] == "job-1"
    again = client.get("/api/runs/job-1/since", params={"c": message["c"]}).json()
    assert "rows" not in again and "checkpoints" not in again
    assert client.get("/api/runs/job-1/since", params={"c": "junk"}).json()["reset"] is True


def test_log_window_by_offset_from_the_end_and_ahead(api: Api, client: TestClient) -> None:
    paths = add_job(api)
    paths.console.write_text("".join(f"line {n}\n" for n in range(1, 101)) + "bar\r 50%")

    def window(query: str) -> tuple[list[str], str | None]:
        answer = client.get(f"/api/runs/job-1/log?{query}").json()
        return [line["text"] for line in answer["lines"]], answer["open"] and answer["open"]["text"]

    assert window("offset=-2") == (["line 99", "line 100"], " 50%")
    assert window("limit=1") == (["line 100"], " 50%")
    assert window("offset=0&limit=2") == (["line 1", "line 2"], None)
    assert window("before=14&limit=1") == (["line 2"], None)
    assert error(client.get("/api/runs/job-1/log?limit=5001")) == (400, "invalid_input", "limit")


# -- actions ----------------------------------------------------------------------------------------------------------


def test_stop_writes_the_request_for_the_supervisor(api: Api, client: TestClient) -> None:
    paths = add_job(api)
    answer = client.post("/api/runs/job-1/stop", json={"mode": "save"})
    assert answer.status_code == 200 and answer.json()["job"]["state"] == "stopping"
    assert json.loads(paths.stop_request.read_text())["mode"] == "save"


def test_save_cancel_priority_move_and_notes(api: Api, client: TestClient) -> None:
    paths = add_job(api)
    for name in ("a", "b"):
        add_job(api, name, JobState.QUEUED)
    assert client.post("/api/runs/job-1/save").status_code == 200 and paths.save_request.exists()
    assert client.post("/api/runs/a/priority", json={"priority": 5}).json()["job"]["priority"] == 5
    assert client.post("/api/runs/b/move", json={"before": None}).json()["job"]["id"] == "b"
    noted = client.post("/api/runs/a/notes", json={"notes": "备注", "tags": ["x", "y"]}).json()["job"]
    assert (noted["notes"], noted["tags"]) == ("备注", ["x", "y"])
    assert client.post("/api/runs/a/cancel").json()["job"]["state"] == "cancelled"


def test_delete_removes_a_finished_run_only(api: Api, client: TestClient) -> None:
    add_job(api)
    assert error(client.post("/api/runs/job-1/delete"))[:2] == (409, "conflict")
    paths = add_job(api, "old", JobState.FAILED, ended_at=1.0)
    assert client.post("/api/runs/old/delete").json() == {"deleted": "old"}
    assert not paths.root.exists() and client.get("/api/runs/old").status_code == 404


def test_clone_gives_the_text_to_edit(api: Api, client: TestClient) -> None:
    add_job(api, "old", JobState.FAILED)
    assert "parent: old" in client.post("/api/runs/old/clone").json()["spec_text"]


def test_preview_and_submit_of_a_bad_specification_name_what_is_wrong(client: TestClient) -> None:
    answer = client.post("/api/preview", json={"spec_text": "stage: sft\nmodel_name_or_path: /no/such/model\n"})
    assert answer.status_code == 200
    assert [problem["field"] for problem in answer.json()["problems"]]
    submitted = client.post("/api/runs", json={"spec_text": "stage: sft\nmodel_name_or_path: /no/such/model\n"})
    assert error(submitted)[:2] == (400, "invalid_input") and submitted.json()["error"]["problems"]
    assert error(client.post("/api/preview", json={"spec_text": "a: [1"}))[:2] == (400, "invalid_input")
    assert client.get("/api/runs").json()["total"] == 0


@pytest.mark.parametrize(("path", "body", "field"), [
    ("stop", {}, "mode"), ("stop", {"mode": "now"}, "mode"), ("stop", {"mode": 1}, "mode"),
    ("priority", {"priority": "x"}, "priority"), ("priority", {"priority": True}, "priority"),
    ("priority", {"priority": 10**9}, "priority"), ("move", {"before": 3}, "before"),
    ("notes", {"notes": "x"}, "tags"), ("notes", {"notes": "x", "tags": [1]}, "tags"),
    ("resume", {}, "checkpoint"), ("resume", {"checkpoint": "x", "changes": [1]}, "changes"),
])  # fmt: skip
def test_bad_body_names_the_field(api: Api, client: TestClient, path: str, body: dict[str, object], field: str) -> None:
    add_job(api)
    assert error(client.post(f"/api/runs/job-1/{path}", json=body)) == (400, "invalid_input", field)


@pytest.mark.parametrize(("content", "kind", "status"), [
    (b"{", "application/json", 400), (b"[1]", "application/json", 400), (b"{}", "text/plain", 400), (b"mode=save", "", 400),
    (b'{"mode": "save"}', "application/x-www-form-urlencoded", 400), (b" " * (3 << 20), "application/json", 413),
])  # fmt: skip
def test_body_that_is_no_json_object_is_refused(
    api: Api, client: TestClient, content: bytes, kind: str, status: int
) -> None:
    paths = add_job(api)
    answer = client.post("/api/runs/job-1/stop", content=content, headers={"Content-Type": kind} if kind else {})
    assert answer.status_code == status
    assert not paths.stop_request.exists()


def test_resume_from_an_unknown_checkpoint_is_a_conflict(api: Api, client: TestClient) -> None:
    add_job(api, "old", JobState.FAILED)
    assert error(client.post("/api/runs/old/resume", json={"checkpoint": "checkpoint-9"}))[:2] == (409, "conflict")


# -- downloads --------------------------------------------------------------------------------------------------------


def test_file_is_an_attachment_that_can_be_resumed(api: Api, client: TestClient) -> None:
    paths = add_job(api)
    (paths.output / "page 1.html").write_text("<script>alert(1)</script>")
    address = "/api/runs/job-1/files/page 1.html"
    whole = client.get(address)
    assert whole.headers["content-disposition"].startswith("attachment;")
    assert whole.headers["content-type"] == "application/octet-stream"
    assert whole.headers["x-content-type-options"] == "nosniff" and whole.headers["accept-ranges"] == "bytes"
    part = client.get(address, headers={"Range": "bytes=8-", "If-Range": whole.headers["etag"]})
    assert part.status_code == 206 and whole.content[:8] + part.content == whole.content
    assert part.headers["content-range"] == f"bytes 8-{len(whole.content) - 1}/{len(whole.content)}"
    assert client.get(address, headers={"Range": "bytes=2-4"}).content == whole.content[2:5]
    assert client.get(address, headers={"Range": "bytes=999-"}).status_code == 416
    assert client.get(address, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
    head = client.head(address)
    assert head.headers["content-length"] == str(len(whole.content)) and head.content == b""


@pytest.mark.parametrize(
    "name", ["%2e%2e/spec.yaml", "..%2f..%2f..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "link", "a%00b", "folder"]
)
def test_nothing_outside_the_output_folder_comes_out(api: Api, client: TestClient, name: str) -> None:
    paths = add_job(api)
    (paths.output / "link").symlink_to("/etc/passwd")
    (paths.output / "folder").mkdir()
    answer = client.get(f"/api/runs/job-1/files/{name}")
    assert answer.status_code in (403, 404)
    assert b"root:" not in answer.content and b"stage" not in answer.content


def test_archive_can_be_resumed_at_any_byte(api: Api, client: TestClient) -> None:
    write_checkpoint(add_job(api, state=JobState.SUCCEEDED).output, 7)
    address = "/api/runs/job-1/archive/checkpoint-7.tar"
    whole = client.get(address)
    assert whole.headers["content-length"] == str(len(whole.content))
    assert "job-1-checkpoint-7.tar" in whole.headers["content-disposition"]
    with tarfile.open(fileobj=BytesIO(whole.content)) as archive:
        assert "job-1-checkpoint-7/adapter_model.safetensors" in archive.getnames()
    for start in (1, 511, 512, 700, len(whole.content) - 1):
        rest = client.get(address, headers={"Range": f"bytes={start}-", "If-Range": whole.headers["etag"]})
        assert rest.status_code == 206 and whole.content[:start] + rest.content == whole.content
    small = client.get(address + "?what=adapter")
    with tarfile.open(fileobj=BytesIO(small.content)) as archive:
        assert len(archive.getnames()) == 3
    assert error(client.get(address + "?what=some")) == (400, "invalid_input", "what")


def test_archive_of_an_incomplete_checkpoint_is_refused(api: Api, client: TestClient) -> None:
    (write_checkpoint(add_job(api).output, 7) / "trainer_state.json").unlink()
    assert error(client.get("/api/runs/job-1/archive/checkpoint-7.tar"))[:2] == (409, "conflict")


def test_console_log_comes_raw(api: Api, client: TestClient) -> None:
    add_job(api).console.write_bytes(b"a\r\x1b[31mb\x1b[0m\n\xff")
    answer = client.get("/api/runs/job-1/log.txt")
    assert answer.content == b"a\r\x1b[31mb\x1b[0m\n\xff" and "attachment" in answer.headers["content-disposition"]


def test_two_gigabytes_are_sent_without_being_held(api: Api, client: TestClient) -> None:
    folder = write_checkpoint(add_job(api, state=JobState.SUCCEEDED).output, 7)
    big = folder / "optimizer.pt"
    with big.open("r+b") as file:
        data = file.read()
        file.seek((2 << 30) - len(data))
        file.write(data)  # ends as a zip does
    os.utime(big, (1, 1))
    sent = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with client.stream(
        "GET", "/api/runs/job-1/archive/checkpoint-7.tar", headers={"Range": "bytes=0-67108863"}
    ) as answer:
        assert answer.status_code == 206 and int(answer.headers["content-range"].rpartition("/")[2]) > 2 << 30
        for chunk in answer.iter_bytes():
            sent += len(chunk)
    assert sent == 64 << 20
    # The test client itself collects the 64 MiB of the answer; the server adds a few blocks.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 220 << 10


def test_disk_fault_is_told_and_not_hidden(api: Api, client: TestClient) -> None:
    paths = add_job(api, "old", JobState.FAILED)
    paths.spec.unlink()
    assert error(client.get("/api/runs/old"))[:2] == (404, "not_found")


# -- several runs -----------------------------------------------------------------------------------------------------


def test_comparison_of_runs_and_one_that_is_gone(api: Api, client: TestClient) -> None:
    trained(api, "a")
    trained(api, "b")
    api.paths.job("b").spec.write_text("stage: sft\nseed: 7\n")
    found = client.get("/api/compare?runs=a,b,gone").json()
    assert [run["job"]["id"] for run in found["runs"]] == ["a", "b"]
    assert found["absent"] == ["gone"]
    assert found["differences"] == [
        {
            "key": "seed",
            "values": [{"given": False, "text": "", "default": "42"}, {"given": True, "text": "7", "default": ""}],
        }
    ]
    assert found["runs"][0]["figures"]["kwh"] == {"value": None, "missing": "no_gpu", "estimate": False}
    assert error(client.get("/api/compare?runs=")) == (400, "invalid_input", "runs")
    assert error(client.get("/api/compare?runs=x,y"))[:2] == (404, "not_found")


def test_every_point_can_be_taken_home(api: Api, client: TestClient) -> None:
    trained(api, "a", steps=100)
    answer = client.get("/api/runs/a/series.csv?keys=loss&from=10&to=60")
    assert answer.headers["content-disposition"].startswith('attachment; filename="a.csv"')
    assert len(answer.text.splitlines()) == 52
    assert len(client.get("/api/runs/a/series?keys=loss&px=0").json()["series"]["loss"]["x"]) == 100
    assert client.get("/api/runs/a/series.json").json()["series"]["loss"]["y"][0] == 1
    assert error(client.get("/api/runs/a/series?px=3")) == (400, "invalid_input", "px")


def test_runs_are_filtered_by_tag_and_preferences_are_kept(api: Api, client: TestClient) -> None:
    trained(api, "a", tags=("lr",))
    trained(api, "b")
    assert [run["id"] for run in client.get("/api/runs?tag=lr").json()["runs"]] == ["a"]
    assert client.get("/api/tags").json() == {"tags": [{"tag": "lr", "n": 1}]}
    assert client.get("/api/preferences").json() == {}
    assert client.post("/api/preferences", json={"smoothing": 7}).json() == {"smoothing": 7}
    assert client.get("/api/preferences").json() == {"smoothing": 7}


def test_a_log_is_searched_in_the_server_and_bad_questions_are_refused(api: Api, client: TestClient) -> None:
    paths = add_job(api)
    paths.console.write_text("one\n[rank1]: ValueError: bad\nthree\n")
    found = client.get("/api/runs/job-1/log/search?q=BAD&context=1").json()
    assert (found["count"], found["done"], found["hits"][0]["line"]["n"]) == (1, True, 2)
    assert client.get("/api/runs/job-1/log/search?level=error&rank=1&first=true&limit=1").json()["count"] == 1
    assert client.get("/api/runs/job-1/log/search?q=bad&case=true&rank=0").json()["count"] == 0
    assert error(client.get("/api/runs/job-1/log/search?q=(&regex=true")) == (400, "invalid_input", "q")
    assert error(client.get("/api/runs/job-1/log/search?q=a&level=loud")) == (400, "invalid_input", "level")
    assert error(client.get("/api/runs/nope/log/search?q=a"))[0] == 404


def test_a_report_is_an_attachment_of_one_file(api: Api, client: TestClient) -> None:
    trained(api, "a", name="<script>alert(1)</script>")
    answer = client.get("/api/report?runs=a&lang=zh")
    assert answer.headers["content-disposition"].startswith('attachment; filename="a.html"')
    assert "alert(1)</script>" not in answer.text
    assert error(client.get("/api/report?runs=a&lang=fr")) == (400, "invalid_input", "lang")
    assert error(client.get("/api/report?runs=zzz"))[:2] == (404, "not_found")
