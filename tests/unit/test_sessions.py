"""Passwords, cookies, and the limit on attempts."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from backend.errors import InvalidInput
from ui.sessions import (
    FAILURE_WINDOW_SECONDS,
    LIFETIME_SECONDS,
    MAX_FAILURES,
    Sessions,
    hash_password,
    load_users,
    verify_password,
)

HASHED = hash_password("correct horse")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def auth_file(tmp_path: Path) -> Path:
    path = tmp_path / "users.json"
    path.write_text(json.dumps({"ann": HASHED}))
    return path


@pytest.fixture
def sessions(auth_file: Path, tmp_path: Path, clock: Clock) -> Sessions:
    return Sessions(auth_file, tmp_path / "auth", clock)


def test_password_is_salted_and_verified() -> None:
    assert hash_password("correct horse") != HASHED
    assert verify_password("correct horse", HASHED)
    assert not verify_password("Correct horse", HASHED)
    assert not verify_password("correct horse", "nonsense")


def test_short_password_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least 8"):
        hash_password("short")


def test_right_password_gives_a_session(sessions: Sessions) -> None:
    cookie = sessions.sign_in("ann", "correct horse")
    assert sessions.user_of(cookie) == "ann"
    assert sessions.sign_in("ann", "wrong") is None
    assert sessions.sign_in("bob", "correct horse") is None


def test_session_survives_a_restart_of_the_server(
    sessions: Sessions, auth_file: Path, tmp_path: Path, clock: Clock
) -> None:
    cookie = sessions.sign_in("ann", "correct horse")
    assert Sessions(auth_file, tmp_path / "auth", clock).user_of(cookie) == "ann"


def test_key_is_private(sessions: Sessions, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "auth" / "session.key").stat().st_mode) == 0o600


def test_forged_or_changed_cookies_are_nobody(
    sessions: Sessions, auth_file: Path, tmp_path: Path, clock: Clock
) -> None:
    cookie = sessions.sign_in("ann", "correct horse")
    assert cookie
    user, expiry, nonce, signature = cookie.split(".")
    for forged in (
        None, "", "a.b.c", "a.b.c.d", f"{user}.{int(expiry) + 1}.{nonce}.{signature}", f"Ym9i.{expiry}.{nonce}.{signature}",
        f"{user}.{expiry}.{nonce}.{signature[:-1]}", f"{user}.{expiry}.{nonce}x.{signature}", "é.1.x.y",
    ):  # fmt: skip
        assert sessions.user_of(forged) is None
    assert Sessions(auth_file, tmp_path / "other-key", clock).user_of(cookie) is None


def test_session_ends(sessions: Sessions, clock: Clock) -> None:
    cookie = sessions.sign_in("ann", "correct horse")
    clock.now += LIFETIME_SECONDS - 1
    assert sessions.user_of(cookie) == "ann"
    clock.now += 2
    assert sessions.user_of(cookie) is None


def test_signed_out_session_stays_out_after_a_restart(
    sessions: Sessions, auth_file: Path, tmp_path: Path, clock: Clock
) -> None:
    cookie, other = sessions.sign_in("ann", "correct horse"), sessions.sign_in("ann", "correct horse")
    sessions.sign_out(cookie)
    again = Sessions(auth_file, tmp_path / "auth", clock)
    for known in (sessions, again):
        assert known.user_of(cookie) is None and known.user_of(other) == "ann"


def test_changed_password_or_removed_user_ends_the_sessions(sessions: Sessions, auth_file: Path) -> None:
    cookie = sessions.sign_in("ann", "correct horse")
    for changed_at, users in enumerate(({"ann": hash_password("another one")}, {"bob": HASHED})):
        auth_file.write_text(json.dumps(users))
        os.utime(auth_file, ns=(changed_at, changed_at))
        assert sessions.user_of(cookie) is None


def test_too_many_failures_have_to_wait(sessions: Sessions, clock: Clock) -> None:
    for _ in range(MAX_FAILURES):
        assert sessions.wait_seconds("address 1", "user ann") == 0
        sessions.note_failure("address 1", "user ann")
        clock.now += 1
    assert sessions.wait_seconds("address 1", "user bob") > 0
    assert sessions.wait_seconds("address 2", "user ann") > 0
    assert sessions.wait_seconds("address 2", "user bob") == 0
    clock.now += FAILURE_WINDOW_SECONDS
    assert sessions.wait_seconds("address 1", "user ann") == 0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ann": "secret"}', '{"ann": 5}', '{"ann": "scrypt$1$2"}'])
def test_broken_auth_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "users.json"
    path.write_text(text)
    with pytest.raises(InvalidInput, match="TUNEDECK_AUTH_FILE"):
        load_users(path)
