"""Settings in, a running dashboard out: services, both languages' pages and the server put together."""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import replace

from backend.errors import TunedeckError
from backend.services.api import Api
from backend.services.form import FormService
from backend.services.views import Views
from backend.settings import Settings

# Before Gradio is imported: it would look for news of itself and send statistics.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

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
    app = create_app(api, Views(api), build_languages(api), settings)
    ended = threading.Event()
    keeper = threading.Thread(target=keep_worker, args=(api, ended), daemon=True)
    keeper.start()
    try:
        serve(app, settings, listener=listener)
    finally:
        ended.set()


def build_languages(api: Api):  # type: ignore[no-untyped-def]
    """The pages by the path they are mounted at."""
    from ui.assets import asset_url
    from ui.layout import build_pages, page_css
    from ui.server import Page
    from ui.theme import build_theme

    form = FormService(api)
    return {
        path: Page(blocks=build_pages(lang, asset_url=asset_url, form=form), theme=build_theme(), css=page_css())
        for path, lang in (("/", "en"), ("/zh", "zh"))
    }


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
