"""Facts about one rank in, one JSON line a record out (docs/contracts.md, "Recorder"). Standard library only."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path


class RecordWriter:
    """Appends to `recorder/rank-R.jsonl`, one `write` a record, so that a kill loses at most the line being written.

    A failing write never reaches the training: it is said once on stderr, and the next record is tried again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self._torn = False
        self._warned = False
        self._phase = ""

    def write(self, kind: str, at: float | None = None, **fields: object) -> None:
        """Append one record; `at` is its Unix time in seconds (default now)."""
        record = {"t": time.time() if at is None else at, "k": kind} | {
            name: plain(value) for name, value in fields.items()
        }
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        try:
            self._append(line + b"\n")
        except OSError as error:
            self._warn(error)

    def phase(self, name: str) -> None:
        """Note that the rank entered a phase; entering the same phase twice writes nothing."""
        if name != self._phase:
            self._phase = name
            self.write("phase", phase=name)

    def close(self) -> None:
        """Close the file; a later record opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _append(self, line: bytes) -> None:
        if self._descriptor < 0:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        # After a short write (disk full) the file ends in half a line: begin a new one, so that only that record is lost.
        data = b"\n" + line if self._torn else line
        written = os.write(self._descriptor, data)
        if written < len(data):
            self._torn = self._torn or written > 0
            raise OSError(f"wrote {written} of {len(data)} bytes")
        self._torn = False

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            print(
                f"tunedeck: cannot write {self._path}: {error}. Training goes on; its charts will have gaps.",
                file=sys.stderr,
            )


def plain(value: object) -> object:
    """A value as JSON knows it: NaN and infinity become the strings "nan", "inf", "-inf"; number-like objects numbers."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return plain(float(value)) if hasattr(value, "__float__") else str(value)


def numbers(values: Mapping[str, object]) -> dict[str, object]:
    """Only the numbers of a trainer's log, at full precision (numpy and torch scalars included)."""
    kept = {
        name: value
        for name, value in values.items()
        if not isinstance(value, str | bool) and hasattr(value, "__float__")
    }
    return {name: plain(value) for name, value in kept.items()}
