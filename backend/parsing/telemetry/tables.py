"""Column text, CSV and indented text in, records (column or key -> raw value) out."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from backend.parsing.telemetry.missing import Json

_CELL = re.compile(
    r"\[[^\]]*\]"  # a list per partition
    r"|N/A(?: (?:Mb/s|MHz|MB|GB|W|%|°?C))?"
    r"|-?\d+(?:\.\d+)?\s*/\s*\d+(?:\.\d+)? ?(?:TB|GB|MB|W)?"  # used/total, power/cap
    r"|-?\d+(?:\.\d+)?(?: ?(?:%|°C|°|MHz|Mb/s|TB|GB|MB|KB|B|W|ns|us|ms|C)(?![\w/]))?"
    r"|\S+"
)


def split_cells(line: str) -> list[tuple[int, int, str]]:
    """Cells of a table row with their spans; a unit belongs to the number before it, `0.3/192.0 GB` is one cell."""
    cells = []
    for found in _CELL.finditer(line):
        text = found.group(0).rstrip()
        cells.append((found.start(), found.start() + len(text), text))
    return cells


def parse_columns(header: str, rows: Sequence[str]) -> list[dict[str, Json]]:
    """Rows of a fixed-width table by column name (lower case).

    Cells are matched by their number when it fits, else by where they end: columns are right-aligned.
    """
    names = [(found.start(), found.end(), found.group(0).lower()) for found in re.finditer(r"\S+", header)]
    return [_assign(names, split_cells(row)) for row in rows]


def _assign(names: list[tuple[int, int, str]], cells: list[tuple[int, int, str]]) -> dict[str, Json]:
    if len(names) == len(cells):
        return {name: text for (_, _, name), (_, _, text) in zip(names, cells, strict=True)}
    record: dict[str, Json] = {}
    for start, end, text in cells:
        _, _, name = min(names, key=lambda column: _distance(column, start, end))
        record.setdefault(name, text)
    return record


def _distance(column: tuple[int, int, str], start: int, end: int) -> int:
    return abs(column[1] - end) if column[0] < end and start < column[1] else 1000 + abs(column[1] - end)


def parse_csv_tables(text: str) -> list[list[dict[str, Json]]]:
    """Tables of a CSV output; `monitor -q` prints a second one after an empty line. Lines end with CR LF."""
    tables = []
    for part in re.split(r"\n[ \t]*\n", text.replace("\r\n", "\n").replace("\r", "\n")):
        rows = [row for row in csv.reader(io.StringIO(part.strip("\n"))) if any(cell.strip() for cell in row)]
        if len(rows) > 1:
            names = [name.strip().lower() for name in rows[0]]
            tables.append([dict(zip(names, (cell.strip() for cell in row), strict=False)) for row in rows[1:]])
    return tables  # type: ignore[return-value]


def parse_indented(text: str) -> list[dict[str, Json]]:
    """`GPU: 0` blocks with indented `KEY: value` lines to the nested records of the JSON form (keys in lower case).

    A key that occurs twice in a section (two `PROCESS_INFO`) becomes a list; a sentence without a key is its section's value.
    """
    records: list[dict[str, Json]] = []
    stack: list[tuple[int, dict[str, Json], str]] = []
    for line in text.splitlines():
        if found := re.match(r"(GPU|CPU|CORE|NIC|AI_NIC|BRCM_NIC): *(\d+)\s*$", line):
            records.append({found.group(1).lower(): int(found.group(2))})
            stack = [(-1, records[-1], "")]
        elif not stack or not line.strip():
            continue
        elif not line[0].isspace() and ":" not in line:
            stack = []  # something else is printed after the blocks
        else:
            _add_line(stack, line)
    return records


def _add_line(stack: list[tuple[int, dict[str, Json], str]], line: str) -> None:
    indent = len(line) - len(line.lstrip())
    while len(stack) > 1 and stack[-1][0] >= indent:
        stack.pop()
    key, colon, value = line.strip().partition(":")
    if not colon:
        if len(stack) > 1:
            _, parent, name = stack[-1]
            _replace_empty(parent, name, line.strip())
        return
    target = _open_section(stack)
    name = key.strip().lower()
    if len(stack) < 12:
        stack.append((indent, target, name))
    _put(target, name, value.strip() or {})


def _open_section(stack: list[tuple[int, dict[str, Json], str]]) -> dict[str, Json]:
    _, parent, name = stack[-1]
    if not name:
        return parent
    current = parent.get(name)
    if isinstance(current, list) and current and isinstance(current[-1], dict):
        return current[-1]
    if isinstance(current, dict):
        return current
    section: dict[str, Json] = {}
    parent[name] = section
    return section


def _put(target: dict[str, Json], name: str, value: Json) -> None:
    if name not in target:
        target[name] = value
        return
    before = target[name]
    target[name] = [*before, value] if isinstance(before, list) else [before, value]


def _replace_empty(parent: dict[str, Json], name: str, sentence: str) -> None:
    current = parent.get(name)
    if isinstance(current, list) and current and current[-1] == {}:
        current[-1] = sentence
    elif current == {}:
        parent[name] = sentence
