"""LaunchPlan: exactly what is spawned. Previewed = stored (plan.json) = spawned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """`argv` and `cwd` are absolute. `env` holds only what we add, `unset` what we remove from the inherited environment.

    `files` maps a path relative to `job_dir` to its text. `secrets` names environment variables whose values are taken
    from the secret store at spawn time and never written. `processes` is the number of ranks on this node.
    """

    job_id: str
    job_dir: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    unset: tuple[str, ...]
    cwd: str
    files: Mapping[str, str]
    processes: int
    devices: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    stop_grace_seconds: float = 600.0
    terminate_grace_seconds: float = 20.0
