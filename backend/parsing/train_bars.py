"""All progress bars of a console into the training step: which bar counts optimizer steps, and how far it came."""

from __future__ import annotations

import re
from dataclasses import dataclass

from backend.parsing.progress import Bar

_TRAIN_DESC = re.compile(r"^(?:train|steps?\b|epochs?\b|iter|训练)", re.IGNORECASE)
_DATA_DESC = re.compile(
    r"token|convert|map\b|filter|generat|packing|preprocess|format|resolving|download|fetch|saving|writing|casting|flatten",
    re.IGNORECASE,
)
_WORKERS = re.compile(r"num_proc=(\d+)")
_MAX_TOTALS = 64


@dataclass(slots=True)
class _Candidate:
    done: int
    elapsed: float = 0.0
    nested: int = 0
    rows: int = 0
    """Training dicts that were printed while this bar was the last one."""
    seconds_per_item: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseBar:
    """The last state of a bar that counts examples (tokenizing, converting ...)."""

    desc: str
    done: int
    total: int
    elapsed: float
    workers: int | None


class TrainBars:
    """Takes every bar in order. `total` given by the trainer's own header wins over guessing."""

    def __init__(self) -> None:
        self.expected_total: int | None = None
        self.evaluating = False
        self.data_bar: PhaseBar | None = None
        self.loading_bar = False
        self._candidates: dict[int, _Candidate] = {}
        self._last_total: int | None = None

    def take(self, bar: Bar, *, nested: bool) -> bool:
        """True when the bar may count training steps. `nested`: the terminal moves up after it (a bar inside a bar)."""
        if bar.desc and not _TRAIN_DESC.match(bar.desc) and not any("loss" in name for name in bar.values):
            self._take_described(bar)
            return False
        candidate = self._candidates.get(bar.total)
        if candidate is None:
            if len(self._candidates) >= _MAX_TOTALS:
                return False
            candidate = self._candidates[bar.total] = _Candidate(bar.done)
        candidate.nested += nested or (self.evaluating and bar.total != self.expected_total)
        candidate.done = bar.done
        candidate.elapsed = max(candidate.elapsed, bar.elapsed or 0.0)
        if bar.done < bar.total:  # a finished bar shows the mean, pauses included
            candidate.seconds_per_item = bar.seconds_per_item or candidate.seconds_per_item
        if not candidate.nested:
            self.evaluating = False
            self._last_total = bar.total
        return not candidate.nested

    def note_row(self) -> None:
        """A training dict was printed: the bar before it is the training bar."""
        if self._last_total is not None:
            self._candidates[self._last_total].rows += 1

    @property
    def total(self) -> int | None:
        """Planned steps, None when no bar counts them."""
        if self.expected_total is not None:
            return self.expected_total
        plain = {total: one for total, one in self._candidates.items() if not one.nested}
        if not plain:
            return None
        return max(plain, key=lambda total: (plain[total].rows, plain[total].elapsed, total))

    @property
    def step(self) -> int | None:
        """Last step that the training bar showed."""
        chosen = self._chosen()
        return chosen.done if chosen else None

    @property
    def seconds_per_step(self) -> float | None:
        """What the training bar last showed, in seconds a step."""
        chosen = self._chosen()
        return chosen.seconds_per_item if chosen else None

    @property
    def elapsed(self) -> float | None:
        """Seconds on the training bar."""
        chosen = self._chosen()
        return chosen.elapsed if chosen else None

    def _chosen(self) -> _Candidate | None:
        if len(self._candidates) == 1 and self.expected_total is None:  # the usual case, asked for at each bar
            (only,) = self._candidates.values()
            return None if only.nested else only
        total = self.total
        return self._candidates.get(total) if total is not None else None

    def _take_described(self, bar: Bar) -> None:
        if bar.desc.lower().startswith("loading checkpoint") or "shards" in bar.desc:
            self.loading_bar = True
        elif _DATA_DESC.search(bar.desc):
            workers = _WORKERS.search(bar.desc)
            self.data_bar = PhaseBar(
                desc=bar.desc, done=bar.done, total=bar.total, elapsed=bar.elapsed or 0.0,
                workers=int(workers[1]) if workers else None,
            )  # fmt: skip


def phase_of_bar(desc: str) -> str | None:
    """The phase that a described bar belongs to."""
    if desc.startswith(("Running tokenizer", "Converting format", "Tokeniz")):
        return "tokenizing"
    if desc.startswith(("Loading checkpoint", "Loading weights")):
        return "loading_model"
    return "loading_data" if desc.startswith(("Generating", "Downloading data", "Resolving data")) else None
