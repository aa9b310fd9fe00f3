"""One script out of several modules, and what a report refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.errors import InvalidInput, NotFound
from backend.services.comparison import Comparisons
from backend.services.views import Views
from tests.job_folders import add_job, open_api
from ui.bundle import bundle
from ui.report import build_report, report_name


def test_modules_stand_before_those_that_import_them(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text('import { two as b } from "./b.js";\nimport * as c from "./c.js";\nb(c.three);\n')
    (tmp_path / "b.js").write_text('import { three } from "./c.js";\nexport function two() {\n  return three;\n}\n')
    (tmp_path / "c.js").write_text("export const three = 3;\n")
    text = bundle("a", tmp_path)
    assert [text.index(f"const m_{name}") for name in "cba"] == sorted(text.index(f"const m_{name}") for name in "cba")
    assert "const { two: b } = m_b;" in text and "const c = m_c;" in text
    assert "import" not in text and "export" not in text


def test_what_cannot_be_put_into_one_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text('import b from "./b.js";\n')
    with pytest.raises(ValueError, match="import b"):
        bundle("a", tmp_path)
    (tmp_path / "x.js").write_text('import { y } from "./y.js";\n')
    (tmp_path / "y.js").write_text('import { x } from "./x.js";\n')
    with pytest.raises(ValueError, match="imports itself"):
        bundle("x", tmp_path)


def test_a_report_of_nothing_is_refused_and_its_data_cannot_leave_their_element(tmp_path: Path) -> None:
    api = open_api(tmp_path)
    comparisons = Comparisons(Views(api))
    with pytest.raises(InvalidInput):
        build_report(comparisons, [], "en")
    with pytest.raises(NotFound):
        build_report(comparisons, ["x"], "en")
    add_job(api, "a", name="</script><script>alert(1)</script>")
    page = build_report(comparisons, ["a"], "en")
    assert page.count("</script>") == 2
    assert "<title>&lt;/script&gt;" in page


def test_file_names_are_plain() -> None:
    assert report_name(["../a b"]) == "a-b.html"
    assert report_name(["a", "b"]) == "compare-2-runs.html"
    assert report_name(["///"]) == "report.html"
