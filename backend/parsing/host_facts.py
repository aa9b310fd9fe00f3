"""A short text of host settings (versions, `NAME=value`, driver lines) into facts and findings. Not a full environment report."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TORCH = re.compile(r"^\s*torch(?:==|:\s*| version:\s*|=)\s*([\w.+]+)", re.MULTILINE | re.IGNORECASE)
_NIGHTLY = re.compile(r"\d\.(?:dev|a0\+)20?\d{2,}|\.dev20\d{6}")
_NOT_AVAILABLE = re.compile(
    r"torch\.cuda\.is_available(?:\(\))?\s*[:=]?\s*False|torch sees (?:0|no) GPU|device_count(?:\(\))?\s*[:=]\s*0\b"
)
_DRIVER_GPU = re.compile(r"gpus? ?\(driver\)|Instinct|\bMI\d{3}|/dev/kfd|gfx9\d\w", re.IGNORECASE)
_OVERRIDE = re.compile(r"HSA_OVERRIDE_GFX_VERSION\s*[=:]\s*[\"']?([\d.]+)")
_VISIBLE = re.compile(r"^(?:export )?\s*(HIP|ROCR|CUDA)_VISIBLE_DEVICES=[\"']?([^\s\"']*)", re.MULTILINE)
_NUMA = re.compile(
    r"numa_balancing\s*[=:]?\s*1\b|NUMA (?:auto )?balancing enabled|numa_balancing:\s*(?:on|enabled)", re.IGNORECASE
)
_SLOW = re.compile(
    r"\b(AMD_SERIALIZE_KERNEL|AMD_SERIALIZE_COPY|HIP_LAUNCH_BLOCKING|CUDA_LAUNCH_BLOCKING|AMD_LOG_LEVEL|HSA_ENABLE_SDMA|"
    r"TORCH_DISTRIBUTED_DEBUG|NCCL_DEBUG|NCCL_P2P_DISABLE|NCCL_SHM_DISABLE|HSA_DISABLE_FRAGMENT_ALLOCATOR|TORCH_NCCL_BLOCKING_WAIT|"
    r"NCCL_BLOCKING_WAIT|PYTORCH_NO_HIP_MEMORY_CACHING|PYTORCH_NO_CUDA_MEMORY_CACHING|TORCH_SHOW_CPP_STACKTRACES|"
    r"NCCL_IB_DISABLE|TORCHDYNAMO_DISABLE)\s*[=:]\s*[\"']?(\w+)"
)
_SLOW_VALUES = {
    "HSA_ENABLE_SDMA": {"0"}, "AMD_LOG_LEVEL": {"1", "2", "3", "4", "5"}, "TORCH_DISTRIBUTED_DEBUG": {"DETAIL", "INFO"},
    "NCCL_DEBUG": {"INFO", "TRACE"},
}  # fmt: skip
_TORCH_WORDS = re.compile(r"torch.*(?:total_memory|mem_get_info|capacity|memory)", re.IGNORECASE)
_DRIVER_WORDS = re.compile(r"rocm-smi|amd-smi|driver|VRAM|Instinct|\bMI\d{3}", re.IGNORECASE)
_AMOUNT = re.compile(r"\b(\d+(?:\.\d+)?) ?(GiB|GB|MiB)\b")
_BYTES = re.compile(r"\b(\d{10,13})\b")
_CARD_MIB = re.compile(
    r"(\d{4,7}) ?MiB|VRAM[^\n]*?:\s*(\d{10,13})\b|(\d+(?:\.\d+)?) ?G(?:i)?B each|(\d{2,3}) ?GB (?:HBM|VRAM)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """`card_gib`: memory of one card as the driver says it."""

    torch: str | None = None
    gfx_override: str | None = None
    visible: dict[str, str] = field(default_factory=dict)
    card_gib: float | None = None
    torch_gib: float | None = None
    slow_variables: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def parse_host_facts(text: str) -> HostFacts:
    """Read what is there; every field is optional."""
    torch = _TORCH.search(text)
    override = _OVERRIDE.search(text)
    slow = tuple(dict.fromkeys(f"{name}={value}" for name, value in _SLOW.findall(text) if _is_slow(name, value)))
    warnings = []
    if torch and _NIGHTLY.search(torch[1]):
        warnings.append("nightly_build")
    if override:
        warnings.append("gfx_override_set")
    if _NUMA.search(text):
        warnings.append("numa_balancing_on")
    if slow:
        warnings.append("speed_env")
    card, seen = _card_gib(text) or _driver_gib(text), _torch_gib(text)
    short = card is not None and seen is not None and seen < 0.7 * card
    hidden = _NOT_AVAILABLE.search(text) is not None and _DRIVER_GPU.search(text) is not None
    errors = [code for code, found in (("gpu_not_visible", hidden), ("gpu_capacity_mismatch", short)) if found]
    return HostFacts(
        torch_gib=seen, torch=torch[1] if torch else None, gfx_override=override[1] if override else None,
        visible={f"{name}_VISIBLE_DEVICES": value for name, value in _VISIBLE.findall(text)}, card_gib=card,
        slow_variables=slow, errors=tuple(errors), warnings=tuple(warnings),
    )  # fmt: skip


def host_json(found: HostFacts) -> dict[str, object]:
    """The words that pages and checks use."""
    facts: dict[str, object] = {}
    if found.torch:
        facts["torch"] = found.torch
    if found.gfx_override:
        facts["gfx_override"] = found.gfx_override
    for name, value in found.visible.items():
        facts[name.lower()] = value
    if found.slow_variables:
        facts["speed_env"] = list(found.slow_variables)
    return facts


def _is_slow(name: str, value: str) -> bool:
    allowed = _SLOW_VALUES.get(name)
    return value.upper() in allowed if allowed else value not in ("0", "off", "OFF")


def _torch_gib(text: str) -> float | None:
    """Memory of one card as PyTorch sees it."""
    for line in text.splitlines():
        if _TORCH_WORDS.search(line) and (found := _AMOUNT.search(line)):
            return float(found[1]) / (1024 if found[2] == "MiB" else 1)
        if _TORCH_WORDS.search(line) and (found := _BYTES.search(line)):
            return int(found[1]) / (1 << 30)
    return None


def _driver_gib(text: str) -> float | None:
    for line in text.splitlines():
        if _DRIVER_WORDS.search(line) and not _TORCH_WORDS.search(line) and (found := _AMOUNT.search(line)):
            return float(found[1]) / (1024 if found[2] == "MiB" else 1)
    return None


def _card_gib(text: str) -> float | None:
    found = _CARD_MIB.search(text)
    if found is None:
        return None
    mib, in_bytes, gib, gb = found.groups()
    if mib:
        return int(mib) / 1024
    if in_bytes:
        return int(in_bytes) / (1 << 30)
    return float(gib or gb)
