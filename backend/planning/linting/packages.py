"""Optional packages that a train config needs -> Problems: an error when known to be missing, a note when unknown."""

from __future__ import annotations

from collections.abc import Iterator

from backend.domain.problem import Fix, Problem, Severity
from backend.planning.linting.config import TrainConfig
from backend.planning.linting.report import report

SWITCHES = {
    "use_badam": "badam",
    "use_galore": "galore_torch",
    "use_apollo": "apollo_torch",
    "use_adam_mini": "adam-mini",
    "use_unsloth": "unsloth",
    "enable_liger_kernel": "liger-kernel",
    "use_swanlab": "swanlab",
    "mixture_of_depths": "mixture-of-depth",
    "use_kt": "kt-kernel",
    "use_hyper_parallel": "hyper-parallel",
    "fp8": "torchao",
}
"""Arguments that import a package of their own, and the package."""

_OPTIMIZERS = {
    "lomo": "lomo-optim",
    "adalomo": "lomo-optim",
    "grokadamw": "grokadamw",
    "adamw_apex_fused": "apex",
    "adamw_torch_4bit": "torchao",
    "adamw_torch_8bit": "torchao",
    "adamw_anyprecision": "torchdistx",
    "schedule_free_adamw": "schedulefree",
    "schedule_free_radam": "schedulefree",
    "schedule_free_sgd": "schedulefree",
    "stable_adamw": "torch-optimi",
}
_REPORTERS = (
    "tensorboard",
    "wandb",
    "swanlab",
    "mlflow",
    "trackio",
    "comet_ml",
    "neptune",
    "clearml",
    "dvclive",
    "codecarbon",
)
_BITSANDBYTES_OPTIMIZERS = ("8bit", "paged_", "lion_", "rmsprop_bnb", "ademamix_8bit")


def needed_packages(config: TrainConfig) -> Iterator[tuple[str, str]]:
    """(argument, package) for each optional package that the config needs; bitsandbytes apart (see below)."""
    for name, package in SWITCHES.items():
        if config.on(name) and not (name == "fp8" and config.text("fp8_backend") not in ("auto", "torchao", "")):
            yield name, package
    optimizer = config.text("optim")
    if optimizer in _OPTIMIZERS:
        yield "optim", _OPTIMIZERS[optimizer]
    method = config.text("quantization_method")
    if config.given("quantization_bit") and method in ("hqq", "eetq"):
        yield "quantization_method", method
    if config.on("predict_with_generate"):
        yield from (("predict_with_generate", package) for package in ("jieba", "nltk", "rouge_chinese"))
    if config.on("plot_loss") and config.context.lacks("matplotlib"):
        yield "plot_loss", "matplotlib"
    if isinstance(config.values.get("report_to"), (str, list)):
        yield from (("report_to", word) for word in config.words("report_to") if word in _REPORTERS)
    if config.uses_deepspeed and config.context.lacks("deepspeed"):
        yield "deepspeed", "deepspeed"


def packages(config: TrainConfig) -> Iterator[Problem]:
    """Missing packages stop the run: some at once, reporters only after tokenizing and loading."""
    for name, package in needed_packages(config):
        missing = config.context.lacks(package)
        if missing:
            fix = Fix(set={"report_to": "none"}) if name == "report_to" else None
            yield report(
                "package_missing",
                Severity.ERROR,
                field=name,
                found="",
                expected=package,
                line=config.line(name),
                fix=fix,
                package=package,
            )
        elif missing is None and package not in ("tensorboard",):
            yield report(
                "needs_package", Severity.NOTE, field=name, expected=package, line=config.line(name), package=package
            )


def bitsandbytes(config: TrainConfig) -> Iterator[Problem]:
    """4-bit and 8-bit weights and optimizers need bitsandbytes, which on ROCm must carry a library for that ROCm."""
    optimizer = config.text("optim")
    by_bits = config.given("quantization_bit") and config.text("quantization_method") == "bnb"
    by_optimizer = any(mark in optimizer for mark in _BITSANDBYTES_OPTIMIZERS) and "torch" not in optimizer
    if not (by_bits or by_optimizer) or (
        config.context.accelerator == "cuda" and config.context.lacks("bitsandbytes") is False
    ):
        return
    name = "quantization_bit" if by_bits else "optim"
    if config.context.lacks("bitsandbytes"):
        yield report(
            "package_missing", Severity.ERROR, field=name, found="", expected="bitsandbytes", package="bitsandbytes"
        )
    elif config.context.accelerator == "cuda":
        yield report("needs_package", Severity.NOTE, field=name, expected="bitsandbytes", package="bitsandbytes")
    else:
        severity = Severity.WARNING if config.context.accelerator == "rocm" else Severity.NOTE
        yield report(
            "bitsandbytes_on_rocm",
            severity,
            field=name,
            found=config.values.get(name),
            expected="bitsandbytes >= 0.50",
            line=config.line(name),
        )


RULES = (packages, bitsandbytes)
