"""Runs on a host with real GPUs through Tunedeck's own command line: leases, ZeRO stages, stop and resume, a killed rank.

    python benchmarks/gpu_evidence.py OUT     (training stack and the dashboard's libraries importable by this Python; offline)

An 8B-shaped Llama with random weights and alpaca-like lengths. Prints a line per run; OUT gets evidence.json and the logs' ends.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
WORK = Path("/tmp/tunedeck-evidence")
DECK = WORK / "deck"
ENV = {
    **os.environ,
    "TUNEDECK_DATA": str(DECK),
    "TUNEDECK_TRAINING_PYTHON": sys.executable,
    "DISABLE_VERSION_CHECK": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
FAST = {
    "packing": True,
    "enable_liger_kernel": True,
    "disable_gradient_checkpointing": True,
    "gradient_accumulation_steps": 1,
}
WARM_UP_STEPS = 3
MAKE_MODEL = """
import sys, torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
torch.set_default_dtype(torch.bfloat16)
shape = dict(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
             num_key_value_heads=8, max_position_embeddings=8192, rope_theta=500000.0)
with torch.device("cuda"):
    model = LlamaForCausalLM(LlamaConfig(**shape))
model.save_pretrained(sys.argv[2])
tokenizer.save_pretrained(sys.argv[2])
"""
found: dict[str, Any] = {}


def deck(*arguments: str) -> Any:
    """One command of app.py; its JSON."""
    command = [sys.executable, str(REPOSITORY / "app.py"), *arguments, "--json"]
    done = subprocess.run(command, env=ENV, capture_output=True, text=True)
    if not done.stdout.strip():
        raise SystemExit(f"{arguments}: exit code {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def output_of(*command: str) -> str:
    return subprocess.run(command, env=ENV, capture_output=True, text=True).stdout.strip()


def make_inputs() -> None:
    """Demo inputs of the project, then the large model on the GPU (its tokenizer is the demo's) and its data."""
    subprocess.run([sys.executable, str(REPOSITORY / "scripts/make_demo.py"), str(WORK / "demo")], env=ENV, check=True)
    subprocess.run([sys.executable, "-c", MAKE_MODEL, str(WORK / "demo/model"), str(WORK / "m8b")], env=ENV, check=True)
    chance, words, rows = random.Random(0), [f"w{number}" for number in range(40)], []
    for _ in range(6000):
        length = min(700, int(chance.lognormvariate(4.2, 0.7)))
        question, answer = chance.choices(words, k=12), chance.choices(words, k=length // 2)
        rows.append({"instruction": " ".join(question), "input": "", "output": " ".join(answer)})
    (WORK / "data").mkdir(exist_ok=True)
    (WORK / "data/alpaca_like.json").write_text(json.dumps(rows))
    (WORK / "data/dataset_info.json").write_text(json.dumps({"alpaca_like": {"file_name": "alpaca_like.json"}}))


def submit(name: str, processes: int, zero: int | None = None, model: str = "m8b", **train: Any) -> str:
    """Queue a job; its id."""
    document = {
        "tunedeck": {"name": name, "processes": processes, "zero": {"stage": zero}},
        "model_name_or_path": str(WORK / model),
        "stage": "sft",
        "finetuning_type": "lora",
        "lora_target": "all",
        "dataset": "alpaca_like",
        "dataset_dir": str(WORK / "data"),
        "template": "llama3",
        "cutoff_len": 2048,
        "max_samples": 6000,
        "preprocessing_num_workers": 8,
        "flash_attn": "sdpa",
        "bf16": True,
        "learning_rate": 0.0001,
        "logging_steps": 1,
        "save_strategy": "no",
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 4,
        **train,
    }
    path = WORK / f"{name}.yaml"
    path.write_text(json.dumps(document))
    return str(deck("submit", str(path))["job"]["id"])


def until_step(job_id: str, step: int, seconds: float = 200) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        job = deck("show", job_id)["job"]
        if (job["step"] or 0) >= step or job["state"] in ("succeeded", "failed", "cancelled", "lost"):
            return
        time.sleep(0.5)
    print(job_id, "did not reach step", step, flush=True)


def finish(name: str, job_id: str, out: Path) -> None:
    """Wait for the end, then keep what the recorders say of the steps behind the warm-up."""
    job = deck("wait", job_id, "--timeout", "220")["job"]
    folder = DECK / "jobs" / job_id
    ranks = [measure_rank(path) for path in sorted((folder / "recorder").glob("rank-*.jsonl"))]
    seconds = max((rank["seconds"] for rank in ranks), default=0.0)
    speed = sum(rank["tokens"] for rank in ranks) / seconds if seconds else None
    variables = json.loads((folder / "plan.json").read_text())["env"]
    visible = {key: value for key, value in variables.items() if "VISIBLE" in key}
    found[name] = {"job": job, "visible": visible, "ranks": ranks, "tokens_per_second": speed}
    print(
        *(name, job["state"], job["reason"], "step", job["step"], "tokens/s", speed and round(speed), "seconds/step"),
        *(
            [rank["median_seconds"] for rank in ranks],
            "peak GiB",
            [round(rank["peak_gib"], 2) for rank in ranks],
            visible,
        ),
        flush=True,
    )
    (out / f"{name}.log").write_bytes((folder / "console.log").read_bytes()[-100_000:])


def measure_rank(path: Path) -> dict[str, Any]:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    steps = [record for record in records if record["k"] == "step"]
    steady = steps[WARM_UP_STEPS:]
    tokens, padding = (sum(record[key] or 0 for record in steady) for key in ("tok", "pad"))
    return {
        "steps": [record["s"] for record in steps],
        "median_seconds": statistics.median(record["dt"] for record in steady) if steady else None,
        "tokens": tokens,
        "padding_share": padding / max(1, tokens + padding),
        "seconds": sum(record["dt"] for record in steady),
        "peak_gib": max((record["mem"] or 0 for record in steps), default=0) / 2**30,
    }


def compare_telemetry(name: str) -> None:
    """Our readings against nvidia-smi's within the same second."""
    fields = "pci.bus_id,utilization.gpu,memory.used,power.draw,temperature.gpu,clocks.sm"
    ours = deck("gpus")
    theirs = output_of("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits").splitlines()
    found[name] = {"ours": ours, "nvidia_smi_fields": fields, "nvidia_smi": theirs}
    print(name, *theirs, json.dumps(ours)[:1500], sep="\n", flush=True)


def kill_rank(job_id: str, rank: int) -> None:
    lines = (DECK / "jobs" / job_id / "recorder" / f"rank-{rank}.jsonl").read_text().splitlines()
    start = next(record for line in lines if (record := json.loads(line))["k"] == "start")
    os.kill(start["pid"], signal.SIGKILL)


def main(out: Path) -> None:
    WORK.mkdir(exist_ok=True)
    began = time.monotonic()
    make_inputs()
    print("inputs made after", round(time.monotonic() - began), "s", flush=True)
    count = len(output_of("nvidia-smi", "-L").splitlines())
    tiny = {"model": "demo/model", "dataset": "demo", "dataset_dir": str(WORK / "demo/data"), "template": "chatml"}
    warm = submit(
        "warm-up", 1, **tiny, max_steps=20
    )  # also starts the worker, whose sampler has to see the cards first
    while len(deck("gpus").get("gpus", [])) < count and time.monotonic() - began < 180:
        time.sleep(1)
    finish("warm_up", warm, out)
    side = [submit(f"side-{number}", 1, **tiny, max_steps=60) for number in range(count)]
    for number, job_id in enumerate(side):
        finish(f"side_{number}", job_id, out)

    fast = submit("fast", count, **FAST, max_steps=400)
    until_step(fast, 14)
    compare_telemetry("telemetry_while_training")
    deck("stop", fast)
    finish("fast_stopped", fast, out)
    last = found["fast_stopped"]["job"]["step"] or 0
    finish("fast_resumed", str(deck("resume", fast, "--set", f"max_steps={last + 5}")["job"]["id"]), out)
    if count > 1:
        doomed = submit("killed-rank", count, **FAST, max_steps=400)
        until_step(doomed, 5)
        kill_rank(doomed, 1)
        finish("killed_rank", doomed, out)
    finish("zero2", submit("zero2", count, 2, max_steps=10), out)
    finish("zero3", submit("zero3", count, 3, max_steps=7), out)
    found["total_seconds"] = time.monotonic() - began


if __name__ == "__main__":
    target = Path(sys.argv[1])
    try:
        main(target)
    finally:
        (target / "evidence.json").write_text(json.dumps(found, indent=1, default=str))
