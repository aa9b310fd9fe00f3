"""Questions about GPUs, host and telemetry in, JSON (and Prometheus' text) out. docs/contracts.md, "HTTP"."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from backend.domain.host import HostCheck
from backend.domain.job import JobState
from backend.errors import InvalidInput
from backend.services.api import Api
from backend.services.doctor import examine_host
from backend.services.gpus import GpuService, load_job_telemetry
from backend.services.metrics import CONTENT_TYPE, render_metrics
from ui.routes import Given, answer, text_of
from ui.text.checks_zh import check_text_zh

DEFAULT_KEYS = "gfx_activity_percent,vram_used_bytes,socket_power_watts,hotspot_celsius"
MAX_SERIES = 128


def gpu_router(gpus: GpuService, api: Api) -> APIRouter:
    """`/api/gpus...`, `/api/runs/{id}/telemetry`, `/api/doctor` and `/metrics`."""
    router = APIRouter()

    @router.get("/api/gpus")
    def state(request: Request) -> Response:
        latest = gpus.latest_readings()
        return answer(
            request,
            {
                "at": latest.at,
                "age_seconds": latest.age_seconds,
                "stale": latest.stale,
                "error": latest.error,
                "source": gpus.source(),
                "sources": gpus.sources(),
                "gpus": gpus.to_json(api.jobs.leases()),
                "links": gpus.links(),
                "health": gpus.health(),
                "host": latest.host,
            },
        )

    @router.get("/api/gpus/history")
    def history(
        request: Request,
        device: str = "",
        keys: str = DEFAULT_KEYS,
        first: Annotated[float | None, Query(alias="from")] = None,
        to: float | None = None,
        px: Annotated[int, Query(ge=16, le=20_000)] = 1000,
    ) -> Response:
        end = time.time() if to is None else to
        start = end - 3600 if first is None else first
        if start >= end:
            raise InvalidInput("from", found=f"{start:.0f}", expected=f"a time before {end:.0f}")
        devices, wanted = _names(device) or [known.id for known in gpus.all_devices()], _names(keys)
        if len(devices) * len(wanted) > MAX_SERIES:
            raise InvalidInput("keys", found=f"{len(devices) * len(wanted)} series", expected=f"at most {MAX_SERIES}")
        found = {one: {key: gpus.history(one, key, start, end, px) for key in wanted} for one in devices}
        return answer(request, {"from": start, "to": end, "series": found})

    @router.post("/api/gpus/clear")
    def clear(request: Request, body: Given) -> Response:
        device = text_of(body, "device")
        gpus.clear_health(device)
        return answer(request, {"cleared": device})

    @router.get("/api/runs/{job_id}/telemetry")
    def job_telemetry(request: Request, job_id: str, keys: str = DEFAULT_KEYS) -> Response:
        api.get_job(job_id)
        return answer(request, load_job_telemetry(api.paths, job_id, _names(keys)))

    @router.get("/api/doctor")
    def doctor(request: Request, stack: bool = True, lang: str = "en") -> Response:
        python = api.settings.training_python if stack else None
        folders = {"data": api.paths.root, "jobs": api.paths.jobs}
        report = examine_host(folders, gpus=gpus, python=python)
        checks = [translate_check(check) for check in report.checks] if lang == "zh" else report.checks
        return answer(request, {"status": report.status, "checks": checks})

    @router.get("/metrics")
    def metrics() -> Response:
        active = api.jobs.in_states(JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
        page = render_metrics(gpus, jobs=api.jobs.counts(), running=active, leases=api.jobs.leases())
        return Response(page, media_type=CONTENT_TYPE)

    return router


def translate_check(check: HostCheck) -> HostCheck:
    """With the Chinese title, expectation and advice; what was found stays in the tools' own words."""
    text = check_text_zh(check.code)
    return replace(check, title=text.title, expected=text.expected, advice=text.advice) if text else check


def _names(text: str) -> Sequence[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
