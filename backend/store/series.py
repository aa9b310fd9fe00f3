"""Recorder files of a job in (`recorder/rank-*.jsonl`, docs/contracts.md), its segments, markers and curves out.

A start of the trainer opens a segment. One that begins below a step reached before cuts off the steps after its begin:
curves show the line of steps that led to the present state.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import chain, compress
from math import isfinite
from operator import itemgetter
from pathlib import Path

import numpy as np

from backend.store.columns import Curve, Floats, build_curve, newest_of_each
from backend.store.log_blocks import build_log_blocks
from backend.store.log_table import Logged, LogTable
from backend.store.record_file import Record, RecordFile, Replaced
from backend.store.series_copy import Meta, load_copy, save_copy
from backend.store.step_table import DERIVED, FIELDS, StepTable, Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How far a reader has seen a run. `load` names one reading of the files: another one's marks mean nothing here."""

    load: str
    rows: int
    logs: int
    markers: int
    cuts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """Something at a step: checkpoint, evaluation, resume, restart, stop, save, end. `seconds`: how long it took."""

    kind: str
    step: int
    at: float
    text: str = ""
    seconds: float | None = None


@dataclass(slots=True, kw_only=True)
class Segment:
    """One start of the trainer. Steps and Unix seconds; `begin_step` None: training has not begun."""

    index: int
    started_at: float
    begin_step: int | None = None
    last_step: int | None = None
    max_steps: int | None = None
    epochs: float | None = None
    world_size: int | None = None
    trainable_parameters: int | None = None
    all_parameters: int | None = None
    training_since: float | None = None
    last_at: float = 0.0
    ended_at: float | None = None
    stopped: bool = False
    ok: bool | None = None
    error: str = ""
    phases: list[tuple[str, float]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    first_row: int = 0
    first_log: int | None = None
    waiting: Waiting = field(default_factory=Waiting)
    ended_ranks: set[int] = field(default_factory=set)
    begun: dict[str, float] = field(default_factory=dict)
    """When an evaluation (key "evaluation") or the saving of a checkpoint (key: its path) began."""
    parts: dict[str, set[int]] = field(default_factory=dict)
    """Ranks that have written their part of a checkpoint, by its path."""


RECENT_STEPS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where the newest start of a run stands. `seconds` and `tokens` are those of its last RECENT_STEPS steps.

    `stride`: steps from one record to the next, 1 but in runs of which only logged points are known.
    """

    segment: Segment | None = None
    step: int | None = None
    seconds: Floats = field(default_factory=lambda: np.empty(0))
    tokens: Floats = field(default_factory=lambda: np.empty(0))
    last_step_at: float | None = None
    stride: float = 1.0
    mean_tokens_per_second: float | None = None
    total_tokens: float | None = None
    loss: float | None = None
    epoch: float | None = None
    pauses: tuple[Marker, ...] = ()


_STARTS = frozenset({"start", "train_begin", "phase"})
_STEPS_AND_LOGS = frozenset({"step", "log"})
_STEP_CELLS = itemgetter(*FIELDS)

WORTH_A_COPY = 50_000
"""Steps and logged rows from which reading takes longer than a blink."""
LEAST_GROWTH_BYTES = 16 << 20
"""Of a living run's files since its last copy: a tenth of a second of reading."""


class StaleCopy(Exception):
    """The files have changed since the copy was made."""


class RunSeries:
    """Everything one run has recorded. Safe to use from several threads; arrays handed out never change.

    Hold `lock` where several answers have to fit together.
    """

    def __init__(self, recorder: Path) -> None:
        self.recorder = recorder
        self.lock = threading.RLock()
        self._empty()

    def _empty(self) -> None:
        self.load = secrets.token_hex(4)
        self.segments: list[Segment] = []
        self.markers: list[Marker] = []
        self.steps = StepTable()
        self.logs = LogTable()
        self._files: dict[int, RecordFile] = {}
        self._segment_of: dict[int, int] = {}
        self._seen: dict[int, set[str]] = {}
        self._late = 0
        self._copied_bytes = 0

    # -- a copy of what was read --------------------------------------------------------------------------------------

    def needs_copy(self, *, ended: bool) -> bool:
        """Whether a copy would spare much reading: of an ended run what it lacks, of a living one half as much again."""
        with self.lock:
            offset = sum(file.offset for file in self._files.values())
            least = 1 if ended else max(LEAST_GROWTH_BYTES, self._copied_bytes // 2)
            return self.steps.size + self.logs.size >= WORTH_A_COPY and offset - self._copied_bytes >= least

    def save(self, folder: Path) -> None:
        """Keep a copy of what was read. Others may go on reading meanwhile: the arrays handed out never change."""
        with self.lock:
            columns = {f"steps:{name}": values for name, values in self.steps.columns().items()}
            columns |= {f"logs:{name}": values for name, values in self.logs.columns().items()}
            for segment in self.segments:
                for rank, rows in segment.waiting.rows.items():
                    columns[f"waiting:{segment.index}:{rank}"] = np.concatenate(rows).ravel()
            meta = self._describe()
            self._copied_bytes = sum(file.offset for file in self._files.values())
        save_copy(folder, self.recorder, columns, meta)

    def load_saved(self, folder: Path) -> bool:
        """Start from the copy instead of the files; False when there is none of these files."""
        with self.lock:
            found = load_copy(folder, self.recorder)
            if found is None:
                return False
            try:
                self._restore(*found)
            except (KeyError, TypeError, ValueError, OSError, StaleCopy):
                self._empty()
                return False
            return True

    def _describe(self) -> Meta:
        return {
            "logs": self.logs.size,
            "late": self._late,
            "files": {str(rank): file.describe() for rank, file in self._files.items()},
            "segment_of": {str(rank): index for rank, index in self._segment_of.items()},
            "seen": {str(rank): sorted(kinds) for rank, kinds in self._seen.items()},
            "markers": [asdict(marker) for marker in self.markers],
            "segments": [_describe_segment(segment) for segment in self.segments],
        }

    def _restore(self, columns: Mapping[str, Floats], meta: Meta) -> None:
        self._empty()
        files = {int(rank): RecordFile(self.recorder / f"rank-{rank}.jsonl") for rank in meta["files"]}
        present = {path.name for path in self.recorder.glob("rank-*.jsonl")}
        if present != {file.path.name for file in files.values()}:
            raise StaleCopy
        for rank, file in files.items():
            if not file.restore(meta["files"][str(rank)]):
                raise StaleCopy
        self._files = files
        self._copied_bytes = sum(file.offset for file in files.values())
        self._late = int(meta["late"])
        self._segment_of = {int(rank): int(index) for rank, index in meta["segment_of"].items()}
        self._seen = {int(rank): set(kinds) for rank, kinds in meta["seen"].items()}
        self.markers = [Marker(**marker) for marker in meta["markers"]]
        self.segments = [_restore_segment(record) for record in meta["segments"]]
        self.steps.restore(_part(columns, "steps:"))
        self.logs.restore(_part(columns, "logs:"), int(meta["logs"]))
        for place, rows in _part(columns, "waiting:").items():
            index, rank = map(int, place.split(":"))
            self.segments[index].waiting.add(rank, rows.reshape(-1, len(FIELDS)))

    # -- reading the files --------------------------------------------------------------------------------------------

    def refresh(self, *, ended: bool = False, between: Callable[[], None] = lambda: None) -> None:
        """Take in what was appended since the last call. `ended`: the job is over, no rank will report any more.

        `between` is called after every portion of the files (some 200 kB).
        """
        with self.lock:
            try:
                self._read_files(between)
            except Replaced:
                self._empty()
                self._read_files(between)
            for segment in self.segments:
                self._merge(segment, ended)

    def unread_bytes(self) -> int:
        """What the next `refresh` will read; waits for nobody who reads now."""
        known = dict(self._files)
        files = [known.get(rank) or RecordFile(path) for rank, path in self._paths().items()]
        return sum(file.unread_bytes() for file in files)

    @property
    def read_bytes(self) -> int:
        return sum(file.offset for file in tuple(self._files.values()))

    def take_sample(self, files: Mapping[int, RecordFile], records: Mapping[int, list[Record]]) -> None:
        """Begin with some of the records of each rank; the files stand at their ends. Sums over steps become estimates."""
        with self.lock:
            self._files = dict(files)
            self.steps.is_sample = True
            for rank in sorted(records):
                self._take_chunk(rank, records[rank])

    def _read_files(self, between: Callable[[], None]) -> None:
        for rank, path in self._paths().items():
            self._files.setdefault(rank, RecordFile(path))
        for rank, file in sorted(self._files.items()):
            for records in file.read_new():
                self._take_chunk(rank, records)
                between()

    def _paths(self) -> dict[int, Path]:
        found = {path.stem.removeprefix("rank-"): path for path in self.recorder.glob("rank-*.jsonl")}
        return {int(number): path for number, path in found.items() if number.isdigit()}

    def _take_chunk(self, rank: int, records: list[Record]) -> None:
        kinds = [str(record.get("k")) for record in records]
        if _STARTS.isdisjoint(kinds):
            self._take_group(rank, records, kinds)
            return
        begin = 0
        for index, (kind, record) in enumerate(zip(kinds, records, strict=True)):
            if kind in ("start", "train_begin") or (kind == "phase" and record.get("phase") == "importing"):
                self._take_group(rank, records[begin:index], kinds[begin:index])
                self._note_start(rank, kind, _number(record.get("t")))
                begin = index
        self._take_group(rank, records[begin:], kinds[begin:])

    def _take_group(self, rank: int, records: Sequence[Record], kinds: Sequence[str]) -> None:
        """Records of one start of the trainer; steps and logged values together, for there may be very many."""
        self._take_steps(rank, list(compress(records, map("step".__eq__, kinds))))
        if not _STEPS_AND_LOGS.issuperset(kinds):
            for kind, record in zip(kinds, records, strict=True):
                if kind not in _STEPS_AND_LOGS:
                    self._take(rank, kind, record)
        self._take_logs(rank, list(compress(records, map("log".__eq__, kinds))))

    def _take_logs(self, rank: int, records: Sequence[Record]) -> None:
        times, logged = _timed(records)
        self._files[rank].skipped += len(records) - len(logged)
        if not times:
            return
        segment = self._segment(rank, times[0])
        segment.last_at = max(segment.last_at, max(times))
        if rank != 0:
            return
        blocks = build_log_blocks(logged)
        if blocks is None:
            self.logs.extend(
                [(_whole(r.get("s")) or 0, _maybe_number(r.get("epoch")), _numbers(r.get("v"))) for r in logged]
            )
        else:
            self.logs.extend_blocks(blocks, len(logged))

    def _take_steps(self, rank: int, records: Sequence[Record]) -> None:
        rows = self._step_rows(rank, records)
        if len(rows):
            segment = self._segment(rank, float(rows[0, 1]))
            segment.waiting.add(rank, rows)
            segment.last_at = max(segment.last_at, float(rows[-1, 1]))

    def _step_rows(self, rank: int, records: Sequence[Record]) -> Floats:
        try:
            cells = chain.from_iterable(map(_STEP_CELLS, records))
            rows = np.fromiter(cells, np.float64, len(records) * len(FIELDS)).reshape(-1, len(FIELDS))
        except (KeyError, ValueError, TypeError, OverflowError):
            rows = np.array([[_number(record.get(name)) for name in FIELDS] for record in records], dtype=np.float64)
        if not len(rows):
            return rows
        usable = np.isfinite(rows[:, 0]) & np.isfinite(rows[:, 1])
        self._files[rank].skipped += int((~usable).sum())
        return rows if usable.all() else rows[usable]

    def _take(self, rank: int, kind: str, record: Record) -> None:
        at, step = _number(record.get("t")), _whole(record.get("s"))
        if not isfinite(at):
            self._files[rank].skipped += 1
            return
        segment = self._segment(rank, at)
        segment.last_at = max(segment.last_at, at)
        if kind == "start":
            segment.world_size = _whole(record.get("world_size")) or segment.world_size
        elif kind in ("train_end", "done"):
            segment.ended_ranks.add(rank)
        elif kind == "checkpoint" and step is not None:
            self._take_checkpoint(rank, segment, step, at, str(record.get("path") or ""))
        if rank == 0:
            self._take_main(kind, segment, record, at, step or 0)

    # -- segments -----------------------------------------------------------------------------------------------------

    def _segment(self, rank: int, at: float) -> Segment:
        index = self._segment_of.setdefault(rank, 0)
        while len(self.segments) <= index:
            self.segments.append(Segment(index=len(self.segments), started_at=at, first_row=self.steps.size))
        segment = self.segments[index]
        if rank == 0 and segment.first_log is None:
            segment.first_log = self.logs.size
        return segment

    def _note_start(self, rank: int, kind: str, at: float) -> None:
        """A second `start`, `train_begin` or importing of a rank is another start of the trainer."""
        seen = self._seen.setdefault(rank, set())
        if kind in seen or (kind == "phase" and seen):
            seen.clear()
            later = self.segments[self._segment_of.get(rank, 0) + 1 :]
            nearest = min(later, key=lambda segment: abs(segment.started_at - at), default=None)
            self._segment_of[rank] = len(self.segments) if nearest is None else nearest.index
        seen.add(kind)

    def _merge(self, segment: Segment, ended: bool) -> None:
        expected = self._expected(segment)
        later = self.segments[segment.index + 1 :]
        moved_on = sum(index > segment.index for index in self._segment_of.values()) >= expected
        closed = ended or moved_on or len(segment.ended_ranks) >= expected or any(map(self._is_ready, later))
        if segment.waiting.merged_to < 0:
            segment.first_row = self.steps.size
        if not segment.waiting.rows or any(other.waiting.merged_to >= 0 for other in later):
            # Rows stand in the order of segments: what a rank adds to an earlier one too late has no place.
            self._late += sum(len(rows) for parts in segment.waiting.rows.values() for rows in parts)
            segment.waiting.rows.clear()
            return
        self.steps.merge(segment.waiting, expected, closed, self._tokens_before(segment))
        if segment.waiting.merged_to >= 0:
            segment.last_step = int(segment.waiting.merged_to)

    def _expected(self, segment: Segment) -> int:
        return segment.world_size or len(self._files)

    def _is_ready(self, segment: Segment) -> bool:
        return segment.waiting.ready_to(self._expected(segment), False) > segment.waiting.merged_to

    def _tokens_before(self, segment: Segment) -> float:
        """Tokens of the run up to the step from which this segment goes on."""
        total = self.steps.column("total")
        if segment.waiting.merged_to >= 0:
            return float(total[-1])
        last = self._kept_rows()[-1:]
        return float(total[last][0]) if len(last) else 0.0

    # -- records of rank 0 --------------------------------------------------------------------------------------------

    def _take_checkpoint(self, rank: int, segment: Segment, step: int, at: float, path: str) -> None:
        parts = segment.parts.setdefault(path, set())
        if rank in parts:  # the same folder is written again
            parts.clear()
        parts.add(rank)
        if len(parts) == (segment.world_size or 1):
            begun = segment.begun.get(path)
            seconds = None if begun is None else at - begun
            self.markers.append(Marker(kind="checkpoint", step=step, at=at, text=path, seconds=seconds))

    def _take_main(self, kind: str, segment: Segment, record: Record, at: float, step: int) -> None:
        match kind:
            case "phase":
                segment.phases.append((str(record.get("phase") or ""), at))
            case "start":
                segment.versions = _texts(record.get("versions"))
            case "train_begin":
                self._take_train_begin(segment, record, at)
            case "eval_begin":
                segment.begun["evaluation"] = at
            case "eval_end":
                begun = segment.begun.pop("evaluation", at)
                self.markers.append(Marker(kind="evaluation", step=step, at=at, seconds=at - begun))
            case "save_begin":
                segment.begun[str(record.get("path") or "")] = at
            case "request":
                self.markers.append(Marker(kind=str(record.get("what") or "request"), step=step, at=at))
            case "train_end":
                segment.ended_at, segment.stopped = at, record.get("stopped") is True
                self.markers.append(Marker(kind="end", step=step, at=at, text="stopped" if segment.stopped else ""))
            case "done":
                segment.ended_at = segment.ended_at or at
                segment.ok, segment.error = record.get("ok") is True, str(record.get("error") or "")

    def _take_train_begin(self, segment: Segment, record: Record, at: float) -> None:
        segment.begin_step = _whole(record.get("step")) or 0
        segment.max_steps = _whole(record.get("max_steps"))
        segment.epochs = _maybe_number(record.get("epochs"))
        segment.world_size = _whole(record.get("world_size")) or segment.world_size
        segment.trainable_parameters = _whole(record.get("trainable_parameters"))
        segment.all_parameters = _whole(record.get("all_parameters"))
        segment.training_since = at
        if segment.begin_step or segment.index:
            kind = "resume" if segment.begin_step else "restart"  # the same folder from its first step again
            self.markers.append(Marker(kind=kind, step=segment.begin_step, at=at))

    # -- curves -------------------------------------------------------------------------------------------------------

    def mark(self) -> Mark:
        """The end of what has been taken in."""
        with self.lock:
            cuts = sum(segment.begin_step is not None for segment in self.segments[1:])
            return Mark(
                load=self.load, rows=self.steps.size, logs=self.logs.size, markers=len(self.markers), cuts=cuts
            )  # fmt: skip

    def names(self) -> list[str]:
        """Names of the series that have values, `rank_seconds.<R>` last."""
        with self.lock:
            derived = [key for key in DERIVED if self.steps.has(key)]
            return [*sorted(self.logs.names), *derived, *self.steps.rank_keys()]

    def curves(self, keys: Sequence[str]) -> dict[str, Curve]:
        """Whole curves of those `keys` that exist, at full resolution."""
        with self.lock:
            kept = self._kept_rows()
            whole = kept if len(kept) < self.steps.size else slice(None)
            found: dict[str, Curve] = {}
            for key in keys:
                if key in self.logs.names:
                    found[key] = self._logged_curve(self.logs.names[key])
                elif self.steps.has(key):
                    curve = self.steps.curve(key, slice(None))
                    found[key] = Curve(x=curve.x[whole], y=curve.y[whole])
            return found

    def step_times(self) -> Curve:
        """When (Unix seconds) each step of the present line was done."""
        with self.lock:
            kept = self._kept_rows()
            return Curve(x=self.steps.column("step")[kept], y=self.steps.column("at")[kept])

    def changes(self, since: Mark, until: Mark) -> dict[str, Curve] | None:
        """Points between two marks, by key; None when `since` belongs to another reading or steps were cut off since."""
        with self.lock:
            if (since.load, since.cuts) != (self.load, until.cuts) or until.load != self.load:
                return None
            rows = slice(since.rows, until.rows)
            found: dict[str, Curve] = {}
            if until.rows > since.rows:
                keys = [*DERIVED, *self.steps.rank_keys()]
                curves = {key: self.steps.curve(key, rows) for key in keys}
                found = {key: curve for key, curve in curves.items() if np.isfinite(curve.y).any()}
            for name, logged in self.logs.names.items() if until.logs > since.logs else ():
                part = slice(logged.first_of(since.logs), logged.first_of(until.logs))
                if part.stop > part.start:
                    found[name] = build_curve(logged.x.values[part], logged.y.values[part], recorded=True)
            return found

    def checkpoint_parts(self) -> dict[str, tuple[int, int]]:
        """By path: how many ranks have written their part of a checkpoint, and how many have to."""
        with self.lock:
            found: dict[str, tuple[int, int]] = {}
            for segment in self.segments:
                for path in [*segment.begun, *segment.parts]:
                    if path != "evaluation":
                        found[path] = (len(segment.parts.get(path, ())), segment.world_size or 1)
            return found

    def progress(self) -> Progress:
        """Where the newest start stands."""
        with self.lock:
            if not self.segments:
                return Progress()
            segment = self.segments[-1]
            rows = slice(max(segment.first_row, self.steps.size - RECENT_STEPS), None)
            total = self.steps.column("total")
            counted = total[np.isfinite(total[-RECENT_STEPS:]).nonzero()[0] - min(RECENT_STEPS, len(total))]
            pauses = [
                marker for marker in self.markers if marker.at >= segment.started_at and marker.seconds is not None
            ]
            return Progress(
                segment=segment,
                step=segment.begin_step if segment.last_step is None else segment.last_step,
                seconds=self.steps.column("seconds")[rows],
                tokens=self.steps.column("tokens")[rows],
                last_step_at=float(self.steps.column("at")[-1]) if self.steps.size > segment.first_row else None,
                stride=_stride(self.steps.column("step")[rows]),
                mean_tokens_per_second=self._mean_speed(segment),
                total_tokens=float(counted[-1]) if len(counted) else None,
                loss=_last(self.logs.values("loss")),
                epoch=_last(self.logs.values("epoch")),
                pauses=tuple(pauses),
            )

    def _mean_speed(self, segment: Segment) -> float | None:
        seconds, tokens = (
            self.steps.column("seconds")[segment.first_row :],
            self.steps.column("tokens")[segment.first_row :],
        )
        counted = np.isfinite(tokens)
        spent = float(seconds[counted].sum())
        return float(tokens[counted].sum()) / spent if spent > 0 else None

    @property
    def memory_bytes(self) -> int:
        return self.steps.memory_bytes + self.logs.memory_bytes

    @property
    def skipped(self) -> int:
        """Lines and records that could not be used: torn, not numbers, or of a start that was over already."""
        return self._late + sum(file.skipped for file in self._files.values())

    def _logged_curve(self, logged: Logged) -> Curve:
        x, y = logged.x.values, logged.y.values
        if len(self.segments) > 1:
            firsts = [segment.first_log for segment in self.segments]
            kept = self._kept(x, [len(x) if first is None else logged.first_of(first) for first in firsts])
            x, y = x[kept], y[kept]
        order = newest_of_each(x)
        return build_curve(*((x, y) if order is None else (x[order], y[order])), recorded=True)

    def _kept_rows(self) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        return self._kept(self.steps.column("step"), [segment.first_row for segment in self.segments])

    def _kept(self, x: Floats, firsts: list[int]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """Positions of `x` on the line that led to the present state; `firsts`: where each segment starts in `x`."""
        kept: list[np.ndarray[tuple[int], np.dtype[np.intp]]] = [np.arange(0)]
        end, highest = len(x), np.inf
        for segment, first in zip(reversed(self.segments), reversed(firsts), strict=True):
            first = min(first, end)
            until = first + int(np.searchsorted(x[first:end], highest, side="right"))
            kept.append(np.arange(first, until))
            end = first
            if segment.begin_step is not None:
                highest = min(highest, segment.begin_step)
        return np.concatenate(kept[::-1])


def _describe_segment(segment: Segment) -> Meta:
    kept = {name: getattr(segment, name) for name in _SEGMENT_FIELDS}
    merged = {"merged_to": segment.waiting.merged_to, "silent": sorted(segment.waiting.silent)}
    parts = {path: sorted(ranks) for path, ranks in segment.parts.items()}
    return kept | {"waiting": merged, "ended_ranks": sorted(segment.ended_ranks), "parts": parts}


def _restore_segment(record: Meta) -> Segment:
    kept = {name: record[name] for name in _SEGMENT_FIELDS} | {"phases": [(name, at) for name, at in record["phases"]]}
    waiting = Waiting(merged_to=record["waiting"]["merged_to"], silent=set(record["waiting"]["silent"]))
    parts = {path: set(ranks) for path, ranks in record["parts"].items()}
    return Segment(**kept, waiting=waiting, ended_ranks=set(record["ended_ranks"]), parts=parts)


_SEGMENT_FIELDS = tuple(each.name for each in fields(Segment) if each.name not in ("waiting", "ended_ranks", "parts"))


def _part(columns: Mapping[str, Floats], prefix: str) -> dict[str, Floats]:
    return {name.removeprefix(prefix): values for name, values in columns.items() if name.startswith(prefix)}


def _stride(steps: Floats) -> float:
    return float(np.median(np.diff(steps))) if len(steps) > 1 else 1.0


def _timed(records: Sequence[Record]) -> tuple[Sequence[float], Sequence[Record]]:
    """The records that tell their time, and those times."""
    given = [record.get("t") for record in records]
    if set(map(type, given)) == {float} and isfinite(sum(given)):  # type: ignore[arg-type]
        return given, records  # type: ignore[return-value]
    timed = [(at, record) for at, record in zip(map(_number, given), records, strict=True) if isfinite(at)]
    return [at for at, _ in timed], [record for _, record in timed]


def _last(values: Floats) -> float | None:
    return float(values[-1]) if len(values) else None


def _number(value: object) -> float:
    """A number of a record; NaN for null, text and whatever else is no number."""
    found = _maybe_number(value)
    return float("nan") if found is None else found


def _maybe_number(value: object) -> float | None:
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _numbers(value: object) -> dict[str, float]:
    if not isinstance(value, dict):
        return {}
    named = {str(name): _maybe_number(number) for name, number in value.items() if name != "epoch"}
    return {name: number for name, number in named.items() if number is not None}


def _texts(value: object) -> dict[str, str]:
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, dict) else {}
