"""Recorder folders in, their runs out: kept while there is room, read beside the page when they are long."""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backend.store.series import RunSeries
from backend.store.series_sample import sample_run

QUICK_BYTES = 24 << 20
"""Read while the asker waits: a quarter of a second."""
HEAD_START_SECONDS = 1.0
"""For the page that shows the sample: it is drawn before the thread takes its share of the processor."""
AT_ONCE = 1
"""Runs read at the same time: more would not be sooner, and each holds memory."""
SAMPLES_KEPT = 8
"""Some megabytes each; one that was dropped is taken again when it is asked for."""
PAUSE_SECONDS = 0.0003
"""After every portion, for the threads that answer requests: without it they would wait for the interpreter."""

log = logging.getLogger(__name__)


def give_back_memory() -> None:
    """What reading has freed goes back to the system, where the C library can be told so (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What can be shown of a run now. `share` (0..1): so much has been read, `run` is a sample; None: `run` is all of it."""

    run: RunSeries
    share: float | None = None


class Reading:
    """A long run on its way in, by a thread of its own; a sample of it until then."""

    def __init__(self, run: RunSeries, *, ended: bool, pause: Callable[[], None], begin_at: float) -> None:
        """`begin_at`: not before this time of the monotonic clock."""
        self.run = run
        self.begin_at = begin_at
        self.over = threading.Event()
        self._ended = ended
        self._pause = pause
        self._whole = run.read_bytes + run.unread_bytes()
        self._lock = threading.Lock()
        self._sample: RunSeries | None = None

    @property
    def share(self) -> float:
        return min(0.99, round(self.run.read_bytes / max(1, self._whole), 2))

    def sample(self) -> RunSeries:
        with self._lock:  # the first asker takes it, those who come meanwhile get the same
            if self._sample is None:
                self._sample = sample_run(self.run.recorder)
            return self._sample

    def drop_sample(self) -> None:
        with self._lock:
            self._sample = None

    def read(self) -> None:
        self.run.refresh(ended=self._ended, between=self._pause)


class SeriesCache:
    """RunSeries by recorder folder, the least recently used dropped above `budget_bytes` of columns."""

    def __init__(
        self,
        budget_bytes: int = 128 << 20,
        *,
        copies: Path | None = None,
        quick_bytes: int = QUICK_BYTES,
        pause: Callable[[], None] = lambda: time.sleep(PAUSE_SECONDS),
        head_start: float = HEAD_START_SECONDS,
    ) -> None:
        """`copies`: folder for copies of what was read; None: every run is read from its files.

        More than `quick_bytes` are read by a thread that begins after `head_start` seconds and makes a `pause` after every
        portion.
        """
        self.budget_bytes = budget_bytes
        self._quick_bytes, self._pause, self._head_start = quick_bytes, pause, head_start
        self.copies = copies
        self._runs: OrderedDict[Path, RunSeries] = OrderedDict()
        self._readings: dict[Path, Reading] = {}
        self._failed: set[Path] = set()
        """Read by whoever asks, who is told the reason."""
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._queue: deque[Reading] = deque()
        self._sampled: list[Reading] = []
        """The last one asked for first."""
        self._threads = 0

    def open(self, recorder: Path, *, ended: bool = False) -> RunSeries:
        """All that the run has recorded until now, however long that takes."""
        run = self._get(recorder)
        reading = self._reading(run, ended=ended)
        run.refresh(ended=ended)  # behind the thread, or ahead of it while that waits for its turn
        if reading is not None:
            self._finish(reading)
        self._keep(run, ended=ended)
        return run

    def look(self, recorder: Path, *, ended: bool = False) -> Look:
        """The run as `open` gives it where that is quick, else a sample of it, for as long as a thread reads the rest."""
        reading = self._reading(self._get(recorder), ended=ended)
        if reading is None:
            return Look(run=self.open(recorder, ended=ended))
        sample = reading.sample()
        self._drop_samples(reading)
        sample.refresh(ended=ended)
        return Look(run=sample, share=reading.share)

    def _reading(self, run: RunSeries, *, ended: bool) -> Reading | None:
        """What is under way, or has to be."""
        much = run.unread_bytes() > self._quick_bytes
        with self._lock:
            reading = self._readings.get(run.recorder)
            # Asked again: the thread may have come to its end since.
            if reading is None and much and run.recorder not in self._failed and run.unread_bytes() > self._quick_bytes:
                reading = Reading(run, ended=ended, pause=self._pause, begin_at=time.monotonic() + self._head_start)
                self._readings[run.recorder] = reading
                self._queue.append(reading)
                if self._threads < AT_ONCE:
                    self._threads += 1
                    threading.Thread(target=self._read_queued, name="reading runs", daemon=True).start()
            return reading

    def _get(self, recorder: Path) -> RunSeries:
        with self._lock:
            run = self._runs.pop(recorder, None) or self._first(recorder)
            self._runs[recorder] = run
            self._make_room()
            return run

    def _make_room(self) -> None:
        used = sum(run.memory_bytes for run in self._runs.values())
        for recorder, run in list(self._runs.items())[:-1]:
            if used <= self.budget_bytes:
                return
            if recorder not in self._readings:
                del self._runs[recorder]
                used -= run.memory_bytes

    def _first(self, recorder: Path) -> RunSeries:
        run = RunSeries(recorder)
        if self.copies is not None:
            run.load_saved(self.copies)
        return run

    def _drop_samples(self, newest: Reading) -> None:
        with self._lock:
            self._sampled = [newest, *(each for each in self._sampled if each is not newest)]
            self._sampled, dropped = self._sampled[:SAMPLES_KEPT], self._sampled[SAMPLES_KEPT:]
        for reading in dropped:
            reading.drop_sample()
        if dropped:
            give_back_memory()

    def _read_queued(self) -> None:
        while (reading := self._next()) is not None:
            self._read(reading)

    def _next(self) -> Reading | None:
        with self._lock:
            if self._queue:
                return self._queue.popleft()
            self._threads -= 1
            return None

    def _read(self, reading: Reading) -> None:
        recorder = reading.run.recorder
        reading.over.wait(max(0.0, reading.begin_at - time.monotonic()))
        try:
            reading.read()
            self._finish(reading)
            self._save(reading.run, ended=True)
            give_back_memory()
        except Exception:
            log.exception("reading %s", recorder)
            self._failed.add(recorder)
            self._finish(reading)

    def _finish(self, reading: Reading) -> None:
        with self._lock:
            if self._readings.get(reading.run.recorder) is reading:
                del self._readings[reading.run.recorder]
            self._sampled = [each for each in self._sampled if each is not reading]
        reading.over.set()

    def _keep(self, run: RunSeries, *, ended: bool) -> None:
        """Opened faster next time. Of a living run a thread writes the copy: its readers wait for nothing."""
        if self.copies is None or not run.needs_copy(ended=ended):
            return
        if ended:
            self._save(run, ended=True)
        else:
            threading.Thread(target=self._save, args=(run,), name="copying a run", daemon=True).start()

    def _save(self, run: RunSeries, *, ended: bool = False) -> None:
        with self._saving:
            if self.copies is not None and run.needs_copy(ended=ended):
                run.save(self.copies)
