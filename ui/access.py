"""A request's Host, Origin and session in, whether it may go on out. Without an auth file everyone on loopback is `local`."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from backend.errors import InvalidInput
from backend.settings import Settings

LEAST_TOKEN = 16
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_login_off_loopback(settings: Settings) -> None:
    """Raises InvalidInput: whoever reaches the page can run code as this user."""
    if not is_loopback(settings.host) and settings.auth_file is None:
        raise InvalidInput(
            "TUNEDECK_HOST",
            found=f"{settings.host} without a login",
            expected="a loopback address, or TUNEDECK_AUTH_FILE with users",
            remedy="Whoever reaches the page can run code as this user. Make a password with `app.py hash-password`, or use"
            " an SSH tunnel: ssh -L 7860:127.0.0.1:7860 this-host",
        )


def load_metrics_token(path: Path) -> str:
    """The token that opens /metrics. Raises InvalidInput for a file that cannot be read or a token that can be guessed."""
    expected = f"a file with one token of {LEAST_TOKEN} characters or more"
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise InvalidInput("TUNEDECK_METRICS_TOKEN_FILE", found=f"{path}: {error}", expected=expected) from error
    if len(token) < LEAST_TOKEN or len(token.split()) != 1:
        raise InvalidInput("TUNEDECK_METRICS_TOKEN_FILE", found=f"{path}: {len(token)} characters", expected=expected)
    return token


@dataclass(frozen=True, slots=True)
class Hosts:
    """Names under which this server may be addressed. Anything else is DNS rebinding or a forged link."""

    names: frozenset[str]
    any_address: bool
    """Bound to every interface: each numeric address is ours (a number cannot be rebound)."""
    public: str = field(default="")
    """Host and port of TUNEDECK_PUBLIC_URL."""

    def knows(self, host_header: str) -> bool:
        name = host_name(host_header)
        return name in self.names or (self.any_address and _is_address(name))

    def is_own_origin(self, origin: str, host_header: str) -> bool:
        """Same host and port as the request was sent to, or the public address."""
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            return False
        own = {_with_port(host_header, parts.scheme), _with_port(self.public, parts.scheme) if self.public else ""}
        return _with_port(parts.netloc, parts.scheme) in own


def known_hosts(settings: Settings) -> Hosts:
    """From the address bound to and the public URL."""
    public = urlsplit(settings.public_url)
    names = {*LOOPBACK_NAMES, (public.hostname or "").lower()} - {""}
    wildcard = settings.host in ("0.0.0.0", "::", "")
    if not is_loopback(settings.host):
        names |= {settings.host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
    return Hosts(names=frozenset(names), any_address=wildcard, public=public.netloc.lower())


def host_name(host_header: str) -> str:
    """Lower case, without port and brackets."""
    text = host_header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") <= 1 else text


def is_cross_site(headers: Mapping[str, str], hosts: Hosts) -> bool:
    """Whether a page of another origin sent this. Programs that are no browsers send neither header."""
    origin = headers.get("origin")
    if origin is not None:
        reached = [headers.get("host", ""), headers.get("x-forwarded-host", "").split(",")[0].strip()]
        return not any(hosts.is_own_origin(origin, host) for host in reached if host)
    return headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_port(host: str, scheme: str) -> str:
    has_port = host.rpartition("]")[2].count(":") > 0
    return host.lower() if has_port else f"{host.lower()}:{443 if scheme == 'https' else 80}"
