"""Environment variables of a job -> Problems: what does not belong on an Instinct, fights with another, or costs speed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from backend.domain.problem import Fix, Problem, Severity
from backend.planning.linting.context import LintContext
from backend.planning.linting.report import report

SPEED_VARIABLES = {
    "CUDA_LAUNCH_BLOCKING": ("1",),
    "HIP_LAUNCH_BLOCKING": ("1",),
    "AMD_SERIALIZE_KERNEL": ("1", "2", "3"),
    "AMD_SERIALIZE_COPY": ("1", "2", "3"),
    "NCCL_P2P_DISABLE": ("1",),
    "NCCL_IB_DISABLE": ("1",),
    "NCCL_SHM_DISABLE": ("1",),
    "HSA_ENABLE_SDMA": ("0",),
    "TORCH_DISTRIBUTED_DEBUG": ("DETAIL",),
    "GPU_MAX_HW_QUEUES": ("1",),
    "TORCH_USE_HIP_DSA": ("1",),
    "TORCHDYNAMO_VERBOSE": ("1",),
}
"""Debugging switches that slow a job down, and the values that switch them on."""

VISIBILITY = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
_NVIDIA_ONLY = ("NCCL_NVLS_ENABLE", "CUDA_DEVICE_ORDER", "NVTE_FLASH_ATTN", "NVIDIA_VISIBLE_DEVICES")


def lint_environment(
    variables: Mapping[str, str], context: LintContext, *, lines: Mapping[str, int] | None = None, own: bool = False
) -> Iterator[Problem]:
    """`own`: the variables stand in our section of a spec, so that a fix can remove them there."""
    lines = lines or {}

    def fix(*names: str) -> Fix | None:
        return Fix(remove=tuple(f"tunedeck.env.{name}" for name in names)) if own else None

    if "HSA_OVERRIDE_GFX_VERSION" in variables and context.accelerator != "cuda":
        name = "HSA_OVERRIDE_GFX_VERSION"
        yield report(
            "gfx_override_set",
            Severity.WARNING,
            field=name,
            found=variables[name],
            line=lines.get(name),
            fix=fix(name),
            evidence=f"{name}={variables[name]}",
        )
    for name in ("PYTORCH_ROCM_ARCH", "GPU_ARCHS", "HCC_AMDGPU_TARGET", "TORCH_CUDA_ARCH_LIST", "DS_BUILD_OPS"):
        if name in variables:
            yield report(
                "build_variable_at_run",
                Severity.NOTE,
                field=name,
                found=variables[name],
                line=lines.get(name),
                fix=fix(name),
            )
    for name, values in SPEED_VARIABLES.items():
        if variables.get(name, "").upper() in values:
            yield report(
                "speed_env", Severity.WARNING, field=name, found=variables[name], line=lines.get(name), fix=fix(name)
            )
    yield from _visibility(variables, lines, fix(*[name for name in VISIBILITY if name in variables]))
    if variables.get("ALLOW_EXTRA_ARGS", "").lower() in ("1", "true", "y"):
        yield report(
            "extra_args_allowed",
            Severity.WARNING,
            field="ALLOW_EXTRA_ARGS",
            found=variables["ALLOW_EXTRA_ARGS"],
            line=lines.get("ALLOW_EXTRA_ARGS"),
            fix=fix("ALLOW_EXTRA_ARGS"),
        )
    if context.accelerator == "rocm":
        for name in _NVIDIA_ONLY:
            if name in variables:
                yield report(
                    "nvidia_only_variable",
                    Severity.NOTE,
                    field=name,
                    found=variables[name],
                    line=lines.get(name),
                    fix=fix(name),
                )


def _visibility(variables: Mapping[str, str], lines: Mapping[str, int], fix: Fix | None) -> Iterator[Problem]:
    """ROCR hides first and renumbers from 0; HIP (else CUDA) then counts in what is left."""
    given = [name for name in VISIBILITY if variables.get(name)]
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        if name in variables and not variables[name].strip():
            yield report(
                "visibility_empty", Severity.WARNING, field=name, found="", expected="0,1 | -1", line=lines.get(name)
            )
    rocr = _indices(variables.get("ROCR_VISIBLE_DEVICES", ""))
    inner_name = "HIP_VISIBLE_DEVICES" if variables.get("HIP_VISIBLE_DEVICES") else "CUDA_VISIBLE_DEVICES"
    inner = _indices(variables.get(inner_name, ""))
    if rocr and inner and max(inner) >= len(rocr):
        yield report(
            "visibility_conflict",
            Severity.ERROR,
            field=inner_name,
            found=f"ROCR_VISIBLE_DEVICES={variables['ROCR_VISIBLE_DEVICES']} {inner_name}={variables[inner_name]}",
            expected=f"0..{len(rocr) - 1}",
            line=lines.get(inner_name),
            fix=fix,
        )
    elif len(given) > 1 and len({variables[name] for name in given}) > 1:
        yield report(
            "visibility_several",
            Severity.WARNING,
            field=given[-1],
            found=" ".join(f"{name}={variables[name]}" for name in given),
            expected="HIP_VISIBLE_DEVICES",
            line=lines.get(given[-1]),
            fix=fix,
        )


def _indices(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return [int(part) for part in parts] if parts and all(re.fullmatch(r"\d{1,4}", part) for part in parts) else []


def count_visible(variables: Mapping[str, str]) -> int | None:
    """How many devices the variables leave, when they say so by index or uuid."""
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        text = variables.get(name, "").strip()
        if text and "$" not in text:
            return 0 if text == "-1" else len([part for part in text.split(",") if part.strip()])
    return None
