"""Questions about several runs, and what is taken home from a run, in; JSON, CSV, ZIP and report pages out."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from backend.services.comparison import Comparisons
from backend.services.preferences import load_preferences, save_preferences
from backend.services.series_export import csv_lines
from backend.services.views import Series, Views
from ui.downloads import disposition
from ui.encoding import encode
from ui.guard import LOCAL_USER, user_of
from ui.report import build_report, report_name
from ui.routes import Given, answer, parse_word
from ui.text import LANGUAGES, Language

NO_STORE = {"Cache-Control": "no-store"}
First = Annotated[int | None, Query(alias="from", ge=0)]
Last = Annotated[int | None, Query(ge=0)]


def compare_router(views: Views, comparisons: Comparisons) -> APIRouter:
    """`/api/compare`, `/api/tags`, `/api/preferences` and the downloads of a run's points and scripts."""
    router = APIRouter(prefix="/api")

    @router.get("/compare")
    def compare(request: Request, runs: str = "") -> Response:
        return answer(request, comparisons.compare(runs.split(",")))

    @router.get("/tags")
    def tags(request: Request) -> Response:
        return answer(request, {"tags": [{"tag": tag, "n": n} for tag, n in views.api.list_tags().items()]})

    @router.get("/preferences")
    def preferences(request: Request) -> Response:
        return answer(request, load_preferences(views.api.paths, user_of(request) or LOCAL_USER))

    @router.post("/preferences")
    def set_preferences(request: Request, body: Given) -> Response:
        return answer(request, save_preferences(views.api.paths, user_of(request) or LOCAL_USER, body))

    @router.get("/report")
    def report(runs: str = "", lang: str = "en") -> Response:
        language: Language = "zh" if parse_word("lang", lang, LANGUAGES) == "zh" else "en"
        ids = runs.split(",")
        page = build_report(comparisons, ids, language, now=views.clock())
        return Response(page, headers=_attached(report_name(ids)), media_type="text/html; charset=utf-8")

    _add_downloads(router, views)
    return router


def _add_downloads(router: APIRouter, views: Views) -> None:
    @router.get("/runs/{job_id}/series.csv")
    def series_csv(job_id: str, keys: str = "", first: First = None, to: Last = None) -> Response:
        found = every_point(views, job_id, keys, first, to)
        return StreamingResponse(csv_lines(found), headers=_attached(f"{job_id}.csv"), media_type="text/csv")

    @router.get("/runs/{job_id}/series.json")
    def series_json(job_id: str, keys: str = "", first: First = None, to: Last = None) -> Response:
        found = every_point(views, job_id, keys, first, to)
        body = encode({"job": job_id, "series": found.series, "markers": found.markers})
        return Response(body, headers=_attached(f"{job_id}.json"), media_type="application/json")

    @router.get("/runs/{job_id}/export.zip")
    def export_zip(job_id: str) -> Response:
        body = zipped(job_id, views.api.export(job_id).files)
        return Response(body, headers=_attached(f"{job_id}.zip"), media_type="application/zip")


def every_point(views: Views, job_id: str, keys: str, first: int | None, last: int | None) -> Series:
    """At full resolution, only the series that exist."""
    wanted: Sequence[str] = [key for key in keys.split(",") if key]
    found = views.series(job_id, wanted, first, last, points=0)
    return replace(found, series={key: curve for key, curve in found.series.items() if len(curve.x)})


def zipped(folder: str, files: Mapping[str, str]) -> bytes:
    """Small text files in one folder; scripts stay executable."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(f"{folder}/{name}")
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if name.endswith(".sh") else 0o644) << 16
            archive.writestr(entry, text)
    return out.getvalue()


def _attached(name: str) -> dict[str, str]:
    return {**NO_STORE, "Content-Disposition": disposition(name)}
