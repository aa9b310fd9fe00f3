"""Questions about tuning searches in, JSON out, and the three things that can be done to one. docs/contracts.md, "HTTP"."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from backend.errors import InvalidInput
from backend.services.searches import Searches
from backend.services.views import job_row
from ui.routes import Body, Given, answer, text_of

DEFAULT_MINUTES = 8.0


def speed_router(searches: Searches) -> APIRouter:
    """`/api/tunings...`"""
    router = APIRouter(prefix="/api/tunings")

    @router.get("")
    def every(request: Request) -> Response:
        return answer(request, {"tunings": searches.list()})

    @router.post("")
    def start(request: Request, body: Given) -> Response:
        record = searches.start(text_of(body, "spec_text"), minutes_of(body) * 60)
        return answer(request, {"tuning": record}, status=201)

    @router.get("/{search_id}")
    def one(request: Request, search_id: str) -> Response:
        return answer(request, {"tuning": searches.get(search_id)})

    @router.get("/{search_id}/best")
    def best(request: Request, search_id: str) -> Response:
        return answer(request, {"spec_text": searches.best_text(search_id)})

    @router.post("/{search_id}/stop")
    def stop(request: Request, search_id: str, body: Given) -> Response:
        return answer(request, {"tuning": searches.request_stop(search_id)})

    @router.post("/{search_id}/launch")
    def launch(request: Request, search_id: str, body: Given) -> Response:
        return answer(request, {"job": job_row(searches.launch(search_id))}, status=201)

    return router


def minutes_of(body: Body) -> float:
    value = body.get("minutes", DEFAULT_MINUTES)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInput("minutes", found=repr(value)[:100], expected="a number of minutes")
    return float(value)
