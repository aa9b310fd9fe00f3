"""The bytes of a console into the series and facts of a job: points, steps, checkpoints, launches, failure.

`ConsoleReader` is fed portions of any size and can be asked at any time; the same bytes give the same answer however they
were cut. It holds the points and a few counters, never the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from backend.parsing.bar_runs import find_run, pieces_of
from backend.parsing.deepspeed_lines import DeepSpeedLines
from backend.parsing.dict_templates import DictTemplates
from backend.parsing.failure import FailureScan, Verdict
from backend.parsing.job_lines import JobLines
from backend.parsing.lines import (
    MAX_LINE_BYTES,
    Line,
    LineBlocks,
    Origin,
    RawLine,
    clip_text,
    decode_text,
    is_ordinary,
    read_origin,
)  # fmt: skip
from backend.parsing.progress import Bar, find_bar, parse_plain_bar
from backend.parsing.rccl import RcclLines
from backend.parsing.shapes import DIGITS, shape_of
from backend.parsing.step_lines import StepLine, parse_step_line
from backend.parsing.train_bars import TrainBars, phase_of_bar
from backend.parsing.trainer_dict import TrainerDict, find_dict_start, parse_trainer_dict
from backend.parsing.trainer_rows import Row, TrainerRows
from backend.parsing.triggers import (
    BAR,
    BLANK,
    CALM,
    DICT,
    ENGINE,
    EVERYTHING,
    FAILURE,
    JOB,
    LAUNCHER,
    MARK,
    NETWORK,
    QUIET,
    RAW,
    RAY_MARKS,
    READER,
    STEPS,
    TRAINER_MARKS,
    Plans,
    is_calm,
)  # fmt: skip
from backend.parsing.wraps import WrapWatch

_NARROWEST = 72
_PORTION = 1 << 18
_ENOUGH = 64
_BAR_LOSSES = ("loss", "train_loss", "train/loss", "reduced_train_loss")
_INSIDE_DICT = re.compile(r"^[^{}\[\]=%|]*, '[\w/.-]+': '?-?[\d.]+(?:e-?\d+)?'?,[^{}\[\]=%|]*$")
_ENGINE_ACTORS = ("(EngineCore", "(Worker_", "(Worker ", "(VllmWorker", "(APIServer", "(ApiServer")
"""Processes of vLLM print a prefix of the same form as Ray's actors."""
_CURSOR_UP = b"\x1b[A"
_PASSING = frozenset({QUIET, CALM, CALM | FAILURE, ENGINE, CALM | ENGINE, CALM | ENGINE | FAILURE})
_LATER = ENGINE | FAILURE
_NOTHING: frozenset[int] = frozenset()
_LINE_END = re.compile(rb"\r*\n|\r+")


@dataclass(slots=True)
class Marks:
    """How many lines of each program the console holds."""

    trainer: int = 0
    ray: int = 0
    lines: int = 0
    ansi: bool = False
    cut_dict: bool = False


@dataclass(slots=True)
class Steps:
    """Points of trainers other than transformers, in the order of the text."""

    lines: list[StepLine] = field(default_factory=list)
    forms: dict[str, int] = field(default_factory=dict)
    rewards: list[float] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)
    timers: dict[str, float] = field(default_factory=dict)
    """Milliseconds of the slowest rank, by Megatron's names."""
    progress: StepLine | None = None


class ConsoleReader:
    """Feed bytes, then read the fields. `flush` at the end of the log, once.

    `skim`: what tells nothing is passed over in bulk (ADR 0010): lines whose shape none of the readers knows, and the states of
    a progress bar that later ones replace. Without it everything is read; the answer is the same.
    """

    def __init__(self, offset: int = 0, *, skim: bool = True) -> None:
        self._skim = skim
        self._plans = Plans()
        self._templates = DictTemplates()
        self._blocks = LineBlocks(offset)
        self.rows = TrainerRows()
        self.bars = TrainBars()
        self.deepspeed = DeepSpeedLines()
        self.rccl = RcclLines()
        self.job = JobLines()
        self.steps = Steps()
        self.failure = FailureScan()
        self.marks = Marks()
        self.progress_offset = -1
        self._last_step = -1
        self._half_dict: tuple[RawLine, str] | None = None
        self._skip_first = False
        self._cleared = False
        self._to_place: Row | None = None
        self._wraps = WrapWatch()
        self._engine_lines: list[bytes] = []

    @property
    def offset(self) -> int:
        """Start of the line that is still open."""
        return self._blocks.offset

    def feed(self, data: bytes) -> None:
        """Take a portion of the log."""
        if len(data) <= _PORTION:
            self._feed_portion(data)
            return
        for at in range(0, len(data), _PORTION):
            self._feed_portion(data[at : at + _PORTION])

    def skip_to(self, offset: int) -> None:
        """Leave out what lies before `offset`, and the line that is cut there; the open line is dropped."""
        self._blocks = LineBlocks(offset)
        self._half_dict = None
        self._skip_first = True

    def flush(self) -> None:
        """Take the last line, which has no end."""
        for raw in self._blocks.flush():
            self._take_piece(raw)
        self._take_engine_lines()
        self.marks.cut_dict = self._half_dict is not None

    def _feed_portion(self, data: bytes) -> None:
        base, block = self._blocks.cut(data)
        if self._skip_first and block:
            self._skip_first = False
            base, block = _without_first(base, block)
        if len(block) < MAX_LINE_BYTES:
            self._take_block(base, block)
        else:
            for raw in self._blocks.cut_into_lines(block):
                self._take_piece(raw)
        self._take_engine_lines()

    def _take_block(self, base: int, block: bytes) -> None:
        """Whole lines; behind the last line end, pieces of a line that goes on."""
        lines, shapes = block.split(b"\n"), block.translate(None, DIGITS).split(b"\n")
        rest = lines.pop()
        drawn, known, passing = b"\r" in block, self._plans.known.get, self._passing()
        at = base
        first_quiet = 0
        for index, line in enumerate(lines):
            start, shape = at, shapes[index]
            at += len(line) + 1
            if drawn and b"\r" in line:
                line = lines[index] = line.rstrip(b"\r")
                shape = shape.rstrip(b"\r")
            plan = known(shape)
            if plan in passing and (not plan & _LATER or self._passes(plan, line)):
                continue
            if first_quiet < index:
                self._pass_over(lines[first_quiet:index])
            if drawn and b"\r" in line:
                self._take_drawn(line, start, is_open=False)
            else:
                self._take_line(RawLine(start, line, at, False), shape)
            first_quiet, passing = index + 1, self._passing()
        if first_quiet < len(lines):
            self._pass_over(lines[first_quiet:])
        if rest:
            self._take_drawn(rest, at, is_open=True)

    def _passes(self, plan: int, line: bytes) -> bool:
        """Nobody reads a line that might tell a failure, or DeepSpeed's reader alone does, later."""
        if b"\r" in line or (plan & FAILURE and not is_calm(line)):
            return False
        if plan & ENGINE:
            self._engine_lines.append(line)
        return True

    def _passing(self) -> frozenset[int]:
        """Plans of lines that need not be looked at, or may not: none while a reader waits for what comes next."""
        return _NOTHING if not self._skim or self._is_waiting or self.failure.is_following else _PASSING

    @property
    def _is_waiting(self) -> bool:
        """Half a dict or a table goes on."""
        return self._half_dict is not None or self.job.in_table or self.failure.launcher.in_block

    def _pass_over(self, lines: list[bytes]) -> None:
        """Lines of text that tell nothing but that they are there."""
        self.marks.lines += len(lines)
        self._cleared = False
        if len(lines) == 1:
            self._wraps.pass_one(lines[0])
        else:
            self._wraps.pass_over(lines)
        self.failure.pass_over(lines)

    def _take_drawn(self, line: bytes, at: int, *, is_open: bool) -> None:
        """A line that carriage returns divide; the states of a bar are reduced to those that matter."""
        run = find_run(line) if self._skim and self._half_dict is None else None
        if run is None:
            for raw in pieces_of(line, at, 0, len(line), is_open=is_open):
                self._take_piece(raw)
            return
        if run.start == 1:  # the return that every redrawn bar begins with
            self._cleared = True
        else:
            self._take_around(line, at, 0, run.start, is_open=is_open)
        waiting = self._is_waiting
        for start, stop in run.kept:
            if waiting or (bar := parse_plain_bar(line, start, stop)) is None:
                self._take_piece(RawLine(at + start, line[start:stop], at + stop + 1, True))
                waiting = self._is_waiting
            else:
                self._take_plain_bar(bar, at + start)
        self.marks.lines += run.states - len(run.kept)
        self._take_around(line, at, run.stop, len(line), is_open=is_open)

    def _take_around(self, line: bytes, at: int, start: int, stop: int, *, is_open: bool) -> None:
        """What stands before or behind a run of bars: most often the spaces that clear the last one, and a dict."""
        last = line.rfind(b"\r", start, stop) + 1 or start
        if last > start and line[start:last].isspace():
            self._cleared, start = True, last
        if start == last < stop == len(line) and not is_open:
            self._take_piece(RawLine(at + start, line[start:], at + stop + 1, False))
        elif start < stop:
            for raw in pieces_of(line, at, start, stop, is_open=is_open):
                self._take_piece(raw)

    def _take_piece(self, raw: RawLine) -> None:
        self._take_line(raw, shape_of(raw.data))

    def _take_plain_bar(self, bar: Bar, offset: int) -> None:
        """A state of a bar without name that was drawn over."""
        self.marks.lines += 1
        self._wraps.redraw()
        self._take_bar(bar, offset, nested=False)
        self._cleared = False

    def _take_line(self, raw: RawLine, shape: bytes) -> None:
        """Give a line to those who may find something in it."""
        plan = self._plans.of(shape) if self._skim and raw.offset else EVERYTHING
        if plan & BLANK and (not raw.data or raw.data.isspace()):
            self._cleared = raw.overwritten or self._cleared
        elif self._is_waiting:
            self._read(raw, EVERYTHING)
        elif plan & DICT and (told := self._templates.read(shape, raw.data)):
            self._note_line(raw)
            self._take_dict(told[0], raw, told[1])
            self._cleared = False
        else:
            self._take_words(raw, shape, plan)

    def _take_words(self, raw: RawLine, shape: bytes, plan: int) -> None:
        following = self.failure.is_following
        if plan & CALM and is_calm(raw.data):  # level INFO tells no failure
            plan &= ~(FAILURE | CALM)
            following = False
        if plan & ~CALM == QUIET and not following:
            self._note_line(raw)
            self.failure.pass_over((raw.data,))
            self._cleared = False
        elif plan == ENGINE and not following:
            self._note_line(raw)
            self.failure.pass_over((raw.data,))
            self._cleared = False
            self._engine_lines.append(raw.data)
        else:
            self._read(raw, plan | (FAILURE if following else 0))
            self._plans.heard(shape, plan)

    def _note_line(self, raw: RawLine) -> None:
        """A line that was not read as text."""
        self.marks.lines += 1
        if raw.overwritten:
            self._wraps.redraw()
        else:
            self._wraps.pass_one(raw.data)

    def _take_engine_lines(self) -> None:
        """What DeepSpeed prints at every step depends on nothing else, so it is read a portion at a time."""
        if self._engine_lines:
            lines, self._engine_lines = self._engine_lines, []
            self.deepspeed.take_many([decode_text(line) for line in lines])

    def _read(self, raw: RawLine, plan: int) -> None:
        nested = _CURSOR_UP in raw.data
        self.marks.ansi |= b"\x1b[" in raw.data
        text = clip_text(decode_text(raw.data, first=raw.offset == 0))
        if self._half_dict is not None and self._join_half_dict(raw, text):
            return
        if plan & RAW and plan != EVERYTHING:
            plan = self._plans.of(shape_of(text.encode())) | plan & FAILURE
        self.marks.lines += 1
        origin = self._origin_of(text, raw)
        if text[:1] == "(" and origin.body_at and not text.startswith(_ENGINE_ACTORS):
            self.marks.ray += 1
        body = text[origin.body_at :]
        if plan & (BAR | DICT):
            self._take_pieces(body, origin, raw, nested)
        elif not body.isspace():
            self._take_text(body, origin, raw, plan)
        self._cleared = False

    def _origin_of(self, text: str, raw: RawLine) -> Origin:
        if not raw.overwritten:
            return self._wraps.origin_of(text)
        self._wraps.redraw()
        return read_origin(text)

    def _take_pieces(self, body: str, origin: Origin, raw: RawLine, nested: bool) -> None:
        """A line that holds a bar or a dict, perhaps several, and text around them."""
        for piece in _pieces(body):
            if isinstance(piece, Bar):
                self._take_bar(piece, raw.offset, nested=nested)
            elif isinstance(piece, TrainerDict):
                self._take_dict(piece, raw, origin.host)
                if piece.start == 0 and piece.stop == len(body):
                    self._templates.learn(shape_of(raw.data), raw.data, piece)
            else:
                inner, whose = (piece, origin) if piece is body else _own_origin(piece, origin)
                self._take_text(inner, whose, raw, EVERYTHING)

    def _take_bar(self, bar: Bar, offset: int, *, nested: bool) -> None:
        if not self.bars.take(bar, nested=nested):
            self.job.phase = phase_of_bar(bar.desc) or self.job.phase
            return
        step = self.bars.step
        if step is None:
            return
        self.rows.place_waiting(step)
        self._place(step)
        self._note_step(step, offset)
        if not bar.values:
            return
        name = next((name for name in _BAR_LOSSES if name in bar.values), None)
        if name is not None and not bar.desc.lower().startswith(("eval", "valid")):
            found = TrainerDict(kind="train", values={"loss": bar.values[name]}, start=0, stop=0)
            self.rows.take(found, offset=offset, step=bar.done, source=None)

    def _take_dict(self, found: TrainerDict, raw: RawLine, source: str | None) -> None:
        self.job.phase = "training"
        row = self.rows.take(found, offset=raw.offset, step=_own_step(found) or self.bars.step, source=source)
        self._to_place = row if self._cleared else None
        if found.kind == "train":
            self.bars.note_row()
        if row is not None and found.kind == "train":
            self.progress_offset = raw.offset
        if found.kind == "final":
            self.job.ended_offset = raw.offset

    def _place(self, step: int) -> None:
        """tqdm clears the bar, prints the dict and draws the bar again: the new bar has the dict's step, the one before lags."""
        row, self._to_place = self._to_place, None
        if row is not None and (row.step is None or step > row.step) and "step" not in row.values:
            row.step = step

    def _take_text(self, inner: str, origin: Origin, raw: RawLine, plan: int) -> None:
        if plan & DICT and find_dict_start(inner) >= 0:
            self._half_dict = (raw, inner)
            return
        ordinary = is_ordinary(inner)
        if plan & MARK:
            self._count_marks(inner, ordinary=ordinary)
        if plan & NETWORK:
            self.rccl.take(inner, origin.rank)
        if plan & ENGINE:
            self._take_engine_lines()
            self.deepspeed.take(inner)
        if plan & JOB:
            self.job.take(inner, raw.offset)
            if self.job.total_steps is not None:
                self.bars.expected_total = self.job.total_steps
        if plan & READER:
            self._take_milestone(inner)
        if plan & STEPS and (step_line := parse_step_line(inner)):
            self._take_step_line(step_line, raw)
        if not ordinary and plan & (FAILURE | LAUNCHER):
            self.failure.take(
                Line(raw.offset, raw.end, inner, raw.overwritten, None, origin.rank, origin.host, 0), inner
            )
            return
        if plan & LAUNCHER:
            self.failure.launcher.take(inner, raw.offset)
        self.failure.pass_over((inner,))

    def _take_milestone(self, inner: str) -> None:
        if "Running Evaluation" in inner or "Running Prediction" in inner:
            self.bars.evaluating = True
        if "Continuing training from global step" in inner:
            self.rows.begin_segment(self.job.resumed_from)

    def _take_step_line(self, found: StepLine, raw: RawLine) -> None:
        self.job.phase = "training"
        if found.kind == "timer":
            self.steps.timers.update(found.values)
            return
        if found.kind == "progress":
            self.steps.progress = found
        elif found.kind == "reward":
            self.steps.rewards.append(found.values["reward"])
        elif found.kind == "rate":
            self.steps.rates.update(found.values)
        elif not self.steps.lines or found != self.steps.lines[-1]:
            self.steps.lines.append(found)
        self.steps.forms[found.form] = self.steps.forms.get(found.form, 0) + 1
        if found.step is not None:
            self._note_step(found.step, raw.offset)

    def conclude(self, *, failed: bool = False) -> Verdict:
        """The cause so far. `failed`: it is known from elsewhere that the job ended badly."""
        return self.failure.conclude(
            progress_offset=self.progress_offset, step=self._last_step, start_offset=self.job.started_offset, failed=failed
        )  # fmt: skip

    def _note_step(self, step: int, offset: int) -> None:
        if step > self._last_step:
            self.progress_offset = offset
        self._last_step = self.failure.step = step
        self.job.note_progress(step)

    def _count_marks(self, body: str, *, ordinary: bool) -> None:
        if ordinary:
            self.marks.trainer += body.startswith("[INFO|")
            return
        if self.marks.trainer < _ENOUGH and any(mark in body for mark in TRAINER_MARKS):
            self.marks.trainer += 1
        if any(mark in body for mark in RAY_MARKS):
            self.marks.ray += 1

    def _join_half_dict(self, raw: RawLine, text: str) -> bool:
        """A dict that the terminal broke into lines, at any letter; anything else means that it was cut for good."""
        assert self._half_dict is not None
        first, start = self._half_dict
        whole = start + text
        found = parse_trainer_dict(whole)
        goes_on = text[:1] in (" ", "'", '"') or (found is None and _is_dict_inside(start[-1:] + text))
        if len(start) > 4000 or not (goes_on or (found is not None and found.stop >= len(whole.rstrip()))):
            self._half_dict = None
            self.marks.cut_dict = False
            return False
        if found is None:
            self._half_dict = (first, whole)
            return True
        self._half_dict = None
        self._take_dict(found, first, None)
        return True


def _is_dict_inside(text: str) -> bool:
    """A whole row of a dict and nothing else: `'name': number` again and again."""
    return len(text) >= _NARROWEST and _INSIDE_DICT.search(text) is not None


def _pieces(body: str) -> Iterator[str | Bar | TrainerDict]:
    """Bars, dicts and the text between them: several are often glued into one line."""
    rest = body
    while rest:
        bar = find_bar(rest)
        found = parse_trainer_dict(rest)
        if bar is None and found is None:
            if not rest.isspace():
                yield rest
            return
        first: Bar | TrainerDict = bar if found is None or (bar is not None and bar.start < found.start) else found  # type: ignore[assignment]
        before = rest[: first.start]
        if before and not before.isspace() and (isinstance(first, Bar) or not _is_logger_head(before)):
            yield before
        yield first
        rest = rest[first.stop :]


def _is_logger_head(text: str) -> bool:
    """`[INFO|2025-08-14 09:11:40] logging.py:157 >> ` and `05/21/2024 16:02:11 - INFO - llmtuner... - ` before a dict."""
    return text.rstrip().endswith((">>", " -", ":"))


def _without_first(base: int, block: bytes) -> tuple[int, bytes]:
    """Without the rest of a line of which the beginning was not read."""
    end = _LINE_END.search(block)
    stop = end.end() if end else len(block)
    return base + stop, block[stop:]


def _own_step(found: TrainerDict) -> int | None:
    """Some callbacks put the step into the dict."""
    step = found.values.get("step", found.values.get("global_step"))
    return int(step) if step is not None and step == step and step >= 0 else None


def _own_origin(piece: str, line: Origin) -> tuple[str, Origin]:
    """Text glued behind a bar often has its own prefix."""
    origin = read_origin(piece)
    if origin.rank is None and origin.host is None:
        return piece, line
    return piece[origin.body_at :], origin
