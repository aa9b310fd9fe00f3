"""An NVIDIA host in (through NVML), devices and readings out. NVML is loaded at the first call and only where a driver exists."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from backend.adapters.circuit import CircuitBreaker
from backend.adapters.ports import Inventory, Snapshot
from backend.domain.gpu import Device, DeviceLink, DeviceProcess, GpuReading, TelemetrySource
from backend.parsing.telemetry import missing
from backend.parsing.telemetry.missing import Json, Number

READ_SECONDS = 4.0
_POWER_REASONS = 0x4 | 0x80
"""Software power cap, hardware power brake (NVML clock event reasons)."""
_THERMAL_REASONS = 0x20 | 0x40
"""Software and hardware thermal slowdown."""
_NVLINK_COUNT = 18

_Value = TypeVar("_Value")


class NvidiaReader:
    """Readings through NVML. A call that hangs leaves its thread behind and is reported; it never blocks the caller for long."""

    def __init__(
        self, nvml: Any = None, *, clock: Callable[[], float] = time.monotonic, root: Path = Path("/")
    ) -> None:
        """`nvml`: the module (tests pass a fake)."""
        self._nvml, self._root, self._clock = nvml, root, clock
        self._breaker = CircuitBreaker(clock)
        self._started = False
        self._reason = ""
        self._handles: list[tuple[Device, Any]] = []
        self._links: tuple[DeviceLink, ...] = ()
        self._label = ""
        self._stuck: threading.Thread | None = None
        self._violations: dict[tuple[str, str], tuple[int, int]] = {}

    def inventory(self) -> Inventory:
        self._start()
        return Inventory(devices=tuple(device for device, _ in self._handles), links=self._links)

    def read(self, at: float) -> Snapshot:
        self._start()
        if not self._handles:
            return Snapshot(at=at, source=self._describe("no_gpu", self._reason))
        readings, problem = self._bounded(
            lambda: tuple(self._read_device(device, handle, at) for device, handle in self._handles)
        )
        self._breaker.record(ok=readings is not None)
        if readings is None:
            return Snapshot(at=at, source=self._describe("crash", problem), errors=(f"nvml: {problem}",))
        lost = any(reading.lost for reading in readings)
        return Snapshot(at=at, source=self._describe("gpu_lost" if lost else "ok", ""), readings=readings)

    def read_processes(self) -> tuple[DeviceProcess, ...]:
        if not self._handles:
            return ()
        found, _ = self._bounded(
            lambda: tuple(item for device, handle in self._handles for item in self._processes(device, handle))
        )
        return found or ()

    def close(self) -> None:
        if self._handles:
            self._handles = []
            self._bounded(self._nvml.nvmlShutdown)
        self._started = False

    def _start(self) -> None:
        if self._started or self._breaker.is_open:
            return
        self._started = True
        if self._nvml is None:
            if not (self._root / "dev/nvidiactl").exists() and not (self._root / "proc/driver/nvidia").is_dir():
                self._reason = "no NVIDIA driver (/dev/nvidiactl)"
                return
            import pynvml

            self._nvml = pynvml
        _, problem = self._bounded(self._discover)
        if problem:
            self._reason, self._started = problem, False
            self._breaker.record(ok=False)

    def _discover(self) -> None:
        nvml = self._nvml
        nvml.nvmlInit()
        driver = _text(self._ask(nvml.nvmlSystemGetDriverVersion))
        self._label = f"NVML, driver {driver}" if driver else "NVML"
        handles = []
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = self._ask(nvml.nvmlDeviceGetHandleByIndex, index)
            device = None if handle is None else self._identify(handle, index, driver)
            if device is not None:
                handles.append((device, handle))
        self._handles = handles
        self._links = tuple(self._find_links())

    def _identify(self, handle: Any, index: int, driver: str) -> Device | None:
        nvml = self._nvml
        pci = self._ask(nvml.nvmlDeviceGetPciInfo, handle)
        address = missing.bdf(_text(getattr(pci, "busId", "")))
        if address is None:
            return None
        memory = self._memory(handle)
        capability = self._ask(nvml.nvmlDeviceGetCudaComputeCapability, handle)
        return Device(
            id=address,
            vendor="nvidia",
            name=_text(self._ask(nvml.nvmlDeviceGetName, handle)),
            smi_index=index,
            uuid=_text(self._ask(nvml.nvmlDeviceGetUUID, handle)),
            gfx_target=f"sm_{capability[0]}{capability[1]}" if capability else "",
            vram_total_bytes=missing.memory_bytes(getattr(memory, "total", None)),
            numa_node=missing.whole(_file(self._root / f"sys/bus/pci/devices/{address}/numa_node")),
            driver_version=driver,
            power_cap_watts=_milli(self._ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
            power_cap_max_watts=_milli(
                (self._ask(nvml.nvmlDeviceGetPowerManagementLimitConstraints, handle) or [None, None])[1]
            ),
            slowdown_hotspot_celsius=missing.celsius(
                self._ask(nvml.nvmlDeviceGetTemperatureThreshold, handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
            ),
            shutdown_hotspot_celsius=missing.celsius(
                self._ask(nvml.nvmlDeviceGetTemperatureThreshold, handle, nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN)
            ),
        )

    def _read_device(self, device: Device, handle: Any, at: float) -> GpuReading:
        nvml, ask = self._nvml, self._ask
        memory, use = self._memory(handle), ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        reasons = ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        energy = missing.counter(ask(nvml.nvmlDeviceGetTotalEnergyConsumption, handle))
        reading = GpuReading(
            device=device.id,
            at=at,
            gfx_activity_percent=missing.percent(getattr(use, "gpu", None)),
            mem_activity_percent=missing.percent(getattr(use, "memory", None)),
            vram_used_bytes=missing.memory_bytes(getattr(memory, "used", None)),
            vram_total_bytes=missing.memory_bytes(getattr(memory, "total", None)),
            socket_power_watts=_milli(ask(nvml.nvmlDeviceGetPowerUsage, handle)),
            power_cap_watts=_milli(ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
            # The one public sensor is the die's; there is no edge sensor.
            hotspot_celsius=missing.celsius(ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)),
            memory_celsius=self._memory_temperature(handle),
            gfx_clock_mhz=missing.megahertz(ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_GRAPHICS)),
            mem_clock_mhz=missing.megahertz(ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM)),
            ecc_correctable=self._errors(handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ecc_uncorrectable=self._errors(handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            throttle_status=None if reasons is None else bool(reasons & (_POWER_REASONS | _THERMAL_REASONS)),
            power_violation_percent=self._violation(
                device.id, handle, "NVML_PERF_POLICY_POWER", reasons, _POWER_REASONS
            ),
            thermal_violation_percent=self._violation(
                device.id, handle, "NVML_PERF_POLICY_THERMAL", reasons, _THERMAL_REASONS
            ),
            energy_joules=energy / 1000 if energy else None,
            pcie_width=missing.whole(ask(nvml.nvmlDeviceGetCurrPcieLinkWidth, handle)),
            pcie_gts=_generation_speed(ask(nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle)),
            pcie_replays=missing.count(ask(nvml.nvmlDeviceGetPcieReplayCounter, handle)),
        )
        return reading if memory is not None or use is not None else GpuReading(device=device.id, at=at, lost=True)

    def _violation(self, device: str, handle: Any, policy: str, reasons: int | None, mask: int) -> float | None:
        """Share of the time since the last read; from its counter where the driver keeps one, else 0 or 100 for this moment."""
        number = getattr(self._nvml, policy, None)
        status = None if number is None else self._ask(self._nvml.nvmlDeviceGetViolationStatus, handle, number)
        if status is None:
            return _active(reasons, mask)
        now = (int(status.referenceTime), int(status.violationTime))  # microseconds, nanoseconds
        before = self._violations.get((device, policy))
        self._violations[(device, policy)] = now
        if before is None or now[0] <= before[0] or now[1] < before[1]:
            return _active(reasons, mask)
        return min(100.0, (now[1] - before[1]) / ((now[0] - before[0]) * 1000) * 100)

    def _memory_temperature(self, handle: Any) -> Number | None:
        field = getattr(self._nvml, "NVML_FI_DEV_MEMORY_TEMP", None)
        values = None if field is None else self._ask(self._nvml.nvmlDeviceGetFieldValues, handle, [field])
        if not values or values[0].nvmlReturn != 0:
            return None
        return missing.memory_celsius(int(values[0].value.uiVal))

    def _errors(self, handle: Any, kind: int) -> int | None:
        return missing.count(
            self._ask(self._nvml.nvmlDeviceGetTotalEccErrors, handle, kind, self._nvml.NVML_VOLATILE_ECC)
        )

    def _processes(self, device: Device, handle: Any) -> list[DeviceProcess]:
        running = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        return [
            DeviceProcess(
                device=device.id,
                pid=process.pid,
                name=_file(self._root / f"proc/{process.pid}/comm").strip(),
                vram_bytes=missing.memory_bytes(process.usedGpuMemory),
            )
            for process in running
        ]

    def _find_links(self) -> list[DeviceLink]:
        """Cards that reach each other over NVLink: directly, or through a common switch (then all that have links up)."""
        known = {device.id for device, _ in self._handles}
        links, switched = [], []
        for device, handle in self._handles:
            peers = set()
            for number in range(_NVLINK_COUNT):
                if self._ask(self._nvml.nvmlDeviceGetNvLinkState, handle, number) != 1:
                    continue
                remote = self._ask(self._nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, number)
                peers.add(missing.bdf(_text(getattr(remote, "busId", ""))) or "")
            links += [DeviceLink(source=device.id, target=peer, kind="NVLINK", hops=1) for peer in peers & known]
            if peers - known:
                switched.append(device.id)
        links += [
            DeviceLink(source=one, target=other, kind="NVLINK", hops=1)
            for one in switched
            for other in switched
            if one < other
        ]
        return links

    def _memory(self, handle: Any) -> Any:
        """Total and used bytes as nvidia-smi tells them: the first version of the call counts the driver's reserve as used."""
        nvml = self._nvml
        newer = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
        return self._ask(nvml.nvmlDeviceGetMemoryInfo, handle) if newer is None else newer

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The answer of one call; None when this card or driver has none. One failed call never loses the others."""
        try:
            return function(*arguments)
        except self._nvml.NVMLError:
            return None

    def _bounded(self, work: Callable[[], _Value]) -> tuple[_Value | None, str]:
        """Run in a thread of its own with a time limit: a driver call cannot be interrupted."""
        if self._stuck is not None and self._stuck.is_alive():
            return None, "an earlier NVML call still hangs in the driver"
        result: list[_Value] = []
        problem: list[str] = []

        def run() -> None:
            try:
                result.append(work())
            except (self._nvml.NVMLError, OSError, AttributeError) as error:
                problem.append(f"{type(error).__name__}: {error}")

        thread = threading.Thread(target=run, name="nvml", daemon=True)
        thread.start()
        thread.join(READ_SECONDS)
        if thread.is_alive():
            self._stuck = thread
            return None, f"NVML gave no answer within {READ_SECONDS:g} s"
        return (result[0], "") if result else (None, problem[0] if problem else "NVML failed")

    def _describe(self, verdict: str, reason: str) -> TelemetrySource:
        kind = "nvml" if self._handles else "none"
        tried = {} if self._handles else {"nvml": reason or "no NVIDIA GPU"}
        return TelemetrySource(kind=kind, label=self._label or kind, verdict=verdict, reason=reason, tried=tried)


def _text(raw: Any) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw or "")


def _milli(raw: Json) -> Number | None:
    value = missing.number(raw, 0, 3_000_000)
    return missing.watts(value / 1000) if value else None


def _active(reasons: int | None, mask: int) -> float | None:
    return None if reasons is None else 100.0 if reasons & mask else 0.0


def _generation_speed(generation: Json) -> Number | None:
    return {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}.get(missing.whole(generation) or 0)


def _file(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
