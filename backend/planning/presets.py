"""A preset file's text -> Preset record; Preset + folder of the demo inputs -> a document ready to launch."""

from __future__ import annotations

import re

from backend.domain.form import Preset
from backend.domain.problem import ArgValue
from backend.errors import InvalidInput
from backend.planning.document import Path, edit_document, load_document

LANGUAGES = ("en", "zh")
DEMO = "${demo}"
_HEADER = re.compile(r"#\s*(title|purpose|memory|tested-on|hardware|method)(?:-(zh))?:\s*(.+)")
_TRANSLATED = ("title", "purpose", "memory", "tested-on")


def parse_preset(name: str, text: str) -> Preset:
    """Read the header comments (docs/presets.md); raises InvalidInput naming the missing line."""
    found: dict[tuple[str, str], str] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        if match := _HEADER.fullmatch(line.rstrip()):
            found[match[1], match[2] or "en"] = match[3]
    for key in _TRANSLATED:
        for language in LANGUAGES:
            if (key, language) not in found:
                raise _missing(name, key if language == "en" else f"{key}-{language}")
    return Preset(
        name=name,
        title=_both(found, "title"),
        purpose=_both(found, "purpose"),
        memory=_both(found, "memory"),
        tested_on=_both(found, "tested-on"),
        hardware=_hardware(name, found)[0],
        gpus=_hardware(name, found)[1],
        method=found.get(("method", "en"), ""),
        text=text,
    )


def preset_document(preset: Preset, *, demo: str) -> str:
    """The preset's YAML without its header, `${demo}` replaced by the folder of the demo inputs (quoted where needed)."""
    lines = preset.text.splitlines()
    start = next((number for number, line in enumerate(lines) if not line.startswith("#")), 0)
    body = "\n".join(lines[start:]).strip("\n") + "\n"
    mark = "demo-inputs"
    marked = body.replace(DEMO, mark)
    filled: dict[Path, ArgValue] = {
        (key,): value.replace(mark, demo)
        for key, value in load_document(marked).items()
        if isinstance(value, str) and value.startswith(mark)
    }
    return edit_document(marked, filled)


def _both(found: dict[tuple[str, str], str], key: str) -> dict[str, str]:
    return {language: found[key, language] for language in LANGUAGES}


def _hardware(name: str, found: dict[tuple[str, str], str]) -> tuple[str, int]:
    text = found.get(("hardware", "en"), "")
    match = re.fullmatch(r"([a-z0-9]+) x (\d+)", text)
    if match is None:
        raise _missing(name, "hardware", text)
    return match[1], 0 if match[1] == "cpu" else int(match[2])


def _missing(name: str, key: str, found: str = "") -> InvalidInput:
    return InvalidInput(
        f"presets/{name}.yaml", found=f"{key}: {found}" if found else f"no `# {key}:` line", expected=f"`# {key}: ...`"
    )
