"""A made-up run in, the recorder files it would leave out (docs/contracts.md). Used by tests and benchmarks."""

from __future__ import annotations

import json
from pathlib import Path


class RecorderFiles:
    """Writes `rank-R.jsonl` of one recorder folder; the clock is ours, seconds since 1,000,000."""

    def __init__(self, folder: Path, world_size: int = 1) -> None:
        self.folder, self.world_size, self.now = folder, world_size, 1_000_000.0
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, rank: int) -> Path:
        return self.folder / f"rank-{rank}.jsonl"

    def write(self, to: int, kind: str, at: float | None = None, **fields: object) -> None:
        with self.path(to).open("a") as file:
            file.write(
                json.dumps({"t": self.now if at is None else at, "k": kind, **fields}, separators=(",", ":")) + "\n"
            )

    def every(self, kind: str, **fields: object) -> None:
        for rank in range(self.world_size):
            self.write(rank, kind, **fields)

    def start(self, step: int = 0, max_steps: int = 100) -> None:
        for rank in range(self.world_size):
            self.write(rank, "phase", phase="importing")
            self.write(rank, "start", rank=rank, world_size=self.world_size, versions={"torch": "2.13"})
            self.write(rank, "phase", phase="loading")
        self.now += 5
        self.every(
            "train_begin",
            step=step,
            max_steps=max_steps,
            epochs=1.0,
            world_size=self.world_size,
            trainable_parameters=10,
        )
        self.every("phase", phase="training")

    def step(
        self, number: int, seconds: float = 0.5, tokens: int | None = 100, loss: float | str | None = None
    ) -> None:
        self.now += seconds
        for rank in range(self.world_size):
            self.step_of(rank, number, seconds + rank / 100, tokens)
        if loss is not None:
            self.log(number, loss=loss)

    def step_of(self, rank: int, number: int, seconds: float = 0.5, tokens: int | None = 100) -> None:
        padding = None if tokens is None else tokens // 4
        self.write(
            rank,
            "step",
            s=number,
            dt=seconds,
            data=0.01 * (rank + 1),
            tok=tokens,
            pad=padding,
            mem=None if rank == 1 else 10 + rank,
        )

    def log(self, number: int, epoch: float = 0.1, **values: object) -> None:
        self.write(0, "log", s=number, epoch=epoch, v=values)

    def checkpoint(self, number: int, seconds: float = 2.0, ranks: int | None = None) -> None:
        path = f"checkpoint-{number}"
        self.every("save_begin", s=number, path=path)
        self.now += seconds
        for rank in range(self.world_size if ranks is None else ranks):
            self.write(rank, "checkpoint", s=number, path=path)

    def evaluation(self, number: int, seconds: float = 3.0, **values: object) -> None:
        self.every("phase", phase="evaluating")
        self.every("eval_begin", s=number)
        self.now += seconds
        self.log(number, **values)
        self.every("eval_end", s=number)
        self.every("phase", phase="training")

    def finish(self, step: int, max_steps: int = 100, stopped: bool = False) -> None:
        self.every("train_end", s=step, max_steps=max_steps, stopped=stopped)
        self.every("phase", phase="finishing")
        self.every("done", ok=True)
