"""Runs a script of tests/inside in the training environment: JSON objects in, JSON objects out, one a line."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-training" / "bin" / "python"


def run_inside(script: str, cases: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
    """Answers in the order of `cases`; raises AssertionError with the end of stderr when the script dies."""
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    run = subprocess.run(
        [PYTHON, ROOT / "tests" / "inside" / script],
        input=lines,
        capture_output=True,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
