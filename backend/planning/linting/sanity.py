"""Values of a train config that are accepted and still wrong, or worth a second look -> Problems."""

from __future__ import annotations

import re
from collections.abc import Iterator

from backend.domain.problem import Fix, Problem, Severity
from backend.planning.linting.config import TrainConfig
from backend.planning.linting.report import report

_RATE_LIMITS = {
    ("pt", "full"): 1e-3,
    ("sft", "full"): 2e-4,
    ("rm", "full"): 2e-4,
    ("dpo", "full"): 2e-5,
    ("kto", "full"): 2e-5,
    ("ppo", "full"): 5e-5,
    ("dpo", "lora"): 5e-4,
    ("kto", "lora"): 5e-4,
    ("ppo", "lora"): 5e-4,
}
_RATE_LIMIT = 2e-3
"""Above these a run of that stage and method is known to diverge or to forget; ten times the usual values."""

_EPOCHS_TOO_MANY = 50
_STEPS_MINUTES_APART = 10
_DDP_TIMEOUT = 1800
_POSITIVE = (
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "cutoff_len",
    "lora_rank",
    "logging_steps",
    "eval_steps",
    "save_steps",
    "save_total_limit",
    "learning_rate",
    "num_train_epochs",
    "max_samples",
    "preprocessing_num_workers",
    "preprocessing_batch_size",
    "torch_empty_cache_steps",
    "ddp_timeout",
    "galore_rank",
    "apollo_rank",
    "ray_num_workers",
)
_NOT_NEGATIVE = (
    "warmup_steps",
    "warmup_ratio",
    "weight_decay",
    "max_grad_norm",
    "val_size",
    "lora_alpha",
    "dataloader_num_workers",
)
_FRACTIONS = ("warmup_ratio", "lora_dropout", "label_smoothing_factor", "adam_beta1", "adam_beta2")


def ranges(config: TrainConfig) -> Iterator[Problem]:
    """Numbers outside what makes sense at all."""
    for name in _POSITIVE:
        value = config.number(name) if config.given(name) else None
        if value is not None and not value > 0:
            yield report(
                "out_of_range",
                Severity.ERROR,
                field=name,
                found=config.values[name],
                expected="> 0",
                line=config.line(name),
            )
    for name in _NOT_NEGATIVE:
        value = config.number(name) if config.given(name) else None
        if value is not None and value < 0:
            yield report(
                "out_of_range",
                Severity.ERROR,
                field=name,
                found=config.values[name],
                expected=">= 0",
                line=config.line(name),
            )
    for name in _FRACTIONS:
        value = config.number(name) if config.given(name) else None
        if value is not None and value > 1:
            yield report(
                "out_of_range",
                Severity.ERROR,
                field=name,
                found=config.values[name],
                expected="0..1",
                line=config.line(name),
            )


def learning_rate(config: TrainConfig) -> Iterator[Problem]:
    """A learning rate far above what the stage and method bear."""
    rate = config.number("learning_rate") if config.given("learning_rate") else None
    limit = _RATE_LIMITS.get((config.stage, config.method), _RATE_LIMIT)
    if rate is None or rate <= limit or config.on("train_from_scratch"):
        return
    yield report(
        "learning_rate_high",
        Severity.WARNING,
        field="learning_rate",
        found=config.values["learning_rate"],
        expected=f"<= {limit:g}",
        line=config.line("learning_rate"),
        stage=config.stage,
        method=config.method,
    )


def epochs(config: TrainConfig) -> Iterator[Problem]:
    """So many passes over the data that it is learned by heart."""
    count = config.number("num_train_epochs") if config.given("num_train_epochs") else None
    if count is None or count < _EPOCHS_TOO_MANY or (config.number("max_steps") or -1) > 0:
        return
    yield report(
        "epochs_too_many",
        Severity.WARNING,
        field="num_train_epochs",
        found=config.values["num_train_epochs"],
        expected="1..10",
        line=config.line("num_train_epochs"),
    )


def _total_rows(config: TrainConfig) -> int | None:
    names = config.words("dataset")
    rows = config.context.dataset_rows
    if not names or any(name not in rows for name in names):
        return None
    cap = config.number("max_samples") if config.given("max_samples") else None
    return sum(min(rows[name], int(cap)) if cap and cap > 0 else rows[name] for name in names)


def planned_steps(config: TrainConfig) -> int | None:
    """Optimizer steps of the run, when rows and ranks are known (packing changes the count: None then)."""
    limit = config.number("max_steps")
    if limit and limit > 0:
        return int(limit)
    rows = _total_rows(config)
    ranks = config.context.processes
    batch = (config.number("per_device_train_batch_size") or 8) * (config.number("gradient_accumulation_steps") or 1)
    if (
        rows is None
        or ranks is None
        or batch <= 0
        or config.on("packing")
        or config.on("neat_packing")
        or config.stage == "pt"
    ):
        return None
    held_out = config.number("val_size") or 0.0
    rows -= int(held_out) if held_out >= 1 else int(rows * held_out)
    return max(1, int(-(-rows // (batch * ranks)) * (config.number("num_train_epochs") or 3.0)))


def length(config: TrainConfig) -> Iterator[Problem]:
    """Warm-up, saving and the batch against the length of the run."""
    steps, rows = planned_steps(config), _total_rows(config)
    warmup = config.number("warmup_steps") if config.given("warmup_steps") else None
    if steps and warmup and warmup >= steps and warmup >= 1:
        yield report(
            "warmup_longer_than_run",
            Severity.WARNING,
            field="warmup_steps",
            found=config.values["warmup_steps"],
            expected=f"< {steps}",
            line=config.line("warmup_steps"),
            fix=Fix(set={"warmup_steps": max(1, steps // 10)}),
            steps=steps,
        )
    ranks = config.context.processes or 1
    batch = int(
        (config.number("per_device_train_batch_size") or 8)
        * (config.number("gradient_accumulation_steps") or 1)
        * ranks
    )
    if rows is not None and batch > rows > 0:
        yield report(
            "batch_larger_than_data",
            Severity.WARNING,
            field="gradient_accumulation_steps",
            found=batch,
            expected=f"<= {rows}",
            line=config.line("gradient_accumulation_steps"),
            rows=rows,
        )


def disk(config: TrainConfig) -> Iterator[Problem]:
    """Checkpoints that will not fit on the disk."""
    free, size, steps = config.context.free_disk_bytes, config.context.checkpoint_bytes, planned_steps(config)
    every = config.number("save_steps") or 500
    if free is None or size is None or steps is None or config.text("save_strategy") not in ("steps", ""):
        return
    count = max(1, int(steps // every)) if every >= 1 else int(1 / every)
    kept = config.number("save_total_limit") if config.given("save_total_limit") else None
    count = min(count, int(kept) + 1) if kept else count
    if count * size > free:
        yield report(
            "checkpoints_exceed_disk",
            Severity.WARNING,
            field="save_total_limit",
            found=f"{count} x {size / 1e9:.1f} GB",
            expected=f"<= {free / 1e9:.1f} GB",
            fix=Fix(set={"save_total_limit": 2}),
        )


def timeouts(config: TrainConfig) -> Iterator[Problem]:
    """Rank 0 tokenizes while the others wait: a timeout shorter than that ends the run."""
    seconds = config.number("ddp_timeout") if config.given("ddp_timeout") else None
    if seconds is not None and 0 < seconds < _DDP_TIMEOUT:
        yield report(
            "ddp_timeout_short",
            Severity.WARNING,
            field="ddp_timeout",
            found=config.values["ddp_timeout"],
            expected=f">= {_DDP_TIMEOUT}",
            line=config.line("ddp_timeout"),
            fix=Fix(set={"ddp_timeout": 180000000}),
        )


def precision(config: TrainConfig) -> Iterator[Problem]:
    """fp16 where bf16 is at hand: every Instinct and every NVIDIA GPU since Ampere has it."""
    if config.on("fp16") and not config.on("bf16"):
        fix = Fix(set={"bf16": True}, remove=("fp16",))
        yield report(
            "prefer_bf16",
            Severity.WARNING,
            field="fp16",
            found="fp16",
            expected="bf16: true",
            line=config.line("fp16"),
            fix=fix,
        )


def hardware(config: TrainConfig) -> Iterator[Problem]:
    """Options that only some GPUs can run: a warning when the GPU is known not to, a note when it is unknown."""
    context = config.context
    if config.on("fp8") and context.gfx_target not in ("gfx942", "gfx950"):
        severity = Severity.WARNING if context.gfx_target == "gfx90a" else Severity.NOTE
        yield report(
            "hardware_dependent",
            severity,
            field="fp8",
            found="true",
            expected="MI300 | MI350 | H100",
            line=config.line("fp8"),
        )
    if config.values.get("tf32") is True and context.accelerator != "cuda":
        severity = Severity.ERROR if context.accelerator == "rocm" else Severity.NOTE
        yield report(
            "tf32_on_rocm" if severity is Severity.ERROR else "hardware_dependent",
            severity,
            field="tf32",
            found="true",
            expected="NVIDIA Ampere",
            line=config.line("tf32"),
            fix=Fix(remove=("tf32",)),
        )


def lora_scale(config: TrainConfig) -> Iterator[Problem]:
    """LoRA settings that scale the update down, or that have no effect with this method."""
    rank, alpha = config.number("lora_rank"), config.number("lora_alpha") if config.given("lora_alpha") else None
    if config.method == "lora" and rank and alpha and 0 < alpha < rank:
        yield report(
            "lora_alpha_below_rank",
            Severity.NOTE,
            field="lora_alpha",
            found=config.values["lora_alpha"],
            expected=f">= {rank:g}",
            line=config.line("lora_alpha"),
        )
    if config.method in ("full", "freeze"):
        useless = [name for name in ("lora_rank", "lora_alpha", "lora_target", "lora_dropout") if config.given(name)]
        if useless:
            yield report(
                "option_without_effect",
                Severity.NOTE,
                field=useless[0],
                found=", ".join(useless),
                expected=f"finetuning_type: {config.method}",
                line=config.line(useless[0]),
                fix=Fix(remove=tuple(useless)),
            )


_PLACEHOLDER = re.compile(
    r"(?:^|[/_\s<\[{-])your[_-]?(?:\w+[_-])?(?:name|path|dataset|data|model|token|here|dir|file|project|corpus)|"
    r"(?:^|[/_\s<\[{-])my[_-](?:\w+[_-])?(?:name|path|here)\b|<[a-z][\w -]*>|path[/_-]to[/_-]|/path/to|\bxxx+\b|\bTODO\b|"
    r"change_?me|\bplaceholder\b|替换|你的|模型路径|数据集名",
    re.I,
)


def is_placeholder(text: str) -> bool:
    """A name that stands for something the reader should have filled in."""
    return bool(_PLACEHOLDER.search(text))


def placeholders(config: TrainConfig) -> Iterator[Problem]:
    """Names of a tutorial that were never filled in."""
    for name in (
        "model_name_or_path",
        "dataset",
        "output_dir",
        "adapter_name_or_path",
        "deepspeed",
        "dataset_dir",
        "reward_model",
    ):
        value = config.values.get(name)
        if isinstance(value, str) and is_placeholder(value):
            yield report("file_is_placeholder", Severity.WARNING, field=name, found=value, line=config.line(name))


RULES = (ranges, learning_rate, epochs, length, disk, timeouts, precision, hardware, lora_scale, placeholders)
