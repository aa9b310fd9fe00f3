"""Bytes of a console into lines as a terminal would show them, fed in any portions.

`LineSplitter` cuts the bytes (fast, no decoding); `LineDecoder` adds text, level, rank and host. Both are incremental: a
log cut at any byte gives the same lines. Carriage returns end a line that the next one overwrites; escape codes are left
out; a line is decoded only when it is complete, so a UTF-8 character cut between two portions is never damaged.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

MAX_LINE_BYTES = 1 << 20
"""A longer line is cut here: a program that writes no line end must not fill the memory."""

LONGEST_TEXT = 10_000
"""Characters of a line that readers look at."""

_LINE_END = re.compile(rb"\r*\n|\r+")
_ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movements
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS and other strings
    r"|\x1b[ -/]*[0-~]?"  # two-character escapes, or a lone ESC
)
_BOM = b"\xef\xbb\xbf"


class Level(StrEnum):
    """How serious a line says it is."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class RawLine(NamedTuple):
    """A piece between two line ends, undecoded. `overwritten`: a carriage return ended it, the next line replaces it."""

    offset: int
    data: bytes
    end: int
    overwritten: bool


class Line(NamedTuple):
    """One line. A NamedTuple, for a log has millions and this is the cheapest record.

    `offset` and `end` are byte positions in the log: of the first byte, and behind the line end. `text` is without escape
    codes and line end. `overwritten`: a later line on the same row replaces it (a progress bar); a log view skips these.
    `level`, `rank` and `host` are None when the line does not tell; `body_at` is the length of the prefix that names them.
    """

    offset: int
    end: int
    text: str
    overwritten: bool
    level: Level | None
    rank: int | None
    host: str | None
    body_at: int

    @property
    def body(self) -> str:
        """The text without the prefix of rank and host."""
        return self.text[self.body_at :]


class LineSplitter:
    """Cuts portions of bytes into raw lines. `offset` is the position of the first byte in the log."""

    def __init__(self, offset: int = 0) -> None:
        self._start = offset
        self._parts: list[bytes] = []
        self._held = 0

    @property
    def offset(self) -> int:
        """Start of the line that is still open: a reader that restarts here reads nothing twice."""
        return self._start

    def feed(self, data: bytes) -> list[RawLine]:
        """Lines that these bytes complete. A carriage return at the very end waits for the next byte: it may be CRLF."""
        if not data:
            return []
        if self._held:
            if not self._completes_a_line(data):
                self._hold(data)
                return []
            data = b"".join((*self._parts, data))
            self._parts, self._held = [], 0
        return self._cut(data)

    def flush(self) -> list[RawLine]:
        """The open line, at the end of the log."""
        data = b"".join(self._parts)
        self._parts, self._held = [], 0
        if not data:
            return []
        start, self._start = self._start, self._start + len(data)
        return [RawLine(start, data.rstrip(b"\r"), self._start, False)]

    def _completes_a_line(self, data: bytes) -> bool:
        too_long = self._held + len(data) >= MAX_LINE_BYTES
        return too_long or b"\n" in data or b"\r" in data or self._parts[-1].endswith(b"\r")

    def _hold(self, data: bytes) -> None:
        self._parts.append(data)
        self._held += len(data)

    def _cut(self, data: bytes) -> list[RawLine]:
        lines: list[RawLine] = []
        base, at = self._start, 0
        for match in _LINE_END.finditer(data):
            start, stop = match.span()
            overwritten = data[stop - 1] == 13
            if overwritten and stop == len(data):
                break
            at = cut_long(lines, data, base, at, start)
            lines.append(RawLine(base + at, data[at:start], base + stop, overwritten))
            at = stop
        at = cut_long(lines, data, base, at, len(data))
        self._start = base + at
        if at < len(data):
            self._hold(data[at:])
        return lines


def cut_long(lines: list[RawLine], data: bytes, base: int, at: int, stop: int) -> int:
    """Cut full pieces of MAX_LINE_BYTES off `data[at:stop]`, never inside a UTF-8 character; the new start."""
    while stop - at >= MAX_LINE_BYTES:
        end = at + MAX_LINE_BYTES
        while end > at + MAX_LINE_BYTES - 4 and end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        if end == len(data):  # whether a character is cut shows only with the next byte
            break
        lines.append(RawLine(base + at, data[at:end], base + end, False))
        at = end
    return at


class LineBlocks(LineSplitter):
    """Portions of bytes into blocks of complete lines, for readers that look at many lines at once."""

    def cut(self, data: bytes) -> tuple[int, bytes]:
        """Offset and bytes of what these bytes complete, as `feed` would cut it: up to the last line end.

        A block of MAX_LINE_BYTES and more holds (or is) a line that is too long: ask `cut_into_lines`.
        """
        if self._held:
            if not self._completes_a_line(data):
                self._hold(data)
                return self._start, b""
            data = b"".join((*self._parts, data))
            self._parts, self._held = [], 0
        if len(data) >= MAX_LINE_BYTES:
            return self._start, data
        stop = max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data.rstrip(b"\r")))) + 1
        base, self._start = self._start, self._start + stop
        if stop < len(data):
            self._hold(data[stop:])
        return base, data[:stop]

    def cut_into_lines(self, block: bytes) -> list[RawLine]:
        """The lines of a block that is too long; the open one is held."""
        return self._cut(block)


class LineDecoder:
    """Portions of bytes in, decoded lines out. `offset` is the position of the first byte in the log."""

    def __init__(self, offset: int = 0) -> None:
        self._splitter = LineSplitter(offset)

    @property
    def offset(self) -> int:
        """Start of the line that is still open."""
        return self._splitter.offset

    def feed(self, data: bytes) -> list[Line]:
        """Lines that these bytes complete."""
        return [decode_line(raw) for raw in self._splitter.feed(data)]

    def flush(self) -> list[Line]:
        """The open line, at the end of the log."""
        return [decode_line(raw) for raw in self._splitter.flush()]


def decode_line(raw: RawLine) -> Line:
    """Text, level, rank and host of one raw line."""
    text = decode_text(raw.data, first=raw.offset == 0)
    origin = read_origin(text)
    body = text[origin.body_at :] if origin.body_at else text
    return Line(
        raw.offset, raw.end, text, raw.overwritten, read_level(body), origin.rank, origin.host, origin.body_at
    )  # fmt: skip


def decode_text(data: bytes, *, first: bool = False) -> str:
    """Text without escape codes and NULs; bytes that are no UTF-8 become U+FFFD. `first`: a byte order mark may stand here."""
    if first and data.startswith(_BOM):
        data = data[3:]
    if b"\0" in data:  # a file that a crashed host left with a hole
        data = data.replace(b"\0", b"")
    text = data.decode("utf-8", "replace")
    return _ESCAPE.sub("", text) if "\x1b" in text else text


def is_ordinary(text: str) -> bool:
    """A line of level INFO tells no failure, but for the launchers' own about killed processes."""
    if text.startswith("[INFO|") or " NCCL INFO " in text[:120] or "] [INFO] [" in text[:48]:
        return "ill" not in text and "signal" not in text and "already" not in text
    return False


def clip_text(text: str) -> str:
    """A printed training example can be megabytes long: what matters stands at the ends."""
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 2000]} ... {text[-2000:]}"


def terminal_lines(lines: list[Line]) -> list[Line]:
    """What stays visible on a terminal: no progress bars that were overwritten, no blank rows left by clearing one."""
    return [line for line in lines if not line.overwritten]


class Origin(NamedTuple):
    """Who printed a line, as its prefix tells."""

    rank: int | None
    host: str | None
    body_at: int


NOBODY = Origin(None, None, 0)
_PREFIX = re.compile(
    r"\s*(?:"
    r"\[rank(?P<rank>\d+)\]:\s?"  # torch's excepthook and glog lines
    r"|\[(?:[A-Za-z]\w*?)?(?P<default>\d+)\]:\s?(?=\S)"  # torchrun --tee: [default0]:
    r"|\[\d+,(?P<mpi>\d+)\]<std(?:out|err|diag)>:\s?"  # mpirun --tag-output
    r"|\((?P<actor>[A-Za-z_][\w.:<>-]*) pid=(?P<pid>\d+)(?:, ip=(?P<ip>[\w.:-]+))?\)\s?"  # Ray, vLLM
    r"|(?P<addr>\d{1,3}(?:\.\d{1,3}){3}|[A-Za-z][\w.-]*\d[\w.-]*(?<![._-])):\s(?=\s*\S)"  # pdsh: one name per host
    r"|(?P<task>\d{1,5}): (?=\s*\S)"  # srun -l
    r"|\[(?P<node>(?:pod/)?[A-Za-z][\w./-]*\d[\w./-]*)\]\s(?=\[rank\d)"  # a launcher of the site
    r"|(?P<service>[A-Za-z][\w.-]*\d)\s+\|\s(?=\s*\S)"  # docker compose
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)\s(?=\s*\S)"  # kubectl logs --timestamps
    r")"
)
_RCCL = re.compile(r"(?P<host>[A-Za-z][\w.-]*):(?P<pid>\d+):(?P<tid>\d+) \[(?P<dev>\d+)\] ")
_DEEPSPEED_RANK = re.compile(r"\] \[Rank (\d+)\] ")
_NOT_A_HOST = re.compile(r"(?:Error|Exception|Warning|rank|step|iter\w*|epoch)\d*$", re.IGNORECASE)


def read_origin(text: str) -> Origin:
    """Rank and host that the prefixes of a line name; several may follow one another."""
    if not text or not _may_have_prefix(text):
        return NOBODY
    rank: int | None = None
    host: str | None = None
    at = 0
    while (match := _PREFIX.match(text, at)) and match.end() > at:
        named = match["addr"]
        if named is not None and (host is not None or _NOT_A_HOST.search(named)):
            break
        if match["task"] is not None and at:
            break
        host = named or match["ip"] or match["node"] or match["service"] or host
        digits = match["rank"] or match["default"] or match["mpi"] or match["task"]
        rank = int(digits) if digits is not None else rank
        at = match.end()
    rccl = _RCCL.match(text, at)
    if rccl:  # the number in brackets counts devices of this process, it is no rank
        return Origin(rank, rccl["host"], at)
    if rank is None and (found := _DEEPSPEED_RANK.search(text, at, at + 160)):
        rank = int(found[1])
    return NOBODY if rank is None and host is None and not at else Origin(rank, host, at)


def _may_have_prefix(text: str) -> bool:
    """Cheap test that spares most lines the expression: a prefix ends with a colon or bracket near the start."""
    return (
        ": " in text[:64]
        or "]:" in text[:24]
        or ">:" in text[:24]
        or text[0] == "("
        or text[10:11] == "T"
        or "NCCL" in text[:64]
        or " | " in text[:48]
        or "] [Rank " in text
    )


_LEVEL_WORD = re.compile(
    r"^\W*(?:[\w.:/-]+ ){0,3}?[\[(]?(DEBUG|TRACE|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b"
    r"|\[(DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)[\]|]"
    r"| - (DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL) - "
    r"|NCCL (INFO|WARN|ERROR) "
)
_GLOG = re.compile(r"^\[?([IWEF])\d{3,4} \d\d:\d\d:\d\d")
_ERROR_TEXT = re.compile(
    r"Traceback \(most recent call last\)|^[\w.]*(?:Error|Exception|Interrupt|Fault)\b(?::|$)|^\W*(?:error|fatal|Fatal)\b[:\s]"
    r"|Segmentation fault|Memory access fault|Bus error|slurmstepd: error|srun: error|\bOOM Killed\b|^Killed$"
)
_WARNING_TEXT = re.compile(r"\b[A-Z]\w*Warning: |^\W*(?:warning|Warning)\b[:\s]")
_BY_WORD = {
    "DEBUG": Level.DEBUG, "TRACE": Level.DEBUG, "INFO": Level.INFO, "WARN": Level.WARNING, "WARNING": Level.WARNING,
    "ERROR": Level.ERROR, "CRITICAL": Level.ERROR, "FATAL": Level.ERROR,
}  # fmt: skip
_BY_GLOG = {"I": Level.INFO, "W": Level.WARNING, "E": Level.ERROR, "F": Level.ERROR}


def read_level(body: str) -> Level | None:
    """The level that a line states, or that its wording makes plain; None for the rest."""
    if not body or body[0] == "{":
        return None
    head = body[:160]
    if word := _LEVEL_WORD.search(head):
        return _BY_WORD[next(group for group in word.groups() if group)]
    if glog := _GLOG.match(head):
        return _BY_GLOG[glog[1]]
    if _ERROR_TEXT.search(head):
        return Level.ERROR
    return Level.WARNING if _WARNING_TEXT.search(head) else None
