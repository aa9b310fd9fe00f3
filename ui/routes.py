"""Requests of the page in, answers of the services out, as JSON (docs/contracts.md, "HTTP")."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Mapping
from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, FastAPI, Query, Request, WebSocket
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from backend.domain.job import JobState, StopMode
from backend.domain.problem import ArgValue
from backend.errors import (
    Conflict,
    EnvironmentFault,
    InvalidInput,
    NotFound,
    PathRefused,
    SpecRejected,
    StoreFault,
    TunedeckError,
)
from backend.services.api import Api
from backend.services.attach import attach
from backend.services.cursor import parse_cursor
from backend.services.diagnosing import Diagnosis
from backend.services.importing import import_texts
from backend.services.log_search import LEVELS, LogQuery
from backend.services.views import Series, Views, job_row
from ui.downloads import Gate, send
from ui.encoding import curves_record, encode
from ui.live import NOT_SIGNED_IN, Hub, everything_of, message_of
from ui.text.diagnosis_zh import DIAGNOSIS_ZH

VERSION = "0.1.0"
MAX_BODY_BYTES = 2 << 20
MAX_LINES = 5000
MAX_HITS = 500
LEAST_POINTS = 16
COMPRESS_ABOVE_BYTES = 4096
_STATUS: dict[type[TunedeckError], tuple[int, str]] = {
    InvalidInput: (400, "invalid_input"),
    SpecRejected: (400, "invalid_input"),
    PathRefused: (403, "path_refused"),
    NotFound: (404, "not_found"),
    Conflict: (409, "conflict"),
    EnvironmentFault: (503, "environment_fault"),
    StoreFault: (507, "store_fault"),
}

log = logging.getLogger(__name__)
Body = Mapping[str, ArgValue]


class TooLarge(Exception):
    """A request body above MAX_BODY_BYTES."""


def read_router(views: Views) -> APIRouter:
    """Everything that changes nothing."""
    router = APIRouter(prefix="/api")

    @router.get("/health")
    def health(request: Request) -> Response:
        return answer(request, {"ok": True, "version": VERSION})

    @router.get("/state")
    def state(request: Request) -> Response:
        return answer(request, views.state())

    @router.get("/runs")
    def runs(
        request: Request,
        q: str = "",
        state: Annotated[list[str] | None, Query()] = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        offset: Annotated[int, Query(ge=0)] = 0,
        sort: str = "created",
        order: str = "desc",
        tag: Annotated[list[str] | None, Query()] = None,
    ) -> Response:
        states = parse_states(",".join(state or []))
        descending = parse_word("order", order, ("asc", "desc")) == "desc"
        total, rows = views.runs(q, states, limit, offset, sort, descending, tag or ())
        return answer(request, {"total": total, "runs": rows})

    @router.get("/runs/{job_id}")
    def run(request: Request, job_id: str) -> Response:
        return answer(request, views.run(job_id, sampled=True))

    @router.get("/runs/{job_id}/diagnosis")
    def diagnosis(request: Request, job_id: str, lang: str = "en") -> Response:
        return answer(request, translate_diagnosis(views.diagnosis(job_id), lang))

    @router.get("/runs/{job_id}/profile")
    def profile(request: Request, job_id: str) -> Response:
        return answer(request, views.profile(job_id))

    @router.get("/runs/{job_id}/profile/{rank}.txt")
    def profile_table(job_id: str, rank: int) -> Response:
        return PlainTextResponse(views.profile_table(job_id, rank))

    @router.get("/runs/{job_id}/series")
    def series(
        request: Request,
        job_id: str,
        keys: str = "",
        first: Annotated[int | None, Query(alias="from", ge=0)] = None,
        to: Annotated[int | None, Query(ge=0)] = None,
        px: Annotated[int, Query(ge=0, le=20_000)] = 1500,
    ) -> Response:
        if 0 < px < LEAST_POINTS:
            raise InvalidInput("px", found=str(px), expected=f"{LEAST_POINTS} to 20000, or 0 for every point")
        wanted = [key for key in keys.split(",") if key]
        return answer(request, series_record(views.series(job_id, wanted, first, to, px, sampled=True)))

    @router.get("/runs/{job_id}/since")
    def since(request: Request, job_id: str, c: str = "") -> Response:
        update = views.update(job_id, parse_cursor(c))
        gpus = views.gpu_readings()
        parts = {**everything_of(update), "gpus": gpus, **message_of(update)}
        return answer(request, {"c": str(update.cursor), **parts})

    @router.get("/runs/{job_id}/log")
    def log_window(
        request: Request,
        job_id: str,
        offset: int | None = None,
        before: Annotated[int | None, Query(ge=0)] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_LINES)] = 500,
    ) -> Response:
        return answer(request, views.log(job_id, offset=offset, before=before, limit=limit))

    @router.get("/runs/{job_id}/log/search")
    def log_search(
        request: Request,
        job_id: str,
        q: str = "",
        regex: bool = False,
        case: bool = False,
        level: str = "",
        rank: Annotated[int | None, Query(ge=0, le=99_999)] = None,
        start: Annotated[int, Query(alias="from", ge=0)] = 0,
        line: Annotated[int | None, Query(ge=1)] = None,
        limit: Annotated[int, Query(ge=0, le=MAX_HITS)] = 100,
        context: Annotated[int, Query(ge=0, le=20)] = 2,
        first: bool = False,
    ) -> Response:
        query = LogQuery(
            text=q, is_regex=regex, match_case=case, level=parse_word("level", level, ("", *LEVELS)), rank=rank
        )
        return answer(
            request,
            views.search(job_id, query, start=start, line=line, limit=limit, context=context, first_only=first),
        )

    return router


def series_record(found: Series) -> dict[str, object]:
    return {
        "cursor": found.cursor,
        "series": curves_record(found.series),
        "markers": found.markers,
        "span": found.span,
        "reading": found.reading,
    }


def translate_diagnosis(found: Diagnosis, lang: str) -> dict[str, object]:
    """What the page shows: title, remedy and proofs, in the reader's language where the cause is known."""
    title, remedy = found.title, found.remedy
    translated = DIAGNOSIS_ZH.get(found.root_cause or "") if lang == "zh" else None
    if translated:
        title, remedy = translated
    return {
        "outcome": found.outcome,
        "root_cause": found.root_cause,
        "title": title,
        "remedy": remedy,
        "evidence": [piece.text for piece in found.evidence][:3],
        "first_failing_rank": found.first_failing_rank,
        "phase": found.phase,
        "last_step": found.last_step,
        "last_checkpoint_step": found.last_checkpoint_step,
    }


def download_router(views: Views, downloads: int) -> APIRouter:
    """Files out; at most `downloads` large ones at once."""
    gate = Gate(downloads)
    router = APIRouter(prefix="/api/runs/{job_id}")

    @router.api_route("/log.txt", methods=["GET", "HEAD"])
    def console(request: Request, job_id: str) -> Response:
        return send(request, views.console(job_id), f"{job_id}.log", "text/plain; charset=utf-8", gate=gate)

    @router.api_route("/files/{path:path}", methods=["GET", "HEAD"])
    def output_file(request: Request, job_id: str, path: str) -> Response:
        return send(request, views.output_file(job_id, path), path.rpartition("/")[2], gate=gate)

    @router.api_route("/archive/{checkpoint}.tar", methods=["GET", "HEAD"])
    def archive(request: Request, job_id: str, checkpoint: str, what: str = "all") -> Response:
        only = parse_word("what", what, ("all", "adapter")) == "adapter"
        content = views.archive(job_id, checkpoint, only_inference=only)
        name = f"{job_id}-{checkpoint}{'-adapter' if only else ''}.tar"
        return send(request, content, name, "application/x-tar", gate=gate)

    return router


def action_router(api: Api) -> APIRouter:
    """Everything that changes something, or plans to."""
    router = APIRouter(prefix="/api")

    @router.post("/preview")
    def preview(request: Request, body: Given) -> Response:
        found = api.preview(text_of(body, "spec_text"))
        return answer(request, {"plan": found.plan, "problems": found.problems, "facts": found.facts})

    @router.post("/check")
    def check(request: Request, body: Given) -> Response:
        """The trainer's own check; `checking` means: ask again."""
        return answer(request, api.final_check(text_of(body, "spec_text")))

    @router.post("/import")
    def import_files(request: Request, body: Given) -> Response:
        """Texts of any kind that belong together, by file name, as one specification."""
        return answer(request, import_texts(named_texts_of(body, "files")))

    @router.post("/runs")
    def submit(request: Request, body: Given) -> Response:
        return answer(request, {"job": job_row(api.submit(text_of(body, "spec_text")))}, status=201)

    @router.post("/attach")
    def attach_run(request: Request, body: Given) -> Response:
        """A run that Tunedeck did not start, by its output folder or console log."""
        pid = None if body.get("pid") is None else whole_of(body, "pid", most=1 << 22)
        name = text_of(body, "name") if "name" in body else ""
        return answer(request, {"job": job_row(attach(api, text_of(body, "path"), pid=pid, name=name))}, status=201)

    @router.get("/runs/{job_id}/export")
    def export(request: Request, job_id: str) -> Response:
        return answer(request, api.export(job_id))

    @router.post("/runs/{job_id}/stop")
    def stop(request: Request, job_id: str, body: Given) -> Response:
        mode = parse_word("mode", text_of(body, "mode"), [mode.value for mode in StopMode])
        return answer(request, {"job": job_row(api.request_stop(job_id, StopMode(mode)))})

    @router.post("/runs/{job_id}/save")
    def save(request: Request, job_id: str, body: Given) -> Response:
        return answer(request, {"job": job_row(api.request_save(job_id))})

    @router.post("/runs/{job_id}/profile")
    def profile(request: Request, job_id: str, body: Given) -> Response:
        return answer(request, {"job": job_row(api.request_profile(job_id))})

    @router.post("/runs/{job_id}/cancel")
    def cancel(request: Request, job_id: str, body: Given) -> Response:
        return answer(request, {"job": job_row(api.cancel(job_id))})

    @router.post("/runs/{job_id}/priority")
    def priority(request: Request, job_id: str, body: Given) -> Response:
        return answer(request, {"job": job_row(api.set_priority(job_id, whole_of(body, "priority")))})

    @router.post("/runs/{job_id}/move")
    def move(request: Request, job_id: str, body: Given) -> Response:
        before = None if body.get("before") is None else text_of(body, "before")
        return answer(request, {"job": job_row(api.move(job_id, before))})

    @router.post("/runs/{job_id}/notes")
    def notes(request: Request, job_id: str, body: Given) -> Response:
        return answer(request, {"job": job_row(api.annotate(job_id, text_of(body, "notes"), texts_of(body, "tags")))})

    @router.post("/runs/{job_id}/delete")
    def delete(request: Request, job_id: str, body: Given) -> Response:
        api.delete(job_id)
        return answer(request, {"deleted": job_id})

    @router.post("/runs/{job_id}/resume")
    def resume(request: Request, job_id: str, body: Given) -> Response:
        changes = body.get("changes") or {}
        if not isinstance(changes, dict):
            raise InvalidInput("changes", found=type(changes).__name__, expected="an object of arguments and values")
        return answer(request, {"job": job_row(api.resume(job_id, text_of(body, "checkpoint"), changes))}, status=201)

    @router.post("/runs/{job_id}/clone")
    def clone(request: Request, job_id: str, body: Given) -> Response:
        return answer(request, {"spec_text": api.clone_text(job_id)})

    return router


def live_router(hub: Hub) -> APIRouter:
    """The WebSocket, and an answer for every address below /api that is none."""
    router = APIRouter(prefix="/api")

    @router.websocket("/ws")
    async def live(socket: WebSocket, run: str = "", after: str = "", log: str = "") -> None:
        await socket.accept()
        if getattr(socket.state, "user", None) is None:
            await socket.close(NOT_SIGNED_IN)
            return
        offset = int(log) if log.isascii() and log.isdigit() and len(log) < 19 else None
        await hub.serve(socket, run, after or None, offset)

    @router.api_route("/{rest:path}", methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
    def unknown(request: Request, rest: str) -> Response:
        return refuse(404, "not_found", "", f"There is no address /api/{rest} for {request.method}.")

    return router


def answer(request: Request, record: object, status: int = 200) -> Response:
    """JSON, compressed when it is worth it."""
    data = encode(record)
    headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if len(data) > COMPRESS_ABOVE_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
        data = gzip.compress(data, 4, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(data, status_code=status, headers=headers, media_type="application/json")


def refuse(status: int, code: str, field: str, message: str, **more: object) -> Response:
    body = encode({"error": {"code": code, "field": field, "message": message, **more}})
    return Response(body, status_code=status, headers={"Cache-Control": "no-store"}, media_type="application/json")


def add_error_answers(app: FastAPI) -> None:
    """Every error of ours, of FastAPI and of nobody becomes an answer of the shape in docs/contracts.md."""

    @app.exception_handler(TunedeckError)
    def expected(request: Request, error: TunedeckError) -> Response:
        kind = next(kind for kind in type(error).__mro__ if kind in _STATUS or kind is TunedeckError)
        status, code = _STATUS.get(kind, (500, "internal"))
        more = {"problems": error.problems} if isinstance(error, SpecRejected) else {}
        return refuse(status, code, getattr(error, "field", ""), str(error), **more)

    @app.exception_handler(OSError)
    def disk(request: Request, error: OSError) -> Response:
        log.error("%s %s: %s", request.method, request.url.path, error)
        return refuse(507, "store_fault", "", f"{error.strerror or error}: {error.filename or ''}".rstrip(": "))

    @app.exception_handler(RequestValidationError)
    def parameters(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        field = str(first["loc"][-1])
        return refuse(400, "invalid_input", field, f"{field}: found {first.get('input')!r}. {first['msg']}.")

    @app.exception_handler(TooLarge)
    def too_large(request: Request, error: TooLarge) -> Response:
        return refuse(413, "payload_too_large", "", f"The body is larger than {MAX_BODY_BYTES} bytes.")

    @app.exception_handler(HTTPException)
    def plain(request: Request, error: HTTPException) -> Response:
        return refuse(error.status_code, "not_found" if error.status_code == 404 else "refused", "", str(error.detail))

    @app.exception_handler(Exception)
    def unexpected(request: Request, error: Exception) -> Response:
        log.error("%s %s", request.method, request.url.path, exc_info=error)
        return refuse(500, "internal", "", "Something went wrong in the server; its log says what.")


async def read_body(request: Request) -> Body:
    """A JSON object; nothing at all counts as {}. Raises InvalidInput, TooLarge."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY_BYTES:
            raise TooLarge
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json" and (data or kind):
        raise InvalidInput("Content-Type", found=kind or "none", expected="application/json")
    try:
        body = orjson.loads(data) if data.strip() else {}
    except orjson.JSONDecodeError as error:
        raise InvalidInput("body", found=str(error), expected="JSON") from error
    if not isinstance(body, dict):
        raise InvalidInput("body", found=type(body).__name__, expected="a JSON object")
    return body


Given = Annotated[Body, Depends(read_body)]


def text_of(body: Body, name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise InvalidInput(name, found=_shown(value), expected="text")
    return value


def named_texts_of(body: Body, name: str) -> dict[str, str]:
    values = body.get(name)
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise InvalidInput(name, found=_shown(values), expected="an object of texts by file name")
    return {str(key): str(value) for key, value in values.items()}


def whole_of(body: Body, name: str, most: int = 1_000_000) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > most:
        raise InvalidInput(name, found=_shown(value), expected=f"a whole number between -{most} and {most}")
    return value


def texts_of(body: Body, name: str) -> list[str]:
    values = body.get(name)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InvalidInput(name, found=_shown(values), expected="a list of texts")
    return [str(value) for value in values]


def parse_word(name: str, value: str, allowed: list[str] | tuple[str, ...]) -> str:
    if value not in allowed:
        raise InvalidInput(name, found=repr(value), expected=" or ".join(allowed))
    return value


def parse_states(text: str) -> tuple[JobState, ...]:
    words = [state.value for state in JobState]
    return tuple(JobState(parse_word("state", word, words)) for word in text.split(",") if word)


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value)[:200]
