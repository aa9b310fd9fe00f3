"""Evidence on a real GPU: the memory plan against measured peaks, predicted gains against measured ones, the tuner against an
exhaustive table. Runs where a training environment is the `python3` at hand, without the dashboard's packages beyond
ruamel.yaml, omegaconf, orjson and numpy, and without a network.

    gpu_evidence.py prepare FOLDER [--tiny]      random weights of Llama-3-8B's shape and alpaca-like rows
    gpu_evidence.py memory FOLDER OUT            grid of at least 12 configurations: peak and tokens/s beside the estimates
    gpu_evidence.py tuner FOLDER OUT             tuner from the defaults, then a reduced exhaustive table

OUT gets JSON and Markdown; progress goes to stdout as it happens, so that a run cut short leaves what it had.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from backend.domain.job import Job, JobSpec, JobState, StopMode  # noqa: E402
from backend.planning.cards import find_card  # noqa: E402
from backend.planning.command import Host, build_plan  # noqa: E402
from backend.planning.lengths import Lengths, build_lengths  # noqa: E402
from backend.planning.memory import Card, plan_memory  # noqa: E402
from backend.planning.model_config import parse_model_config  # noqa: E402
from backend.planning.model_shape import ModelShape  # noqa: E402
from backend.planning.spec import parse_spec  # noqa: E402
from backend.planning.speed import SpeedContext, plan_speed  # noqa: E402
from backend.planning.steptime import Machine, predict_step  # noqa: E402
from backend.planning.tuning import Outcome, Trial, TrialResult, begin_search  # noqa: E402
from backend.planning.variants import Abilities, build_fix, describe_variant, packed_like  # noqa: E402
from backend.planning.workload import (  # noqa: E402
    Attention,
    Checkpointing,
    Method,
    Workload,
    build_workload,
)
from backend.services.tuning import Progress, Tuner, _summary, parse_result, report_table  # noqa: E402
from backend.store.paths import JobPaths  # noqa: E402

WORDS = [f"w{index}" for index in range(40)]
ROWS = 12_000
SHAPE = {
    "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192, "rope_theta": 500000.0,
}  # fmt: skip
TINY = SHAPE | {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip
STARTED = time.monotonic()


def say(*parts: object) -> None:
    print(f"[{time.monotonic() - STARTED:6.1f}s]", *parts, flush=True)


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
        "num_train_epochs": 3.0, "bf16": True, "preprocessing_num_workers": 8 if on_gpu else 1, "report_to": "none",
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


@dataclass(frozen=True)
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

    def __init__(self, root: Path) -> None:
        self.root = root
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.begun: dict[str, float] = {}

    def submit(self, spec_text: str) -> Job:
        return self.start(parse_spec(spec_text))

    def start(self, spec: JobSpec) -> Job:
        job_id = f"job-{len(self.processes)}"
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
        tail = self.job_paths(job_id).console.read_text(errors="replace")[-400:] if code else ""
        return Job(id=job_id, name=job_id, state=state, started_at=self.begun[job_id], exit_code=code, message=tail)

    def job_paths(self, job_id: str) -> JobPaths:
        return JobPaths(self.root / job_id)

    def request_stop(self, job_id: str, mode: StopMode) -> Job:
        self.processes[job_id].terminate()
        return self.get_job(job_id)


def run_trials(jobs: LocalJobs, spec: JobSpec, asked: Sequence[Mapping[str, object]]) -> Iterator[dict[str, object]]:
    """Result lines of one trial process, in the order they come; a process that dies leaves the rest out."""
    from backend.domain.job import Task

    job = jobs.start(replace(spec, task=Task.TRIAL))
    paths = jobs.job_paths(job.id)
    with paths.trials_asked.open("w") as stream:
        stream.writelines(json.dumps(line) + "\n" for line in (*asked, {"end": True}))
    seen = 0
    while True:
        over = jobs.get_job(job.id).state.is_final
        lines = paths.trials_done.read_text().splitlines() if paths.trials_done.exists() else []
        for line in lines[seen:]:
            record = json.loads(line)
            if record["k"] == "result":
                yield record
        seen = len(lines)
        if over:
            if jobs.processes[job.id].returncode:
                say("the trial process failed:", jobs.get_job(job.id).message)
            return
        time.sleep(0.2)


# --- memory plan and predicted gains -------------------------------------------------------------------------------------


def memory_grid(work: Workload) -> list[Workload]:
    """LoRA in one process: lengths, micro batches, checkpointing, Liger, attention."""
    row, packed = replace(work, accumulation=1), replace(work, accumulation=1, packing=True)
    none, layers = Checkpointing.NONE, Checkpointing.LAYERS
    return [
        work,
        replace(work, checkpointing=none),
        replace(work, liger=True),
        replace(work, attention=Attention.EAGER),
        replace(work, micro_batch=8, accumulation=2),
        replace(row, micro_batch=16),
        replace(row, micro_batch=16, checkpointing=none),
        replace(row, micro_batch=16, checkpointing=none, liger=True),
        replace(packed, micro_batch=4),
        replace(packed, micro_batch=4, liger=True),
        replace(packed, micro_batch=4, liger=True, checkpointing=none),
        replace(packed, micro_batch=2, checkpointing=none),
        replace(packed, micro_batch=8, liger=True, checkpointing=layers),
        replace(packed, micro_batch=1, attention=Attention.EAGER),
        replace(packed, micro_batch=2, cutoff=4096, liger=True, checkpointing=none),
        replace(packed, micro_batch=7, liger=True, checkpointing=none),
    ]


def other_methods(work: Workload) -> list[Workload]:
    """Trained weights of the model itself: each needs the model loaded anew."""
    packed = replace(work, accumulation=1, packing=True, liger=True)
    return [
        replace(packed, method=Method.FREEZE, freeze_layers=4, micro_batch=4),
        replace(packed, method=Method.FULL, pure_bf16=True, bf16_or_fp16=True, micro_batch=2),
    ]


def method_changes(work: Workload) -> dict[str, object]:
    if work.method is Method.FREEZE:
        return {"finetuning_type": "freeze", "freeze_trainable_layers": work.freeze_layers}
    if work.method is Method.FULL:
        return {"finetuning_type": "full", "pure_bf16": True, "bf16": False}
    return {}


def measure_memory(folder: Path, out: Path, limit: float) -> None:
    setting = read_setting(folder)
    spec = base_spec(folder)
    base = build_workload(spec)
    grid = memory_grid(base) + (other_methods(base) if setting.card else [])
    grid = [grid[0], *sorted(grid[1:], key=lambda work: (work.method is not Method.LORA, work.liger))]
    works = {f"m{index}": work for index, work in enumerate(grid)}
    asked = [
        {"id": name, "changes": {**build_fix(base, work).set, **method_changes(work)}, "warm_up": 2, "steps": 4, "seconds": 12}
        for name, work in works.items()
    ]  # fmt: skip
    rows: list[dict[str, object]] = []
    for record in run_trials(LocalJobs(out / "jobs-memory"), spec, asked):
        work = works[str(record["id"])]
        rows.append(memory_row(setting, work, record))
        say(json.dumps(rows[-1]))
        write_memory(out, setting, rows)
        if time.monotonic() - STARTED > limit:
            say("time is up")
            break
    say("SUMMARY", json.dumps(write_memory(out, setting, rows)))


def memory_row(setting: Setting, work: Workload, record: Mapping[str, object]) -> dict[str, object]:
    result = parse_result(record)
    steps = len(result.step_seconds) + len(record.get("warm_seconds") or [])  # type: ignore[arg-type]
    plan = plan_memory(
        setting.shape, work, setting.lengths, setting.card, micro_batches=max(1, steps * work.accumulation)
    )
    predicted = predict_step(setting.shape, work, setting.lengths, setting.machine)
    peak = result.peak_bytes
    return {
        "settings": f"{work.method.value} {describe_variant(work)}",
        "outcome": result.outcome.value,
        "planned_gib": round(plan.allocated / 2**30, 2),
        "planned_used_gib": [round(value / 2**30, 1) for value in (plan.low, plan.used, plan.high)],
        "fits": plan.fits,
        "measured_gib": None if peak is None else round(peak / 2**30, 2),
        "reserved_gib": round(int(str(record["reserved_bytes"])) / 2**30, 2) if record.get("reserved_bytes") else None,
        "error": None if peak is None else round(plan.allocated / peak - 1, 4),
        "longest_planned": plan.batch.length,
        "longest_met": record.get("longest"),
        "tokens_per_second": None if result.tokens_per_second is None else round(result.tokens_per_second),
        "spread": None if result.spread is None else round(result.spread, 3),
        "predicted_tokens_per_second": round(predicted.tokens_per_second),
        "step_seconds": [round(value, 4) for value in result.step_seconds],
        "predicted_parts": {
            name: round(getattr(predicted, name), 4)
            for name in ("seconds", "launch", "matmul", "attention", "traffic", "zero")
        },
        "padding": list(result.padding),
        "wall_seconds": round(result.wall_seconds, 1),
        "message": result.error,
    }


def write_memory(out: Path, setting: Setting, rows: list[dict[str, object]]) -> dict[str, object]:
    errors = sorted(
        abs(float(str(row["error"]))) for row in rows if row["error"] is not None and row["outcome"] == "ok"
    )
    broken = [row["settings"] for row in rows if row["outcome"] == "oom" and row["fits"]]
    summary = {
        "configurations": len(errors),
        "median_error": round(statistics.median(errors), 4) if errors else None,
        "worst_error": round(errors[-1], 4) if errors else None,
        "predicted_to_fit_but_out_of_memory": broken,
        "gains": gain_table(rows),
        "mean_tokens": round(setting.lengths.mean, 1),
        "device": gpu_memory(),
    }
    (out / "memory.json").write_text(json.dumps({"summary": summary, "rows": rows}, indent=1))
    lines = [
        "| settings | planned GiB | measured GiB | error | tokens/s | predicted tokens/s |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['settings']} | {r['planned_gib']} | {r['measured_gib']} | {r['error']} | {r['tokens_per_second']} | "
        f"{r['predicted_tokens_per_second']} |"
        for r in rows
    ]
    (out / "memory.md").write_text("\n".join(lines) + "\n\n" + json.dumps(summary, indent=1) + "\n")
    return summary


def gain_table(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Every configuration against the first (the defaults): predicted and measured times faster."""
    if not rows or not rows[0]["tokens_per_second"]:
        return []
    first = rows[0]
    table = []
    for row in rows[1:]:
        if not row["tokens_per_second"]:
            continue
        measured = float(str(row["tokens_per_second"])) / float(str(first["tokens_per_second"]))
        predicted = float(str(row["predicted_tokens_per_second"])) / float(str(first["predicted_tokens_per_second"]))
        table.append(
            {
                "settings": row["settings"],
                "measured": round(measured, 2),
                "predicted": round(predicted, 2),
                "sign_right": (measured - 1) * (predicted - 1) > 0 or abs(measured - 1) < 0.03,
                "within_1.5": abs(math.log(measured / predicted)) < math.log(1.5),
            }
        )
    return table


# --- tuner against an exhaustive table -----------------------------------------------------------------------------------


class KnownForecast:
    """Stands in for services.forecast.Forecaster: shape, lengths and card are known here."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.environments = self
        self.benches = self

    def describe(self, _name: str = "") -> None:
        return None

    def count_lengths(self, _spec: JobSpec) -> None:
        return None

    def latest(self) -> None:
        return None

    def context(self, spec: JobSpec, _devices: object = ()) -> tuple[SpeedContext, list[str]]:
        return self.setting.context(spec), []


def measure_tuner(folder: Path, out: Path, limit: float, budget: float) -> None:
    from backend.planning.spec import dump_spec

    setting = read_setting(folder)
    spec = base_spec(folder)
    text = dump_spec(spec)
    advice = plan_speed(setting.context(spec))
    say(
        "advice:",
        [(a.code, a.gain and round(a.gain, 2), a.gain_in_plan and round(a.gain_in_plan, 2)) for a in advice.advices],
    )
    jobs = LocalJobs(out / "jobs-tuner")
    tuner = Tuner(
        jobs,
        KnownForecast(setting),
        budget_seconds=budget,
        on_progress=told,  # type: ignore[arg-type]
    )
    report = tuner.run(text)
    say("tuner ended after", round(report.seconds), "s; gain", report.gain)
    say(report_table(report))
    facts: dict[str, object] = {
        "tuner_seconds": round(report.seconds, 1),
        "tuner_trials": sum(row.result is not None for row in report.rows),
        "gain": report.gain,
        "best": report.best.label if report.best else None,
        "best_rows_per_step": report.best.rows_per_step if report.best else None,
        "best_fix": dict(report.best_fix.set) if report.best_fix else None,
        "table": report_table(report),
    }
    (out / "tuner.json").write_text(json.dumps(facts, indent=1))
    exhaustive = exhaustive_table(setting, spec, jobs, limit, report.best)
    rates = {row["settings"]: row["tokens_per_second"] for row in exhaustive if row["tokens_per_second"]}
    facts["exhaustive"] = exhaustive
    best_rate = max((float(str(rate)) for rate in rates.values()), default=None)
    own = next((row.tokens_per_second for row in report.rows if report.best and row.trial.id == report.best.id), None)
    if best_rate and own:
        # Both measurements of the tuner's choice: its own, and the one in the exhaustive table (same process as the rest).
        again = rates.get(report.best.label) if report.best else None
        facts["share_of_exhaustive_best"] = round(float(str(again or own)) / max(best_rate, 1e-9), 4)
        facts["share_by_own_measurement"] = round(own / best_rate, 4)
    (out / "tuner.json").write_text(json.dumps(facts, indent=1))
    say("SUMMARY", json.dumps({k: v for k, v in facts.items() if k not in ("table", "exhaustive")}))


def told(progress: Progress) -> None:
    say(progress.event, progress.text)


def exhaustive_table(
    setting: Setting, spec: JobSpec, jobs: LocalJobs, limit: float, best: Trial | None
) -> list[dict[str, object]]:
    """The reduced grid: batch shape x Liger x checkpointing with sdpa, all at the same rows a step; the tuner's choice too."""
    context = setting.context(spec)
    trials = {trial.label: trial for trial in begin_search(context).trials}
    works = reduced_grid(context)
    if best is not None and best.work not in works:
        works.insert(0, best.work)
    asked = []
    for work in works:
        trial = trials[describe_variant(work)]
        asked.append({"id": trial.label, "changes": dict(trial.changes), "warm_up": 2, "steps": 4, "seconds": 7})
    rows: list[dict[str, object]] = []
    for record in run_trials(jobs, spec, asked):
        result = parse_result(record)
        say(_summary(trials[str(record["id"])], result))
        rows.append(
            {
                "settings": record["id"],
                "outcome": result.outcome.value,
                "tokens_per_second": result.tokens_per_second and round(result.tokens_per_second, 1),
                "spread": result.spread and round(result.spread, 3),
                "peak_gib": result.peak_bytes and round(result.peak_bytes / 2**30, 2),
                "rows_per_step": round(trials[str(record["id"])].rows_per_step, 2),
                "predicted": round(trials[str(record["id"])].predicted.tokens_per_second, 1),
            }
        )
        if time.monotonic() - STARTED > limit:
            say("time is up:", len(rows), "of", len(asked), "measured")
            break
    return rows


def reduced_grid(context: SpeedContext) -> list[Workload]:
    work, lengths = context.work, context.lengths
    assert lengths is not None
    shapes = [work, replace(work, micro_batch=4, accumulation=4), replace(work, micro_batch=16, accumulation=1)]
    shapes += packed_like(work, lengths)[:3]
    ligers = (False, True) if context.abilities.liger else (False,)
    return [
        replace(shape, liger=liger, checkpointing=checkpointing)
        for shape in shapes
        for checkpointing in (Checkpointing.NONE, Checkpointing.LAYERS)
        for liger in ligers
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("prepare", "memory", "tuner"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?", default=Path())
    parser.add_argument("--tiny", action="store_true", help="a toy model, to try the script on a CPU")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds after which no further trial is begun")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds the tuner may take")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.part == "prepare":
        prepare(options.folder, tiny=options.tiny)
    elif options.part == "memory":
        measure_memory(options.folder, options.out, options.limit)
    else:
        measure_tuner(options.folder, options.out, options.limit, options.budget)


__all__ = ["Outcome", "TrialResult", "main"]

if __name__ == "__main__":
    main()
