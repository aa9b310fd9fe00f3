"""An NVIDIA host in, `telemetry_evidence.json` out: our readings beside nvidia-smi's of the same second, idle and under load.

    python scripts/gpu_evidence_telemetry.py OUT_FOLDER

Each round asks nvidia-smi, our reader and nvidia-smi again, so that a value of ours must lie between (or at) the two, within
the tolerance of its column. Load comes from torch where it is installed (any interpreter: TORCH_PYTHON), else only idle rounds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backend.adapters.gpus_nvidia import NvidiaReader
from backend.domain.gpu import GpuReading
from backend.planning.leases import build_visibility

MIB = 1 << 20
# nvidia-smi column -> (our field, factor to our unit, tolerance in our unit)
COLUMNS = {
    "utilization.gpu": ("gfx_activity_percent", 1.0, 15.0),
    "utilization.memory": ("mem_activity_percent", 1.0, 15.0),
    "memory.used": ("vram_used_bytes", MIB, 64 * MIB),
    "memory.total": ("vram_total_bytes", MIB, 1024 * MIB),
    "power.draw": ("socket_power_watts", 1.0, 40.0),
    "enforced.power.limit": ("power_cap_watts", 1.0, 0.6),
    "temperature.gpu": ("hotspot_celsius", 1.0, 2.0),
    "temperature.memory": ("memory_celsius", 1.0, 2.0),
    "clocks.gr": ("gfx_clock_mhz", 1.0, 150.0),
    "clocks.mem": ("mem_clock_mhz", 1.0, 150.0),
    "ecc.errors.corrected.volatile.total": ("ecc_correctable", 1.0, 0.0),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrectable", 1.0, 0.0),
    "pcie.link.width.current": ("pcie_width", 1.0, 0.0),
}
LOAD = """
import torch, time
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
end = time.time() + 25
while time.time() < end:
    for _ in range(20):
        b = a @ a
    torch.cuda.synchronize()
"""


def ask_nvidia_smi() -> dict[str, dict[str, float | None]]:
    """PCI address -> column -> number (None for N/A)."""
    query = ",".join(["pci.bus_id", *COLUMNS])
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    rows = {}
    for line in text.strip().splitlines():
        address, *cells = [cell.strip() for cell in line.split(",")]
        rows[address.lower()[-12:]] = {name: number(cell) for name, cell in zip(COLUMNS, cells, strict=True)}
    return rows


def number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def compare(
    before: dict[str, dict[str, float | None]], reading: GpuReading, after: dict[str, dict[str, float | None]]
) -> list[dict[str, object]]:
    """One row per column: what each said, and whether ours lies within."""
    rows = []
    for column, (field, factor, tolerance) in COLUMNS.items():
        theirs = [value * factor for said in (before, after) if (value := said[reading.device][column]) is not None]
        ours = getattr(reading, field)
        if ours is None or not theirs:
            agrees = ours is None and not theirs
        else:
            agrees = min(theirs) - tolerance <= ours <= max(theirs) + tolerance
        rows.append(
            {
                "column": column,
                "field": field,
                "nvidia_smi": theirs,
                "ours": ours,
                "tolerance": tolerance,
                "agrees": agrees,
            }
        )
    return rows


def play_round(reader: NvidiaReader, label: str) -> dict[str, object]:
    before, at = ask_nvidia_smi(), time.time()
    snapshot = reader.read(at)
    took = time.time() - at
    after = ask_nvidia_smi()
    devices = {reading.device: compare(before, reading, after) for reading in snapshot.readings}
    disagree = [row for rows in devices.values() for row in rows if not row["agrees"]]
    return {
        "label": label,
        "at": at,
        "read_seconds": took,
        "source": asdict(snapshot.source),
        "devices": devices,
        "disagree": disagree,
    }


def start_load() -> subprocess.Popen[bytes] | None:
    """A matrix product on GPU 0 for 25 s; None without torch."""
    python = os.environ.get("TORCH_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import torch; assert torch.cuda.is_available()"], capture_output=True).returncode:
        return None
    return subprocess.Popen([python, "-c", LOAD])


def sample_with_store(seconds: int) -> dict[str, object]:
    """The real sampler on the real cards: how long a round takes, and what the page would get."""
    try:
        from backend.services.gpus import GpuService, build_sampler
        from backend.store.paths import DataPaths
        from backend.store.telemetry import TelemetryStore
    except ImportError as error:
        return {"left_out": f"{error}"}
    with tempfile.TemporaryDirectory() as name:
        paths = DataPaths(Path(name))
        sampler = build_sampler(paths)
        spent, wall = [], []
        for _ in range(seconds):
            cpu, began = time.process_time(), time.monotonic()
            sampler.beat()
            spent.append(time.process_time() - cpu)
            wall.append(time.monotonic() - began)
            time.sleep(max(0.0, 1.0 - (time.monotonic() - began)))
        service = GpuService(TelemetryStore(paths.telemetry))
        page = service.to_json()
        sampler.stop()
        devices = service.all_devices()
        return {
            "rounds": seconds,
            "cpu_percent_of_one_core": round(100 * sum(spent[1:]) / max(1, seconds - 1), 3),
            "slowest_round_seconds": max(wall[1:], default=0.0),
            "page": page,
            "links": [asdict(link) for link in service.links()],
            "visibility_of_first": build_visibility(devices[:1], "cuda")[0],
        }


def main() -> int:
    out = Path(sys.argv[1])
    reader = NvidiaReader()
    devices = reader.inventory().devices
    if not devices:
        print("no NVIDIA GPU:", reader.read(time.time()).source.reason)
        return 1
    rounds = [play_round(reader, "idle") for _ in range(3)]
    load = start_load()
    if load is not None:
        time.sleep(8)
        rounds += [play_round(reader, "load") for _ in range(5)]
        processes = [asdict(process) for process in reader.read_processes()]
        sampled = sample_with_store(8)
        load.wait(60)
    else:
        processes, sampled = [asdict(process) for process in reader.read_processes()], sample_with_store(8)
    compared = sum(len(rows) for one in rounds for rows in one["devices"].values())  # type: ignore[attr-defined]
    disagree = sum(len(one["disagree"]) for one in rounds)  # type: ignore[arg-type]
    evidence = {
        "devices": [asdict(device) for device in devices],
        "rounds": rounds,
        "processes": processes,
        "sampler": sampled,
        "summary": {"load": load is not None, "values_compared": compared, "values_that_disagree": disagree},
    }
    (out / "telemetry_evidence.json").write_text(json.dumps(evidence, indent=1, default=str) + "\n", "utf-8")
    print(json.dumps(evidence["summary"]))
    for one in rounds:
        for row in one["disagree"]:  # type: ignore[attr-defined]
            print("DISAGREE", one["label"], row)
    reader.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
