"""Records and arrays of the views in, JSON bytes out. NaN in an array is null: a gap."""

from __future__ import annotations

from collections.abc import Mapping

import orjson


def encode(record: object) -> bytes:
    """Dataclasses, enums, tuples and numpy arrays are known; raises TypeError for what is not."""
    return orjson.dumps(record, default=_other, option=orjson.OPT_SERIALIZE_NUMPY)


def already_encoded(data: bytes) -> orjson.Fragment:
    """A part of a larger record that has been encoded before."""
    return orjson.Fragment(data)


def _other(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
