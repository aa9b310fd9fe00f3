"""A job's settings, data lengths and machine in, Advice out: what makes it slow, what a change should bring, what it changes.

The list is built as a plan: the best variant that does the same training and certainly fits is looked up, and its differences
from the present settings are put in the order of what each still adds. Rules without a figure come after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as default_of

from backend.domain.advice import Advice, Basis, Effect
from backend.domain.job import JobSpec
from backend.domain.problem import Fix, Severity
from backend.planning.advice_texts import TEXTS
from backend.planning.cards import CardPeak
from backend.planning.lengths import Lengths
from backend.planning.memory import Card, MeasuredPeak, MemoryPlan, plan_memory
from backend.planning.model_shape import ModelShape
from backend.planning.steptime import Machine, StepTime, predict_step
from backend.planning.variants import (
    Abilities,
    batch_splits,
    build_fix,
    describe_variant,
    enumerate_variants,
    rows_per_step,
)
from backend.planning.workload import Attention, Checkpointing, Workload

LEAST_GAIN = 1.06
"""A change that should bring less than this factor is below what the model can tell (docs/evidence/one-h200.md, pairs)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedContext:
    """Everything the rules look at. What is not known is None or empty, and the rules that need it stay silent."""

    spec: JobSpec
    work: Workload
    shape: ModelShape | None = None
    lengths: Lengths | None = None
    card: Card | None = None
    peak: CardPeak | None = None
    machine: Machine = default_of(default_factory=Machine)
    abilities: Abilities = default_of(default_factory=Abilities)
    history: tuple[MeasuredPeak, ...] = ()
    cpu_count: int = 0
    checkpoint_seconds: float | None = None
    """Measured or estimated seconds to write one checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedPlan:
    """`advices`, best first; `present` and `best` as predicted. `best_fix` takes all in one click (None: nothing to gain)."""

    advices: tuple[Advice, ...]
    present: StepTime | None
    best: StepTime | None
    best_work: Workload | None
    best_memory: MemoryPlan | None
    best_fix: Fix | None

    @property
    def gain(self) -> float | None:
        """Times faster with everything taken, an estimate."""
        if self.present is None or self.best is None:
            return None
        return self.best.tokens_per_second / self.present.tokens_per_second


def plan_speed(context: SpeedContext) -> SpeedPlan:
    """Advice before launch. Without the model's shape only the rules without figures speak."""
    rules = tuple(advice for rule in _RULES for advice in rule(context))
    if context.shape is None:
        return SpeedPlan(advices=rules, present=None, best=None, best_work=None, best_memory=None, best_fix=None)
    shape, work = context.shape, context.work
    present = predict_step(shape, work, context.lengths, context.machine)
    best = best_variant(context)
    steps = (*_steps(context, best), *_without_packing(context, best))
    fix = build_fix(work, best) if steps else None
    return SpeedPlan(
        advices=(*steps, *rules),
        present=present,
        best=predict_step(shape, best, context.lengths, context.machine),
        best_work=best,
        best_memory=plan_memory(shape, best, context.lengths, context.card, history=context.history),
        best_fix=fix,
    )


def best_variant(context: SpeedContext) -> Workload:
    """The fastest variant that is certain to fit; the present settings when nothing else is known to be better."""
    shape = context.shape
    if shape is None:
        return context.work
    best, most = context.work, _rate(context, context.work)
    for variant in enumerate_variants(shape, context.work, context.lengths, replace(context.abilities, compile=False)):
        # A variant must gain more than noise to be preferred over one that changes less.
        if _rate(context, variant) > most * 1.005 and _fits(context, variant):
            best, most = variant, _rate(context, variant)
    return best


def _rate(context: SpeedContext, work: Workload) -> float:
    assert context.shape is not None
    return predict_step(context.shape, work, context.lengths, context.machine).tokens_per_second


def _fits(context: SpeedContext, work: Workload) -> bool:
    """Without a known capacity nothing that needs more memory is proposed."""
    assert context.shape is not None
    plan = plan_memory(context.shape, work, context.lengths, context.card, history=context.history)
    if plan.fits is not None:
        return plan.fits
    present = plan_memory(context.shape, context.work, context.lengths, history=context.history)
    return plan.used <= present.used


_Change = Callable[[Workload, Workload], Workload]


def _take_batch(now: Workload, best: Workload) -> Workload:
    """Micro batch, accumulation and packing belong together: only together do they keep the rows of a step."""
    return replace(
        now,
        micro_batch=best.micro_batch,
        accumulation=best.accumulation,
        packing=best.packing,
        cutoff=best.cutoff,
    )


def _take_zero(now: Workload, best: Workload) -> Workload:
    return replace(
        now,
        zero_stage=best.zero_stage,
        offload_optimizer=best.offload_optimizer,
        offload_param=best.offload_param,
    )


_CHANGES: Mapping[str, _Change] = {
    "batch": _take_batch,
    "liger": lambda now, best: replace(now, liger=best.liger),
    "attention": lambda now, best: replace(now, attention=best.attention),
    "checkpointing": lambda now, best: replace(now, checkpointing=best.checkpointing),
    "zero": _take_zero,
}


def _steps(context: SpeedContext, best: Workload) -> Iterator[Advice]:
    """The differences between the present settings and `best`, each time the one that then adds most."""
    now, open_changes = context.work, dict(_CHANGES)
    while now != best:
        gains = {
            name: _rate(context, change(now, best)) / _rate(context, now)
            for name, change in open_changes.items()
            if change(now, best) != now
        }
        if not gains:
            return
        name = max(gains, key=lambda key: gains[key])
        change = open_changes.pop(name)
        after = change(now, best)
        # A small gain is still worth naming when the best variant would not fit without the change.
        if gains[name] >= LEAST_GAIN or not _fits(context, change(best, now)):
            yield _advice_of(context, name, now, after, gains[name])
        now = after


def _without_packing(context: SpeedContext, best: Workload) -> Iterator[Advice]:
    """The same training row by row, for those who do not want rows in one block: only the micro batch grows."""
    work = context.work
    if work.packing or not best.packing:
        return
    # Only upwards: a smaller micro batch trades padding for launches, which depends on the host's mood more than on the model.
    larger = (variant for variant in _same_but_batch(work) if variant.micro_batch > work.micro_batch)
    micro = [variant for variant in larger if _fits(context, variant)]
    after = max(micro, key=lambda variant: _rate(context, variant), default=work)
    gain = _rate(context, after) / _rate(context, work)
    if gain >= LEAST_GAIN:
        yield replace(_advice_of(context, "batch", work, after, gain), gain_in_plan=None)


def _same_but_batch(work: Workload) -> Iterator[Workload]:
    for micro, accumulation in batch_splits(work.micro_batch * work.accumulation):
        yield replace(work, micro_batch=micro, accumulation=accumulation)


def _advice_of(context: SpeedContext, name: str, now: Workload, after: Workload, in_plan: float) -> Advice:
    shape, work = context.shape, context.work
    assert shape is not None
    alone = _CHANGES[name](work, after)
    code = _code(name, work, after)
    before, then = (predict_step(shape, each, context.lengths, context.machine) for each in (work, alone))
    gain = then.tokens_per_second / before.tokens_per_second
    evidence = {"tokens_per_second_now": before.tokens_per_second, "tokens_per_second_then": then.tokens_per_second}
    evidence |= _evidence(code, context, before)
    effects, words = _effects(code, context, work, after)
    text = TEXTS[code]
    values = _words(work, after, evidence, context)
    return Advice(
        code=code,
        severity=Severity.WARNING if max(in_plan, gain) >= 1.2 else Severity.NOTE,
        field=text.field,
        found=describe_variant(work),
        expected=describe_variant(after),
        reason=text.reason.format_map(values),
        remedy=text.remedy.format_map(values),
        evidence=evidence,
        gain=gain,
        gain_in_plan=in_plan,
        basis=Basis.ESTIMATE,
        effects=effects,
        effect_text=words,
        fix=build_fix(work, alone),
        params=values,
    )


def _code(name: str, work: Workload, after: Workload) -> str:
    if name == "batch":
        return "packing_saves_padding" if after.packing and not work.packing else "micro_batch_small"
    if name == "zero":
        if work.offload_optimizer or work.offload_param:
            return "offload_unneeded"
        return "zero3_unneeded" if work.zero_stage == 3 else "zero_unneeded"
    return {
        "liger": "liger_saves_traffic",
        "attention": "attention_slow",
        "checkpointing": "checkpointing_unneeded",
    }[name]


def _evidence(code: str, context: SpeedContext, before: StepTime) -> dict[str, float]:
    """The numbers that make this advice speak, beside the two rates."""
    assert context.shape is not None
    work = context.work
    if code in ("packing_saves_padding", "micro_batch_small"):
        found = {
            "micro_batch": float(work.micro_batch),
            "launch_seconds": before.launch,
            "step_seconds": before.seconds,
        }
        if context.lengths is not None:
            found |= {"padding_share": before.padding_share, "mean_tokens": context.lengths.mean_kept(work.cutoff)}
        return found
    if code in ("zero3_unneeded", "zero_unneeded", "offload_unneeded"):
        return {"zero_seconds": before.zero, "link_seconds": before.link, "step_seconds": before.seconds}
    if code == "checkpointing_unneeded" and context.card is not None:
        after = replace(work, checkpointing=Checkpointing.NONE)
        plan = plan_memory(context.shape, after, context.lengths, context.card, history=context.history)
        return {"needed_gib": plan.high / (1 << 30), "capacity_gib": context.card.capacity_bytes / (1 << 30)}
    return {}


def _effects(code: str, context: SpeedContext, work: Workload, after: Workload) -> tuple[tuple[Effect, ...], str]:
    """What the change does to the training itself. Silence would be a lie: nothing here may alter results unsaid."""
    if code != "packing_saves_padding":
        return _batch_effects(code, context, work, after)
    rows = rows_per_step(work, context.lengths)
    packed = rows_per_step(replace(after, world=work.world), context.lengths)
    effects = [Effect.LOSS, Effect.ROW_ORDER]
    words = (
        "Rows in one block see each other (neat_packing would keep them apart, at the cost of an explicit mask); the order of "
        f"rows changes; a step sees {packed:.1f} rows on average instead of {rows:.0f}."
    )
    if abs(packed / rows - 1) > 0.02:
        effects.append(Effect.EFFECTIVE_BATCH)
    dropped = context.lengths.truncated_share(after.cutoff) if context.lengths else 0.0
    if dropped > 0:
        effects.append(Effect.ROWS_DROPPED)
        words += f" Packing drops rows longer than cutoff_len instead of cutting them: {dropped:.1%} of the rows."
    if after.cutoff != work.cutoff:
        words += f" Blocks are {after.cutoff} tokens long, so that a step keeps its number of rows."
    return tuple(effects), words


def _batch_effects(code: str, context: SpeedContext, work: Workload, after: Workload) -> tuple[tuple[Effect, ...], str]:
    if code == "micro_batch_small":
        return (Effect.ROUNDING,), (
            f"The effective batch stays {work.effective_batch} rows; sums are rounded in another order, so losses differ in "
            "the last digits."
        )
    if code in ("liger_saves_traffic", "attention_slow"):
        return (Effect.ROUNDING,), "The same mathematics by other kernels: losses differ in the last digits."
    if code in ("zero3_unneeded", "zero_unneeded", "offload_unneeded") and work.adapters:
        return (Effect.PRECISION,), (
            "Without DeepSpeed the trainer computes under autocast with fp32 adapters instead of bf16 ones: slightly more exact."
        )
    return (), ""


def _words(work: Workload, after: Workload, evidence: Mapping[str, float], context: SpeedContext) -> dict[str, str]:
    """Values for the texts, ready to print."""
    values = {name: f"{value:.3g}" for name, value in evidence.items()}
    if "padding_share" in evidence:
        values["padding"] = f"{evidence['padding_share']:.0%}"
    return values | {
        "micro": str(work.micro_batch),
        "micro_after": str(after.micro_batch),
        "accumulation_after": str(after.accumulation),
        "block": str(after.cutoff),
        "stage": str(work.zero_stage),
        "attention": work.attention.value,
        "attention_after": after.attention.value,
        "padding": values.get("padding", "?"),
    }


# Rules without a figure from the step model, in the order they are shown.


def _rule(code: str, *, severity: Severity = Severity.NOTE, fix: Fix | None = None, **values: object) -> Advice:
    text = TEXTS[code]
    params = {name: str(value) for name, value in values.items()}
    effects = text.effects
    return Advice(
        code=code,
        severity=severity,
        field=text.field,
        found=params.get("found", ""),
        expected=params.get("expected", ""),
        reason=text.reason.format_map(params),
        remedy=text.remedy.format_map(params),
        basis=Basis.RULE,
        effects=effects,
        effect_text=text.effect_text,
        fix=fix,
        params=params,
    )


def _full_precision(context: SpeedContext) -> Iterator[Advice]:
    if not context.work.bf16_or_fp16 and context.card is not None:
        yield _rule(
            "half_precision_off", severity=Severity.WARNING, fix=Fix(set={"bf16": True}), found="fp32", expected="bf16"
        )


def _neat_packing(context: SpeedContext) -> Iterator[Advice]:
    work = context.work
    if work.neat_packing and work.attention is not Attention.FA2:
        mib = work.micro_batch * work.cutoff**2 * 2 / (1 << 20)
        yield _rule("neat_packing_mask", found=f"{mib:.0f}", cutoff=work.cutoff)


def _quantized_with_room(context: SpeedContext) -> Iterator[Advice]:
    work, shape = context.work, context.shape
    if work.quantization_bits is None or shape is None or context.card is None:
        return
    plain = replace(work, quantization_bits=None)
    plan = plan_memory(shape, plain, context.lengths, context.card, history=context.history)
    if plan.fits:
        yield _rule(
            "quantization_unneeded", severity=Severity.WARNING, fix=Fix(remove=("quantization_bit",)),
            found=work.quantization_bits, expected=f"{plan.high / (1 << 30):.0f} GiB",
        )  # fmt: skip


def _host_activations(context: SpeedContext) -> Iterator[Advice]:
    if context.work.checkpointing is Checkpointing.HOST and context.shape is not None and context.card is not None:
        on_gpu = replace(context.work, checkpointing=Checkpointing.LAYERS)
        if plan_memory(context.shape, on_gpu, context.lengths, context.card, history=context.history).fits:
            yield _rule("host_activations_unneeded", fix=Fix(remove=("use_unsloth_gc",)))


def _slow_optimizer(context: SpeedContext) -> Iterator[Advice]:
    name = context.spec.train.get("optim")
    switches = ("use_galore", "use_apollo", "use_badam", "use_adam_mini", "use_muon")
    if name == "adamw_torch" and not any(context.spec.train.get(switch) is True for switch in switches):
        yield _rule("optimizer_not_fused", fix=Fix(set={"optim": "adamw_torch_fused"}), found=name)


def _preprocessing(context: SpeedContext) -> Iterator[Advice]:
    workers = context.spec.train.get("preprocessing_num_workers")
    rows = context.lengths.rows if context.lengths else 0
    if workers in (None, 1) and rows > 20_000 and context.cpu_count > 2:
        wanted = max(2, min(16, context.cpu_count // 2))
        yield _rule(
            "preprocessing_single", fix=Fix(set={"preprocessing_num_workers": wanted}), rows=rows, expected=wanted
        )


def _long_cutoff(context: SpeedContext) -> Iterator[Advice]:
    lengths, work = context.lengths, context.work
    if lengths is None:
        return
    share = lengths.truncated_share(work.cutoff)
    if share > 0.02:
        yield _rule("rows_truncated", severity=Severity.WARNING, found=f"{share:.1%}", cutoff=work.cutoff)


def _saves(context: SpeedContext) -> Iterator[Advice]:
    steps = context.spec.train.get("save_steps", 500)
    if context.checkpoint_seconds is None or context.shape is None or not isinstance(steps, int) or steps < 1:
        return
    if context.spec.train.get("save_strategy", "steps") != "steps":
        return
    between = steps * predict_step(context.shape, context.work, context.lengths, context.machine).seconds
    share = context.checkpoint_seconds / (between + context.checkpoint_seconds)
    if share > 0.03:
        wanted = max(steps + 1, round(steps * share / 0.02))
        yield _rule("saves_too_often", fix=Fix(set={"save_steps": wanted}), found=f"{share:.0%}", expected=wanted)


def _unused_search(context: SpeedContext) -> Iterator[Advice]:
    train = context.spec.train
    if context.work.world > 1 and context.work.zero_stage is None and train.get("ddp_find_unused_parameters") is True:
        yield _rule("find_unused_parameters", fix=Fix(set={"ddp_find_unused_parameters": False}))


_RULES: tuple[Callable[[SpeedContext], Iterable[Advice]], ...] = (
    _full_precision,
    _quantized_with_room,
    _host_activations,
    _neat_packing,
    _slow_optimizer,
    _preprocessing,
    _long_cutoff,
    _saves,
    _unused_search,
)
