"""`bench.py [--out FILE] [--seconds 25]`: what this host's accelerators do, as one JSON object, in under half a minute.

Alone: matrix products (bf16, random data: zeros run faster and lie), memory copy and the cost of a launch, for each visible
device. Under torchrun: also the all-reduce between the ranks (RCCL or NCCL, gloo on CPU), and that its sums are right.
Keys of the answer: docs/speed.md, "Host check".
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MIB = 1 << 20
GPU_EDGE, CPU_EDGE = 8192, 1024
GPU_COPY, CPU_COPY = 2048 * MIB, 128 * MIB
GPU_SIZES = (8, 64 * 1024, MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB)
CPU_SIZES = (8, 64 * 1024, MIB, 16 * MIB)


def main(arguments: list[str]) -> int:
    """Measure, and print the answer on rank 0."""
    parser = argparse.ArgumentParser(prog="bench.py")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=25.0)
    options = parser.parse_args(arguments)
    import torch

    started = time.monotonic()
    _progress.file = options.out.with_name("bench.progress.json") if options.out else None
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    answer: dict[str, object] = {
        "torch": torch.__version__,
        "hip": torch.version.hip,
        "host": platform.node(),
        "world": world,
    }
    own = [measure_device(index) for index in _own_devices(world, on_gpu)]
    if world > 1:
        answer |= measure_ranks(own, on_gpu=on_gpu, seconds=options.seconds - (time.monotonic() - started))
    else:
        answer["devices"] = own
        answer |= rccl_tests(len(own), options.seconds - (time.monotonic() - started)) if on_gpu else {}
    answer["seconds"] = round(time.monotonic() - started, 2)
    if rank == 0:
        text = json.dumps(answer)
        print(text, flush=True)
        if options.out:
            options.out.write_text(text + "\n", "utf-8")
    return 0


class _Progress:
    """What rank 0 measures at the moment, for whoever waits: `{"part", "device", "bytes"}` in a file beside the answer."""

    file: Path | None = None

    def tell(self, part: str, **more: object) -> None:
        if self.file is None or os.environ.get("RANK", "0") != "0":
            return
        half = self.file.with_suffix(".tmp")
        half.write_text(json.dumps({"part": part, **more}), "utf-8")
        half.replace(self.file)


_progress = _Progress()


def _own_devices(world: int, on_gpu: bool) -> list[int | None]:
    """One device a rank under torchrun, all visible ones alone, None for the CPU."""
    import torch

    if not on_gpu:
        return [None]
    return [torch.cuda.current_device()] if world > 1 else list(range(torch.cuda.device_count()))


def measure_device(index: int | None) -> dict[str, object]:
    """Figures of one device; `index` None is the CPU. FLOP and bytes per second, seconds, bytes."""
    import torch

    device = torch.device("cpu") if index is None else torch.device("cuda", index)
    edge, copied = (CPU_EDGE, CPU_COPY) if index is None else (GPU_EDGE, GPU_COPY)
    found = _identity(index)
    name = found["device"]
    _progress.tell("matrix", device=name)
    found["matmul_flops"] = 2 * edge**3 / _matmul_seconds(device, edge)
    _progress.tell("memory", device=name)
    found["memory_bytes_per_second"] = 2 * copied / _copy_seconds(device, copied)
    _progress.tell("launch", device=name)
    found["launch_seconds"] = _launch_seconds(device)
    return found


def _identity(index: int | None) -> dict[str, object]:
    import torch

    if index is None:
        return {"name": platform.processor() or platform.machine(), "device": "cpu", "threads": torch.get_num_threads()}
    found = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    return {
        "name": found.name,
        "device": f"cuda:{index}",
        "gfx": getattr(found, "gcnArchName", ""),
        "compute_units": found.multi_processor_count,
        "total_bytes": total,
        "free_bytes": free,
    }


def _timed(device: Any, work: Callable[[], object], repeats: int, rounds: int = 3) -> float:
    """Seconds of one call: the best mean of `rounds`, after a warm-up. Device clocks on a GPU."""
    import torch

    for _ in range(3):
        work()
    means = []
    for _ in range(rounds):
        if device.type == "cuda":
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize(device)
            begin.record()
            for _ in range(repeats):
                work()
            end.record()
            torch.cuda.synchronize(device)
            means.append(float(begin.elapsed_time(end)) / 1000 / repeats)
        else:
            began = time.perf_counter()
            for _ in range(repeats):
                work()
            means.append((time.perf_counter() - began) / repeats)
    return min(means)


def _matmul_seconds(device: Any, edge: int) -> float:
    import torch

    with torch.cuda.device(device) if device.type == "cuda" else _nothing():
        kind = torch.bfloat16 if device.type == "cuda" else torch.float32
        left, right = (torch.randn(edge, edge, device=device, dtype=kind) for _ in range(2))
        out = torch.empty_like(left)
        return _timed(device, lambda: torch.mm(left, right, out=out), 20 if device.type == "cuda" else 5)


def _copy_seconds(device: Any, size: int) -> float:
    import torch

    with torch.cuda.device(device) if device.type == "cuda" else _nothing():
        source = torch.ones(size // 4, device=device, dtype=torch.float32)
        target = torch.empty_like(source)
        return _timed(device, lambda: target.copy_(source), 10 if device.type == "cuda" else 3)


def _launch_seconds(device: Any) -> float:
    """Seconds that Python needs to launch one small kernel (the queue is not waited for)."""
    import torch

    small = torch.zeros(64, device=device)
    for _ in range(50):
        small.add_(1)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    for _ in range(1000):
        small.add_(1)
    seconds = (time.perf_counter() - began) / 1000
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return seconds


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def measure_ranks(own: list[dict[str, object]], *, on_gpu: bool, seconds: float) -> dict[str, object]:
    """All-reduce by size between the ranks, and every rank's own figures (gathered on all ranks)."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        gathered: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, own)
        rows = all_reduce_rows(device, GPU_SIZES if on_gpu else CPU_SIZES, seconds)
        return {
            "backend": dist.get_backend(),
            "devices": [row for rows in gathered for row in rows],
            "all_reduce": rows,
            "latency_seconds": rows[0]["seconds"] if rows else None,
            "bus_bytes_per_second": max((row["bus_bytes_per_second"] for row in rows), default=None),
        }
    finally:
        dist.destroy_process_group()


def all_reduce_rows(device: Any, sizes: tuple[int, ...], seconds: float) -> list[dict[str, Any]]:
    """One row a size, smallest first; ends early when the time is up (rank 0 decides for all)."""
    import torch
    import torch.distributed as dist

    world, began, rows = dist.get_world_size(), time.monotonic(), []
    for size in sizes:
        late = torch.tensor([float(time.monotonic() - began > seconds)], device=device)
        dist.broadcast(late, src=0)
        if late.item():
            break
        _progress.tell("links", bytes=size)
        count = max(1, size // 4)
        values = torch.full((count,), float(dist.get_rank() + 1), device=device)
        dist.all_reduce(values)
        right = bool((values == world * (world + 1) / 2).all().item())
        once = _all_reduce_seconds(device, torch.zeros(count, device=device), 20 if size <= 16 * MIB else 5)
        rows.append(
            {
                "bytes": count * 4,
                "seconds": once,
                "bytes_per_second": count * 4 / once,
                "bus_bytes_per_second": 2 * (world - 1) / world * count * 4 / once,
                "right": right,
            }
        )
    return rows


def _all_reduce_seconds(device: Any, values: Any, repeats: int) -> float:
    import torch
    import torch.distributed as dist

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    times = []
    for attempt in range(4):
        dist.barrier()
        wait()
        began = time.perf_counter()
        for _ in range(repeats):
            dist.all_reduce(values)
        wait()
        if attempt:  # the first round opens the connections
            times.append((time.perf_counter() - began) / repeats)
    own = torch.tensor([statistics.median(times)], device=device, dtype=torch.float32)
    dist.all_reduce(own, op=dist.ReduceOp.MAX)
    return float(own.item())


def rccl_tests(devices: int, seconds: float) -> dict[str, object]:
    """rccl-tests or nccl-tests over all visible devices, where they are installed."""
    program = shutil.which("all_reduce_perf")
    if program is None or devices < 2 or seconds < 5:
        return {}
    command = [program, "-b", "8", "-e", "256M", "-f", "8", "-g", str(devices)]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"rccl_tests": {"error": str(error)}}
    rows = parse_rccl_tests(run.stdout)
    return {"rccl_tests": {"rows": rows} if rows else {"error": (run.stderr or run.stdout)[-500:]}}


_ROW = re.compile(r"^\s*(\d+)\s+\d+\s+\w+\s+\w+\s+-?\d+\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)", re.MULTILINE)


def parse_rccl_tests(text: str) -> list[dict[str, float]]:
    """Size, time and bandwidths of the out-of-place columns (microseconds and GB/s in the program's own table)."""
    return [
        {
            "bytes": int(size),
            "seconds": float(micro) * 1e-6,
            "bytes_per_second": float(algorithm) * 1e9,
            "bus_bytes_per_second": float(bus) * 1e9,
        }
        for size, micro, algorithm, bus in _ROW.findall(text)
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
