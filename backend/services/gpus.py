"""Readers, sampler and store in, what pages and the launcher ask about GPUs out.

    python -m backend.services.gpus --json --from FILE_OR_FOLDER...

prints what the readers make of recorded outputs, one JSON object a line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.errors import InvalidInput
from backend.parsing.amd_smi import parse_bytes, parse_tree
from backend.parsing.telemetry.missing import Json
from backend.parsing.telemetry.rows import ToolReading

_MAX_FILE_BYTES = 64 << 20
_MAX_TREE_FILES = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FixtureReading:
    """A recorded output and what it says."""

    input: str
    reading: ToolReading

    def to_json(self) -> dict[str, Json]:
        """`{"input", "verdict", "gpus", "devices", ...}` in the words of the readers."""
        return {"input": self.input, **self.reading.to_json()}


def read_fixture(path: Path | str) -> FixtureReading:
    """Read a file (any output of a tool) or a folder (root below /sys, or below /sys/class/kfd/kfd).

    Raises InvalidInput when the path does not exist or cannot be read.
    """
    place = Path(path)
    try:
        reading = parse_tree(_load_tree(place)) if place.is_dir() else parse_bytes(_load_bytes(place))
    except OSError as error:
        remedy = "Give a file with a tool's output, or a folder with a sysfs or KFD tree."
        raise InvalidInput(
            "--from", found=f"{path} ({error.strerror})", expected="a readable path", remedy=remedy
        ) from error
    return FixtureReading(input=str(path), reading=reading)


def _load_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAX_FILE_BYTES)


def _load_tree(root: Path) -> dict[str, str]:
    files: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        if len(files) >= _MAX_TREE_FILES:
            break
        if path.is_file() and path.stat().st_size < 1 << 20:
            files[path.relative_to(root).as_posix()] = path.read_text("utf-8", "replace")
    return files


def main(arguments: Sequence[str]) -> int:
    """Print one JSON object per recorded output; exit status 2 when one cannot be read."""
    status = 0
    for path in (argument for argument in arguments if argument not in ("--json", "--from")):
        try:
            print(json.dumps(read_fixture(path).to_json()))
        except InvalidInput as error:
            print(error, file=sys.stderr)
            status = 2
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
