"""What an import made of someone's files, in the words of the page; and the browser's payload as texts by name."""

from __future__ import annotations

from collections.abc import Mapping

from backend.services.importing import Imported

Texts = Mapping[str, str]
MAX_FILES = 20
MAX_CHARACTERS = 1 << 20


def read_payload(files: object) -> dict[str, str]:
    """`{name: text}` as the browser sent it; anything else, and what is too large, is left out."""
    if not isinstance(files, Mapping):
        return {}
    kept = {str(name): text for name, text in files.items() if isinstance(text, str) and len(text) <= MAX_CHARACTERS}
    return dict(list(kept.items())[:MAX_FILES])


def import_report(imported: Imported, texts: Texts) -> str:
    """One sentence for each thing that was changed or not understood."""
    lines = [
        texts[f"import.{remark.key}"].format(**remark.values)
        for remark in (*imported.changed, *imported.not_understood)
    ]
    return " ".join(dict.fromkeys(lines))


def import_refusal(imported: Imported, texts: Texts) -> str:
    """Why nothing can be run from the input."""
    kind = texts.get(f"new.kind.{imported.kind}", texts["new.kind.unknown"])
    return texts["new.import.nothing"].format(kind=kind)
