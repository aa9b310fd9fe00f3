"""Runs under torchrun: ranks of uneven speed ask the Agreement at each step; each prints at which steps it was told what."""

import json
import os
import random
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

import torch.distributed as dist

from backend.inside.control import Agreement, RequestFiles

folder, steps, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
agreement = Agreement(RequestFiles(folder / "control"), rank=rank, world_size=world_size)
agreement.open()
dice, requests = random.Random(seed + rank), random.Random(seed)
asked = sorted(requests.sample(range(2, steps - 3), 3))
told = []
for step in range(1, steps + 1):
    time.sleep(dice.random() * 0.01)
    if rank == world_size - 1 and step in asked:  # someone writes a request at a time of their own
        (folder / "control").mkdir(exist_ok=True)
        (folder / "control" / "tmp").write_text(json.dumps({"at": step}))
        (folder / "control" / "tmp").rename(folder / "control" / "save.json")
    if what := agreement.exchange():
        told.append([step, what])
agreement.collect()
(folder / f"told-{rank}.json").write_text(json.dumps({"told": told, "asked": asked}))
dist.destroy_process_group()
