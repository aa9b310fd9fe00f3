"""A made-up world of runs behind the real pages: every state of the contract, live points, and data that tries to break out.

`World` holds the records; tests change them while pages look. `serve(world)` mounts the real Blocks beside routes of
the shapes in docs/contracts.md. The real server has its own tests; this one makes rare states cheap to look at.
"""

from __future__ import annotations

import asyncio
import math
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gradio as gr
import plotly
import uvicorn
from fastapi import FastAPI, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles

from backend.errors import InvalidInput
from backend.services.log_search import LogQuery, search_log
from tests.browser.fake_gpus import add_gpu_routes
from ui.encoding import encode
from ui.layout import build_pages, page_css
from ui.text import LANGUAGES
from ui.theme import build_theme

STATIC = Path(__file__).parents[2] / "ui" / "static"
PLOTLY = Path(plotly.__file__).parent / "package_data"
HOSTILE = "<img src=x onerror=window.__pwn=1> ${1+1} {{7*7}} </script>"
GIB = 2**30
Json = dict[str, Any]


@dataclass
class World:
    """Runs by id, newest first in lists. `clock` and every run's `t0` make steps happen; `frozen` stops them."""

    jobs: dict[str, Json] = field(default_factory=dict)
    details: dict[str, Json] = field(default_factory=dict)
    logs: dict[str, list[Json]] = field(default_factory=dict)
    diagnoses: dict[str, Json] = field(default_factory=dict)
    profiles: dict[str, Json] = field(default_factory=dict)
    gpus: list[Json] = field(default_factory=list)
    benches: list[Json] = field(default_factory=list)
    worker: Json = field(default_factory=lambda: {"alive": True, "pid": 4242, "beat_at": time.time(), "error": ""})
    disk: Json = field(
        default_factory=lambda: {"path": "/data/tunedeck", "free_bytes": 812 * GIB, "total_bytes": 3500 * GIB}
    )
    posts: list[tuple[str, Json]] = field(default_factory=list)
    refuse: Json | None = None
    tick: float = 0.2
    sockets: int = 0
    refuse_sockets: bool = False
    stopped: bool = False
    generation: int = 0
    preferences: Json = field(default_factory=dict)

    def step_of(self, job: Json) -> int:
        if "fixed_step" in job:
            return int(job["fixed_step"])
        return max(0, min(job["max_steps"] or 0, int((time.time() - job["t0"]) / job["pace"]) + job.get("first", 0)))


def value(key: str, step: int, job: Json) -> float | None:
    """Deterministic curves with noise, one spike and one gap."""
    noise = math.sin(step * 12.9898) * 43758.5453
    noise -= math.floor(noise)
    all_steps = job["max_steps"] or 1000
    if key == "loss":
        if job.get("nan_at") and step >= job["nan_at"]:
            return None
        spike = 2.5 if step == 150 else 0
        return 1.1 + 2.4 * math.exp(-step / 90) + 0.5 * (noise - 0.5) * math.exp(-step / 400) + spike
    if key == "eval_loss":
        return 1.35 + 2.2 * math.exp(-step / 90) + step * 0.0004
    if key == "learning_rate":
        return 2e-5 * min(1, step / 30) * (0.5 + 0.5 * math.cos(math.pi * step / all_steps))
    if key == "grad_norm":
        return 0.6 + noise * 0.8 + 4 * math.exp(-step / 20)
    if key == "tokens_per_second":
        return 18400 + 900 * (noise - 0.5)
    if key == "seconds_per_step":
        return 1.74 + 0.08 * noise
    if key == "data_seconds":
        return 0.01 + 0.02 * noise
    if key == "memory_bytes":
        return 141.2 * GIB
    if key == "padding_share":
        return 0.08 + 0.05 * noise
    if key == "tokens":
        return step * 32768.0
    if key == "energy_kwh":
        return step * 0.0021 if job["devices"] else None
    if key == "elapsed_seconds":
        return step * 1.76
    if key == "epoch":
        return step / 120
    if key.startswith("rank_seconds."):
        rank = int(key.split(".")[1])
        return 1.7 + 0.03 * noise + (0.25 if rank == 5 else 0.01 * rank)
    if key.startswith("rewards/"):
        sign = -1 if key.endswith("rejected") else 1
        return sign * (1 - math.exp(-step / 120)) * 2 + 0.3 * (noise - 0.5)
    return noise


def keys_of(job: Json) -> list[str]:
    keys = [
        "loss",
        "learning_rate",
        "grad_norm",
        "tokens_per_second",
        "seconds_per_step",
        "data_seconds",
        "padding_share",
    ]
    keys += ["tokens", "elapsed_seconds", "epoch", "eval_loss", *job.get("extra_keys", [])]
    return [*keys, "memory_bytes"] if job["devices"] else keys


def points(job: Json, key: str, first: int, last: int) -> Json:
    every = 50 if key == "eval_loss" else 1
    steps = [step for step in range(max(first, 1), last + 1) if step % every == 0]
    odd = [[step, "nan"] for step in steps if key == "loss" and value(key, step, job) is None]
    return {"x": steps, "y": [value(key, step, job) for step in steps], "odd": odd[:200]}


def rows_between(job: Json, keys: list[str], first: int, last: int) -> Json:
    made = {key: points(job, key, first, last) for key in keys}
    return {key: series for key, series in made.items() if series["x"]}


def thin(series: Json, px: int) -> Json:
    step = max(1, len(series["x"]) // px) if px else 1
    return {"x": series["x"][::step], "y": series["y"][::step], "odd": series["odd"]}


def markers(job: Json, first: int, last: int) -> list[Json]:
    found = [
        {"kind": "checkpoint", "step": s, "at": job["t0"] + s, "text": f"checkpoint-{s}", "seconds": 3.2}
        for s in range(100, last + 1, 100)
        if s >= first
    ]
    if job.get("first", 0) and first <= job["first"]:
        found.append({"kind": "resume", "step": job["first"], "at": job["t0"], "text": "", "seconds": None})
    return found


def headline(world: World, job: Json) -> Json:
    if job["state"] == "queued":
        return {}
    step = world.step_of(job)
    final = job["state"] in ("succeeded", "failed", "cancelled", "lost")
    active = not final and step > 0
    left = (job["max_steps"] or 0) - step
    loss = "nan" if job.get("nan_at") and step >= job["nan_at"] else value("loss", step, job) if step else None
    return {
        "step": step or None,
        "max_steps": job["max_steps"],
        "percent": 100 * step / job["max_steps"] if job["max_steps"] and step else None,
        "loss": loss,
        "epoch": step / 120 if step else None,
        "tokens_per_second": value("tokens_per_second", step, job) if active else None,
        "mean_tokens_per_second": 17950.0 if step else None,
        "seconds_per_step": value("seconds_per_step", step, job) if active else None,
        "eta_seconds": left * 1.75 if active else None,
        "elapsed_seconds": step * 1.76,
        "phase": job["phase"],
        "tokens": step * 32768 if step else None,
        "last_step_at": time.time() if active else None,
        "stalled_seconds": job.get("stalled"),
    }


def public(world: World, job: Json) -> Json:
    hidden = ("t0", "pace", "first", "fixed_step", "nan_at", "extra_keys", "stalled")
    record = {key: item for key, item in job.items() if key not in hidden}
    if job["state"] != "queued":
        head = headline(world, job)
        record |= {"step": head["step"], "loss": head["loss"]}
    return record


def listed(world: World, *states: str) -> list[Json]:
    return [job for job in world.jobs.values() if job["state"] in states]


def state_of(world: World) -> Json:
    counts: dict[str, int] = {}
    for job in world.jobs.values():
        counts[job["state"]] = counts.get(job["state"], 0) + 1
    running = [
        public(world, job)
        | {
            "headline": headline(world, job),
            "spark": [value("loss", s, job) for s in range(max(1, world.step_of(job) - 60), world.step_of(job) + 1)],
        }
        for job in listed(world, "starting", "running", "stopping")
    ]
    queued = sorted(listed(world, "queued"), key=lambda job: (-job["priority"], job["position"]))
    ended = sorted(listed(world, "succeeded", "failed", "cancelled", "lost"), key=lambda job: -(job["ended_at"] or 0))
    if world.worker["alive"]:
        world.worker["beat_at"] = time.time() // 10 * 10
    return {
        "host": {"name": "mi300x-04", "cpus": 192, "accelerator": "rocm" if world.gpus else "cpu"},
        "worker": dict(world.worker),
        "gpus": [dict(gpu) for gpu in world.gpus],
        "disk": dict(world.disk),
        "counts": counts,
        "running": running,
        "queued": [public(world, job) for job in queued],
        "recent": [public(world, job) for job in ended[:10]],
    }


def detail_of(world: World, job: Json) -> Json:
    active = job["state"] in ("starting", "running", "stopping")
    extra = world.details.get(job["id"], {})
    step = world.step_of(job) if job["state"] != "queued" else 0
    saved = [checkpoint(job, s) for s in range(100, step + 1, 100)]
    base = {
        "job": public(world, job),
        "plan": plan_of(job),
        "spec_text": SPEC,
        "events": events_of(job, step),
        "checkpoints": saved,
        "segments": segments_of(job) if job["state"] != "queued" else [],
        "headline": headline(world, job),
        "files": [],
        "keys": keys_of(job),
        "can": {
            "stop": active,
            "save": job["state"] == "running",
            "cancel": job["state"] == "queued",
            "resume": bool(saved) and not active,
            "delete": not active and job["state"] != "queued",
        },
    }
    return base | extra


def checkpoint(job: Json, step: int) -> Json:
    return {
        "name": f"checkpoint-{step}",
        "path": f"checkpoint-{step}",
        "step": step,
        "size_bytes": 1_403_000_000,
        "files": 21,
        "saved_at": job["t0"] + step * job["pace"],
        "complete": True,
        "why_incomplete": "",
        "world_size": job["processes"],
        "adapter_bytes": 167_832_240,
        "eval_loss": value("eval_loss", step, job),
    }


def events_of(job: Json, step: int) -> list[Json]:
    events: list[Json] = [{"kind": "state", "at": job["created_at"], "state": "queued", "reason": None, "message": ""}]
    if job["started_at"]:
        events.append({"kind": "state", "at": job["started_at"], "state": "starting", "reason": None, "message": ""})
        events.append({"kind": "state", "at": job["started_at"] + 2, "state": "running", "reason": None, "message": ""})
    events += [
        {"kind": "checkpoint", "at": job["t0"] + s * job["pace"], "step": s, "path": f"checkpoint-{s}"}
        for s in range(100, step + 1, 100)
    ]
    if job["ended_at"]:
        events.append(
            {
                "kind": "state",
                "at": job["ended_at"],
                "state": job["state"],
                "reason": job["reason"],
                "message": job["message"],
            }
        )
    return events


def segments_of(job: Json) -> list[Json]:
    at = job["started_at"] or 0
    phases = [
        ("importing", 14.2),
        ("parsing", 0.6),
        ("tokenizing", 21.4),
        ("loading", 48.9),
        ("training", 1620.0),
        ("saving", 9.6),
    ]
    return [
        {
            "index": 0,
            "begin_step": job.get("first", 0),
            "last_step": 0,
            "max_steps": job["max_steps"],
            "world_size": job["processes"],
            "started_at": at,
            "ended_at": None,
            "stopped": False,
            "phases": [{"phase": name, "at": at, "seconds": seconds} for name, seconds in phases],
            "versions": {
                "torch": "2.9.1+rocm6.4",
                "transformers": "5.5.4",
                "llamafactory": "0.9.5",
                "deepspeed": "0.19.8",
            },
        }
    ]


SPEC = """# demo: LoRA with ZeRO-3
model_name_or_path: /models/Llama-3.1-8B-Instruct
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 16
dataset: demo_alpaca,demo_sharegpt
template: llama3
cutoff_len: 4096
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
learning_rate: 2.0e-5
num_train_epochs: 3.0
bf16: true
tunedeck:
  processes: 8
  zero: {stage: 3}
"""


def plan_of(job: Json) -> Json:
    folder = f"/data/tunedeck/jobs/{job['id']}"
    python = "/opt/venv/bin/python"
    train, yaml = "/opt/tunedeck/backend/inside/train.py", f"{folder}/train.yaml"
    return {
        "job_id": job["id"],
        "job_dir": folder,
        "argv": f"{python} -m torch.distributed.run --nproc_per_node {job['processes']} {train} {yaml}".split(),
        "env": {
            "HIP_FORCE_DEV_KERNARG": "1",
            "TUNEDECK_JOB_ID": job["id"],
            "TUNEDECK_JOB_DIR": folder,
            "NOTE": "it's here",
        },
        "unset": ["PYTHONPATH"],
        "cwd": folder,
        "files": {"train.yaml": SPEC, "ds_config.json": '{\n  "zero_optimization": {"stage": 3}\n}\n'},
        "processes": job["processes"],
        "devices": job["devices"],
        "secrets": ["HF_TOKEN"],
        "stop_grace_seconds": 600.0,
        "terminate_grace_seconds": 20.0,
    }


def make_job(job_id: str, name: str, state: str, **more: Any) -> Json:
    now = time.time()
    started = None if state == "queued" else now - 900
    job: Json = {
        "id": job_id,
        "name": name,
        "state": state,
        "reason": None,
        "message": "",
        "exit_code": None,
        "signal": None,
        "priority": 0,
        "position": float(len(job_id)),
        "processes": 8,
        "devices": [f"0000:{i:02x}:00.0" for i in range(8)],
        "stage": "sft",
        "finetuning_type": "lora",
        "model": "/models/Llama-3.1-8B-Instruct",
        "dataset": "demo_alpaca",
        "parent": "",
        "tags": [],
        "notes": "",
        "created_at": now - 960,
        "started_at": started,
        "ended_at": now - 120 if state in ("succeeded", "failed", "cancelled", "lost") else None,
        "step": None,
        "max_steps": 600,
        "loss": None,
        "phase": "training" if state == "running" else "",
        "pid": None,
        "pid_started_at": None,
        "t0": now - 240 * 1.0,
        "pace": 1.0,
    }
    return job | more


def log_lines(count: int = 60) -> list[Json]:
    texts = ["[INFO|2026-11-30 10:00:00] llamafactory.data.loader:143 >> Loading dataset demo_alpaca.json..."]
    texts += [
        f"{{'loss': {3.2 - i * 0.02:.4f}, 'grad_norm': 0.91, 'learning_rate': 1.9e-05, 'epoch': {i / 120:.2f}}}"
        for i in range(count)
    ]
    texts.insert(
        3, "[WARNING|trainer.py:812] The tokenizer has new PAD/BOS/EOS tokens that differ from the model config."
    )
    texts.insert(5, HOSTILE)
    texts.insert(6, "正在加载模型权重：分片 3/4，进程 2")
    return to_lines(texts)


def to_lines(texts: list[str], first: int = 0) -> list[Json]:
    lines = []
    at = first
    for n, line in enumerate(texts, 1):
        level = "error" if "Error" in line or line.startswith("Traceback") else "warning" if "WARNING" in line else ""
        rank = 3 if line.startswith("[rank3]") else None
        lines.append({"at": at, "n": n, "text": line, "level": level, "rank": rank})
        at += len(line.encode()) + 1
    return lines


TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "/opt/tunedeck/backend/inside/train.py", line 88, in main',
    "    run_exp(arguments, callbacks=[recorder])",
    '  File "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", line 134, in forward',
    "    return F.linear(input, self.weight, self.bias)",
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.31 GiB. GPU 3 has 191.98 GiB, 1.02 GiB free.",
    "[rank3]: torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
]


def make_gpus(count: int = 8) -> list[Json]:
    gpus = []
    for i in range(count):
        busy = i < 6
        gpus.append(
            {
                "id": f"0000:{i:02x}:00.0",
                "vendor": "amd",
                "name": "AMD Instinct MI300X",
                "hip_id": i,
                "vram_total_bytes": 192 * GIB,
                "reading": {
                    "device": f"0000:{i:02x}:00.0",
                    "vram_used_bytes": (150 + i) * GIB if busy else 1 * GIB,
                    "gfx_activity_percent": None if i == 6 else 97.0 - i if busy else 0.0,
                    "socket_power_watts": 690.0 + i if busy else 140.0,
                    "power_cap_watts": 750.0,
                    "hotspot_celsius": 78.0 + i if busy else 41.0,
                },
                "leased_by": "run-live" if i < 4 else "run-dpo" if busy else "",
                "gaps": {"gfx_activity_percent": "no_permission"} if i == 6 else {},
                "set_aside": "uncorrectable memory errors" if i == 7 else "",
                "processes": [],
            }
        )
    return gpus


def empty_world() -> World:
    return World()


def make_profile(rank: int) -> Json:
    """Where three steps of a rank went; the last rank could not be traced."""
    if rank == 3:
        return {"rank": 3, "at": time.time() - 60, "error": "RuntimeError: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"}
    shares = {
        "matmul": 0.46,
        "attention": 0.14,
        "other": 0.12,
        "optimizer": 0.02,
        "copies": 0.01,
        "communication": 0.21,
    }
    kernels = [
        {
            "name": "Cijk_Ailk_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64",
            "category": "matmul",
            "calls": 672,
            "seconds": 1.9,
        },
        {
            "name": "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage)",
            "category": "communication",
            "calls": 96,
            "seconds": 1.1,
        },
        {"name": "attn_fwd" + HOSTILE, "category": "attention", "calls": 96, "seconds": 0.4},
    ]
    return {
        **{"rank": rank, "at": time.time() - 60, "error": "", "first": 210, "last": 212, "device": "accelerator"},
        **{"window_seconds": 5.4, "data_share": 0.03, "idle_share": 0.11 + 0.02 * rank, "communication_share": 0.21},
        **{"communication_exposed_share": 0.14 - 0.02 * rank, "shares": shares, "kernels": kernels},
    }


def busy_world() -> World:
    """Every state at once, on eight GPUs."""
    world = World(gpus=make_gpus())
    long_name = "qwen3-72b-dpo-β0.1-lr5e-7-ultrafeedback-binarized-cleaned-2026-11-second-try-with-a-very-long-name"
    jobs = [
        make_job(
            "run-live",
            "llama3-8b-support-lora",
            "running",
            tags=["support", "v2"],
            devices=[f"0000:{i:02x}:00.0" for i in range(4)],
        ),
        make_job(
            "run-dpo",
            long_name,
            "running",
            stage="dpo",
            first=100,
            max_steps=2400,
            parent="run-done",
            model="Qwen/Qwen3-72B",
            processes=2,
            extra_keys=["rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins"],
        ),
        make_job(
            "run-start",
            "mistral-full-zero3",
            "starting",
            fixed_step=0,
            max_steps=None,
            finetuning_type="full",
            phase="loading",
        ),
        make_job("run-q1", "qwen-coder-sft", "queued", position=1.0, priority=1),
        make_job("run-q2", "gemma-kto", "queued", position=2.0, stage="kto"),
        make_job("run-q3", HOSTILE, "queued", position=3.0, tags=["<b>x</b>"]),
        make_job("run-done", "llama3-8b-base-run", "succeeded", fixed_step=600, reason="completed", exit_code=0),
        make_job(
            "run-failed",
            "llama3-70b-lora-r64",
            "failed",
            fixed_step=231,
            reason="trainer_failed",
            exit_code=1,
            message=TRACEBACK[5],
            ended_at=time.time() - 1800,
        ),
        make_job(
            "run-stopped",
            "hyper-sweep-3",
            "cancelled",
            fixed_step=210,
            reason="stopped_after_save",
            ended_at=time.time() - 7200,
        ),
        make_job(
            "run-lost",
            "overnight-kto",
            "lost",
            fixed_step=420,
            reason="supervisor_vanished",
            ended_at=time.time() - 90000,
            message="The supervisor (pid 31337) is gone and left no result.",
        ),
        make_job(
            "run-nan",
            "lr-too-high",
            "succeeded",
            fixed_step=300,
            max_steps=300,
            nan_at=120,
            reason="completed",
            exit_code=0,
            ended_at=time.time() - 200000,
        ),
    ]
    world.jobs = {job["id"]: job for job in jobs}
    for job_id in world.jobs:
        world.logs[job_id] = [] if world.jobs[job_id]["state"] == "queued" else log_lines()
    world.logs["run-failed"] = to_lines([line["text"] for line in log_lines(200)] + TRACEBACK)
    broken = checkpoint(world.jobs["run-failed"], 300) | {
        "complete": False,
        "why_incomplete": "rank 5 wrote no optimizer state",
        "eval_loss": None,
    }
    saved = [checkpoint(world.jobs["run-failed"], s) for s in (100, 200)]
    world.details["run-failed"] = {"checkpoints": [*saved, broken]}
    world.diagnoses["run-failed"] = {
        "root_cause": "gpu_out_of_memory",
        "title": "GPU 3 ran out of memory",
        "remedy": "Halve per_device_train_batch_size and double gradient_accumulation_steps: the same training in less memory.",
        "evidence": TRACEBACK[-2:],
        "first_failing_rank": 3,
    }
    world.profiles["run-live"] = {
        **{"asked_at": None, "run_ranks": 4, "late": {"rank": 2, "share": 0.14}},
        "ranks": [make_profile(rank) for rank in range(4)],
    }
    final = checkpoint(world.jobs["run-done"], 600) | {"name": "final", "path": ""}
    files = [
        {"path": "trainer_log.jsonl", "size_bytes": 91_400, "modified_at": time.time() - 120},
        {"path": "all_results.json", "size_bytes": 412, "modified_at": time.time() - 120},
        {"path": "training_loss.png", "size_bytes": 31_000, "modified_at": time.time() - 120},
    ]
    saved = [checkpoint(world.jobs["run-done"], s) for s in range(100, 601, 100)]
    world.details["run-done"] = {"checkpoints": [final, *saved], "files": files}
    return world


def compared(world: World, ids: list[str]) -> Any:
    """As docs/contracts.md says it of `/api/compare`: one setting differs, CPU runs have no energy."""
    there = [world.jobs[job_id] for job_id in ids if job_id in world.jobs]
    if not there:
        return refused(404, "not_found", "None of these jobs exists.")
    rates = ["5.0e-06", "1.0e-05", "2.0e-05"]
    values = [
        {"given": i > 0, "text": rates[i % 3] if i else "", "default": "" if i else "5.0e-05"}
        for i in range(len(there))
    ]
    rows = [{"key": "learning_rate", "values": values}] if len(there) > 1 else []
    return {
        "runs": [{"job": public(world, job), "figures": figures(world, job), "keys": keys_of(job)} for job in there],
        "absent": [job_id for job_id in ids if job_id not in world.jobs],
        "differences": rows,
        "shared": 41,
        "currency": "EUR",
    }


def figures(world: World, job: Json) -> Json:
    step = 0 if job["state"] == "queued" else world.step_of(job)

    def known(value_: Any, missing: str = "not_started", estimate: bool = False) -> Json:
        return {
            "value": value_ if step else None,
            "missing": "" if step else missing,
            "estimate": estimate and step > 0,
        }

    gpu = {"value": None, "missing": "no_gpu", "estimate": False}
    has_gpu = bool(job["devices"])
    last = "nan" if job.get("nan_at") and step >= job["nan_at"] else value("loss", step, job)
    evals = [value("eval_loss", s, job) for s in range(50, step + 1, 50)]
    return {
        "final_loss": known(last),
        "best_loss": known(
            min([v for s in range(1, step + 1) if (v := value("loss", s, job)) is not None], default=None)
        ),
        "final_eval_loss": known(evals[-1])
        if evals
        else {"value": None, "missing": "no_evaluation", "estimate": False},
        "best_eval_loss": known(min(evals))
        if evals
        else {"value": None, "missing": "no_evaluation", "estimate": False},
        "tokens_per_second": known(17950.0),
        "mfu": known(0.412, estimate=True) if has_gpu else gpu,
        "peak_memory_bytes": known(141.2 * GIB) if has_gpu else gpu,
        "tokens": known(step * 32768.0),
        "hours": known(step * 1.76 / 3600),
        "kwh": known(step * 0.0021, estimate=True) if has_gpu else gpu,
        "cost": known(step * 0.004) if has_gpu else gpu,
    }


# ---- Routes ----


def make_app(world: World) -> FastAPI:
    app = FastAPI(docs_url=None, openapi_url=None)
    app.add_exception_handler(
        KeyError, lambda request, error: refused(404, "not_found", f"There is no job with the id {error}.")
    )
    version = f"fake{time.time_ns()}"
    app.mount(f"/static/{version}", StaticFiles(directory=STATIC))
    app.mount("/fake-plotly", StaticFiles(directory=PLOTLY))
    add_gpu_routes(app, world)
    _add_reads(app, world)
    _add_actions(app, world)
    _add_socket(app, world)

    def asset_url(name: str) -> str:
        return "/fake-plotly/plotly.min.js" if name == "plotly.min.js" else f"/static/{version}/{name}"

    for lang in reversed(LANGUAGES):
        pages = build_pages(lang, asset_url=asset_url)
        path = "/zh" if lang == "zh" else "/"
        app = gr.mount_gradio_app(
            app,
            pages,
            path=path,
            theme=build_theme(),
            css=page_css(),
            footer_links=[],
            run_history=False,
            enable_monitoring=False,
            favicon_path=str(STATIC / "favicon.svg"),
            ssr_mode=False,
        )
        pages.has_launched = True
    return app


def refused(status: int, code: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"code": code, "field": "", "message": message}}, status_code=status)


def _add_reads(app: FastAPI, world: World) -> None:
    @app.get("/lang/{lang}")
    def language(lang: str, next: str = "/") -> RedirectResponse:
        return RedirectResponse(("/zh" if lang == "zh" else "") + next)

    @app.get("/api/state")
    def state() -> Json:
        return state_of(world)

    @app.get("/api/runs")
    def runs(
        q: str = "",
        state: str = "",
        limit: int = 50,
        offset: int = 0,
        sort: str = "created",
        order: str = "desc",
        tag: str = "",
    ) -> Json:
        wanted = [part for part in state.split(",") if part]
        found = [public(world, job) for job in world.jobs.values() if q.lower() in (job["name"] + job["model"]).lower()]
        found = [job for job in found if not wanted or job["state"] in wanted]
        found = [job for job in found if not tag or tag in job["tags"]]
        order_of = {
            "created": lambda j: j["created_at"],
            "name": lambda j: j["name"],
            "loss": lambda j: j["loss"] if isinstance(j["loss"], float) else 1e9,
        }
        found.sort(key=order_of.get(sort, order_of["created"]), reverse=order == "desc")
        return {"total": len(found), "runs": found[offset : offset + limit]}

    @app.get("/api/tags")
    def tags() -> Json:
        found = [tag for job in world.jobs.values() for tag in job["tags"]]
        return {"tags": [{"tag": tag, "n": found.count(tag)} for tag in dict.fromkeys(found)]}

    @app.get("/api/preferences")
    def preferences() -> Json:
        return world.preferences

    @app.get("/api/compare")
    def compare(runs: str = "") -> Any:
        return compared(world, runs.split(","))

    @app.get("/api/runs/{job_id}")
    def run(job_id: str) -> Any:
        if job_id not in world.jobs:
            return refused(404, "not_found", f"There is no job with the id {job_id!r}.")
        return detail_of(world, world.jobs[job_id])

    @app.get("/api/runs/{job_id}/series")
    def series(job_id: str, request: Request) -> Any:
        job = world.jobs[job_id]
        query = request.query_params
        last = 0 if job["state"] == "queued" else world.step_of(job)
        first = int(query.get("from", 0))
        until = min(last, int(query.get("to", last)))
        keys = query["keys"].split(",") if query.get("keys") else keys_of(job)
        if "rank_seconds" in keys:
            keys = [f"rank_seconds.{rank}" for rank in range(job["processes"])]
        made = rows_between(job, keys, first, until)
        px = int(query.get("px", 1500))
        return {
            "cursor": f"{last}.{len(world.logs.get(job_id, []))}.{world.generation}",
            "series": {key: thin(item, px) for key, item in made.items()},
            "markers": markers(job, 0, last),
            "span": [1, last],
        }

    @app.get("/api/runs/{job_id}/since")
    def since(job_id: str, c: str) -> Json:
        return message_after(world, world.jobs[job_id], c) or {"c": c}

    @app.get("/api/runs/{job_id}/log")
    def log(job_id: str, offset: int = -500, before: int | None = None, limit: int = 500) -> Json:
        lines = world.logs[job_id]
        size = lines[-1]["at"] + len(lines[-1]["text"].encode()) + 1 if lines else 0
        if before is not None:
            lines = [line for line in lines if line["at"] < before][-limit:]
        elif offset < 0:
            lines = lines[offset:]
        else:
            lines = [line for line in lines if line["at"] >= offset][:limit]
            after = lines[-1]["at"] + len(lines[-1]["text"].encode()) + 1 if lines else size
            return {"offset": offset, "next": after, "size": size, "lines": lines, "open": None}
        return {"offset": 0, "next": size, "size": size, "lines": lines, "open": None}

    @app.get("/api/runs/{job_id}/log/search")
    def log_search(request: Request, job_id: str) -> Response:
        """The real search on the made-up lines."""
        given = request.query_params
        rank = given.get("rank")
        query = LogQuery(
            text=given.get("q", ""),
            is_regex="regex" in given,
            match_case="case" in given,
            level=given.get("level", ""),
            rank=None if rank is None else int(rank),
        )
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_text("".join(line["text"] + "\n" for line in world.logs[job_id]))
            try:
                found = search_log(
                    Path(file.name),
                    query,
                    start=int(given["from"]),
                    line=int(given["line"]),
                    limit=int(given["limit"]),
                    context=int(given.get("context", 2)),
                    first_only="first" in given,
                )
            except InvalidInput as error:
                return JSONResponse({"error": {"code": "invalid_input", "field": "q", "message": str(error)}}, 400)
        return Response(encode(found), media_type="application/json")

    @app.get("/api/runs/{job_id}/diagnosis")
    def diagnosis(job_id: str, lang: str = "en") -> Json:
        return world.diagnoses.get(job_id, {"root_cause": None})

    @app.get("/api/runs/{job_id}/profile")
    def profile(job_id: str) -> Json:
        return world.profiles.get(job_id, {"asked_at": None, "run_ranks": 2, "ranks": []})

    @app.get("/api/runs/{job_id}/log.txt")
    def log_text(job_id: str) -> PlainTextResponse:
        text = "\n".join(line["text"] for line in world.logs[job_id])
        return PlainTextResponse(text, headers={"Content-Disposition": 'attachment; filename="console.log"'})

    @app.get("/api/runs/{job_id}/export")
    def export(job_id: str) -> Json:
        return {
            "yaml": SPEC,
            "deepspeed": "{}",
            "shell": "#!/bin/sh\nexec torchrun ...",
            "llamafactory_cli": "llamafactory-cli train train.yaml",
            "files": {"train.yaml": SPEC, "run.sh": "exec llamafactory-cli train", "job.sbatch": "#SBATCH --nodes=1"},
        }

    @app.get("/api/runs/{job_id}/archive/{name}.tar")
    def archive(job_id: str, name: str) -> FileResponse:
        return FileResponse(STATIC / "app.css", filename=f"{name}.tar")


def _add_actions(app: FastAPI, world: World) -> None:
    @app.post("/api/preferences")
    async def keep(request: Request) -> Json:
        world.preferences = await request.json()
        return world.preferences

    @app.post("/api/runs/{job_id}/{action}")
    async def act(job_id: str, action: str, request: Request) -> Any:
        body = await request.json()
        world.posts.append((f"{job_id}/{action}", body))
        if world.refuse:
            return refused(409, world.refuse["code"], world.refuse["message"])
        job = world.jobs[job_id]
        if action == "stop":
            job |= {"state": "stopping"}
        elif action == "cancel":
            job |= {"state": "cancelled", "reason": "cancelled_in_queue", "ended_at": time.time()}
        elif action == "priority":
            job["priority"] = body["priority"]
        elif action == "move":
            _move(world, job, body["before"])
        elif action == "notes":
            job |= body
        elif action == "resume":
            new = make_job("run-new", f"{job['name']}-resumed", "queued", parent=job_id)
            world.jobs["run-new"] = new
            world.logs["run-new"] = []
            return {"job": public(world, new)}
        elif action == "delete":
            del world.jobs[job_id]
            return {"deleted": job_id}
        return {"job": public(world, job)}


def _move(world: World, job: Json, before: str | None) -> None:
    queue = sorted(
        (other for other in listed(world, "queued") if other is not job), key=lambda other: other["position"]
    )
    at = next((i for i, other in enumerate(queue) if other["id"] == before), len(queue))
    queue.insert(at, job)
    for i, other in enumerate(queue):
        other["position"] = float(i)


def message_after(world: World, job: Json, cursor: str) -> Json | None:
    step, log_at, generation = (int(part) for part in cursor.split("."))
    if generation != world.generation:
        return {"c": f"0.0.{world.generation}", "reset": True}
    last = 0 if job["state"] == "queued" else world.step_of(job)
    lines = world.logs.get(job["id"], [])
    if last == step and len(lines) == log_at:
        return None
    message: Json = {
        "c": f"{last}.{len(lines)}.{generation}",
        "job": public(world, job),
        "headline": headline(world, job),
    }
    if last > step:
        message["rows"] = rows_between(job, keys_of(job), step + 1, last)
        message["markers"] = markers(job, step + 1, last)
        if message["markers"]:
            message["checkpoints"] = detail_of(world, job)["checkpoints"]
    if len(lines) > log_at:
        size = lines[-1]["at"] + len(lines[-1]["text"]) + 1
        message["log"] = {"lines": lines[log_at:], "open": None, "next": size, "size": size}
    return message


def _add_socket(app: FastAPI, world: World) -> None:
    @app.websocket("/api/ws")
    async def socket_route(socket: WebSocket) -> None:
        if world.refuse_sockets:
            await socket.close(1008)
            return
        await socket.accept()
        world.sockets += 1
        run, cursor = socket.query_params.get("run"), socket.query_params.get("after", "")
        before: Json = {}
        try:
            while not (world.refuse_sockets or world.stopped):
                if run:
                    job = world.jobs.get(run)
                    if job is None:
                        await socket.close(4404)
                        return
                    state = (job["state"], cursor)
                    message = message_after(world, job, cursor)
                    if message is None and before.get("state") not in (None, state[0]):
                        message = {"c": cursor, "job": public(world, job), "headline": headline(world, job)}
                    before["state"] = state[0]
                    if message:
                        cursor = message["c"]
                        await socket.send_json(message)
                else:
                    now = state_of(world)
                    changed = {key: item for key, item in now.items() if before.get(key) != item}
                    before = now
                    if changed:
                        await socket.send_json({"c": str(time.time()), **changed})
                await asyncio.sleep(world.tick)
            await socket.close(1001)
        except (WebSocketDisconnect, RuntimeError):
            return
        finally:
            world.sockets -= 1


@contextmanager
def serve(world: World) -> Iterator[str]:
    """The address of a running fake dashboard."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = uvicorn.Server(
        uvicorn.Config(
            make_app(world),
            host="127.0.0.1",
            port=port,
            log_level="warning",
            timeout_graceful_shutdown=1,
            ws="websockets",
        )
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        world.stopped = True
        time.sleep(2 * world.tick)
        server.should_exit = True
        thread.join(timeout=10)
