"""A run that Tunedeck did not start, attached in the browser on the real dashboard and worker, followed over a restart."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from backend.store.files import read_json
from tests.browser.conftest import Open, Watch
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.browser


def log_rows(first: int, last: int) -> str:
    rows = [
        {
            "current_steps": step,
            "total_steps": 1000,
            "loss": 3 - step / 400,
            "elapsed_time": f"0:{step // 60:02d}:{step % 60:02d}",
        }
        for step in range(first, last, 5)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def start(data: Path, roots: Path) -> tuple[subprocess.Popen[bytes], str]:
    env = {**os.environ, "TUNEDECK_DATA": str(data), "TUNEDECK_ROOTS": str(roots)}
    log = data / "dashboard.log"
    with log.open("wb") as output:
        command = [sys.executable, str(REPOSITORY / "app.py"), "serve", "--port", "0"]
        process = subprocess.Popen(command, env=env, stdout=output, stderr=output)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"Tunedeck is at (\S+)/", log.read_text()):
            return process, found[1]
        time.sleep(0.3)
    raise AssertionError(log.read_text())


@pytest.fixture
def deck(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Data folder and the folder of a stranger's run."""
    data, run = tmp_path / "data", tmp_path / "runs" / "llama-lora"
    data.mkdir()
    run.mkdir(parents=True)
    yield data, run
    worker = read_json(data / "worker.json")
    if isinstance(worker, dict):
        os.kill(int(worker["pid"]), signal.SIGTERM)


def test_a_strangers_run_is_attached_and_followed(deck: tuple[Path, Path], open_page: Open, watch: Watch) -> None:
    watch.expected = ("403", "WebSocket", "ERR_CONNECTION_REFUSED")
    data, run = deck
    (run / "trainer_log.jsonl").write_text(log_rows(5, 400))
    (run / "train.log").write_text("[INFO] training\n[rank0]: ValueError: not fatal\n")
    dashboard, base = start(data, run.parent)
    try:
        page = open_page(base + "/runs")
        page.get_by_role("button", name="Attach a run").click()
        path = page.get_by_label("Output folder or console log")
        path.fill("/etc/passwd")
        page.get_by_role("button", name="Attach", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("outside the allowed roots")
        path.fill(str(run))
        page.get_by_role("button", name="Attach", exact=True).click()
        expect(page.locator(".td-attached")).to_contain_text(str(run))
        expect(page.locator(".td-progress-line")).to_contain_text("step 395 of 1,000")
        with (run / "trainer_log.jsonl").open("a") as log:
            log.write(log_rows(400, 420))
        expect(page.locator(".td-progress-line")).to_contain_text("step 415 of 1,000")
        page.get_by_role("tab", name="Log").click()
        page.get_by_role("button", name="First error").click()
        expect(page.get_by_role("log").get_by_text("ValueError: not fatal")).to_be_in_viewport()
        address = page.url.removeprefix(base)
    finally:
        dashboard.terminate()
        dashboard.wait(20)
    dashboard, base = start(data, run.parent)
    try:
        page = open_page(base + "/zh" + address)
        expect(page.locator(".td-attached")).to_contain_text("已接入")
        expect(page.locator(".td-progress-line")).to_contain_text("415")
    finally:
        dashboard.terminate()
        dashboard.wait(20)
