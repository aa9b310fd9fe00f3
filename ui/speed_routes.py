"""Questions about tuning searches in, JSON out, and the three things that can be done to one. docs/contracts.md, "HTTP"."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Request
from starlette.responses import Response

from backend.errors import InvalidInput
from backend.services.bench_runs import Benches, BenchWish
from backend.services.run_speed import MEASURED_SHARE, RunSpeed
from backend.services.searches import Searches
from backend.services.sweeps import Sweeps, parse_range
from backend.services.views import job_row
from ui.pages.forecast_view import build_advice_view
from ui.pages.new_run import TEXTS
from ui.routes import Body, Given, answer, named_texts_of, parse_word, text_of, texts_of, whole_of

DEFAULT_MINUTES = 8.0
MOST_SHOWN = 50


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

    @router.post("/{search_id}/again")
    def again(request: Request, search_id: str, body: Given) -> Response:
        return answer(request, {"tuning": searches.again(search_id)}, status=201)

    @router.post("/{search_id}/launch")
    def launch(request: Request, search_id: str, body: Given) -> Response:
        return answer(request, {"job": job_row(searches.launch(search_id))}, status=201)

    return router


def bench_router(benches: Benches) -> APIRouter:
    """`/api/benches`: host checks that are kept, newest first, with what got worse in each; POST queues some."""
    router = APIRouter(prefix="/api/benches")

    @router.get("")
    def every(request: Request) -> Response:
        return answer(request, benches.view())

    @router.post("")
    def start(request: Request, body: Given) -> Response:
        wish = BenchWish(
            gpus=tuple(texts_of(body, "gpus")) if "gpus" in body else (),
            processes=None if body.get("processes") is None else whole_of(body, "processes"),
            profiles=tuple(texts_of(body, "profiles")) if "profiles" in body else ("plain",),
            env=named_texts_of(body, "env") if "env" in body else {},
        )
        return answer(request, {"jobs": [job_row(job) for job in benches.start(wish)]}, status=201)

    @router.get("/compare")
    def compare(request: Request, first: str, second: str) -> Response:
        rows = benches.compare(first, second)
        return answer(request, {"rows": [{**asdict(row), "ratio": row.ratio} for row in rows]})

    return router


def sweep_router(sweeps: Sweeps) -> APIRouter:
    """`/api/sweeps...`"""
    router = APIRouter(prefix="/api/sweeps")

    @router.get("")
    def every(request: Request) -> Response:
        return answer(request, {"sweeps": [sweeps.view(sweep.id) for sweep in sweeps.every()[:MOST_SHOWN]]})

    @router.post("")
    def start(request: Request, body: Given) -> Response:
        grid = named_texts_of(body, "grid")
        samples = None if body.get("samples") is None else whole_of(body, "samples")
        ranges = [parse_range(key.strip(), text) for key, text in grid.items()]
        early = body.get("early_stop") is True
        sweep = sweeps.start(text_of(body, "spec_text"), ranges, samples=samples, early_stop=early)
        return answer(request, sweeps.view(sweep.id), status=201)

    @router.get("/{sweep_id}")
    def one(request: Request, sweep_id: str) -> Response:
        return answer(request, sweeps.view(sweep_id))

    @router.post("/{sweep_id}/stop")
    def stop(request: Request, sweep_id: str, body: Given) -> Response:
        return answer(request, sweeps.stop(sweep_id))

    @router.post("/{sweep_id}/resume")
    def resume(request: Request, sweep_id: str, body: Given) -> Response:
        return answer(request, sweeps.resume(sweep_id, failed=body.get("failed") is True))

    @router.get("/{sweep_id}/best")
    def best(request: Request, sweep_id: str) -> Response:
        return answer(request, {"spec_text": sweeps.best_text(sweep_id)})

    @router.post("/{sweep_id}/launch")
    def launch(request: Request, sweep_id: str, body: Given) -> Response:
        return answer(request, {"job": job_row(sweeps.launch(sweep_id))}, status=201)

    return router


def run_speed_router(speed: RunSpeed) -> APIRouter:
    """`/api/runs/{id}/advice` and `/cost`."""
    router = APIRouter(prefix="/api/runs/{job_id}")

    @router.get("/advice")
    def advice(request: Request, job_id: str, lang: str = "en") -> Response:
        found = speed.advice(job_id)
        texts = TEXTS[parse_word("lang", lang, ("en", "zh"))]
        shown = [
            {
                **asdict(build_advice_view(each, texts)),
                "basis": each.basis,
                "fix": each.fix,
                "measured_share": each.evidence.get(MEASURED_SHARE),
            }
            for each in found.advices
        ]
        told = {"ready": found.ready, "mfu": found.mfu, "mfu_source": found.mfu_source, "shares": found.shares}
        return answer(request, {**told, "advice": shown})

    @router.post("/advice")
    def apply(request: Request, job_id: str, body: Given) -> Response:
        return answer(request, {"spec_text": speed.apply(job_id, text_of(body, "code"))})

    @router.get("/cost")
    def cost(request: Request, job_id: str) -> Response:
        return answer(request, speed.cost(job_id))

    return router


def minutes_of(body: Body) -> float:
    value = body.get("minutes", DEFAULT_MINUTES)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInput("minutes", found=repr(value)[:100], expected="a number of minutes")
    return float(value)
