"""GPUs page, host check and the telemetry of a run in a real browser, in both languages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.fake_server import World, busy_world, empty_world, serve

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
