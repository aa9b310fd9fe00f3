"""Tags of a job in, those without membership of a group out: a copy of a member is no member itself."""

from __future__ import annotations

from collections.abc import Sequence

HOST_CHECK = "host-check"
"""Tag of the jobs that are host checks."""
SWEEP_TAG, TUNING_TAG = "sweep:", "tuning:"
"""Tags of runs of a sweep and of trial jobs, each followed by the id of the sweep or search."""


def own_tags(tags: Sequence[str]) -> list[str]:
    return [tag for tag in tags if not tag.startswith((SWEEP_TAG, TUNING_TAG))]


def is_measuring(tags: Sequence[str]) -> bool:
    """A host check or trials of a search: beside another run they would slow it, and measure it."""
    return any(tag == HOST_CHECK or tag.startswith(TUNING_TAG) for tag in tags)
