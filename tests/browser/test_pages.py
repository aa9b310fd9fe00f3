"""Home, runs and run in real Chromium, on a made-up world: what people see, do and may not be harmed by."""

from __future__ import annotations

import json
import re
import time

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open, Watch
from tests.browser.fake_server import HOSTILE, TRACEBACK, Json, World, make_job, to_lines

pytestmark = pytest.mark.browser
Site = tuple[World, str]

PATHS = [
    "/",
    "/runs",
    "/run?id=run-live",
    "/run?id=run-failed",
    "/run?id=run-done&tab=checkpoints",
    "/run?id=run-failed&tab=log",
]
PATHS += [
    "/gpus",
    "/doctor",
    "/run?id=run-done&tab=config",
    "/run?id=run-failed&tab=history",
    "/run?id=run-q3",
    "/run?id=run-start",
]


def step_shown(page: Page) -> int:
    found = re.search(r"step ([\d,]+) of", page.locator(".td-progress-line").inner_text())
    assert found
    return int(found[1].replace(",", ""))


def points_drawn(page: Page, chart: str, trace: int = 0) -> list[float]:
    script = "([chart, i]) => [...(document.querySelector(`[data-chart='${chart}'] .td-plot`).data?.[i]?.x ?? [])]"
    found: list[float] = page.evaluate(script, [chart, trace])
    return found


def wait_for_chart(page: Page, chart: str = "loss") -> None:
    page.wait_for_selector(f"[data-chart='{chart}'] .main-svg")


# ---- Every page ----


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("prefix", ["", "/zh"])
def test_every_page_fits_a_phone_without_sideways_scroll(busy: Site, open_page: Open, path: str, prefix: str) -> None:
    page = open_page(busy[1] + prefix + path, viewport={"width": 390, "height": 844})
    page.wait_for_timeout(700)
    wide = page.evaluate(
        """() => [...document.querySelectorAll('.td-top, .td-main *')].filter((node) => {
          const box = node.getBoundingClientRect();
          if (box.width === 0 || box.right <= window.innerWidth + 1) return false;
          for (let up = node; up; up = up.parentElement) {
            const style = getComputedStyle(up);
            const inside = up.getBoundingClientRect().right <= window.innerWidth + 1;
            if (up !== node && /auto|scroll|hidden/.test(style.overflowX) && inside) return false;
            if (style.clipPath !== 'none') return false;
          }
          return true;
        }).map((node) => `${node.tagName}.${node.className} ${node.getBoundingClientRect().right}`).slice(0, 5)"""
    )
    assert wide == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_every_page_has_one_first_heading_and_a_title(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/")
    for path in PATHS:
        page.goto(busy[1] + path)
        page.wait_for_selector("#td-main h1")
        expect(page.locator("h1")).to_have_count(1)
        expect(page).to_have_title(re.compile("· Tunedeck$"))


def test_pages_change_without_loading_again(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/")
    page.evaluate("window.kept = true")
    page.get_by_role("link", name="Runs", exact=True).click()
    page.get_by_role("link", name="llama3-8b-support-lora").click()
    expect(page.locator("h1")).to_have_text("llama3-8b-support-lora")
    page.go_back()
    expect(page.locator("h1")).to_have_text("Runs")
    page.go_back()
    expect(page.locator("h1")).to_have_text("Overview")
    assert page.evaluate("window.kept") is True


def test_language_switch_keeps_the_place(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/run?id=run-done&tab=history")
    page.get_by_role("link", name="中文").click()
    page.wait_for_url("**/zh/run?id=run-done&tab=history")
    expect(page.get_by_role("tab", name="历史")).to_have_attribute("aria-selected", "true")
    assert page.evaluate("document.documentElement.lang") == "zh-CN"


@pytest.mark.parametrize(
    ("prefix", "parts"), [("", ("Profile 3 steps", "Matrix products")), ("/zh", ("剖析 3 步", "矩阵乘法"))]
)
def test_profile_of_steps_is_asked_for_and_shown_by_rank(
    busy: Site, open_page: Open, prefix: str, parts: tuple[str, str]
) -> None:
    page = open_page(f"{busy[1]}{prefix}/run?id=run-live&tab=history")
    section = page.locator(".td-profile")
    expect(section.locator(".td-profile-legend")).to_contain_text(parts[1])
    expect(section.locator(".td-profile-ranks li")).to_have_count(3)
    expect(section).to_contain_text("14%")
    expect(section).to_contain_text("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")
    section.get_by_role("button", name=parts[0]).click()
    page.wait_for_timeout(300)
    assert ("run-live/profile", {}) in busy[0].posts


def test_theme_button_is_remembered(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/", color_scheme="light")
    page.get_by_role("button", name="Switch to dark").click()
    assert page.evaluate("document.body.classList.contains('dark')")
    page.reload()
    page.wait_for_selector("#td-main h1")
    page.get_by_role("button", name="Switch to light").wait_for()


@pytest.mark.parametrize("path", ["/", "/runs", "/run?id=run-q3", "/run?id=run-live&tab=log"])
def test_hostile_names_and_log_lines_are_shown_literally(busy: Site, open_page: Open, path: str) -> None:
    page = open_page(busy[1] + path)
    expect(page.get_by_text(HOSTILE).first).to_be_visible()
    assert page.evaluate("window.__pwn") is None
    assert page.locator("#td-main img").count() == 0


# ---- Home ----


def test_home_shows_what_runs_waits_and_failed(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/")
    expect(page.locator(".td-lead")).to_contain_text("3 running")
    expect(page.locator(".td-card")).to_have_count(3)
    expect(page.locator(".td-queue-row")).to_have_count(3)
    failed = page.locator(".td-recent-row", has_text="llama3-70b-lora-r64")
    expect(failed).to_contain_text("Failed")
    expect(failed).to_contain_text("HIP out of memory")
    expect(page.locator(".td-gpu")).to_have_count(8)


def test_a_gpu_that_reports_nothing_is_a_gap_and_not_zero(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/")
    activity = page.locator(".td-gpu").nth(6).locator(".td-gpu-meters > div").first
    expect(activity).to_have_text("–")
    expect(activity).to_have_attribute("title", re.compile("may not be read by this user"))
    expect(page.locator(".td-gpu").nth(7)).to_contain_text("set aside")


def test_running_cards_move_by_themselves(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/")
    card = page.locator(".td-card", has_text="llama3-8b-support-lora")
    before = card.locator(".td-card-steps").inner_text()
    expect(card.locator(".td-card-steps")).not_to_have_text(before, timeout=5000)


def test_queue_moves_up_and_priority(busy: Site, open_page: Open) -> None:
    world, base = busy
    world.jobs["run-q1"]["priority"] = 0
    page = open_page(base + "/")
    rows = page.locator(".td-queue-row")
    expect(rows.nth(1)).to_contain_text("gemma-kto")
    rows.nth(1).get_by_role("button", name="Move up").click()
    expect(rows.nth(0)).to_contain_text("gemma-kto")
    assert ("run-q2/move", {"before": "run-q1"}) in world.posts
    rows.nth(2).get_by_role("button", name="First in line").click()
    expect(rows.nth(0)).to_contain_text("<img")
    rows.nth(0).get_by_role("button", name="First in line").click()


def test_a_dead_worker_and_a_full_disk_are_said(open_page: Open, empty: Site) -> None:
    world, base = empty
    world.worker |= {"alive": False, "beat_at": time.time() - 600}
    world.disk["free_bytes"] = 3 << 30
    page = open_page(base + "/")
    expect(page.get_by_role("alert").filter(has_text="The worker does not answer")).to_contain_text("10 minutes ago")
    expect(page.get_by_role("alert").filter(has_text="Only 3 GiB")).to_be_visible()
    world.worker["alive"] = True
    world.disk["free_bytes"] = 900 << 30
    expect(page.get_by_role("alert")).to_have_count(0)


def test_an_empty_installation_leads_to_the_demo(open_page: Open, empty: Site) -> None:
    page = open_page(empty[1] + "/")
    expect(page.get_by_role("link", name="Try the demo")).to_have_attribute(
        "href", re.compile(r"/new\?preset=demo%2Fcpu")
    )
    expect(page.get_by_text("No GPU found on this host")).to_be_visible()
    page.goto(empty[1] + "/runs")
    expect(page.get_by_text("No runs yet")).to_be_visible()


# ---- Runs ----


def test_runs_search_and_filter_stay_in_the_address(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/runs")
    page.get_by_role("searchbox").fill("qwen")
    expect(page.locator(".td-runs tbody tr")).to_have_count(2)
    page.wait_for_url("**/runs?q=qwen")
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="Failed").click()
    expect(page.locator(".td-runs tbody tr")).to_have_count(1)
    page.reload()
    expect(page.locator(".td-runs tbody tr")).to_have_count(1)
    expect(page.get_by_role("button", name="Failed")).to_have_attribute("aria-pressed", "true")


def test_runs_sort_by_column(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/runs")
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url("**sort=name**")
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url("**order=asc**")
    expect(page.locator("th[aria-sort='ascending']")).to_contain_text("Run")


def test_long_lists_have_pages(open_page: Open, empty: Site) -> None:
    world, base = empty
    world.jobs = {
        f"n{i}": make_job(f"n{i}", f"sweep-{i:03}", "succeeded", fixed_step=9, created_at=1e9 + i) for i in range(120)
    }
    try:
        page = open_page(base + "/runs")
        expect(page.locator(".td-runs tbody tr")).to_have_count(50)
        page.get_by_role("button", name="Older").click()
        expect(page.locator(".td-pager")).to_contain_text("Page 2 of 3")
        expect(page.get_by_role("link", name="sweep-069")).to_be_visible()
    finally:
        world.jobs = {}


# ---- One run ----


def test_numbers_and_charts_move_and_no_point_is_lost_or_repeated(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/run?id=run-live")
    wait_for_chart(page)
    first = step_shown(page)
    page.wait_for_function(
        "(first) => Number(/step ([0-9]+)/.exec(document.querySelector('.td-progress-line').innerText)[1]) > first + 3",
        arg=first,
    )
    page.wait_for_function(
        "(first) => document.querySelector(\"[data-chart='loss'] .td-plot\").data[0].x.at(-1) > first + 3", arg=first
    )
    x = points_drawn(page, "loss")
    assert x == [float(step) for step in range(1, int(x[-1]) + 1)]


def test_zoom_hidden_series_smoothing_and_axis_survive_updates_and_reload(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/run?id=run-live")
    wait_for_chart(page)
    box = page.locator("[data-chart='loss'] .nsewdrag").first.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=5)
    page.mouse.up()
    page.wait_for_url("**x=**")
    page.locator("[data-chart='loss']").get_by_role("button", name="Evaluation").click()
    page.get_by_role("slider", name="Smoothing").fill("0")
    page.locator("[data-chart='grad_norm']").get_by_role("button", name="log").click()

    def view() -> Json:
        page.wait_for_timeout(1200)
        found: Json = page.evaluate(
            """() => { const plot = (id) => document.querySelector(`[data-chart='${id}'] .td-plot`);
            return { range: plot('grad_norm')._fullLayout.xaxis.range.map(Math.round), traces: plot('loss').data.length,
                     log: plot('grad_norm')._fullLayout.yaxis.type }; }"""
        )
        return found

    before = view()
    assert before["traces"] == 2  # the raw loss and the markers: evaluation hidden, nothing smoothed
    assert before["log"] == "log"
    assert before["range"][0] > 30
    page.wait_for_timeout(1500)
    assert view() == before
    page.reload()
    wait_for_chart(page)
    wait_for_chart(page, "grad_norm")
    assert view() == before
    page.get_by_role("button", name="Show all").click()
    page.wait_for_function("document.querySelector(\"[data-chart='loss'] .td-plot\")._fullLayout.xaxis.range[0] < 5")
    assert "x=" not in page.url


def test_time_and_token_axes(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/run?id=run-done")
    wait_for_chart(page)
    page.get_by_role("button", name="Tokens", exact=True).click()
    page.wait_for_function("document.querySelector(\"[data-chart='loss'] .td-plot\").data[0].x[9] === 327680")
    page.get_by_role("button", name="Time", exact=True).click()
    page.wait_for_function(
        "Math.abs(document.querySelector(\"[data-chart='loss'] .td-plot\").data[0].x[599] - 600 * 1.76 / 60) < 1e-6"
    )


def test_a_loss_that_is_not_a_number_is_a_gap_and_said(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/run?id=run-nan")
    wait_for_chart(page)
    expect(page.locator(".td-tile-loss")).to_contain_text("NaN")
    expect(page.locator(".td-tile-loss")).to_contain_text("since step 120")
    last = page.evaluate("document.querySelector(\"[data-chart='loss'] .td-plot\").data[0].y.at(-1)")
    assert last is None


def test_chart_theme_follows_the_page(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/run?id=run-done", color_scheme="light")
    wait_for_chart(page)
    colour = "document.querySelector(\"[data-chart='loss'] .td-plot\")._fullLayout.font.color"
    assert page.evaluate(colour) == "#17202e"
    page.get_by_role("button", name="Switch to dark").click()
    page.wait_for_function(f"{colour} === '#e5ebf4'")


def test_csv_has_the_exact_values(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/run?id=run-done")
    wait_for_chart(page)
    card = page.locator("[data-chart='learning_rate']")
    card.locator("summary").click()
    with page.expect_download() as download:
        card.get_by_role("button", name="Save as CSV").click()
    lines = download.value.path().read_text().splitlines()
    assert lines[0] == "step,learning_rate"
    assert len(lines) == 601
    assert lines[30].startswith("30,0.0000")
    assert download.value.suggested_filename == "llama3-8b-base-run-learning_rate.csv"
    card.locator("summary").click()
    with page.expect_download() as picture:
        card.get_by_role("button", name="Save as image").click()
    assert picture.value.path().read_bytes()[:4] == b"\x89PNG"


def test_stop_says_what_is_kept_and_sends_the_chosen_way(busy: Site, open_page: Open) -> None:
    world, base = busy
    world.jobs["run-stop"] = make_job("run-stop", "to-be-stopped", "running")
    world.logs["run-stop"] = []
    page = open_page(base + "/run?id=run-stop")
    page.get_by_role("button", name="Stop", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("radio")).to_have_count(3)
    expect(dialog).to_contain_text("steps since the last one are lost")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Stop", exact=True).click()
    dialog.get_by_role("radio", name="Stop without saving").check()
    dialog.get_by_role("button", name="Stop the run").click()
    expect(page.locator(".td-run-name .td-pill")).to_have_text("Stopping")
    assert ("run-stop/stop", {"mode": "no_save"}) in world.posts
    page.close()
    del world.jobs["run-stop"]


def test_a_refusal_is_shown_in_the_servers_words(busy: Site, open_page: Open, watch: Watch) -> None:
    world, base = busy
    watch.expected = ("409",)
    world.refuse = {"code": "conflict", "message": "The run ended a moment ago: nothing to save."}
    try:
        page = open_page(base + "/run?id=run-live")
        page.get_by_role("button", name="Save checkpoint").click()
        expect(page.get_by_text("The run ended a moment ago: nothing to save.")).to_be_visible()
    finally:
        world.refuse = None


def test_resume_from_a_chosen_checkpoint_opens_the_new_run(busy: Site, open_page: Open) -> None:
    world, base = busy
    page = open_page(base + "/run?id=run-done&tab=checkpoints")
    page.locator("tr", has_text="checkpoint-300").get_by_role("button", name="Resume").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("radio", name="step 300")).to_be_checked()
    dialog.get_by_role("spinbutton").fill("5")
    dialog.get_by_role("button", name="Resume from here").click()
    expect(page.locator("h1")).to_have_text("llama3-8b-base-run-resumed")
    assert ("run-done/resume", {"checkpoint": "checkpoint-300", "changes": {"num_train_epochs": 5}}) in world.posts
    page.close()
    del world.jobs["run-new"]


def test_notes_and_tags_are_kept(busy: Site, open_page: Open) -> None:
    world, base = busy
    page = open_page(base + "/run?id=run-stopped")
    page.get_by_role("button", name="Notes and tags").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Notes", exact=True).fill("try a lower rate\n<b>bold</b>")
    dialog.get_by_label("Tags").fill("sweep, 低学习率，kto")
    dialog.get_by_role("button", name="Save").click()
    expect(page.locator(".td-notes")).to_have_text("try a lower rate\n<b>bold</b>")
    expect(page.locator(".td-tags .td-tag")).to_have_text(["sweep", "低学习率", "kto"])
    assert world.posts[-1] == (
        "run-stopped/notes",
        {"notes": "try a lower rate\n<b>bold</b>", "tags": ["sweep", "低学习率", "kto"]},
    )


def test_an_incomplete_checkpoint_says_why_and_offers_nothing(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/run?id=run-failed&tab=checkpoints")
    row = page.locator("tr", has_text="checkpoint-300")
    expect(row).to_contain_text("rank 5 wrote no optimizer state")
    expect(row.get_by_role("link")).to_have_count(0)
    expect(row.get_by_role("button")).to_have_count(0)
    good = page.locator("tr", has_text="checkpoint-200")
    expect(good.get_by_role("link", name="Everything")).to_have_attribute(
        "href", "/api/runs/run-failed/archive/checkpoint-200.tar"
    )


def test_a_failed_run_shows_its_first_error_and_a_stopped_one_is_amber(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/run?id=run-failed")
    expect(page.locator(".td-ending")).to_contain_text("The trainer ended with an error (exit code 1).")
    expect(page.locator(".td-ending")).to_contain_text("GPU 3 ran out of memory · Rank 3")
    expect(page.locator(".td-ending")).to_contain_text("Halve per_device_train_batch_size")
    expect(page.locator(".td-ending pre")).to_contain_text("torch.OutOfMemoryError")
    page.goto(busy[1] + "/run?id=run-stopped")
    expect(page.locator(".td-ending")).to_contain_text("Stopped on request after saving")
    expect(page.locator(".td-run-name .td-pill")).to_have_class(re.compile("td-state-cancelled"))


def test_a_failure_without_a_known_cause_shows_the_first_error_of_the_log(busy: Site, open_page: Open) -> None:
    world, base = busy
    world.logs["run-lost"] = to_lines(["all fine", *TRACEBACK])
    page = open_page(base + "/run?id=run-lost")
    expect(page.locator(".td-ending pre")).to_contain_text("Traceback (most recent call last):")


def test_log_follows_finds_and_filters(busy: Site, open_page: Open) -> None:
    world, base = busy
    lines = [f"line {i}" for i in range(300)]
    world.logs["run-live"] = to_lines(lines)
    page = open_page(base + "/run?id=run-live&tab=log")
    box = page.get_by_role("log")
    expect(box.get_by_text("line 299", exact=True)).to_be_in_viewport()
    world.logs["run-live"] = to_lines([*lines, "the newest line", "RuntimeError: boom"])
    expect(box.get_by_text("the newest line")).to_be_in_viewport()
    box.evaluate("(node) => { node.scrollTop = 0; }")
    expect(page.get_by_role("button", name="Follow")).to_have_attribute("aria-pressed", "false")
    world.logs["run-live"] = to_lines([*lines, "the newest line", "RuntimeError: boom", "even newer"])
    expect(box.get_by_text("even newer")).to_have_count(1)
    expect(box.get_by_text("line 0", exact=True)).to_be_in_viewport()
    page.get_by_role("searchbox").fill("line 12")
    expect(page.locator(".td-log")).to_contain_text("1 of 11")
    page.get_by_role("combobox", name="Level").select_option("2")
    expect(box.locator(".td-log-line:visible")).to_have_count(1)
    page.get_by_role("combobox", name="Level").select_option("0")
    page.get_by_role("button", name="First error").click()
    expect(box.get_by_text("RuntimeError: boom")).to_be_in_viewport()


def test_log_search_reaches_lines_that_were_never_loaded(busy: Site, open_page: Open, watch: Watch) -> None:
    watch.expected = ("400",)
    world, base = busy
    lines = [f"[rank{i % 2}]: step {i} done" for i in range(4000)]
    lines[7] = "[rank1]: ValueError: needle"
    world.logs["run-live"] = to_lines(lines)
    page = open_page(base + "/run?id=run-live&tab=log")
    box, status = page.get_by_role("log"), page.locator(".td-log-found")
    expect(box.get_by_text("step 3999 done")).to_be_in_viewport()
    page.keyboard.press("/")
    page.keyboard.type("needle")
    expect(page.locator(".td-log-hits mark")).to_have_text("needle")
    expect(page.locator(".td-log-hits .td-log-near")).to_have_count(4)
    page.keyboard.press("Enter")
    expect(box.get_by_text("ValueError: needle")).to_be_in_viewport()
    expect(box.locator(".td-log-here .td-log-n")).to_have_text("8")
    box.evaluate("(node) => { node.scrollTop = node.scrollHeight; }")
    expect(page.get_by_role("button", name="Later lines")).to_be_visible()
    world.logs["run-live"] = to_lines([*lines, "the newest line"])
    page.get_by_role("button", name="Follow").click()
    expect(box.get_by_text("the newest line")).to_be_in_viewport()
    page.get_by_role("searchbox").fill("step \\d+0 ")
    expect(status).to_have_text("not found")
    page.get_by_role("button", name="Regular expression").click()
    expect(status).to_contain_text("of 399")
    page.get_by_role("combobox", name="Rank").select_option("1")
    expect(status).to_have_text("not found")
    page.get_by_role("searchbox").fill("step (")
    expect(status).to_contain_text("missing )")
    page.get_by_role("searchbox").fill("step")
    expect(page.locator(".td-log-results summary")).to_contain_text("the first 500 of 1,999")
    page.get_by_role("button", name="More matches").click()
    expect(page.locator(".td-log-hits > li")).to_have_count(1000)
    page.get_by_role("searchbox").press("Escape")
    page.get_by_role("combobox", name="Rank").select_option("")
    expect(page.locator(".td-log-results")).to_be_hidden()


def test_command_can_be_copied_and_pasted_into_a_shell(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/run?id=run-done&tab=config", permissions=["clipboard-read", "clipboard-write"])
    page.locator("figure", has_text="Exact command").get_by_role("button", name="Copy").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("cd /data/tunedeck/jobs/run-done && env -u PYTHONPATH HIP_FORCE_DEV_KERNARG=1 ")
    assert "NOTE='it'\\''s here'" in copied
    assert copied.endswith("/opt/tunedeck/backend/inside/train.py /data/tunedeck/jobs/run-done/train.yaml")


def test_an_unknown_run_says_so(busy: Site, open_page: Open, watch: Watch) -> None:
    watch.expected = ("404",)
    page = open_page(busy[1] + "/run?id=%3Cb%3Enope")
    expect(page.locator("h1")).to_have_text("No such run")
    expect(page.locator("#td-main")).to_contain_text("<b>nope")


# ---- The connection ----


def test_a_lost_connection_is_said_and_goes_on_at_the_cursor(busy: Site, open_page: Open, watch: Watch) -> None:
    world, base = busy
    watch.expected = ("WebSocket",)
    page = open_page(base + "/run?id=run-dpo")
    wait_for_chart(page)
    pill = page.locator(".td-live")
    expect(pill).to_have_text("Live")
    world.refuse_sockets = True
    try:
        expect(pill).to_have_text(re.compile("Reconnecting|Every 5 s"), timeout=5000)
        expect(pill).to_have_text("Every 5 s", timeout=15000)  # the poll carries on where sockets are blocked
        behind = step_shown(page)
        page.wait_for_function(
            "(n) => Number(/step ([0-9,]+)/.exec(document.querySelector('.td-progress-line').innerText)[1]) > n",
            arg=behind,
        )
    finally:
        world.refuse_sockets = False
    expect(pill).to_have_text("Live", timeout=20000)
    page.wait_for_timeout(1500)
    x = points_drawn(page, "loss")
    assert x == [float(step) for step in range(1, int(x[-1]) + 1)]


def test_a_reset_from_the_server_loads_everything_again(busy: Site, open_page: Open) -> None:
    world, base = busy
    page = open_page(base + "/run?id=run-dpo")
    wait_for_chart(page)
    with page.expect_response(lambda response: "/series" in response.url and "px=" in response.url):
        world.generation += 1
    page.wait_for_timeout(1500)
    x = points_drawn(page, "loss")
    assert x == [float(step) for step in range(1, int(x[-1]) + 1)]


def test_leaving_a_run_closes_its_socket_and_heap_does_not_grow(busy: Site, open_page: Open) -> None:
    world, base = busy
    page = open_page(base + "/runs")
    page.wait_for_timeout(500)
    sockets = world.sockets
    for _ in range(3):
        page.get_by_role("link", name="llama3-8b-support-lora").click()
        wait_for_chart(page)
        page.get_by_role("link", name="Runs", exact=True).first.click()
        page.wait_for_selector(".td-runs tbody tr")
    page.wait_for_timeout(800)
    assert world.sockets == sockets


# ---- Words and numbers of the page code itself ----


def test_formats(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/")
    module = page.evaluate(
        "performance.getEntriesByType('resource').map((entry) => entry.name).find((name) => name.endsWith('/format.js'))"
    )
    found = page.evaluate(
        """async (module) => { const f = await import(module); return [
          f.number(null), f.number("nan"), f.number("-inf"), f.number(0), f.number(2e-5), f.number(1.23456), f.number(123456.7),
          f.loss(1.1), f.loss(0.00001), f.loss(null), f.compact(18400), f.compact(8.49e6), f.compact(999), f.compact(1.5e13),
          f.bytes(0), f.bytes(1023), f.bytes(1536), f.bytes(null), f.duration(0.001), f.duration(4.25),
          f.duration(61), f.duration(7200),
          f.duration(90061), f.duration(null), f.percent(null), f.ago(null)]; }""",
        module,
    )
    numbers = ["–", "NaN", "-∞", "0", "2e-5", "1.235", "123,457", "1.1000", "1e-5", "–", "18.4k", "8.49M", "999", "15T"]
    sizes = ["0 B", "1023 B", "1.5 KiB", "–"]
    times = ["<0.01 s", "4.3 s", "1 min 1 s", "2 h", "1 d 1 h", "–"]
    assert found == [*numbers, *sizes, *times, "–", "–"]


def test_series_thinning_keeps_spikes_gaps_and_the_newest_points(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/run?id=run-done")
    wait_for_chart(page)
    module = page.evaluate(
        "performance.getEntriesByType('resource').map((entry) => entry.name).find((name) => name.endsWith('/series.js'))"
    )
    found = page.evaluate(
        """async (module) => { const s = await import(module); const series = s.makeSeries();
          for (let i = 1; i <= 40000; i += 1) {
            s.appendPoints(series, {x: [i], y: [i === 777 ? 99 : i === 1500 ? null : Math.sin(i)]});
          }
          s.appendPoints(series, {x: [39999, 40000], y: [5, 7]});
          const tail = series.x.slice(-1000);
          const smooth = s.smooth([1, 2, 3, 4, 5], [1, 1, null, 1, 1], 3);
          const axis = {x: [1, 2, 3], y: [10, 20, 30]};
          const rows = s.joinByStep([['a', s.makeSeries({x: [1, 2], y: [0.1, null], odd: [[2, 'nan']]})],
            ['b', s.makeSeries({x: [2], y: [3]})]]);
          return { n: series.x.length, spike: Math.max(...series.y.filter((v) => v !== 7)), gap: series.y.includes(null),
            exact: tail.every((x, i) => i === 0 || x === tail[i - 1] + 1),
            ascending: series.x.every((x, i) => i === 0 || x > series.x[i - 1]),
            last: series.y.at(-1), smooth, back: s.stepAt(25, axis), on: s.mapSteps([1, 2.5, 9], axis),
            csv: s.toCsv(rows, ['step', 'a', 'b']) }; }""",
        module,
    )
    assert found["n"] <= 6000
    assert found["spike"] == 99
    assert found["gap"] and found["exact"] and found["ascending"]
    assert found["last"] == 7
    assert found["smooth"][2] is None and found["smooth"][0] == pytest.approx(1)
    assert found["back"] == 2.5 and found["on"] == [10, 25, 30]
    assert found["csv"] == "step,a,b\n1,0.1,\n2,nan,3\n"


def test_messages_are_whole_json_in_the_page_config(busy: Site, open_page: Open) -> None:
    page = open_page(busy[1] + "/zh/")
    expect(page.locator("h1")).to_have_text("概览")
    config = page.evaluate("JSON.stringify(window.gradio_config.components.map((item) => item.props.js_on_load ?? ''))")
    assert "td-frame" in page.content() and "startFrame" in json.loads(config)[0]


@pytest.mark.parametrize(("prefix", "words"), [("", "Stop the run"), ("/zh", "停止")])
def test_an_alarm_shows_what_since_when_the_proof_and_what_to_do(
    busy: Site, open_page: Open, prefix: str, words: str
) -> None:
    world, base = busy
    alarm = {"kind": "alert", "at": time.time(), "code": "loss_zero", "severity": "error", "step": 120}
    world.details.setdefault("run-live", {})["events"] = [
        {**alarm, "message": "m", "evidence": f"loss is exactly 0 in the last 9 rows {HOSTILE}"},
        {**alarm, "code": "accuracy_coarse", "severity": "note", "message": "m", "evidence": "steps of 1/4"},
    ]
    page = open_page(base + prefix + "/run?id=run-live")
    shown = page.locator("[data-alarm]")
    expect(shown).to_have_count(1)
    expect(shown).to_contain_text("120")
    expect(shown).to_contain_text("loss is exactly 0 in the last 9 rows <img")
    expect(shown).to_contain_text(words)
