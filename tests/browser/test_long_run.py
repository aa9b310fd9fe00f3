"""A run too long to wait for, on the real server: its sample says that it is one, and what a person chose outlives it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Page as Tab
from playwright.sync_api import expect

from backend.domain.job import JobState
from backend.services.views import Views
from backend.store.series_cache import SeriesCache
from tests.browser.conftest import Open
from tests.job_folders import add_job, open_api
from tests.recorder_files import RecorderFiles
from ui.main import build_languages
from ui.server import create_app

pytestmark = pytest.mark.browser
STEPS = 9_000
SPIKE = 4_321


@dataclass
class Site:
    base: str
    read_on: threading.Event
    """The server reads no further than its first portion until this is set."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    api = open_api(tmp_path / "data")
    files = RecorderFiles(add_job(api, "long", JobState.SUCCEEDED, ended_at=1_005_000.0, step=STEPS).recorder)
    files.start(max_steps=STEPS)
    for step in range(1, STEPS + 1):
        values = {"eval_loss": 2.0} if step % 10 == 0 else {}
        files.step(step)
        files.log(step, loss=500.0 if step == SPIKE else 1.0, grad_norm=1.0, **values)
    files.finish(STEPS)
    read_on = threading.Event()
    cache = SeriesCache(quick_bytes=100_000, head_start=0.0, pause=lambda: wait_for(read_on))
    app = create_app(api, Views(api, cache=cache), build_languages(api), api.settings)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="websockets-sansio"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield Site(f"http://127.0.0.1:{listener.getsockname()[1]}", read_on)
    read_on.set()
    server.should_exit = True
    thread.join(10)


@pytest.mark.parametrize(("prefix", "words"), [("", "First sample"), ("/zh", "抽样预览")])
def test_sample_is_called_one_until_the_whole_takes_its_place(
    site: Site, open_page: Open, prefix: str, words: str
) -> None:
    page = open_page(f"{site.base}{prefix}/run?id=long")
    note = page.locator(".td-charts > .td-note")
    expect(note).to_contain_text(words)
    expect(note).to_contain_text("%")
    page.wait_for_selector("[data-chart='loss'] .main-svg")
    some = drawn(page)
    assert (min(some["x"]), max(some["x"]), max(some["y"])) == (1, STEPS, 1.0)
    site.read_on.set()
    expect(note).to_be_hidden()
    page.wait_for_function("Math.max(...document.querySelector(\"[data-chart='loss'] .td-plot\").data[0].y) > 400")
    whole = drawn(page)
    assert dict(zip(whole["x"], whole["y"], strict=True))[SPIKE] == 500.0


def test_zoom_hidden_series_and_smoothing_outlive_the_sample(site: Site, open_page: Open) -> None:
    page = open_page(f"{site.base}/run?id=long")
    page.wait_for_selector("[data-chart='loss'] .main-svg")
    page.locator("[data-chart='loss']").get_by_role("button", name="Evaluation").click()
    page.get_by_role("slider", name="Smoothing").fill("0")
    page.locator("[data-chart='grad_norm']").get_by_role("button", name="log").click()
    box = page.locator("[data-chart='loss'] .nsewdrag").first.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 60, steps=5)
    page.mouse.up()
    page.wait_for_url("**x=**")
    page.wait_for_timeout(800)
    before = look(page)
    assert before["log"] == "log" and before["range"][0] > 1_000 and before["range"][1] < 8_000
    expect(page.locator(".td-charts > .td-note")).to_be_visible()
    site.read_on.set()
    expect(page.locator(".td-charts > .td-note")).to_be_hidden()
    page.wait_for_function("Math.max(...document.querySelector(\"[data-chart='loss'] .td-plot\").data[0].y) > 400")
    assert look(page) == before


def wait_for(event: threading.Event) -> None:
    event.wait(30)


def drawn(page: Tab) -> dict[str, list[float]]:
    found: dict[str, list[float]] = page.evaluate(
        """() => { const [{ x, y }] = document.querySelector("[data-chart='loss'] .td-plot").data;
        return { x: [...x], y: [...y] }; }"""
    )
    return found


def look(page: Tab) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(
        """() => { const plot = (id) => document.querySelector(`[data-chart='${id}'] .td-plot`);
        return { range: plot('loss')._fullLayout.xaxis.range.map(Math.round), traces: plot('loss').data.length,
                 log: plot('grad_norm')._fullLayout.yaxis.type, address: location.search }; }"""
    )
    return found
