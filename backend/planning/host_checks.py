"""Facts about a host and its training environment in, checks with documented advice out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backend.domain.gpu import Device, DeviceHealth, GpuReading, TelemetrySource
from backend.domain.host import CheckStatus, HostCheck, HostFacts, StackFacts

GIB = 1 << 30
MIN_SHM_BYTES = 8 * GIB
MIN_DISK_BYTES = 50 * GIB
MIN_OPEN_FILES = 8192

_RCCL = "ROCm documentation: RCCL usage tips"
_WORKLOAD = "ROCm documentation: MI300X system and workload optimization"
_DOCKER = "ROCm documentation: running ROCm containers"
_INSTALL = "ROCm documentation: installation prerequisites (user groups)"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorInput:
    """Everything the checks look at."""

    host: HostFacts
    source: TelemetrySource
    devices: tuple[Device, ...] = ()
    readings: tuple[GpuReading, ...] = ()
    health: tuple[DeviceHealth, ...] = ()
    stack: StackFacts | None = None

    @property
    def has_amd(self) -> bool:
        return any(device.vendor == "amd" for device in self.devices)

    @property
    def targets(self) -> tuple[str, ...]:
        """GPU targets of this host (gfx942, sm_90)."""
        return tuple(dict.fromkeys(device.gfx_target for device in self.devices if device.gfx_target))


def judge_host(facts: DoctorInput) -> tuple[HostCheck, ...]:
    """All checks, in the order of the page: GPUs, host, training environment."""
    return tuple(check for judge in _CHECKS for check in judge(facts))


def worst(checks: Sequence[HostCheck]) -> CheckStatus:
    """The status to show for all of them."""
    order = (CheckStatus.ERROR, CheckStatus.WARNING, CheckStatus.NOTE)
    found = {check.status for check in checks}
    return next((status for status in order if status in found), CheckStatus.OK)


# --- GPUs -------------------------------------------------------------------------------------------------------------


def _gpu_source(facts: DoctorInput) -> list[HostCheck]:
    source, count = facts.source, len(facts.devices)
    if source.kind == "none":
        return [
            HostCheck(
                code="gpu_source",
                status=CheckStatus.NOTE,
                title="GPU telemetry",
                found=f"none: {source.reason}",
                expected="a GPU with its driver, or a CPU host",
                advice="Training runs on the CPU here. If there is a GPU: load its driver, or give the devices to the container.",
                source=_DOCKER,
            )
        ]
    status = CheckStatus.OK if source.verdict == "ok" else CheckStatus.WARNING
    skipped = "".join(f"; {kind} not used: {why}" for kind, why in source.tried.items())
    return [
        HostCheck(
            code="gpu_source",
            status=status,
            title="GPU telemetry",
            found=f"{source.label}, {count} device(s){skipped}",
            expected="a source that reads all cards",
            advice=source.reason or "The dashboard reads amdsmi in a helper process, then amd-smi, then sysfs.",
            source="amd-smi documentation",
        )
    ]


def _gpu_access(facts: DoctorInput) -> list[HostCheck]:
    host = facts.host
    nodes = [node for node in host.device_groups if node.startswith(("/dev/kfd", "/dev/dri/render"))]
    if not nodes:
        return []
    blocked = list(host.unreachable_nodes)
    groups = sorted({str(host.device_groups[node]) for node in blocked if node in host.device_groups})
    numbers = f" (group ids {', '.join(groups)})" if groups else ""
    remedy = "sudo usermod -aG render,video $USER and log in again; container: --group-add with the number"
    return [
        HostCheck(
            code="gpu_access",
            status=CheckStatus.ERROR if blocked else CheckStatus.OK,
            title="Access to the GPU devices",
            found=f"{host.user} may not open {', '.join(blocked[:4])}"
            if blocked
            else f"{host.user} may open all {len(nodes)} nodes",
            expected="read and write access to /dev/kfd and /dev/dri/renderD*",
            advice=f"{remedy}{numbers}.",
            source=_INSTALL,
        )
    ]


def _gpu_errors(facts: DoctorInput) -> list[HostCheck]:
    if not facts.devices:
        return []
    lost = [reading.device for reading in facts.readings if reading.lost]
    aside = [f"{row.device} ({row.set_aside})" for row in facts.health if row.set_aside]
    old = [
        f"{row.device} ({row.uncorrectable_now})" for row in facts.health if row.uncorrectable_now and not row.set_aside
    ]
    down = [reading.device for reading in facts.readings if reading.xgmi_links_down]
    found = [
        *([f"no longer answering: {', '.join(lost)}"] if lost else []),
        *([f"set aside: {', '.join(aside)}"] if aside else []),
        *([f"uncorrectable errors since boot: {', '.join(old)}"] if old else []),
        *([f"xGMI links down: {', '.join(down)}"] if down else []),
    ]
    status = CheckStatus.ERROR if lost or aside else CheckStatus.WARNING if old or down else CheckStatus.OK
    return [
        HostCheck(
            code="gpu_errors",
            status=status,
            title="Health of the cards",
            found="; ".join(found) or "no errors reported",
            expected="no uncorrectable memory errors, all links up",
            advice="Look at the kernel log, drain the card and tell the operator; clear a set-aside card on the GPUs page.",
            source="ROCm documentation: RAS",
        )
    ]


# --- host -------------------------------------------------------------------------------------------------------------


def _numa_balancing(facts: DoctorInput) -> list[HostCheck]:
    value = facts.host.numa_balancing
    if not facts.has_amd:
        return []
    status = CheckStatus.SKIPPED if value is None else CheckStatus.OK if value == "0" else CheckStatus.WARNING
    return [
        HostCheck(
            code="numa_balancing",
            status=status,
            title="Automatic NUMA balancing",
            found="not readable" if value is None else f"kernel.numa_balancing = {value}",
            expected="0",
            advice="sudo sysctl kernel.numa_balancing=0: page migration makes collective operations slow and uneven.",
            source=_RCCL,
        )
    ]


def _iommu(facts: DoctorInput) -> list[HostCheck]:
    arguments = facts.host.kernel_arguments
    if not facts.has_amd or len(facts.devices) < 2:
        return []
    known = arguments is not None
    passed = known and any(
        argument in ("iommu=pt", "amd_iommu=off", "intel_iommu=off", "iommu=off") for argument in arguments or ()
    )
    return [
        HostCheck(
            code="iommu",
            status=CheckStatus.OK if passed else CheckStatus.WARNING if known else CheckStatus.SKIPPED,
            title="IOMMU in pass-through mode",
            found="not readable"
            if not known
            else "iommu=pt"
            if passed
            else "iommu=pt is not among the kernel arguments",
            expected="iommu=pt",
            advice="Add iommu=pt to the kernel command line: without it peer-to-peer copies between GPUs can hang or crawl.",
            source=_RCCL,
        )
    ]


def _shm(facts: DoctorInput) -> list[HostCheck]:
    size = facts.host.shm_total_bytes
    status = CheckStatus.SKIPPED if size is None else CheckStatus.OK
    if size is not None and size < MIN_SHM_BYTES:
        status = CheckStatus.ERROR if size < GIB // 4 and len(facts.devices) > 1 else CheckStatus.WARNING
    return [
        HostCheck(
            code="shm",
            status=status,
            title="Shared memory",
            found="no /dev/shm" if size is None else f"/dev/shm has {size / GIB:.1f} GiB",
            expected=f"{MIN_SHM_BYTES // GIB} GiB or more",
            advice="Container: --shm-size 16G or --ipc=host. Data loaders and collectives of one node exchange data there.",
            source=_DOCKER,
        )
    ]


def _memlock(facts: DoctorInput) -> list[HostCheck]:
    limit = facts.host.memlock_bytes
    if limit is None:
        return []
    enough = limit < 0 or limit >= 64 * GIB
    needed = bool(facts.devices)
    return [
        HostCheck(
            code="memlock",
            status=CheckStatus.OK if enough else CheckStatus.WARNING if needed else CheckStatus.NOTE,
            title="Locked memory",
            found="unlimited" if limit < 0 else f"{limit / GIB:.2f} GiB",
            expected="unlimited",
            advice="ulimit -l unlimited (container: --ulimit memlock=-1): pinned buffers fail with HSA_STATUS_ERROR_... else.",
            source="ROCm documentation: troubleshooting",
        )
    ]


def _open_files(facts: DoctorInput) -> list[HostCheck]:
    limit = facts.host.open_files
    if limit is None:
        return []
    return [
        HostCheck(
            code="open_files",
            status=CheckStatus.OK if limit < 0 or limit >= MIN_OPEN_FILES else CheckStatus.NOTE,
            title="Open files",
            found="unlimited" if limit < 0 else str(limit),
            expected=f"{MIN_OPEN_FILES} or more",
            advice="ulimit -n 65536: many data loader workers end in 'Too many open files'.",
            source="PyTorch documentation: multiprocessing best practices",
        )
    ]


def _disks(facts: DoctorInput) -> list[HostCheck]:
    checks = []
    for disk in facts.host.disks:
        free = disk.free_bytes
        status = (
            CheckStatus.SKIPPED if free is None else CheckStatus.OK if free >= MIN_DISK_BYTES else CheckStatus.WARNING
        )
        if free is not None and free < GIB:
            status = CheckStatus.ERROR
        checks.append(
            HostCheck(
                code=f"disk_{disk.label}",
                status=status,
                title=f"Disk of {disk.label}",
                found="not readable" if free is None else f"{free / GIB:.1f} GiB free below {disk.path}",
                expected=f"{MIN_DISK_BYTES // GIB} GiB or more",
                advice="A full checkpoint with optimizer states takes 12 to 16 bytes per parameter; set save_total_limit.",
                source="ZeRO paper: memory of mixed-precision Adam",
            )
        )
    return checks


def _variables(facts: DoctorInput) -> list[HostCheck]:
    environment, found = facts.host.environment, []
    if value := environment.get("HSA_OVERRIDE_GFX_VERSION"):
        found.append(f"HSA_OVERRIDE_GFX_VERSION={value} (illegal instructions on Instinct cards)")
    visible = [
        name
        for name in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
        if environment.get(name)
    ]
    if len(visible) > 1:
        found.append(f"{' and '.join(visible)} together (they count one after the other)")
    elif "ROCR_VISIBLE_DEVICES" in visible:
        found.append("ROCR_VISIBLE_DEVICES (tools number the devices differently under it)")
    if environment.get("GPU_DEVICE_ORDINAL"):
        found.append("GPU_DEVICE_ORDINAL (hides devices from part of the stack only)")
    if not facts.has_amd and not found:
        return []
    return [
        HostCheck(
            code="variables",
            status=CheckStatus.WARNING if found else CheckStatus.OK,
            title="Environment variables of the dashboard",
            found="; ".join(found) or "none that disturb",
            expected="no GFX override, at most one visibility variable",
            advice="Start the dashboard without them; jobs get exactly one visibility variable from us.",
            source="ROCm documentation: GPU isolation techniques",
        )
    ]


def _versions(facts: DoctorInput) -> list[HostCheck]:
    if not facts.has_amd:
        return []
    driver = next((device.driver_version for device in facts.devices if device.driver_version), "")
    rocm = facts.host.rocm_version
    newer = facts.source.verdict == "driver_newer_than_library"
    return [
        HostCheck(
            code="rocm",
            status=CheckStatus.WARNING if newer else CheckStatus.OK if rocm else CheckStatus.NOTE,
            title="ROCm and driver",
            found=f"ROCm {rocm or 'not installed here'}, amdgpu driver {driver or 'unknown'}",
            expected="a user space as new as the driver",
            advice="Older user space reads N/A for power, clocks and activity. A wheel of PyTorch brings its own ROCm libraries.",
            source="amd-smi changelog",
        )
    ]


# --- training environment ---------------------------------------------------------------------------------------------


def _torch(facts: DoctorInput) -> list[HostCheck]:
    stack = facts.stack
    if stack is None:
        return []
    if stack.fault:
        return [
            HostCheck(
                code="training_environment",
                status=CheckStatus.ERROR,
                title="Training environment",
                found=stack.fault,
                expected="an interpreter with torch and llamafactory",
                advice="Run scripts/setup, or name an interpreter with TUNEDECK_TRAINING_PYTHON.",
                source="docs/settings.md",
            )
        ]
    return [_torch_build(facts, stack), *_collectives(facts, stack), *_amdsmi(stack), *_parts(facts, stack)]


def _torch_build(facts: DoctorInput, stack: StackFacts) -> HostCheck:
    wanted = "rocm" if facts.has_amd else "cuda" if facts.devices else "cpu"
    missing = [target for target in facts.targets if stack.architectures and target not in stack.architectures]
    found = f"torch {stack.torch_version} for {stack.built_for or 'cpu'} {stack.runtime}".strip()
    status = CheckStatus.OK
    if facts.devices and stack.built_for != wanted:
        status, found = CheckStatus.ERROR, f"{found}, but the GPUs need {wanted}"
    elif missing:
        status, found = CheckStatus.ERROR, f"{found}, without kernels for {', '.join(missing)}"
    elif facts.devices and stack.device_count is not None and stack.device_count < len(facts.devices):
        status, found = CheckStatus.WARNING, f"{found}, sees {stack.device_count} of {len(facts.devices)} devices"
    return HostCheck(
        code="torch_build",
        status=status,
        title="PyTorch build",
        found=found,
        expected=f"a {wanted} build with {', '.join(facts.targets) or 'any target'}",
        advice="Install this accelerator's wheel or take a rocm/pytorch image: else kernels fail as 'invalid device function'.",
        source="PyTorch documentation: installation",
    )


def _collectives(facts: DoctorInput, stack: StackFacts) -> list[HostCheck]:
    if not facts.devices:
        return []
    libraries = facts.host.rccl_libraries
    several = len(libraries) > 1
    beside = f"; also on this host: {', '.join(libraries)}" if several else ""
    return [
        HostCheck(
            code="rccl",
            status=CheckStatus.NOTE if several or not stack.collective_library else CheckStatus.OK,
            title="RCCL / NCCL",
            found=f"{stack.collective_library or 'version unknown'}{beside}",
            expected="one library, the one that torch brings",
            advice="Keep a second library out of LD_LIBRARY_PATH: two in one job hang. NCCL_DEBUG=INFO names the one used.",
            source=_RCCL,
        )
    ]


def _amdsmi(stack: StackFacts) -> list[HostCheck]:
    if not stack.amdsmi_breaks_torch:
        return []
    return [
        HostCheck(
            code="amdsmi_package",
            status=CheckStatus.ERROR,
            title="amdsmi package in the training environment",
            found="the amdsmi package is installed and its library is not",
            expected="no amdsmi package there, or ROCm's libamd_smi.so",
            advice="pip uninstall amdsmi: PyTorch for ROCm imports it and then fails with KeyError: 'libamd_smi.so'.",
            source="PyTorch source, torch/cuda/__init__.py",
        )
    ]


_PART_ADVICE = {
    "bitsandbytes": ("needed for QLoRA and 8-bit optimizers", "bitsandbytes documentation: AMD ROCm wheels"),
    "flash_attn": ("needed for flash_attn: fa2; sdpa is the safe default", "ROCm flash-attention README"),
    "deepspeed": ("needed for ZeRO; its CPU optimizer is built at first use", "DeepSpeed documentation: installation"),
    "compiler": ("builds DeepSpeed's operators (g++, ninja)", "DeepSpeed documentation: installation"),
    "liger_kernel": ("fused kernels, enable_liger_kernel", "Liger Kernel README"),
}


def _parts(facts: DoctorInput, stack: StackFacts) -> list[HostCheck]:
    checks = []
    for part, state in stack.parts.items():
        use, source = _PART_ADVICE.get(part, ("", ""))
        absent = state == "not installed"
        checks.append(
            HostCheck(
                code=f"part_{part}",
                status=CheckStatus.OK
                if state == "ok"
                else CheckStatus.NOTE
                if absent or not facts.devices
                else CheckStatus.WARNING,
                title=part.replace("_", "-"),
                found=f"{stack.versions.get(part, '')} works".strip() if state == "ok" else state,
                expected="works, or not needed",
                advice=f"{part}: {use}." if use else "",
                source=source,
            )
        )
    return checks


_CHECKS: tuple[Callable[[DoctorInput], list[HostCheck]], ...] = (
    _gpu_source,
    _gpu_access,
    _gpu_errors,
    _versions,
    _numa_balancing,
    _iommu,
    _shm,
    _memlock,
    _open_files,
    _disks,
    _variables,
    _torch,
)
