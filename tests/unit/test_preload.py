"""The scripts that a page needs are named in its HTML, so that they come while Gradio starts."""

from __future__ import annotations

from pathlib import Path

from ui.preload import early_scripts, scripts_of


def test_a_script_brings_everything_it_imports_once(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text('import { b } from "./b.js";\nimport * as c from "./c.js";\nimport("./later.js");\n')
    (tmp_path / "b.js").write_text('import {\n  c,\n} from "./c.js";\n')
    (tmp_path / "c.js").write_text('import { a } from "./a.js"; // around in a circle\n')
    assert scripts_of("a.js", tmp_path) == ("a.js", "b.js", "c.js")


def test_a_run_page_names_its_own_scripts_and_the_form_page_does_not() -> None:
    run = early_scripts("/deck", "/zh/run")
    assert run.count("/chart_card.js") == 1
    assert 'href="/deck/st/' in run and run.endswith('/app.js"></script>')
    assert "chart_card.js" not in early_scripts("", "/new")
    assert "frame.js" in early_scripts("", "/new")
