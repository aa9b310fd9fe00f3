"""Who may address the server, and from which pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.errors import InvalidInput
from backend.settings import Settings
from ui.access import is_cross_site, is_loopback, known_hosts, require_login_off_loopback


def settings(**given: object) -> Settings:
    return Settings(data_dir=Path("/nowhere"), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(("host", "expected"), [
    ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
    ("0.0.0.0", False), ("::", False), ("10.0.0.5", False), ("gpu-1", False), ("", False),
])  # fmt: skip
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "gpu-1"])
def test_other_address_without_a_login_is_refused(host: str) -> None:
    with pytest.raises(InvalidInput, match="TUNEDECK_AUTH_FILE"):
        require_login_off_loopback(settings(host=host))
    require_login_off_loopback(settings(host=host, auth_file=Path("users.json")))


def test_loopback_needs_no_login() -> None:
    require_login_off_loopback(settings())


@pytest.mark.parametrize(("given", "host", "expected"), [
    ({}, "127.0.0.1:7860", True), ({}, "localhost", True), ({}, "[::1]:7860", True), ({}, "LOCALHOST:1", True),
    ({}, "evil.example", False), ({}, "localhost.evil.example:7860", False), ({}, "", False), ({}, "10.0.0.5", False),
    ({"public_url": "https://deck.example/x"}, "deck.example", True),
    ({"public_url": "https://deck.example/x"}, "evil.example", False),
    ({"host": "10.0.0.5"}, "10.0.0.5:7860", True), ({"host": "10.0.0.5"}, "10.0.0.6:7860", False),
    ({"host": "0.0.0.0"}, "192.168.7.7:7860", True), ({"host": "0.0.0.0"}, "rebound.evil.example:7860", False),
])  # fmt: skip
def test_host_header(given: dict[str, object], host: str, expected: bool) -> None:
    assert known_hosts(settings(**given)).knows(host) is expected


@pytest.mark.parametrize(("headers", "expected"), [
    ({}, False),
    ({"host": "localhost:7860", "origin": "http://localhost:7860"}, False),
    ({"host": "localhost:7860", "origin": "http://localhost:9999"}, True),
    ({"host": "localhost:7860", "origin": "http://127.0.0.1:7860"}, True),
    ({"host": "localhost:7860", "origin": "http://evil.example"}, True),
    ({"host": "localhost:7860", "origin": "null"}, True),
    ({"host": "localhost:7860", "origin": ""}, True),
    ({"host": "localhost:7860", "origin": "file://localhost:7860"}, True),
    ({"host": "deck.example", "origin": "https://deck.example"}, False),
    ({"host": "127.0.0.1:7860", "origin": "https://deck.example"}, False),
    ({"host": "127.0.0.1:7860", "origin": "https://deck.example:444"}, True),
    ({"host": "localhost", "origin": "http://localhost"}, False),
    ({"host": "localhost:80", "origin": "http://localhost"}, False),
    ({"host": "a", "x-forwarded-host": "localhost:1", "origin": "http://localhost:1"}, False),
    ({"host": "localhost", "sec-fetch-site": "cross-site"}, True),
    ({"host": "localhost", "sec-fetch-site": "same-site"}, True),
    ({"host": "localhost", "sec-fetch-site": "same-origin"}, False),
])  # fmt: skip
def test_origin(headers: dict[str, str], expected: bool) -> None:
    assert is_cross_site(headers, known_hosts(settings(public_url="https://deck.example/deck"))) is expected
