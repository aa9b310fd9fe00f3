"""Tuning searches, sweeps, host checks, advice and cost over HTTP, on a real store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from backend.domain.job import Job
from backend.services.api import Api
from backend.services.gpus import open_gpus
from backend.services.searches import Searches, SearchRow
from backend.services.views import Views
from tests.integration.test_server_api import BASE, error, trained
from tests.job_folders import open_api
from ui.server import create_app

SPEC = "model_name_or_path: m\ndataset: d\n"


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return open_api(tmp_path)


@pytest.fixture
def client(api: Api) -> Iterator[TestClient]:
    app = create_app(api, Views(api), {}, api.settings)
    with TestClient(app, base_url=BASE, raise_server_exceptions=False) as client:
        yield client


def finished(api: Api) -> str:
    """A search that has ended, as its process leaves it."""
    searches = Searches(api, open_gpus(api.paths))
    record = searches.create(SPEC, 60)
    row = SearchRow(label="micro 4 x 1", outcome="ok", tokens_per_second=100.0, best=True)
    done = replace(record, state="finished", rows=(row,), best="micro 4 x 1", gain=2.0)
    (searches.root / record.id / "state.json").write_text(json.dumps(asdict(done)))
    (searches.root / record.id / "best.yaml").write_text("learning_rate: 0.5\n")
    return record.id


def test_searches_are_listed_shown_and_their_best_document_is_handed_out(api: Api, client: TestClient) -> None:
    assert client.get("/api/tunings").json() == {"tunings": []}
    search = finished(api)
    assert [found["id"] for found in client.get("/api/tunings").json()["tunings"]] == [search]
    found = client.get(f"/api/tunings/{search}").json()["tuning"]
    assert found["state"] == "finished" and found["rows"][0]["tokens_per_second"] == 100.0
    assert client.get(f"/api/tunings/{search}/best").json() == {"spec_text": "learning_rate: 0.5\n"}
    assert error(client.get("/api/tunings/nope")) == (404, "not_found", "")
    assert error(client.post(f"/api/tunings/{search}/stop", json={}))[:2] == (409, "conflict")


def test_the_best_of_a_search_is_launched_as_a_job(
    api: Api, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[str] = []

    def submit(text: str) -> Job:
        submitted.append(text)
        trained(api, "tuned")
        return api.get_job("tuned")

    monkeypatch.setattr(api, "submit", submit)
    answer = client.post(f"/api/tunings/{finished(api)}/launch", json={})
    assert answer.status_code == 201 and answer.json()["job"]["id"] == "tuned"
    assert submitted == ["learning_rate: 0.5\n"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "spec_text"),
        ({"spec_text": SPEC, "minutes": "8"}, "minutes"),
        ({"spec_text": SPEC, "minutes": 0.1}, "budget"),
        ({"spec_text": "stage: sft\n"}, "model_name_or_path"),
    ],
)
def test_a_search_that_cannot_be_started_names_the_field(
    client: TestClient, body: dict[str, object], field: str
) -> None:
    assert error(client.post("/api/tunings", json=body)) == (400, "invalid_input", field)
    assert client.get("/api/tunings").json() == {"tunings": []}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"spec_text": SPEC, "grid": {"learning_rate": ""}}, "learning_rate"),
        ({"spec_text": SPEC, "grid": {}}, "grid"),
        ({"spec_text": SPEC, "grid": {"lr": "1..2"}}, "lr"),
        ({"spec_text": SPEC, "grid": {"seed": "1,2"}, "early_stop": True}, "eval_strategy"),
        ({"spec_text": SPEC, "grid": {"seed": "1,2"}, "samples": 0}, "grid"),
    ],
)
def test_a_sweep_that_cannot_be_started_names_the_field(
    client: TestClient, body: dict[str, object], field: str
) -> None:
    assert error(client.post("/api/sweeps", json=body)) == (400, "invalid_input", field)
    assert client.get("/api/sweeps").json() == {"sweeps": []}
    assert error(client.get("/api/sweeps/nope")) == (404, "not_found", "")


def test_advice_and_cost_of_a_run_say_what_they_do_not_know(api: Api, client: TestClient) -> None:
    trained(api, "cpu", steps=3)
    advice = client.get("/api/runs/cpu/advice?lang=zh").json()
    assert advice["ready"] is False and advice["mfu"] is None
    assert client.get("/api/runs/cpu/cost").json()["missing"] == ["no_gpu"]
    assert error(client.post("/api/runs/cpu/advice", json={"code": "data_wait"}))[:2] == (404, "not_found")
    assert error(client.get("/api/runs/nope/cost")) == (404, "not_found", "")
    assert error(client.get("/api/runs/cpu/advice?lang=xx")) == (400, "invalid_input", "lang")


def test_host_checks_are_listed_newest_first(api: Api, client: TestClient) -> None:
    empty = client.get("/api/benches").json()
    assert empty["checks"] == empty["cards"] == empty["running"] == [] and empty["failed"] is None
    check = {"at": 1.0, "host": "n", "world": 1, "seconds": 3.0, "devices": [], "links": []}
    with api.paths.benches.open("w") as stream:
        stream.writelines(json.dumps({**check, "job": job}) + "\n" for job in ("first", "second"))
    found = client.get("/api/benches").json()["checks"]
    assert [row["check"]["job"] for row in found] == ["second", "first"] and found[0]["drift"] == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"gpus": "all"}, "gpus"),
        ({"gpus": ["0000:c1:00.0"]}, "gpus"),
        ({"profiles": ["nope"]}, "profiles"),
        ({"processes": 0}, "processes"),
        ({"env": ["A=1"]}, "env"),
    ],
)
def test_a_host_check_that_cannot_be_started_names_the_field(
    api: Api, client: TestClient, body: dict[str, object], field: str
) -> None:
    assert error(client.post("/api/benches", json=body)) == (400, "invalid_input", field)
    assert api.list_jobs()[0] == 0


def test_two_kept_host_checks_are_compared(api: Api, client: TestClient) -> None:
    link = {"bytes": 8, "seconds": 1.0, "bytes_per_second": 1.0, "right": True}
    check = {"at": 1.0, "host": "n", "world": 2, "seconds": 3.0, "devices": []}
    with api.paths.benches.open("w") as stream:
        for name, speed in (("first", 2.0), ("second", 3.0)):
            stream.write(json.dumps({**check, "job": name, "links": [{**link, "bus_bytes_per_second": speed}]}) + "\n")
    rows = client.get("/api/benches/compare?first=first&second=second").json()["rows"]
    assert rows == [{"bytes": 8, "first": 2.0, "second": 3.0, "ratio": 1.5}]
    assert error(client.get("/api/benches/compare?first=first&second=nope")) == (400, "invalid_input", "job")
