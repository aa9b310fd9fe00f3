"""A stand-in for `python -m torch.distributed.run ... train.py train.yaml`: the same process tree, sessions, files and signals.

Launcher -> ranks in sessions of their own, as torchrun's are. Ranks write the recorder's files (docs/contracts.md), stop
together on request, save checkpoints. How it behaves stands in the variable STAND_IN: JSON {steps, seconds, save_steps,
fail_rank, fail_at, error (its text), deaf (ignores SIGTERM), tokenizing (seconds before the first step)}. Also answers
`describe.py`.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml


def main(argv: list[str]) -> int:
    if argv and argv[0].endswith("describe.py"):
        versions = {"torch": "0.stand-in", "transformers": "0.stand-in", "llamafactory": "0.stand-in"}
        print("TUNEDECK_DESCRIPTION " + json.dumps({"accelerator": "cpu", "versions": versions, "devices": []}))
        return 0
    if argv and argv[0].endswith("dry_run.py"):
        print("TUNEDECK_DRY_RUN " + json.dumps(check(Path(argv[-1]))))
        return 0
    if argv[0] == "rank":
        return Rank(Path(argv[1]), int(argv[2]), int(argv[3])).run()
    processes = int(argv[argv.index("--nproc_per_node") + 1])
    return launch(Path(next(part for part in argv if part.endswith("train.yaml"))), processes)


def check(config: Path) -> dict[str, Any]:
    """A dry run's answer: `run_name: refuse` is refused, everything else is accepted."""
    refused = yaml.safe_load(config.read_text()).get("run_name") == "refuse"
    errors = [{"stage": "parse", "type": "ValueError", "message": "The stand-in refuses this.", "argument": "run_name"}]
    time.sleep(2.5)  # long enough to be asked for more than once
    tokens = {"mean": 50.0, "p50": 48, "p95": 80, "max": 90}
    facts = {"datasets": {"demo": {"sampled": 20, "valid": 20, "over_cutoff": 3, "rows": 120, "tokens": tokens}}}
    return {
        "file": str(config),
        "ok": not refused,
        "errors": errors * refused,
        "warnings": [],
        "facts": facts,
        "seconds": 0.1,
    }


def launch(config: Path, processes: int) -> int:
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, "rank", str(config), str(rank), str(processes)], start_new_session=True
        )
        for rank in range(processes)
    ]

    def forward(number: int, frame: object) -> None:
        for rank in ranks:
            rank.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 30  # torchrun's own patience
        for rank in ranks:
            try:
                rank.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                rank.kill()
        os._exit(1)

    signal.signal(signal.SIGTERM, forward)
    while True:
        codes = [rank.poll() for rank in ranks]
        failed = [(number, code) for number, code in enumerate(codes) if code not in (None, 0)]
        if failed:
            number, code = failed[0]
            for rank in ranks:
                rank.terminate()
            for rank in ranks:
                rank.wait()
            print(
                f"  rank      : {number} (local_rank: {number})\n  exitcode  : {code} (pid: {ranks[number].pid})",
                flush=True,
            )
            return 1
        if all(code == 0 for code in codes):
            return 0
        time.sleep(0.02)


class Rank:
    def __init__(self, config: Path, rank: int, world_size: int) -> None:
        self.job_dir = Path(os.environ["TUNEDECK_JOB_DIR"])
        self.rank, self.world_size = rank, world_size
        train = yaml.safe_load(config.read_text())
        self.options: dict[str, Any] = {
            "steps": 20,
            "seconds": 0.05,
            "save_steps": 0,
            **json.loads(os.environ.get("STAND_IN") or "{}"),
        }
        self.output = Path(train["output_dir"])
        resumed = train.get("resume_from_checkpoint")
        self.step = int(str(resumed).rpartition("-")[2]) if resumed else 0
        self.file = (self.job_dir / "recorder" / f"rank-{rank}.jsonl").open("ab", buffering=0)
        self.barrier = self.job_dir / "barrier"

    def write(self, kind: str, **values: object) -> None:
        self.file.write(json.dumps({"t": time.time(), "k": kind, **values}).encode() + b"\n")

    def run(self) -> int:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == 1:
            return 1
        if self.options.get("deaf"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.write("phase", phase="tokenizing")
        self.write(
            "start",
            rank=self.rank,
            local_rank=self.rank,
            world_size=self.world_size,
            pid=os.getpid(),
            device="cpu",
            versions={},
        )
        time.sleep(float(self.options.get("tokenizing", 0)))
        self.write("phase", phase="training")
        self.write("train_begin", step=self.step, max_steps=self.options["steps"], world_size=self.world_size)
        stopped = self.train()
        self.write("train_end", s=self.step, max_steps=self.options["steps"], stopped=stopped)
        self.write("done", ok=True)
        return 0

    def train(self) -> bool:
        while self.step < self.options["steps"]:
            time.sleep(self.options["seconds"])
            self.step += 1
            self.write("step", s=self.step, dt=self.options["seconds"], data=0.0, tok=100, pad=10, mem=None)
            print(f"step {self.step} rank {self.rank}", flush=True)
            if self.options.get("fail_rank") == self.rank and self.step == self.options.get("fail_at"):
                error = str(self.options.get("error") or "RuntimeError: made to fail")
                self.write("done", ok=False, error=error)
                raise SystemExit(error)
            if self.rank == 0:
                self.write("log", s=self.step, epoch=self.step / 10, v={"loss": 2.0 / self.step, "learning_rate": 1e-4})
            if self.agree():
                self.save()
                return self.step < self.options["steps"]
            if self.options["save_steps"] and self.step % self.options["save_steps"] == 0:
                self.save()
        return False

    def agree(self) -> bool:
        """Rank 0 decides, all follow at the same step: a file per step stands for the broadcast."""
        path = self.barrier / str(self.step)
        if self.rank == 0:
            self.barrier.mkdir(exist_ok=True)
            stop = self.job_dir / "control" / "stop.json"
            wanted = stop.exists() and json.loads(stop.read_text())["mode"] == "save"
            path.with_suffix(".new").write_text("1" if wanted else "0")
            path.with_suffix(".new").rename(path)
        while not path.exists():
            time.sleep(0.002)
        return path.read_text() == "1"

    def save(self) -> None:
        folder = self.output / f"checkpoint-{self.step}"
        folder.mkdir(parents=True, exist_ok=True)
        self.write("save_begin", s=self.step, path=folder.name)
        (folder / f"rng_state_{self.rank}.pth").write_bytes(b"r" * 100)
        if self.rank == 0:
            (folder / "adapter_model.safetensors").write_bytes(b"a" * 1000)
            (folder / "trainer_state.json").write_text(json.dumps({"global_step": self.step}))
        self.write("checkpoint", s=self.step, path=folder.name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
