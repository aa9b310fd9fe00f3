"""The columns of a run in, one file of numbers and one of names out, and back: opened in milliseconds, not read again.

A copy counts only while every recorder file is the very one that was read (inode, size, time of change), or that one grown
since (its beginning, and the bytes up to where it was read). It may be deleted at any time. The numbers are mapped, not
loaded: the system brings in what a chart asks for.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from backend.store.columns import Floats

VERSION = 2
Meta = dict[str, Any]
"""JSON of our own making: what `RunSeries.describe` gives."""


def save_copy(folder: Path, recorder: Path, columns: Mapping[str, Floats], meta: Meta) -> None:
    """Numbers first, names last: a copy without its names does not exist. A full disk leaves none, which costs only time."""
    numbers, names = _paths(folder, recorder)
    places, at = {}, 0
    for name, values in columns.items():
        places[name] = [at, len(values)]
        at += len(values)
    aside = numbers.with_suffix(f".{os.getpid()}.tmp")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names.unlink(missing_ok=True)
        with aside.open("wb") as file:
            for values in columns.values():
                file.write(np.ascontiguousarray(values, dtype="<f8").data)
        aside.replace(numbers)
        record = {"version": VERSION, "size": at * 8, "places": places, "meta": meta}
        aside.write_text(json.dumps(record), "utf-8")
        aside.replace(names)
    except OSError:
        for path in (aside, names):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def load_copy(folder: Path, recorder: Path) -> tuple[dict[str, Floats], Meta] | None:
    """None when there is no whole copy of this version."""
    numbers, names = _paths(folder, recorder)
    try:
        record = json.loads(names.read_text("utf-8"))
        if record["version"] != VERSION or numbers.stat().st_size != record["size"]:
            return None
        mapped: Floats = np.memmap(numbers, dtype="<f8", mode="r") if record["size"] else np.empty(0)
        columns = {name: np.asarray(mapped[at : at + count]) for name, (at, count) in record["places"].items()}
        return columns, record["meta"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def drop_copy(folder: Path, recorder: Path) -> None:
    """Of a job that is deleted."""
    for path in _paths(folder, recorder):
        path.unlink(missing_ok=True)


def _paths(folder: Path, recorder: Path) -> tuple[Path, Path]:
    name = sha256(str(recorder).encode()).hexdigest()[:32]
    return folder / f"{name}.f8", folder / f"{name}.json"
