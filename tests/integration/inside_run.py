"""Start a training as a launch plan does, without dashboard, worker and supervisor, and read what its recorder wrote."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.conftest import REPOSITORY, TRAINING_PYTHON

INSIDE = REPOSITORY / "backend" / "inside"
ZERO: Mapping[int, Mapping[str, Any]] = {
    stage: {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": "auto"},
        "zero_optimization": {"stage": stage, "overlap_comm": False},
    }
    for stage in (2, 3)
}


@dataclass
class Run:
    """One training. `folder` is its job folder."""

    folder: Path
    processes: int
    launcher: subprocess.Popen[bytes]

    @property
    def console(self) -> str:
        return (self.folder / "console.log").read_text(errors="replace")

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def records(self, rank: int, kind: str = "") -> list[dict[str, Any]]:
        path = self.folder / "recorder" / f"rank-{rank}.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [record for record in found if not kind or record["k"] == kind]

    def steps(self, rank: int) -> list[int]:
        return [int(record["s"]) for record in self.records(rank, "step")]

    def until(self, condition: Callable[[], object], seconds: float = 400.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if self.launcher.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"ended or late: {self.console[-3000:]}")
            time.sleep(0.02)

    def wait(self, seconds: float = 400.0) -> int:
        try:
            return self.launcher.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """The ranks die with their launcher."""
        self.launcher.kill()
        self.launcher.wait()

    def ask(self, name: str, **content: object) -> None:
        """A request as the worker writes it: under another name first."""
        folder = self.folder / "control"
        folder.mkdir(exist_ok=True)
        (folder / f".{name}").write_text(json.dumps({"at": time.time()} | content))
        (folder / f".{name}").rename(folder / f"{name}.json")


def arguments(demo: Path, folder: Path, **changes: object) -> dict[str, object]:
    """A tiny LoRA fine-tune on the demo data."""
    usual: dict[str, object] = {
        "model_name_or_path": str(demo / "model"),
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "lora",
        "lora_target": "all",
        "dataset": "demo",
        "dataset_dir": str(demo / "data"),
        "template": "chatml",
        "cutoff_len": 256,
        "output_dir": str(folder / "output"),
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "learning_rate": 1e-3,
        "logging_steps": 4,
        "save_strategy": "no",
        "disable_shuffling": True,
        "report_to": "none",
    }
    return {name: value for name, value in (usual | changes).items() if value is not None}


def start(folder: Path, settings: Mapping[str, object], *, processes: int = 1, zero: int | None = None) -> Run:
    """torchrun with our entry file, output to console.log."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = dict(settings)
    if zero is not None:
        (folder / "ds_config.json").write_text(json.dumps(ZERO[zero]))
        settings["deepspeed"] = str(folder / "ds_config.json")
    (folder / "train.yaml").write_text(json.dumps(settings))  # JSON is YAML
    argv = [str(TRAINING_PYTHON), "-m", "torch.distributed.run", "--nproc_per_node", str(processes)]
    argv += ["--master_port", str(free_port()), str(INSIDE / "train.py"), str(folder / "train.yaml")]
    environment = os.environ | {"TUNEDECK_JOB_DIR": str(folder), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with (folder / "console.log").open("ab") as log:
        launcher = subprocess.Popen(argv, env=environment, stdout=log, stderr=log, start_new_session=True)
    return Run(folder=folder, processes=processes, launcher=launcher)


def inside(script: Path, *options: str, seconds: float = 240.0, codes: tuple[int, ...] = (0,)) -> str:
    """Output of a script run by the training environment's interpreter; `codes` are the exit codes that are no failure."""
    done = subprocess.run(
        [str(TRAINING_PYTHON), str(script), *options], capture_output=True, text=True, timeout=seconds, cwd="/"
    )
    assert done.returncode in codes, done.stderr[-3000:]
    return done.stdout


def marked(output: str, mark: str) -> list[dict[str, Any]]:
    """The JSON objects that stand behind a mark in a script's output."""
    return [json.loads(line.removeprefix(mark)) for line in output.splitlines() if line.startswith(mark)]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
