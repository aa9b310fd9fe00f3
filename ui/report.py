"""Runs in, one HTML file out that opens anywhere: figures, settings, curves and the program that draws them, all inline."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Mapping, Sequence

from backend.domain.job import JobState
from backend.services.comparison import ComparedRun, Comparisons
from backend.services.views import ENERGY, Series, Views
from ui.assets import STATIC
from ui.bundle import bundle
from ui.encoding import encode
from ui.routes import VERSION, translate_diagnosis
from ui.text import Language, catalogue, text

POINTS = 1500
"""Of each series: its lowest and highest values stay."""
_ENDED_BADLY = (JobState.FAILED, JobState.LOST)
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def build_report(comparisons: Comparisons, job_ids: Sequence[str], lang: Language, *, now: float | None = None) -> str:
    """Raises InvalidInput and NotFound as a comparison does. Nothing in it asks another host, nothing holds a secret."""
    found = comparisons.compare(job_ids)
    names = [str(run.job["name"]) for run in found.runs]
    title = names[0] if len(names) == 1 else text(lang, "report.title", n=len(names))
    record = {
        "lang": lang,
        "text": dict(catalogue(lang)),
        "title": title,
        "version": VERSION,
        "made_at": time.time() if now is None else now,
        "comparison": found,
        "details": {str(run.job["id"]): _details(comparisons, run, lang) for run in found.runs},
    }
    return _page(lang, title, _inline(encode(record).decode()))


def _details(comparisons: Comparisons, run: ComparedRun, lang: Language) -> Mapping[str, object]:
    views, job_id = comparisons.views, str(run.job["id"])
    detail = views.run(job_id)
    return {
        "series": _series(views, run).series,
        "spec": comparisons.public_spec(job_id),
        "versions": detail.segments[-1].versions if detail.segments else {},
        "checkpoints": [
            {"name": saved.name, "step": saved.step, "complete": saved.complete} for saved in detail.checkpoints
        ],
        "events": detail.events,
        "diagnosis": translate_diagnosis(views.diagnosis(job_id), lang) if run.job["state"] in _ENDED_BADLY else None,
    }


def _series(views: Views, run: ComparedRun) -> Series:
    keys = [key for key in run.keys if not key.startswith("rank_seconds.")]
    return views.series(str(run.job["id"]), [*keys, ENERGY], points=POINTS)


def _page(lang: Language, title: str, record: str) -> str:
    """The record is data in a script that is no program; `textContent` is the only way from there to the page."""
    style = (STATIC / "report.css").read_text("utf-8")
    return "\n".join(
        (
            "<!doctype html>",
            f'<html lang="{"zh-CN" if lang == "zh" else "en"}">',
            '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            f"<title>{html.escape(title)} · Tunedeck</title>",
            f"<style>{style}</style></head>",
            f"<body><noscript>{html.escape(text(lang, 'report.no_script'))}</noscript>",
            f'<script type="application/json" id="record">{record}</script>',
            f"<script>(() => {{\n{_inline_script(bundle('report'))}\n}})();</script>",
            "</body></html>",
        )
    )


def _inline(record: str) -> str:
    """JSON that cannot end its element or begin a comment, whatever names the runs have."""
    return record.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _inline_script(script: str) -> str:
    if re.search(r"</script|<!--", script, re.IGNORECASE):
        raise ValueError("the report's own program holds the end of a script element")
    return script


def report_name(titles: Sequence[str]) -> str:
    """File name of a download."""
    plain = re.sub(r"[^\w.-]+", "-", titles[0] if len(titles) == 1 else f"compare-{len(titles)}-runs").strip("-.")
    return f"{plain[:80] or 'report'}.html"
