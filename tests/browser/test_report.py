"""The report of runs is one file: it opens from the disk, asks nobody for anything, and shows names as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from backend.domain.events import Alert
from backend.domain.job import JobState
from backend.domain.problem import Severity
from backend.services.api import Api
from backend.services.comparison import Comparisons
from backend.services.views import Views
from backend.store.events import append_event
from tests.job_folders import add_job, open_api
from tests.recorder_files import RecorderFiles
from ui.report import build_report
from ui.text import Language

pytestmark = pytest.mark.browser
HOSTILE = "<script>window.__pwn=1</script><!-- & \u2028 {n}"
SECRET = "hf_verysecret"
SPIKE = Alert(
    at=1_000_010.0, code="loss_spike", severity=Severity.WARNING, message="", step=30, numbers={"usual": 0.1, "value": 5.0}
)  # fmt: skip


@pytest.fixture
def api(tmp_path: Path) -> Api:
    api = open_api(tmp_path / "data")
    for job_id, name, rate in (("a", HOSTILE, "1e-4"), ("b", "second", "2e-4")):
        paths = add_job(api, job_id, JobState.SUCCEEDED, name=name, ended_at=1_000_500.0, notes="<b>note</b>")
        paths.spec.write_text(
            f"stage: sft\nlearning_rate: {rate}\nhf_hub_token: {SECRET}\ntunedeck:\n  env: {{MY_API_KEY: {SECRET}}}\n"
        )
        files = RecorderFiles(paths.recorder)
        files.start()
        for step in range(1, 301):
            files.step(step, loss="nan" if step == 40 else 3 / step)
        files.evaluation(300, eval_loss=0.5)
        files.checkpoint(300)
        files.finish(300)
    return api


@pytest.fixture
def open_report(browser: Browser, api: Api, tmp_path: Path) -> Iterator[object]:
    asked: list[str] = []
    errors: list[str] = []
    contexts = []

    def open_one(ids: list[str], lang: Language = "en") -> Page:
        file = tmp_path / "report.html"
        file.write_text(build_report(Comparisons(Views(api)), ids, lang, now=1_000_600.0), "utf-8")
        context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: message.type == "error" and errors.append(message.text))
        page.goto(file.as_uri())
        page.wait_for_selector(".chart svg path")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert errors == []
    assert [url for url in asked if not url.startswith("file:")] == [] and len(asked) == 1


@pytest.mark.parametrize(("lang", "words"), [("en", "Settings that differ"), ("zh", "不同的设置")])
def test_a_comparison_opens_from_the_disk(open_report, lang: Language, words: str) -> None:  # type: ignore[no-untyped-def]
    page = open_report(["a", "b"], lang)
    expect(page.get_by_role("heading", name=words)).to_be_visible()
    expect(page.locator("tbody").first.locator("tr")).to_have_count(2)
    expect(page.get_by_text(HOSTILE.replace("\u2028", " ")[:40]).first).to_be_visible()
    assert page.evaluate("window.__pwn") is None
    assert page.locator(".chart").count() >= 5
    assert page.locator(".chart svg").first.locator("path").count() == 4


def test_no_secret_is_in_the_file(api: Api) -> None:
    for ids in (["a"], ["a", "b"]):
        text = build_report(Comparisons(Views(api)), ids, "en")
        assert SECRET not in text
        assert "learning_rate" in text
        assert not re.search(r"(src|href)=|url\(|@import|fetch\(", text)
        assert text.count("<script") == 2


def test_points_can_be_read_zoomed_and_hidden(open_report) -> None:  # type: ignore[no-untyped-def]
    page = open_report(["a", "b"])
    box = page.locator(".chart svg").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    expect(page.locator(".tip").first).to_contain_text("second: ")
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 60, steps=4)
    page.mouse.up()
    reset = page.get_by_role("button", name="Show all")
    expect(reset).to_be_visible()
    reset.click()
    expect(reset).to_be_hidden()
    page.get_by_label("Show the curves of second").uncheck()
    assert page.locator(".chart svg").first.locator("path").count() == 2


def test_a_single_run_tells_its_history(open_report) -> None:  # type: ignore[no-untyped-def]
    page = open_report(["b"])
    expect(page.locator("h1")).to_have_text("second")
    page.locator("summary").last.click()
    expect(page.locator("pre")).to_contain_text("learning_rate: 2e-4")
    assert SECRET not in page.content()


@pytest.mark.parametrize(("lang", "words"), [("en", "The loss jumped from 0.1 to 5."), ("zh", "损失从 0.1 跳到 5。")])
def test_alarms_are_told_and_marked_in_the_report_of_a_run(open_report, api: Api, lang: Language, words: str) -> None:  # type: ignore[no-untyped-def]
    append_event(api.paths.job("a").events, SPIKE)
    page = open_report(["a"], lang)
    expect(page.locator(".alarms li")).to_contain_text(words)
    loss, memory = page.locator(".chart").first, page.locator(".chart").last
    assert (loss.locator(".mark").count(), memory.locator(".mark").count()) == (1, 0)


def test_the_alarms_of_several_runs_are_not_marked_on_shared_charts(open_report, api: Api) -> None:  # type: ignore[no-untyped-def]
    append_event(api.paths.job("a").events, SPIKE)
    assert open_report(["a", "b"]).locator(".mark").count() == 0
