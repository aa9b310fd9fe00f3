"""Every text of the pages exists in both languages, is used, and takes the same parameters."""

from __future__ import annotations

import re
from pathlib import Path

from backend.domain.job import JobState, StopMode, TerminationReason
from backend.parsing.telemetry.reasons import Gap
from ui.text import en, new_run_en, text, zh

UI = Path(__file__).parents[2] / "ui"
SOURCES = [*sorted(UI.glob("static/*.js")), *sorted(UI.glob("*.py")), *sorted(UI.glob("pages/*.py"))]
# Keys that code puts together from a value: the prefix, and where the values come from.
BUILT = (
    "bench.column",
    "bench.part",
    "job.part",
    "bench.profile",
    "bench.why",
    "share",
    "state",
    "reason",
    "phase",
    "method",
    "stage",
    "stop",
    "live",
    "headline",
    "runs.column",
    "checkpoint.column",
    "tab",
)
BUILT += ("gpus.span", "gpus.state", "reading", "identity", "doctor", "device")
BUILT += ("cost.missing", "cost.part", "cost.column", "sweep.list", "sweep.column", "profile.part")
BUILT += ("tune.list", "tune.state", "tune.event", "tune.column", "tune.outcome")
BUILT += ("chart", "chart.none", "series", "group", "axis", "marker", "log.level", "resume", "ago", "gap")
BUILT += ("compare.no_axis", "figure", "missing", "notice")
PHASES = ("importing", "parsing", "tokenizing", "loading", "training", "evaluating", "saving", "finishing")


def source() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)


def parameters(words: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", words))


def test_both_languages_have_the_same_keys() -> None:
    assert set(en.TEXT) == set(zh.TEXT)
    assert len(en.TEXT) > 300


def test_both_languages_take_the_same_parameters() -> None:
    different = {key for key in en.TEXT if parameters(en.TEXT[key]) != parameters(zh.TEXT[key])}
    assert different == set()


def test_no_text_is_empty_or_left_in_the_other_language() -> None:
    same_on_purpose = {
        "{name}",
        "{n} × {name}",
        "GPUs",
        "GPU",
        "LoRA",
        "OFT",
        "SFT",
        "DPO",
        "KTO",
        "PPO",
        "Tunedeck",
        "token",
        " · ",
        "GPU {n}",
        "{used} / {total}",
        "– {names}：{why}",
    }
    for key, words in zh.TEXT.items():
        assert words.strip() or key == "list.separator"
        chinese = re.search(r"[\u4e00-\u9fff]", words)
        assert chinese or words in same_on_purpose or key.startswith(("nav.language", "list.")), key


def test_every_key_that_code_names_exists() -> None:
    named = set(re.findall(r"\b(?:t|has)\(\s*\"([\w.]+)\"", source()))
    counted = set(re.findall(r"\btn\(\s*\"([\w.]+)\"", source()))
    python = set(re.findall(r"\btext\(\s*lang,\s*\"([\w.]+)\"", source()))
    assert len(named) > 100
    missing = {key for key in named | python if key not in en.TEXT and key not in new_run_en.TEXT}
    missing |= {key for key in counted if f"{key}.one" not in en.TEXT or f"{key}.other" not in en.TEXT}
    assert missing == set()


def test_every_value_that_builds_a_key_has_its_text() -> None:
    keys = [f"state.{state}" for state in JobState]
    keys += [f"reason.{reason}" for reason in TerminationReason]
    keys += [f"gap.{gap}" for gap in Gap]
    keys += [f"phase.{phase}" for phase in PHASES]
    keys += [f"stop.{mode}{part}" for mode in StopMode for part in ("", ".help")]
    keys += [f"missing.{reason}" for reason in missing_reasons()]
    assert [key for key in keys if key not in en.TEXT] == []


def missing_reasons() -> set[str]:
    """Every reason that services/comparison.py can give."""
    code = (UI.parent / "backend" / "services" / "comparison.py").read_text(encoding="utf-8")
    found = set(re.findall(r"\"((?:not|no|never|tokens_not|model)_[a-z_]+)\"", code))
    assert len(found) > 7
    return found


def test_every_text_is_used() -> None:
    code = source()
    built = [prefix for prefix in BUILT if f"`{prefix}.${{" in code or f'word("{prefix}", ' in code]
    quoted = set(re.findall(r"[\"'`]([a-z][\w]*(?:\.[\w]+)+|[a-z]+)[\"'`]", code))

    def used(key: str) -> bool:
        if key in quoted or re.sub(r"\.(one|other)$", "", key) in quoted:
            return True
        return any(key.startswith(f"{prefix}.") for prefix in built)

    assert [key for key in en.TEXT if not used(key)] == []


def test_parameters_are_filled_in() -> None:
    assert text("en", "run.epoch", epoch=2) == "epoch 2"
    assert text("zh", "run.epoch", epoch=2) == "第 2 轮"
