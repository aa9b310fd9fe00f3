"""What our style sheets must not use: Gradio splits each selector at every comma, and such a rule is lost in the browser."""

from __future__ import annotations

import re

import pytest

from ui.layout import STATIC, STYLES

_INNER = re.compile(r":(?:is|where|not|has)\(((?:[^()]|\([^()]*\))*)\)")


def lost_selectors(css: str) -> list[str]:
    text = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    selectors = re.findall(r"([^{}]+)\{", text)
    return [one.strip() for one in selectors if any("," in inner for inner in _INNER.findall(one))]


@pytest.mark.parametrize("name", STYLES)
def test_no_comma_inside_a_selector_function(name: str) -> None:
    assert lost_selectors((STATIC / name).read_text("utf-8")) == []


def test_such_a_comma_is_found() -> None:
    assert lost_selectors("/* :is(a, b) */ .x, .y {} .z :is(p, .q:not(.r)) { color: red }") == [".z :is(p, .q:not(.r))"]
