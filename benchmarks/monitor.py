"""Generated runs in, what watching them costs here and with other tools out: one run of this script measures all of it.

    .venv/bin/python -m benchmarks.monitor [--parts abcdefg] [--tensorboard PYTHON] [--board PYTHON] [--out FILE.json]

a  one refresh: LLaMA Board's own monitor function against our update, server CPU
b  bytes to the browser per refresh: a whole gr.Plot figure against our message
c  first paint of a run of a million points in Chromium, and TensorBoard's time to the same
d  viewers that one core holds at one update a second
e  ingest: console bytes and recorder lines
f  memory of the dashboard with 200 runs of 100,000 points
g  list of 10,000 runs: page, search, tag

A peer that is not installed is reported as not measured. Times are CPU seconds where it says so, else wall seconds; the load
of the machine at the time is part of the result.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import orjson
import psutil

from backend.domain.job import JobState
from backend.parsing.console import ConsoleReader
from backend.services.api import Api
from backend.services.cursor import parse_cursor
from backend.services.views import Views
from backend.store.series import RunSeries
from benchmarks.live_path import measure_viewers, write_run
from benchmarks.log_parsing import bars, deepspeed, portions, words
from tests.job_folders import add_job, open_api
from ui.encoding import curves_record, encode
from ui.live import message_of

ROOT = Path(__file__).resolve().parent.parent
SITE = Path(orjson.__file__).resolve().parents[1]
POINTS = (1_000, 10_000, 100_000)
MILLION = 1_000_000
SHOWN = ("loss", "learning_rate", "grad_norm", "tokens_per_second", "seconds_per_step")
"""The five curves that both sides of part b send."""
Found = dict[str, object]

BOARD = """
import json, sys, time
sys.path.append(sys.argv[1])
from llamafactory.webui.control import get_trainer_info
get_trainer_info("en", sys.argv[2], True)
spent = []
for _ in range(int(sys.argv[3])):
    began = time.process_time()
    get_trainer_info("en", sys.argv[2], True)
    spent.append(time.process_time() - began)
print("SPENT", json.dumps(spent))
"""
DASHBOARD = """
import sys
from pathlib import Path
from backend.services.views import Views
from tests.job_folders import open_api
from ui.main import build_languages
from ui.server import create_app, serve
api = open_api(Path(sys.argv[1]), port=0)
app = create_app(api, Views(api), build_languages(api), api.settings)
serve(app, api.settings, say=lambda line: print(line, flush=True))
"""
TENSORBOARD_WRITER = """
import sys, time
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
writer = EventFileWriter(sys.argv[1])
for step in range(1, int(sys.argv[2]) + 1):
    value = Summary.Value(tag="train/loss", simple_value=1.2345678901 + step % 7 / 10)
    writer.add_event(Event(step=step, wall_time=1.8e9 + step, summary=Summary(value=[value])))
writer.close()
"""


# ---- a: one refresh -------------------------------------------------------------------------------------------------


def measure_refresh(folder: Path, board: Path | None) -> Found:
    """CPU of one refresh with a new point, by how many points the run has already."""
    rows: list[Found] = []
    for points in POINTS:
        ours = _our_refresh(folder, points)
        peer = _board_refresh(folder, points, board) if board else None
        rows.append({"points": points, "ours_ms": ours, "board_ms": peer, "ratio": peer / ours if peer else None})
    return {"rows": rows, "peer": "llamafactory.webui.control.get_trainer_info" if board else "not measured"}


def _our_refresh(folder: Path, points: int) -> float:
    """Read what a rank appended, say what is new, encode it. It serves every viewer of the run."""
    api = open_api(folder / "deck")
    paths = add_job(api, f"refresh-{points}")
    write_dense(paths.recorder, points)
    views = Views(api)
    cursor = parse_cursor(views.series(f"refresh-{points}").cursor)
    spent = []
    for index in range(40):
        write_dense(paths.recorder, 1, points + 1 + index)
        began = time.process_time()
        update = views.update(f"refresh-{points}", cursor)
        encode(message_of(update))
        spent.append(time.process_time() - began)
        cursor = update.cursor
    return statistics.mean(spent) * 1e3


def _board_refresh(folder: Path, points: int, board: Path) -> float | None:
    output = folder / f"board-{points}"
    output.mkdir()
    with (output / "trainer_log.jsonl").open("wb") as file:
        for step in range(1, points + 1):
            row = {
                "current_steps": step,
                "total_steps": points * 2,
                "loss": 1.23 + step % 7 / 10,
                "lr": 1e-5,
                "epoch": 0.1,
            }
            row |= {"percentage": 50.0, "elapsed_time": "1:00:00", "remaining_time": "1:00:00"}
            file.write(orjson.dumps(row) + b"\n")
    (output / "running_log.txt").write_text("step\n" * 4000)
    times = 5 if points < 100_000 else 3
    done = subprocess.run(
        [str(board), "-c", BOARD, str(SITE), str(output), str(times)], capture_output=True, text=True, timeout=300
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("SPENT")]
    if not lines:
        print(f"LLaMA Board could not be measured: {done.stderr[-300:]}", file=sys.stderr)
        return None
    return statistics.mean(json.loads(lines[-1].removeprefix("SPENT"))) * 1e3


def write_dense(folder: Path, steps: int, first: int = 1) -> None:
    """As `write_run`, of one rank, with every step logged: N steps are N points of every curve."""
    with (folder / "rank-0.jsonl").open("ab") as file:
        if first == 1:
            file.write(orjson.dumps({"t": 1.0, "k": "start", "rank": 0, "world_size": 1}) + b"\n")
            begin = {"t": 2.0, "k": "train_begin", "step": 0, "max_steps": steps * 2, "world_size": 1}
            file.write(orjson.dumps(begin) + b"\n")
        for step in range(first, first + steps):
            at = 1_800_000_000.123 + step * 0.5123
            record = {"t": at, "k": "step", "s": step, "dt": 0.5123456789, "data": 0.00123456, "mem": 81_234_567_890}
            values = {"loss": 1.2345678901 + step % 7 / 10, "grad_norm": 0.51234567, "learning_rate": 1e-5}
            log = {"t": at, "k": "log", "s": step, "epoch": step / 1e6, "v": values}
            file.write(orjson.dumps(record | {"tok": 8123, "pad": 69}) + b"\n" + orjson.dumps(log) + b"\n")


# ---- b: bytes -------------------------------------------------------------------------------------------------------


def measure_bytes(folder: Path) -> Found:
    """What one new point of five curves makes the server send, as each side encodes it."""
    import gradio as gr
    import plotly.graph_objects as go

    rows: list[Found] = []
    for points in POINTS:
        api = open_api(folder / "deck")
        job_id = f"bytes-{points}"
        paths = add_job(api, job_id)
        write_dense(paths.recorder, points)
        views = Views(api)
        snapshot = views.series(job_id, SHOWN, points=0)
        figure = go.Figure([go.Scatter(x=curve.x, y=curve.y, name=key) for key, curve in snapshot.series.items()])
        data = gr.Plot(render=False).postprocess(figure)
        assert data is not None
        whole = len(data.model_dump_json())
        cursor = parse_cursor(views.series(job_id).cursor)
        write_dense(paths.recorder, 1, points + 1)
        update = views.update(job_id, cursor)
        shown = {key: curve for key, curve in update.rows.items() if key in SHOWN}
        five, full = len(encode(curves_record(shown))), len(encode({"c": str(update.cursor), **message_of(update)}))
        rows.append(
            {"points": points, "figure_bytes": whole, "ours_five_curves_bytes": five, "ours_whole_message_bytes": full,
             "ratio": whole / five, "ratio_whole_message": whole / full}
        )  # fmt: skip
    return {"rows": rows, "curves": SHOWN, "peer": f"gr.Plot of gradio {gr.__version__}, plotly figure"}


# ---- c: first paint -------------------------------------------------------------------------------------------------

PAINTED = ("numbers", "curve", "chart")
WATCH_PAINT = """
window.seen = {};
const marks = {
  numbers: ".td-tile-loss dd",
  curve: ".td-chart[data-chart='loss'] .td-spark path",
  chart: ".td-chart[data-chart='loss'] .main-svg .scatterlayer path",
  board: "line-chart canvas, line-chart svg path",
};
const painted = (name) => requestAnimationFrame(() => setTimeout(() => (window.seen[name] = performance.now())));
const look = () => {
  for (const [name, css] of Object.entries(marks)) {
    if (name in window.seen || !document.querySelector(css)) continue;
    window.seen[name] = null;
    painted(name);
  }
};
new MutationObserver(look).observe(document, { childList: true, subtree: true, attributes: true });
setInterval(look, 20);
"""


def measure_paint(folder: Path, tensorboard: Path | None, times: int = 5) -> Found:
    """Each cold time: a dashboard just started, that has never read the run. Its file was just written: the system has it."""
    api = open_api(folder / "paint")
    paths = add_job(api, "million", JobState.SUCCEEDED, ended_at=1e6, max_steps=MILLION, step=MILLION)
    write_dense(paths.recorder, MILLION)
    size = (paths.recorder / "rank-0.jsonl").stat().st_size
    cold: list[Found] = []
    for _ in range(times):
        shutil.rmtree(api.paths.series_copies, ignore_errors=True)
        with dashboard(folder / "paint") as (address, _):
            cold += _paint(f"{address}run?id=million", PAINTED, 1)
            warm = _paint(f"{address}run?id=million", PAINTED, times if len(cold) == times else 0)
    again: list[Found] = []
    for _ in range(times):
        with dashboard(folder / "paint") as (address, _):
            again += _paint(f"{address}run?id=million", PAINTED, 1)
    peer = _tensorboard_paint(folder, tensorboard) if tensorboard else "not measured"
    return {
        "points": MILLION, "recorder_bytes": size, "first_ever": _middle(cold), "followed": _middle(warm),
        "after_restart": _middle(again), "tensorboard": peer,
    }  # fmt: skip


def _paint(address: str, marks: tuple[str, ...], times: int, *, limit: float = 120.0) -> list[Found]:
    """Seconds from the start of the navigation, a fresh browser context each time. `whole`: no longer a sample."""
    from playwright.sync_api import sync_playwright

    from tests.browser.chromium import launch

    seen: list[Found] = []
    with sync_playwright() as playwright:
        chromium = launch(playwright)
        for _ in range(times):
            page = chromium.new_context(viewport={"width": 1440, "height": 900}).new_page()
            page.add_init_script(WATCH_PAINT)
            page.goto(address, wait_until="commit", timeout=limit * 1e3)
            page.wait_for_function(f"{json.dumps(marks)}.every((name) => window.seen[name])", timeout=limit * 1e3)
            found: Found = {mark: page.evaluate(f"window.seen.{mark}") / 1e3 for mark in marks}
            if "chart" in marks:
                page.wait_for_function("document.querySelector('.td-charts > .td-note').hidden", timeout=limit * 1e3)
                found["whole"] = page.evaluate("performance.now()") / 1e3
            seen.append(found)
            page.context.close()
        chromium.close()
    return seen


def _middle(seen: list[Found]) -> Found:
    """Median and worst of each mark."""
    values = {mark: [float(str(each[mark])) for each in seen] for mark in seen[0]}
    worst = {f"{mark}_worst": max(found) for mark, found in values.items()}
    return {mark: statistics.median(found) for mark, found in values.items()} | worst | {"times": len(seen)}


def _tensorboard_paint(folder: Path, python: Path) -> Found:
    """Its own writer, its own server; `load` is how long the server takes until it has read the file."""
    logs = folder / "tensorboard"
    subprocess.run([str(python), "-c", TENSORBOARD_WRITER, str(logs), str(MILLION)], check=True, timeout=600)
    version = subprocess.run(
        [str(python), "-c", "import tensorboard; print(tensorboard.__version__)"], capture_output=True, text=True
    ).stdout.strip()
    port = _free_port()
    began = time.perf_counter()
    server = subprocess.Popen(
        [str(python), "-m", "tensorboard.main", "--logdir", str(logs), "--port", str(port), "--host", "127.0.0.1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        address = f"http://127.0.0.1:{port}/"
        load = _wait_until_read(address, began)
        page = _middle(_paint(f"{address}#timeseries", ("board",), 5))
        return {"version": version, "server_ready_s": load, **page, "points_kept": 1000}
    finally:
        server.terminate()
        server.wait(10)


def _wait_until_read(address: str, began: float) -> float:
    """Until the newest step is among what it answers."""
    while time.perf_counter() - began < 300:
        try:
            form = {"requests": json.dumps([{"plugin": "scalars", "tag": "train/loss"}])}
            answer = httpx.post(
                f"{address}experiment/defaultExperimentId/data/plugin/timeseries/timeSeries",
                data=form,
                trust_env=False,
                timeout=30,
            )
            if f'"step": {MILLION}' in answer.text or f'"step":{MILLION}' in answer.text:
                return time.perf_counter() - began
        except httpx.HTTPError:
            pass  # it is not up yet
        time.sleep(0.25)
    raise TimeoutError("TensorBoard did not read its file within 300 s")


# ---- e: ingest ------------------------------------------------------------------------------------------------------


def measure_ingest(folder: Path) -> Found:
    """CPU of one process: consoles as the charts read them, and a rank's recorder file."""
    found: Found = {}
    kinds: Mapping[str, Callable[[int], bytes]] = {"bars": bars, "words": words, "deepspeed": deepspeed}
    for name, make in kinds.items():
        reader, spent, read = ConsoleReader(), 0.0, 0
        for portion in portions(make, 20_000_000):
            began = time.process_time()
            reader.feed(portion)
            spent, read = spent + time.process_time() - began, read + len(portion)
        found[f"console_{name}_mb_per_s"] = read / spent / 1e6
    recorder = folder / "ingest"
    recorder.mkdir()
    write_dense(recorder, 200_000)
    began = time.process_time()
    RunSeries(recorder).refresh()
    found["recorder_lines_per_s"] = 400_000 / (time.process_time() - began)
    return found


# ---- f, g: the dashboard --------------------------------------------------------------------------------------------


def measure_memory(folder: Path, runs: int = 200) -> Found:
    """Values logged every tenth step, as is usual, and every step."""
    return {
        "every_10": _memory(folder / "every_10", runs, lambda recorder: write_run(recorder, 1, 100_000)),
        "every_step": _memory(folder / "every_step", runs, lambda recorder: write_dense(recorder, 100_000)),
    }


def _memory(folder: Path, runs: int, write: Callable[[Path], None]) -> Found:
    """Every run's page data asked for, then again until none is a sample. Runs share one file on the disk, not in the server."""
    folder.mkdir()
    api = open_api(folder)
    first = add_job(api, "run-0").recorder
    write(first)
    for index in range(1, runs):
        paths = add_job(api, f"run-{index}")
        os.link(first / "rank-0.jsonl", paths.recorder / "rank-0.jsonl")
    with dashboard(folder) as (address, server):
        idle = server.memory_info().rss / 2**20
        most = idle
        with httpx.Client(base_url=address, trust_env=False, timeout=120) as client:
            for until_whole in (False, True):
                for index in range(runs):
                    reading: object = 0.0
                    while reading is not None:
                        answer = client.get(f"api/runs/run-{index}/series?px=1200").raise_for_status()
                        most = max(most, server.memory_info().rss / 2**20)
                        reading = answer.json()["reading"] if until_whole else None
                        time.sleep(0.1 if reading is not None else 0.0)
        return {
            "runs": runs,
            "points": 100_000,
            "idle_mb": idle,
            "peak_mb": most,
            "after_mb": server.memory_info().rss / 2**20,
        }


def measure_list(folder: Path, jobs: int = 10_000) -> Found:
    """Wall time of a request to the running server, median and worst of 15."""
    api = open_api(folder / "list")
    fill_list(api, jobs)
    asked = {
        "page": "limit=50",
        "last_page": f"limit=50&offset={jobs - 50}",
        "search": "q=m13",
        "tag": "tag=t7",
        "by_loss": "sort=loss",
    }
    with dashboard(folder / "list") as (address, _), httpx.Client(base_url=address, trust_env=False) as client:
        return {"jobs": jobs} | {name: _request_ms(client, f"api/runs?{query}") for name, query in asked.items()}


def fill_list(api: Api, jobs: int) -> None:
    for index in range(jobs):
        tags = (f"t{index % 40}",)
        add_job(
            api, f"list-{index}", JobState.SUCCEEDED, ended_at=1e6 + index, model=f"/models/m{index % 17}", tags=tags
        )


def _request_ms(client: httpx.Client, path: str) -> Found:
    spent = []
    for _ in range(15):
        began = time.perf_counter()
        client.get(path).raise_for_status()
        spent.append((time.perf_counter() - began) * 1e3)
    return {"median_ms": statistics.median(spent), "worst_ms": max(spent)}


@contextmanager
def dashboard(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """The whole application with its pages, in a process of its own, without a worker."""
    server = subprocess.Popen(
        [sys.executable, "-c", DASHBOARD, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "GRADIO_ANALYTICS_ENABLED": "False"},
    )  # fmt: skip
    try:
        assert server.stdout
        line = ""
        while " at http" not in line:
            line = server.stdout.readline()
            if not line:
                raise RuntimeError("the dashboard did not start")
        yield line.split(" at ")[1].strip(), psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait(20)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="abcdefg")
    parser.add_argument(
        "--board", type=Path, default=ROOT / ".venv-training/bin/python", help="interpreter with llamafactory"
    )
    parser.add_argument("--tensorboard", type=Path, help="interpreter with tensorboard")
    parser.add_argument("--viewers", type=int, nargs="*", default=[1200, 1500])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/monitor.json")
    given = parser.parse_args()
    board = given.board if given.board.exists() else None
    found: Found = {"python": platform.python_version(), "cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d")}
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as temporary:
        parts: Mapping[str, Callable[[Path], object]] = {
            "a": lambda folder: measure_refresh(folder, board),
            "b": measure_bytes,
            "c": lambda folder: measure_paint(folder, given.tensorboard),
            "d": lambda folder: _viewers(folder, given.viewers),
            "e": measure_ingest,
            "f": measure_memory,
            "g": measure_list,
        }
        for part in given.parts:
            folder = Path(temporary) / part
            folder.mkdir()
            load = os.getloadavg()[0]
            found[part] = {"result": parts[part](folder), "load_before": load, "load_after": os.getloadavg()[0]}
            print(part, json.dumps(found[part]), flush=True)
    known = json.loads(given.out.read_text()) if given.out.exists() and given.parts != "abcdefg" else {}
    given.out.write_text(json.dumps(known | found, indent=1) + "\n")


def _viewers(folder: Path, counts: list[int]) -> object:
    api = open_api(folder)
    write_run(add_job(api, "bench").recorder, 8, 20_000)
    return measure_viewers(folder, 8, 20_000, counts, 10.0)


if __name__ == "__main__":
    main()
