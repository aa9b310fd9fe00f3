"""The page of sweeps: an empty place that ui/static/sweep.js fills from the API."""

from __future__ import annotations

from ui.pages.place import live_place


def build(module: str) -> None:
    live_place(module, "td-sweep")
