"""Console lines into the one cause of a failure, its evidence, and what is only a consequence.

`FailureScan` takes lines in order and keeps little: per signature the first places, ranks and counts. `conclude` weighs
them: who knows most (kernel, scheduler, driver) wins over the program's own error, that over what other ranks report, and
that over a process that is simply gone; the earliest wins among equals.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from backend.parsing.failure_facts import read_facts
from backend.parsing.launcher import NOISE, LauncherLines
from backend.parsing.lines import Line, clip_text, decode_text, is_ordinary, read_origin
from backend.parsing.log_facts import STOPPED_CAUSES
from backend.parsing.shapes import LiteralSet, ShapeCache, shape_of
from backend.parsing.signatures import OUTSIDE, PEER, REMARKS, SIGNATURES, STOP, Remark, Signature

MAX_EVIDENCE = 4
_CONTEXT_LINES = 12
_CONTEXT_BEFORE = 16
_RECENT_LINES = 64
"""The lines of the context before a failure are searched in so many: those of level INFO do not count."""
_MAX_CONTEXT = 96
_MAX_OFFSETS = 4096
_STEPS_AFTER_ERROR = 2
_EVIDENCE_CHARACTERS = 400
_WRAP_WIDTH = 60
_WRAPPED_CHARACTERS = 600
_SOURCE_LINE = re.compile(
    r"""^\s*(?:raise\b|return\b|[\W\d]*\braise \w+\(|.*\braise \w+\(["'f].*\{|│|\S*>\s+\d+\s|\d+\s+(?:if|raise|return)\b)"""
)
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w]*\.)*"
    r"([A-Z]\w*(?:Error|Exception|Interrupt|Exit|Refused|Invalid|TimeoutExpired|Unsupported\w*)|StopIteration)\b(?:: ?(.*))?$"
)
_FRAME = re.compile(r'^\s*File "([^"]+)", line \d+, in (\S+)')
_BENIGN = re.compile(r"bitsandbytes|Can't initialize amdsmi")
"""Libraries that print a traceback at import and go on without."""
_NOT_OWN = frozenset({"ChildFailedError", "CalledProcessError", "SignalException", "SystemExit"})
_OF_PEERS = re.compile(
    r"NCCL|Dist\w*Error|[Gg]loo|c10d|TCPStore|[Ss]ocket|Connection (?:reset|refused|closed)|Broken ?[Pp]ipe"
)
"""What a rank says when another one is gone."""

_BY_NEED: dict[str, list[Signature | Remark]] = {}
_ALL: tuple[Signature | Remark, ...] = (*SIGNATURES, *REMARKS)
for _one in _ALL:
    for _need in _one.needs:
        _BY_NEED.setdefault(_need, []).append(_one)
NEEDS: tuple[str, ...] = tuple(_BY_NEED)
_NEED_SET = LiteralSet(NEEDS)
TRIGGERS = (
    *NEEDS, "Traceback", 'File "', "rror", "xception", "nterrupt", "Exit", "Refused", "Invalid", "Expired", "Unsupported",
    "StopIteration", "NCCL", "atchdog", "assert", "RROR", "mismatch",
)  # fmt: skip
"""Literals without which a line tells nothing about a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A piece of the log that proves something, and where it stands."""

    text: str
    offset: int
    rank: int | None = None


@dataclass(slots=True)
class Finding:
    """All matches of one cause."""

    code: str
    weight: int
    offset: int
    last_offset: int
    count: int = 0
    step: int = -1
    """Training step when it was last seen."""
    trainer: bool = False
    phase: str | None = None
    evidence: list[Evidence] = field(default_factory=list)
    offsets: set[int] = field(default_factory=set)
    ranks: list[int] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)
    context: list[str] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)

    @property
    def facts(self) -> Mapping[str, object]:
        """Numbers and names in the text."""
        return read_facts(self.code, self.groups, "\n".join(self.context))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exception_:
    """An exception that ended a traceback and whose meaning the table does not know."""

    name: str
    text: str
    offset: int
    rank: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the lines say about the end. `root` None: nothing failed, or nothing known."""

    root: Finding | None
    others: tuple[Finding, ...]
    exception: Exception_ | None
    secondary: bool
    failed: bool
    first_failing_rank: int | None
    first_printing_rank: int | None
    failing_ranks: tuple[int, ...]


@dataclass(slots=True)
class _Traceback:
    """A traceback being printed by one rank."""

    offset: int
    ignored: bool = False
    frames: int = 0


class FailureScan:
    """Takes every line that is neither a progress bar nor a trainer dict."""

    def __init__(self) -> None:
        self.findings: dict[str, Finding] = {}
        self.remarks: dict[str, list[Evidence]] = {}
        self.launcher = LauncherLines()
        self.step = -1
        """Set by the reader: the training step that the log has reached."""
        self.exceptions: list[Exception_] = []
        self.last_frames: deque[tuple[str, str]] = deque(maxlen=64)
        self.traceback_ranks: list[int] = []
        self.ignored_exceptions = 0
        self._open: dict[int | None, _Traceback] = {}
        self._watching: list[tuple[Finding, int]] = []
        self._shapes = ShapeCache(_needs_of)
        self._recent: deque[str | bytes] = deque(maxlen=_RECENT_LINES)
        self._previous = ""
        self._previous_open = False

    @property
    def is_following(self) -> bool:
        """Lines that come now belong to a failure: each of them must be read."""
        return bool(self._watching) or self._previous_open or self.launcher.in_block

    def take(self, line: Line, body: str) -> None:
        """One line; `body` is its text without the prefix (or a piece of it behind a progress bar)."""
        rank = line.rank
        self._feed_context(body)
        self.launcher.take(body, line.offset)
        self._follow_traceback(line, body, rank)
        if not _SOURCE_LINE.match(body):
            matched = self._scan(line, body, rank)
            if not matched and self._previous_open:
                matched = self._scan(line, self._previous + body, rank) or self._scan(
                    line, f"{self._previous} {body}", rank
                )
            whole = self._previous + body if self._previous_open else body
            self._previous_open = (
                not matched and len(body) >= _WRAP_WIDTH and body[-1:] not in ".:!" and _looks_bad(whole)
            )
            self._previous = whole.rstrip()[-_WRAPPED_CHARACTERS:]
        self._recent.append(body)

    def pass_over(self, lines: Sequence[str | bytes]) -> None:
        """Lines that tell nothing of a failure, text without prefix or bytes: they may stand before one all the same."""
        self._recent.extend(lines[-_RECENT_LINES:])

    def _feed_context(self, body: str) -> None:
        if not self._watching:
            return
        still = []
        for finding, left in self._watching:
            finding.context.append(body)
            if left > 1:
                still.append((finding, left - 1))
        self._watching = still

    def _scan(self, line: Line, text: str, rank: int | None) -> bool:
        matched = False
        tried: set[int] = set()
        for need in self._shapes.of(shape_of(text.encode("utf-8", "replace"))):
            if need in text:
                for one in _BY_NEED[need]:
                    if id(one) not in tried and (found := one.pattern.search(text)):
                        tried.add(id(one))
                        matched = True
                        if isinstance(one, Signature):
                            self._note(one, found, line, text, rank)
                        else:
                            self._remark(one, found, line, text, rank)
        return matched

    def _note(self, one: Signature, found: re.Match[str], line: Line, text: str, rank: int | None) -> None:
        finding = self.findings.get(one.code)
        if finding is None:
            finding = self.findings[one.code] = Finding(one.code, one.weight, line.offset, line.offset, phase=one.phase)
        finding.last_offset = line.offset
        finding.step = self.step
        finding.count += 1
        finding.trainer |= one.trainer
        if len(finding.offsets) < _MAX_OFFSETS:
            finding.offsets.add(line.offset)
        if one.weight > finding.weight:  # the same cause in words that say more
            finding.weight = one.weight
            finding.evidence.clear()
            finding.groups = {}
        if rank is not None and rank not in finding.ranks:
            finding.ranks.append(rank)
        if line.host and line.host not in finding.hosts:
            finding.hosts.append(line.host)
        if one.weight == finding.weight:
            self._add_evidence(finding, one, found, line, text, rank)
        if len(finding.context) < _MAX_CONTEXT and text not in finding.context[-1:]:
            finding.context += [*self._context_before(), text] if finding.count == 1 else [text]
            self._watching.append((finding, _CONTEXT_LINES))

    def _context_before(self) -> list[str]:
        bodies = [one if isinstance(one, str) else _body_of(one) for one in self._recent]
        return [body for body in bodies if not is_ordinary(body)][-_CONTEXT_BEFORE:]

    def _add_evidence(
        self, finding: Finding, one: Signature, found: re.Match[str], line: Line, text: str, rank: int | None
    ) -> None:
        shown = found[0].strip() if one.exact else _shorten(text, found)
        if len(finding.texts) < 64:
            finding.texts.add(found[0])
        if len(finding.evidence) < MAX_EVIDENCE and all(piece.text != shown for piece in finding.evidence):
            finding.evidence.append(Evidence(text=shown, offset=line.offset, rank=rank))
        finding.groups = {**{name: value for name, value in found.groupdict().items() if value}, **finding.groups}

    def _remark(self, one: Remark, found: re.Match[str], line: Line, text: str, rank: int | None) -> None:
        seen = self.remarks.setdefault(one.code, [])
        if len(seen) < MAX_EVIDENCE:
            seen.append(Evidence(text=_shorten(text, found), offset=line.offset, rank=rank))

    def _follow_traceback(self, line: Line, body: str, rank: int | None) -> None:
        if body.startswith("Exception ignored in"):
            self._open[rank] = _Traceback(line.offset, ignored=True)
            self.ignored_exceptions += 1
        elif "Traceback (most recent call last)" in body:
            before = self._open.get(rank)
            if before is None or not before.ignored or before.frames:
                self._open[rank] = _Traceback(line.offset)
            if rank is not None and rank not in self.traceback_ranks:
                self.traceback_ranks.append(rank)
        elif frame := _FRAME.match(body):
            self.last_frames.append((frame[1], frame[2]))
            if rank in self._open:
                self._open[rank].frames += 1
        elif found := _EXCEPTION.match(body.rstrip()):
            self._end_traceback(line, body, rank, found)

    def _end_traceback(self, line: Line, body: str, rank: int | None, found: re.Match[str]) -> None:
        trace = self._open.pop(rank, None)
        if trace is not None and trace.ignored:
            return
        if found[1] in _NOT_OWN or NOISE.search(body) or _BENIGN.search(body):
            return
        if len(self.exceptions) < 256:
            self.exceptions.append(
                Exception_(name=found[1], text=body[:_EVIDENCE_CHARACTERS], offset=line.offset, rank=rank)
            )

    def conclude(
        self, *, progress_offset: int = -1, step: int = -1, start_offset: int = -1, failed: bool = False
    ) -> Verdict:
        """Weigh the findings. `progress_offset`: where the step last grew, to `step`; an error before it did not end the job.
        `start_offset`: where the last training began.

        When the job did end badly, an error one or two steps back may still be the cause: other ranks go on for a moment.
        """
        launcher_failed = self.launcher.failed and not start_offset > self.launcher.failed_offset
        ended_badly = failed or launcher_failed
        live = [one for one in self.findings.values() if one.last_offset >= progress_offset and self._is_cause(one)]
        if not live and ended_badly:
            live = [
                one for one in self.findings.values() if step - one.step <= _STEPS_AFTER_ERROR and self._is_cause(one)
            ]
        live = _without_consequences(live)
        root = max(live, key=lambda one: (one.weight, -one.offset), default=None)
        exception = self._last_exception(progress_offset, root)
        if root is not None and (own := self._error_before(root, progress_offset)):
            root, exception = None, own
        cut = any(not one.ignored and one.offset >= progress_offset for one in self._open.values())
        failed = root is not None or exception is not None or launcher_failed or cut
        ranks = tuple(sorted(root.ranks)) if root else ()
        return Verdict(
            root=root, others=tuple(one for one in live if one is not root), exception=exception,
            secondary=self._has_secondary(root, live), failed=failed,
            first_failing_rank=self._first_failing_rank(root), first_printing_rank=self._first_printing_rank(root),
            failing_ranks=ranks,
        )  # fmt: skip

    def _is_cause(self, one: Finding) -> bool:
        """Rows with a wrong role are dropped with a warning: a cause only when none was left. A watchdog that hangs after a
        time-out was reported hangs because of it. DeepSpeed's launcher kills all ranks after one ended by an error, and srun
        cancels the step."""
        if one.code == "role_tag_mismatch":
            return "all_samples_dropped" in self.findings
        if one.code == "watchdog_stuck":
            timeout = self.findings.get("collective_timeout")
            return timeout is None or timeout.offset > one.offset
        if one.code == "cancelled" and 0 <= self.launcher.task_failed_offset < one.offset:
            return False
        if one.code == "killed_without_reason" and self.launcher.exit_code not in (None, 128 + 9):
            by_launcher = all("Killing subprocess" in piece.text for piece in one.evidence)
            return self.launcher.exit_signal is not None or not by_launcher
        return True

    def _last_exception(self, progress_offset: int, root: Finding | None) -> Exception_ | None:
        late = [one for one in self.exceptions if one.offset >= progress_offset]
        return late[-1] if late and root is None else None

    def _error_before(self, root: Finding, progress_offset: int) -> Exception_ | None:
        """An error of unknown meaning that came first, when all that is known is that ranks waited or were killed."""
        if root.weight > PEER:
            return None
        return next(
            (
                one for one in self.exceptions
                if progress_offset <= one.offset < root.offset and not _OF_PEERS.search(one.text)
            ),
            None,
        )  # fmt: skip

    def _has_secondary(self, root: Finding | None, live: list[Finding]) -> bool:
        if root is None:
            return False
        unlike = any(one.offset not in root.offsets for one in self.exceptions)
        return unlike or self.ignored_exceptions > 0 or any(one is not root and one.weight <= PEER for one in live)

    def _first_failing_rank(self, root: Finding | None) -> int | None:
        if self.launcher.rank is not None:
            return self.launcher.rank
        local = self.launcher.local_rank
        if (
            local is not None
            and (self.launcher.nodes or 1) == 1
            and (not root or not root.ranks or local in root.ranks)
        ):
            return local
        if root is None:
            return self.traceback_ranks[0] if self.traceback_ranks else None
        if "lagging_rank" in root.groups:
            return int(root.groups["lagging_rank"])
        if root.weight == PEER:
            return None
        ranks = root.ranks or self.traceback_ranks  # RCCL warns without a rank, the exception behind it has one
        return ranks[0] if ranks else None

    def _first_printing_rank(self, root: Finding | None) -> int | None:
        printed = root.ranks[0] if root and root.ranks else None
        return printed if printed != self._first_failing_rank(root) else None


def _needs_of(shape: bytes) -> tuple[str, ...]:
    return tuple(NEEDS[index] for index in _NEED_SET.find(shape))


def _body_of(line: bytes) -> str:
    text = clip_text(decode_text(line))
    return text[read_origin(text).body_at :]


def _without_consequences(live: list[Finding]) -> list[Finding]:
    """A stop from outside comes first and ranks then fall over: what follows it is no cause of its own."""
    stops = [one for one in live if _is_stop(one)]
    if not stops:
        return live
    first = min(stops, key=lambda one: one.offset)
    return [
        one for one in live if one.offset <= first.offset or _is_stop(one) or one.weight < PEER or one.weight == OUTSIDE
    ]


def _is_stop(one: Finding) -> bool:
    return one.code in STOPPED_CAUSES and one.weight >= STOP


def _shorten(text: str, found: re.Match[str]) -> str:
    """The line, or the part around the match when it is long."""
    text = text.strip()
    if len(text) <= _EVIDENCE_CHARACTERS:
        return text
    start = max(0, min(found.start() - 60, len(text) - _EVIDENCE_CHARACTERS))
    return text[start : start + _EVIDENCE_CHARACTERS]


def _looks_bad(text: str) -> bool:
    return (
        "rror" in text
        or "RROR" in text
        or "mismatch" in text
        or "atchdog" in text
        or "xception" in text
        or "NCCL" in text
        or "assert" in text
    )
