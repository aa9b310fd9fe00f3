"""YAML text is read as the trainer reads it, with positions, and never with a traceback."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from backend.errors import InvalidInput
from backend.planning.importing.yaml_text import read_scalar, read_yaml

SCALARS = """
1e-5 2e5 no on Yes off ~ null 0x1f 010 1_000 1:30 1:30.5 .5 1. nan .nan .inf 2024-01-01 abc 1e 0b11 09 08.5
+1 -.5 -1e3 y n
"""


@pytest.mark.parametrize("word", SCALARS.split())
def test_scalar_is_what_omegaconf_reads(word: str) -> None:
    expected = OmegaConf.to_container(OmegaConf.create(f"v: {word}"))["v"]
    assert repr(read_scalar(word)) == repr(expected)
    assert repr(read_yaml(f"v: {word}").values["v"]) == repr(expected)


def test_number_without_dot_is_a_float_and_is_remembered() -> None:
    document = read_yaml("a: 2e-5\nb: 2.0e-5\nc: '2e-5'\n")
    assert document.values == {"a": 2e-5, "b": 2e-5, "c": "2e-5"}
    assert [key for key in "abc" if document.without_dot(key)] == ["a"]


def test_error_names_line_and_column() -> None:
    with pytest.raises(InvalidInput) as raised:
        read_yaml("a: 1\nb: [1, 2\nc: 3\n")
    assert raised.value.line == 3
    assert raised.value.column


def test_duplicate_key_is_reported_and_the_last_value_kept() -> None:
    document = read_yaml("a: 1\na: 2\n")
    assert document.duplicates == ("a",)
    assert document.values == {"a": 2}


def test_list_and_plain_text_are_refused_with_a_reason() -> None:
    for text in ("- 1\n- 2\n", "just words", "{{ name }}: 1"):
        with pytest.raises(InvalidInput):
            read_yaml(text)


def test_deep_nesting_and_alias_bombs_are_refused() -> None:
    bomb = "a: &a [x, x]\n" + "".join(f"b{i}: &b{i} [*a, *a]\n" for i in range(300))
    for text in ("[" * 5000, "a: " + "{b: " * 200 + "1", bomb):
        with pytest.raises(InvalidInput):
            read_yaml(text)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
def test_any_text_gives_values_or_a_named_error(text: str) -> None:
    try:
        read_yaml(text)
    except InvalidInput as error:
        assert error.found
