"""The recorded cases below tests/data/logs: loading them and comparing answers, shared by the tests that walk them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

CASES = Path(__file__).parents[1] / "data" / "logs"
CASE_COUNT = 118


def case_names() -> list[str]:
    """Folders in order."""
    return sorted(path.parent.name for path in CASES.glob("*/expected.json"))


def load_case(name: str) -> tuple[dict[str, bytes], Mapping[str, object]]:
    """Input files and the expected answer."""
    folder = CASES / name
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != "expected.json"}
    expect = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["expect"]
    return files, expect


def differences(expect: Mapping[str, object], facts: Mapping[str, object]) -> Iterator[str]:
    """What is not as expected, in words."""
    for field, want in expect.items():
        if not _agrees(field, want, facts):
            yield f"{field}: expected {want!r}, found {facts.get(field)!r}"


def _agrees(field: str, want: object, facts: Mapping[str, object]) -> bool:
    got = facts.get(field)
    if field in ("warnings", "notes"):
        return set(_list(want)) <= set(_list(got)) | set(_list(facts.get("notes")) if field == "notes" else ())
    if field == "not_reported":
        said = {*_list(facts.get("errors")), *_list(facts.get("warnings")), facts.get("root_cause")}
        return not said & set(_list(want))
    if field in ("evidence", "misleading"):
        shown = " ".join(str(text) for text in _list(facts.get("evidence")))
        return all((str(text) in shown) == (field == "evidence") for text in _list(want))
    if field == "suspects":
        return _list(got)[:1] == _list(want)[:1]
    return _same(want, got)


def _same(want: object, got: object) -> bool:
    if isinstance(want, dict):
        return isinstance(got, dict) and all(_same(value, got.get(key)) for key, value in want.items())
    if isinstance(want, list):
        return sorted(map(str, want)) == sorted(map(str, _list(got)))
    if isinstance(want, float) and isinstance(got, (int, float)):
        return math.isclose(want, got, rel_tol=1e-6)
    return want == got


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else []
