"""Readings in, history in three tiers out: telemetry.sqlite of one host. Written by the worker's sampler only.

Each device has, per tier, samples in slots of the tier's step. A sample is one value per key and statistic (the finest tier
has the value itself, coarser ones mean, least and greatest). Fresh samples are rows of `tail`; when a window is over its rows
become one compressed column-wise chunk. NaN is "missing" and survives as such: an average over nothing is a gap, not 0.
"""

from __future__ import annotations

import json
import math
import sqlite3
import struct
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.errors import StoreFault

Matrix = npt.NDArray[np.float32]
Vector = npt.NDArray[np.float64]

KEYS: tuple[str, ...] = (
    "gfx_activity_percent",
    "mem_activity_percent",
    "vram_used_bytes",
    "vram_total_bytes",
    "socket_power_watts",
    "power_cap_watts",
    "edge_celsius",
    "hotspot_celsius",
    "memory_celsius",
    "gfx_clock_mhz",
    "mem_clock_mhz",
    "ecc_correctable",
    "ecc_uncorrectable",
    "power_violation_percent",
    "thermal_violation_percent",
    "prochot_violation_percent",
    "vr_violation_percent",
    "hbm_violation_percent",
    "energy_joules",
    "pcie_gts",
    "gtt_used_bytes",
    "cpu_percent",
    "ram_used_bytes",
    "shm_used_bytes",
    "network_received_bytes_per_second",
    "network_sent_bytes_per_second",
    "disk_read_bytes_per_second",
    "disk_written_bytes_per_second",
)
"""Column order of stored samples. Append only: older chunks have fewer columns."""
HOST = "host"
"""The name under which CPU, RAM and network are stored beside the devices."""

_VERSION = 1
_SCHEMA = """
create table if not exists devices (number integer primary key, name text not null unique);
create table if not exists tail (tier integer, device integer, slot integer, sample blob not null,
    primary key (tier, device, slot)) without rowid;
create table if not exists chunks (tier integer, device integer, slot integer, data blob not null,
    primary key (tier, device, slot)) without rowid;
create table if not exists state (name text primary key, at real not null, document text not null);
create table if not exists clearings (device text primary key, at real not null);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """`step_seconds` between samples, kept for `keep_seconds`; a chunk holds `window` samples."""

    step_seconds: int
    keep_seconds: int
    window: int
    statistics: int = 3
    """3: mean, least, greatest. 1 (the finest tier): the value."""


TIERS: tuple[Tier, ...] = (
    Tier(step_seconds=1, keep_seconds=3600, window=300, statistics=1),
    Tier(step_seconds=10, keep_seconds=86_400, window=360),
    Tier(step_seconds=60, keep_seconds=30 * 86_400, window=360),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """One key of one device: times (Unix seconds, slot starts), mean, least and greatest value; NaN is a gap.

    `step_seconds` is the distance of the samples before decimation.
    """

    step_seconds: int
    times: Vector
    mean: Vector
    low: Vector
    high: Vector


@dataclass(slots=True)
class _Window:
    """Samples of the tier below that make up the next sample of a tier."""

    slot: int = -1
    rows: list[Matrix] = field(default_factory=list)


class TelemetryStore:
    """Open for one process; safe between its threads. Raises StoreFault when the disk refuses."""

    def __init__(self, path: Path, tiers: Sequence[Tier] = TIERS) -> None:
        self.path, self.tiers = path, tuple(tiers)
        self._local = threading.local()
        self._numbers: dict[str, int] = {}
        self._pending: dict[tuple[int, int], _Window] = {}
        self._folded: dict[tuple[int, int], int] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = self._connection()
            version = int(connection.execute("pragma user_version").fetchone()[0])
            if version > _VERSION:
                raise StoreFault(
                    f"{path} was written by a newer Tunedeck (format {version}, this one knows {_VERSION})."
                )
            connection.executescript(_SCHEMA)
            connection.execute(f"pragma user_version = {_VERSION}")
        except (OSError, sqlite3.Error) as error:
            raise StoreFault(f"Cannot open {path}: {error}.") from error

    # --- writing (the sampler) ---

    def append(
        self, at: float, samples: Mapping[str, Mapping[str, float | None]], documents: Mapping[str, str]
    ) -> None:
        """One round: `samples` are device -> key -> value, `documents` named JSON texts, all in one transaction."""
        connection = self._connection()
        try:
            connection.execute("begin immediate")
            for name, values in samples.items():
                self._append_sample(connection, self._number(connection, name), int(at), build_sample(values))
            for name, document in documents.items():
                connection.execute("insert or replace into state values (?, ?, ?)", (name, at, document))
            connection.execute("commit")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("rollback")
            raise StoreFault(f"Cannot write telemetry to {self.path}: {error}.") from error

    def _append_sample(self, connection: sqlite3.Connection, device: int, at: int, row: Matrix) -> None:
        self._put(connection, 0, device, at // self.tiers[0].step_seconds, row)
        for level in range(1, len(self.tiers)):
            slot = at // self.tiers[level].step_seconds
            window = self._pending.get((level, device))
            if window is None:
                window = self._pending[(level, device)] = self._reload(connection, level, device, at)
            if window.slot != slot:
                if window.rows:
                    self._put(connection, level, device, window.slot, aggregate_samples(window.rows))
                window.slot, window.rows = slot, []
            window.rows.append(row)

    def _reload(self, connection: sqlite3.Connection, level: int, device: int, at: int) -> _Window:
        """After a restart: the fine samples of the running slot, before `at`, are still in the tail."""
        step, fine = self.tiers[level].step_seconds, self.tiers[0].step_seconds
        rows = connection.execute(
            "select sample from tail where tier = ? and device = ? and slot >= ? and slot < ?",
            (fine, device, at // step * step // fine, at // fine),
        ).fetchall()
        return _Window(slot=at // step, rows=[_unpack(row[0], 1) for row in rows])

    def _put(self, connection: sqlite3.Connection, level: int, device: int, slot: int, row: Matrix) -> None:
        tier = self.tiers[level]
        connection.execute(
            "insert or replace into tail values (?, ?, ?, ?)", (tier.step_seconds, device, slot, row.tobytes())
        )
        window = slot // tier.window
        if self._folded.get((level, device), window) != window:
            self._fold(connection, tier, device, window * tier.window)
            self._drop_old(connection, tier, device, slot)
        self._folded[(level, device)] = window

    def _fold(self, connection: sqlite3.Connection, tier: Tier, device: int, before: int) -> None:
        """Tail rows of windows that are over become chunks."""
        where = "tier = ? and device = ? and slot < ?"
        rows = connection.execute(
            f"select slot, sample from tail where {where}", (tier.step_seconds, device, before)
        ).fetchall()
        windows: dict[int, list[tuple[int, bytes]]] = {}
        for slot, sample in rows:
            windows.setdefault(slot // tier.window, []).append((slot, sample))
        for window, samples in windows.items():
            data = _pack_chunk(samples, window * tier.window, tier)
            connection.execute(
                "insert or replace into chunks values (?, ?, ?, ?)",
                (tier.step_seconds, device, window * tier.window, data),
            )
        connection.execute(f"delete from tail where {where}", (tier.step_seconds, device, before))

    def _drop_old(self, connection: sqlite3.Connection, tier: Tier, device: int, slot: int) -> None:
        oldest = slot - tier.keep_seconds // tier.step_seconds - tier.window
        connection.execute(
            "delete from chunks where tier = ? and device = ? and slot < ?", (tier.step_seconds, device, oldest)
        )

    def _number(self, connection: sqlite3.Connection, name: str) -> int:
        if name not in self._numbers:
            connection.execute("insert or ignore into devices (name) values (?)", (name,))
            found = connection.execute("select number from devices where name = ?", (name,)).fetchone()
            self._numbers[name] = int(found[0])
        return self._numbers[name]

    # --- reading (any process) ---

    def load_state(self, name: str) -> tuple[float, object] | None:
        """When the sampler wrote this state, and the state; None when it never did."""
        row = self._query("select at, document from state where name = ?", (name,))
        return (float(row[0][0]), json.loads(row[0][1])) if row else None

    def devices(self) -> tuple[str, ...]:
        """Names that have any history."""
        return tuple(str(row[0]) for row in self._query("select name from devices order by name", ()))

    def load_history(
        self, device: str, key: str, start: float, end: float, points: int = 1000, now: float | None = None
    ) -> History:
        """`key` of `device` between two times at about `points` points, least and greatest kept for each.

        The coarsest tier that still gives `points` points is read, or a coarser one when the span is older than it is kept.
        Raises KeyError for an unknown key.
        """
        column = KEYS.index(key) if key in KEYS else None
        if column is None:
            raise KeyError(key)
        tier = self._choose_tier(start, end, points, end if now is None else now)
        number = self._query("select number from devices where name = ?", (device,))
        slots, values = self._load_column(int(number[0][0]), tier, column, start, end) if number else _EMPTY
        times = slots.astype(np.float64) * tier.step_seconds
        return _decimate(tier.step_seconds, *_with_gaps(times, values, tier.step_seconds), points)

    def _choose_tier(self, start: float, end: float, points: int, now: float) -> Tier:
        wanted = max(1.0, (end - start) / max(1, points))
        kept = [tier for tier in self.tiers if start >= now - tier.keep_seconds - tier.step_seconds] or [self.tiers[-1]]
        coarse = [tier for tier in kept if tier.step_seconds <= wanted]
        return coarse[-1] if coarse else kept[0]

    def _load_column(
        self, device: int, tier: Tier, column: int, start: float, end: float
    ) -> tuple[npt.NDArray[np.int64], Matrix]:
        first, last = math.ceil(start / tier.step_seconds), math.floor(end / tier.step_seconds)
        parts: list[tuple[npt.NDArray[np.int64], Matrix]] = []
        for slot, data in self._query(
            "select slot, data from chunks where tier = ? and device = ? and slot > ? and slot <= ? order by slot",
            (tier.step_seconds, device, first - tier.window, last),
        ):
            parts.append(_unpack_column(data, int(slot), column))
        tail = self._query(
            "select slot, sample from tail where tier = ? and device = ? and slot between ? and ? order by slot",
            (tier.step_seconds, device, first, last),
        )
        if tail:
            parts.append(_tail_column(tail, tier, column))
        if not parts:
            return _EMPTY
        slots, values = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts], axis=1)
        inside = (slots >= first) & (slots <= last)
        # A chunk has places for its whole window: those before the first sample are no gap.
        inside &= np.logical_or.accumulate(~np.isnan(values[0])) | (slots >= (int(tail[0][0]) if tail else last))
        return slots[inside], values[:, inside]

    # --- clearing a card's errors (the only thing a page writes here, through the API) ---

    def request_clearing(self, device: str, at: float) -> None:
        """A person says that this card may be leased again; the sampler acts on it in its next round."""
        connection = self._connection()
        try:
            connection.execute("insert or replace into clearings values (?, ?)", (device, at))
        except sqlite3.Error as error:
            raise StoreFault(f"Cannot write to {self.path}: {error}.") from error

    def take_clearings(self) -> tuple[str, ...]:
        """Devices that were cleared since the last call."""
        rows = self._query("select device from clearings", ())
        for row in rows:
            self._query("delete from clearings where device = ?", row)
        return tuple(str(row[0]) for row in rows)

    def _query(self, statement: str, values: Iterable[Any]) -> list[tuple[Any, ...]]:
        try:
            return self._connection().execute(statement, tuple(values)).fetchall()
        except sqlite3.Error as error:
            raise StoreFault(f"Cannot read {self.path}: {error}.") from error

    def _connection(self) -> sqlite3.Connection:
        existing: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if existing is not None:
            return existing
        connection = sqlite3.connect(self.path, timeout=10, isolation_level=None)
        connection.execute("pragma journal_mode = wal")
        # Without a flush per second: a power cut may cost the last seconds of telemetry, never the file.
        connection.execute("pragma synchronous = normal")
        self._local.connection = connection
        return connection


# --- samples and chunks -----------------------------------------------------------------------------------------------

_EMPTY: tuple[npt.NDArray[np.int64], Matrix] = (np.empty(0, np.int64), np.empty((3, 0), np.float32))
_HEAD = struct.Struct("<HHH")


def build_sample(values: Mapping[str, float | None]) -> Matrix:
    """One sample in column order, shape (1, keys)."""
    cells = [values.get(key) for key in KEYS]
    return np.array([[math.nan if cell is None else cell for cell in cells]], dtype=np.float32)


def aggregate_samples(rows: Sequence[Matrix]) -> Matrix:
    """Mean, least and greatest over the rows that have a value; NaN where none has. Shape (3, keys)."""
    width = max(row.shape[1] for row in rows)
    stack = np.full((len(rows), width), np.nan, dtype=np.float32)
    for number, row in enumerate(rows):
        stack[number, : row.shape[1]] = row[0]
    known = ~np.isnan(stack)
    counts = known.sum(axis=0)
    total = np.where(known, stack, 0).sum(axis=0, dtype=np.float64)
    none = counts == 0
    mean = np.where(none, np.nan, total / np.maximum(counts, 1))
    low = np.where(none, np.nan, np.where(known, stack, np.inf).min(axis=0))
    high = np.where(none, np.nan, np.where(known, stack, -np.inf).max(axis=0))
    return np.stack([mean, low, high]).astype(np.float32)


def _unpack(sample: bytes, statistics: int) -> Matrix:
    return np.frombuffer(sample, dtype=np.float32).reshape(statistics, -1)


def _pack_chunk(samples: Sequence[tuple[int, bytes]], start: int, tier: Tier) -> bytes:
    """Column by column, so that a reader of one key unpacks that key alone: each column is compressed for itself."""
    matrices = [(slot - start, _unpack(sample, tier.statistics)) for slot, sample in samples]
    width = max(matrix.shape[1] for _, matrix in matrices)
    block = np.full((width, tier.statistics, tier.window), np.nan, dtype=np.float32)
    for place, matrix in matrices:
        block[: matrix.shape[1], :, place] = matrix.T
    columns = [b"" if np.isnan(column).all() else zlib.compress(_shuffle(column), 6) for column in block]
    lengths = struct.pack(f"<{width}I", *(len(column) for column in columns))
    return _HEAD.pack(width, tier.statistics, tier.window) + lengths + b"".join(columns)


def _shuffle(column: Matrix) -> bytes:
    """Bytes of equal weight side by side: neighbouring readings share their upper bytes and compress well."""
    return np.ascontiguousarray(column.view(np.uint8).reshape(-1, 4).T).tobytes()


def _unpack_column(data: bytes, slot: int, column: int) -> tuple[npt.NDArray[np.int64], Matrix]:
    width, statistics, window = _HEAD.unpack_from(data)
    slots = np.arange(slot, slot + window, dtype=np.int64)
    lengths = struct.unpack_from(f"<{width}I", data, _HEAD.size)
    if column >= width or not lengths[column]:
        return slots, np.full((3, window), np.nan, dtype=np.float32)
    at = _HEAD.size + 4 * width + sum(lengths[:column])
    raw = np.frombuffer(zlib.decompress(data[at : at + lengths[column]]), dtype=np.uint8)
    values = np.ascontiguousarray(raw.reshape(4, -1).T).view(np.float32).reshape(statistics, window)
    return slots, values if statistics == 3 else np.repeat(values, 3, axis=0)


def _tail_column(rows: Sequence[tuple[Any, ...]], tier: Tier, column: int) -> tuple[npt.NDArray[np.int64], Matrix]:
    slots = np.array([row[0] for row in rows], dtype=np.int64)
    values = np.full((3, len(rows)), np.nan, dtype=np.float32)
    for number, row in enumerate(rows):
        sample = _unpack(row[1], tier.statistics)
        if column < sample.shape[1]:
            values[:, number] = sample[:, column]
    return slots, values


def _with_gaps(times: Vector, values: Matrix, step: int) -> tuple[Vector, Matrix]:
    """A missing sample between two others (the worker was away) gets a NaN, so that a chart draws a gap and no line."""
    holes = np.flatnonzero(np.diff(times) > 1.5 * step)
    if not holes.size:
        return times, values
    return np.insert(times, holes + 1, times[holes] + step), np.insert(values, holes + 1, np.nan, axis=1)


def _decimate(step: int, times: Vector, values: Matrix, points: int) -> History:
    """At most `points` points: mean of means, least of least, greatest of greatest; a bucket without a value stays a gap."""
    count = times.size
    mean, low, high = (values[row].astype(np.float64) for row in range(3))
    if count > points > 0:
        edges = np.linspace(0, count, points + 1).astype(np.int64)
        starts = edges[:-1]
        known = ~np.isnan(mean)
        counts = np.add.reduceat(known.astype(np.int64), starts)
        with np.errstate(invalid="ignore"):
            mean = np.where(
                counts > 0, np.add.reduceat(np.where(known, mean, 0.0), starts) / np.maximum(counts, 1), np.nan
            )
        low = np.where(counts > 0, np.minimum.reduceat(np.where(known, low, np.inf), starts), np.nan)
        high = np.where(counts > 0, np.maximum.reduceat(np.where(known, high, -np.inf), starts), np.nan)
        times = times[starts]
    return History(step_seconds=step, times=times, mean=mean, low=low, high=high)
