"""The bytes of a console into the series and facts of a job: points, steps, checkpoints, launches, failure.

`ConsoleReader` is fed portions of any size and can be asked at any time; the same bytes give the same answer however they
were cut. It holds the points and a few counters, never the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from backend.parsing import deepspeed_lines, failure, job_lines, launcher, rccl, step_lines
from backend.parsing.bar_runs import BarRunSplitter
from backend.parsing.deepspeed_lines import DeepSpeedLines
from backend.parsing.failure import FailureScan, Verdict
from backend.parsing.job_lines import JobLines
from backend.parsing.lines import NOBODY, Line, Origin, RawLine, decode_text, read_origin
from backend.parsing.progress import Bar, find_bar
from backend.parsing.rccl import RcclLines
from backend.parsing.shapes import ShapeCache, shape_of
from backend.parsing.step_lines import StepLine, parse_step_line
from backend.parsing.train_bars import TrainBars, phase_of_bar
from backend.parsing.trainer_dict import TrainerDict, find_dict_start, parse_trainer_dict
from backend.parsing.trainer_rows import Row, TrainerRows

_NARROWEST = 72
_LONGEST = 10_000
_ENOUGH = 64
_BAR_LOSSES = ("loss", "train_loss", "train/loss", "reduced_train_loss")
_INSIDE_DICT = re.compile(r"^[^{}\[\]=%|]*, '[\w/.-]+': '?-?[\d.]+(?:e-?\d+)?'?,[^{}\[\]=%|]*$")
_FIRST_BYTES = b"|#*("
"""Rows of tables, frames of stacks and headers are told by how they begin."""
_TRIGGERS = (
    "%|", "{'", '{"', " ip=", "Running Evaluation", *failure.TRIGGERS, *launcher.TRIGGERS, *deepspeed_lines.TRIGGERS,
    *rccl.TRIGGERS, *step_lines.TRIGGERS, *job_lines.TRIGGERS,
)  # fmt: skip
"""A line without any of these tells nothing but that it is there."""
_ENGINE_ACTORS = ("(EngineCore", "(Worker_", "(Worker ", "(VllmWorker", "(APIServer", "(ApiServer")
"""Processes of vLLM print a prefix of the same form as Ray's actors."""
_CURSOR_UP = b"\x1b[A"
_TRAINER_MARKS = (
    "llamafactory", "LLaMA-Factory", "llmtuner", "transformers/", "torch/distributed/elastic", "torch.distributed.elastic",
    "torchrun", "HfArgumentParser", "huggingface.co", "dataset_info.json", "DataLoader worker", "/trl/", "/peft/",
    "[INFO|", "[WARNING|", "/accelerate/", "deepspeed/",
)  # fmt: skip


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


class WrapWatch:
    """Who printed a line, also when the terminal broke it at its width: the second half has no prefix of its own."""

    def __init__(self) -> None:
        self._before = ""
        self._width = 0
        self._rank: int | None = None

    @property
    def is_wrapped(self) -> bool:
        """A terminal has broken lines of this log."""
        return bool(self._width)

    def origin_of(self, text: str) -> Origin:
        """Rank and host; a continuation inherits the rank of the line before it."""
        origin = read_origin(text)
        if len(text) == len(self._before) >= _NARROWEST:
            self._width = len(text)
        fits = bool(self._width) and len(self._before) == self._width >= len(text)
        if fits and origin == NOBODY and text[:1] != "[":
            origin = Origin(self._rank, None, 0)
        self._before, self._rank = text, origin.rank
        return origin


class ConsoleReader:
    """Feed bytes, then read the fields. `flush` at the end of the log, once.

    `skim`: of lines that differ in digits only and tell nothing, the first one is read and the others are passed over.
    """

    def __init__(self, offset: int = 0, *, skim: bool = True) -> None:
        self._skim = skim
        self._shapes = ShapeCache(_TRIGGERS)
        self._splitter = BarRunSplitter(offset)
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

    @property
    def offset(self) -> int:
        """Start of the line that is still open."""
        return self._splitter.offset

    def feed(self, data: bytes) -> None:
        """Take a portion of the log."""
        for raw in self._splitter.feed(data):
            if self._skip_first:
                self._skip_first = False
            else:
                self._take_raw(raw)

    def skip_to(self, offset: int) -> None:
        """Leave out what lies before `offset`, and the line that is cut there; the open line is dropped."""
        self._splitter = BarRunSplitter(offset)
        self._half_dict = None
        self._skip_first = True

    def flush(self) -> None:
        """Take the last line, which has no end."""
        for raw in self._splitter.flush():
            self._take_raw(raw)
        self.marks.cut_dict = self._half_dict is not None

    def _take_raw(self, raw: RawLine) -> None:
        if not raw.data or raw.data.isspace():
            self._cleared = raw.overwritten or self._cleared
            return
        shape = shape_of(raw.data)
        may_skip = self._may_skip(raw.data)
        if may_skip and self._shapes.is_empty(shape):
            self.marks.lines += 1
            return
        self._read(raw)
        if may_skip:
            self._shapes.candidates(shape)

    def _may_skip(self, data: bytes) -> bool:
        """No reader waits for what comes next, and nothing hides in escape codes."""
        if self._half_dict is not None or self.failure.is_following or self.job.in_table or self._wraps.is_wrapped:
            return False
        return self._skim and b"\x1b" not in data and data[0] not in _FIRST_BYTES

    def _read(self, raw: RawLine) -> None:
        nested = _CURSOR_UP in raw.data
        self.marks.ansi |= b"\x1b[" in raw.data
        text = _clip(decode_text(raw.data, first=raw.offset == 0))
        if self._half_dict is not None and self._join_half_dict(raw, text):
            return
        self.marks.lines += 1
        origin = self._wraps.origin_of(text)
        if text[:1] == "(" and origin.body_at and not text.startswith(_ENGINE_ACTORS):
            self.marks.ray += 1
        body = text[origin.body_at :]
        for piece in _pieces(body):
            if isinstance(piece, Bar):
                self._take_bar(piece, raw, nested)
            elif isinstance(piece, TrainerDict):
                self._take_dict(piece, raw, origin.host)
            else:
                inner, whose = (piece, origin) if piece is body else _own_origin(piece, origin)
                self._take_text(inner, whose, raw)
        self._cleared = False

    def _take_bar(self, bar: Bar, raw: RawLine, nested: bool) -> None:
        if not self.bars.take(bar, nested=nested):
            self.job.phase = phase_of_bar(bar.desc) or self.job.phase
            return
        step = self.bars.step
        if step is None:
            return
        self.rows.place_waiting(step)
        self._place(step)
        self._note_step(step, raw.offset)
        name = next((name for name in _BAR_LOSSES if name in bar.values), None)
        if name is not None and not bar.desc.lower().startswith(("eval", "valid")):
            found = TrainerDict(kind="train", values={"loss": bar.values[name]}, start=0, stop=0)
            self.rows.take(found, offset=raw.offset, step=bar.done, source=None)

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

    def _take_text(self, inner: str, origin: Origin, raw: RawLine) -> None:
        if find_dict_start(inner) >= 0:
            self._half_dict = (raw, inner)
            return
        line = Line(raw.offset, raw.end, inner, raw.overwritten, None, origin.rank, origin.host, 0)
        ordinary = _is_ordinary(inner)
        self._count_marks(inner, ordinary=ordinary)
        self.rccl.take(inner, origin.rank)
        self.deepspeed.take(inner)
        self.job.take(inner, raw.offset)
        if self.job.total_steps is not None:
            self.bars.expected_total = self.job.total_steps
        if "Running Evaluation" in inner or "Running Prediction" in inner:
            self.bars.evaluating = True
        if "Continuing training from global step" in inner:
            self.rows.begin_segment(self.job.resumed_from)
        if step_line := parse_step_line(inner):
            self._take_step_line(step_line, raw)
        if ordinary:
            self.failure.launcher.take(inner, raw.offset)
        else:
            self.failure.take(line, inner)

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
        if self.marks.trainer < _ENOUGH and any(mark in body for mark in _TRAINER_MARKS):
            self.marks.trainer += 1
        if "ray.exceptions" in body or "ray::" in body or "RayTask" in body or "raylet" in body:
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


def _is_ordinary(text: str) -> bool:
    """A line of level INFO tells no failure, but for the launchers' own about killed processes."""
    if text.startswith("[INFO|") or " NCCL INFO " in text[:120] or "] [INFO] [" in text[:48]:
        return "ill" not in text and "signal" not in text and "already" not in text
    return False


def _is_logger_head(text: str) -> bool:
    """`[INFO|2025-08-14 09:11:40] logging.py:157 >> ` and `05/21/2024 16:02:11 - INFO - llmtuner... - ` before a dict."""
    return text.rstrip().endswith((">>", " -", ":"))


def _clip(text: str) -> str:
    """A printed training example can be megabytes long: what matters stands at the ends."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 2000]} ... {text[-2000:]}"


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
