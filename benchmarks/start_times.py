"""How long people wait: dashboard start, submit to first process, a keystroke's lint, the trainer's own check.

    .venv/bin/python -m benchmarks.start_times [--rounds 5] [--json]

Each wait beside a peer that is measured in this run, in turns: a one-line Gradio page, and a bare torchrun of an empty script.
Needs both environments; GPUs are not touched. Everything runs in a folder of its own that is removed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx

from backend.adapters.process import find_marked, kill_all
from backend.domain.job import StopMode
from backend.planning.spec import apply_changes
from backend.services.api import Api
from backend.services.dry_run import DryRunState
from backend.services.form import FormService, edit_text
from backend.services.presets import load_preset
from backend.settings import REPOSITORY, Settings, load_settings

HELLO = "import sys, gradio as gr; gr.Interface(lambda x: x, 'text', 'text').launch(server_port=int(sys.argv[1]), quiet=True)"
EMPTY = "import os, time; os.write(1, f'T {time.time()}\\n'.encode())"
PATIENCE = 120.0


def until(condition: Callable[[], float | None], what: str) -> float:
    """Wait for `condition` to give a number. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if (found := condition()) is not None:
            return found
        time.sleep(0.01)
    raise TimeoutError(what)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def first_page(argv: list[str], port: int, env: dict[str, str]) -> float:
    """Seconds from the start of a server until its page has arrived whole."""

    def page() -> float | None:
        try:
            answer = httpx.get(f"http://127.0.0.1:{port}/", timeout=30)
        except httpx.TransportError:
            return None
        return time.monotonic() if answer.status_code == 200 and len(answer.content) > 1000 else None

    begun = time.monotonic()
    server = subprocess.Popen(argv, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return until(page, "the first page") - begun
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def dashboard_start(data: Path) -> float:
    port = free_port()
    argv = [sys.executable, str(REPOSITORY / "app.py"), "serve", "--port", str(port)]
    try:
        return first_page(argv, port, {"TUNEDECK_DATA": str(data)})
    finally:  # the worker that a dashboard starts outlives it
        Api(replace(load_settings(), data_dir=data), start_worker=lambda _: None).stop_worker()


def hello_start() -> float:
    port = free_port()
    return first_page([sys.executable, "-c", HELLO, str(port)], port, {"GRADIO_ANALYTICS_ENABLED": "False"})


def torchrun_start(python: Path, script: Path, ranks: int) -> float:
    """Seconds from the start of torchrun until the last rank runs the first line of an empty script."""
    begun = time.time()
    argv = [str(python), "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", str(script)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=True)
    times = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("T ")]
    return max(times) - begun


def submit_start(api: Api, text: str, ranks: int) -> tuple[float, float]:
    """Seconds from `submit` until torchrun's process exists, and until the last rank's first record."""
    begun = time.time()
    job = api.submit(text)
    paths = api.job_paths(job.id)

    def launcher() -> float | None:
        try:
            return time.time() if json.loads(paths.supervisor.read_text()).get("child_pid") else None
        except (OSError, ValueError):
            return None

    def last_rank() -> float | None:
        files = [paths.rank_records(rank) for rank in range(ranks)]
        lines = [file.read_bytes().partition(b"\n") for file in files if file.exists()]
        return (
            max(json.loads(line)["t"] for line, end, _ in lines)
            if len([1 for _, end, _ in lines if end]) == ranks
            else None
        )

    first = until(launcher, "torchrun's process") - begun
    ready = until(last_rank, "every rank's first record") - begun
    api.request_stop(job.id, StopMode.KILL)
    until(lambda: 0.0 if api.get_job(job.id).state.is_final else None, "the end of the job")
    return first, ready


@contextmanager
def worker(settings: Settings) -> Iterator[None]:
    """A worker process for the time being; the jobs' processes are gone at the end."""
    env = {**os.environ, "TUNEDECK_DATA": str(settings.data_dir)}
    process = subprocess.Popen([sys.executable, str(REPOSITORY / "app.py"), "worker"], env=env, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        for folder in (settings.data_dir / "jobs").glob("*"):
            kill_all(find_marked("TUNEDECK_SUPERVISES", folder.name))
            kill_all(find_marked("TUNEDECK_JOB_ID", folder.name))


def keystroke(api: Api, text: str, rounds: int) -> list[float]:
    """Seconds for what one changed character costs: edit of the document, all rules, host checks, plan."""
    service, spent = FormService(api), []
    for round_ in range(rounds):
        begun = time.perf_counter()
        edited = edit_text(text, {"lora_alpha": 16 + round_})
        service.preview(edited.text)
        spent.append(time.perf_counter() - begun)
    return spent


def lint_alone(api: Api, text: str, rounds: int) -> list[float]:
    """Seconds for all rules on a text that was not seen before."""
    spent = []
    for round_ in range(rounds):
        changed = apply_changes(text, {"lora_alpha": 16 + round_})
        begun = time.perf_counter()
        api.lint(changed)
        spent.append(time.perf_counter() - begun)
    return spent


def trainer_check(api: Api, text: str, rounds: int) -> list[float]:
    """Seconds until the trainer's own word on a text that it was not asked before."""
    spent = []
    for round_ in range(rounds):
        changed = apply_changes(text, {"seed": 1000 + round_})
        begun = time.perf_counter()
        answer = api.final_check(changed, wait=True)
        if answer.state is not DryRunState.DONE:
            raise RuntimeError(f"the trainer was not asked: {answer.state}")
        spent.append(time.perf_counter() - begun)
    return spent


def measure(folder: Path, rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    python = load_settings().training_python
    if python is None:
        raise SystemExit("no training environment: scripts/setup --training")
    settings = Settings(data_dir=folder / "data", training_python=python, min_free_disk_bytes=0)
    api = Api(settings, start_worker=lambda _: None)
    subprocess.run([str(python), str(REPOSITORY / "scripts" / "make_demo.py"), str(folder / "demo")], check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    text = load_preset("demo/cpu_sft_lora_zero3_2x", demo=folder / "demo")
    script = folder / "empty.py"
    script.write_text(EMPTY)
    api.environments.describe()

    def add(name: str, *values: float) -> None:
        found.setdefault(name, []).extend(values)

    for _ in range(rounds):
        add("page_ours", dashboard_start(folder / "other"))
        add("page_gradio", hello_start())
    with worker(settings):
        until(lambda: 0.0 if api.worker_status().alive else None, "the worker")
        for _ in range(rounds):
            first, ready = submit_start(api, text, 2)
            add("submit_first", first)
            add("submit_ranks", ready)
            add("torchrun_ranks", torchrun_start(python, script, 2))
    add("keystroke", *keystroke(api, text, 20 * rounds))
    add("lint", *lint_alone(api, text, 20 * rounds))
    add("trainer_check", *trainer_check(api, text, rounds))
    return found


ROWS = (
    ("dashboard: start to first whole page", "page_ours", "page_gradio", "a one-line Gradio page"),
    ("submit to torchrun's process", "submit_first", "", ""),
    (
        "submit to the first record of both ranks",
        "submit_ranks",
        "torchrun_ranks",
        "bare torchrun, an empty script on 2 ranks",
    ),
    ("a keystroke: edit, rules, host checks, plan", "keystroke", "", ""),
    ("all rules on a changed text", "lint", "", ""),
    ("the trainer's own check", "trainer_check", "", ""),
)


def table(found: dict[str, list[float]]) -> str:
    lines = ["| wait | median s | worst s | peer, median s | ratio |", "|---|---|---|---|---|"]
    for title, name, peer, words in ROWS:
        middle = statistics.median(found[name])
        other = statistics.median(found[peer]) if peer else None
        beside = "- | -" if other is None else f"{words}: {other:.3f} | {middle / other:.2f}"
        lines.append(f"| {title} | {middle:.3f} | {max(found[name]):.3f} | {beside} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tunedeck-start-") as folder:
        found = measure(Path(folder), options.rounds)
    print(json.dumps(found) if options.json else table(found))
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", file=sys.stderr)


if __name__ == "__main__":
    main()
