"""RCCL and process group lines into the network in use, the transports, warnings and collectives that timed out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NETWORK = re.compile(r"Using network (AWS Libfabric|Libfabric|Socket|IB(?:ext)?\w*|[\w-]+)")
_PROVIDER = re.compile(r"Selected [Pp]rovider is (\S+?)(?:,|$|\s)(?:.*?found (\d+) nics)?")
_INTERFACE = re.compile(r"NET/(?:Socket|IB) : Using \[0\](\S+?):")
_VIA = re.compile(r"\bvia (P2P/\w+|SHM\b\S*|NET/\w+)")
_VERSION = re.compile(r"\b(?:RCCL|NCCL) version\s*:?\s*([\d.]+\S*)")
_LIBRARY = re.compile(r"librccl path\s*:\s*(\S+)", re.IGNORECASE)
_DEVICE = re.compile(r"^[\w.-]+:\d+:\d+ \[(\d+)\]")
_TIMEOUT = re.compile(
    r"\[(?:PG [^\]]*)?Rank (\d+)\] Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(\d+), OpType=(\w+)"
    r"(?:.*?Timeout\(ms\)=(\d+))?(?:.*?ran for (\d+) milliseconds)?(?:.*?\[repeated (\d+)x)?"
)
TRIGGERS = ("NCCL", "RCCL", "NET/", "Using network", "collective")
"""Literals without which a line is none of RCCL's (frames of a stack begin with #)."""
_RANK = re.compile(r"\bRank (\d+)\]")
_GLOG = re.compile(r"\[([EF])\d{3,4} (\d\d):(\d\d):(\d\d)")
_STACK_FRAME = re.compile(r"^#\d+ \S+ from (\S+:\d+)")
_WARN = re.compile(r"NCCL WARN (.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTimeout:
    """One rank's report that a collective did not end. The rank reports; the guilty one is another."""

    rank: int
    sequence: int
    operation: str
    timeout_ms: int | None
    ran_ms: int | None
    repeated: int | None


@dataclass(slots=True)
class RcclLines:
    """Takes lines in order; the fields hold what was found so far."""

    lines: int = 0
    network: str | None = None
    provider: str | None = None
    nics: int | None = None
    interface: str | None = None
    version: str | None = None
    library: str | None = None
    transports: dict[str, int] = field(default_factory=dict)
    devices_with_warnings: set[int] = field(default_factory=set)
    warnings: dict[str, int] = field(default_factory=dict)
    timeouts: list[CollectiveTimeout] = field(default_factory=list)
    watchdog_ranks: list[int] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    fatal_after_seconds: int | None = None
    """From the first error of the process group to the line that ends the process."""
    _first_error: int | None = None

    def take(self, text: str, rank: int | None = None) -> bool:
        """True when the line is one of RCCL's or of torch's process group."""
        if "destroy_process_group" in text:  # said at the end of any job
            return False
        if "NCCL" not in text and "NET/" not in text and "Using network" not in text and "RCCL" not in text:
            return self._take_report(text)
        self.lines += 1
        self._take_network(text)
        if found := _GLOG.search(text):
            self._take_time(found[1], (int(found[2]) * 60 + int(found[3])) * 60 + int(found[4]))
        if warned := _WARN.search(text):
            self._take_warning(text, warned[1])
        if "Watchdog caught" in text:
            self._take_timeout(text)
        if "watchdog got stuck" in text or "Heartbeat monitor" in text or "watchdog hang" in text:
            found = _RANK.search(text)
            who = rank if rank is not None else int(found[1]) if found else None
            if who is not None and who not in self.watchdog_ranks:
                self.watchdog_ranks.append(who)
        return True

    def _take_report(self, text: str) -> bool:
        """The desync report below a timeout has no prefix."""
        if "collective" not in text and not text.startswith("#"):
            return False
        if "collective" in text and (" - [" in text or "collective #" in text or "failed collective" in text):
            self.lines += 1
            return True
        if self.timeouts and (frame := _STACK_FRAME.match(text)):
            self.lines += 1
            if len(self.stack) < 8:
                self.stack.append(frame[1])
            return True
        return False

    def _take_network(self, text: str) -> None:
        if found := _NETWORK.search(text):
            self.network = found[1]
        if found := _PROVIDER.search(text):
            self.provider = found[1].rstrip(",")
            self.nics = int(found[2]) if found[2] else self.nics
        if found := _INTERFACE.search(text):
            self.interface = found[1]
        if found := _VIA.search(text):
            self.transports[found[1]] = self.transports.get(found[1], 0) + 1
        if found := _VERSION.search(text):
            self.version = found[1]
        if found := _LIBRARY.search(text):
            self.library = found[1]

    def _take_time(self, severity: str, second: int) -> None:
        if severity == "E" and self._first_error is None:
            self._first_error = second
        elif severity == "F" and self._first_error is not None and self.fatal_after_seconds is None:
            self.fatal_after_seconds = (second - self._first_error) % 86400

    def _take_warning(self, text: str, warning: str) -> None:
        key = re.sub(r"\d+|0x[0-9a-f]+", "#", warning)[:160]
        if key in self.warnings or len(self.warnings) < 64:
            self.warnings[key] = self.warnings.get(key, 0) + 1
        if device := _DEVICE.match(text):
            self.devices_with_warnings.add(int(device[1]))

    def _take_timeout(self, text: str) -> None:
        found = _TIMEOUT.search(text)
        if found is None or len(self.timeouts) >= 4096:
            return
        self.timeouts.append(
            CollectiveTimeout(
                rank=int(found[1]), sequence=int(found[2]), operation=found[3], timeout_ms=_int(found[4]),
                ran_ms=_int(found[5]), repeated=_int(found[6]),
            )
        )  # fmt: skip


def _int(text: str | None) -> int | None:
    return int(text) if text else None
