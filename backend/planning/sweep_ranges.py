"""What a person writes for a setting of a sweep in (`1e-5,1e-4`, `1e-5..1e-3:log`), a Range out."""

from __future__ import annotations

import re

from omegaconf import OmegaConf

from backend.domain.problem import ArgValue
from backend.errors import InvalidInput
from backend.planning.sweeping import Range

_SPAN = re.compile(r"([-+0-9.eE]+)\.\.([-+0-9.eE]+)(:log)?")


def parse_range(key: str, text: str) -> Range:
    """`1e-5,1e-4,3e-4`, `true,false` or `1e-5..1e-3:log`; a list value (`q_proj,v_proj`) needs `;` between the choices.

    Values are read as the trainer reads them. Raises InvalidInput naming the setting.
    """
    if span := _SPAN.fullmatch(text.strip()):
        return _span(key, *span.groups())
    parts = [part.strip() for part in text.split(";" if ";" in text else ",")]
    if not all(parts) or not key:
        raise InvalidInput(key or "grid", found=repr(text), expected="values separated by commas, or low..high")
    values = tuple(dict.fromkeys(_typed(part) for part in parts))
    return Range(key=key, values=values)


def _typed(text: str) -> ArgValue:
    read = OmegaConf.to_container(OmegaConf.create(f"v: {text}"))
    return read["v"] if isinstance(read, dict) else text


def _span(key: str, low_text: str, high_text: str, log: str | None) -> Range:
    try:
        low, high = float(low_text), float(high_text)
    except ValueError as error:
        raise InvalidInput(key, found=f"{low_text}..{high_text}", expected="two numbers") from error
    if not low < high or (log and low <= 0):
        raise InvalidInput(key, found=f"{low_text}..{high_text}", expected="low..high, both above 0 with :log")
    whole = re.fullmatch(r"[-+]?\d+", low_text) is not None and re.fullmatch(r"[-+]?\d+", high_text) is not None
    return Range(key=key, low=low, high=high, log=bool(log), whole=whole)
