"""What integration and browser tests share: the training environment and the demo inputs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
TRAINING_PYTHON = Path(os.environ.get("TUNEDECK_TRAINING_PYTHON") or REPOSITORY / ".venv-training" / "bin" / "python")


@pytest.fixture(scope="session")
def demo_inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model and data, made by the training environment (or those of an earlier run, see scripts/test)."""
    folder = Path(os.environ.get("TUNEDECK_TEST_DEMO") or tmp_path_factory.mktemp("demo") / "demo")
    subprocess.run([str(TRAINING_PYTHON), str(REPOSITORY / "scripts" / "make_demo.py"), str(folder)], check=True)
    return folder
