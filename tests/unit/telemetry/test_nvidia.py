"""NVML's answers to readings, with a fake NVML."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from backend.adapters import gpus_nvidia
from backend.adapters.gpus_nvidia import NvidiaReader


class NVMLError(Exception):
    pass


class FakeNvml:
    """Two cards on one NVLink; the second has no memory sensor and no energy meter."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, NVML_TEMPERATURE_THRESHOLD_SHUTDOWN, NVML_TEMPERATURE_GPU = 1, 0, 0
    NVML_CLOCK_GRAPHICS, NVML_CLOCK_MEM = 0, 2
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 0, 1, 0
    NVML_FI_DEV_MEMORY_TEMP = 82
    NVML_PERF_POLICY_POWER, NVML_PERF_POLICY_THERMAL = 0, 1

    def __init__(self) -> None:
        self.lost = self.old = False
        self.gate: threading.Event | None = None
        self.violation = (1_000_000, 0)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def unsupported(*arguments: Any) -> Any:
            raise NVMLError("Not Supported")

        return unsupported

    def nvmlInit(self) -> None:
        pass

    def nvmlShutdown(self) -> None:
        pass

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.1"

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        return SimpleNamespace(busId=(b"00000000:1B:00.0", "00000000:43:00.0")[handle])

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return (9, 0)

    nvmlMemory_v2 = 0x2000028

    def nvmlDeviceGetMemoryInfo(self, handle: int, version: int = 0) -> Any:
        """The first version counts the driver's reserve as used; an old driver knows no other."""
        if version and self.old:
            raise NVMLError("Not Supported")
        if self.gate is not None:
            self.gate.wait(20)
        if self.lost and handle == 1:
            raise NVMLError("GPU is lost")
        return SimpleNamespace(total=150_000_000_000, used=5_000_000_000 if version else 5_600_000_000)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        if self.lost and handle == 1:
            raise NVMLError("GPU is lost")
        return SimpleNamespace(gpu=0, memory=12)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return 612_345

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:
        return 700_000

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return 55

    def nvmlDeviceGetClockInfo(self, handle: int, clock: int) -> int:
        return {0: 1980, 2: 3201}[clock]

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:
        return kind * 3

    def nvmlDeviceGetFieldValues(self, handle: int, ids: list[int]) -> Any:
        return [SimpleNamespace(nvmlReturn=0 if handle == 0 else 3, value=SimpleNamespace(uiVal=61))]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        if handle == 1:
            raise NVMLError("Not Supported")
        return 9_000_000

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return 0x4

    def nvmlDeviceGetViolationStatus(self, handle: int, policy: int) -> Any:
        if policy == 1:
            raise NVMLError("Not Supported")
        return SimpleNamespace(referenceTime=self.violation[0], violationTime=self.violation[1])

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: int) -> int:
        return 5

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: int) -> int:
        return 16

    def nvmlDeviceGetNvLinkState(self, handle: int, number: int) -> int:
        if number > 0:
            raise NVMLError("Invalid Argument")
        return 1

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, number: int) -> Any:
        return SimpleNamespace(busId="00000000:99:00.0")

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> Any:
        return (
            [SimpleNamespace(pid=1, usedGpuMemory=None), SimpleNamespace(pid=2, usedGpuMemory=4096)]
            if handle == 0
            else []
        )


def test_devices_and_their_links_through_a_switch() -> None:
    inventory = NvidiaReader(FakeNvml()).inventory()
    first, second = inventory.devices
    assert (first.id, first.vendor, first.smi_index, first.gfx_target) == ("0000:1b:00.0", "nvidia", 0, "sm_90")
    assert (first.vram_total_bytes, first.power_cap_watts, first.hip_id) == (150_000_000_000, 700, None)
    assert [(link.source, link.target, link.kind) for link in inventory.links] == [(first.id, second.id, "NVLINK")]


def test_readings_with_units_and_gaps() -> None:
    reader = NvidiaReader(FakeNvml())
    snapshot = reader.read(5.0)
    assert (snapshot.source.kind, snapshot.source.label, snapshot.source.verdict) == (
        "nvml",
        "NVML, driver 570.1",
        "ok",
    )
    first, second = snapshot.readings
    assert (first.gfx_activity_percent, first.mem_activity_percent, first.socket_power_watts) == (0, 12, 612.345)
    assert (first.hotspot_celsius, first.memory_celsius, first.edge_celsius) == (55, 61, None)
    assert (first.gfx_clock_mhz, first.mem_clock_mhz, first.energy_joules) == (1980, 3201, 9000.0)
    assert (first.ecc_correctable, first.ecc_uncorrectable, first.pcie_gts, first.pcie_width) == (0, 3, 32.0, 16)
    assert (second.memory_celsius, second.energy_joules, second.pcie_replays) == (None, None, None)
    assert first.throttle_status is True


def test_violation_is_a_share_of_the_interval_where_the_driver_counts() -> None:
    nvml = FakeNvml()
    reader = NvidiaReader(nvml)
    assert reader.read(1.0).readings[0].power_violation_percent == 100.0, "this moment"
    nvml.violation = (2_000_000, 250_000_000)
    reading = reader.read(2.0).readings[0]
    assert (reading.power_violation_percent, reading.thermal_violation_percent) == (25.0, 0.0)


def test_lost_card_does_not_hide_the_other() -> None:
    nvml = FakeNvml()
    reader = NvidiaReader(nvml)
    reader.inventory()
    nvml.lost = True
    snapshot = reader.read(1.0)
    assert snapshot.source.verdict == "gpu_lost"
    assert [reading.lost for reading in snapshot.readings] == [False, True]


def test_processes_without_a_size_are_listed_without_one() -> None:
    reader = NvidiaReader(FakeNvml())
    reader.inventory()
    assert [(process.pid, process.vram_bytes) for process in reader.read_processes()] == [(1, None), (2, 4096)]


def test_hanging_driver_call_is_reported_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus_nvidia, "READ_SECONDS", 0.05)
    nvml = FakeNvml()
    reader = NvidiaReader(nvml)
    reader.inventory()
    nvml.gate = threading.Event()
    first, second = reader.read(1.0), reader.read(2.0)
    nvml.gate.set()
    assert first.readings == () and "no answer within" in first.errors[0]
    assert "still hangs" in second.errors[0]


def test_host_without_driver_says_so(tmp_path: Any) -> None:
    reader = NvidiaReader(root=tmp_path)
    assert reader.inventory().devices == ()
    source = reader.read(1.0).source
    assert (source.kind, source.tried["nvml"]) == ("none", "no NVIDIA driver (/dev/nvidiactl)")


def test_memory_that_the_driver_reserves_is_not_used_memory() -> None:
    nvml = FakeNvml()
    reader = NvidiaReader(nvml)
    assert reader.read(1.0).readings[0].vram_used_bytes == 5_000_000_000
    nvml.old = True
    assert reader.read(2.0).readings[0].vram_used_bytes == 5_600_000_000
