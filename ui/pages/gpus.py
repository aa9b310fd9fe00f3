"""The GPUs page: an empty place that ui/static/gpu_page.js fills from the API."""

from __future__ import annotations

from ui.pages.place import live_place


def build(module: str) -> None:
    live_place(module, "td-gpus")
