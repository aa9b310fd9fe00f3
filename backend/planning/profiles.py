"""A card and the number of GPUs in, environment profiles out: variables with reason and source, to be compared A/B."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backend.domain.advice import Advice, Basis
from backend.domain.problem import Fix, Severity
from backend.planning.advice_texts import TEXTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One environment variable. `reason` in a few words; `source` says who recommends it."""

    name: str
    value: str
    reason: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A named set of variables. `name` is a message key."""

    name: str
    variables: tuple[Variable, ...]

    @property
    def env(self) -> Mapping[str, str]:
        return {variable.name: variable.value for variable in self.variables}


_MI300 = ("gfx942", "gfx950")
_LAUNCH = Variable(
    name="HIP_FORCE_DEV_KERNARG", value="1", reason="kernel arguments in device memory: 2-3 us less per launch",
    source="AMD documentation",
)  # fmt: skip
_QUEUES = Variable(
    name="GPU_MAX_HW_QUEUES", value="2", reason="computing and communication overlap better with few queues",
    source="AMD documentation, Primus",
)  # fmt: skip
_PRIORITY = Variable(
    name="TORCH_NCCL_HIGH_PRIORITY", value="1", reason="collectives are not held up behind compute kernels",
    source="AMD documentation, Primus",
)  # fmt: skip
_SCRATCH = Variable(
    name="HSA_NO_SCRATCH_RECLAIM", value="1", reason="no stall when scratch memory is claimed again (costs some memory)",
    source="Primus",
)  # fmt: skip
_CHANNELS = Variable(
    name="NCCL_MIN_NCHANNELS", value="112", reason="all links between eight GPUs in use; never with fewer GPUs",
    source="AMD documentation",
)  # fmt: skip


def plain_profile() -> Profile:
    """Nothing set: what everything else is compared with."""
    return Profile(name="plain", variables=())


def build_profiles(gfx: str, gpus: int, nodes: int = 1) -> tuple[Profile, ...]:
    """Profiles worth an A/B trial on such GPUs, the plain one first. NVIDIA and unknown targets have only that one."""
    target = gfx.split(":")[0]
    if target not in _MI300:
        return (plain_profile(),)
    single = [_LAUNCH, _QUEUES, _PRIORITY, _SCRATCH] if gpus > 1 else [_LAUNCH]
    if target == "gfx942" and gpus == 8:
        single.append(_CHANNELS)
    profiles = [plain_profile(), Profile(name="amd_single_node", variables=tuple(single))]
    if nodes > 1:
        ignore = Variable(
            name="NCCL_IGNORE_CPU_AFFINITY", value="1", reason="network threads may run on the cores near the network card",
            source="AMD documentation",
        )  # fmt: skip
        profiles.append(Profile(name="amd_multi_node", variables=(*single, ignore)))
    return tuple(profiles)


def advise_profile(gfx: str, gpus: int, env: Mapping[str, str], card: str) -> Advice | None:
    """The single-node profile as advice, for the variables that are not set yet."""
    profiles = build_profiles(gfx, gpus)
    missing = [v for v in profiles[-1].variables if v.name not in env]
    if len(profiles) < 2 or not missing:
        return None
    text = TEXTS["environment_preset"]
    expected = ", ".join(f"{variable.name}={variable.value} ({variable.reason})" for variable in missing)
    params = {"found": card, "expected": expected}
    return Advice(
        code="environment_preset",
        severity=Severity.NOTE,
        field=text.field,
        found=card,
        expected=expected,
        reason=text.reason.format_map(params),
        remedy=text.remedy,
        basis=Basis.RULE,
        fix=Fix(set={f"tunedeck.env.{variable.name}": variable.value for variable in missing}),
        params=params,
    )
