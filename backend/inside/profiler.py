"""A few steps of training in, where their time went out: `profile/rank-R.json`, and torch's own table beside it.

A window opens when the ranks agree on it (control.py) and covers the STEPS steps after one step of warm-up. On an
accelerator only its own activity is traced, which costs nearly nothing; without one the operators on the CPU are.
Needs the standard library until a window opens.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STEPS = 3
_TOP = 25
_ROWS = 100
# Parts of kernel and operator names, in lower case; the first that fits decides. CUDA, HIP and CPU names side by side.
CATEGORIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("communication", ("nccl", "rccl", "gloo", "c10d", "allreduce", "allgather", "reducescatter")),
    (
        "copies",
        ("memcpy", "memset", "copyhosttodevice", "copydevicetohost", "copydevicetodevice", "fillbuffer", "aten::copy_"),
    ),
    ("attention", ("flash", "fmha", "attention", "sdpa", "ck_tile", "aotriton", "attn")),
    ("optimizer", ("adam", "optimizer", "lpnorm", "multi_tensor_apply", "sgd", "lion", "muon")),
    (
        "matmul",
        (
            "gemm",
            "cutlass",
            "cublas",
            "hipblas",
            "cijk_",
            "nvjet",
            "::mm",
            "::addmm",
            "::bmm",
            "matmul",
            "::linear",
            "mkldnn",
            "wgmma",
        ),
    ),
)
OTHER = "other"
Span = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One kernel, copy or operator: its name and its begin and end (seconds on the tracer's clock)."""

    name: str
    begin: float
    end: float


def activity(name: str, begin: float, length: float) -> Activity:
    """From the tracer's microseconds."""
    return Activity(name=name, begin=begin / 1e6, end=(begin + length) / 1e6)


def category_of(name: str) -> str:
    """What kind of work a kernel or operator does, told from its name."""
    low = name.lower()
    return next((category for category, parts in CATEGORIES if any(part in low for part in parts)), OTHER)


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Overlapping spans as disjoint ones, in order."""
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def length_of(spans: Iterable[Span]) -> float:
    """Seconds covered by disjoint spans."""
    return sum(end - begin for begin, end in spans)


def uncovered(spans: Sequence[Span], by: Sequence[Span]) -> float:
    """Seconds of disjoint `spans` in which none of the disjoint `by` is going on."""
    both = 0.0
    at = 0
    for begin, end in spans:
        while at < len(by) and by[at][1] <= begin:
            at += 1
        look = at
        while look < len(by) and by[look][0] < end:
            both += min(end, by[look][1]) - max(begin, by[look][0])
            look += 1
    return length_of(spans) - both


def summarize(activities: Sequence[Activity]) -> dict[str, object]:
    """Seconds by category (sums over all streams), the busy time, the communication that nothing covered, the largest kernels."""
    seconds: dict[str, float] = {}
    by_name: dict[str, list[float]] = {}
    for found in activities:
        category = category_of(found.name)
        seconds[category] = seconds.get(category, 0.0) + found.end - found.begin
        calls = by_name.setdefault(found.name, [0.0, 0.0])
        calls[0] += 1
        calls[1] += found.end - found.begin
    talk = merge_spans((one.begin, one.end) for one in activities if category_of(one.name) == "communication")
    work = merge_spans((one.begin, one.end) for one in activities if category_of(one.name) != "communication")
    largest = sorted(by_name.items(), key=lambda item: -item[1][1])[:_TOP]
    return {
        "categories": seconds,
        "busy_seconds": length_of(merge_spans([*talk, *work])),
        "communication_seconds": length_of(talk),
        "communication_exposed_seconds": uncovered(talk, work),
        "kernels": [
            {"name": name, "category": category_of(name), "calls": int(calls), "seconds": spent}
            for name, (calls, spent) in largest
        ],
    }


def table_seconds(rows: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Rows of torch's own table (name, its self time in seconds) summed by category: what the summary can be checked against."""
    seconds: dict[str, float] = {}
    for name, spent in rows:
        category = category_of(name)
        seconds[category] = seconds.get(category, 0.0) + spent
    return seconds


class ProfileWindow:
    """One rank's window: `open` once, then `step` at each step's end until it says that it is done."""

    def __init__(self, folder: Path, rank: int, *, monotonic: Callable[[], float] = time.perf_counter) -> None:
        self._folder = folder
        self._rank = rank
        self._now = monotonic
        self._profiler: Any = None
        self._on_accelerator = False
        self._ends = 0
        self._first = 0
        self._began = 0.0
        self._waited = 0.0

    @property
    def is_open(self) -> bool:
        return self._profiler is not None

    def open(self) -> None:
        """Prepare the tracer; the next step is its warm-up. Does nothing while a window is open."""
        if self.is_open:
            return
        import torch
        from torch.profiler import ProfilerActivity, profile, schedule

        self._on_accelerator = torch.cuda.is_available() and torch.cuda.is_initialized()
        activity = ProfilerActivity.CUDA if self._on_accelerator else ProfilerActivity.CPU
        self._ends, self._waited = 0, 0.0
        self._profiler = profile(activities=[activity], schedule=schedule(wait=0, warmup=1, active=STEPS, repeat=1))
        self._profiler.start()

    def step(self, step: int, waited: float) -> bool:
        """A step ended that waited `waited` seconds for its data. True: the window is closed and its summary is on disk."""
        self._synchronize()  # so that a step's kernels are inside the step
        self._ends += 1
        if self._ends == 1:
            self._first = step + 1
        else:
            self._waited += waited
        ended = self._now()
        self._profiler.step()
        if self._ends == 1:
            self._began = self._now()
            return False
        if self._ends <= STEPS:
            return False
        profiler = self._profiler
        self.drop()
        self._write(profiler, step, ended - self._began)
        return True

    def drop(self) -> None:
        """Close the window without a summary (training ended inside it)."""
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.stop()

    def fail(self, error: str) -> None:
        """The tracer is broken: never touch it again, and leave the reason as the answer."""
        self._profiler = None
        self._answer({"error": error})

    def _synchronize(self) -> None:
        if self._on_accelerator:
            import torch

            torch.cuda.synchronize()

    def _write(self, profiler: Any, last: int, seconds: float) -> None:
        facts = summarize(self._activities(profiler))
        facts |= {"from": self._first, "to": last, "window_seconds": seconds, "data_seconds": self._waited}
        facts["device"] = "accelerator" if self._on_accelerator else "cpu"
        order = "self_device_time_total" if self._on_accelerator else "self_cpu_time_total"
        averages = profiler.key_averages()
        facts["table"] = table_seconds((one.key, getattr(one, order) / 1e6) for one in averages if self._is_work(one))
        table = averages.table(sort_by=order, row_limit=_ROWS, max_name_column_width=120)
        self._folder.mkdir(exist_ok=True)
        _replace(self._folder / f"rank-{self._rank}.txt", table)
        self._answer(facts)

    def _answer(self, facts: dict[str, object]) -> None:
        self._folder.mkdir(exist_ok=True)
        about = {"at": time.time(), "rank": self._rank}
        _replace(self._folder / f"rank-{self._rank}.json", json.dumps(about | facts))

    def _is_work(self, one: Any) -> bool:
        """An accelerator's span that somebody named covers kernels that are counted themselves; CPU rows tell their self time."""
        if one.key.startswith("ProfilerStep"):  # the tracer's own mark
            return False
        return not (self._on_accelerator and getattr(one, "is_user_annotation", False))

    def _activities(self, profiler: Any) -> list[Activity]:
        """What ran: kernels and copies of the accelerator, or the operators of the CPU without those that they called."""
        work = [one for one in profiler.events() if self._is_work(one)]
        if self._on_accelerator:
            kernels = [one for one in work if one.device_type.name != "CPU"]
            return [activity(one.name, one.time_range.start, one.time_range.elapsed_us()) for one in kernels]
        return [activity(one.name, one.time_range.start, one.self_cpu_time_total) for one in work]


def _replace(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(text, encoding="utf-8")
    aside.rename(path)
