"""Evidence on a real GPU: the memory plan against measured peaks, predicted gains against measured ones, the tuner against an
exhaustive table. Runs where a training environment is the `python3` at hand, without the dashboard's packages beyond
ruamel.yaml, omegaconf, orjson and numpy, and without a network.

    gpu_evidence.py prepare FOLDER [--tiny]      random weights of Llama-3-8B's shape and alpaca-like rows
    gpu_evidence.py all FOLDER OUT               every part that FOLDER does not hold yet, within --limit seconds

OUT has evidence.json and evidence.md after each trial, so that a run cut short leaves what it had; FOLDER/kept has them too,
and the same command goes on there. EVIDENCE_T0 (Unix seconds) is when the limit began to count.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import math
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from backend.domain.advice import Advice  # noqa: E402
from backend.domain.job import Job, JobSpec, JobState, StopMode, Task  # noqa: E402
from backend.domain.problem import ArgValue  # noqa: E402
from backend.planning.cards import find_card  # noqa: E402
from backend.planning.command import Host, build_plan  # noqa: E402
from backend.planning.lengths import Lengths, build_lengths  # noqa: E402
from backend.planning.memory import Card, plan_memory  # noqa: E402
from backend.planning.model_config import parse_model_config  # noqa: E402
from backend.planning.model_shape import ModelShape  # noqa: E402
from backend.planning.spec import apply_changes, dump_spec, parse_spec  # noqa: E402
from backend.planning.speed import SpeedContext, plan_speed  # noqa: E402
from backend.planning.steptime import Machine, predict_step  # noqa: E402
from backend.planning.variants import (  # noqa: E402
    Abilities,
    build_fix,
    describe_variant,
    packed_like,
    rows_per_step,
)
from backend.planning.workload import (  # noqa: E402
    Attention,
    Checkpointing,
    Method,
    Workload,
    build_workload,
)
from backend.services.tuning import Progress, Tuner, parse_result, report_table  # noqa: E402
from backend.store.files import append_line  # noqa: E402
from backend.store.json_lines import JsonLines  # noqa: E402
from backend.store.paths import JobPaths  # noqa: E402

WORDS = [f"w{index}" for index in range(40)]
ROWS = 3_000
SHAPE = {
    "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192, "rope_theta": 500000.0,
}  # fmt: skip
TINY = SHAPE | {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip
STARTED = time.monotonic() - max(0.0, time.time() - float(os.environ.get("EVIDENCE_T0") or time.time()))


def clock() -> float:
    """Seconds since the calling script began."""
    return time.monotonic() - STARTED


def say(*parts: object) -> None:
    print(f"[{clock():6.1f}s]", *parts, flush=True)


# --- inputs ------------------------------------------------------------------------------------------------------------


def prepare(folder: Path, *, tiny: bool) -> None:
    """Tokenizer of one token a word, rows whose lengths are like alpaca's, and weights made on the GPU."""
    if (folder / "done").exists():
        say("inputs are there already")
        return
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    special = ["<unk>", "<s>", "</s>"]
    vocabulary = {word: index for index, word in enumerate([*special, *WORDS, "Human", "Assistant", ":"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="</s>"
    )
    rng = random.Random(0)
    rows = [
        {
            "instruction": " ".join(rng.choices(WORDS, k=rng.randint(6, 20))),
            "input": "",
            "output": " ".join(rng.choices(WORDS, k=min(1000, int(rng.lognormvariate(4.55, 0.7))))),
        }
        for _ in range(ROWS if not tiny else 600)
    ]
    (folder / "rows.json").write_text(json.dumps(rows))
    (folder / "dataset_info.json").write_text(json.dumps({"rows": {"file_name": "rows.json"}}))
    config = LlamaConfig(**(TINY if tiny else SHAPE), bos_token_id=1, eos_token_id=2, pad_token_id=2)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder / "model")
    fast.save_pretrained(folder / "model")
    (folder / "done").write_text("")
    say("made a model of", sum(p.numel() for p in model.parameters()), "parameters")


def base_spec(folder: Path, **changes: object) -> JobSpec:
    """LLaMA-Factory's defaults as its examples have them: micro batch 2 x 8, LoRA on all linear layers."""
    on_gpu = gpu_memory() is not None
    train: dict[str, object] = {
        "model_name_or_path": str(folder / "model"), "stage": "sft", "do_train": True, "finetuning_type": "lora",
        "lora_target": "all", "dataset": "rows", "dataset_dir": str(folder), "template": "default", "cutoff_len": 2048,
        "per_device_train_batch_size": 2, "gradient_accumulation_steps": 8, "learning_rate": 1.0e-4,
        "num_train_epochs": 3.0, "bf16": True, "preprocessing_num_workers": 4 if on_gpu else 1, "report_to": "none",
        "max_samples": ROWS if on_gpu else 400,
    }  # fmt: skip
    if not on_gpu:
        train["use_cpu"] = True
    return JobSpec(name="evidence", train={**train, **changes})  # type: ignore[dict-item]


def gpu_memory() -> tuple[str, int] | None:
    """(name, total bytes) of the first GPU."""
    try:
        run = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return None
    name, mib = run.stdout.splitlines()[0].rsplit(",", 1)
    return name.strip(), int(mib) << 20


def row_lengths(folder: Path) -> Lengths:
    """Exact here: a token a word, and what the default template adds (measured on the first rows by the tokenizer)."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    rows = json.loads((folder / "rows.json").read_text())
    texts = [f"Human: {row['instruction']}\nAssistant: {row['output']}" for row in rows[:2000]]
    lengths = build_lengths([len(ids) + 2 for ids in tokenizer(texts)["input_ids"]], rows=len(rows))
    assert lengths is not None
    return lengths


@dataclass(frozen=True, eq=False)
class Setting:
    """What both parts of the evidence look at."""

    folder: Path
    shape: ModelShape
    lengths: Lengths
    card: Card | None
    machine: Machine = field(default_factory=Machine)

    def context(self, spec: JobSpec) -> SpeedContext:
        found = gpu_memory()
        return SpeedContext(
            spec=spec,
            work=build_workload(spec),
            shape=self.shape,
            lengths=self.lengths,
            card=self.card,
            peak=find_card(found[0]) if found else None,
            machine=self.machine,
            abilities=Abilities(liger=found is not None),
        )


def read_setting(folder: Path) -> Setting:
    found = gpu_memory()
    shape = parse_model_config((folder / "model" / "config.json").read_text())
    return Setting(folder, shape, row_lengths(folder), Card(capacity_bytes=found[1]) if found else None)


# --- trial processes ---------------------------------------------------------------------------------------------------


class LocalJobs:
    """Trial jobs as plain processes: the same plan and entry script, without worker and database."""

    def __init__(self, root: Path, devices: tuple[str, ...] = ()) -> None:
        self.root = root
        self.devices = devices
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.begun: dict[str, float] = {}

    def submit(self, spec_text: str) -> Job:
        return self.start(parse_spec(spec_text))

    def start(self, spec: JobSpec) -> Job:
        job_id = f"job-{len(list(self.root.glob('job-*')))}"
        paths = self.job_paths(job_id)
        for folder in (paths.root, paths.recorder, paths.control, paths.output):
            folder.mkdir(parents=True, exist_ok=True)
        host = Host(
            python=sys.executable,
            entry=str(ROOT / "backend/inside/train.py"),
            accelerator="cuda",
            cpu_count=os.cpu_count() or 1,
        )
        plan = build_plan(spec, job_id=job_id, job_dir=str(paths.root), host=host)
        for name, text in plan.files.items():
            (paths.root / name).write_text(text)
        with paths.console.open("wb") as console:
            self.processes[job_id] = subprocess.Popen(
                plan.argv, env={**os.environ, **plan.env}, cwd=paths.root, stdout=console, stderr=subprocess.STDOUT
            )
        self.begun[job_id] = time.time()
        return self.get_job(job_id)

    def get_job(self, job_id: str) -> Job:
        code = self.processes[job_id].poll()
        state = JobState.RUNNING if code is None else JobState.SUCCEEDED if code == 0 else JobState.FAILED
        return Job(
            id=job_id, name=job_id, state=state, started_at=self.begun[job_id], exit_code=code, devices=self.devices,
            message=self.tail(job_id, 400) if code else "",
        )  # fmt: skip

    def tail(self, job_id: str, size: int) -> str:
        return self.job_paths(job_id).console.read_text(errors="replace")[-size:]

    def job_paths(self, job_id: str) -> JobPaths:
        return JobPaths(self.root / job_id)

    def request_stop(self, job_id: str, mode: StopMode) -> Job:
        """The ranks see the file at their next step; `kill` is for those that do not come to it."""
        (self.job_paths(job_id).control / "stop.json").write_text("{}")
        if mode is StopMode.KILL:
            self.kill(job_id)
        return self.get_job(job_id)

    def kill(self, job_id: str) -> None:
        """The launcher; its ranks ask the kernel to end with it."""
        process = self.processes[job_id]
        if process.poll() is None:
            process.kill()
            process.wait()

    def kill_all(self) -> None:
        for job_id in self.processes:
            self.kill(job_id)


class Asker:
    """One trial process that is asked trial after trial; started anew when a trial took it down."""

    def __init__(self, jobs: LocalJobs, spec: JobSpec) -> None:
        self.jobs, self.spec = jobs, replace(spec, task=Task.TRIAL)
        self.job = ""
        self.results: JsonLines | None = None

    def ask(self, trial: Mapping[str, object], deadline: float) -> dict[str, object]:
        """The result line; outcome `lost` when the process died, `late` when `deadline` (clock()) came first."""
        if not self.job or self.jobs.get_job(self.job).state.is_final:
            self.job = self.jobs.start(self.spec).id
            self.results = JsonLines(self.jobs.job_paths(self.job).trials_done)
        append_line(self.jobs.job_paths(self.job).trials_asked, json.dumps(trial))
        assert self.results is not None
        while True:
            over = self.jobs.get_job(self.job).state.is_final
            for record in self.results.read_new():
                if record.get("k") == "result" and record.get("id") == trial["id"]:
                    return dict(record)
            if over:
                tail = self.jobs.tail(self.job, 600)
                say("the trial process ended:", tail)
                return {"k": "result", "id": trial["id"], "outcome": "lost", "error": tail}
            if clock() > deadline:
                self.jobs.kill(self.job)
                return {"k": "result", "id": trial["id"], "outcome": "stopped", "error": "no time left"}
            time.sleep(0.1)

    def close(self) -> None:
        if self.job and not self.jobs.get_job(self.job).state.is_final:
            append_line(self.jobs.job_paths(self.job).trials_asked, json.dumps({"end": True}))
            end = clock() + 15
            while clock() < end and not self.jobs.get_job(self.job).state.is_final:
                time.sleep(0.1)
            self.jobs.kill(self.job)


class EnergyMeter:
    """The first GPU's energy counter, read ten times a second by NVML; silent where there is none."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, float]] = []
        try:
            import pynvml

            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        except Exception as error:  # noqa: BLE001 - no NVML, no counter: the table then has a gap
            say("no energy counter:", error)
            return

        def read() -> None:
            while True:
                self.samples.append((time.time(), pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000))
                time.sleep(0.1)

        threading.Thread(target=read, daemon=True).start()

    def joules(self, _devices: Sequence[str], begin: float, end: float) -> float | None:
        if len(self.samples) < 2 or begin < self.samples[0][0] or end > self.samples[-1][0] + 0.3:
            return None
        times, values = zip(*self.samples, strict=True)
        return float(np.interp(end, times, values) - np.interp(begin, times, values))


# --- what is measured ----------------------------------------------------------------------------------------------------


def reduced_grid(context: SpeedContext) -> list[Workload]:
    """All of batch shape x Liger x checkpointing with sdpa at the same rows a step; defaults first, then the packed ones."""
    work, lengths, shape = context.work, context.lengths, context.shape
    assert lengths is not None and shape is not None

    def rate(each: Workload) -> float:
        return predict_step(shape, each, lengths, context.machine).tokens_per_second

    packed: dict[int, Workload] = {}
    for each in packed_like(work, lengths, longest=shape.max_positions):
        known = packed.get(each.effective_batch)
        if each.accumulation == 1 and (known is None or rate(each) > rate(known)):
            packed[each.effective_batch] = each
    best = sorted(packed.values(), key=rate, reverse=True)[:3]
    shapes = [*best, replace(work, micro_batch=16, accumulation=1), replace(work, micro_batch=4, accumulation=4), work]
    grid = [
        replace(each, liger=liger, checkpointing=checkpointing)
        for each in shapes
        for liger in (True, False)
        for checkpointing in (Checkpointing.NONE, Checkpointing.LAYERS)
    ]
    return list(dict.fromkeys([work, *grid]))


def other_lengths(work: Workload) -> list[Workload]:
    """More of memory: lengths and micro batches that do not keep the rows of a step, and eager attention."""
    packed = replace(work, accumulation=1, packing=True)
    none = Checkpointing.NONE
    return [
        replace(packed, micro_batch=4, cutoff=2048, liger=True, checkpointing=none),
        replace(packed, micro_batch=8, cutoff=2048, liger=True),
        replace(packed, micro_batch=4, cutoff=2048),
        replace(work, attention=Attention.EAGER),
        replace(packed, micro_batch=2, cutoff=4096, liger=True, checkpointing=none),
        replace(packed, micro_batch=7, cutoff=2048, liger=True, checkpointing=none),
        replace(packed, micro_batch=1, cutoff=2048, attention=Attention.EAGER),
        replace(packed, micro_batch=1, cutoff=8192, liger=True),
    ]


def other_methods(work: Workload) -> list[Workload]:
    """Trained weights of the model itself: each needs the model loaded anew."""
    packed = replace(work, accumulation=1, packing=True, liger=True, cutoff=2048)
    return [
        replace(packed, method=Method.FULL, pure_bf16=True, bf16_or_fp16=True, micro_batch=2),
        replace(packed, method=Method.FREEZE, freeze_layers=4, micro_batch=4),
    ]


def zero_works(work: Workload) -> list[Workload]:
    """What tutorials recommend; each needs a process of its own."""
    four = replace(work, micro_batch=4, accumulation=4)
    return [replace(four, zero_stage=3), replace(four, zero_stage=2)]


def quantized_works(work: Workload) -> list[Workload]:
    """QLoRA with bitsandbytes: 4 and 8 bit, blocks and padded rows, with and without checkpointing and double quantization."""
    four = replace(work, accumulation=1, packing=True, cutoff=2048, micro_batch=2, liger=True, quantization_bits=4)
    return [
        four,
        replace(four, liger=False, micro_batch=1),
        replace(four, checkpointing=Checkpointing.NONE),
        replace(work, quantization_bits=4),
        replace(four, micro_batch=8, cutoff=2048),
        replace(four, quantization_bits=8),
        replace(four, quantization_bits=8, checkpointing=Checkpointing.NONE, micro_batch=1),
        replace(four, double_quantization=False),
    ]


def name_of(work: Workload) -> str:
    """The settings of a row, as tables and lookups name them."""
    bits = f" {work.quantization_bits}-bit" if work.quantization_bits else ""
    single = ", single quantization" if work.quantization_bits == 4 and not work.double_quantization else ""
    return f"{work.method.value}{bits} {describe_variant(work)}{single}"


def method_changes(work: Workload) -> dict[str, object]:
    if work.quantization_bits:
        return {"quantization_bit": work.quantization_bits, "double_quantization": work.double_quantization}
    if work.method is Method.FREEZE:
        return {"finetuning_type": "freeze", "freeze_trainable_layers": work.freeze_layers}
    if work.method is Method.FULL:
        return {"finetuning_type": "full", "pure_bf16": True, "bf16": False}
    return {}


def advice_starts(context: SpeedContext) -> list[Workload]:
    """Configurations whose advice is compared with measurements."""
    work, grid = context.work, reduced_grid(context)
    packed = next(each for each in grid if each.packing)
    return [
        work,
        replace(work, attention=Attention.EAGER),
        replace(packed, liger=False, checkpointing=Checkpointing.LAYERS),
        replace(work, micro_batch=16, accumulation=1),
        *zero_works(work),
    ]


@functools.cache
def advised(setting: Setting) -> list[tuple[Workload, Advice, Workload]]:
    """(start, advice, what the advice alone makes of it) for every advice that says a gain."""
    context = setting.context(base_spec(setting.folder))
    found = []
    for start in advice_starts(context):
        text = apply_changes(dump_spec(context.spec), start_changes(context.work, start), [])
        spec = parse_spec(text)
        plan = plan_speed(replace(context, spec=spec, work=build_workload(spec)))
        for advice in plan.advices:
            if advice.gain is None or advice.fix is None:
                continue
            removed = [name for name in advice.fix.remove if name in spec.train or name == "tunedeck.zero"]
            after = build_workload(parse_spec(apply_changes(text, advice.fix.set, removed)))
            found.append((build_workload(spec), advice, after))
    return found


def start_changes(work: Workload, start: Workload) -> dict[str, ArgValue]:
    return dict(build_fix(work, start).set)


@dataclass
class Evidence:
    """Everything measured so far; on disk after each trial, and read back by the next call on the same machine."""

    setting: Setting
    out: Path
    keep: Path
    rows: list[dict[str, object]] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)

    def load(self) -> None:
        if (self.keep / "evidence.json").exists():
            known = json.loads((self.keep / "evidence.json").read_text())
            self.rows, self.facts = known["rows"], known["facts"]
            say("goes on with", len(self.rows), "rows; parts done:", self.facts.get("parts"))

    def done(self, part: str, *, limit: bool = False) -> None:
        self.facts.setdefault("parts", {})[part] = "cut short" if limit else round(clock(), 1)  # type: ignore[index]
        self.save()

    def is_done(self, part: str) -> bool:
        return self.facts.get("parts", {}).get(part, "cut short") != "cut short"  # type: ignore[attr-defined]

    def has(self, part: str, label: str) -> bool:
        return any(
            row["part"] == part and row["settings"] == label and row["outcome"] != "stopped" for row in self.rows
        )

    def add(self, part: str, work: Workload, record: Mapping[str, object], energy: float | None = None) -> None:
        row = measured_row(self.setting, part, work, record, energy)
        self.rows.append(row)
        brief = (
            "settings",
            "outcome",
            "tokens_per_second",
            "predicted_tokens_per_second",
            "measured_gib",
            "planned_gib",
        )
        say(part, *(row[name] for name in brief), "wall", row["wall_seconds"], str(row["message"])[:200])
        self.save()

    def save(self) -> None:
        text = json.dumps({"facts": self.facts, "rows": self.rows}, indent=1)
        for folder in (self.keep, self.out):
            (folder / "evidence.json.new").write_text(text)
            (folder / "evidence.json.new").replace(folder / "evidence.json")
        (self.out / "evidence.md").write_text(report(self.setting, self.rows, self.facts))


def measured_row(
    setting: Setting, part: str, work: Workload, record: Mapping[str, object], energy: float | None
) -> dict[str, object]:
    result = parse_result(record, energy)
    steps = len(result.step_seconds) + len(record.get("warm_seconds") or [])  # type: ignore[arg-type]
    before = plan_memory(setting.shape, work, setting.lengths, setting.card)
    trial = plan_memory(
        setting.shape, work, setting.lengths, setting.card, micro_batches=max(1, steps * work.accumulation)
    )
    met = record.get("longest")
    exact = build_lengths([int(str(met))] * 8) if met and not work.packing else setting.lengths
    plan = plan_memory(setting.shape, work, exact, setting.card)
    predicted = predict_step(setting.shape, work, setting.lengths, setting.machine)
    peak, reserved = result.peak_bytes, record.get("reserved_bytes")
    tokens = sum(count or 0 for count in result.tokens)
    return {
        "part": part,
        "settings": name_of(work),
        "outcome": result.outcome.value,
        "planned_gib": gib(plan.allocated),
        "planned_band_gib": [gib(value) for value in (plan.low, plan.used, plan.high)],
        "planned_for_trial_gib": gib(trial.allocated),
        "planned_before_launch_gib": gib(before.allocated),
        "fits": before.fits,
        "measured_gib": gib(peak),
        "reserved_gib": gib(int(str(reserved))) if reserved else None,
        "loaded_gib": gib(int(str(record["loaded_bytes"]))) if record.get("loaded_bytes") else None,
        "error": None if peak is None else round(plan.allocated / peak - 1, 4),
        "error_for_trial": None if peak is None else round(trial.allocated / peak - 1, 4),
        "longest_met": met,
        "rows_per_step": round(rows_per_step(work, setting.lengths), 2),
        "tokens_per_second": rounded(result.tokens_per_second, 1),
        "spread": rounded(result.spread, 3),
        "joules_per_token": round(energy / tokens, 5) if energy is not None and tokens else None,
        "predicted_tokens_per_second": round(predicted.tokens_per_second, 1),
        "warm_seconds": record.get("warm_seconds"),
        "step_seconds": [round(value, 4) for value in result.step_seconds],
        "predicted_parts": {
            name: round(getattr(predicted, name), 4)
            for name in ("seconds", "launch", "matmul", "attention", "traffic", "zero")
        },
        "padding": list(result.padding),
        "wall_seconds": round(result.wall_seconds, 1),
        "at": round(clock(), 1),
        "message": result.error,
    }  # fmt: skip


def gib(value: int | None) -> float | None:
    return None if value is None else round(value / 2**30, 3)


def rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


# --- parts ---------------------------------------------------------------------------------------------------------------


@dataclass
class Call:
    """One call of the script: what it may spend, and where its trial processes run."""

    evidence: Evidence
    jobs: LocalJobs
    spec: JobSpec
    limit: float
    """clock() at which everything must be over."""
    meter: EnergyMeter

    def measure(self, asker: Asker, part: str, works: Sequence[Workload], *, steps: int, seconds: float) -> bool:
        """Rows of `works` that are not there yet; False when the time was up before all were measured."""
        base = build_workload(self.spec)
        for work in works:
            label = name_of(work)
            if self.evidence.has(part, label):
                continue
            if self.limit - clock() < (12 if asker.job else 50):
                return False
            changes = {name: value for name, value in build_fix(base, work).set.items() if "tunedeck." not in name}
            asked = {
                "id": f"{part}-{len(self.evidence.rows)}", "changes": {**changes, **method_changes(work)}, "warm_up": 2,
                "steps": steps, "seconds": seconds,
            }  # fmt: skip
            record = asker.ask(asked, self.limit)
            begin, end = record.get("from"), record.get("to")
            known = isinstance(begin, float) and isinstance(end, float)
            self.evidence.add(part, work, record, self.meter.joules((), begin, end) if known else None)  # type: ignore[arg-type]
        return True


def run_all(folder: Path, out: Path, keep: Path, limit: float, budget: float) -> None:
    """All parts in order; each one that an earlier call on this machine finished is left out."""
    setting = read_setting(folder)
    evidence = Evidence(setting, out, keep)
    evidence.load()
    evidence.facts |= {"device": gpu_memory(), "mean_tokens": round(setting.lengths.mean, 1)}
    found = gpu_memory()
    jobs = LocalJobs(keep / "jobs", ("gpu0",) if found else ())
    call = Call(evidence, jobs, base_spec(folder), limit, EnergyMeter())
    asker = Asker(jobs, call.spec)
    watchdog = threading.Timer(max(1.0, limit - clock()), jobs.kill_all)
    watchdog.daemon = True
    watchdog.start()
    try:
        run_parts(call, asker, budget)
    finally:
        asker.close()
        jobs.kill_all()
        evidence.save()
        keep_consoles(jobs, out)
        say("SUMMARY", json.dumps(summarize(setting, evidence.rows, evidence.facts)))


def run_parts(call: Call, asker: Asker, budget: float) -> None:
    evidence = call.evidence
    context = evidence.setting.context(call.spec)
    grid = reduced_grid(context)
    lora = [work for _, _, after in advised(evidence.setting) for work in (after,) if work.zero_stage is None]
    parts: list[tuple[str, Callable[[], bool]]] = [
        # The first seconds of a fresh card are slow: not a measurement of anything.
        ("warm-up", lambda: call.measure(asker, "warm-up", [grid[1]], steps=12, seconds=15)),
        ("grid", lambda: call.measure(asker, "grid", grid, steps=6, seconds=7)),
        ("pairs", lambda: run_pairs(call, asker, context)),
        ("tuner", lambda: run_tuner(call, budget)),
        ("confirm", lambda: confirm(call, asker)),
        ("lengths", lambda: call.measure(asker, "lengths", other_lengths(context.work), steps=3, seconds=6)),
        ("advice", lambda: call.measure(asker, "advice", unmeasured(evidence, lora), steps=4, seconds=6)),
        ("methods", lambda: call.measure(asker, "methods", other_methods(context.work), steps=3, seconds=8)),
        ("quantized", lambda: run_quantized(call, asker, context)),
        ("zero", lambda: run_zero(call, asker, context)),
        ("host check", lambda: run_host_check(call)),
    ]
    wanted = [name.strip() for name in os.environ.get("PARTS", "").split(",") if name.strip()]
    for name, run in parts:
        if evidence.is_done(name) or (wanted and name not in wanted):
            continue
        say("PART", name)
        evidence.done(name, limit=not run())
        if clock() > call.limit - 15:
            say("time is up")
            return


def unmeasured(evidence: Evidence, works: Sequence[Workload]) -> list[Workload]:
    known = rates(evidence.rows)
    wanted = [work for work in works if name_of(work) not in known]
    return list(dict.fromkeys(wanted))


def run_tuner(call: Call, budget: float) -> bool:
    """The product's tuner from the defaults, in a process of its own, beside the idle one of the grid."""
    budget = min(budget, call.limit - clock() - 15)
    if budget < 60 and gpu_memory():
        return False
    evidence, works = call.evidence, {}

    def told(progress: Progress) -> None:
        say(progress.event, progress.text)
        if progress.trial is not None:
            works[progress.trial.id] = progress.trial.work

    tuner = Tuner(
        call.jobs,
        KnownForecast(evidence.setting),
        budget_seconds=budget,
        on_progress=told,
        read_energy=call.meter.joules,
    )  # type: ignore[arg-type]
    report_ = tuner.run(dump_spec(call.spec))
    say(report_table(report_))
    evidence.facts["tuner"] = {
        "seconds": round(report_.seconds, 1),
        "budget_seconds": round(budget),
        "trials": sum(row.result is not None for row in report_.rows),
        "candidates": len(report_.rows),
        "gain": rounded(report_.gain, 3),
        "best": f"lora {report_.best.label}" if report_.best else None,
        "best_rows_per_step": report_.best.rows_per_step if report_.best else None,
        "best_changes": dict(report_.best_fix.set) if report_.best_fix else None,
        "table": report_table(report_),
        "stopped": report_.stopped,
    }
    if report_.best:
        evidence.facts["tuner_best_changes"] = dict(report_.best.fix.set)
    for job_id in tuner.jobs:
        for record in JsonLines(call.jobs.job_paths(job_id).trials_done).read_new():
            if record.get("k") == "result" and record["id"] in works:
                evidence.add("tuner", works[str(record["id"])], record)
    return True


def confirm(call: Call, asker: Asker) -> bool:
    """Defaults, the tuner's choice and the best of the grid three times in turn in one process: noise seen, not guessed."""
    evidence = call.evidence
    changes = evidence.facts.get("tuner_best_changes")
    if not isinstance(changes, dict):
        return True
    spec = parse_spec(apply_changes(dump_spec(call.spec), changes, []))
    measured = {f"lora {describe_variant(work)}": work for work in reduced_grid(evidence.setting.context(call.spec))}
    grid = [row for row in evidence.rows if row["part"] == "grid" and row["tokens_per_second"]]
    leaders = sorted(grid, key=lambda row: -float(str(row["tokens_per_second"])))[:2]
    works = [build_workload(spec), *(measured[str(row["settings"])] for row in leaders)]
    works = list(dict.fromkeys(works))
    whole = True
    for turn in range(3):
        whole = whole and call.measure(asker, f"confirm-{turn}", works, steps=12, seconds=8)
    return whole and call.measure(asker, "confirm-0", [build_workload(call.spec)], steps=4, seconds=14)


def run_pairs(call: Call, asker: Asker, context: SpeedContext) -> bool:
    """Configurations that advice compares, one right after the other and twice in turn: a shared host's pace drifts."""
    work, none = context.work, Checkpointing.NONE
    packed = replace(next(each for each in reduced_grid(context) if each.packing), liger=False)
    packed = replace(packed, checkpointing=Checkpointing.LAYERS)
    whole = replace(work, micro_batch=16, accumulation=1)
    eight = replace(work, micro_batch=8, accumulation=2)
    plain = [
        work, replace(work, liger=True), replace(work, checkpointing=none), replace(work, attention=Attention.EAGER), eight,
        packed,
    ]  # fmt: skip
    large = [whole, replace(whole, liger=True), replace(whole, checkpointing=none), eight]
    blocks = [packed, replace(packed, liger=True), replace(packed, checkpointing=none)]
    blocks.append(replace(packed, checkpointing=none, liger=True))
    done = True
    for turn, works, steps in (
        (0, blocks, 6),
        (1, blocks, 6),
        (2, plain, 2),
        (3, large, 4),
        (4, large, 4),
        (5, plain, 2),
    ):
        done = done and call.measure(asker, f"pairs-{turn}", works, steps=steps, seconds=9)
    return done


def run_quantized(call: Call, asker: Asker, context: SpeedContext) -> bool:
    """QLoRA where bitsandbytes is there; without it the part is done and its rows are missing."""
    if importlib.util.find_spec("bitsandbytes") is None or gpu_memory() is None:
        say("no bitsandbytes: QLoRA is not measured")
        return True
    return call.measure(asker, "quantized", quantized_works(context.work), steps=3, seconds=8)


def run_zero(call: Call, asker: Asker, context: SpeedContext) -> bool:
    """ZeRO as tutorials have it: jobs of their own; the idle process is closed, so that timings have the host to themselves."""
    asker.close()
    works = zero_works(context.work) if gpu_memory() else []
    for work in works:
        text = apply_changes(dump_spec(call.spec), start_changes(context.work, work), [])
        spec = parse_spec(text)
        own = Asker(call.jobs, spec)
        try:
            if not call.measure(own, "zero", [build_workload(spec)], steps=3, seconds=15):
                return False
        finally:
            own.close()
    return True


def run_host_check(call: Call) -> bool:
    """What this card does at best: matrix products, memory, launches."""
    if call.limit - clock() < 45:
        return False
    job = call.jobs.start(JobSpec(name="host-check", train={}, task=Task.BENCH))
    end = min(call.limit, clock() + 90)
    while clock() < end and not call.jobs.get_job(job.id).state.is_final:
        time.sleep(0.2)
    call.jobs.kill(job.id)
    answer = call.jobs.job_paths(job.id).bench
    if answer.exists():
        call.evidence.facts["host_check"] = json.loads(answer.read_text())
        say("host check", answer.read_text()[:600])
    return answer.exists()


def keep_consoles(jobs: LocalJobs, out: Path) -> None:
    with (out / "consoles.log").open("w", errors="replace") as stream:
        for job_id in sorted(path.name for path in jobs.root.glob("job-*")):
            stream.write(f"==== {job_id}\n{jobs.tail(job_id, 150_000)}\n")


# --- the report ----------------------------------------------------------------------------------------------------------


def rates(rows: Sequence[Mapping[str, object]], parts: Sequence[str] = ()) -> dict[str, float]:
    """Settings to tokens/s: median of what was measured (trials of the tuner's own process left out)."""
    found: dict[str, list[float]] = {}
    for row in rows:
        part = str(row["part"])
        if row["tokens_per_second"] and part not in ("warm-up", "tuner") and (not parts or part.split("-")[0] in parts):
            found.setdefault(str(row["settings"]), []).append(float(str(row["tokens_per_second"])))
    return {name: statistics.median(values) for name, values in found.items()}


def summarize(setting: Setting, rows: Sequence[Mapping[str, object]], facts: Mapping[str, object]) -> dict[str, object]:
    measured = [row for row in rows if row["error"] is not None and row["outcome"] == "ok"]
    by_settings = {str(row["settings"]): row for row in measured}
    errors = sorted(abs(float(str(row["error"]))) for row in by_settings.values())
    for_trial = sorted(abs(float(str(row["error_for_trial"]))) for row in by_settings.values())
    gains = gain_table(setting, rows)
    large = [gain for gain in gains if max(gain["measured"], 1 / gain["measured"]) > 1.2]
    return {
        "memory": {
            "configurations": len(errors),
            "median_error": rounded(statistics.median(errors), 4) if errors else None,
            "worst_error": rounded(errors[-1], 4) if errors else None,
            "median_error_without_knowing_the_lengths_met": statistics.median(for_trial) if errors else None,
            "predicted_to_fit_but_out_of_memory": [r["settings"] for r in rows if r["outcome"] == "oom" and r["fits"]],
        },
        "advice": {
            "compared": len(gains),
            "sign_right": sum(gain["sign_right"] for gain in gains),
            "above_20_percent": len(large),
            "within_factor_1.5": sum(gain["within_1.5"] for gain in large),
        },
        "tuner": tuner_summary(setting, rows, facts),
        "parts": facts.get("parts"),
    }


def tuner_summary(
    setting: Setting, rows: Sequence[Mapping[str, object]], facts: Mapping[str, object]
) -> dict[str, object]:
    tuner = facts.get("tuner")
    if not isinstance(tuner, dict):
        return {}
    grid, again, everything = rates(rows, ["grid", "pairs"]), rates(rows, ["confirm"]), rates(rows)
    grid_best = max(grid, key=lambda name: everything[name], default=None)
    best, base = tuner["best"], f"lora {describe_variant(build_workload(base_spec(setting.folder)))}"
    own = again.get(best) or everything.get(best)
    return {
        "seconds": tuner["seconds"],
        "trials": tuner["trials"],
        "gain_by_tuner": tuner["gain"],
        "best": best,
        "best_tokens_per_second": own,
        "grid_size": len(grid),
        "grid_best": grid_best,
        "grid_best_tokens_per_second": everything.get(grid_best) if grid_best else None,
        "share_of_grid_best": 1.0
        if best == grid_best
        else round(own / everything[grid_best], 4)
        if own and grid_best
        else None,
        "times_defaults": round(own / everything[base], 3) if own and everything.get(base) else None,
    }


def gain_table(setting: Setting, rows: Sequence[Mapping[str, object]]) -> list[dict[str, Any]]:
    """Each advice's predicted gain beside the measured one, where both ends were measured."""
    paired = rates(rows, ["pairs"])
    known, table = rates(rows, ["grid", "lengths", "advice", "methods", "zero"]), []
    for start, advice, after in advised(setting):
        names = [name_of(work) for work in (start, after)]
        found = paired if all(name in paired for name in names) else known
        if not all(name in found for name in names):
            continue
        assert advice.gain is not None
        measured, predicted = found[names[1]] / found[names[0]], advice.gain
        table.append(
            {
                "start": names[0],
                "advice": advice.code,
                "after": names[1],
                "predicted": round(predicted, 3),
                "measured": round(measured, 3),
                "paired": found is paired,
                "sign_right": measured > 1,
                "within_1.5": abs(math.log(measured / predicted)) < math.log(1.5),
            }
        )
    return table


def report(setting: Setting, rows: Sequence[Mapping[str, object]], facts: Mapping[str, object]) -> str:
    lines = ["## Summary", "", "```json", json.dumps(summarize(setting, rows, facts), indent=1), "```", ""]
    gains = gain_table(setting, rows)
    lines += ["## Advice: predicted and measured gain", "", *markdown(gains)] if gains else []
    for part in dict.fromkeys(str(row["part"]) for row in rows):
        names = (
            "settings", "outcome", "tokens_per_second", "spread", "predicted_tokens_per_second", "rows_per_step",
            "joules_per_token", "measured_gib", "planned_gib", "error", "planned_before_launch_gib", "longest_met",
        )  # fmt: skip
        chosen = [row for row in rows if row["part"] == part]
        lines += ["", f"## {part}", "", *markdown([{name: row.get(name) for name in names} for row in chosen])]
    tuner = facts.get("tuner")
    lines += ["", "## Tuner's own table", "", str(tuner["table"])] if isinstance(tuner, dict) else []
    return "\n".join(lines) + "\n"


def markdown(rows: Sequence[Mapping[str, object]]) -> list[str]:
    names = list(rows[0])
    body = ["| " + " | ".join("-" if row[name] is None else str(row[name]) for name in names) + " |" for row in rows]
    return ["| " + " | ".join(names) + " |", "|" + "---|" * len(names), *body]


class KnownForecast:
    """Stands in for services.forecast.Forecaster: shape, lengths and card are known here."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.environments = self
        self.benches = self
        self.row_lengths = self

    def describe(self, _name: str = "") -> None:
        return None

    def count(self, _spec: JobSpec) -> None:
        return None

    def latest(self) -> None:
        return None

    def context(self, spec: JobSpec, _devices: object = ()) -> tuple[SpeedContext, list[str]]:
        return self.setting.context(spec), []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("prepare", "all"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?", default=Path())
    parser.add_argument("--tiny", action="store_true", help="a toy model, to try the script on a CPU")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds from the start of the script to its end")
    parser.add_argument("--budget", type=float, default=240.0, help="seconds the tuner may take")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.part == "prepare":
        prepare(options.folder, tiny=options.tiny)
    else:
        keep = options.folder / "kept"
        keep.mkdir(exist_ok=True)
        run_all(options.folder, options.out, keep, options.limit, options.budget)


if __name__ == "__main__":
    main()
