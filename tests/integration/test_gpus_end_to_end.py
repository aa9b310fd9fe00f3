"""A real worker process on a fake ROCm: its sampler's readings reach the command line, through the database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from backend.settings import REPOSITORY

FAKE_ROCM = REPOSITORY / "tests" / "data" / "telemetry" / "fake_rocm"


def _ask(environment: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, "app.py", "gpus", "--json"]
    result = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_worker_samples_a_fake_host_and_the_command_line_shows_it(tmp_path: Path) -> None:
    environment = {**os.environ, "TUNEDECK_DATA": str(tmp_path), "ROCM_PATH": str(FAKE_ROCM)}
    assert _ask(environment)["source"]["reason"] == "No worker has sampled this host yet."
    worker = subprocess.Popen([sys.executable, "app.py", "worker"], cwd=REPOSITORY, env=environment)
    try:
        deadline = time.monotonic() + 90
        answer = _ask(environment)
        while time.monotonic() < deadline and not any(
            (gpu["reading"] or {}).get("energy_joules") for gpu in answer["gpus"]
        ):
            time.sleep(1)
            answer = _ask(environment)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(30)
    assert answer["source"]["label"] == "amdsmi 26.2.1, ROCm 7.2.1, amdgpu 6.16.13"
    gpus = {gpu["id"]: gpu for gpu in answer["gpus"]}
    assert set(gpus) == {"0000:1b:00.0", "0000:3d:00.0"}
    gpu = gpus["0000:1b:00.0"]
    assert (gpu["reading"]["hotspot_celsius"], gpu["gaps"]["edge_celsius"]) == (71, "not_on_part")
    if not Path("/dev/dri").exists():  # no card in this machine: shown, without a HIP index, and never leased
        assert (gpu["accessible"], gpu["hip_id"]) == (False, None)
