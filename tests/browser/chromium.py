"""Starts Debian's Chromium so that it can reach nothing but this machine."""

from __future__ import annotations

import os

from playwright.sync_api import Browser, Playwright

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A link to the outside fails loudly instead of quietly working here.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]


def launch(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=ARGUMENTS)
