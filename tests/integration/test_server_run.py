"""The server as a process: its address line, open sockets at its end, a port that is taken."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import websockets

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
from pathlib import Path
from backend.services.views import Views
from backend.settings import Settings
from tests.job_folders import add_job, open_api
from ui.server import create_app, serve
api = open_api(Path(sys.argv[1]), port=int(sys.argv[2]))
if not api.list_jobs()[0]:
    add_job(api)
serve(create_app(api, Views(api), {}, api.settings), api.settings, say=lambda line: print(line, flush=True))
print("closed in order", flush=True)
"""


def start(folder: Path, port: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), str(port)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = start(tmp_path)
    assert process.stdout
    line = process.stdout.readline()
    assert line.startswith("Tunedeck is at http://127.0.0.1:"), line + (process.stderr.read() if process.stderr else "")
    yield process, line.split(" at ")[1].strip()
    if process.poll() is None:
        process.kill()
    process.wait()


def test_address_line_means_that_it_answers(server: tuple[subprocess.Popen[str], str]) -> None:
    answer = httpx.get(f"{server[1]}api/health", trust_env=False)
    assert answer.json()["ok"] is True and "server" not in answer.headers


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_server_ends_soon_and_tells_browsers_while_they_look(
    server: tuple[subprocess.Popen[str], str], number: signal.Signals
) -> None:
    process, address = server

    async def look() -> tuple[float, set[int | None]]:
        sockets = [
            await websockets.connect(f"ws{address[4:]}api/ws{query}", proxy=None)
            for query in ("", "?run=job-1")
            for _ in range(3)
        ]
        for opened in sockets:
            await opened.recv()
        began = time.monotonic()
        process.send_signal(number)
        await asyncio.gather(*(opened.wait_closed() for opened in sockets))
        await asyncio.to_thread(process.wait, 10)
        return time.monotonic() - began, {opened.close_code for opened in sockets}

    seconds, codes = asyncio.run(look())
    assert seconds < 5
    assert codes <= {1001, 1012}
    assert process.returncode in (0, -number)
    assert process.stderr and "Traceback" not in process.stderr.read()


def test_taken_port_is_one_clear_line(server: tuple[subprocess.Popen[str], str], tmp_path: Path) -> None:
    port = int(server[1].rsplit(":", 1)[1].strip("/"))
    second = start(tmp_path, port)
    _, errors = second.communicate(timeout=60)
    assert second.returncode != 0
    assert f"Cannot listen on 127.0.0.1:{port}" in errors
