"""The page's questions about GPUs, over HTTP, with a sampler of fakes behind them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from backend.domain.job import JobState
from backend.services.api import Api
from backend.services.sampler import RunningJob
from backend.services.views import Views
from tests.integration.test_server_api import BASE, error
from tests.job_folders import add_job, open_api
from tests.unit.telemetry.test_sampler import CARD, OTHER, Bench
from ui.server import create_app


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return open_api(tmp_path)


@pytest.fixture
def client(api: Api) -> Iterator[TestClient]:
    with TestClient(create_app(api, Views(api), {}, api.settings), base_url=BASE) as client:
        yield client


@pytest.fixture
def bench(api: Api) -> Bench:
    """Has sampled the last 40 seconds into the installation's own file."""
    paths = add_job(api, "job-1", JobState.RUNNING)
    bench = Bench(api.paths.root, [RunningJob(job_id="job-1", devices=(CARD,), folder=paths.telemetry)])
    bench.clock.now = float(int(time.time()) - 40)
    bench.beat(40)
    return bench


def test_cards_with_readings_and_reasons(client: TestClient, bench: Bench) -> None:
    found = client.get("/api/gpus").json()
    assert (found["stale"], found["source"]["label"]) == (False, "amdsmi 26.2")
    first, second = found["gpus"]
    assert (first["id"], first["reading"]["socket_power_watts"], second["reading"]["gfx_activity_percent"]) == (
        CARD,
        360.0,
        0.0,
    )
    assert first["gaps"]["edge_celsius"] == "not_on_part"
    assert found["host"]["cpu_percent"] == 12.5


def test_host_without_a_sampler_says_so(client: TestClient) -> None:
    found = client.get("/api/gpus").json()
    assert (found["stale"], found["gpus"], found["at"]) == (True, [], None)
    assert "No worker" in found["error"]


def test_history_of_cards_and_bad_questions(client: TestClient, bench: Bench) -> None:
    bench.reader.changes = {"socket_power_watts": None}
    bench.beat(3)
    found = client.get("/api/gpus/history", params={"keys": "socket_power_watts", "to": time.time() + 10}).json()
    power = found["series"][CARD]["socket_power_watts"]
    assert (power["mean"][0], power["mean"][-1]) == (360.0, None)
    assert set(found["series"]) == {CARD, OTHER}
    assert error(client.get("/api/gpus/history", params={"keys": "colour"}))[:2] == (400, "invalid_input")
    assert error(client.get("/api/gpus/history", params={"from": 9, "to": 5})) == (400, "invalid_input", "from")
    many = ",".join(["socket_power_watts"] * 200)
    assert error(client.get("/api/gpus/history", params={"keys": many}))[2] == "keys"


def test_telemetry_of_a_run_comes_from_its_folder(client: TestClient, bench: Bench) -> None:
    found = client.get("/api/runs/job-1/telemetry").json()
    assert found["devices"] == [CARD, "host"]
    assert found["series"][CARD]["socket_power_watts"]["mean"][0] == 360.0
    assert found["summary"][0]["mean_power_watts"] == 360.0
    assert error(client.get("/api/runs/nothing/telemetry"))[0] == 404


def test_card_is_cleared_by_a_person(client: TestClient, bench: Bench) -> None:
    bench.reader.changes = {"ecc_uncorrectable": 1}
    bench.beat()
    assert client.get("/api/gpus").json()["gpus"][0]["set_aside"]
    assert client.post("/api/gpus/clear", json={"device": CARD}).json() == {"cleared": CARD}
    bench.beat()
    assert client.get("/api/gpus").json()["gpus"][0]["set_aside"] == ""
    assert error(client.post("/api/gpus/clear", json={"device": "0000:ff:00.0"}))[0] == 404


def test_doctor_and_prometheus(client: TestClient, bench: Bench) -> None:
    report = client.get("/api/doctor", params={"stack": "false"}).json()
    assert {"gpu_source", "shm"} <= {check["code"] for check in report["checks"]}
    chinese = client.get("/api/doctor", params={"stack": "false", "lang": "zh"}).json()
    assert "共享内存" in {check["title"] for check in chinese["checks"]}
    page = client.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    assert f'tunedeck_gpu_power_watts{{device="{CARD}"' in page.text
    assert 'tunedeck_jobs{state="running"} 1.0' in page.text
