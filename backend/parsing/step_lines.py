"""Step lines of other trainers into points: Megatron, DeepSpeed-Chat PPO, the pipeline engine, callbacks, step logs in words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from backend.parsing.trainer_dict import parse_number

_MEGATRON = re.compile(r"\biteration\s+(\d+)/\s*(\d+)\s*\|(.*)")
_MEGATRON_EVAL = re.compile(r"validation loss at (?:the end of training|iteration (\d+))[^|]*\|(.*)")
_FIELD = re.compile(r"\s*([^|:]+?):?\s*:\s*([^|]+?)\s*(?:\||$)")
_PPO = re.compile(
    r"Epoch: (\d+) \| Step: (\d+) \| PPO Epoch: (\d+) \| Actor Loss: (\S+) \| Critic Loss: (\S+) \| Unsupervised Loss: (\S+)",
    re.IGNORECASE,
)
_PPO_OLD = re.compile(
    r"epoch: (\d+)\s*\|\s*step: (\d+)\s*\|\s*ppo_ep: (\d+)\s*\|\s*act_loss: ([^|\s]+)\s*\|\s*cri_loss: ([^|\s]+)"
    r"\s*\|\s*unsuper_loss: ([^|\s]+)"
)
_REWARD = re.compile(
    r"Average reward score: (-?\d+(?:\.\d+)?)(?:.*?EMA reward score: (-?\d+(?:\.\d+)?))?", re.IGNORECASE
)
_RLHF_RATE = re.compile(
    r"(End-to-End|Generation|Training)\s*=>\s*Latency: (\d+(?:\.\d+)?)s,.*?(?:Samples/sec: (\d+(?:\.\d+)?)|BW: (\d+(?:\.\d+)?))"
)
_PIPELINE = re.compile(r"\bsteps: (\d+) loss: (\S+) iter time \(s\): (\d+(?:\.\d+)?) samples/sec: (\d+(?:\.\d+)?)")
_CALLBACK = re.compile(r"^\[train\] step=(\d+)/(\d+)\b.*?elapsed=(\d+(?:\.\d+)?)s(?: eta=(\d+(?:\.\d+)?)s)?")
_WORDS = re.compile(
    r"\b(?:Global )?(?:Step|Iteration|Iter|Batch)s?[ :=]+\[?(\d[\d,]*)(?:\s*(?:/|of)\s*(\d[\d,]*))?\]?\W+(.*\bLoss\b.*)",
    re.IGNORECASE,
)
_WORD_VALUE = re.compile(
    r"\b([A-Za-z][A-Za-z ._-]{0,30}?)\s*[:=]\s*(-?\d[\d.,]*(?:e[+-]?\d+)?|nan|inf)(%?)", re.IGNORECASE
)
TRIGGERS = (
    "iteration",
    "PPO Epoch",
    "ppo_ep",
    "eward score",
    "=> Latency",
    "   => ",
    "iter time (s)",
    "[train] step=",
    "oss",
    "OSS",
    "step:",
    "Epoch: [",
    " ..",
)
"""Literals without which a line holds no point."""
_IMAGENET = re.compile(
    r"Epoch: \[(\d+)\]\s*\[\s*(\d+)/(\d+)\]\s+Time\s+(\d+(?:\.\d+)?).*?Data\s+(\d+(?:\.\d+)?).*?"
    r"Loss\s+(\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
)
_VERL = re.compile(r"^step:(\d+) - (.*:.*)")
_MEGATRON_TIMER = re.compile(r"^\s+([a-z][\w-]*) \.{2,}:? ?\((\d+(?:\.\d+)?), (\d+(?:\.\d+)?)\)")
_NAMES = {
    "data time": "data_seconds", "data": "data_seconds", "data loading time": "data_seconds", "dataload": "data_seconds",
    "iter time": "step_seconds", "step time": "step_seconds", "batch time": "step_seconds", "time": "step_seconds",
    "lm loss": "loss", "learning rate": "learning_rate", "lr": "learning_rate", "grad norm": "grad_norm",
    "gradnorm": "grad_norm", "train loss": "loss", "training loss": "loss", "loss scale": "loss_scale",
    "number of skipped iterations": "skipped_iterations", "number of nan iterations": "nan_iterations",
    "elapsed time per iteration (ms)": "milliseconds_per_step", "consumed samples": "consumed_samples",
    "global batch size": "global_batch_size", "throughput per gpu (tflop/s/gpu)": "tflops_per_gpu",
    "lm loss value": "eval_loss", "lm loss ppl": "eval_perplexity", "tokens per gpu": "tokens_per_gpu",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """One point. `form`: megatron, rlhf, pipeline, words, verl, timer or callback; `kind`: train, eval, reward, progress,
    rate or timer."""

    form: str
    kind: str
    step: int | None
    total: int | None
    values: dict[str, float]


def parse_step_line(text: str) -> StepLine | None:
    """The point that this line holds, None for other lines."""
    if "iteration" in text and "|" in text:
        return _parse_megatron(text)
    if "PPO Epoch" in text or "ppo_ep" in text or "eward score" in text or "=> Latency" in text or "   => " in text:
        return _parse_rlhf(text)
    if "iter time (s)" in text and (found := _PIPELINE.search(text)):
        values = {"loss": _float(found[2]), "seconds_per_step": float(found[3]), "samples_per_second": float(found[4])}
        return StepLine(form="pipeline", kind="train", step=int(found[1]), total=None, values=values)
    if text.startswith("[train] step=") and (found := _CALLBACK.match(text)):
        return StepLine(form="callback", kind="progress", step=int(found[1]), total=int(found[2]), values={})
    if text.startswith("step:") and (found := _VERL.match(text)):
        return StepLine(form="verl", kind="train", step=int(found[1]), total=None, values=_verl_values(found[2]))
    if "Epoch: [" in text and (found := _IMAGENET.search(text)):
        values = {"step_seconds": float(found[4]), "data_seconds": float(found[5]), "loss": _float(found[6])}
        return StepLine(form="words", kind="train", step=int(found[2]), total=int(found[3]), values=values)
    if text[:1] == " " and (found := _MEGATRON_TIMER.match(text)):
        return StepLine(form="timer", kind="timer", step=None, total=None, values={found[1]: float(found[3])})
    if "oss" in text or "OSS" in text:
        return _parse_words(text)
    return None


def _verl_values(text: str) -> dict[str, float]:
    values = {}
    for part in text.split(" - "):
        name, _, value = part.rpartition(":")
        if name and (number := parse_number(value)) is not None:
            values[name] = number
    return values


def _parse_megatron(text: str) -> StepLine | None:
    if found := _MEGATRON.search(text):
        return StepLine(
            form="megatron", kind="train", step=int(found[1]), total=int(found[2]), values=_fields(found[3])
        )
    if found := _MEGATRON_EVAL.search(text):
        step = int(found[1]) if found[1] else None
        return StepLine(form="megatron", kind="eval", step=step, total=None, values=_fields(found[2]))
    return None


def _fields(text: str) -> dict[str, float]:
    values = {}
    for name, value in _FIELD.findall(text):
        number = parse_number(value.split("/")[0])  # Primus prints the current value and the mean
        if number is not None:
            key = name.strip().lower()
            values[_NAMES.get(key, key.replace(" ", "_"))] = number
    return values


def _parse_rlhf(text: str) -> StepLine | None:
    if found := _PPO.search(text) or _PPO_OLD.search(text):
        values = {
            "actor_loss": _float(found[4]),
            "critic_loss": _float(found[5]),
            "unsupervised_loss": _float(found[6]),
        }
        return StepLine(form="rlhf", kind="train", step=int(found[2]), total=None, values=values)
    if found := _REWARD.search(text):
        values = {"reward": float(found[1])} | ({"ema_reward": float(found[2])} if found[2] else {})
        return StepLine(form="rlhf", kind="reward", step=None, total=None, values=values)
    if found := _RLHF_RATE.search(text):
        values = {f"{found[1].lower().replace('-', '_')}_seconds": float(found[2])}
        if found[3]:
            values["samples_per_second"] = float(found[3])
        return StepLine(form="rlhf", kind="rate", step=None, total=None, values=values)
    return None


def _parse_words(text: str) -> StepLine | None:
    found = _WORDS.search(text)
    if found is None:
        return None
    values = {}
    for name, value, percent in _WORD_VALUE.findall(found[3]):
        number = parse_number(value.rstrip("."))
        key = " ".join(name.lower().replace("_", " ").split())
        if number is not None and not percent:
            values[_NAMES.get(key, key.replace(" ", "_"))] = number
    if "loss" not in values:
        return None
    total = int(found[2].replace(",", "")) if found[2] else None
    return StepLine(form="words", kind="train", step=int(found[1].replace(",", "")), total=total, values=values)


def _float(text: str) -> float:
    number = parse_number(text)
    return float("nan") if number is None else number
