"""Failures of a source in, whether to ask it again out: three in a row and it rests for ten minutes."""

from __future__ import annotations

from collections.abc import Callable

LIMIT = 3
REST_SECONDS = 600.0


class CircuitBreaker:
    """Counts failures in a row. `clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float], *, limit: int = LIMIT, rest_seconds: float = REST_SECONDS) -> None:
        self._clock, self._limit, self._rest = clock, limit, rest_seconds
        self._failures = 0
        self._opened_at: float | None = None

    def record(self, *, ok: bool) -> None:
        self._failures = 0 if ok else self._failures + 1
        self._opened_at = self._clock() if self._failures >= self._limit else None

    def open_now(self) -> None:
        """Do not ask again for a while: the source said that it cannot work here."""
        self._failures, self._opened_at = self._limit, self._clock()

    @property
    def is_open(self) -> bool:
        """The source rests. After the rest one more try is allowed; if it fails, the rest starts anew."""
        return self._opened_at is not None and self._clock() - self._opened_at < self._rest
