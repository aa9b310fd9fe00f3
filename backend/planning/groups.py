"""Tags of a job in, those without membership of a group out: a copy of a member is no member itself."""

from __future__ import annotations

from collections.abc import Sequence

SWEEP_TAG, TUNING_TAG = "sweep:", "tuning:"
"""Tags of runs of a sweep and of trial jobs, each followed by the id of the sweep or search."""


def own_tags(tags: Sequence[str]) -> list[str]:
    return [tag for tag in tags if not tag.startswith((SWEEP_TAG, TUNING_TAG))]
