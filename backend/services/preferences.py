"""What a person set in the pages (smoothing, hidden lines, zooms) in, the same out in any browser: one file a user."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256

from backend.errors import InvalidInput
from backend.store.files import read_json, write_json
from backend.store.paths import DataPaths

MOST_BYTES = 64 << 10

Preferences = Mapping[str, object]


def load_preferences(paths: DataPaths, user: str) -> Preferences:
    """{} for a user who never set anything."""
    record = read_json(paths.preferences(_name(user)))
    return record if isinstance(record, dict) else {}


def save_preferences(paths: DataPaths, user: str, preferences: Preferences) -> Preferences:
    """Replace all. Raises InvalidInput for more than the pages would ever keep, StoreFault."""
    size = len(json.dumps(preferences))
    if size > MOST_BYTES:
        raise InvalidInput("preferences", found=f"{size} bytes", expected=f"at most {MOST_BYTES} bytes of JSON")
    path = paths.preferences(_name(user))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, preferences, mode=0o600)
    return preferences


def _name(user: str) -> str:
    """A file name for any user name."""
    return sha256(user.encode()).hexdigest()[:32]
