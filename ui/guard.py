"""Every request in; refused, sent to the login or to the reader's language, or passed on with safe headers added."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.access import Hosts, host_name, is_cross_site
from ui.encoding import encode
from ui.sessions import COOKIE, Sessions

LOCAL_USER = "local"
SCRAPER = "metrics"
METRICS = "/metrics"
OPEN_PATHS = frozenset({"/login", "/api/health", "/favicon.ico", "/robots.txt"})
LANGUAGE_COOKIE = "lang"
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Gradio's addresses that serve files, fetch pages for others or describe the service: nothing of ours needs them, and the first
# answers a range with the request's own headers, cookies included, for scripts of the page to read (Gradio 6.31).
_CLOSED = re.compile(r"(/zh)?(/gradio_api)?/(file|proxy|monitoring|openapi\.json|docs|redoc)([=/].*)?")
_CLOSED_API = re.compile(r"(/zh)?/gradio_api/(file|proxy|stream|info|deep_link|vibe|monitoring)")
_NO_PAGES = re.compile(
    r"/(api|st|static|zh|lang|login|logout|gradio_api|assets|config|theme\.css|favicon\.ico|svelte)([/=]|$)"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    # Gradio compiles templates and puts scripts and styles into its pages: 'unsafe-eval' and 'unsafe-inline' cannot go.
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:;"
    " style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self';"
    " worker-src 'self' blob:; media-src 'self' blob:; object-src 'none'; base-uri 'self'; form-action 'self';"
    " frame-ancestors 'none'",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer of the shape in docs/contracts.md."""

    status: int
    code: str
    message: str

    def response(self) -> Response:
        body = encode({"error": {"code": self.code, "field": "", "message": self.message}})
        return Response(body, status_code=self.status, media_type="application/json")


class Guard:
    """The outermost layer. `prefix`: path of TUNEDECK_PUBLIC_URL, which a proxy takes off; `sessions` None: no login.

    `metrics_token`: opens /metrics, and nothing else, to whoever sends it as a bearer token; "" = only a session does.
    """

    def __init__(
        self, app: ASGIApp, hosts: Hosts, sessions: Sessions | None, prefix: str = "", metrics_token: str = ""
    ) -> None:
        self.app, self.hosts, self.sessions, self.prefix = app, hosts, sessions, prefix
        self.metrics_token = metrics_token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        if self.prefix and (scope["path"] + "/").startswith(self.prefix + "/"):  # a proxy that leaves the path on
            scope = {**scope, "path": scope["path"].removeprefix(self.prefix) or "/"}
        headers = Headers(scope=scope)
        user = self._user(scope, headers)
        scope.setdefault("state", {})["user"] = user
        refusal = self._refuse(scope, headers)
        if scope["type"] == "websocket":
            if refusal:
                await send({"type": "websocket.close", "code": 1008, "reason": refusal.message})
                return
            await self.app(scope, receive, send)
            return
        answer = (
            refusal.response()
            if refusal
            else self._sign_in_first(scope, headers, user) or self._translate(scope, headers)
        )
        await (answer or self.app)(_without_range(scope), receive, _with_headers(send))

    def _user(self, scope: Scope, headers: Headers) -> str | None:
        if self._is_scraper(scope, headers):
            return SCRAPER
        return self.sessions.user_of(HTTPConnection(scope).cookies.get(COOKIE)) if self.sessions else LOCAL_USER

    def _is_scraper(self, scope: Scope, headers: Headers) -> bool:
        if not self.metrics_token or scope["type"] != "http" or scope["path"] != METRICS:
            return False
        kind, _, token = headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self.metrics_token)

    def _refuse(self, scope: Scope, headers: Headers) -> Refusal | None:
        forwarded = headers.get("x-forwarded-host", "").split(",")[0]
        for host in (headers.get("host", ""), *([forwarded] if forwarded else [])):
            if not self.hosts.knows(host):
                said = f"This server is not known as {host_name(host)!r} (see TUNEDECK_PUBLIC_URL)."
                return Refusal(400, "unknown_host", said)
        changes = scope["type"] == "websocket" or scope["method"] not in _SAFE_METHODS
        if (changes or "origin" in headers) and is_cross_site(headers, self.hosts):
            return Refusal(403, "cross_site", "This request came from a page of another site.")
        if _CLOSED.fullmatch(scope["path"]) or _CLOSED_API.match(scope["path"]):
            return Refusal(403, "closed", "This address is closed.")
        return None

    def _sign_in_first(self, scope: Scope, headers: Headers, user: str | None) -> Response | None:
        path = scope["path"]
        if user is not None or path in OPEN_PATHS:
            return None
        if _is_navigation(scope, headers) and not path.startswith("/api/"):
            return RedirectResponse(f"{self.prefix}/login?next={quote(path + _query(scope), safe='')}", status_code=303)
        return Refusal(401, "unauthorized", "Sign in first.").response()

    def _translate(self, scope: Scope, headers: Headers) -> Response | None:
        """A page without a language goes to the reader's: what the cookie says, else what the browser prefers."""
        if not _is_navigation(scope, headers) or _NO_PAGES.match(scope["path"]):
            return None
        wanted = HTTPConnection(scope).cookies.get(LANGUAGE_COOKIE)
        if wanted is None:
            wanted = "zh" if headers.get("accept-language", "").strip().lower().startswith("zh") else "en"
        if wanted != "zh":
            return None
        target = f"{self.prefix}/zh{quote(scope['path'], safe='/-._~=:@')}{_query(scope)}"
        return RedirectResponse(
            target, status_code=302, headers={"Vary": "Cookie, Accept-Language", "Cache-Control": "no-store"}
        )


class Prefixed:
    """The innermost layer: tells the routes below which public path they stand under, so that Gradio's addresses are right."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self.app, self.prefix = app, prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.prefix and scope["type"] in ("http", "websocket"):
            scope = {**scope, "root_path": self.prefix, "path": self.prefix + scope["path"]}
        await self.app(scope, receive, send)


def user_of(request: Request) -> str | None:
    """Who sent this; one function for our routes, the WebSocket and Gradio (`auth_dependency`)."""
    found: str | None = getattr(request.state, "user", None)
    return found


def _query(scope: Scope) -> str:
    return f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""


def _is_navigation(scope: Scope, headers: Headers) -> bool:
    return scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and "text/html" in headers.get("accept", "")


def _without_range(scope: Scope) -> Scope:
    """Gradio answers a range with the request's own headers; only our downloads know ranges."""
    if scope["path"].startswith("/api/"):
        return scope
    return {**scope, "headers": [(name, value) for name, value in scope["headers"] if name != b"range"]}


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name in [name for name in headers if name.lower().startswith("access-control-")]:
                del headers[name]
            for name, value in _HEADERS.items():
                headers[name] = value
        await send(message)

    return sending
