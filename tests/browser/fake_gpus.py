"""Made-up GPU telemetry of fake_server.py: eight MI300X, one without permission, one set aside; host checks."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request

if TYPE_CHECKING:
    from tests.browser.fake_server import World

Json = dict[str, Any]
LIMITS = ("power_violation_percent", "thermal_violation_percent")


def add_gpu_routes(app: FastAPI, world: World) -> None:
    """`/api/gpus...`, `/api/doctor` and `/api/runs/{id}/telemetry` in the shapes of docs/contracts.md."""

    @app.get("/api/gpus")
    def gpus() -> Json:
        source = {
            "kind": "amd-smi",
            "label": "amd-smi 26.2.0, ROCm 7.2.1",
            "verdict": "ok",
            "reason": "",
            "remedy": "",
            "warnings": [],
            "tried": {"amdsmi": "no module named amdsmi in this environment"},
            "versions": {"ROCm": "7.2.1", "driver": "6.16.6"},
        }
        if not world.gpus:
            source |= {
                "kind": "none",
                "label": "none",
                "verdict": "no_gpu",
                "reason": "no AMD card in /sys/class/drm, no /dev/kfd",
            }
        ids = [gpu["id"] for gpu in world.gpus]
        links = [{"source": a, "target": b, "kind": "XGMI", "hops": 1, "up": True} for a in ids for b in ids if a < b]
        if links:
            links[0]["up"] = False
        return {
            "at": time.time() - 1,
            "age_seconds": 1.0,
            "stale": False,
            "error": "",
            "source": source,
            "sources": [source],
            "gpus": [detailed(gpu, i) for i, gpu in enumerate(world.gpus)],
            "links": links,
            "health": [],
            "host": None,
        }

    @app.get("/api/gpus/history")
    def history(request: Request, keys: str = "") -> Json:
        start, end = float(request.query_params["from"]), float(request.query_params["to"])
        found = {
            gpu["id"]: {key: past(key, i, start, end) for key in keys.split(",")} for i, gpu in enumerate(world.gpus)
        }
        return {"from": start, "to": end, "series": found}

    @app.post("/api/gpus/clear")
    async def clear(request: Request) -> Json:
        body = await request.json()
        world.posts.append(("gpus/clear", body))
        for gpu in world.gpus:
            if gpu["id"] == body["device"]:
                gpu["set_aside"] = ""
        return {"cleared": body["device"]}

    @app.get("/api/benches")
    def benches() -> Json:
        return {
            "cards": [bench_card(world, gpu, i) for i, gpu in enumerate(world.gpus)],
            "profiles": PROFILES if world.gpus else PROFILES[:1],
            "running": [
                {"job": job, "part": "links", "device": "", "bytes": 1 << 26}
                for job in world.jobs.values()
                if "host-check" in job["tags"] and job["state"] != "cancelled"
            ],
            "checks": world.benches,
            "failed": None,
        }

    @app.post("/api/benches")
    async def start_bench(request: Request) -> Json:
        body = await request.json()
        world.posts.append(("benches", body))
        return {"jobs": [{}] * len(body["profiles"])}

    @app.get("/api/benches/compare")
    def compare_benches(first: str, second: str) -> Json:
        return {"rows": [{"bytes": 1 << 30, "first": 3.0e11, "second": 3.6e11, "ratio": 1.2}]}

    @app.get("/api/doctor")
    def doctor(lang: str = "en") -> Json:
        return {"status": "error", "checks": CHECKS}

    @app.get("/api/runs/{job_id}/telemetry")
    def telemetry(job_id: str, keys: str = "") -> Json:
        job = world.jobs[job_id]
        devices = job.get("devices") or []
        t0 = job.get("t0") or time.time() - 900
        series = {
            device: {key: past(key, i, t0, t0 + 1100, dip=i == 1) for key in keys.split(",")}
            for i, device in enumerate(devices)
        }
        return {"devices": [*devices, "host"], "series": series, "summary": [card(d, i) for i, d in enumerate(devices)]}


def detailed(gpu: Json, i: int) -> Json:
    """What /api/gpus tells beyond /api/state: identity, limits, more measurements and their gaps."""
    busy = bool(gpu["leased_by"])
    extra = {
        "mem_activity_percent": 41.0 if busy else 0.0,
        "vram_total_bytes": 192 << 30,
        "memory_celsius": 66.0 if busy else 36.0,
        "gfx_clock_mhz": 1780.0 if busy else 132.0,
        "mem_clock_mhz": 1300.0,
        "power_violation_percent": 12.5 if i == 2 else 0.0,
        "thermal_violation_percent": 0.0,
        "ecc_correctable": i,
        "ecc_uncorrectable": 2 if gpu["set_aside"] else 0,
        "pcie_gts": 32.0,
        "pcie_width": 16,
        "pcie_replays": 0,
        "xgmi_read_kilobytes": 92_000_000,
        "xgmi_write_kilobytes": 91_000_000,
        "energy_joules": 9.1e8,
    }
    gaps = {"edge_celsius": "not_on_part", "hbm_violation_percent": "source_silent", **gpu["gaps"]}
    foreign = (
        [{"device": gpu["id"], "pid": 4711, "name": "vllm", "vram_bytes": 61 << 30, "job_id": ""}] if i == 6 else []
    )
    own = [
        {"device": gpu["id"], "pid": 900 + i, "name": "python3", "vram_bytes": 150 << 30, "job_id": gpu["leased_by"]}
    ]
    return {
        **gpu,
        "smi_index": i,
        "uuid": f"{i:02x}ff74a1-0000-1000-80bd-2bb2d3f0b48{i}",
        "render_minor": 128 + i,
        "gfx_target": "gfx942",
        "partition": "SPX",
        "memory_partition": "NPS1",
        "num_compute_units": 304,
        "numa_node": i // 4,
        "hive_id": 77,
        "driver_version": "6.16.6",
        "hip_id_source": "enumeration",
        "card": "",
        "slowdown_hotspot_celsius": 100.0,
        "slowdown_memory_celsius": 105.0,
        "reading": gpu["reading"] | extra,
        "gaps": gaps,
        "processes": own if busy else foreign,
    }


def past(key: str, i: int, start: float, end: float, *, dip: bool = False) -> Json:
    """A smooth past with a hole in it; `dip`: this device was held back by its power limit for a while."""
    count = 200
    times = [start + (end - start) * n / count for n in range(count)]
    base = {
        "gfx_activity_percent": 92.0,
        "vram_used_bytes": (150 + i) * 2**30,
        "socket_power_watts": 690.0,
        "hotspot_celsius": 79.0,
    }
    level = base.get(key, 0.0)
    mean: list[float | None] = [
        level * (0.98 + 0.02 * math.sin(n / 5 + i)) if not 60 < n < 66 else None for n in range(count)
    ]
    if key in LIMITS:
        mean = [40.0 if dip and key == LIMITS[0] and 20 < n < 40 else 0.0 for n in range(count)]
    return {"step_seconds": (end - start) / count, "times": times, "mean": mean, "low": mean, "high": mean}


def card(device: str, i: int) -> Json:
    return {
        "device": device,
        "seconds": 900.0,
        "samples": 90,
        "mean_activity_percent": 91.2 - i,
        "max_activity_percent": 100.0,
        "max_vram_bytes": (150 + i) << 30,
        "max_hotspot_celsius": 81.0 + i,
        "max_memory_celsius": None,
        "mean_power_watts": 684.0,
        "max_power_watts": 741.0,
        "energy_kwh": 0.171,
        "energy_is_estimate": i == 2,
        "power_limited_percent": 3.2 if i == 1 else 0.0,
        "heat_limited_percent": 0.0,
        "new_uncorrectable_errors": 0,
        "idle_percent": 72.0 if i == 3 else 1.0,
    }


PROFILES: list[Json] = [
    {"name": "plain", "variables": []},
    {
        "name": "amd_single_node",
        "variables": [{"name": "HIP_FORCE_DEV_KERNARG", "value": "1", "reason": "launches", "source": "AMD"}],
    },
]


def bench_card(world: World, gpu: Json, i: int) -> Json:
    job = world.jobs.get(gpu["leased_by"] or "", {})
    why = "leased" if gpu["leased_by"] else "set_aside" if gpu["set_aside"] else "foreign_process" if i == 6 else ""
    return {
        "id": gpu["id"],
        "name": gpu["name"],
        "index": i,
        "why": why,
        "job": gpu["leased_by"] or "",
        "job_name": job.get("name", ""),
        "process": "vllm 4711" if i == 6 else "",
    }


def made_check(job: str, at: float, profile: str = "plain", slow: float = 1.0) -> Json:
    """Cards 4 and 5 of the host; `slow` scales the matrix rate of the second and makes it an alarm."""
    rates = (6.5e14, 6.4e14 * slow)
    devices = [
        {"device": f"cuda:{i}", "id": f"0000:0{4 + i}:00.0", "name": "AMD Instinct MI300X", "matmul_flops": rates[i],
         "memory_bytes_per_second": 4.02e12, "launch_seconds": 5.1e-6}
        for i in range(2)
    ]  # fmt: skip
    links = [
        {"bytes": 8, "seconds": 21e-6, "bytes_per_second": 4e5, "bus_bytes_per_second": 4e5, "right": True},
        {
            "bytes": 1 << 30,
            "seconds": 3.3e-3,
            "bytes_per_second": 3.2e11,
            "bus_bytes_per_second": 3.2e11,
            "right": True,
        },
    ]
    check = {
        "at": at, "job": job, "host": "mi300x-07", "world": 2, "seconds": 21.0, "devices": devices, "links": links,
        "backend": "nccl", "torch": "2.9.0+rocm7.0", "hip": "7.0", "profile": profile,
    }  # fmt: skip
    usual = [
        {"what": "matmul_flops", "device": device["id"], "usual": 6.45e14, "now": device["matmul_flops"],
         "share": device["matmul_flops"] / 6.45e14, "alarm": device["matmul_flops"] < 6e14}
        for device in devices
    ]  # fmt: skip
    return {"check": check, "usual": usual, "drift": [one for one in usual if one["alarm"]]}


CHECKS: list[Json] = [
    {
        "code": "numa_balancing",
        "status": "error",
        "title": "NUMA balancing",
        "found": "1",
        "expected": "0",
        "advice": "sudo sysctl kernel.numa_balancing=0: it moves pages under running kernels.",
        "source": "ROCm documentation: system optimization",
    },
    {
        "code": "memlock",
        "status": "warning",
        "title": "Locked memory",
        "found": "0.06 GiB",
        "expected": "unlimited",
        "advice": "ulimit -l unlimited",
        "source": "https://rocm.docs.amd.com/en/latest/",
    },
    {
        "code": "shm",
        "status": "ok",
        "title": "Shared memory",
        "found": "/dev/shm has 503 GiB",
        "expected": "16 GiB",
        "advice": "",
        "source": "",
    },
    {
        "code": "iommu",
        "status": "skipped",
        "title": "IOMMU",
        "found": "not readable in this container",
        "expected": "pt",
        "advice": "",
        "source": "",
    },
]
