"""Settings in, a running dashboard out: services, both languages' pages and the server put together."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from backend.errors import TunedeckError
from backend.services.api import Api
from backend.services.form import FormService
from backend.services.gpus import open_gpus
from backend.services.views import Views
from backend.settings import Settings

if TYPE_CHECKING:
    from ui.server import Page

WORKER_CHECK_SECONDS = 5.0

log = logging.getLogger(__name__)


def serve_dashboard(settings: Settings, *, host: str | None = None, port: int | None = None) -> None:
    """Serve until SIGTERM. Raises InvalidInput for an unsafe address, EnvironmentFault when the port is taken."""
    from ui.access import require_login_off_loopback
    from ui.server import claim_address, create_app, serve

    settings = replace(settings, host=host or settings.host, port=settings.port if port is None else port)
    require_login_off_loopback(settings)
    listener = claim_address(settings)
    api = Api(settings)
    gpus = open_gpus(api.paths)
    api.read_devices = gpus.device_ids
    views = Views(api, gpu_readings=lambda: gpus.to_json(api.jobs.leases()))
    app = create_app(api, views, build_languages(api), settings)
    ended = threading.Event()
    keeper = threading.Thread(target=keep_worker, args=(api, ended), daemon=True)
    keeper.start()
    try:
        serve(app, settings, listener=listener, say=partial(print, flush=True))
    finally:
        ended.set()


def build_languages(api: Api) -> dict[str, Page]:
    """The pages by the path they are mounted at."""
    from ui.assets import asset_url
    from ui.layout import build_pages, page_css
    from ui.server import Page
    from ui.text import Language
    from ui.theme import build_theme

    def page(lang: Language) -> Page:
        return Page(
            blocks=build_pages(lang, asset_url=asset_url, form=FormService(api)), theme=build_theme(), css=page_css()
        )

    return {"/": page("en"), "/zh": page("zh")}


def keep_worker(api: Api, ended: threading.Event) -> None:
    """A worker that died is started again; the training environment is described before somebody has to wait for it."""
    described = False
    while not ended.wait(0.0 if not described else WORKER_CHECK_SECONDS):
        try:
            api.ensure_worker()
            if not described:
                api.environments.describe()
        except TunedeckError as error:
            log.warning("%s", error)
        described = True
