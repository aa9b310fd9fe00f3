"""A page's script in, every script that it needs out: named in the HTML, so that they arrive while Gradio is still starting."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from ui.assets import STATIC, asset_url

_IMPORT = re.compile(r'^import\s[^;]*?from\s+"\./([\w.]+)"', re.MULTILINE)
_PAGES = ("runs", "run", "compare", "tune", "sweep", "doctor")
_ENTRY_OF_PAGE = {"": "home.js", "gpus": "gpu_page.js", **{name: f"{name}.js" for name in _PAGES}}


def scripts_of(entry: str, folder: Path = STATIC) -> tuple[str, ...]:
    """`entry` and what it imports, directly or not, each once, importers first."""
    found: list[str] = []
    waiting = [entry]
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found.append(name)
            waiting += _IMPORT.findall((folder / name).read_text(encoding="utf-8"))
    return tuple(found)


@lru_cache(maxsize=64)
def early_scripts(root: str, path: str) -> str:
    """Tags for the head of the page at `path` ("/zh/run"): our own code starts at once and fetches its data beside Gradio."""
    page = path.removeprefix("/zh").strip("/")
    names = dict.fromkeys(scripts_of("app.js"))
    if page in _ENTRY_OF_PAGE:
        names |= dict.fromkeys(scripts_of(_ENTRY_OF_PAGE[page]))
    tags = [f'<link rel="modulepreload" href="{root}{asset_url(name)}">' for name in names]
    return "".join(tags) + f'<script type="module" src="{root}{asset_url("app.js")}"></script>'
