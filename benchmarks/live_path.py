"""A made-up run in, what the live path costs out: first read, increments, list of runs, and viewers on one core.

    .venv/bin/python -m benchmarks.live_path [--steps 100000] [--ranks 8] [--viewers 200 600 1200] [--seconds 10]

Everything is measured in this run: the server is a process of its own, pinned to one core, and its CPU time is read from the
system; viewers are WebSocket clients in other processes that parse every message. Prints a table, and JSON with --json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import orjson
import psutil
import websockets

from backend.domain.job import JobState
from backend.services.cursor import parse_cursor
from backend.services.views import Views
from tests.job_folders import add_job, open_api
from ui.encoding import encode

ROOT = Path(__file__).resolve().parent.parent
SERVER = """
import sys
from pathlib import Path
from backend.services.views import Views
from tests.job_folders import open_api
from ui.server import create_app, serve
api = open_api(Path(sys.argv[1]), port=0)
serve(create_app(api, Views(api), {}, api.settings), api.settings, say=lambda line: print(line, flush=True))
"""


SETTLING_SECONDS = 4.0
"""What came while the others were still connecting is taken first, and not counted."""


def write_run(folder: Path, ranks: int, steps: int, first: int = 1) -> None:
    """Recorder files with a log record every tenth step."""
    for rank in range(ranks):
        with (folder / f"rank-{rank}.jsonl").open("ab") as file:
            if first == 1:
                file.write(orjson.dumps({"t": 1.0, "k": "start", "rank": rank, "world_size": ranks}) + b"\n")
                begin = {"t": 2.0, "k": "train_begin", "step": 0, "max_steps": steps * 2, "world_size": ranks}
                file.write(orjson.dumps(begin) + b"\n")
            for step in range(first, first + steps):
                at = 1_800_000_000.123 + step * 0.5123
                record = {"t": at, "k": "step", "s": step, "dt": 0.5123456789 + rank / 1000, "data": 0.00123456}
                file.write(orjson.dumps(record | {"mem": 81_234_567_890, "tok": 8123, "pad": 69}) + b"\n")
                if rank == 0 and step % 10 == 0:
                    values = {"loss": 1.2345678901 + step % 7 / 10, "grad_norm": 0.51234567, "learning_rate": 1e-5}
                    file.write(
                        orjson.dumps({"t": at, "k": "log", "s": step, "epoch": step / steps, "v": values}) + b"\n"
                    )


def measure_reading(folder: Path, ranks: int, steps: int) -> dict[str, float]:
    """Snapshot of a run never seen before, then increments of one step."""
    api = open_api(folder)
    paths = add_job(api, "bench")
    write_run(paths.recorder, ranks, steps)
    views = Views(api)
    began, began_cpu = time.perf_counter(), time.process_time()
    answer = views.series("bench")
    first, first_cpu = time.perf_counter() - began, time.process_time() - began_cpu
    size = len(encode(answer))
    began_cpu = time.process_time()
    encode(views.series("bench"))
    again = time.process_time() - began_cpu
    cursor, spent, sent = parse_cursor(answer.cursor), 0.0, 0
    for index in range(50):
        write_run(paths.recorder, ranks, 1, steps + 1 + index)
        began_cpu = time.process_time()
        update = views.update("bench", cursor)
        spent += time.process_time() - began_cpu
        cursor = update.cursor
        sent += len(encode(update.rows))
    return {
        "first_snapshot_s": first, "first_snapshot_cpu_s": first_cpu, "next_snapshot_cpu_ms": again * 1e3,
        "snapshot_bytes": size, "increment_cpu_ms": spent / 50 * 1e3, "increment_bytes": sent / 50,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip


def measure_list(folder: Path, jobs: int) -> dict[str, float]:
    api = open_api(folder)
    for index in range(jobs):
        add_job(api, f"list-{index}", JobState.SUCCEEDED, ended_at=1e6 + index, model=f"/models/m{index % 17}")
    views = Views(api)
    began = time.perf_counter()
    views.runs("", (), 50, 0)
    page = time.perf_counter() - began
    began = time.perf_counter()
    total, _ = views.runs("m13", (), 50, 0)
    assert total > jobs / 20
    return {"list_page_ms": page * 1e3, "list_search_ms": (time.perf_counter() - began) * 1e3}


async def watch(address: str, count: int, seconds: float) -> tuple[int, int]:
    """`count` viewers of the run for `seconds`: messages and bytes received by all of them."""
    url = f"ws{address[4:]}api/ws?run=bench"
    sockets = [await websockets.connect(url, proxy=None, compression=None, max_queue=4) for _ in range(count)]
    messages = received = 0

    async def read(opened: websockets.ClientConnection) -> None:
        nonlocal messages, received
        async for text in opened:
            orjson.loads(text)
            messages, received = messages + 1, received + len(text)

    tasks = [asyncio.create_task(read(opened)) for opened in sockets]
    await asyncio.sleep(SETTLING_SECONDS)
    messages = received = 0
    print("ready", flush=True)
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    return messages, received


def measure_viewers(folder: Path, ranks: int, steps: int, counts: list[int], seconds: float) -> list[dict[str, float]]:
    """The server on core 0, viewers on the others."""
    cores = sorted(os.sched_getaffinity(0))
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    os.sched_setaffinity(server.pid, {cores[0]})
    os.sched_setaffinity(0, set(cores[1:]) or set(cores))
    try:
        assert server.stdout
        address = server.stdout.readline().split(" at ")[1].strip()
        recorder = open_api(folder).paths.job("bench").recorder
        httpx.get(f"{address}api/runs/bench/series", trust_env=False, timeout=60)
        found, step = [], steps + 51
        for count in counts:
            made, step = _one_load(address, server.pid, recorder, ranks, step, count, seconds)
            found.append(made)
        return found
    finally:
        server.terminate()
        server.wait(10)


def cpu_seconds(process: psutil.Process) -> float:
    """Of all threads, by the scheduler's own clock where the system has one: ticks of 10 ms miss short bursts."""
    try:
        tasks = Path(f"/proc/{process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except (FileNotFoundError, ProcessLookupError):
        return sum(process.cpu_times()[:2])


def _one_load(
    address: str, pid: int, recorder: Path, ranks: int, step: int, count: int, seconds: float
) -> tuple[dict[str, float], int]:
    load = ["--watch", address, "--viewers", str(count), "--seconds", str(seconds)]
    viewers = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.live_path", *load],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert viewers.stdout and viewers.stdout.readline().strip() == "ready"
    process = psutil.Process(pid)
    slowest, asked = 0.0, 0
    before, began = cpu_seconds(process), time.perf_counter()
    while time.perf_counter() - began < seconds:
        write_run(recorder, ranks, 2, step)
        step += 2
        asked_at = time.perf_counter()
        httpx.get(f"{address}api/health", trust_env=False)
        slowest, asked = max(slowest, time.perf_counter() - asked_at), asked + 1
        time.sleep(max(0.0, began + asked - time.perf_counter()))
    elapsed = time.perf_counter() - began
    cpu = cpu_seconds(process) - before
    messages, received = map(int, viewers.communicate()[0].split())
    return {
        "viewers": count, "server_cpu_percent": 100 * cpu / elapsed,
        "cpu_ms_per_message": 1e3 * cpu * seconds / elapsed / max(1, messages),
        "messages_per_viewer_second": messages / count / seconds, "bytes_per_message": received / max(1, messages),
        "slowest_other_request_ms": slowest * 1e3, "server_memory_mb": process.memory_info().rss / 2**20,
    }, step  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--viewers", type=int, nargs="*", default=[200, 600, 1200])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--watch", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.watch:
        print(*asyncio.run(watch(given.watch, given.viewers[0], given.seconds)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        found: dict[str, object] = {
            "steps": given.steps,
            "ranks": given.ranks,
            **measure_reading(folder, given.ranks, given.steps),
        }
        found["loads"] = measure_viewers(folder, given.ranks, given.steps, given.viewers, given.seconds)
        found |= {"jobs": given.jobs, **measure_list(folder, given.jobs)} if given.jobs else {}
    print(json.dumps(found) if given.json else "\n".join(f"{name:>28}  {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
