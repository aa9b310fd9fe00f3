"""presets/ on disk -> Preset records; a preset's name -> the document to start from."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from backend.domain.form import Preset
from backend.errors import NotFound
from backend.planning.presets import parse_preset, preset_document
from backend.settings import REPOSITORY

FOLDER = REPOSITORY / "presets"
_METHODS = ("lora", "qlora", "full", "dpo")
_HARDWARE = ("cpu", "mi300x", "mi325x", "mi355x", "mi250x", "mi210")


@lru_cache(maxsize=2)
def list_presets(folder: Path = FOLDER) -> tuple[Preset, ...]:
    """All presets: demos first, then by card, model size and method. Names are paths below the folder without suffix."""
    found = [
        parse_preset(path.relative_to(folder).with_suffix("").as_posix(), path.read_text("utf-8"))
        for path in sorted(folder.rglob("*.yaml"))
    ]
    return tuple(sorted(found, key=_place))


def load_preset(name: str, *, demo: Path, folder: Path = FOLDER) -> str:
    """The document of a preset, demo paths filled in. Raises NotFound."""
    for preset in list_presets(folder):
        if preset.name == name:
            return preset_document(preset, demo=str(demo))
    raise NotFound(
        f"No preset has the name {name!r}. Known: {', '.join(known.name for known in list_presets(folder))}."
    )


def _place(preset: Preset) -> tuple[int, int, int, str]:
    """Where a preset stands in the list: card, model size, method."""
    hardware = _HARDWARE.index(preset.hardware) if preset.hardware in _HARDWARE else len(_HARDWARE)
    size = re.match(r"(\d+)b_", preset.name.rpartition("/")[2])
    method = _METHODS.index(preset.method) if preset.method in _METHODS else len(_METHODS)
    return hardware, int(size[1]) if size else 0, method, preset.name
