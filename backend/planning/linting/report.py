"""Code, values and severity -> Problem with its English texts from the catalogue."""

from __future__ import annotations

import json

from backend.domain.problem import ArgValue, Fix, Problem, Severity
from backend.planning.linting.texts import TEXTS


def report(
    code: str,
    severity: Severity,
    *,
    field: str = "",
    found: ArgValue = "",
    expected: str = "",
    line: int | None = None,
    evidence: str = "",
    fix: Fix | None = None,
    **params: str | int | float,
) -> Problem:
    """A Problem whose reason and remedy are filled from TEXTS[code]; an unknown code is a KeyError (a bug)."""
    shown = shorten(found)
    words = {
        "field": field,
        "found": shown,
        "expected": expected,
        **{name: str(value) for name, value in params.items()},
    }
    text = TEXTS[code]
    return Problem(
        code=code,
        severity=severity,
        field=field,
        found=shown,
        expected=expected,
        reason=text.reason.format_map(words),
        remedy=text.remedy.format_map(words),
        evidence=evidence,
        line=line,
        fix=fix,
        params={name: str(value) for name, value in params.items()},
    )


def shorten(value: ArgValue, limit: int = 80) -> str:
    """A value as one short piece of text: text as it is, the rest as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
