"""A progress bar (tqdm) or a callback's own progress line into steps and seconds."""

from __future__ import annotations

import re
from typing import NamedTuple

_BAR = re.compile(
    r"(?P<desc>[^|\r\n]*?)(?P<percent>\d{1,3})%\|[^|]*\|\s*(?P<done>[\d.,]+[kMG]?)/(?P<total>[\d.,]+[kMG]?)\s"
    r"\[(?P<elapsed>[\d:]+|\d+ days?, [\d:]+)<(?P<left>[\d:?]+|\d+ days?, [\d:?]+)"
    r"(?:,\s*(?P<rate>[\d.?]+)\s*(?P<unit>s/|)\s*(?P<what>[\w ]+?)(?P<per>/s|))?(?P<post>,\s[^\]]*)?\]"
)
_PLAIN_BAR = re.compile(
    rb" *\d{1,3}%\|[^|\r]*+\| (\d++)/(\d++) \[(?:(\d++):)?(\d++):(\d++)<[\d:?]++, +(?:(\d++(?:\.\d++)?)|\?)(s/it|it/s)\] *"
)
_POST = re.compile(r"([\w./-]+)=\s*(-?[\d.]+(?:e[+-]?\d+)?|nan|inf)", re.IGNORECASE)
_CLOCK = re.compile(r"(?:(\d+) days?, )?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?$")
_MAX_DESCRIPTION = 160
_SCALE = {"k": 1e3, "M": 1e6, "G": 1e9}


class Bar(NamedTuple):
    """One state of a bar. `seconds_per_item` is what tqdm shows (smoothed), None while it shows `?`.

    A NamedTuple, for a console has millions. `start` and `stop` are the positions in the text: other output is often glued
    to either side.
    """

    desc: str
    done: int
    total: int
    elapsed: float | None
    seconds_per_item: float | None
    values: dict[str, float]
    start: int
    stop: int


def find_bar(text: str, at: int = 0) -> Bar | None:
    """The first bar in the text, or None."""
    percent = text.find("%|", at)
    if percent < 0:
        return None
    match = _BAR.match(text, _description_start(text, max(at, percent - _MAX_DESCRIPTION), percent))
    if match is None:
        return None
    done, total = _count(match["done"]), _count(match["total"])
    if done is None or total is None:
        return None
    return Bar(
        desc=match["desc"].strip(), done=done, total=total, elapsed=parse_clock(match["elapsed"]),
        seconds_per_item=_seconds_per_item(match), values=_values(match["post"] or ""),
        start=match.start("desc") if match["desc"].strip() else match.start("percent"), stop=match.end(),
    )  # fmt: skip


def parse_plain_bar(data: bytes, start: int, stop: int) -> Bar | None:
    """What `find_bar` finds in `data[start:stop]`, for tqdm's usual form without a name; None for any other bar or text."""
    match = _PLAIN_BAR.fullmatch(data, start, stop)
    if match is None:
        return None
    done, total, hours, minutes, seconds, shown, unit = match.groups()
    elapsed = float((int(hours or 0) * 60 + int(minutes)) * 60 + int(seconds))
    rate = float(shown or 0)
    pace = None if not rate else rate if unit == b"s/it" else 1 / rate
    return Bar("", int(done), int(total), elapsed, pace, {}, 0, stop - start)


def parse_clock(text: str) -> float | None:
    """Seconds of `MM:SS`, `H:MM:SS` or `1 day, H:MM:SS`; None for `?` and anything else."""
    match = _CLOCK.match(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _description_start(text: str, at: int, percent: int) -> int:
    """A description is a few words in front of the bar; output of other programs glued before it ends in a bracket."""
    return max(at, text.rfind("}", at, percent) + 1, text.rfind("]", at, percent) + 1)


def _count(text: str) -> int | None:
    number = _float(text.rstrip("kMG").replace(",", ""))
    return None if number is None else round(number * _SCALE.get(text[-1], 1.0))


def _seconds_per_item(match: re.Match[str]) -> float | None:
    rate = _float(match["rate"] or "")
    if not rate:
        return None
    return rate if match["unit"] else 1 / rate


def _values(post: str) -> dict[str, float]:
    found = {key: _float(value) for key, value in _POST.findall(post)}
    return {key: value for key, value in found.items() if value is not None}


def _float(text: str) -> float | None:
    """Bars are torn by other ranks: what looks like a number need not be one."""
    try:
        return float(text)
    except ValueError:
        return None
