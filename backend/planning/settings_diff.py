"""Specifications of several jobs in, the settings in which they differ out: one value a job, None where a job does not set it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from backend.domain.problem import ArgValue
from backend.planning.document import load_document, render_value, same_value

IDENTITY = ("tunedeck.name", "tunedeck.tags", "tunedeck.notes", "tunedeck.parent", "tunedeck.priority")
"""What tells jobs apart without changing what they do."""
HIDDEN = "***"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One job's value of a setting. `default`: the job says nothing, so the trainer takes this (None: it decides itself)."""

    given: bool
    value: ArgValue = None
    default: ArgValue = None

    @property
    def effective(self) -> ArgValue:
        return self.value if self.given else self.default

    def describe(self) -> str:
        """`0.1`, `not set (default 8)` or `not set`."""
        if self.given:
            return render_value(self.value)
        return "not set" if self.default is None else f"not set (default {render_value(self.default)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A setting (dotted name, LLaMA-Factory's own words) and its value in each job, in the jobs' order."""

    key: str
    settings: tuple[Setting, ...]


def flatten_settings(text: str) -> dict[str, ArgValue]:
    """Every setting of a specification by its dotted name; lists stay whole. Raises InvalidInput for unreadable YAML."""
    found: dict[str, ArgValue] = {}
    _flatten(load_document(text), "", found)
    return {key: value for key, value in found.items() if key not in IDENTITY}


def compare_settings(
    jobs: Sequence[Mapping[str, ArgValue]],
    defaults: Mapping[str, ArgValue] | None = None,
    is_secret: Callable[[str], bool] = lambda name: False,
) -> tuple[Difference, ...]:
    """Settings whose effective values differ, in the order in which the jobs name them. Values of secrets are never told."""
    known = defaults or {}
    found = []
    for key in dict.fromkeys(key for job in jobs for key in job):
        settings = [
            Setting(given=key in job, value=job.get(key), default=None if key in job else known.get(key))
            for job in jobs
        ]
        if all(same_value(settings[0].effective, other.effective) for other in settings[1:]):
            continue
        if is_secret(key.rpartition(".")[2]):
            settings = [_hide(setting) for setting in settings]
        found.append(Difference(key=key, settings=tuple(settings)))
    return tuple(found)


def _hide(setting: Setting) -> Setting:
    return Setting(given=setting.given, value=HIDDEN if setting.given else None)


def _flatten(values: Mapping[str, ArgValue], prefix: str, found: dict[str, ArgValue]) -> None:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            _flatten(value, f"{prefix}{name}.", found)
        else:
            found[f"{prefix}{name}"] = value
