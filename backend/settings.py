"""Environment variables in, frozen Settings out. Each field is documented in docs/settings.md."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backend.errors import InvalidInput

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What can be set for one installation; units are in the names."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 7860
    public_url: str = ""
    auth_file: Path | None = None
    metrics_token_file: Path | None = None
    training_python: Path | None = None
    cpu_slots: int = 2
    downloads: int = 8
    allowed_roots: tuple[Path, ...] = ()
    stop_grace_seconds: float = 600.0
    terminate_grace_seconds: float = 20.0
    min_free_disk_bytes: int = 1 << 30
    telemetry_1s_seconds: int = 3600
    telemetry_10s_seconds: int = 86_400
    telemetry_60s_seconds: int = 30 * 86_400
    price_gpu_hour: float | None = None
    price_kwh: float | None = None
    card_prices: tuple[tuple[str, float], ...] = ()
    currency: str = ""
    power_overhead: float = 1.0


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read TUNEDECK_* variables; raises InvalidInput naming the variable."""
    env = os.environ if environ is None else environ
    data_dir = Path(env.get("TUNEDECK_DATA") or REPOSITORY / "tunedeck-data").absolute()
    own_python = REPOSITORY / ".venv-training" / "bin" / "python"
    python = Path(env["TUNEDECK_TRAINING_PYTHON"]) if env.get("TUNEDECK_TRAINING_PYTHON") else None
    return Settings(
        data_dir=data_dir,
        host=env.get("TUNEDECK_HOST", "127.0.0.1"),
        port=_whole(env, "TUNEDECK_PORT", 7860),
        public_url=env.get("TUNEDECK_PUBLIC_URL", ""),
        auth_file=Path(env["TUNEDECK_AUTH_FILE"]) if env.get("TUNEDECK_AUTH_FILE") else None,
        metrics_token_file=Path(env["TUNEDECK_METRICS_TOKEN_FILE"]) if env.get("TUNEDECK_METRICS_TOKEN_FILE") else None,
        training_python=python or (own_python if own_python.exists() else None),
        cpu_slots=_whole(env, "TUNEDECK_CPU_SLOTS", 2),
        downloads=_whole(env, "TUNEDECK_DOWNLOADS", 8),
        allowed_roots=tuple(Path(part).absolute() for part in env.get("TUNEDECK_ROOTS", "").split(os.pathsep) if part),
        stop_grace_seconds=float(_whole(env, "TUNEDECK_STOP_GRACE_SECONDS", 600)),
        terminate_grace_seconds=float(_whole(env, "TUNEDECK_TERMINATE_GRACE_SECONDS", 20)),
        min_free_disk_bytes=_whole(env, "TUNEDECK_MIN_FREE_DISK_BYTES", 1 << 30),
        telemetry_1s_seconds=_whole(env, "TUNEDECK_TELEMETRY_1S_SECONDS", 3600),
        telemetry_10s_seconds=_whole(env, "TUNEDECK_TELEMETRY_10S_SECONDS", 86_400),
        telemetry_60s_seconds=_whole(env, "TUNEDECK_TELEMETRY_60S_SECONDS", 30 * 86_400),
        price_gpu_hour=_number(env, "TUNEDECK_PRICE_GPU_HOUR"),
        price_kwh=_number(env, "TUNEDECK_PRICE_KWH"),
        card_prices=_card_prices(env, "TUNEDECK_CARD_PRICES"),
        currency=env.get("TUNEDECK_CURRENCY", ""),
        power_overhead=_number(env, "TUNEDECK_POWER_OVERHEAD") or 1.0,
    )


def _number(env: Mapping[str, str], name: str) -> float | None:
    text = env.get(name, "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InvalidInput(name, found=repr(text), expected="a number, 0 or more, e.g. 2.50")
    return value


def _card_prices(env: Mapping[str, str], name: str) -> tuple[tuple[str, float], ...]:
    """`H100=2.5,MI300X=1.99`."""
    pairs = [part.partition("=") for part in env.get(name, "").split(",") if part.strip()]
    for card, _, price in pairs:
        if not card.strip() or not price.strip():
            raise InvalidInput(name, found=repr(env[name]), expected="CARD=PRICE pairs, e.g. H100=2.5,MI300X=1.99")
    return tuple((card.strip(), _number({name: price.strip()}, name) or 0.0) for card, _, price in pairs)


def _whole(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "")
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise InvalidInput(name, found=repr(text), expected="a whole number, 0 or more")
    return value
