"""Every exception that Tunedeck raises on purpose, in one tree.

TunedeckError
├── InvalidInput      the user gave something that cannot be used: a field, what was found, what is expected, what to do
├── SpecRejected      a job with problems of severity error: nothing was stored or started
├── NotFound          a job, file or environment that does not exist
├── Conflict          the request does not fit the current state (stop a finished job, resume from a half-written checkpoint)
├── PathRefused       a path outside the allowed roots
├── EnvironmentFault  a training environment cannot be used (no interpreter, no LLaMA-Factory, it crashed, it timed out)
└── StoreFault        the disk or database refused a write (full, read-only, locked)
"""

from __future__ import annotations


class TunedeckError(Exception):
    """Base of all; `str(error)` is a message fit for a user."""


class InvalidInput(TunedeckError):
    """Bad input. `field` is the argument's own name, e.g. `model_name_or_path`; `line` and `column` count from 1."""

    def __init__(
        self,
        field: str,
        *,
        found: str,
        expected: str,
        remedy: str = "",
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        self.field, self.found, self.expected, self.remedy = field, found, expected, remedy
        self.line, self.column = line, column
        where = "" if line is None else f" (line {line}, column {column or 1})"
        text = f"{field}{where}: found {found}, expected {expected}."
        super().__init__(f"{text} {remedy}".rstrip())


class NotFound(TunedeckError):
    """A job, file or environment that does not exist."""


class Conflict(TunedeckError):
    """The request does not fit the current state."""


class PathRefused(TunedeckError):
    """A path that leaves the allowed roots after resolving links."""


class EnvironmentFault(TunedeckError):
    """A training environment that cannot be used."""


class StoreFault(TunedeckError):
    """The disk or the database refused a write."""


class SpecRejected(TunedeckError):
    """A job that must not be launched. `problems` are the Problem records; the text names the first error."""

    def __init__(self, problems: tuple[object, ...], text: str) -> None:
        self.problems = problems
        super().__init__(text)
