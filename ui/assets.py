"""Files of ui/static and plotly.min.js in, addresses that change with their content and compressed bodies out."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
import re
import threading
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import brotli

STATIC = Path(__file__).with_name("static")
PLOTLY = "plotly.min.js"
FOREVER = "public, max-age=31536000, immutable"
_REFUSED = re.compile(r";q=0(\.0*)?$")
_COMPRESSIBLE = (".js", ".css", ".svg", ".json", ".html", ".txt", ".map")


def asset_url(name: str) -> str:
    """Address of a file below the root of the service. Files of ui/static share one hash, so that modules find each other."""
    return f"/st/{plotly_hash() if name == PLOTLY else bundle_hash()}/{name}"


@lru_cache(maxsize=1)
def bundle_hash() -> str:
    """Of the names and contents of all files of ui/static."""
    digest = hashlib.sha256()
    for path in sorted(STATIC.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            digest.update(f"{path.relative_to(STATIC)} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:16]


@lru_cache(maxsize=1)
def plotly_hash() -> str:
    return hashlib.sha256(plotly_path().read_bytes()).hexdigest()[:16]


@lru_cache(maxsize=1)
def plotly_path() -> Path:
    """Found without importing plotly, which takes a second."""
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("plotly is not installed: it is part of requirements.txt")
    return Path(spec.origin).parent / "package_data" / PLOTLY


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """A body ready to be sent; `encoding` "" = as it is."""

    data: bytes
    media_type: str
    encoding: str


class Assets:
    """Bodies by hash and name, compressed once; the large ones are kept in `cache` over restarts. Thread-safe."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._ready: dict[tuple[str, str], bytes] = {}

    def find(self, content_hash: str, name: str, accepted: str) -> Asset | None:
        """None for a file that is not ours, or a hash that is not of the present files. `accepted`: Accept-Encoding."""
        path = self._path(content_hash, name)
        if path is None:
            return None
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        media_type = "text/javascript" if name.endswith((".js", ".mjs")) else media_type
        encoding = _choose(accepted) if name.endswith(_COMPRESSIBLE) else ""
        return Asset(data=self._body(path, content_hash, name, encoding), media_type=media_type, encoding=encoding)

    def _path(self, content_hash: str, name: str) -> Path | None:
        if name == PLOTLY:
            return plotly_path() if content_hash == plotly_hash() else None
        path = (STATIC / name).resolve()
        known = content_hash == bundle_hash() and path.is_relative_to(STATIC.resolve()) and path.is_file()
        return path if known else None

    def _body(self, path: Path, content_hash: str, name: str, encoding: str) -> bytes:
        with self._lock:
            key = (name, encoding)
            if key not in self._ready:
                self._ready[key] = self._load(path, content_hash, encoding) if name == PLOTLY else _pack(path, encoding)
            return self._ready[key]

    def _load(self, path: Path, content_hash: str, encoding: str) -> bytes:
        """Compressing plotly takes most of a second: done once for each version."""
        packed = self._cache / f"{content_hash}.{encoding or 'raw'}"
        if packed.is_file():
            return packed.read_bytes()
        data = _pack(path, encoding)
        if encoding:
            self._cache.mkdir(parents=True, exist_ok=True)
            aside = packed.with_suffix(".part")
            aside.write_bytes(data)
            aside.replace(packed)
        return data


def _choose(accepted: str) -> str:
    parts = [part.replace(" ", "") for part in accepted.lower().split(",")]
    offered = {part.split(";")[0] for part in parts if not _REFUSED.search(part)}
    return "br" if "br" in offered else "gzip" if "gzip" in offered else ""


def _pack(path: Path, encoding: str) -> bytes:
    data = path.read_bytes()
    if encoding == "br":
        compressed: bytes = brotli.compress(data, quality=9)
        return compressed
    return gzip.compress(data, 9, mtime=0) if encoding == "gzip" else data
