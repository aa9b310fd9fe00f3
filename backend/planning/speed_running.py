"""What a running job measured in, Advice out: where its time goes now, and what to change for the rest or the next run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from backend.domain.advice import Advice, Basis
from backend.domain.problem import Fix, Severity
from backend.planning.advice_texts import TEXTS
from backend.planning.communication import LessTraffic, reduce_traffic
from backend.planning.lengths import Lengths
from backend.planning.memory import Card, MeasuredPeak, plan_memory
from backend.planning.model_shape import ModelShape
from backend.planning.speed import LEAST_GAIN
from backend.planning.variants import batch_splits, build_fix
from backend.planning.workload import Workload

WARM_UP = 3
"""First steps that are left out: kernels are compiled and memory is claimed there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """Means and highs of one device while the job trained. None = not reported."""

    name: str
    activity_percent: float | None = None
    power_watts: float | None = None
    power_cap_watts: float | None = None
    power_default_watts: float | None = None
    throttled_percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """Shares (0..1) of the profiled steps `first` to `last`, on accelerators only. None = not measured.

    `communication`: only communication ran, on the rank that waits least for the others (their waiting is in `late_share`, and
    `late_rank` is whom they wait for). `idle`: no kernel ran at all. The others are sums of their kernels, averaged over ranks.
    """

    first: int | None = None
    last: int | None = None
    communication: float | None = None
    idle: float | None = None
    copies: float | None = None
    attention: float | None = None
    optimizer: float | None = None
    late_rank: int | None = None
    late_share: float | None = None

    @property
    def steps(self) -> str:
        return f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningFacts:
    """Measured so far. `steps` are seconds of optimizer steps without pauses for saves and evaluation (rank 0), `waits` the
    seconds of each that went to waiting for data; `rank_steps` the mean of each rank; `parts` of the last profiler window."""

    steps: Sequence[float]
    waits: Sequence[float] = ()
    rank_steps: Mapping[int, float] | None = None
    save_seconds: Sequence[float] = ()
    evaluation_seconds: float = 0.0
    elapsed_seconds: float = 0.0
    peak_bytes: int | None = None
    capacity_bytes: int | None = None
    parts: StepParts | None = None
    devices: tuple[DeviceFacts, ...] = ()
    dataloader_workers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningContext:
    """The run's own settings beside what it measured; `shape` None: the rule about free memory stays silent."""

    facts: RunningFacts
    work: Workload
    shape: ModelShape | None = None
    lengths: Lengths | None = None


def advise_running(context: RunningContext) -> tuple[Advice, ...]:
    """Advice for a job that has trained long enough to judge (WARM_UP steps and five more); empty before."""
    if len(context.facts.steps) < WARM_UP + 5:
        return ()
    found = [advice for rule in _RULES for advice in rule(context)]
    return tuple(sorted(found, key=lambda advice: -(advice.gain or 0)))


def _advice(
    code: str,
    *,
    severity: Severity = Severity.NOTE,
    gain: float | None = None,
    fix: Fix | None = None,
    evidence: Mapping[str, float] | None = None,
    **values: object,
) -> Advice:
    text = TEXTS[code]
    params = {name: str(value) for name, value in values.items()}
    return Advice(
        code=code,
        severity=severity,
        field=text.field,
        found=params.get("found", ""),
        expected=params.get("expected", ""),
        reason=text.reason.format_map(params),
        remedy=text.remedy.format_map(params),
        evidence=evidence or {},
        gain=gain,
        basis=Basis.MEASURED,
        effects=text.effects,
        effect_text=text.effect_text,
        fix=fix,
        params=params,
    )


def _steady(steps: Sequence[float]) -> Sequence[float]:
    return steps[WARM_UP:]


def _data_wait(context: RunningContext) -> Iterator[Advice]:
    facts = context.facts
    if not facts.waits or len(facts.waits) != len(facts.steps):
        return
    total, waited = sum(_steady(facts.steps)), sum(_steady(facts.waits))
    share = waited / total if total else 0.0
    if share < 0.05:
        return
    workers = max(2, 2 * facts.dataloader_workers)
    yield _advice(
        "data_wait", severity=Severity.WARNING if share > 0.15 else Severity.NOTE, gain=1 / (1 - share),
        fix=Fix(set={"dataloader_num_workers": workers}), evidence={"wait_share": share},
        found=f"{share:.0%}", expected=workers,
    )  # fmt: skip


def _slow_rank(context: RunningContext) -> Iterator[Advice]:
    """Ranks that wait for each other take equally long: only a profile tells whom they wait for."""
    parts = context.facts.parts
    if parts and parts.late_rank is not None and parts.late_share:
        yield _advice(
            "rank_late", severity=Severity.WARNING, gain=1 / (1 - parts.late_share), steps=parts.steps,
            evidence={"rank": parts.late_rank, "late_share": parts.late_share}, rank=parts.late_rank,
            found=f"{parts.late_share:.0%}",
        )  # fmt: skip
        return
    means = context.facts.rank_steps or {}
    if len(means) < 2:
        return
    usual = statistics.median(means.values())
    rank = max(means, key=lambda each: means[each])
    excess = means[rank] / usual - 1
    if excess > 0.08:
        yield _advice(
            "rank_slow", severity=Severity.WARNING, gain=1 + excess, evidence={"rank": rank, "excess": excess},
            rank=rank, found=f"{excess:.0%}",
        )  # fmt: skip


def _power(context: RunningContext) -> Iterator[Advice]:
    for device in context.facts.devices:
        cap, default, used = device.power_cap_watts, device.power_default_watts, device.power_watts
        if cap is None or default is None or used is None or cap >= 0.97 * default or used < 0.95 * cap:
            continue
        yield _advice(
            "power_capped", evidence={"cap_watts": cap, "default_watts": default}, device=device.name,
            found=f"{cap:.0f}", expected=f"{default:.0f}",
        )  # fmt: skip


def _throttling(context: RunningContext) -> Iterator[Advice]:
    for device in context.facts.devices:
        share = device.throttled_percent
        if share is not None and share > 2:
            yield _advice(
                "thermal_throttling", severity=Severity.WARNING, evidence={"throttled_percent": share},
                device=device.name, found=f"{share:.0f} %",
            )  # fmt: skip


def _idle(context: RunningContext) -> Iterator[Advice]:
    parts = context.facts.parts
    if parts and parts.idle is not None:  # tells more than the activity counter, which calls one small kernel busy
        if parts.idle > 0.25:
            yield _advice(
                "gpu_idle", severity=Severity.WARNING if parts.idle > 0.5 else Severity.NOTE,
                evidence={"idle_share": parts.idle}, found=f"{1 - parts.idle:.0%}",
            )  # fmt: skip
        return
    busy = [device.activity_percent for device in context.facts.devices if device.activity_percent is not None]
    if busy and statistics.fmean(busy) < 70:
        mean = statistics.fmean(busy)
        yield _advice(
            "gpu_idle", severity=Severity.WARNING if mean < 50 else Severity.NOTE, evidence={"activity_percent": mean},
            found=f"{mean:.0f} %",
        )  # fmt: skip


def _memory_left(context: RunningContext) -> Iterator[Advice]:
    """The next larger micro batch at the same effective batch, if the plan corrected by this very run has room for it."""
    facts, work, shape = context.facts, context.work, context.shape
    if facts.peak_bytes is None or facts.capacity_bytes is None or shape is None:
        return
    if facts.peak_bytes > 0.6 * facts.capacity_bytes:
        return
    card = Card(capacity_bytes=facts.capacity_bytes)
    planned = plan_memory(shape, work, context.lengths, card)
    corrected = (MeasuredPeak(planned=planned.allocated, measured=facts.peak_bytes),)
    sizes = [
        size
        for size, accumulation in batch_splits(work.micro_batch * work.accumulation)
        if plan_memory(
            shape, replace(work, micro_batch=size, accumulation=accumulation), context.lengths, card, history=corrected
        ).fits
    ]
    size = max(sizes, default=0)
    if size <= work.micro_batch:
        return
    fix = Fix(
        set={
            "per_device_train_batch_size": size,
            "gradient_accumulation_steps": work.micro_batch * work.accumulation // size,
        }
    )
    yield _advice(
        "memory_left", fix=fix, evidence={"peak_bytes": facts.peak_bytes, "capacity_bytes": facts.capacity_bytes},
        found=_gib(facts.peak_bytes), capacity=_gib(facts.capacity_bytes),
        left=_gib(facts.capacity_bytes - facts.peak_bytes), expected=size,
    )  # fmt: skip


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def _saves(context: RunningContext) -> Iterator[Advice]:
    facts = context.facts
    spent = sum(facts.save_seconds)
    if len(facts.save_seconds) >= 2 and facts.elapsed_seconds and spent / facts.elapsed_seconds > 0.03:
        share = spent / facts.elapsed_seconds
        yield _advice(
            "saves_measured", gain=1 / (1 - share), evidence={"save_share": share}, found=f"{share:.0%}",
            seconds=f"{spent / len(facts.save_seconds):.1f}",
        )  # fmt: skip


def _evaluation(context: RunningContext) -> Iterator[Advice]:
    facts = context.facts
    if facts.elapsed_seconds and facts.evaluation_seconds / facts.elapsed_seconds > 0.1:
        share = facts.evaluation_seconds / facts.elapsed_seconds
        yield _advice(
            "evaluation_measured", gain=1 / (1 - share), evidence={"evaluation_share": share}, found=f"{share:.0%}"
        )


def _drift(context: RunningContext) -> Iterator[Advice]:
    steps = _steady(context.facts.steps)
    if len(steps) < 60:
        return
    early, late = statistics.median(steps[: len(steps) // 3]), statistics.median(steps[-len(steps) // 3 :])
    if early > 0 and late / early > 1.1:
        yield _advice(
            "slower_than_before", severity=Severity.WARNING, gain=late / early,
            evidence={"early_seconds": early, "late_seconds": late}, found=f"{late / early - 1:.0%}",
        )  # fmt: skip


def _communication(context: RunningContext) -> Iterator[Advice]:
    """Advice only for communication that nothing covers; a change is named when its bytes are counted and it fits."""
    parts = context.facts.parts
    share = parts.communication if parts else None
    if parts is None or share is None or share < 0.15:
        return
    change = _less_traffic(context)
    gain = change.gain(share) if change else None
    if change is None or gain is None or gain < LEAST_GAIN:
        yield _advice(
            "communication_high", severity=Severity.WARNING, evidence={"communication_share": share},
            found=f"{share:.0%}", steps=parts.steps,
        )  # fmt: skip
        return
    work, after = context.work, change.work
    code = "communication_zero" if after.zero_stage != work.zero_stage else "communication_batch"
    yield _advice(
        code, severity=Severity.WARNING, gain=gain, fix=build_fix(work, after), found=f"{share:.0%}", steps=parts.steps,
        evidence={"communication_share": share, "bytes_kept": change.kept}, stage=work.zero_stage,
        expected=_zero_name(after) if code == "communication_zero" else after.micro_batch, kept=f"{change.kept:.0%}",
        accumulation=after.accumulation,
    )  # fmt: skip


def _zero_name(work: Workload) -> str:
    return "DDP" if work.zero_stage is None else f"ZeRO-{work.zero_stage}"


def _less_traffic(context: RunningContext) -> LessTraffic | None:
    facts = context.facts
    if context.shape is None or facts.capacity_bytes is None:
        return None
    card = Card(capacity_bytes=facts.capacity_bytes)
    history = []
    if facts.peak_bytes is not None:
        planned = plan_memory(context.shape, context.work, context.lengths, card).allocated
        history.append(MeasuredPeak(planned=planned, measured=facts.peak_bytes))
    return reduce_traffic(context.shape, context.work, context.lengths, card, history)


_RULES: tuple[Callable[[RunningContext], Iterable[Advice]], ...] = (
    _data_wait,
    _slow_rank,
    _power,
    _throttling,
    _idle,
    _memory_left,
    _saves,
    _evaluation,
    _drift,
    _communication,
)
