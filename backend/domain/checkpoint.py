"""Checkpoint: one `checkpoint-N` folder (or the final output) of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """`path` is relative to the run's output folder ("" = the final model at its top). Sizes in bytes, times Unix seconds.

    `complete` False: still being written or cut short; never offered for resume or download.
    `why_incomplete` says what is missing.
    """

    name: str
    path: str
    step: int | None
    size_bytes: int
    files: int
    saved_at: float
    complete: bool
    why_incomplete: str = ""
    world_size: int | None = None
    adapter_bytes: int | None = None
    eval_loss: float | None = None
