"""A reader's place in a run in, an opaque string out, and back."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from backend.store.series import Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """What a reader has seen: series up to `mark`, so many events, the log up to byte `log`."""

    mark: Mark
    events: int
    log: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """Everything that only grows."""
        return (self.mark.rows, self.mark.logs, self.mark.markers, self.mark.cuts, self.events, self.log)

    def __str__(self) -> str:
        return ".".join(str(part) for part in (*astuple(self.mark), self.events, self.log))


def parse_cursor(text: str) -> Cursor | None:
    """None for anything that is no cursor of ours: its reader starts anew."""
    load, *rest = text.split(".")
    if len(rest) != 6 or not load or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in rest):
        return None
    rows, logs, markers, cuts, events, log = map(int, rest)
    return Cursor(mark=Mark(load=load, rows=rows, logs=logs, markers=markers, cuts=cuts), events=events, log=log)
