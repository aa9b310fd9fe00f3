"""Content that can be read from any byte on in, an HTTP answer out: attachment, Range, If-Range, ETag, HEAD."""

from __future__ import annotations

import re
from email.utils import formatdate
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from backend.services.views import Content
from ui.encoding import encode

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


LARGE = 8 << 20
"""Bytes from which on a download is counted: logs and small files never have to wait."""


class Gate:
    """How many large downloads run and may run at once. One event loop uses it."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.running = 0


class Counted(StreamingResponse):
    """A download that takes one of the gate's places while it runs, until the reader goes away at the latest."""

    gate: Gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.gate.running >= self.gate.most:
            await too_many(self.gate.most)(scope, receive, send)
            return
        self.gate.running += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.gate.running -= 1


def too_many(most: int) -> Response:
    """503 in words, with the time after which to ask again."""
    message = f"{most} large downloads are running, as many as this server allows. Try again when one has ended."
    error = {"code": "busy", "field": "", "message": message}
    headers = {"Cache-Control": "no-store", "Retry-After": "30"}
    return Response(encode({"error": error}), status_code=503, headers=headers, media_type="application/json")


class Unsatisfiable(Exception):
    """A range that starts behind the end."""


def send(
    request: Request, content: Content, filename: str, media_type: str = "application/octet-stream", *, gate: Gate
) -> Response:
    """Always as an attachment: what a trainer wrote is never shown as a page of ours. Large ones go through the `gate`."""
    headers = {
        "Content-Disposition": disposition(filename),
        "Accept-Ranges": "bytes",
        "ETag": content.etag,
        "Last-Modified": formatdate(content.modified_at, usegmt=True),
        "Cache-Control": "private, no-cache",
    }
    if _matches(request.headers.get("if-none-match"), content.etag):
        return Response(status_code=304, headers=headers)
    try:
        wanted = requested_range(request, content)
    except Unsatisfiable:
        return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{content.size}"})
    start, stop = wanted or (0, content.size)
    headers["Content-Length"] = str(stop - start)
    if wanted:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{content.size}"
    status = 206 if wanted else 200
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers, media_type=media_type)
    kind = Counted if stop - start >= LARGE else StreamingResponse
    response = kind(content.read(start, stop), status_code=status, headers=headers, media_type=media_type)
    if isinstance(response, Counted):
        response.gate = gate
    return response


def requested_range(request: Request, content: Content) -> tuple[int, int] | None:
    """[start, stop) of a single range; None: the whole (no range, several, or If-Range names another state of it)."""
    condition = request.headers.get("if-range")
    if condition is not None and condition != content.etag:
        return None
    match = _RANGE.fullmatch(request.headers.get("range", "").replace(" ", ""))
    if not match or match[1] == match[2] == "" or max(map(len, match.groups())) > 18:
        return None
    if not match[1]:
        length = min(int(match[2]), content.size)
        if not length:
            raise Unsatisfiable
        return content.size - length, content.size
    start, stop = int(match[1]), int(match[2]) + 1 if match[2] else content.size
    if stop <= start and match[2]:
        return None
    if start >= content.size:
        raise Unsatisfiable
    return start, min(stop, content.size)


def disposition(filename: str) -> str:
    """RFC 6266: a plain name for old clients, the true one in UTF-8."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", filename)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"


def _matches(header: str | None, etag: str) -> bool:
    return header is not None and etag in [part.strip() for part in header.split(",")]
