"""What sampling eight cards costs: CPU share at one round a second, file growth a day, time to read a day back.

    .venv/bin/python benchmarks/telemetry.py [--hours 24] [--output benchmarks/results/telemetry.md]

The reader is a recorded one: answers of the amdsmi helper for eight cards (the metrics table of ROCm 7.0 with noise), which
pass through the same parser, means, judgement and store as on a real host. The helper's own time in the driver is not in it.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backend.adapters.gpus_amd import AmdHost, AmdReader, AmdsmiSource
from backend.adapters.host import PsutilHostReader
from backend.domain.gpu import GpuReading
from backend.parsing.telemetry.missing import Json
from backend.services.gpus import GpuService
from backend.services.sampler import Sampler
from backend.store.telemetry import TelemetryStore

CARDS = 8
START = 1_700_000_000 // 21_600 * 21_600


class Clock:
    """Seconds that the benchmark advances."""

    def __init__(self) -> None:
        self.now = float(START)

    def __call__(self) -> float:
        return self.now


class Recorded:
    """Stands in for the helper process: the same bytes that it would send."""

    noise = b""
    pid = 0

    def __init__(self, clock: Clock) -> None:
        self.clock, self.chance = clock, random.Random(1)
        self.activity = [0] * CARDS
        self.energy = [0.0] * CARDS

    def ask(self, line: bytes, *, timeout_seconds: float) -> bytes:
        question = line.decode()
        devices = [self.device(number, question) for number in range(CARDS)]
        once: dict[str, Json] = {
            "amdsmi_get_lib_version": {"major": 26, "minor": 0, "release": 2},
            "amdsmi_get_rocm_version": [True, "7.0.2"],
        }
        return orjson.dumps({"module": "amdsmi", "question": question, "global_calls": once, "devices": devices})

    def device(self, number: int, question: str) -> dict[str, Json]:
        calls: dict[str, Json] = {
            "amdsmi_get_gpu_vram_usage": {"vram_total": 196592, "vram_used": 150_000 + self.chance.randrange(90)}
        }
        if question == "identity":
            calls["amdsmi_get_gpu_device_bdf"] = f"0000:{16 * number + 11:02x}:00.0"
            calls["amdsmi_get_gpu_enumeration_info"] = {"hip_id": number, "drm_render": 128 + 8 * number}
        if question == "slow":
            calls["amdsmi_get_gpu_total_ecc_count"] = {
                "correctable_count": 0,
                "uncorrectable_count": 0,
                "deferred_count": 0,
            }
            calls["amdsmi_get_power_cap_info"] = {"power_cap": 750_000_000}
        if question == "metrics":
            calls["amdsmi_get_gpu_metrics_info"] = self.metrics(number)
        return {"monotonic": self.clock.now, "calls": calls}

    def metrics(self, number: int) -> dict[str, Json]:
        busy, power = self.chance.randrange(80, 100), self.chance.uniform(600, 750)
        self.activity[number] += busy * 1000
        self.energy[number] += power
        passed = self.clock.now - START
        filler: dict[str, Json] = {f"other_field_{n}": "N/A" for n in range(40)}
        return {
            **filler,
            "average_gfx_activity": busy,
            "average_umc_activity": self.chance.randrange(30, 45),
            "current_socket_power": int(power),
            "temperature_hotspot": self.chance.randrange(74, 84),
            "temperature_mem": self.chance.randrange(56, 62),
            "temperature_edge": "N/A",
            "current_gfxclks": [self.chance.randrange(1500, 2000) for _ in range(8)],
            "current_uclk": 1300,
            "throttle_status": "N/A",
            "pcie_link_width": 16,
            "pcie_link_speed": 320,
            "gfx_activity_acc": self.activity[number] % (1 << 32),
            "energy_accumulator": int(self.energy[number] / 15.259e-6),
            "firmware_timestamp": int(passed * 1e8) + 1,
            "accumulation_counter": int(passed * 1000) + 1,
            "ppt_residency_acc": int(passed * 430),
            "socket_thm_residency_acc": int(passed * 3),
            "prochot_residency_acc": 0,
            "vr_thm_residency_acc": 0,
            "hbm_thm_residency_acc": 0,
            "xgmi_read_data_acc": [self.chance.randrange(1 << 40) for _ in range(8)],
            "xgmi_write_data_acc": [self.chance.randrange(1 << 40) for _ in range(8)],
        }

    def close(self) -> None:
        """Nothing to close."""


class RecordedSource(AmdsmiSource):
    """The real source with recorded answers."""

    def probe(self):  # type: ignore[no-untyped-def]
        self._child = Recorded(self.clock)  # type: ignore[assignment, arg-type]
        reading, _ = self._ask("identity", 1.0)
        return reading


class NoTree:
    """A host whose kernel files say nothing more than the library did."""

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        return {"has_amd": lambda: True, "accessible_renders": lambda: None}.get(name, lambda *a, **k: {})


@dataclass
class Result:
    """One figure of the report."""

    what: str
    value: str
    target: str = ""


def build(folder: Path, clock: Clock) -> tuple[Sampler, TelemetryStore]:
    host = AmdHost(root=folder, rocm_folders=(folder,))
    reader = AmdReader(host, clock=clock, sources=[RecordedSource(host, clock)])
    reader.tree = NoTree()  # type: ignore[assignment]
    store = TelemetryStore(folder / "telemetry.sqlite")
    return Sampler(store, [reader], PsutilHostReader({"data": folder}), wall=clock, clock=clock), store


def measure_beats(folder: Path, beats: int) -> list[Result]:
    """CPU time of whole rounds, one after the other; a round a second makes this the share of a core."""
    clock = Clock()
    sampler, store = build(folder, clock)
    for _ in range(5):
        sampler.beat()
        clock.now += 1
    spent = []
    for _ in range(beats):
        before = time.process_time()
        sampler.beat()
        spent.append(time.process_time() - before)
        clock.now += 1
    readings = GpuService(store, wall=clock, environment={}).latest_readings().readings
    if len(readings) != CARDS or sampler._error or any(reading.socket_power_watts is None for reading in readings):
        raise SystemExit(f"the rounds did not work: {len(readings)} readings, error {sampler._error!r}")
    mean = statistics.mean(spent)
    return [
        Result("CPU of one round, mean", f"{mean * 1000:.2f} ms = {mean * 100:.2f} % of one core at 1 Hz", "< 1 %"),
        Result("CPU of one round, 99th percentile", f"{sorted(spent)[int(len(spent) * 0.99)] * 1000:.2f} ms"),
    ]


def measure_day(folder: Path, hours: float) -> list[Result]:
    """Write `hours` of readings of eight cards and one host second by second, then read them back."""
    store = TelemetryStore(folder / "day.sqlite")
    chance = random.Random(2)
    seconds = int(hours * 3600)
    names = [f"0000:{16 * number + 11:02x}:00.0" for number in range(CARDS)]
    sizes, began = [], time.process_time()
    for second in range(seconds):
        samples: dict[str, dict[str, float | None]] = {name: noisy(chance) for name in names}
        samples["host"] = {"cpu_percent": chance.uniform(0, 100), "ram_used_bytes": 2e10 + chance.randrange(1 << 20)}
        store.append(START + second, samples, {})
        if second % 3600 == 3599:
            sizes.append(file_bytes(store.path))
    spent = time.process_time() - began
    end = START + seconds
    growth = (sizes[-1] - sizes[1]) / (len(sizes) - 2) * 24 if len(sizes) > 2 else float("nan")
    return [
        Result(f"file after {hours:g} h", f"{sizes[-1] / 1e6:.1f} MB"),
        Result("growth a day (after the first hours, in which the 1 s tier fills)", f"{growth / 1e6:.1f} MB"),
        Result("CPU of one append, nine series", f"{spent / seconds * 1000:.2f} ms"),
        *(read_back(store, names, end, hours, points) for points in (1000, 20_000)),
    ]


def noisy(chance: random.Random) -> dict[str, float | None]:
    reading = GpuReading(
        device="x",
        at=0.0,
        gfx_activity_percent=chance.uniform(80, 100),
        mem_activity_percent=chance.uniform(30, 45),
        vram_used_bytes=157_286_400_000 + chance.randrange(100) * (1 << 20),
        vram_total_bytes=206_141_652_992,
        socket_power_watts=chance.uniform(600, 750),
        power_cap_watts=750.0,
        hotspot_celsius=float(chance.randrange(74, 84)),
        memory_celsius=float(chance.randrange(56, 62)),
        gfx_clock_mhz=float(chance.randrange(1500, 2000)),
        mem_clock_mhz=1300.0,
        ecc_correctable=0,
        ecc_uncorrectable=0,
        power_violation_percent=chance.uniform(0, 100),
        thermal_violation_percent=0.0,
        energy_joules=chance.uniform(1e7, 2e7),
    )
    return {
        name: getattr(reading, name) for name in reading.__dataclass_fields__ if name not in ("device", "at", "lost")
    }


def read_back(store: TelemetryStore, names: list[str], end: float, hours: float, points: int) -> Result:
    """One key of all cards over the whole time, as a page's chart asks for it."""
    times = []
    for _ in range(7):
        began = time.perf_counter()
        sizes = [
            store.load_history(
                name, "socket_power_watts", end - hours * 3600, end - 60, points=points, now=end
            ).times.size
            for name in names
        ]
        times.append(time.perf_counter() - began)
    what = f"{hours:g} h of {CARDS} cards, one key, {sizes[0]} points each"
    return Result(
        what, f"{statistics.median(times) * 1000:.1f} ms (median of 7, worst {max(times) * 1000:.1f} ms)", "< 100 ms"
    )


def file_bytes(path: Path) -> int:
    """The file and its write-ahead log."""
    return sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--beats", type=int, default=600)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        results = measure_beats(Path(name), options.beats) + measure_day(Path(name), options.hours)
    host = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
    lines = [
        "# Telemetry",
        "",
        f"`benchmarks/telemetry.py --hours {options.hours:g} --beats {options.beats}` on {host}.",
        f"Recorded reader of {CARDS} cards; no GPU.",
        "",
        "| what | measured | target |",
        "|---|---|---|",
        *(f"| {row.what} | {row.value} | {row.target} |" for row in results),
    ]
    print("\n".join(lines))
    if options.output:
        options.output.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
