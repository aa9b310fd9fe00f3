"""Scripts of the page: addresses that follow the content, compressed bodies."""

from __future__ import annotations

import gzip
from pathlib import Path

import brotli
import pytest

from ui import assets
from ui.assets import PLOTLY, Assets, asset_url


@pytest.fixture
def static(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "static"
    (folder / "sub").mkdir(parents=True)
    (folder / "app.js").write_text("import './sub/x.js'")
    (folder / "sub" / "x.js").write_text("//")
    (folder / "logo.png").write_bytes(b"png")
    monkeypatch.setattr(assets, "STATIC", folder)
    assets.bundle_hash.cache_clear()
    yield folder  # type: ignore[misc]
    assets.bundle_hash.cache_clear()


def find(tmp_path: Path, url: str, accepted: str = "gzip, deflate, br") -> assets.Asset | None:
    _, _, content_hash, name = url.split("/", 3)
    return Assets(tmp_path / "cache").find(content_hash, name, accepted)


def test_address_changes_when_any_script_changes(static: Path) -> None:
    before = asset_url("app.js")
    (static / "sub" / "x.js").write_text("// changed")
    assets.bundle_hash.cache_clear()
    assert asset_url("app.js") != before


def test_modules_find_each_other_below_one_address(static: Path, tmp_path: Path) -> None:
    assert find(tmp_path, asset_url("app.js").replace("app.js", "sub/x.js")) is not None


@pytest.mark.parametrize(("accepted", "encoding"), [
    ("br, gzip", "br"), ("gzip", "gzip"), ("", ""), ("br;q=0, gzip;q=0.5", "gzip"), ("identity", ""), ("BR", "br"),
])  # fmt: skip
def test_body_comes_in_an_encoding_that_the_browser_knows(
    static: Path, tmp_path: Path, accepted: str, encoding: str
) -> None:
    asset = find(tmp_path, asset_url("app.js"), accepted)
    assert asset is not None and asset.encoding == encoding and asset.media_type == "text/javascript"
    unpack = {"br": brotli.decompress, "gzip": gzip.decompress, "": bytes}[encoding]
    assert unpack(asset.data) == b"import './sub/x.js'"


def test_pictures_are_not_compressed_again(static: Path, tmp_path: Path) -> None:
    asset = find(tmp_path, asset_url("logo.png"))
    assert asset is not None and (asset.encoding, asset.data) == ("", b"png")


@pytest.mark.parametrize("name", ["../secret", "sub/../../secret", "sub", "missing.js", "/etc/passwd"])
def test_only_files_of_the_folder_are_served(static: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("x")
    assert Assets(tmp_path / "cache").find(assets.bundle_hash(), name, "") is None


def test_another_version_is_not_served(static: Path, tmp_path: Path) -> None:
    assert Assets(tmp_path / "cache").find("0" * 16, "app.js", "") is None


def test_plotly_is_compressed_once_and_kept(tmp_path: Path) -> None:
    url = asset_url(PLOTLY)
    asset = find(tmp_path, url, "gzip")
    assert asset is not None and len(asset.data) < assets.plotly_path().stat().st_size / 3
    kept = list((tmp_path / "cache").iterdir())
    assert [path.suffix for path in kept] == [".gzip"]
    kept[0].write_bytes(b"from the cache")
    again = find(tmp_path, url, "gzip")
    assert again is not None and again.data == b"from the cache"
