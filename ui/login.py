"""A form with name and password in, a session cookie out."""

from __future__ import annotations

import html
import math
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ui.guard import LANGUAGE_COOKIE
from ui.sessions import COOKIE, LIFETIME_SECONDS, Sessions

MAX_FORM_BYTES = 4096
_TEXT = {
    "en": {
        "title": "Sign in",
        "user": "User name",
        "password": "Password",
        "submit": "Sign in",
        "wrong": "Wrong user name or password.",
        "wait": "Too many attempts. Try again in {seconds} seconds.",
    },
    "zh": {
        "title": "登录",
        "user": "用户名",
        "password": "密码",
        "submit": "登录",
        "wrong": "用户名或密码错误。",
        "wait": "尝试次数过多，请在 {seconds} 秒后重试。",
    },
}
_PAGE = """<!doctype html><html lang="{lang}"><head><meta charset="utf-8"><title>Tunedeck · {title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><style>
body{{font:16px/1.5 system-ui,sans-serif;display:grid;place-items:center;min-height:100vh;margin:0;
background:Canvas;color:CanvasText}}
form{{width:min(20rem,90vw);display:grid;gap:.75rem}}h1{{font-size:1.4rem;margin:0 0 .5rem}}label{{display:grid;gap:.25rem}}
input,button{{font:inherit;padding:.55rem .7rem;border-radius:.4rem;border:1px solid GrayText;background:Field;color:FieldText}}
button{{background:#4f46e5;border-color:#4f46e5;color:#fff;cursor:pointer}}
:focus-visible{{outline:3px solid #818cf8;outline-offset:2px}}
.problem{{margin:0;padding:.5rem .7rem;border-left:4px solid #dc2626}}</style></head><body><main>
<form method="post" action="{action}"><h1>Tunedeck · {title}</h1>{problem}
<input type="hidden" name="next" value="{next}">
<label>{user}<input name="username" autocomplete="username" required autofocus></label>
<label>{password}<input name="password" type="password" autocomplete="current-password" required></label>
<button>{submit}</button></form></main></body></html>"""


def login_router(sessions: Sessions, prefix: str, is_https: bool) -> APIRouter:
    """`/login` and `/logout`. `prefix` is the path of the public URL; `is_https` marks the cookie Secure."""
    router = APIRouter()
    page = _Page(prefix)

    @router.get("/login", response_class=HTMLResponse)
    def show_login(request: Request, next: str = "/") -> Response:
        if sessions.user_of(request.cookies.get(COOKIE)):
            return RedirectResponse(prefix + safe_next(next), status_code=303)
        return page.show(request, next)

    @router.post("/login")
    async def sign_in(request: Request) -> Response:
        form = await _read_form(request)
        user, target = form.get("username", ""), safe_next(form.get("next", "/"))
        callers = (f"address {request.client.host if request.client else ''}", f"user {user}")
        if wait := sessions.wait_seconds(*callers):
            return page.show(request, target, "wait", seconds=math.ceil(wait), status=429)
        cookie = await run_in_threadpool(sessions.sign_in, user, form.get("password", ""))
        if cookie is None:
            sessions.note_failure(*callers)
            return page.show(request, target, "wrong", status=401)
        answer = RedirectResponse(prefix + target, status_code=303)
        answer.set_cookie(
            COOKIE, cookie, max_age=LIFETIME_SECONDS, path=prefix or "/", secure=is_https, httponly=True, samesite="lax"
        )
        return answer

    @router.post("/logout")
    def sign_out(request: Request) -> Response:
        sessions.sign_out(request.cookies.get(COOKIE))
        answer = RedirectResponse(f"{prefix}/login", status_code=303)
        answer.delete_cookie(COOKIE, path=prefix or "/")
        return answer

    return router


def language_router(prefix: str) -> APIRouter:
    """`/lang/en` and `/lang/zh`: remember the language, show the same page in it."""
    router = APIRouter()

    @router.get("/lang/{language}")
    def choose(language: str, next: str = "/") -> Response:
        language = "zh" if language == "zh" else "en"
        plain = next.removeprefix("/zh") if next == "/zh" or next.startswith(("/zh/", "/zh?")) else next
        path = safe_next(f"/{plain}" if plain == "" or plain.startswith("?") else plain)
        answer = RedirectResponse(f"{prefix}{'/zh' if language == 'zh' else ''}{path}", status_code=303)
        answer.set_cookie(LANGUAGE_COOKIE, language, max_age=365 * 24 * 3600, path=prefix or "/", samesite="lax")
        return answer

    return router


def safe_next(target: str) -> str:
    """A path of this server; "/" for anything that could lead elsewhere."""
    parts = urlsplit(target)
    is_path = target.startswith("/") and not target.startswith(("//", "/\\")) and not parts.scheme and not parts.netloc
    return (
        quote(target, safe="/?&=%-._~:@!$'()*+,;") if is_path and "\\" not in target and target.isprintable() else "/"
    )


class _Page:
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def show(self, request: Request, next: str, problem: str = "", status: int = 200, seconds: int = 0) -> Response:
        wanted = request.cookies.get(LANGUAGE_COOKIE) or request.headers.get("accept-language", "")
        lang = "zh" if wanted.lower().startswith("zh") else "en"
        text = _TEXT[lang]
        said = text[problem].format(seconds=seconds) if problem else ""
        body = _PAGE.format(
            **{name: text[name] for name in ("title", "user", "password", "submit")},
            lang=lang,
            action=f"{self._prefix}/login",
            next=html.escape(safe_next(next)),
            problem=f'<p class="problem" role="alert">{html.escape(said)}</p>' if said else "",
        )
        headers = {"Cache-Control": "no-store"} | ({"Retry-After": str(seconds)} if seconds else {})
        return HTMLResponse(body, status_code=status, headers=headers)


async def _read_form(request: Request) -> dict[str, str]:
    """First value of each field; a form that is too long is an empty one."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            return {}
    return {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
