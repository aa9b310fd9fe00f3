"""One Chromium a session; pages that fail their test when they log an error or ask anything of another host."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.chromium import launch
from tests.browser.fake_server import World, busy_world, empty_world, serve


@dataclass
class Watch:
    """What a page did that it should not have. `expected`: parts of console errors that the test provokes."""

    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()

    def follow(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        page.on("request", lambda request: self._look(request.url))

    def _look(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != "127.0.0.1":
            self.foreign.append(url)

    def check(self) -> None:
        unexpected = [error for error in self.errors if not any(part in error for part in self.expected)]
        assert unexpected == []
        assert self.foreign == []


Open = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = launch(playwright)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def busy_site() -> Iterator[tuple[World, str]]:
    world = busy_world()
    with serve(world) as base:
        yield world, base


@pytest.fixture
def busy(busy_site: tuple[World, str]) -> tuple[World, str]:
    """The busy world for a person without wishes: what a test chose (axis, smoothing ...) is kept on the server."""
    busy_site[0].preferences = {}
    return busy_site


@pytest.fixture(scope="module")
def empty() -> Iterator[tuple[World, str]]:
    world = empty_world()
    with serve(world) as base:
        yield world, base


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def open_page(browser: Browser, watch: Watch) -> Iterator[Open]:
    """`open_page(url, **context options)`: a page in a context of its own (no stored taste), watched."""
    contexts = []

    def open_one(url: str, **options: Any) -> Page:
        options.setdefault("viewport", {"width": 1440, "height": 900})
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        watch.follow(page)
        page.goto(url)
        page.wait_for_selector("#td-main h1")
        return page

    yield open_one
    for context in contexts:
        context.close()
    watch.check()
