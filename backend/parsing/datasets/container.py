"""Bytes of a data file -> Table: rows, how they are packed, and what is wrong with the packing."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from backend.domain.problem import ArgValue, Severity
from backend.parsing.datasets.formats import MESSAGE_COLUMNS
from backend.parsing.datasets.records import MAX_SHOWN, DataFinding, Row, finding_in

BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    container: str
    rows: tuple[Row, ...] = ()
    findings: tuple[DataFinding, ...] = ()
    facts: Mapping[str, ArgValue] = field(default_factory=dict)
    readable: bool = True


def read_table(data: bytes, suffix: str) -> Table:
    bom = data.startswith(BOM)
    try:
        text = data.removeprefix(BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        finding = DataFinding(
            code="not_utf8", severity=Severity.ERROR, found=f"byte {error.start}, line {line}", expected="UTF-8"
        )
        return Table(container="", findings=(finding,), readable=False)
    if suffix in ("csv", "tsv"):
        table = _read_csv(text, "\t" if suffix == "tsv" else ",")
    elif suffix == "txt":
        table = Table(container="", rows=tuple({"text": line} for line in text.splitlines()))
    else:
        table = _read_json(text, suffix)
    findings = list(table.findings)
    if bom:
        lenient = table.container == "json_lines" or suffix in ("csv", "tsv", "txt")
        severity = Severity.WARNING if lenient else Severity.ERROR
        findings.append(DataFinding(code="utf8_bom", severity=severity, found="EF BB BF", expected="UTF-8"))
    facts = {**table.facts, "line_ends": "crlf" if "\r\n" in text else "lf"}
    return replace(table, findings=tuple(findings), facts=facts)


def _read_csv(text: str, delimiter: str) -> Table:
    try:
        rows = [dict(row) for row in csv.DictReader(io.StringIO(text), delimiter=delimiter)]
    except csv.Error as error:
        return Table(container="", findings=(_broken(str(error)),), readable=False)
    clean = tuple(
        {str(k): v for k, v in row.items() if k is not None and isinstance(v, (str, type(None)))} for row in rows
    )
    return Table(container="", rows=clean)


def _broken(what: str, line: int | None = None) -> DataFinding:
    where = f", line {line}" if line else ""
    return DataFinding(code="not_valid_json", severity=Severity.ERROR, found=f"{what}{where}", expected="JSON")


def _read_json(text: str, suffix: str) -> Table:
    stripped = text.strip()
    if not stripped:
        finding = DataFinding(code="no_rows", severity=Severity.ERROR, found="0", expected=">= 1")
        return Table(container="", findings=(finding,), readable=False)
    lines_table = _json_lines(text, suffix)
    if lines_table is not None:
        return lines_table
    try:
        whole: ArgValue = json.loads(stripped)
    except RecursionError:
        return Table(container="", findings=(_broken("nested too deep"),), readable=False)
    except ValueError as error:
        return _not_one_document(text, stripped, error)
    return _whole_document(whole)


def _whole_document(whole: ArgValue) -> Table:
    if isinstance(whole, list):
        rows = tuple(item for item in whole if isinstance(item, dict))
        findings: list[DataFinding] = []
        strays = [number for number, item in enumerate(whole, 1) if not isinstance(item, dict)]
        if strays:
            findings.append(finding_in("row_not_an_object", Severity.ERROR, strays, expected="{...}"))
        if not whole:
            findings.append(DataFinding(code="no_rows", severity=Severity.ERROR, found="0", expected=">= 1"))
        return Table(container="json_array", rows=rows, findings=tuple(findings), readable=bool(rows))
    if isinstance(whole, dict):
        inner = [
            key for key, value in whole.items() if isinstance(value, list) and value and isinstance(value[0], dict)
        ]
        if len(inner) == 1 and len(whole) <= 4 and inner[0] not in MESSAGE_COLUMNS:
            wrapped = whole[inner[0]]
            rows = tuple(item for item in wrapped if isinstance(item, dict)) if isinstance(wrapped, list) else ()
            finding = DataFinding(
                code="wrapped_rows",
                severity=Severity.ERROR,
                field=inner[0],
                found=f"{{{inner[0]}: [...]}}",
                expected="[...]",
            )
            return Table(container="", rows=rows, findings=(finding,), readable=True)
        return Table(container="json_lines", rows=(whole,))
    return Table(container="", findings=(_broken("a single value"),), readable=False)


def _json_lines(text: str, suffix: str) -> Table | None:
    """JSON Lines; comment lines and commas at line ends are tolerated. None when the text is packed in another way."""
    full = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    comments = [number for number, line in full if line.startswith(("#", "//"))]
    body = [(number, line) for number, line in full if not line.startswith(("#", "//"))]
    if not body or not all(line.startswith("{") for _, line in body[:3]):
        return None
    read = [(number, _object(line.removesuffix(","))) for number, line in body]
    rows = tuple(row for _, row in read if row is not None)
    broken = [number for number, row in read if row is None]
    if len(broken) > len(rows) or (broken and not comments and len(rows) < 2):
        return None
    commas = [number for number, line in body if line.endswith("},")]
    return Table(
        container="json_lines",
        rows=rows,
        findings=tuple(_line_findings(comments, commas, broken, suffix)),
        facts=_line_facts(text, comments, body[0][0]),
    )


def _line_findings(comments: list[int], commas: list[int], broken: list[int], suffix: str) -> Iterator[DataFinding]:
    if comments:
        yield finding_in("comment_lines", Severity.ERROR, comments, expected="{...}")
    if commas:
        yield finding_in("comma_between_lines", Severity.ERROR, commas, found="},", expected="}")
    if broken:
        yield finding_in("not_valid_json", Severity.ERROR, broken, found=f"line {broken[0]}", expected="JSON")
    if suffix == "json":
        yield DataFinding(
            code="json_lines_in_json_file", severity=Severity.WARNING, found="one object a line", expected="*.jsonl"
        )


def _line_facts(text: str, comments: list[int], first: int) -> dict[str, ArgValue]:
    """Comment lines, and blank lines among the rows (a last line end is none)."""
    lines = text.split("\n")
    blanks = [number for number, line in enumerate(lines[:-1], 1) if not line.strip()]
    facts: dict[str, ArgValue] = {}
    if comments:
        facts["comment_lines"] = list(comments[:MAX_SHOWN])
    if blanks and (comments or any(number > first for number in blanks)):
        facts["blank_lines"] = list(blanks[:MAX_SHOWN])
    return facts


def _object(line: str) -> Row | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


_TRAILING_COMMA = re.compile(r",(\s*)([\]}])")


def _not_one_document(text: str, stripped: str, error: ValueError) -> Table:
    """JSON that json.loads refuses: several documents in a row, trailing commas, comments, Python dictionaries."""
    rows, end = _concatenated(stripped)
    if rows and end >= len(stripped):
        if all(isinstance(row, list) for row in rows):
            flat = tuple(item for part in rows if isinstance(part, list) for item in part if isinstance(item, dict))
            finding = DataFinding(
                code="several_arrays", severity=Severity.ERROR, found=f"{len(rows)} arrays", expected="one array"
            )
            return Table(container="json_concatenated", rows=flat, findings=(finding,))
        objects = tuple(row for row in rows if isinstance(row, dict))
        if len(objects) == len(rows):
            finding = DataFinding(
                code="concatenated_objects",
                severity=Severity.WARNING,
                found=f"{len(rows)} objects without a separator",
                expected="one object a line",
            )
            return Table(container="json_concatenated", rows=objects, findings=(finding,))
    if commented := _commented(text):
        return commented
    commas = _trailing_commas(text)
    if commas:
        repaired = _without_trailing_commas(text)
        try:
            whole = json.loads(repaired)
        except (ValueError, RecursionError):
            whole = None
        if whole is not None:
            inner = _whole_document(whole)
            finding = finding_in("trailing_comma", Severity.ERROR, commas, found=",", expected="no comma before ] or }")
            return Table(
                container=inner.container,
                rows=inner.rows,
                findings=(finding,),
                facts={"comma_lines": list(commas[:MAX_SHOWN])},
                readable=False,
            )
    line = error.lineno if isinstance(error, json.JSONDecodeError) else None
    what = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    container = "json_array" if stripped.startswith("[") else ""
    return Table(container=container, findings=(_broken(what, line),), readable=False)


def commas_in_the_way(text: str) -> tuple[int, ...]:
    """Lines with a comma before a closing bracket, when nothing else keeps the text from being JSON."""
    commas = _trailing_commas(text)
    try:
        json.loads(_without_trailing_commas(text))
    except (ValueError, RecursionError):
        return ()
    return tuple(commas)


def _commented(text: str) -> Table | None:
    """JSON that only comment lines keep from being read."""
    lines = text.split("\n")
    comments = [number for number, line in enumerate(lines, 1) if line.strip().startswith(("#", "//"))]
    if not comments:
        return None
    try:
        whole = json.loads("\n".join(line for line in lines if not line.strip().startswith(("#", "//"))))
    except (ValueError, RecursionError):
        return None
    inner = _whole_document(whole)
    finding = finding_in("comment_lines", Severity.ERROR, comments, expected="{...}")
    return replace(inner, findings=(finding, *inner.findings), facts={"comment_lines": list(comments[:MAX_SHOWN])})


def _concatenated(text: str) -> tuple[list[ArgValue], int]:
    """Documents one after another, and where reading stopped."""
    decoder, at, rows = json.JSONDecoder(), 0, []
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        rows.append(value)
        while at < len(text) and text[at].isspace():
            at += 1
    return rows, at


def _outside_strings(text: str) -> str:
    """The text with the inside of strings blanked, so that commas in them do not count."""
    return re.sub(r'"(?:\\.|[^"\\])*"', lambda m: '"' + "_" * (len(m[0]) - 2) + '"', text, flags=re.S)


def _trailing_commas(text: str) -> list[int]:
    plain = _outside_strings(text)
    return [plain.count("\n", 0, match.start()) + 1 for match in _TRAILING_COMMA.finditer(plain)]


def _without_trailing_commas(text: str) -> str:
    plain = _outside_strings(text)
    places = {match.start() for match in _TRAILING_COMMA.finditer(plain)}
    return "".join(char for index, char in enumerate(text) if index not in places)
