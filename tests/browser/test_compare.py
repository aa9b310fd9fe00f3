"""Comparing runs in real Chromium: choosing them, the table, settings that differ, curves over each other, exports."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Open
from tests.browser.fake_server import HOSTILE, World

pytestmark = pytest.mark.browser
Site = tuple[World, str]

PAIR = "/compare?runs=run-done,run-live"


def lines_of(page: Page, chart: str) -> list[str]:
    """Names of the drawn lines, raw and smoothed ones once."""
    script = (
        "chart => [...new Set((document.querySelector(`[data-chart='${chart}'] .td-plot`).data ?? [])"
        ".filter((trace) => trace.yaxis !== 'y2' && trace.x.length).map((trace) => trace.name))]"
    )
    found: list[str] = page.evaluate(script, chart)
    return found


def range_of(page: Page, chart: str = "loss") -> list[float]:
    found: list[float] = page.evaluate(
        "chart => document.querySelector(`[data-chart='${chart}'] .td-plot`)._fullLayout.xaxis.range", chart
    )
    return found


def zoom(page: Page, low: float, high: float) -> None:
    plot = "document.querySelector(\"[data-chart='loss'] .td-plot\")"
    page.evaluate(f"Plotly.relayout({plot}, {{'xaxis.range[0]': {low}, 'xaxis.range[1]': {high}}})")


def wait_for_lines(page: Page, names: list[str], chart: str = "loss") -> None:
    page.wait_for_selector(f"[data-chart='{chart}'] .main-svg")
    for _ in range(60):
        if lines_of(page, chart) == names:
            return
        page.wait_for_timeout(100)
    assert lines_of(page, chart) == names


def order(page: Page) -> list[str]:
    names = page.locator(".td-compare-table:not(.td-compare-settings) tbody .td-run-name a")
    names.first.wait_for()
    return names.all_inner_texts()


def row(page: Page, name: str) -> Locator:
    return page.locator(".td-compare-table:not(.td-compare-settings) tbody tr", has_text=name)


@pytest.mark.parametrize(("prefix", "words"), [("", ("Compare", "Compare runs")), ("/zh", ("对比", "对比任务"))])
def test_runs_ticked_in_the_list_are_compared(busy: Site, open_page: Open, prefix: str, words: tuple[str, str]) -> None:
    page = open_page(busy[1] + prefix + "/runs")
    for name in ("llama3-8b-base-run", "lr-too-high"):
        page.locator(".td-runs tbody tr", has_text=name).get_by_role("checkbox").check()
    page.locator(".td-pick-bar").get_by_role("link", name=words[0]).click()
    expect(page.locator("h1")).to_have_text(words[1])
    assert sorted(order(page)) == ["llama3-8b-base-run", "lr-too-high"]
    wait_for_lines(page, ["llama3-8b-base-run", "lr-too-high"])


def test_a_run_page_leads_to_a_comparison(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/run?id=run-done")
    page.get_by_role("button", name="Compare", exact=True).click()
    chooser = page.locator("dialog")
    expect(chooser.get_by_label("llama3-8b-base-run")).to_be_checked()
    chooser.get_by_role("searchbox").fill("lr-too")
    chooser.get_by_label("lr-too-high").check()
    chooser.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/compare?runs=run-done%2Crun-nan")
    expect(page.locator("h1")).to_have_text("Compare runs")


def test_what_is_missing_is_a_dash_with_its_reason(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/compare?runs=run-done,run-q1,gone")
    expect(page.get_by_text("1 run of this link no longer exists")).to_be_visible()
    cells = row(page, "qwen-coder-sft").locator(".td-compare-number")
    expect(cells.first).to_have_text("–")
    expect(cells.first).to_have_attribute("title", "the run has not started")
    expect(page.locator(".td-compare-reasons")).to_contain_text("the run has not started")
    assert "0" not in cells.all_inner_texts()


def test_columns_sort_and_unknown_values_stay_last(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/compare?runs=run-q1,run-nan,run-done,run-failed")
    page.locator("[data-sort='final_loss']").click()
    expect(page.locator("[aria-sort='ascending']")).to_have_count(1)
    assert order(page) == ["llama3-8b-base-run", "llama3-70b-lora-r64", "lr-too-high", "qwen-coder-sft"]
    page.locator("[data-sort='final_loss']").click()
    assert order(page) == ["lr-too-high", "llama3-70b-lora-r64", "llama3-8b-base-run", "qwen-coder-sft"]
    page.wait_for_url("**sort=final_loss&order=desc**")


def test_settings_that_differ_and_groups_of_one(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/compare?runs=run-done,run-live,run-nan,run-failed,run-stopped")
    settings = page.locator(".td-compare-settings tbody tr")
    expect(settings).to_have_count(1)
    expect(settings).to_contain_text("learning_rate")
    expect(settings).to_contain_text("default 5.0e-05")
    page.get_by_label("Group by").select_option("learning_rate")
    groups = page.locator(".td-compare-group")
    expect(groups).to_have_count(4)
    expect(groups.nth(1)).to_contain_text("learning_rate = 1.0e-05 2 runs")
    expect(groups.nth(1)).to_contain_text("±")


def test_hidden_runs_leave_every_chart_and_hostile_names_stay_text(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/compare?runs=run-done,run-nan,run-q3")
    wait_for_lines(page, ["llama3-8b-base-run", "lr-too-high"])
    page.get_by_label("Show the curves of lr-too-high").uncheck()
    wait_for_lines(page, ["llama3-8b-base-run"])
    expect(page.get_by_text(HOSTILE).first).to_be_visible()
    assert page.evaluate("window.__pwn") is None


def test_axes_and_a_zoom_asks_for_exact_values_of_each_run(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/compare?runs=run-done,run-failed")
    wait_for_lines(page, ["llama3-8b-base-run", "llama3-70b-lora-r64"])
    page.locator("[data-axis='energy']").click()
    page.wait_for_timeout(600)
    assert 1.2 < range_of(page)[1] < 1.3  # 600 steps of 0.0021 kWh
    with page.expect_request(re.compile(r"run-done/series.*from=9\d&to=10\d")) as asked:
        zoom(page, 0.2, 0.21)
    assert "px=" in asked.value.url
    page.wait_for_timeout(600)
    assert range_of(page) == [0.2, 0.21]
    page.get_by_role("button", name="Show all").click()
    page.wait_for_timeout(600)
    assert range_of(page)[1] > 1.2


def test_a_running_run_goes_on_in_the_comparison(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + PAIR)
    wait_for_lines(page, ["llama3-8b-base-run", "llama3-8b-support-lora"])
    plot = "document.querySelector(\"[data-chart='loss'] .td-plot\")"
    last = f"{plot}.data.find((trace) => trace.name.includes('support-lora')).x.at(-1)"
    before = page.evaluate(last)
    page.wait_for_function(f"{last} > {before}", timeout=10_000)


def test_taste_is_kept_for_the_person_in_another_browser(busy: Site, open_page: Open) -> None:
    world, base = busy
    page = open_page(base + "/run?id=run-done")
    page.wait_for_selector("[data-chart='loss'] .main-svg")
    page.locator(".td-chart-bar input[type=range]").fill("7")
    page.wait_for_timeout(800)
    assert world.preferences["smoothing"] == 7
    other = open_page(base + PAIR)
    expect(other.locator(".td-chart-bar output")).to_have_text("7")


def test_zoom_of_a_run_is_found_again(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/run?id=run-stopped&x=50-90")
    page.wait_for_selector("[data-chart='loss'] .main-svg")
    zoom(page, 60, 80)
    page.wait_for_timeout(800)
    again = open_page(busy[1] + "/run?id=run-stopped")
    again.wait_for_selector("[data-chart='loss'] .main-svg")
    again.wait_for_function(
        "document.querySelector(\"[data-chart='loss'] .td-plot\")._fullLayout.xaxis.range[1] === 80"
    )


def test_the_table_and_the_points_can_be_saved(busy: Site, open_page: Open, tmp_path: Path) -> None:
    page = open_page(busy[1] + "/compare?runs=run-done,run-failed,run-q3")
    wait_for_lines(page, ["llama3-8b-base-run", "llama3-70b-lora-r64"])
    with page.expect_download() as saved:
        page.get_by_role("button", name="Table as CSV").click()
    saved.value.save_as(tmp_path / "table.csv")
    rows = list(csv.DictReader((tmp_path / "table.csv").open(encoding="utf-8")))
    assert [line["id"] for line in rows] == ["run-done", "run-failed", "run-q3"]
    assert rows[2]["final_loss"] == "" and rows[0]["learning_rate"] == "5.0e-05"
    page.locator("[data-chart='loss'] summary").click()
    with page.expect_download() as saved:
        page.locator("[data-chart='loss']").get_by_role("button", name="Save as JSON").click()
    saved.value.save_as(tmp_path / "loss.json")
    points = json.loads((tmp_path / "loss.json").read_text())
    assert len(points) == 600
    assert set(points[0]) == {"step", "loss run-done", "loss run-failed"}


def test_tags_filter_the_list_and_notes_are_edited_in_the_table(busy: Site, open_page: Open) -> None:
    world, base = busy
    page = open_page(base + "/runs")
    page.locator(".td-tag-button", has_text="v2").click()
    expect(page.locator(".td-runs tbody tr")).to_have_count(1)
    page.wait_for_url("**tag=v2**")
    page.goto(base + PAIR)
    row(page, "llama3-8b-base-run").get_by_role("button", name="Notes and tags").click()
    page.locator("dialog textarea").fill("the baseline")
    page.locator("dialog").get_by_role("button", name="v2").click()
    page.locator("dialog").get_by_role("button", name="Save").click()
    expect(row(page, "llama3-8b-base-run")).to_contain_text("the baseline")
    assert world.jobs["run-done"]["tags"] == ["v2"]


@pytest.mark.parametrize("prefix", ["", "/zh"])
def test_an_empty_comparison_offers_to_choose(busy: Site, open_page: Open, prefix: str) -> None:
    page = open_page(busy[1] + prefix + "/compare", viewport={"width": 390, "height": 844})
    expect(page.locator(".td-empty").get_by_role("button")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize(("prefix", "words"), [("", "Download as scripts"), ("/zh", "下载脚本")])
def test_scripts_of_a_run_are_shown_and_taken_home(busy: Site, open_page: Open, prefix: str, words: str) -> None:
    page = open_page(busy[1] + prefix + "/run?id=run-done&tab=config")
    link = page.get_by_role("link", name=words)
    expect(link).to_have_attribute("href", "/api/runs/run-done/export.zip")
    page.get_by_text("job.sbatch").first.click()
    expect(page.get_by_text("#SBATCH --nodes=1")).to_be_visible()
