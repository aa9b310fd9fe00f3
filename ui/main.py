"""Settings in, a running dashboard out."""

from __future__ import annotations

from backend.errors import EnvironmentFault
from backend.settings import Settings


def serve_dashboard(settings: Settings, *, host: str | None, port: int | None) -> None:
    raise EnvironmentFault("The page is not part of this build yet.")
