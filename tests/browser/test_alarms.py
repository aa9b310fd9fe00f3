"""Alarms on the real server: told live, kept over reload and restart of the dashboard, marked on charts, in both languages."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from backend.services.health_watch import HealthWatch
from backend.store.events import append_event
from benchmarks.monitor import dashboard
from tests.browser.conftest import Open
from tests.job_folders import add_job, open_api
from tests.recorder_files import RecorderFiles

pytestmark = pytest.mark.browser
MARKS = """
(() => {
  const trace = document.querySelector("[data-chart='loss'] .td-plot")?.data?.at(-1);
  if (!trace) return null;
  return trace.x.map((x, i) => [x, trace.marker.symbol[i], trace.text[i]]).filter((mark) => mark[1] === "triangle-down");
})()
"""


def marks(page: Page) -> list[list[object]]:
    found: list[list[object]] = page.evaluate(MARKS)
    return found


def wait_for_marks(page: Page) -> list[list[object]]:
    page.wait_for_function(f"() => {MARKS}?.length")
    return marks(page)


def test_an_alarm_comes_live_and_stays_over_reload_restart_and_language(tmp_path: Path, open_page: Open) -> None:
    api = open_api(tmp_path / "data")
    paths = add_job(api, "job-1", stage="sft")
    job, files, watch = api.get_job("job-1"), RecorderFiles(paths.recorder), HealthWatch()
    files.start()

    def run(first: int, last: int, spike: int = 0) -> None:
        for step in range(first, last):
            files.step(step, loss=9.0 if step == spike else 0.5 + 2 / step)
        for alarm in watch.look(job, paths, files.now, last=True):
            append_event(paths.events, alarm)

    run(1, 40)
    with dashboard(tmp_path / "data") as (base, _):
        page = open_page(f"{base}run?id=job-1")
        page.wait_for_selector("[data-chart='loss'] .main-svg")
        expect(page.locator(".td-alarms")).to_be_hidden()
        assert marks(page) == []
        run(40, 60, spike=50)
        note = page.locator("[data-alarm='loss_spike']")
        expect(note).to_contain_text("The loss jumped from 0.544 to 9.")
        expect(note).to_contain_text("since step 50")
        assert wait_for_marks(page) == [[50, "triangle-down", "The loss jumped (since step 50)"]]
        page.reload()
        assert len(wait_for_marks(page)) == 1
        page.goto(base)
        expect(page.locator(".td-alarm-line")).to_have_text("The loss jumped")
        page.close()
    with dashboard(tmp_path / "data") as (base, _):
        page = open_page(f"{base}zh/run?id=job-1")
        assert wait_for_marks(page) == [[50, "triangle-down", "损失突然跳升（自第 50 步起）"]]
        expect(page.locator("[data-alarm='loss_spike']")).to_contain_text("损失从 0.544 跳到 9。")
        page.goto(f"{base}zh/runs")
        expect(page.locator(".td-alarm-line:visible")).to_have_text("损失突然跳升")
        page.close()
