"""Message keys to the words of a language. `text("zh", "run.epoch", epoch=2)`; the browser gets the whole catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ui.text import en, zh
from ui.text.alarms import ALARMS_EN, ALARMS_ZH

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
_CATALOGUES: Mapping[Language, Mapping[str, str]] = {"en": {**en.TEXT, **ALARMS_EN}, "zh": {**zh.TEXT, **ALARMS_ZH}}


def text(lang: Language, key: str, **params: object) -> str:
    """The words of `key` with `{name}` replaced by `params`. An unknown key is a mistake in our code: KeyError."""
    return _CATALOGUES[lang][key].format(**params)


def catalogue(lang: Language) -> Mapping[str, str]:
    """Every message of the pages that the browser draws."""
    return _CATALOGUES[lang]
