"""Host checks as jobs: submit one, keep its answer, tell what got worse, compare environment profiles."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Protocol

from backend.domain.bench import DeviceCheck, Drift, HostCheck, LinkRow
from backend.domain.job import Job, JobSpec, Task
from backend.errors import InvalidInput
from backend.parsing.host_check import parse_host_check
from backend.planning.drift import Comparison as Comparison
from backend.planning.drift import compare_checks
from backend.planning.drift import find_drift as find_drift
from backend.planning.groups import HOST_CHECK as HOST_CHECK
from backend.planning.spec import dump_spec
from backend.store.files import append_line, read_json
from backend.store.paths import DataPaths


class _Submitter(Protocol):
    def submit(self, spec_text: str) -> Job: ...


class BenchStore:
    """All checks of this installation, appended to one file; the newest last."""

    def __init__(self, paths: DataPaths) -> None:
        self._paths = paths

    def submit(
        self, api: _Submitter, *, gpus: Sequence[str] = (), processes: int | None = None, env: Mapping[str, str] | None = None,
        profile: str = "plain",
    ) -> Job:  # fmt: skip
        """Queue a check of `gpus` (all by default) with the variables of one environment profile."""
        spec = JobSpec(
            name=f"host-check-{profile}", train={}, task=Task.BENCH, gpus=tuple(gpus), processes=processes, env=env or {},
            tags=(HOST_CHECK, profile),
        )  # fmt: skip
        return api.submit(dump_spec(spec))

    def collect(self, job: Job) -> tuple[HostCheck, tuple[Drift, ...]]:
        """Read a finished check, keep it, compare it. Raises InvalidInput when it left no answer."""
        profile = job.tags[1] if len(job.tags) > 1 else ""
        record = read_json(self._paths.job(job.id).bench)
        check = parse_host_check(record, at=job.ended_at or job.created_at, job=job.id, profile=profile)
        check = name_cards(check, job.devices)
        before = [known for known in self.checks() if known.job != job.id]
        if len(before) == len(self.checks()):
            self._paths.benches.parent.mkdir(parents=True, exist_ok=True)
            append_line(self._paths.benches, json.dumps(asdict(check)))
        return check, find_drift(check, before)

    def checks(self) -> list[HostCheck]:
        """Each job's once, oldest first."""
        return list({check.job: check for check in self._read()}.values())

    def latest(self) -> HostCheck | None:
        """The newest check that measured a matrix product on an accelerator."""
        found = [check for check in self._read() if any(device.device.startswith("cuda") for device in check.devices)]
        return found[-1] if found else None

    def compare(self, first_job: str, second_job: str) -> tuple[Comparison, ...]:
        """All-reduce of two checks side by side. Raises InvalidInput when one is not kept here."""
        known = {check.job: check for check in self._read()}
        for name in (first_job, second_job):
            if name not in known:
                raise InvalidInput("job", found=name, expected="a finished host check")
        return compare_checks(known[first_job], known[second_job])

    def _read(self) -> Iterator[HostCheck]:
        try:
            lines = self._paths.benches.read_text("utf-8").splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                record = json.loads(line)
                devices = tuple(DeviceCheck(**row) for row in record.pop("devices"))
                links = tuple(LinkRow(**row) for row in record.pop("links"))
                yield HostCheck(devices=devices, links=links, **record)
            except (ValueError, KeyError, TypeError):
                continue  # half a line after a crash, or one of another version


def name_cards(check: HostCheck, devices: Sequence[str]) -> HostCheck:
    """With the PCI address of each card: `cuda:N` of a job is the Nth of its devices."""

    def address(word: str) -> str:
        kind, _, number = word.partition(":")
        return devices[int(number)] if kind == "cuda" and number.isdecimal() and int(number) < len(devices) else ""

    return replace(check, devices=tuple(replace(device, id=address(device.device)) for device in check.devices))


_UNITS = ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def describe_comparison(rows: Sequence[Comparison]) -> Iterator[str]:
    for row in rows:
        size = next(f"{row.bytes / unit:g} {name}" for unit, name in _UNITS if row.bytes >= unit)
        yield f"  all-reduce {size:>8}: {row.first / 1e9:8.2f} against {row.second / 1e9:8.2f} GB/s, {row.ratio:.2f} times"


def describe_check(check: HostCheck) -> Iterator[str]:
    """Lines for terminals."""
    stack = f"torch {check.torch}{' HIP ' + check.hip if check.hip else ''}"
    ranks = f"{check.world} rank{'s' if check.world != 1 else ''}"
    yield f"{check.host}: {ranks}, {check.backend or 'no links'}, {stack}, profile {check.profile or 'plain'}"
    for device in check.devices:
        figures = (
            f"{device.matmul_flops / 1e12:.3g} TFLOP/s" if device.matmul_flops else "no matrix figure",
            f"{device.memory_bytes_per_second / 1e9:.3g} GB/s"
            if device.memory_bytes_per_second
            else "no memory figure",
            f"{device.launch_seconds * 1e6:.1f} us a launch" if device.launch_seconds else "",
        )
        yield f"  {device.id or device.device} {device.name}: {', '.join(figure for figure in figures if figure)}"
    for row in check.links:
        wrong = " SUMS ARE WRONG" if row.right is False else ""
        size = next(f"{row.bytes / unit:g} {name}" for unit, name in _UNITS if row.bytes >= unit)
        yield f"  all-reduce {size:>10}: {row.seconds * 1e6:10.1f} us, bus {row.bus_bytes_per_second / 1e9:8.2f} GB/s{wrong}"


def describe_drift(drift: Drift) -> str:
    where = f" of {drift.device}" if drift.device else ""
    return f"ALARM {drift.what}{where}: {drift.now:.4g}, usually {drift.usual:.4g} ({drift.share:.0%})"
