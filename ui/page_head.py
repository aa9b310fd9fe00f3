"""Gradio's HTML pages in, the same with our own beginning out: the page's language, and where the service is.

Gradio's `head` argument is inserted by its scripts at some time after the page has begun; what page code needs from the start
has to be in the HTML itself.
"""

from __future__ import annotations

import gzip
import json

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.preload import early_scripts


class PageHead:
    """`root` is the path of the service's public address ("" at the root of a host)."""

    def __init__(self, app: ASGIApp, root: str) -> None:
        self.app = app
        self._root = root
        text = json.dumps({"root": root}).replace("<", "\\u003c")
        self._script = f"<script>window.tunedeck={text};</script>".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["method"] != "GET"
            or scope["path"].startswith(("/api/", "/st/", "/gradio_api/"))
        ):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if "text/html" not in headers.get("accept", ""):
            await self.app(scope, receive, send)
            return
        answer = _Answer(self, scope, send, "gzip" in headers.get("accept-encoding", ""))
        # Asked for uncompressed: the beginning has to be changed.
        plain = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
        await self.app({**scope, "headers": plain}, receive, answer.send)

    def change(self, html: bytes, path: str) -> bytes:
        """With our scripts first in the head, and the language of the path."""
        if path == "/zh" or path.startswith("/zh/"):
            html = html.replace(b'lang="en"', b'lang="zh-CN"', 1)
        early = self._script + early_scripts(self._root, path).encode()
        return html.replace(b"<head>", b"<head>" + early, 1)


class _Answer:
    """Holds an HTML answer back until it is whole; everything else goes straight through."""

    def __init__(self, page: PageHead, scope: Scope, send: Send, compress: bool) -> None:
        self._page, self._path, self._send, self._compress = page, scope["path"], send, compress
        self._start: Message | None = None
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            is_page = Headers(raw=message["headers"]).get("content-type", "").startswith("text/html")
            if is_page and message["status"] == 200:
                self._start = message
                return
        if self._start is None or message["type"] != "http.response.body":
            await self._send(message)
            return
        self._body += message.get("body", b"")
        if not message.get("more_body", False):
            await self._finish(self._start)

    async def _finish(self, start: Message) -> None:
        body = self._page.change(self._body, self._path)
        headers = MutableHeaders(scope=start)
        headers["Cache-Control"] = "no-cache"
        headers.add_vary_header("Accept-Encoding")
        if self._compress:
            body = gzip.compress(body, 5, mtime=0)
            headers["Content-Encoding"] = "gzip"
        headers["Content-Length"] = str(len(body))
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})
