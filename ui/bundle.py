"""A script of ui/static in, one text out that needs no other file: each module it imports becomes a function scope of its own.

Only what our pure modules use is understood: named and namespace imports at the start of a line, `export` before a function,
class or const. Anything else raises ValueError instead of a report that does not open.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from ui.assets import STATIC

_NAMED = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";$', re.MULTILINE)
_NAMESPACE = re.compile(r'^import \* as (\w+) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.MULTILINE)


@lru_cache(maxsize=4)
def bundle(entry: str, folder: Path = STATIC) -> str:
    """`entry` is a module's name without `.js`."""
    order: list[str] = []
    _visit(entry, folder, order, ())
    return "\n".join(_scope(name, folder) for name in order)


def _visit(name: str, folder: Path, order: list[str], above: tuple[str, ...]) -> None:
    """Depth first, so that a module stands behind all it imports."""
    if name in above:
        raise ValueError(f"{name}.js imports itself over {' and '.join(above)}")
    for _, other in (*_NAMED.findall(_read(name, folder)), *_NAMESPACE.findall(_read(name, folder))):
        if other not in order:
            _visit(other, folder, order, (*above, name))
    order.append(name)


def _scope(name: str, folder: Path) -> str:
    text = _read(name, folder)
    exported = _EXPORT.findall(text)
    text = _NAMED.sub(lambda found: f"const {{{found[1].replace(' as ', ': ')}}} = m_{found[2]};", text)
    text = _NAMESPACE.sub(r"const \1 = m_\2;", text)
    text = _EXPORT.sub("", text)
    left = re.search(r"^(import|export)\b.*", text, re.MULTILINE)
    if left:
        raise ValueError(f"{name}.js: {left[0]!r} cannot be put into one file")
    return f"const m_{name} = (() => {{\n{text}\nreturn {{ {', '.join(exported)} }};\n}})();"


def _read(name: str, folder: Path) -> str:
    return (folder / f"{name}.js").read_text("utf-8")
