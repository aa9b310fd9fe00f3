"""DeepSpeed's own lines into steps, skipped steps, loss scale, throughput and time per part of a step.

Ranks tear each other's lines, so everything is searched inside a line, and counted once per event, not once per rank.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from backend.parsing.trainer_dict import parse_number

_NUMBER = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_STEP = re.compile(
    r"(?:\[Rank (\d+)\] )?step=(\d+), skipped=(\d+), lr=\[([^\]]*)\](?:, mom=\[(.*?)\](?=$|\s|\[\d{4}))?"
)
_TIMER = re.compile(
    rf"(?:epoch=(\d+)/)?micro_step=(\d+)/global_step=(\d+), RunningAvgSamplesPerSec=({_NUMBER}), "
    rf"CurrSamplesPerSec=({_NUMBER})(?:, MemAllocated=({_NUMBER})GB, MaxMemAllocated=({_NUMBER})GB)?"
)
_OLD_RATE = re.compile(rf"(?:(\d+)/(\d+), )?(?:RunningAvg|Curr?|Avg)?SamplesPerSec=({_NUMBER})")
_SCALE = re.compile(
    r"(?:OVERFLOW! Rank (?P<rank>\d+) Skipping step\.|Overflow detected\. Skipping step\.)\s*"
    rf"Attempted loss scale: (?P<tried>{_NUMBER}), (?:reducing to (?P<to>{_NUMBER})|but hysteresis is (?P<left>\d+))"
)
_ITERATION = re.compile(r"Grad overflow on iteration:? (\d+)")
_REDUCING = re.compile(rf"Reducing dynamic loss scale from ({_NUMBER}) to ({_NUMBER})")
_TIME = re.compile(r"time \(ms\) \| (.*?)(?=\[\d{4}-|$)")
_PART = re.compile(r"([a-z_]+): (\d+(?:\.\d+)?)")
_EXITS = re.compile(r"Process (\d+) exits successfully")
_KILLING = re.compile(r"Killing subprocess (\d+)")
_NOT_SAVED = re.compile(r"Did not save the model .* because `?(stage3_gather\w*)`? is False")
_MINIMUM = "Current loss scale already at minimum"
TRIGGERS = (
    "step=", "SamplesPerSec", "scale", "overflow", "OVERFLOW", "time (ms) |", "subprocess", "exits successfully", "Did not save",
)  # fmt: skip
"""Literals without which a line is none of DeepSpeed's."""
_PARTS = {
    "forward": "forward", "fwd": "forward", "backward": "backward", "bwd": "backward", "backward_allreduce": "allreduce",
    "bwd_allreduce": "allreduce", "step": "step", "batch_input": "batch_input", "pipe_recv_grad": "pipe_recv_grad",
    "pipe_send_output": "pipe_send_output", "optimizer_step": "optimizer_step", "optimizer_allgather": "optimizer_allgather",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStep:
    """One `step=` line: several engines (actor, critic) print their own, told apart by their learning rate."""

    step: int
    skipped: int
    learning_rates: tuple[float, ...]


@dataclass(slots=True)
class DeepSpeedLines:
    """Takes lines in order; the fields hold what was found so far."""

    lines: int = 0
    last_step: int | None = None
    engines: list[EngineStep] = field(default_factory=list)
    zero_steps: int = 0
    throughput: float | None = None
    max_memory_gb: float | None = None
    loss_scale: float | None = None
    lowest_scale: float | None = None
    at_floor: bool = False
    exhausted: bool = False
    global_times: int = 0
    micro_times: int = 0
    times: dict[str, float] = field(default_factory=dict)
    pipeline_times: dict[str, float] = field(default_factory=dict)
    exited_well: set[int] = field(default_factory=set)
    killed: list[int] = field(default_factory=list)
    not_saved: str = ""
    planned: int | None = None
    rate_step: int | None = None
    gradient_accumulation: int | None = None
    param_groups: int | None = None
    _iterations: set[tuple[int, str]] = field(default_factory=set)
    _overflows: int = 0
    _scale_run: int = 0

    @property
    def skipped(self) -> int | None:
        """Optimizer steps that the loss scaler skipped, each once; None when the lines do not tell."""
        counted = [engine.skipped for engine in self.engines if engine.skipped]
        events = max(self._overflows, len(self._iterations))
        return max([*counted, events]) if counted or events else (0 if self.engines else None)

    @property
    def timed_steps(self) -> int | None:
        """Steps with a time breakdown: a line for the whole step and one for its micro steps are one step."""
        return self.global_times or self.micro_times or None

    def take(self, text: str) -> bool:
        """True when the line is one of DeepSpeed's."""
        before = self.lines
        if "step=" in text or "SamplesPerSec" in text:
            self._take_step(text)
        if "scale" in text or "overflow" in text or "OVERFLOW" in text:
            self._take_scale(text)
        if "time (ms) |" in text:
            self._take_times(text)
        if "subprocess" in text or "exits successfully" in text or "Did not save" in text:
            self._take_launcher(text)
        return self.lines > before

    def take_many(self, lines: list[str]) -> None:
        """Lines in order."""
        for line in lines:
            self.take(line)

    def _take_step(self, text: str) -> None:
        for match in _STEP.finditer(text) if ", skipped=" in text else ():
            self.lines += 1
            rates = tuple(number for part in match[4].split(",") if (number := parse_number(part)) is not None)
            self._take_engine(EngineStep(step=int(match[2]), skipped=int(match[3]), learning_rates=rates))
            self.param_groups = len(rates) or None
        timers = list(_TIMER.finditer(text)) if "SamplesPerSec" in text else []
        for match in timers:
            self.lines += 1
            micro, step = int(match[2]), int(match[3])
            self.last_step, self.throughput = step, float(match[4])
            self.gradient_accumulation = micro // step if step and not micro % step else self.gradient_accumulation
            if match[7]:
                self.max_memory_gb = max(self.max_memory_gb or 0.0, float(match[7]))
        if not timers and "SamplesPerSec" in text and (speeds := list(_OLD_RATE.finditer(text))):
            self.lines += 1
            rate = speeds[-1]  # DeepSpeed-Chat prints the current rate, then the mean
            self.throughput = float(rate[3])
            if rate[1]:
                self.rate_step, self.planned = int(rate[1]), int(rate[2])

    def _take_engine(self, found: EngineStep) -> None:
        if found.step == 0:
            self.zero_steps += 1
        self.last_step = found.step
        same = [index for index, one in enumerate(self.engines) if _same_engine(one, found, self.engines)]
        if same:
            self.engines[same[0]] = found
        else:
            self.engines.append(found)

    def _take_scale(self, text: str) -> None:
        for match in _SCALE.finditer(text):
            self.lines += 1
            if int(match["rank"] or 0) == 0:
                self._overflows += 1
            if match["to"]:
                self._set_scale(float(match["tried"]), float(match["to"]))
        for match in _REDUCING.finditer(text):
            self.lines += 1
            self._set_scale(float(match[1]), float(match[2]))
        for match in _ITERATION.finditer(text):
            self.lines += 1
            self._iterations.add((int(match[1]), ""))
        if _MINIMUM in text:
            self.lines += 1
            self.exhausted = True

    def _set_scale(self, tried: float, to: float) -> None:
        self.loss_scale = to
        self.at_floor = tried == to
        self.lowest_scale = to if self.lowest_scale is None else min(self.lowest_scale, to)

    def _take_times(self, text: str) -> None:
        for match in _TIME.finditer(text):
            parts = {name: float(value) for name, value in _PART.findall(match[1])}
            if not parts:
                continue
            self.lines += 1
            micro = any(name.endswith("_microstep") for name in parts)
            named = {name.removesuffix("_microstep"): value for name, value in parts.items()}
            if "forward" in named or "fwd" in named:
                self.micro_times += micro
                self.global_times += not micro
            known = {_PARTS[name]: value for name, value in named.items() if name in _PARTS}
            self.times.update(known)
            self.pipeline_times.update({name: value for name, value in known.items() if name.startswith("pipe_")})

    def _take_launcher(self, text: str) -> None:
        for match in _EXITS.finditer(text):
            self.lines += 1
            self.exited_well.add(int(match[1]))
        for match in _KILLING.finditer(text):
            self.lines += 1
            self.killed.append(int(match[1]))
        if missed := _NOT_SAVED.search(text):
            self.lines += 1
            self.not_saved = missed[1]


def _same_engine(old: EngineStep, new: EngineStep, engines: list[EngineStep]) -> bool:
    """Engines of one job print at the same steps: equal steps with other rates are two engines, later steps the nearest one."""
    if old.step == new.step:
        return old.learning_rates == new.learning_rates or old.step == 0
    rivals = [one for one in engines if one.step < new.step]
    if len(rivals) <= 1 or old not in rivals:
        return old in rivals or old.step > new.step
    return min(rivals, key=lambda one: _rate_distance(one, new)) is old


def _rate_distance(old: EngineStep, new: EngineStep) -> float:
    if not old.learning_rates or not new.learning_rates:
        return float("inf")
    return abs(old.learning_rates[0] - new.learning_rates[0])
