"""A page that the browser draws: a gr.HTML with a static template; data reaches it only through our own JavaScript, as text."""

from __future__ import annotations

import json

import gradio as gr


def live_place(module: str, elem_id: str) -> gr.HTML:
    """The element that `app.js` (at the address `module`, below the root of the service) fills by the page's address."""
    return gr.HTML(
        # No <main>: Gradio's own stands around it, and a page has one.
        html_template='<div class="td-main"></div>',
        js_on_load=load_script(module, "startPage(element)"),
        elem_id=elem_id,
        apply_default_css=False,
    )


def load_script(module: str, call: str) -> str:
    """JavaScript for gr.HTML: fetch the module `app`, then do `app.<call>`. `element` is the component's own element."""
    return f'import((window.tunedeck?.root ?? "") + {json.dumps(module)}).then((app) => app.{call})'
