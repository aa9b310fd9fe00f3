"""Write files so that a reader (or a crash) sees the old or the new text, never half of it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backend.errors import StoreFault


def write_text(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write to a temporary name in the same folder, flush to disk, rename. Raises StoreFault naming path and reason."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StoreFault(f"Cannot write {path}: {error.strerror or error}.") from error


def write_json(path: Path, record: object, *, mode: int = 0o644) -> None:
    """`write_text` of indented JSON."""
    write_text(path, json.dumps(record, indent=2, ensure_ascii=False) + "\n", mode=mode)


def append_line(path: Path, line: str) -> None:
    """Append one line in a single write, so that lines of several processes never mix. Raises StoreFault."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, line.encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreFault(f"Cannot write {path}: {error.strerror or error}.") from error


def read_json(path: Path) -> object | None:
    """The parsed file, or None when it is missing or not (yet) whole JSON."""
    try:
        parsed: object = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return parsed


@contextmanager
def held(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """A lock between processes and threads: True inside when we have it; with `wait=False` False at once when another has.

    The lock of a process that died is free."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
