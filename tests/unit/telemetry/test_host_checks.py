"""The doctor's judgement of a host."""

from __future__ import annotations

import pytest

from backend.domain.gpu import Device, DeviceHealth, GpuReading, TelemetrySource
from backend.domain.host import CheckStatus, DiskReading, HostCheck, HostFacts, StackFacts
from backend.planning.host_checks import DoctorInput, judge_host, worst

GIB = 1 << 30
GOOD = {
    "kernel_arguments": ("quiet", "iommu=pt"),
    "numa_balancing": "0",
    "shm_total_bytes": 64 * GIB,
    "memlock_bytes": -1,
    "open_files": 65536,
    "user": "trainer",
    "device_groups": {"/dev/kfd": 109, "/dev/dri/renderD128": 109},
    "rocm_version": "7.2.1",
    "disks": (DiskReading(label="data", path="/data", free_bytes=900 * GIB, total_bytes=1000 * GIB),),
}
STACK = {
    "built_for": "rocm",
    "runtime": "7.2",
    "torch_version": "2.10",
    "architectures": ("gfx90a", "gfx942"),
    "device_count": 2,
    "collective_library": "RCCL 2.27",
    "parts": {"bitsandbytes": "ok", "flash_attn": "not installed"},
}


def _judge(
    host: dict[str, object] | None = None, stack: dict[str, object] | None = None, cards: int = 2, **more: object
) -> dict[str, HostCheck]:
    values: dict[str, object] = {
        "host": HostFacts(**(GOOD | (host or {}))),  # type: ignore[arg-type]
        "source": TelemetrySource(kind="amdsmi" if cards else "none", label="amdsmi 26.2"),
        "devices": tuple(Device(id=f"0000:{n:02x}:00.0", vendor="amd", gfx_target="gfx942") for n in range(cards)),
        "stack": StackFacts(**(STACK | (stack or {}))),  # type: ignore[arg-type]
    }
    checks = judge_host(DoctorInput(**(values | more)))  # type: ignore[arg-type]
    assert all(check.advice and check.source for check in checks), "advice always has a source"
    assert len({check.code for check in checks}) == len(checks)
    return {check.code: check for check in checks}


def test_good_host_has_nothing_to_say() -> None:
    checks = _judge()
    assert worst(list(checks.values())) is CheckStatus.NOTE
    assert {code for code, check in checks.items() if check.status is not CheckStatus.OK} == {"part_flash_attn"}


@pytest.mark.parametrize(
    ("code", "host", "stack", "status"),
    [
        ("numa_balancing", {"numa_balancing": "1"}, {}, CheckStatus.WARNING),
        ("numa_balancing", {"numa_balancing": None}, {}, CheckStatus.SKIPPED),
        ("iommu", {"kernel_arguments": ("quiet",)}, {}, CheckStatus.WARNING),
        ("iommu", {"kernel_arguments": None}, {}, CheckStatus.SKIPPED),
        ("shm", {"shm_total_bytes": 64 << 20}, {}, CheckStatus.ERROR),
        ("shm", {"shm_total_bytes": 4 * GIB}, {}, CheckStatus.WARNING),
        ("memlock", {"memlock_bytes": 8 << 20}, {}, CheckStatus.WARNING),
        ("open_files", {"open_files": 1024}, {}, CheckStatus.NOTE),
        ("gpu_access", {"unreachable_nodes": ("/dev/kfd",)}, {}, CheckStatus.ERROR),
        ("variables", {"environment": {"HSA_OVERRIDE_GFX_VERSION": "9.4.2"}}, {}, CheckStatus.WARNING),
        (
            "variables",
            {"environment": {"ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "0"}},
            {},
            CheckStatus.WARNING,
        ),
        ("variables", {"environment": {"HIP_VISIBLE_DEVICES": "0"}}, {}, CheckStatus.OK),
        ("disk_data", {"disks": (DiskReading(label="data", path="/d", free_bytes=5 * GIB),)}, {}, CheckStatus.WARNING),
        ("disk_data", {"disks": (DiskReading(label="data", path="/d", free_bytes=1),)}, {}, CheckStatus.ERROR),
        ("torch_build", {}, {"built_for": "cuda"}, CheckStatus.ERROR),
        ("torch_build", {}, {"architectures": ("gfx90a",)}, CheckStatus.ERROR),
        ("torch_build", {}, {"device_count": 1}, CheckStatus.WARNING),
        ("training_environment", {}, {"fault": "no interpreter"}, CheckStatus.ERROR),
        ("amdsmi_package", {}, {"amdsmi_breaks_torch": True}, CheckStatus.ERROR),
        ("part_bitsandbytes", {}, {"parts": {"bitsandbytes": "RuntimeError: no native library"}}, CheckStatus.WARNING),
        ("rccl", {"rccl_libraries": ("/opt/a/librccl.so.1", "/opt/b/librccl.so.1")}, {}, CheckStatus.NOTE),
    ],
)
def test_each_finding(code: str, host: dict[str, object], stack: dict[str, object], status: CheckStatus) -> None:
    assert _judge(host, stack)[code].status is status


def test_cards_that_are_lost_or_set_aside_are_errors_old_errors_a_warning() -> None:
    def status(**more: object) -> CheckStatus:
        return _judge(**more)["gpu_errors"].status  # type: ignore[arg-type]

    card = "0000:00:00.0"
    assert status(readings=(GpuReading(device=card, at=1.0, lost=True),)) is CheckStatus.ERROR
    assert status(health=(DeviceHealth(device=card, set_aside="1 new"),)) is CheckStatus.ERROR
    assert status(health=(DeviceHealth(device=card, uncorrectable_now=2),)) is CheckStatus.WARNING
    assert status(readings=(GpuReading(device=card, at=1.0, xgmi_links_down=1),)) is CheckStatus.WARNING


def test_cpu_host_is_not_scolded_for_what_only_gpus_need() -> None:
    checks = _judge(cards=0, stack={"built_for": "cpu", "device_count": 0, "parts": {"liger_kernel": "no triton"}})
    assert not {"iommu", "numa_balancing", "gpu_errors", "rccl", "rocm"} & checks.keys()
    assert worst(list(checks.values())) is CheckStatus.NOTE


def test_library_older_than_the_driver_is_named() -> None:
    source = TelemetrySource(
        kind="amdsmi", label="x", verdict="driver_newer_than_library", reason="update the user space"
    )
    checks = _judge(source=source)
    assert (checks["rocm"].status, checks["gpu_source"].status) == (CheckStatus.WARNING, CheckStatus.WARNING)
