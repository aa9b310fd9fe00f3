"""Records and arrays of the views in, JSON bytes out. NaN in an array is null: a gap."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from backend.services.views import CurveView


def encode(record: object) -> bytes:
    """Dataclasses, enums, tuples and numpy arrays are known; raises TypeError for what is not."""
    return orjson.dumps(record, default=_other, option=orjson.OPT_SERIALIZE_NUMPY)


def already_encoded(data: bytes) -> orjson.Fragment:
    """A part of a larger record that has been encoded before."""
    return orjson.Fragment(data)


def curves_record(curves: Mapping[str, CurveView]) -> dict[str, dict[str, object]]:
    """Curves by key as docs/contracts.md has them; `odd` is left out where every value is a number."""
    return {
        key: {"x": curve.x, "y": curve.y, "odd": curve.odd} if curve.odd else {"x": curve.x, "y": curve.y}
        for key, curve in curves.items()
    }


def _other(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
