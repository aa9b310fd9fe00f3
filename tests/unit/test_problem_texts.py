"""Every code has an English and a Chinese reason and remedy with the same parameters, and stands in docs/problems.md."""

from __future__ import annotations

import re
import string
from pathlib import Path

from backend.planning.linting.texts import TEXTS
from ui.text.problems_zh import TEXT, problem_text

DOCS = Path(__file__).parents[2] / "docs" / "problems.md"
COMMON = {"field", "found", "expected"}


def names_in(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


def test_both_languages_have_the_same_codes() -> None:
    assert set(TEXT) == set(TEXTS)


def test_chinese_texts_use_only_parameters_that_exist() -> None:
    for code, (reason, remedy) in TEXT.items():
        english = names_in(TEXTS[code].reason) | names_in(TEXTS[code].remedy)
        chinese = names_in(reason) | names_in(remedy)
        assert chinese <= english | COMMON, code
        assert re.search(r"[\u4e00-\u9fff]", reason), code
        assert re.search(r"[\u4e00-\u9fff]", remedy), code


def test_every_code_is_documented_once() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", DOCS.read_text("utf-8"), re.M)
    assert len(listed) == len(set(listed))
    assert set(TEXTS) <= set(listed)


def test_text_of_a_problem_is_filled_in() -> None:
    texts = problem_text("misspelt_key", "learning_rat", "learning_rat", "learning_rate", {})
    assert texts is not None and "`learning_rate`" in texts[1]
    assert problem_text("no_such_code", "", "", "", {}) is None
