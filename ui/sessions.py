"""User names and passwords in, signed session cookies out, and back to user names. Sessions survive a restart of the server."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path

from backend.errors import InvalidInput, StoreFault

COOKIE = "tunedeck_session"
LIFETIME_SECONDS = 7 * 24 * 3600
MAX_FAILURES = 5
FAILURE_WINDOW_SECONDS = 60.0
_COST, _BLOCK, _PARALLEL = 1 << 14, 8, 1


def hash_password(password: str) -> str:
    """A line for the auth file: scrypt with a salt of its own. Raises InvalidInput for a password below 8 characters."""
    if len(password) < 8:
        raise InvalidInput("password", found=f"{len(password)} characters", expected="at least 8")
    salt = secrets.token_bytes(16)
    digest = _scrypt(password, salt, _COST, _BLOCK, _PARALLEL)
    return "$".join(("scrypt", str(_COST), str(_BLOCK), str(_PARALLEL), _text(salt), _text(digest)))


def verify_password(password: str, stored: str) -> bool:
    """False also for a stored value that is no hash of ours."""
    try:
        kind, cost, block, parallel, salt, digest = stored.split("$")
        found = _scrypt(password, _bytes(salt), int(cost), int(block), int(parallel))
        return kind == "scrypt" and hmac.compare_digest(found, _bytes(digest))
    except ValueError:
        return False


def load_users(path: Path) -> dict[str, str]:
    """Raises InvalidInput naming the file: `{"user": "scrypt$..."}`."""
    expected = 'a JSON object {"user": "hash"}, hashes made by `app.py hash-password`'
    try:
        users = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput("TUNEDECK_AUTH_FILE", found=f"{path}: {error}", expected=expected) from error
    if not isinstance(users, dict) or not users:
        raise InvalidInput("TUNEDECK_AUTH_FILE", found=f"{path}: no users", expected=expected)
    for user, stored in users.items():
        if not isinstance(stored, str) or not stored.startswith("scrypt$") or stored.count("$") != 5:
            raise InvalidInput("TUNEDECK_AUTH_FILE", found=f"no password hash for {user!r}", expected=expected)
    return users


class Sessions:
    """Who may come in. Cookies are `user.expiry.nonce.signature`; a changed password or a sign-out voids them."""

    def __init__(self, auth_file: Path, secrets_folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._auth_file, self._clock = auth_file, clock
        self._users = load_users(auth_file)
        self._read_at = auth_file.stat().st_mtime_ns
        secrets_folder.mkdir(parents=True, exist_ok=True)
        self._key = _load_key(secrets_folder / "session.key")
        self._ended = EndedSessions(secrets_folder / "ended-sessions.json", clock)
        self._lock = threading.Lock()
        self._failures: defaultdict[str, deque[float]] = defaultdict(deque)

    def sign_in(self, user: str, password: str) -> str | None:
        """A cookie value, or None. Takes as long for an unknown user as for a wrong password."""
        stored = self._known().get(user)
        is_right = verify_password(password, stored or _NOBODY)
        return self._issue(user, stored) if stored and is_right else None

    def user_of(self, cookie: str | None) -> str | None:
        """The user of a valid cookie."""
        parts = (cookie or "").split(".")
        if len(parts) != 4:
            return None
        try:
            user, expiry = _bytes(parts[0]).decode(), int(parts[1])
        except ValueError:
            return None
        stored = self._known().get(user)
        if stored is None or expiry < self._clock() or parts[2] in self._ended:
            return None
        return user if hmac.compare_digest(parts[3], self._sign(".".join(parts[:3]), stored)) else None

    def sign_out(self, cookie: str | None) -> None:
        """The cookie is void from now on, also after a restart."""
        if self.user_of(cookie) and cookie:
            _, expiry, nonce, _ = cookie.split(".")
            self._ended.add(nonce, int(expiry))

    def wait_seconds(self, *callers: str) -> float:
        """How long these callers (address, user name) have to wait after too many failures; 0 = none."""
        with self._lock:
            return max(self._wait(caller) for caller in callers)

    def note_failure(self, *callers: str) -> None:
        with self._lock:
            if len(self._failures) > 10_000:  # a flood of made-up names must not fill the memory
                self._failures.clear()
            for caller in callers:
                self._failures[caller].append(self._clock())

    def _wait(self, caller: str) -> float:
        times = self._failures.get(caller)
        while times and times[0] < self._clock() - FAILURE_WINDOW_SECONDS:
            times.popleft()
        return FAILURE_WINDOW_SECONDS - (self._clock() - times[0]) if times and len(times) >= MAX_FAILURES else 0.0

    def _known(self) -> dict[str, str]:
        """Read again when the file has changed; while it is broken, the users known before stay."""
        try:
            changed_at = self._auth_file.stat().st_mtime_ns
            if changed_at != self._read_at:
                self._users, self._read_at = load_users(self._auth_file), changed_at
        except (OSError, InvalidInput):
            pass
        return self._users

    def _issue(self, user: str, stored: str) -> str:
        body = f"{_text(user.encode())}.{int(self._clock()) + LIFETIME_SECONDS}.{secrets.token_hex(12)}"
        return f"{body}.{self._sign(body, stored)}"

    def _sign(self, body: str, stored: str) -> str:
        return _text(hmac.digest(self._key, f"{body}\n{stored}".encode(), "sha256"))


class EndedSessions:
    """Nonces of sessions that were signed out, kept until they would have expired anyway."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path, self._clock = path, clock
        self._lock = threading.Lock()
        try:
            self._expiry: dict[str, int] = json.loads(path.read_text())
        except (OSError, ValueError):
            self._expiry = {}

    def __contains__(self, nonce: str) -> bool:
        return nonce in self._expiry

    def add(self, nonce: str, expiry: int) -> None:
        with self._lock:
            self._expiry = {key: until for key, until in self._expiry.items() if until > self._clock()} | {
                nonce: expiry
            }
            _write_private(self._path, json.dumps(self._expiry).encode())


def _load_key(path: Path) -> bytes:
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        key = b""
    if len(key) < 32:
        key = secrets.token_bytes(32)
        _write_private(path, key)
    return key


def _write_private(path: Path, data: bytes) -> None:
    """Readable by this user only, from the first byte on."""
    aside = path.with_suffix(".part")
    try:
        aside.unlink(missing_ok=True)
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        aside.replace(path)
    except OSError as error:
        raise StoreFault(f"Cannot write {path}: {error.strerror}.") from error


def _scrypt(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=cost, r=block, p=parallel, maxmem=64 << 20, dklen=32)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


_NOBODY = "$".join(("scrypt", str(_COST), str(_BLOCK), str(_PARALLEL), _text(bytes(16)), _text(bytes(32))))
