"""A language in, the pages of the dashboard out: one Gradio Blocks with a route per page, all in the same frame."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import gradio as gr

from backend.services.form import FormService
from ui.pages import new_run
from ui.pages.place import live_place, load_script
from ui.text import Language, catalogue, text

AssetUrl = Callable[[str], str]
"""Name of a file of ui/static (or `plotly.min.js`) to its address below the root of the service: `ui.assets.asset_url`."""

LIVE_PAGES = ("runs", "run", "sweep", "tune", "compare", "gpus", "doctor")
"""Pages that ui/static/app.js fills from the API, by their path; each is an empty place in the frame."""

STATIC = Path(__file__).with_name("static")
STYLES = ("app.css", "new_run.css", "speed.css", "compare.css", "gpus.css")


def prefix_of(lang: Language) -> str:
    """Where the pages of a language are mounted: English at the root, Chinese under /zh."""
    return "/zh" if lang == "zh" else ""


def page_css() -> str:
    """Style sheet of every page, for the `css` argument of the mount."""
    return "".join((STATIC / name).read_text(encoding="utf-8") for name in STYLES)


def build_pages(lang: Language, *, asset_url: AssetUrl, form: FormService | None = None) -> gr.Blocks:
    """Every page in `lang`. Mount at "/" or "/zh" with `build_theme()` and `page_css()`. Without `form` no New run page."""
    module = asset_url("app.js")
    configuration = _configuration(lang, asset_url)
    pages = gr.Blocks(title=text(lang, "app.name"), fill_width=True, analytics_enabled=False)
    with pages:
        _frame(module, configuration)
        live_place(module, "td-home")
    for name in LIVE_PAGES:
        with pages.route(text(lang, f"{name}.title"), f"/{name}", show_in_navbar=False):
            _frame(module, configuration)
            live_place(module, f"td-{name}")
    if form is not None:
        with pages.route(text(lang, "nav.new"), "/new", show_in_navbar=False):
            _frame(module, configuration)
            new_run.build(pages, lang, form, script=asset_url("new_run.js"), prefix=prefix_of(lang))
    return pages


def _frame(module: str, configuration: str) -> None:
    """Navigation, GPU strip, connection, language and theme: drawn by ui/static/frame.js instead of Gradio's navigation bar."""
    gr.HTML(
        html_template='<header class="td-top"></header>',
        js_on_load=load_script(module, f"startFrame(element, {configuration})"),
        elem_id="td-frame",
        apply_default_css=False,
    )


def _configuration(lang: Language, asset_url: AssetUrl) -> str:
    """What page code has to know, as JSON: our own texts and addresses, never data of runs or users."""
    return json.dumps(
        {
            "lang": lang,
            "prefix": prefix_of(lang),
            "text": dict(catalogue(lang)),
            "assets": {"plotly": asset_url("plotly.min.js")},
        },
        ensure_ascii=True,
    )
