"""The doctor on this very machine, and the probe of a training environment."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from backend.services.doctor import examine_host, probe_stack
from backend.settings import REPOSITORY

TRAINING = REPOSITORY / ".venv-training" / "bin" / "python"


def test_report_is_json_and_every_line_has_advice_and_source(tmp_path: Path) -> None:
    report = json.loads(json.dumps(examine_host({"data": tmp_path}).to_json()))
    codes = {check["code"] for check in report["checks"]}
    assert {"gpu_source", "shm", "memlock", "open_files", "disk_data"} <= codes
    assert all(check["advice"] and check["source"] and check["found"] for check in report["checks"])
    assert report["status"] in ("ok", "note", "warning", "error")


def test_environment_without_torch_says_so() -> None:
    stack = probe_stack(Path(sys.executable))
    assert "import torch fails" in stack.fault
    assert stack.parts["flash_attn"] == "not installed"
    assert "/no/python" in probe_stack(Path("/no/python")).fault


@pytest.mark.training
@pytest.mark.skipif(not TRAINING.exists(), reason="no training environment")
def test_training_environment_answers() -> None:
    stack = probe_stack(TRAINING)
    assert stack.fault == ""
    assert stack.torch_version and stack.built_for in ("cpu", "cuda", "rocm")
    assert set(stack.parts) == {"bitsandbytes", "flash_attn", "deepspeed", "compiler", "liger_kernel"}
