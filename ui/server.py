"""Services and pages in, one web application out, and the server that runs it: routes, live view, login, Gradio's pages."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import warnings
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import uvicorn
from fastapi import APIRouter, FastAPI, Request
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from backend.errors import EnvironmentFault
from backend.services.api import Api
from backend.services.bench_runs import Benches
from backend.services.comparison import Comparisons
from backend.services.forecast import Forecaster
from backend.services.gpus import open_gpus
from backend.services.run_speed import RunSpeed
from backend.services.searches import Searches
from backend.services.sweeps import Sweeps
from backend.services.views import Views
from backend.settings import Settings
from ui.access import known_hosts, load_metrics_token, require_login_off_loopback
from ui.assets import FOREVER, Assets
from ui.compare_routes import compare_router
from ui.gpu_routes import gpu_router
from ui.guard import Guard, Prefixed, user_of
from ui.live import Hub
from ui.login import language_router, login_router
from ui.page_head import PageHead
from ui.routes import action_router, add_error_answers, download_router, live_router, read_router, refuse
from ui.sessions import Sessions
from ui.speed_routes import bench_router, run_speed_router, speed_router, sweep_router

if TYPE_CHECKING:
    import gradio as gr

STOP_SECONDS = 2
MAX_UPLOAD = "200mb"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What `gr.mount_gradio_app` needs for the pages of one language."""

    blocks: gr.Blocks
    theme: gr.Theme | None = None
    css: str = ""
    head: str = ""
    js: str = ""
    i18n: Any = None


def create_app(
    api: Api, views: Views, pages: Mapping[str, Page], settings: Settings, *, interval: float = 1.0
) -> FastAPI:
    """`pages` by the path they are mounted at ("/", "/zh"). Raises InvalidInput for an unsafe or broken set-up.

    `interval` is the number of seconds between two looks of the live view.
    """
    require_login_off_loopback(settings)
    prefix = urlsplit(settings.public_url).path.rstrip("/")
    sessions = Sessions(settings.auth_file, settings.data_dir / "auth") if settings.auth_file else None
    hub = Hub(views, interval)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=_lifespan(hub))
    # Seen by Gradio, which then leaves its own rule out (it lets any origin in on a host other than localhost).
    app.add_middleware(CORSMiddleware, allow_origins=[])
    app.add_middleware(Prefixed, prefix=prefix)
    app.add_middleware(PageHead, root=prefix)
    token = load_metrics_token(settings.metrics_token_file) if settings.metrics_token_file else ""
    app.add_middleware(Guard, hosts=known_hosts(settings), sessions=sessions, prefix=prefix, metrics_token=token)
    gpus = open_gpus(api.paths)
    speed = RunSpeed(views, Forecaster(api.settings, api.paths, api.environments), gpus.read_devices)
    add_error_answers(app)
    if sessions:
        app.include_router(login_router(sessions, prefix, settings.public_url.startswith("https:")))
    app.include_router(language_router(prefix))
    app.include_router(asset_router(Assets(settings.data_dir / "cache" / "assets")))
    for router in (
        read_router(views),
        gpu_router(gpus, api),
        speed_router(Searches(api, gpus)),
        run_speed_router(speed),
        sweep_router(Sweeps(api)),
        bench_router(Benches(api, gpus)),
        download_router(views, settings.downloads),
        compare_router(views, Comparisons(views, utilization=speed.utilization)),
        action_router(api),
        live_router(hub),
    ):
        app.include_router(router)
    # Longest path first: "/" takes everything that is left.
    for path in sorted(pages, key=len, reverse=True):
        _mount(app, path, pages[path], settings)
    return app


def asset_router(assets: Assets) -> APIRouter:
    """Our scripts and styles, and plotly.min.js: compressed, and kept by the browser for ever."""
    router = APIRouter()

    @router.api_route("/st/{content_hash}/{name:path}", methods=["GET", "HEAD"])
    def asset(request: Request, content_hash: str, name: str) -> Response:
        found = assets.find(content_hash, name, request.headers.get("accept-encoding", ""))
        if found is None:
            return refuse(404, "not_found", "", f"There is no file {name} of this version: load the page again.")
        headers = {"Cache-Control": FOREVER, "Vary": "Accept-Encoding"}
        if found.encoding:
            headers["Content-Encoding"] = found.encoding
        return Response(found.data, headers=headers, media_type=found.media_type)

    return router


def _mount(app: FastAPI, path: str, page: Page, settings: Settings) -> None:
    os.environ["GRADIO_TEMP_DIR"] = str(settings.data_dir / "uploads")  # on the data disk, never below /tmp
    import gradio as gr

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "SSR mode is not supported")  # said even though it is off
        gr.mount_gradio_app(
            app,
            page.blocks,
            path=path,
            auth_dependency=user_of,
            allowed_paths=[],
            run_history=False,
            footer_links=[],
            enable_monitoring=False,
            show_error=False,
            ssr_mode=False,
            max_file_size=MAX_UPLOAD,
            theme=page.theme,
            css=page.css,
            head=page.head or None,
            js=page.js or None,
            i18n=page.i18n,
            app_kwargs={"docs_url": None, "redoc_url": None, "openapi_url": None},
        )
    page.blocks.has_launched = True  # Gradio checks file paths only when this is set, and only launch() sets it


def _lifespan(hub: Hub) -> Callable[[FastAPI], Any]:
    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await hub.close()

    return run


# -- the server -------------------------------------------------------------------------------------------------------


def claim_address(settings: Settings) -> socket.socket:
    """Listen before anything else is started. Raises EnvironmentFault when somebody else has the port."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sends small answers at once (TCP_NODELAY) only on sockets that name their protocol: without it each waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise EnvironmentFault(
            f"Cannot listen on {settings.host}:{settings.port}: {error.strerror}. Stop what uses this port, or choose another"
            " one with --port or TUNEDECK_PORT (0 takes a free one)."
        ) from error
    return listener


def address_of(listener: socket.socket, settings: Settings) -> str:
    """What to open in a browser."""
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    return settings.public_url or f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"


class _Server(uvicorn.Server):
    """Says where it is once it answers."""

    def __init__(self, config: uvicorn.Config, address: str, say: Callable[[str], None]) -> None:
        super().__init__(config)
        self._address, self._say = address, say

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._say(f"Tunedeck is at {self._address}")


def serve(
    app: FastAPI, settings: Settings, *, listener: socket.socket | None = None, say: Callable[[str], None] = print
) -> None:
    """Until SIGTERM or SIGINT; ends within STOP_SECONDS even while browsers are connected."""
    listener = listener or claim_address(settings)
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    config = uvicorn.Config(
        app,
        workers=1,
        log_level="warning",
        access_log=False,
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        ws_max_size=64 << 10,
        ws_ping_interval=20.0,
        ws_ping_timeout=20.0,
        timeout_graceful_shutdown=STOP_SECONDS,
        timeout_keep_alive=30,
        server_header=False,
        proxy_headers=True,
    )
    try:
        _Server(config, address_of(listener, settings), say).run(sockets=[listener])
    except KeyboardInterrupt:
        pass  # Ctrl-C: uvicorn has closed everything and passes the signal on


def _is_news(record: logging.LogRecord) -> bool:
    """Streams that are cut when the server stops are no errors."""
    cancelled = record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not cancelled and "Cancel" not in record.getMessage()
