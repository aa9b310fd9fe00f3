"""What the recorder costs per training step: real trainings in, a table and JSON out (benchmarks/results/recorder_cost.md).

    .venv/bin/python benchmarks/recorder_cost.py [--demo FOLDER] [--processes 1,2] [--steps N] [--train YAML] [--keep FILE]

Two measures of one and the same run. Direct: the seconds spent inside the recorder's own functions (events, hook on the
model, broadcast of requests). Alternating: blocks of steps with and without the recorder in turn, and the difference of
their mean step times; it also sees what the recorder makes others wait for. Target: below 2.5 ms a step, 0.5 % of a GPU
step of 0.5 s.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
TARGET_MS = 2.5
BLOCK = 10
WARM_UP = 2 * BLOCK


def main() -> None:
    """Run all trainings and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--python", default=str(REPOSITORY / ".venv-training" / "bin" / "python"))
    options.add_argument("--demo", default=str(REPOSITORY / "tunedeck-data" / "demo"))
    options.add_argument("--processes", default="1,2")
    options.add_argument("--steps", type=int, default=220)
    options.add_argument(
        "--train", help="a train YAML of your own instead of the demo (a GPU run); deepspeed: named there"
    )
    options.add_argument("--keep", help="write the table to this file")
    given = options.parse_args()
    rows = [micro(given.python)]
    for processes in map(int, given.processes.split(",")):
        rows += measure(given.python, Path(given.demo), processes, given.steps, given.train)
    table = as_table(rows)
    print(table)
    print(json.dumps(rows))
    if given.keep:
        head = (
            f"# Cost of the recorder per step\n\n`benchmarks/recorder_cost.py`, {time.strftime('%Y-%m-%d')}, {host()}."
        )
        about = __doc__.split("\n\n", 2)[2].strip()
        Path(given.keep).write_text(f"{head}\n\n{table}\n\n{about}\n")


def host() -> str:
    """The machine in a few words."""
    return f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def as_table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown."""
    head = "| run | step ms | direct ms (mean, p95) | share | alternating ms (difference ± standard error) | below 2.5 ms |"
    lines = [head, "|---|---|---|---|---|---|"]
    for row in rows:
        step = f"{row['step_ms']:.1f}" if row["step_ms"] else "-"
        share = f"{row['direct_ms'] / row['step_ms']:.2%}" if row["step_ms"] else "-"
        pair = f"{row['difference_ms']:+.2f} ± {row['error_ms']:.2f}" if row["difference_ms"] is not None else "-"
        good = "yes" if row["direct_ms"] < TARGET_MS else "NO"
        lines.append(
            f"| {row['run']} | {step} | {row['direct_ms']:.3f}, {row['direct_p95_ms']:.3f} | {share} | {pair} | {good} |"
        )
    return "\n".join(lines)


def measure(python: str, demo: Path, processes: int, steps: int, train: str | None) -> list[dict[str, Any]]:
    """One training with `processes` ranks; a row for each rank."""
    with tempfile.TemporaryDirectory(prefix="tunedeck-bench-") as name:
        folder = Path(name)
        path = Path(train) if train else demo_yaml(folder, demo, processes, steps)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        argv = [python, "-m", "torch.distributed.run", "--nproc_per_node", str(processes), "--master_port", str(port)]
        argv += [str(Path(__file__).resolve()), "inside", str(path)]
        environment = os.environ | {"TUNEDECK_JOB_DIR": str(folder), "HF_HUB_OFFLINE": "1"}
        with (folder / "console.log").open("wb") as log:
            code = subprocess.run(argv, env=environment, stdout=log, stderr=log).returncode
        if code:
            raise SystemExit((folder / "console.log").read_text(errors="replace")[-4000:])
        label = Path(train).stem if train else ("LoRA, ZeRO-2" if processes > 1 else "LoRA, bf16")
        found = [json.loads((folder / f"cost-{rank}.json").read_text()) for rank in range(processes)]
    return [row | {"run": f"{label}, rank {rank} of {processes} ({row['device']})"} for rank, row in enumerate(found)]


def demo_yaml(folder: Path, demo: Path, processes: int, steps: int) -> Path:
    """The tiny demo model: steps of some ten milliseconds, the worst case for a share."""
    settings: dict[str, Any] = {
        **{"model_name_or_path": str(demo / "model"), "stage": "sft", "do_train": True, "finetuning_type": "lora"},
        **{"dataset": "demo", "dataset_dir": str(demo / "data"), "template": "chatml", "cutoff_len": 256},
        **{"output_dir": str(folder / "output"), "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
        **{"max_steps": steps, "logging_steps": 10, "save_strategy": "no", "report_to": "none"},
    }
    if processes == 1:
        settings |= {"bf16": True, "use_cpu": True}
    else:
        auto = (
            "train_batch_size",
            "train_micro_batch_size_per_gpu",
            "gradient_accumulation_steps",
            "gradient_clipping",
        )
        zero: dict[str, Any] = {"zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": True}
        (folder / "ds_config.json").write_text(json.dumps(zero | dict.fromkeys(auto, "auto")))
        settings["deepspeed"] = str(folder / "ds_config.json")
    (folder / "train.yaml").write_text(json.dumps(settings))
    return folder / "train.yaml"


# -- in the training environment ------------------------------------------------------------------------------------------


class Meter:
    """Seconds inside the recorder and between step ends, by step, and whether the recorder was on."""

    def __init__(self) -> None:
        self.inside = 0.0
        self.depth = 0
        self.on = True
        self.rows: list[tuple[bool, float, float]] = []
        self.ended = time.perf_counter()

    def timed(self, function: Callable[..., Any], *, always: bool) -> Callable[..., Any]:
        """The function, its time counted once however it nests; skipped while the recorder is off unless `always`."""

        @wraps(function)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            if not self.on and not always:
                return None
            begun = time.perf_counter()
            self.depth += 1
            try:
                return function(*arguments, **named)
            finally:
                self.depth -= 1
                if self.depth == 0:
                    self.inside += time.perf_counter() - begun

        return wrapper

    def step_over(self, step: int) -> None:
        """After all callbacks of a step's end."""
        now = time.perf_counter()
        self.rows.append((self.on, now - self.ended, self.inside))
        self.ended, self.inside = now, 0.0
        self.on = (step // BLOCK) % 2 == 0

    def result(self) -> dict[str, Any]:
        """Milliseconds; the first steps and the first of each block are left out."""
        kept = [row for number, row in enumerate(self.rows) if number >= WARM_UP and number % BLOCK]
        on, off = ([row[1] for row in kept if row[0] is state] for state in (True, False))
        cost = sorted(row[2] for row in kept if row[0])
        error = (statistics.variance(on) / len(on) + statistics.variance(off) / len(off)) ** 0.5
        return {
            "step_ms": 1e3 * statistics.mean(on),
            "direct_ms": 1e3 * statistics.mean(cost),
            "direct_p95_ms": 1e3 * cost[int(len(cost) * 0.95)],
            "difference_ms": 1e3 * (statistics.mean(on) - statistics.mean(off)),
            "error_ms": 1e3 * error,
            "steps": len(kept),
        }


def run_inside(path: str) -> None:
    """One rank: LLaMA-Factory with a recorder that is switched on and off in turn."""
    sys.path.append(str(REPOSITORY))
    import torch
    from llamafactory.train.tuner import run_exp
    from omegaconf import OmegaConf
    from transformers import TrainerCallback

    from backend.inside import recorder as module
    from backend.inside import train as entry
    from backend.inside.tokens import TokenCounter

    meter = Meter()
    TokenCounter._before_forward = meter.timed(TokenCounter._before_forward, always=False)  # type: ignore[method-assign]
    folder = Path(os.environ["TUNEDECK_JOB_DIR"])
    recorder = entry.build_recorder(folder, os.environ)
    if torch.cuda.is_available():
        recorder.peak_memory = module.peak_memory(reset=True)
    entry.time_batches(recorder)
    callback = type("RecorderCallback", (TrainerCallback,), {})()
    for event in (name for name in dir(recorder) if name.startswith("on_")):
        always = event in {"on_train_begin", "on_train_end"}
        setattr(callback, event, meter.timed(getattr(recorder, event), always=always))
    last = type(
        "Last",
        (TrainerCallback,),
        {"on_step_end": lambda _self, _args, state, *_, **__: meter.step_over(state.global_step)},
    )
    run_exp(args=OmegaConf.to_container(OmegaConf.load(path)), callbacks=[callback, last()])
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    (folder / f"cost-{os.environ['RANK']}.json").write_text(json.dumps(meter.result() | {"device": device}))


def micro(python: str) -> dict[str, Any]:
    """The events of 20,000 steps without a trainer: what the bookkeeping and the writing itself cost."""
    done = subprocess.run([python, str(Path(__file__).resolve()), "micro"], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_micro() -> None:
    """Time each step's events; prints one JSON line."""
    sys.path.append(str(REPOSITORY))
    from types import SimpleNamespace

    from backend.inside.recorder import Recorder

    arguments = SimpleNamespace(per_device_train_batch_size=1, gradient_accumulation_steps=1)
    state = SimpleNamespace(global_step=0, max_steps=20_000, num_train_epochs=1, epoch=0.0)
    control = SimpleNamespace(should_save=False, should_evaluate=False, should_log=False, should_training_stop=False)
    times = []
    with tempfile.TemporaryDirectory(prefix="tunedeck-bench-") as name:
        recorder = Recorder(Path(name))
        recorder.on_train_begin(arguments, state, control)
        for step in range(1, 20_001):
            state.global_step = step
            begun = time.perf_counter()
            recorder.on_step_begin(arguments, state, control)
            recorder.on_step_end(arguments, state, control)
            times.append(time.perf_counter() - begun)
    times.sort()
    row = {
        "run": "events alone, no trainer",
        "step_ms": None,
        "difference_ms": None,
        "error_ms": None,
        "steps": len(times),
    }
    row |= {"direct_ms": 1e3 * statistics.mean(times), "direct_p95_ms": 1e3 * times[int(len(times) * 0.95)]}
    print(json.dumps(row))


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        run_inside(sys.argv[2])
    elif sys.argv[1:2] == ["micro"]:
        run_micro()
    else:
        main()
