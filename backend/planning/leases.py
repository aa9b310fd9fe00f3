"""Devices and what is known of each in, the set to lease and the one variable that shows them to a job out. Pure.

A lease is a set of PCI addresses; two leases may not overlap. The table of leases itself is the store's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from backend.domain.gpu import Device, DeviceHealth, DeviceLink, DeviceProcess
from backend.errors import InvalidInput

VISIBILITY_VARIABLES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")

IDLE_VRAM_BYTES = 2 << 30
IDLE_ACTIVITY_PERCENT = 10.0


class Hindrance(StrEnum):
    """Why a device is not chosen."""

    LEASED = "leased"
    SET_ASIDE = "set_aside"
    LOST = "lost"
    NOT_ACCESSIBLE = "not_accessible"
    FOREIGN_PROCESS = "foreign_process"
    BUSY = "busy"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """One device as the chooser sees it. `activity_percent` and `vram_used_bytes` None = not reported, which hinders nothing."""

    device: Device
    leased_by: str = ""
    health: DeviceHealth | None = None
    lost: bool = False
    foreign: tuple[DeviceProcess, ...] = ()
    activity_percent: float | None = None
    vram_used_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`devices` in HIP order, empty when there are not enough; `hindered` says why each other one was not taken.

    `warnings` name what a person should see before the launch: foreign processes on a device that was asked for by name.
    """

    devices: tuple[str, ...] = ()
    hindered: Mapping[str, Hindrance] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    islands: int = 0
    """On how many xGMI (NVLink) islands the chosen devices lie: 1 is best."""


def hindrance(state: DeviceState) -> Hindrance | None:
    """Why this device should not be chosen for a job that left the choice to us; None when nothing speaks against it."""
    if state.leased_by:
        return Hindrance.LEASED
    if state.health is not None and state.health.set_aside:
        return Hindrance.SET_ASIDE
    if state.lost:
        return Hindrance.LOST
    if not state.device.accessible:
        return Hindrance.NOT_ACCESSIBLE
    if state.foreign:
        return Hindrance.FOREIGN_PROCESS
    busy = (state.activity_percent or 0) > IDLE_ACTIVITY_PERCENT or (state.vram_used_bytes or 0) > IDLE_VRAM_BYTES
    return Hindrance.BUSY if busy else None


def choose_devices(count: int, states: Sequence[DeviceState], links: Iterable[DeviceLink] = ()) -> Choice:
    """`count` idle, healthy devices, on as few islands as possible, leaving large islands whole for others."""
    reasons = {state.device.id: hindrance(state) for state in states}
    free = [state.device for state in states if reasons[state.device.id] is None]
    hindered = {device: reason for device, reason in reasons.items() if reason is not None}
    if count <= 0 or len(free) < count:
        return Choice(hindered=hindered)
    groups = _group(free, find_islands([state.device for state in states], links))
    fitting = [group for group in groups if len(group) >= count]
    if fitting:
        chosen = min(fitting, key=lambda group: (len(group), _order(group[0])))[:count]
    else:
        largest_first = sorted(groups, key=lambda group: (-len(group), _order(group[0])))
        chosen = [device for group in largest_first for device in group][:count]
    taken = {device.id for device in chosen}
    used = sum(1 for group in groups if any(device.id in taken for device in group))
    return Choice(devices=_in_hip_order(chosen), hindered=hindered, islands=used)


def check_devices(wanted: Sequence[str], states: Sequence[DeviceState], links: Iterable[DeviceLink] = ()) -> Choice:
    """The devices a person named. Raises InvalidInput for an unknown one; `devices` stays empty while one cannot be had.

    A foreign process or activity is no bar here: the person sees it as a warning and decides.
    """
    known = {state.device.id: state for state in states}
    for device in wanted:
        if device not in known:
            raise InvalidInput(
                "tunedeck.gpus",
                found=repr(device),
                expected=f"PCI addresses of this host: {', '.join(sorted(known)) or 'it has no GPU'}",
            )
    if len(set(wanted)) != len(wanted):
        raise InvalidInput("tunedeck.gpus", found="the same device twice", expected="each device once")
    soft = (Hindrance.FOREIGN_PROCESS, Hindrance.BUSY)
    reasons = {device: hindrance(known[device]) for device in wanted}
    hindered = {device: reason for device, reason in reasons.items() if reason is not None and reason not in soft}
    warnings = tuple(_describe(known[device]) for device in wanted if reasons[device] in soft)
    if hindered:
        return Choice(hindered=hindered, warnings=warnings)
    islands = find_islands([state.device for state in states], links)
    chosen = [known[device].device for device in wanted]
    return Choice(
        devices=_in_hip_order(chosen),
        warnings=warnings,
        islands=len({islands[device.id] for device in chosen}),
    )


def find_islands(devices: Sequence[Device], links: Iterable[DeviceLink] = ()) -> dict[str, str]:
    """Device -> a name shared by all devices that reach each other over direct xGMI (NVLink) links.

    Where no links are known, cards of one hive (`hive_id`) and partitions of one card belong together.
    """
    parent = {device.id: device.id for device in devices}

    def root(device: str) -> str:
        while parent[device] != device:
            device = parent[device]
        return device

    def join(one: str, other: str) -> None:
        if one in parent and other in parent:
            parent[max(root(one), root(other))] = min(root(one), root(other))

    hives: dict[int, str] = {}
    for device in devices:
        if device.card:
            join(device.id, device.card)
        if device.hive_id:
            join(device.id, hives.setdefault(device.hive_id, device.id))
    for link in links:
        if link.kind in ("XGMI", "NVLINK") and link.up is not False and (link.hops or 1) == 1:
            join(link.source, link.target)
    return {device.id: root(device.id) for device in devices}


def build_visibility(devices: Sequence[Device], accelerator: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Variables to set and to remove so that a child sees exactly `devices`, in their order. `accelerator`: rocm, cuda or cpu.

    Exactly one visibility variable is set, never empty (HIP takes an empty one for "not set" and shows all): `-1` hides all.
    HIP indices go to HIP_VISIBLE_DEVICES: with ROCR_VISIBLE_DEVICES as well they would count twice. Raises InvalidInput when a
    device's index is not known.
    """
    if accelerator == "cuda":
        values = [_index(device, device.smi_index, "nvidia-smi index") for device in devices]
        # Without it CUDA numbers the fastest card first, nvidia-smi goes by bus.
        chosen = {"CUDA_VISIBLE_DEVICES": ",".join(values) or "-1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    elif accelerator == "rocm":
        values = [_index(device, device.hip_id, "HIP index") for device in devices]
        chosen = {"HIP_VISIBLE_DEVICES": ",".join(values) or "-1"}
    else:
        # HIP reads CUDA's variable when its own is empty, so this hides every GPU from a CPU run.
        chosen = {"CUDA_VISIBLE_DEVICES": "-1"}
    return chosen, tuple(name for name in VISIBILITY_VARIABLES if name not in chosen)


def restrict_devices(
    devices: Sequence[Device], environment: Mapping[str, str]
) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """Devices that the dashboard's own environment lets it use, and warnings.

    An administrator may have started it on a part of the host. We remove these variables from our children, so the restriction
    has to be kept here. ROCR counts first, HIP counts what ROCR left, CUDA stands in for an empty HIP variable.
    """
    amd = sorted((device for device in devices if device.vendor == "amd"), key=_order)
    nvidia = [device for device in devices if device.vendor != "amd"]
    warnings = []
    if rocr := environment.get("ROCR_VISIBLE_DEVICES"):
        warnings.append("the dashboard runs under ROCR_VISIBLE_DEVICES: other tools number the devices differently")
        amd = _select(amd, rocr)
    if hip := environment.get("HIP_VISIBLE_DEVICES") or environment.get("CUDA_VISIBLE_DEVICES"):
        amd = _select(amd, hip)
    if (cuda := environment.get("CUDA_VISIBLE_DEVICES")) is not None:
        nvidia = _select(nvidia, cuda)
    return (*amd, *nvidia), tuple(warnings)


def judge_health(health: DeviceHealth, uncorrectable: int | None, now: float) -> DeviceHealth:
    """Health after a reading. More uncorrectable errors than before set the card aside until a person clears it.

    Counters count since boot: the first reading is the baseline, and a smaller number is a new boot, whose errors are all new.
    """
    before = health.uncorrectable_baseline
    if uncorrectable is None:
        return health
    if before is None:
        return DeviceHealth(device=health.device, uncorrectable_baseline=uncorrectable, uncorrectable_now=uncorrectable)
    baseline = 0 if uncorrectable < before else before
    new = uncorrectable - baseline
    reason = health.set_aside or (f"{new} new uncorrectable memory error(s)" if new else "")
    return DeviceHealth(
        device=health.device,
        uncorrectable_baseline=baseline,
        uncorrectable_now=uncorrectable,
        set_aside=reason,
        since=health.since if health.set_aside else now if reason else None,
    )


def clear_health(health: DeviceHealth) -> DeviceHealth:
    """A person looked at the card: its errors so far no longer count."""
    return DeviceHealth(
        device=health.device,
        uncorrectable_baseline=health.uncorrectable_now,
        uncorrectable_now=health.uncorrectable_now,
    )


# --- helpers ----------------------------------------------------------------------------------------------------------


def _group(devices: Sequence[Device], islands: Mapping[str, str]) -> list[list[Device]]:
    groups: dict[str, list[Device]] = {}
    for device in sorted(devices, key=_order):
        groups.setdefault(islands[device.id], []).append(device)
    return list(groups.values())


def _order(device: Device) -> tuple[int, int, str]:
    index = device.hip_id if device.hip_id is not None else device.smi_index
    return (device.numa_node or 0, 1 << 30 if index is None else index, device.id)


def _in_hip_order(devices: Sequence[Device]) -> tuple[str, ...]:
    return tuple(device.id for device in sorted(devices, key=lambda device: _order(device)[1:]))


def _describe(state: DeviceState) -> str:
    if state.foreign:
        names = ", ".join(f"{process.name or 'process'} {process.pid}" for process in state.foreign[:4])
        return f"{state.device.id} is used by others: {names}"
    return f"{state.device.id} is busy ({state.activity_percent or 0:.0f} %, {(state.vram_used_bytes or 0) >> 20} MiB in use)"


def _index(device: Device, index: int | None, what: str) -> str:
    if index is None:
        raise InvalidInput(
            "tunedeck.gpus",
            found=f"{device.id} without a {what}",
            expected="a device whose index is known",
            remedy="See the GPUs page for what the telemetry source reports.",
        )
    return str(index)


def _select(devices: Sequence[Device], value: str) -> list[Device]:
    """As the runtimes read it: indices or `GPU-<uuid>` in order, the first that means nothing ends the list."""
    chosen: list[Device] = []
    for part in (item.strip() for item in value.split(",")):
        if part.isdigit() and int(part) < len(devices):
            device: Device | None = devices[int(part)]
        else:
            device = next((one for one in devices if part.startswith("GPU-") and one.uuid.startswith(part)), None)
        if device is None or device in chosen:
            break
        chosen.append(device)
    return chosen
