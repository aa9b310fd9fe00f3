"""A Problem: one thing that is wrong (or worth knowing) about a configuration, a data set, a log or a host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as default_of
from enum import StrEnum

ArgValue = str | int | float | bool | None | list["ArgValue"] | dict[str, "ArgValue"]
"""A value as the trainer reads it from YAML (OmegaConf rules: `2e-5` is a float, `no` is false)."""


class Severity(StrEnum):
    """ERROR stops a launch; WARNING and NOTE do not."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A change that one click applies to a JobSpec's document: keys to set, then keys to remove.

    Keys are dotted paths in the document, e.g. `flash_attn` or `tunedeck.env.PYTORCH_ROCM_ARCH`.
    """

    set: Mapping[str, ArgValue] = default_of(default_factory=dict)
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """`code` names the rule (words of docs/problems.md); texts are English, translated by code and `params`.

    `field` is the argument's own name ("" when no single one); `found` and `expected` are short values, not sentences;
    `reason` says why it matters, `remedy` what to do; `evidence` is the exact piece of input that proves it.
    """

    code: str
    severity: Severity
    field: str = ""
    found: str = ""
    expected: str = ""
    reason: str = ""
    remedy: str = ""
    evidence: str = ""
    line: int | None = None
    fix: Fix | None = None
    params: Mapping[str, str] = default_of(default_factory=dict)
