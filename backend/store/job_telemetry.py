"""Samples of a job's devices into its folder and back: `telemetry/<device>.samples`, appended, readable without the database.

A file starts with one JSON line (`{"device", "keys", "step_seconds"}`); then each record is a time (float64) and mean, least
and greatest per key (float32). Half a record at the end (a killed worker) is ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from backend.errors import StoreFault
from backend.store.telemetry import KEYS, History, Matrix

STEP_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSummary:
    """The end-of-run card of one device; None = not reported during the run. `energy_kwh` is an estimate from mean power when
    the card has no energy counter (`energy_is_estimate`)."""

    device: str
    seconds: float
    samples: int
    mean_activity_percent: float | None = None
    max_activity_percent: float | None = None
    max_vram_bytes: float | None = None
    max_hotspot_celsius: float | None = None
    max_memory_celsius: float | None = None
    mean_power_watts: float | None = None
    max_power_watts: float | None = None
    energy_kwh: float | None = None
    energy_is_estimate: bool = False
    power_limited_percent: float | None = None
    heat_limited_percent: float | None = None
    new_uncorrectable_errors: int | None = None
    idle_percent: float | None = None


def append_job_sample(folder: Path, device: str, at: float, sample: Matrix) -> None:
    """Append one aggregated sample (3 x keys). Raises StoreFault."""
    path = _path(folder, device)
    record = np.float64(at).tobytes() + np.ascontiguousarray(sample, dtype=np.float32).tobytes()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            if file.tell() == 0:
                head = {"device": device, "keys": KEYS, "step_seconds": STEP_SECONDS}
                record = json.dumps(head).encode() + b"\n" + record
            file.write(record)
    except OSError as error:
        raise StoreFault(f"Cannot write {path}: {error.strerror or error}.") from error


def job_devices(folder: Path) -> tuple[str, ...]:
    """Devices (and `host`) that the folder has samples of."""
    found = []
    for path in sorted(folder.glob("*.samples")) if folder.is_dir() else []:
        head, _, _ = _load(path)
        if head:
            found.append(head)
    return tuple(found)


def load_job_history(folder: Path, device: str, key: str) -> History:
    """All samples of one key, empty when there are none."""
    _, keys, records = _load(_path(folder, device))
    times = records["at"].astype(np.float64)
    if key in keys:
        values = records["sample"][:, :, keys.index(key)].astype(np.float64)  # time x statistic
    else:
        values = np.full((len(records), 3), np.nan)
    mean, low, high = np.ascontiguousarray(values.T)
    return History(step_seconds=STEP_SECONDS, times=times, mean=mean, low=low, high=high)


def summarise_job(folder: Path, devices: Sequence[str]) -> tuple[DeviceSummary, ...]:
    """One row per device that has samples."""
    return tuple(row for device in devices if (row := _summarise(folder, device)) is not None)


def _summarise(folder: Path, device: str) -> DeviceSummary | None:
    series = {key: load_job_history(folder, device, key) for key in KEYS}
    power, activity = series["socket_power_watts"], series["gfx_activity_percent"]
    times = power.times
    if not times.size:
        return None
    seconds = float(times[-1] - times[0]) + STEP_SECONDS
    energy, estimate = _energy_kwh(series["energy_joules"], power)
    return DeviceSummary(
        device=device,
        seconds=seconds,
        samples=int(times.size),
        mean_activity_percent=_mean(activity),
        max_activity_percent=_max(activity),
        max_vram_bytes=_max(series["vram_used_bytes"]),
        max_hotspot_celsius=_max(series["hotspot_celsius"]),
        max_memory_celsius=_max(series["memory_celsius"]),
        mean_power_watts=_mean(power),
        max_power_watts=_max(power),
        energy_kwh=energy,
        energy_is_estimate=estimate,
        power_limited_percent=_mean(series["power_violation_percent"]),
        heat_limited_percent=_mean(series["thermal_violation_percent"]),
        new_uncorrectable_errors=_growth(series["ecc_uncorrectable"]),
        idle_percent=_share_below(activity, 5.0),
    )


def _energy_kwh(counter: History, power: History) -> tuple[float | None, bool]:
    """From the counter, or (as an estimate) mean power times the time that has samples."""
    known = counter.mean[~np.isnan(counter.mean)]
    if known.size > 1 and known[-1] > known[0]:
        return float(known[-1] - known[0]) / 3.6e6, False
    watts = power.mean[~np.isnan(power.mean)]
    return (float(watts.sum()) * STEP_SECONDS / 3.6e6, True) if watts.size else (None, False)


def _mean(history: History) -> float | None:
    known = history.mean[~np.isnan(history.mean)]
    return float(known.mean()) if known.size else None


def _max(history: History) -> float | None:
    known = history.high[~np.isnan(history.high)]
    return float(known.max()) if known.size else None


def _growth(history: History) -> int | None:
    known = history.high[~np.isnan(history.high)]
    return max(0, int(known[-1] - known[0])) if known.size else None


def _share_below(history: History, bound: float) -> float | None:
    known = history.mean[~np.isnan(history.mean)]
    return float((known < bound).mean() * 100) if known.size else None


def _path(folder: Path, device: str) -> Path:
    return folder / f"{re.sub(r'[^0-9A-Za-z.]', '_', device)}.samples"


def _load(path: Path) -> tuple[str, tuple[str, ...], npt.NDArray[np.void]]:
    """Device, keys and records of a file; empty when it is missing or not ours."""
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        described: Mapping[str, object] = json.loads(head)
        device, keys = str(described["device"]), tuple(str(key) for key in described["keys"])  # type: ignore[attr-defined]
    except (OSError, ValueError, KeyError, TypeError):
        device, keys, body = "", (), b""
    record = np.dtype([("at", "<f8"), ("sample", "<f4", (3, len(keys)))])
    whole = len(body) // record.itemsize
    return device, keys, np.frombuffer(body, dtype=record, count=whole)
