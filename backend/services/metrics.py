"""Newest readings, jobs and host in, the text that Prometheus scrapes out. A value that is missing has no sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from backend.domain.gpu import Device, GpuReading
from backend.domain.host import HostReading
from backend.domain.job import Job, JobState
from backend.services.gpus import GpuService, Latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_GPU_GAUGES = {
    "gfx_activity_percent": ("activity_percent", "Compute activity"),
    "mem_activity_percent": ("memory_activity_percent", "Activity of the memory controller"),
    "vram_used_bytes": ("memory_used_bytes", "Memory in use"),
    "vram_total_bytes": ("memory_total_bytes", "Memory of the device"),
    "socket_power_watts": ("power_watts", "Power of the card"),
    "power_cap_watts": ("power_cap_watts", "Power limit in force"),
    "edge_celsius": ("edge_celsius", "Edge temperature"),
    "hotspot_celsius": ("hotspot_celsius", "Hottest spot of the die"),
    "memory_celsius": ("memory_celsius", "Memory temperature"),
    "gfx_clock_mhz": ("clock_megahertz", "Compute clock"),
    "mem_clock_mhz": ("memory_clock_megahertz", "Memory clock"),
    "power_violation_percent": (
        "power_limited_percent",
        "Share of the time in which the power limit held the clock down",
    ),
    "thermal_violation_percent": ("heat_limited_percent", "Share of the time in which a temperature limit did"),
    "xgmi_links_down": ("xgmi_links_down", "Direct links that are down"),
}
_GPU_COUNTERS = {
    "ecc_correctable": ("ecc_correctable", "Corrected memory errors since boot"),
    "ecc_uncorrectable": ("ecc_uncorrectable", "Uncorrected memory errors since boot"),
    "energy_joules": ("energy_joules", "Energy since boot"),
    "pcie_replays": ("pcie_replays", "PCIe replays since boot"),
}
_HOST_GAUGES = {
    "cpu_percent": "CPU use",
    "ram_used_bytes": "Memory in use",
    "ram_total_bytes": "Memory",
    "shm_used_bytes": "/dev/shm in use",
    "shm_total_bytes": "Size of /dev/shm",
    "network_received_bytes_per_second": "Received over all interfaces",
    "network_sent_bytes_per_second": "Sent over all interfaces",
}


def render_metrics(
    gpus: GpuService,
    *,
    jobs: Mapping[JobState, int],
    running: Sequence[Job] = (),
    leases: Mapping[str, str] | None = None,
) -> bytes:
    """The whole page. `jobs`: count by state, `running`: their progress, `leases`: device -> job id."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector([*_gpu_metrics(gpus, leases or {}), *_job_metrics(jobs, running)]))
    return generate_latest(registry)


class _Collector(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _gpu_metrics(gpus: GpuService, leases: Mapping[str, str]) -> Iterator[Metric]:
    latest, devices = gpus.latest_readings(), gpus.all_devices()
    source = gpus.source()
    info = InfoMetricFamily("tunedeck_telemetry_source", "Reader that answers for the GPUs of this host")
    info.add_metric([], {"kind": source.kind, "label": source.label, "verdict": source.verdict})
    yield info
    if latest.age_seconds is not None:
        yield GaugeMetricFamily(
            "tunedeck_telemetry_age_seconds", "Age of the newest readings", value=latest.age_seconds
        )
    yield _device_info(devices, leases)
    if latest.stale:
        return  # an old reading must not look like the present
    yield from _reading_metrics(latest, {device.id: device for device in devices}, leases)
    lost = GaugeMetricFamily("tunedeck_gpu_lost", "1: the card no longer answers", labels=["device"])
    for reading in latest.readings:
        lost.add_metric([reading.device], float(reading.lost))
    yield lost
    aside = GaugeMetricFamily("tunedeck_gpu_set_aside", "1: not leased until a person clears it", labels=["device"])
    for health in gpus.health():
        aside.add_metric([health.device], float(bool(health.set_aside)))
    yield aside
    if latest.host is not None:
        yield from _host_metrics(latest.host)


def _device_info(devices: Sequence[Device], leases: Mapping[str, str]) -> Metric:
    info = InfoMetricFamily("tunedeck_gpu", "Identity of a device", labels=["device"])
    for device in devices:
        described = {
            "vendor": device.vendor,
            "name": device.name,
            "target": device.gfx_target,
            "hip_id": "" if device.hip_id is None else str(device.hip_id),
            "uuid": device.uuid,
            "job": leases.get(device.id, ""),
        }
        info.add_metric([device.id], described)
    return info


def _reading_metrics(latest: Latest, devices: Mapping[str, Device], leases: Mapping[str, str]) -> Iterator[Metric]:
    def labels(reading: GpuReading) -> list[str]:
        device = devices.get(reading.device)
        return [reading.device, device.name if device else "", leases.get(reading.device, "")]

    kinds: tuple[tuple[type[GaugeMetricFamily | CounterMetricFamily], Mapping[str, tuple[str, str]]], ...] = (
        (GaugeMetricFamily, _GPU_GAUGES),
        (CounterMetricFamily, _GPU_COUNTERS),
    )
    for kind, table in kinds:
        for field, (name, text) in table.items():
            family = kind(f"tunedeck_gpu_{name}", text, labels=["device", "name", "job"])
            for reading in latest.readings:
                if (value := getattr(reading, field)) is not None:
                    family.add_metric(labels(reading), float(value))
            if family.samples:
                yield family


def _host_metrics(host: HostReading) -> Iterator[Metric]:
    for field, text in _HOST_GAUGES.items():
        if (value := getattr(host, field)) is not None:
            yield GaugeMetricFamily(f"tunedeck_host_{field}", text, value=float(value))
    free = GaugeMetricFamily("tunedeck_host_disk_free_bytes", "Free space", labels=["folder"])
    for disk in host.disks:
        if disk.free_bytes is not None:
            free.add_metric([disk.label], float(disk.free_bytes))
    yield free


def _job_metrics(jobs: Mapping[JobState, int], running: Sequence[Job]) -> Iterator[Metric]:
    counts = GaugeMetricFamily("tunedeck_jobs", "Jobs by state", labels=["state"])
    for state in JobState:
        counts.add_metric([state.value], float(jobs.get(state, 0)))
    yield counts
    for field, text in (("step", "Optimizer step"), ("max_steps", "Planned steps"), ("loss", "Newest loss")):
        family = GaugeMetricFamily(f"tunedeck_job_{field}", text, labels=["job", "name"])
        for job in running:
            if (value := getattr(job, field)) is not None:
                family.add_metric([job.id, job.name], float(value))
        if family.samples:
            yield family
