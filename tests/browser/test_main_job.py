"""The product's main path with every part real: dashboard, worker, LLaMA-Factory with DeepSpeed ZeRO-3 on the CPU, Chromium.

One story in one test, because each training start costs half a minute on two cores.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from backend.store.files import read_json
from tests.browser.conftest import Watch
from tests.conftest import REPOSITORY, TRAINING_PYTHON

pytestmark = [pytest.mark.browser, pytest.mark.training]

SECONDS = 400.0
LOAD_ADAPTER = """
import sys
from peft import PeftModel
from transformers import AutoModelForCausalLM
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(sys.argv[1]), sys.argv[2])
print("trainable layers", sum("lora_A" in name for name, _ in model.named_parameters()))
"""


@pytest.fixture
def served(tmp_path: Path, demo_inputs: Path) -> Iterator[tuple[str, Path]]:
    """A dashboard process of its own, as scripts/run starts it: (address, data folder)."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "demo").symlink_to(demo_inputs)
    env = {**os.environ, "TUNEDECK_DATA": str(data), "TUNEDECK_TRAINING_PYTHON": str(TRAINING_PYTHON)}
    log = data / "dashboard.log"
    command = [sys.executable, str(REPOSITORY / "app.py"), "serve", "--port", "0"]
    with log.open("wb") as output:
        dashboard = subprocess.Popen(command, env=env, stdout=output, stderr=output)
    try:
        yield wait_for_address(log, dashboard), data
    finally:
        dashboard.terminate()
        dashboard.wait(20)
        worker = read_json(data / "worker.json")
        if isinstance(worker, dict):
            os.kill(int(worker["pid"]), signal.SIGTERM)


def wait_for_address(log: Path, dashboard: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and dashboard.poll() is None:
        if found := re.search(r"http://\S+", log.read_text()):
            return found[0].rstrip("/")
        time.sleep(0.2)
    raise AssertionError(log.read_text())


def steps_shown(page: Page) -> int:
    found = re.search(r"step (\d+)", page.locator("main, body").first.inner_text())
    return int(found[1]) if found else 0


def wait_for_step(page: Page, step: int) -> None:
    deadline = time.monotonic() + SECONDS
    while steps_shown(page) < step:
        assert time.monotonic() < deadline, page.locator("body").inner_text()[:1500]
        page.wait_for_timeout(500)


def test_launch_watch_stop_resume_download(
    browser: Browser, served: tuple[str, Path], demo_inputs: Path, tmp_path: Path
) -> None:
    base, _ = served
    watch = Watch(expected=("AbortError: signal is aborted",))  # a request of Gradio that leaving the page cuts off
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, accept_downloads=True, locale="en-US")
    page = context.new_page()
    watch.follow(page)

    # Launch the demo from the form, made longer so that there is something to stop.
    page.goto(f"{base}/new?preset=demo/cpu_sft_lora_zero3_2x")
    expect(page.locator("#new-launch")).to_be_enabled(timeout=90_000)
    page.locator("#f-max_steps input").fill("400")
    page.locator("#f-max_steps input").press("Tab")
    expect(page.locator("#new-panel")).to_contain_text("400", timeout=30_000)
    page.locator("#new-launch").click()
    page.wait_for_url("**/run?id=*", timeout=90_000)
    address = page.url

    # Points arrive, a reload and a second browser show the same.
    wait_for_step(page, 3)
    page.reload()
    wait_for_step(page, 5)
    expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=30_000)
    second = browser.new_context(locale="zh-CN").new_page()
    watch.follow(second)
    second.goto(address.replace("/run?", "/zh/run?"))
    expect(second.get_by_role("heading", level=1)).to_contain_text("demo-lora-zero3", timeout=30_000)
    expect(second.locator("body")).to_contain_text("运行中")

    # Stop with a checkpoint.
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Stop the run").click()
    expect(page.locator("body")).to_contain_text("Stopped on request at step", timeout=SECONDS * 1000)
    stopped_at = int(re.search(r"Stopped on request at step (\d+)", page.locator("body").inner_text())[1])  # type: ignore[index]

    # Download the adapter and load it with the training environment.
    page.get_by_role("tab", name=re.compile("Checkpoints")).click()
    with page.expect_download() as pending:
        page.get_by_role("link", name=re.compile("adapter", re.IGNORECASE)).first.click()
    archive = tmp_path / "adapter.tar"
    pending.value.save_as(archive)
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "adapter", filter="data")
    folder = next((tmp_path / "adapter").rglob("adapter_config.json")).parent
    loaded = subprocess.run(
        [str(TRAINING_PYTHON), "-c", LOAD_ADAPTER, str(demo_inputs / "model"), str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert loaded.returncode == 0, loaded.stderr[-2000:]
    assert re.search(r"trainable layers [1-9]", loaded.stdout)

    # Resume from it, a few steps further.
    page.get_by_role("button", name="Resume", exact=True).first.click()
    dialog = page.get_by_role("dialog")
    dialog.locator("input[name=max_steps]").fill(str(stopped_at + 3))
    dialog.get_by_role("button", name="Resume from here").click()
    page.wait_for_url(lambda url: "/run?id=" in url and url != address, timeout=60_000)
    expect(page.locator("body")).to_contain_text("Finished", timeout=SECONDS * 1000)
    expect(page.locator("body")).to_contain_text(f"step {stopped_at + 3} of {stopped_at + 3}")
    watch.check()
