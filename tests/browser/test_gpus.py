"""GPUs page, host check and the telemetry of a run in a real browser, in both languages."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.fake_gpus import made_check
from tests.browser.fake_server import World, busy_world, empty_world, make_job, serve

Site = tuple[World, str]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    world = busy_world()
    with serve(world) as base:
        yield world, base


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ("", ("In use", "may not be read by this user", "Use it again", "of 100 °C", "Held back by power")),
        ("/zh", ("使用中", "当前用户无权读取", "恢复使用", "上限 100 °C", "受功率限制")),
    ],
)
def test_every_card_with_its_readings_limits_and_reasons(
    site: Site, open_page: Open, prefix: str, words: tuple[str, ...]
) -> None:
    in_use, why, clear, limit, held = words
    page = open_page(f"{site[1]}{prefix}/gpus")
    cards = page.locator(".td-gpu-card")
    expect(cards).to_have_count(8)
    expect(cards.nth(0)).to_contain_text(in_use)
    expect(cards.nth(0)).to_contain_text(limit)
    expect(cards.nth(2)).to_contain_text(held)
    expect(cards.nth(6)).to_contain_text(why)
    expect(cards.nth(6)).to_contain_text("vllm")
    expect(cards.nth(6).locator(".td-gpu-meter").first.locator("strong")).to_have_text("–")
    expect(cards.nth(7).get_by_role("button", name=clear)).to_be_visible()
    expect(page.locator(".td-links tbody tr")).to_have_count(8)
    expect(page.locator(".td-time-plot svg")).to_have_count(4)
    cards.nth(0).locator("summary").click()
    expect(cards.nth(0)).to_contain_text("gfx942")


def test_set_aside_card_is_used_again_when_a_person_says_so(site: Site, open_page: Open) -> None:
    page = open_page(site[1] + "/gpus")
    card = page.locator(".td-gpu-card").nth(7)
    card.get_by_role("button", name="Use it again").click()
    expect(card.locator(".td-note")).to_be_hidden(timeout=10_000)
    assert ("gpus/clear", {"device": "0000:07:00.0"}) in site[0].posts


def test_span_of_the_history_is_kept_in_the_address(site: Site, open_page: Open) -> None:
    page = open_page(site[1] + "/gpus")
    page.get_by_role("button", name="24 hours").click()
    page.wait_for_url("**/gpus?span=day")
    page.reload()
    expect(page.get_by_role("button", name="24 hours")).to_have_attribute("aria-pressed", "true")


def test_host_without_gpus_says_why(open_page: Open) -> None:
    with serve(empty_world()) as base:
        page = open_page(base + "/gpus")
        expect(page.get_by_text("No GPU to show")).to_be_visible()
        expect(page.get_by_text("no AMD card in /sys/class/drm")).to_be_visible()
        expect(page.locator(".td-gpu-card")).to_have_count(0)
        page.close()


@pytest.mark.parametrize(
    ("prefix", "title", "expected"), [("", "Host check", "Expected: 0"), ("/zh", "主机检查", "应为：0")]
)
def test_host_check_puts_errors_first(site: Site, open_page: Open, prefix: str, title: str, expected: str) -> None:
    page = open_page(f"{site[1]}{prefix}/doctor")
    expect(page.locator("h1")).to_have_text(title)
    first = page.locator(".td-check").first
    expect(first).to_contain_text("numa_balancing=0")
    expect(first).to_contain_text(expected)


@pytest.mark.parametrize(
    ("prefix", "idle"), [("", "Idle for most of the run: GPU 3"), ("/zh", "大部分时间空闲：GPU 3")]
)
def test_run_shows_its_devices_below_the_loss(site: Site, open_page: Open, prefix: str, idle: str) -> None:
    page = open_page(f"{site[1]}{prefix}/run?id=run-live")
    expect(page.get_by_text(idle)).to_be_visible(timeout=20_000)
    expect(page.locator(".td-device-card")).to_have_count(4)
    chart = page.locator("[data-chart='gpu.socket_power_watts']")
    chart.scroll_into_view_if_needed()
    expect(chart.locator("svg.main-svg").first).to_be_visible(timeout=20_000)
    expect(chart.locator(".legendtoggle, .td-legend button")).to_have_count(4)
    page.wait_for_function(
        "document.querySelector(\"[data-chart='gpu.socket_power_watts'] .td-plot\").layout?.shapes.length > 0"
    )
    expect(chart.locator(".td-legend")).to_contain_text("GPU 1")


@pytest.mark.parametrize(
    ("prefix", "alarm", "share", "pair"),
    [
        ("", "Slower than usual", "−16 % against usual", "Plain against AMD, one node"),
        ("/zh", "比平常慢", "比平常 −16 %", "无变量 与 AMD 单机 对比"),
    ],
)
def test_speed_check_shows_figures_alarm_history_and_comparison(
    open_page: Open, prefix: str, alarm: str, share: str, pair: str
) -> None:
    world, now = busy_world(), time.time()
    world.benches = [
        made_check("b2", now - 60, "amd_single_node", slow=0.85), made_check("b1", now - 120), made_check("b0", now - 9e5)
    ]  # fmt: skip
    with serve(world) as base:
        page = open_page(f"{base}{prefix}/gpus")
        section = page.locator(".td-bench")
        expect(section.get_by_role("alert")).to_contain_text(alarm)
        expect(section.get_by_role("alert")).to_contain_text("544 TFLOP/s")
        expect(section.locator(".td-bench-usual.td-bad")).to_have_text(share)
        expect(section.get_by_text("320 GB/s").first).to_be_visible()
        expect(section.get_by_role("heading", name=pair)).to_be_visible()
        expect(section.get_by_text("1.2×" if not prefix else "1.2 倍")).to_be_visible()
        boxes = section.locator("tbody input[type=checkbox]")
        expect(boxes).to_have_count(3)
        boxes.nth(1).check()
        expect(section.get_by_role("heading", name=pair)).to_have_count(0)
        page.close()


def test_only_free_cards_can_be_checked_and_the_others_say_who_has_them(open_page: Open) -> None:
    world = busy_world()
    with serve(world) as base:
        page = open_page(base + "/gpus")
        page.get_by_role("button", name="Check speed").click()
        dialog = page.get_by_role("dialog")
        cards = dialog.locator(".td-bench-card")
        expect(cards).to_have_count(8)
        expect(cards.nth(0)).to_contain_text(f"in use by {world.jobs['run-live']['name']}")
        expect(cards.nth(0).locator("input")).to_be_disabled()
        world.posts.clear()
        expect(dialog.get_by_text("No card is free now.")).to_be_visible()
        expect(dialog.get_by_role("button", name="Check speed")).to_have_count(0)
        page.close()
        for gpu in world.gpus[:2]:
            gpu["leased_by"] = ""
        page = open_page(base + "/gpus")
        page.get_by_role("button", name="Check speed").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_text("A/B: plain, then AMD, one node").click()
        dialog.locator(".td-bench-card input:enabled").nth(1).uncheck()
        dialog.get_by_role("button", name="Check speed").click()
        expect(page.get_by_text("2 checks are queued")).to_be_visible()
        assert world.posts == [("benches", {"profiles": ["plain", "amd_single_node"], "gpus": [world.gpus[0]["id"]]})]
        page.close()


def test_variables_of_ones_own_are_checked_against_the_plain_environment(open_page: Open) -> None:
    with serve(empty_world()) as base:
        page = open_page(base + "/gpus")
        expect(page.get_by_text("No GPU is there to check.")).to_be_visible()
        page.get_by_role("button", name="Check speed").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_text("It says nothing about RCCL or NCCL.")).to_be_visible()
        dialog.get_by_text("A/B: plain, then variables of your own").click()
        dialog.get_by_label("Variables, one NAME=VALUE a line").fill("NCCL_ALGO Ring")
        dialog.get_by_role("button", name="Check speed").click()
        expect(dialog.get_by_role("alert")).to_contain_text("Not NAME=VALUE")
        dialog.get_by_label("Variables, one NAME=VALUE a line").fill("NCCL_ALGO=Ring\n")
        dialog.get_by_role("button", name="Check speed").click()
        expect(page.get_by_text("2 checks are queued")).to_be_visible()
        page.close()


def test_running_check_says_what_it_measures_and_is_cancelled(open_page: Open) -> None:
    world = empty_world()
    world.jobs["b9"] = make_job(
        "b9", "host-check-plain", "running", tags=["host-check", "plain"], devices=[], processes=2
    )
    with serve(world) as base:
        page = open_page(base + "/gpus")
        row = page.locator(".td-bench-row")
        expect(row).to_contain_text("all-reduce of 64 MiB")
        row.get_by_role("button", name="Cancel").click()
        expect(row.get_by_role("button", name="Cancel")).to_be_hidden()
        assert ("b9/stop", {"mode": "no_save"}) in world.posts
        page.close()
