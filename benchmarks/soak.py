"""A simulated run at ten times real speed in, what hours of watching do to a browser out: memory, lost and repeated points.

    .venv/bin/python -m benchmarks.soak MINUTES [--steps-per-second 10] [--ranks 2] [--out FILE.json]

A real step of one second is played in a tenth of it, with evaluations, checkpoints and console lines. The page is the real one
on the real server. Every point that comes over its socket is noted by step: a step that is missing between two others is lost,
one that comes twice is repeated. Memory is the JavaScript heap after a forced collection, and the renderer's resident memory.
The page keeps up to 6,000 points of a curve (then thins the older ones to 3,000 in all) and 5,000 lines of the log: both are
filled before the clock starts, and the peak of the last third of the time is compared with that of the first.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
from playwright.sync_api import CDPSession, Page, sync_playwright

from backend.domain.job import JobState
from backend.store.paths import JobPaths
from benchmarks.monitor import dashboard
from tests.browser.chromium import launch
from tests.job_folders import add_job, open_api
from tests.recorder_files import RecorderFiles

ROOT = Path(__file__).resolve().parent.parent
HISTORY = 7_000
LINES, LINES_AT_ONCE, STEPS_AT_ONCE = 6_000, 750, 500
SAMPLE_SECONDS = 10.0
MOST_GROWTH = 0.20
EVALUATE_EVERY, SAVE_EVERY = 200, 500

# Notes the steps of every curve that the socket brings, before the page sees them.
WATCH = """
window.soak = { last: {}, lost: 0, repeated: 0, points: 0, messages: 0, resets: 0, lines: 0 };
const Real = window.WebSocket;
window.WebSocket = class extends Real {
  constructor(...given) {
    super(...given);
    this.addEventListener("message", (event) => {
      const soak = window.soak;
      const message = JSON.parse(event.data);
      soak.messages += 1;
      if (message.reset) { soak.resets += 1; soak.last = {}; }
      soak.lines += message.log?.lines.length ?? 0;
      const x = message.rows?.seconds_per_step?.x ?? [];
      for (const step of x) {
        const before = soak.last.step ?? step - 1;
        if (step <= before) soak.repeated += 1;
        else if (step > before + 1) soak.lost += step - before - 1;
        soak.last.step = Math.max(before, step);
        soak.points += 1;
      }
    });
  }
};
"""
DRAWN = """
(() => {
  const trace = document.querySelector("[data-chart='loss'] .td-plot")?.data?.[0];
  if (!trace) return null;
  let disorder = 0;
  for (let i = 1; i < trace.x.length; i += 1) if (!(trace.x[i] > trace.x[i - 1])) disorder += 1;
  const tail = trace.x.slice(-200);
  const holes = tail.slice(1).filter((step, i) => step !== tail[i] + 1).length;
  return { points: trace.x.length, last: tail.at(-1), disorder, holes };
})()
"""


class Trainer(threading.Thread):
    """Writes the recorder files and the console of a run until it is told to end."""

    def __init__(self, paths: JobPaths, ranks: int, steps_per_second: float) -> None:
        super().__init__(daemon=True)
        self.files, self.console, self.pace = RecorderFiles(paths.recorder, ranks), paths.console, 1 / steps_per_second
        self.step, self.ended = 0, threading.Event()

    def begin(self) -> None:
        self.files.start(max_steps=10_000_000)
        for _ in range(HISTORY):
            self.make_step()

    def make_step(self) -> None:
        self.step += 1
        step = self.step
        self.files.step(step, seconds=1.0, tokens=4096, loss=1 + 2 / (1 + step / 500) + (step * 7919 % 101) / 500)
        self.files.log(step, epoch=step / 1000, learning_rate=1e-5, grad_norm=0.5 + (step * 31 % 17) / 20)
        if step % EVALUATE_EVERY == 0:
            self.files.evaluation(step, eval_loss=1.2)
        if step % SAVE_EVERY == 0:
            self.files.checkpoint(step)
        with self.console.open("a") as file:
            file.write(f"{{'loss': '{1 + 2 / (1 + step / 500):.4f}', 'epoch': '{step / 1000:.2f}'}}\n")

    def fill(self, page: Page) -> None:
        """As many points and lines as the page keeps at most, in portions that it follows without starting again."""
        for _ in range(LINES // LINES_AT_ONCE):
            for _ in range(STEPS_AT_ONCE):
                self.make_step()
            with self.console.open("a") as file:
                file.writelines(f"[INFO] row {index} of the data set was read\n" for index in range(LINES_AT_ONCE))
            page.wait_for_timeout(2_500)

    def run(self) -> None:
        due = time.monotonic()
        while not self.ended.is_set():
            self.make_step()
            due += self.pace
            time.sleep(max(0.0, due - time.monotonic()))


def soak(minutes: float, steps_per_second: float, ranks: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as temporary:
        api = open_api(Path(temporary))
        trainer = Trainer(add_job(api, "soak", JobState.RUNNING), ranks, steps_per_second)
        trainer.begin()
        with dashboard(Path(temporary)) as (address, server), sync_playwright() as playwright:
            chromium = launch(playwright)
            page = chromium.new_context(viewport={"width": 1440, "height": 900}).new_page()
            errors: list[str] = []
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.add_init_script(WATCH)
            page.goto(f"{address}run?id=soak")
            page.wait_for_selector("[data-chart='loss'] .main-svg", timeout=60_000)
            trainer.fill(page)
            trainer.start()
            samples = watch(page, server, minutes)
            trainer.ended.set()
            trainer.join()
            page.wait_for_timeout(3_000)
            seen, drawn = page.evaluate("window.soak"), page.evaluate(DRAWN)
            chromium.close()
    return judge(samples, seen, drawn, trainer.step, errors) | {
        "minutes": minutes, "steps_per_second": steps_per_second, "ranks": ranks, "load": os.getloadavg()[0],
    }  # fmt: skip


def watch(page: Page, server: psutil.Process, minutes: float) -> list[dict[str, float]]:
    """A sample every SAMPLE_SECONDS: heap after a collection, memory of the browser's renderers and of the server."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.enable")
    began, samples = time.monotonic(), list[dict[str, float]]()
    while time.monotonic() - began < minutes * 60:
        page.wait_for_timeout(SAMPLE_SECONDS * 1e3)
        sample = {"at": time.monotonic() - began, "heap_mb": heap_mb(session), "renderer_mb": renderer_mb()}
        sample |= {
            "nodes": page.evaluate("document.querySelectorAll('*').length"),
            "server_mb": server.memory_info().rss / 2**20,
        }
        sample["points"] = (page.evaluate(DRAWN) or {"points": 0})["points"]
        samples.append(sample)
        print({name: round(value, 1) for name, value in sample.items()}, file=sys.stderr, flush=True)
    return samples


def heap_mb(session: CDPSession) -> float:
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"]) / 2**20


def renderer_mb() -> float:
    """Of the largest renderer among our own children: the page's."""
    sizes = [0.0]
    for child in psutil.Process().children(recursive=True):
        try:
            if "--type=renderer" in child.cmdline():
                sizes.append(child.memory_info().rss / 2**20)
        except psutil.Error:
            continue  # it ended between two looks
    return max(sizes)


def judge(
    samples: list[dict[str, float]],
    seen: dict[str, object],
    drawn: dict[str, object] | None,
    steps: int,
    errors: list[str],
) -> dict[str, object]:
    """Growth of a peak: the last third of the time against the first."""
    third = max(1, len(samples) // 3)

    def peaks(name: str) -> tuple[float, float]:
        return max(sample[name] for sample in samples[:third]), max(sample[name] for sample in samples[-third:])

    def growth(name: str) -> float:
        first, last = peaks(name)
        return last / first - 1

    heap = growth("heap_mb")
    whole = seen["lost"] == 0 and seen["repeated"] == 0 and not errors
    shown = drawn is not None and drawn["last"] == steps and drawn["disorder"] == 0 and drawn["holes"] == 0
    return {
        "passed": heap <= MOST_GROWTH and growth("renderer_mb") <= MOST_GROWTH and whole and shown,
        "heap_growth": heap, "renderer_growth": growth("renderer_mb"), "server_growth": growth("server_mb"),
        "heap_mb": peaks("heap_mb"), "samples": samples,
        "renderer_mb": peaks("renderer_mb"),
        "dom_nodes": peaks("nodes"),
        "steps": steps, "socket": seen, "drawn": drawn, "page_errors": errors,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minutes", type=float)
    parser.add_argument("--steps-per-second", type=float, default=10.0)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/soak.json")
    given = parser.parse_args()
    found = soak(given.minutes, given.steps_per_second, given.ranks)
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    raise SystemExit(0 if found["passed"] else 1)


if __name__ == "__main__":
    main()
