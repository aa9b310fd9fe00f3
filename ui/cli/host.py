"""Commands about this host: GPUs, doctor, host check."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from backend.domain.host import CheckStatus
from backend.domain.job import JobState
from backend.services.api import Api
from backend.services.bench import BenchStore, Comparison, describe_check, describe_comparison, describe_drift
from backend.services.bench_runs import Benches, BenchWish
from backend.services.doctor import examine_host
from backend.services.gpus import open_gpus, read_fixture
from ui.cli.common import (
    EXIT_FAILED,
    EXIT_OF_STATE,
    AsJson,
    await_gpus,
    follow_to_end,
    open_api,
    parse_pairs,
    reported,
    show_job,
)

commands = typer.Typer()


@commands.command()
def gpus(
    from_: Annotated[
        list[Path] | None, typer.Option("--from", help="Recorded tool output, instead of this host.")
    ] = None,
    more: Annotated[list[Path] | None, typer.Argument(help="Further recordings.")] = None,
    as_json: AsJson = False,
) -> None:
    """This host's GPUs as the worker sampled them last; with `--from FILE... --json` recordings, one JSON object a line."""
    with reported():
        if not from_:
            show_host_gpus(as_json)
        for path in [*(from_ or []), *(more or [])]:
            reading = read_fixture(path).to_json()
            typer.echo(
                json.dumps(reading, ensure_ascii=False)
                if as_json
                else json.dumps(reading, indent=2, ensure_ascii=False)
            )


def show_host_gpus(as_json: bool) -> None:
    service = open_gpus(open_api().paths)
    latest, devices = service.latest_readings(), service.to_json()
    if as_json:
        record = {"at": latest.at, "stale": latest.stale, "source": asdict(service.source()), "gpus": devices}
        typer.echo(json.dumps(record, ensure_ascii=False, default=str))
        return
    age = "stale: is a worker running?" if latest.stale else f"{latest.age_seconds:.1f} s old"
    source = service.source()
    why = f" ({source.reason})" if source.reason else ""
    typer.echo(f"source: {source.label}{why}; {len(devices)} devices; {age} {latest.error}".rstrip())
    for device in devices:
        typer.echo(device_line(device))


def device_line(device: Mapping[str, Any]) -> str:
    """Place, name, load and holder of one GPU; what is not reported is a dash."""
    reading = device["reading"] or {}

    def told(name: str, unit: str, factor: float = 1.0) -> str:
        value = reading.get(name)
        return f"– {unit}" if value is None else f"{value * factor:.0f} {unit}"

    gib = 1 / (1 << 30)
    load = [told("gfx_activity_percent", "%"), told("vram_used_bytes", "GiB", gib), told("socket_power_watts", "W")]
    holder = f"set aside: {device['set_aside']}" if device["set_aside"] else device["leased_by"] or "free"
    return "  ".join([device["id"], device["name"], *load, told("hotspot_celsius", "°C"), holder])


@commands.command()
def doctor(
    as_json: AsJson = False,
    stack: Annotated[bool, typer.Option(help="Also ask the training environment what works in it.")] = True,
) -> None:
    """Check GPUs, host and training environment; each line with what to do and who says so. Exit code 1: an error."""
    with reported():
        api = open_api()
        python = api.settings.training_python if stack else None
        report = examine_host({"data": api.paths.root}, gpus=open_gpus(api.paths), python=python)
        if as_json:
            typer.echo(json.dumps(report.to_json(), ensure_ascii=False))
        else:
            for check in report.checks:
                typer.echo(f"{check.status.value:8} {check.title}: {check.found}")
                if check.status is not CheckStatus.OK:
                    typer.echo(f"         expected {check.expected}. {check.advice} [{check.source}]")
        raise typer.Exit(EXIT_FAILED if report.status is CheckStatus.ERROR else 0)


@commands.command()
def bench(
    gpu: Annotated[list[str] | None, typer.Option(help="PCI address; all free GPUs if left out.")] = None,
    processes: Annotated[int | None, typer.Option(help="Ranks on a host without GPUs.")] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(help="plain, a name from the GPUs page, or your own with --env; several are checked one by one."),
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", help="NAME=VALUE for the check, e.g. NCCL_MIN_NCHANNELS=112")
    ] = None,
    history: Annotated[bool, typer.Option(help="Only show the checks that are kept.")] = False,
    compare: Annotated[
        tuple[str, str] | None, typer.Option(help="Two checks' job ids: their all-reduce side by side.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Host check in under 30 s: matrix products, memory, launches and all-reduce; kept, and compared with earlier ones."""
    with reported():
        api = open_api()
        benches = Benches(api, open_gpus(api.paths))
        if compare:
            show_comparison(benches.compare(*compare), as_json)
            return
        if history:
            for check in benches.store.checks():
                typer.echo(json.dumps(asdict(check)) if as_json else "\n".join(describe_check(check)))
            return
        variables = {key: str(value) for key, value in parse_pairs(env or [], "--env").items()}
        wish = BenchWish(
            gpus=tuple(gpu or ()), processes=processes, profiles=tuple(profile or ("plain",)), env=variables
        )  # fmt: skip
        await_gpus(api)
        jobs = benches.start(wish)
        drifted = [follow_check(api, benches.store, job.id, as_json) for job in jobs]
        if len(jobs) == 2 and not as_json:
            show_comparison(benches.compare(jobs[0].id, jobs[1].id), as_json)
        raise typer.Exit(EXIT_FAILED if any(drifted) else 0)


def follow_check(api: Api, store: BenchStore, job_id: str, as_json: bool) -> bool:
    """Wait for a host check and print it; true: something got worse. Raises typer.Exit when it left no figures."""
    job = follow_to_end(api, job_id, timeout=0, quiet=as_json)
    if job.state is not JobState.SUCCEEDED:
        show_job(job, as_json)
        typer.echo(job.message, err=True)
        raise typer.Exit(EXIT_OF_STATE.get(job.state, EXIT_FAILED))
    check, drift = store.collect(job)
    if as_json:
        record = {"check": asdict(check), "drift": [asdict(each) for each in drift]}
        typer.echo(json.dumps(record, ensure_ascii=False))
    else:
        for line in (*describe_check(check), *map(describe_drift, drift)):
            typer.echo(line)
    return bool(drift)


def show_comparison(rows: Sequence[Comparison], as_json: bool) -> None:
    typer.echo(json.dumps([asdict(row) for row in rows]) if as_json else "\n".join(describe_comparison(rows)))
