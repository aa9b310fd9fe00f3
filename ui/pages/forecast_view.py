"""A Forecast in, what the New run page shows of it out: the memory bar of one GPU, and advice with estimated gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.domain.advice import Advice, Basis
from backend.services.forecast import Forecast, MemoryPlan
from backend.services.form import field_of
from ui.text import advice_zh

Texts = Mapping[str, str]
"""Words of the page's language; `lang` names it."""

_GROUPS: Mapping[str, tuple[str, ...]] = {
    "weights": ("weights", "adapters", "masters", "reference"),
    "optimizer": ("optimizer", "gradients", "buffers"),
    "activations": ("activations", "layer", "logits"),
    "overhead": ("slack", "context", "communication"),
}
"""Bars of one colour; their parts are listed beneath."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartView:
    """One bar. `share` of the drawn width (0..1), `parts` its content in words."""

    name: str
    label: str
    value: str
    share: float
    parts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryView:
    """`state`: fits, tight (only the lower bound fits), over, unknown (no card to compare with). Positions are shares of the
    drawn width: the band of the estimate, and where the card ends (None without a card)."""

    state: str
    title: str
    value: str
    bars: tuple[PartView, ...]
    low: float
    high: float
    capacity: float | None
    lines: tuple[tuple[str, str], ...]
    doubts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceView:
    """One change. `gain` in words ("" = no figure), `effects` what it does to the result."""

    id: str
    severity: str
    title: str
    gain: str
    reason: str
    remedy: str
    effects: tuple[str, ...]
    fixable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastView:
    """Memory None: the model's shape is not known, `notes` say why."""

    memory: MemoryView | None
    advice: tuple[AdviceView, ...]
    headline: str
    faster: str
    """Text of the button that takes all advice with a figure at once; "" without one."""
    notes: tuple[str, ...]


def build_forecast_view(forecast: Forecast, texts: Texts, *, on_gpu: bool) -> ForecastView:
    """`on_gpu`: the estimates are of this host's cards; without any, no gain is named."""
    advice = tuple(build_advice_view(each, texts, figures=on_gpu) for each in forecast.advices)
    gain = forecast.speed.gain if on_gpu else None
    worth = gain is not None and gain >= 1.05 and forecast.speed.best_fix is not None
    headline = texts["new.speed.gain"].format(n=times(gain)) if worth and gain else texts["new.speed.some"]
    return ForecastView(
        memory=_memory(forecast.memory, forecast, texts) if forecast.memory else None,
        advice=advice,
        headline=headline if advice else "",
        faster=texts["new.speed.all"] if forecast.speed.best_fix is not None and len(advice) > 1 else "",
        notes=tuple(_said(note, texts) for note in forecast.notes if forecast.memory is None and "GPU" not in note[:7]),
    )


def build_advice_view(advice: Advice, texts: Texts, *, figures: bool = True) -> AdviceView:
    reason, remedy = _words(advice, texts)
    item = field_of(advice.field) if advice.field else None
    shown = advice.gain if figures or advice.basis is Basis.MEASURED else None
    return AdviceView(
        id=advice.code,
        severity=advice.severity.value,
        title=texts.get(f"advice.{advice.code}") or (texts[f"field.{item.name}"] if item else advice.field),
        gain=times(shown) if shown and shown >= 1.005 else "",
        reason=reason,
        remedy=remedy,
        effects=_effects(advice, texts),
        fixable=advice.fix is not None,
    )


def times(gain: float | None) -> str:
    return "" if gain is None else f"{gain:.1f}×" if gain < 20 else f"{gain:.0f}×"


def _words(advice: Advice, texts: Texts) -> tuple[str, str]:
    if texts["lang"] != "zh" or advice.code not in advice_zh.TEXT:
        return advice.reason, advice.remedy
    values = {"found": advice.found, "expected": advice.expected, **advice.params}
    try:
        reason, remedy = (template.format_map(values) for template in advice_zh.TEXT[advice.code])
    except KeyError:
        return advice.reason, advice.remedy
    return reason, remedy


def _effects(advice: Advice, texts: Texts) -> tuple[str, ...]:
    if not advice.effects:
        return ()
    if texts["lang"] == "en" and advice.effect_text:
        return (advice.effect_text,)
    return tuple(texts[f"new.effect.{effect.value}"] for effect in advice.effects)


# --- memory ------------------------------------------------------------------------------------------------------------


def _memory(plan: MemoryPlan, forecast: Forecast, texts: Texts) -> MemoryView:
    whole = max(plan.high, plan.capacity_bytes or 0) or 1
    state = _state(plan)
    capacity = gib(plan.capacity_bytes) if plan.capacity_bytes else ""
    return MemoryView(
        state=state,
        title=texts[f"new.memory.{state}"].format(capacity=capacity),
        value=texts["new.memory.value"].format(used=gib(plan.used), low=gib(plan.low), high=gib(plan.high)),
        bars=tuple(_bars(plan, whole, texts)),
        low=plan.low / whole,
        high=plan.high / whole,
        capacity=plan.capacity_bytes / whole if plan.capacity_bytes else None,
        lines=tuple(_lines(plan, forecast, texts)),
        doubts=tuple(_said(doubt, texts) for doubt in plan.doubts),
    )


def _state(plan: MemoryPlan) -> str:
    if plan.fits is None:
        return "unknown"
    return "fits" if plan.fits else "tight" if plan.may_fit else "over"


def _bars(plan: MemoryPlan, whole: int, texts: Texts) -> Sequence[PartView]:
    sizes = {part.name: part.size for part in plan.parts}
    bars = []
    for group, names in _GROUPS.items():
        parts = [(name, sizes[name]) for name in names if sizes.get(name)]
        total = sum(size for _, size in parts)
        if total:
            words = tuple((texts[f"new.memory.part.{name}"], gib(size)) for name, size in parts)
            label = texts[f"new.memory.group.{group}"]
            bars.append(PartView(name=group, label=label, value=gib(total), share=total / whole, parts=words))
    return bars


def _lines(plan: MemoryPlan, forecast: Forecast, texts: Texts) -> Sequence[tuple[str, str]]:
    lines = []
    if forecast.largest_micro_batch:
        lines.append((texts["new.memory.largest"], str(forecast.largest_micro_batch)))
    lines.append((texts["new.memory.host"], gib(plan.host_bytes)))
    lines.append((texts["new.memory.checkpoint"], gib(plan.checkpoint_bytes)))
    if plan.corrected_by:
        lines.append((texts["new.memory.corrected"], str(plan.corrected_by)))
    return lines


def gib(size: int) -> str:
    value = size / (1 << 30)
    if value >= 0.95:
        return f"{value:.0f} GiB" if value >= 100 else f"{value:.1f} GiB"
    return f"{size / (1 << 20):.0f} MiB" if size >= 1 << 20 else "< 1 MiB"


_SAID_ZH: Mapping[str, str] = {
    "row lengths are not known": "行长未知：按每行都达到 cutoff_len 计算",
    "row lengths are an estimate": "行长是按字符数估计的，不是用模型的分词器统计的",
    "torch.compile changes": "torch.compile 会改变保留的内容，未计入模型",
    "how many rows each expert": "每个专家分到的行数逐步变化",
    "Row lengths are not known": "行长未知：按每行都达到 cutoff_len 计算。",
    "The model's shape could not be read": "无法读取模型结构，因此没有显存规划。",
}


def _said(words: str, texts: Texts) -> str:
    """A doubt or note of the plan in the page's language; the model's own remarks stay English."""
    if texts["lang"] != "zh":
        return words
    if words.endswith("no memory plan."):
        return "这个模型不在本机，也不在已知模型表中：没有显存规划。"
    return next((chinese for start, chinese in _SAID_ZH.items() if words.startswith(start)), words)
