"""Commands that show what a job does and did: state, log, profile, differences, export, report."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from backend.domain.events import Alert, Event
from backend.domain.job import JobState
from backend.errors import (
    Conflict,
    NotFound,
    StoreFault,
)
from backend.services.comparison import Comparisons
from backend.services.gpus import open_gpus
from backend.services.profile import StepProfile, load_profile
from backend.services.run_speed import open_comparisons
from backend.services.views import Views
from ui.cli.common import AsJson, JobId, open_api, reported, summary_line, to_language

commands = typer.Typer()


@commands.command("list")
def list_(
    query: Annotated[str, typer.Argument(help="Words to look for.")] = "",
    state: Annotated[list[JobState] | None, typer.Option(help="Only these states.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Jobs, newest first."""
    with reported():
        total, jobs = open_api().list_jobs(query, state or (), limit)
        if as_json:
            typer.echo(json.dumps({"total": total, "runs": [asdict(job) for job in jobs]}, ensure_ascii=False))
            return
        for job in jobs:
            typer.echo(summary_line(job))
        if total > len(jobs):
            typer.echo(f"... and {total - len(jobs)} more (--limit)")


@commands.command()
def show(
    job_id: JobId,
    as_json: AsJson = False,
    lang: Annotated[str, typer.Option(help="en or zh, for alarms.")] = "en",
) -> None:
    """One job: state, progress, history and the exact command."""
    with reported():
        language = to_language(lang)
        api = open_api()
        job = api.get_job(job_id)
        if as_json:
            events = [{"kind": event.kind, **asdict(event)} for event in api.read_events(job_id)]
            record = {"job": asdict(job), "events": events, "plan": asdict(api.read_plan(job_id))}
            typer.echo(json.dumps(record, ensure_ascii=False))
            return
        typer.echo(summary_line(job))
        if job.message:
            typer.echo(job.message)
        for event in api.read_events(job_id):
            typer.echo(
                f"  {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(event.at))} {event_line(event, language)}"
            )
        typer.echo(api.export(job_id).shell)


def event_line(event: Event, language: Literal["en", "zh"]) -> str:
    """One event of a job's history; alerts in words of the language, the others as their fields."""
    if isinstance(event, Alert):
        from ui.text.alarms import alarm_line

        return f"{event.kind} {event.severity.value}: {alarm_line(language, event)}"
    values = {name: value for name, value in asdict(event).items() if name != "at" and value}
    return f"{event.kind} {values}"


@commands.command()
def logs(
    job_id: JobId,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job ends.")] = False,
    lines: Annotated[int, typer.Option("-n", help="Only the last so many lines; 0 = all.")] = 0,
) -> None:
    """The console log, as the trainer wrote it."""
    with reported():
        api = open_api()
        path = api.job_paths(job_id).console
        offset = start_of_tail(path, lines)
        while True:
            ended = api.get_job(job_id).state.is_final
            offset = copy_from(path, offset)
            if ended or not follow:
                return
            time.sleep(0.3)


def start_of_tail(path: Path, lines: int) -> int:
    """Byte offset of the last `lines` lines (0: the start)."""
    if lines <= 0 or not path.exists():
        return 0
    data = path.read_bytes()
    position = len(data.rstrip(b"\n"))
    for _ in range(lines):
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            return 0
    return position + 1


def copy_from(path: Path, offset: int) -> int:
    """Copy what stands behind `offset` to stdout; returns the new offset."""
    if not path.exists():
        return offset
    with path.open("rb") as file:
        file.seek(offset)
        while chunk := file.read(1 << 20):
            sys.stdout.buffer.write(chunk)
            offset += len(chunk)
    sys.stdout.flush()
    return offset


@commands.command()
def profile(
    job_id: JobId,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the steps.")] = 600.0,
    as_json: AsJson = False,
) -> None:
    """Where a step's time goes: traces 3 steps of a running job on every rank. Of an ended job: its last such profile."""
    with reported():
        api = open_api()
        asked_at, paths, until = time.time(), api.job_paths(job_id), time.monotonic() + timeout
        if api.get_job(job_id).state.is_active:
            api.request_profile(job_id)
        while not (found := load_profile(paths)).answers(asked_at) and api.get_job(job_id).state.is_active:
            if time.monotonic() > until:
                raise Conflict(f"Job {job_id} has not ended the profiled steps after {timeout:.0f} s.")
            time.sleep(0.5)
        if not found.ranks:
            raise NotFound(f"Job {job_id} has no profile.")
        typer.echo(json.dumps(asdict(found), ensure_ascii=False) if as_json else "\n".join(profile_lines(found)))


def profile_lines(found: StepProfile) -> Iterator[str]:
    """One line a rank: shares of the step, largest first."""
    for rank in found.ranks:
        if rank.error:
            yield f"rank {rank.rank}: not profiled: {rank.error}"
            continue
        work = {name: share for name, share in (rank.shares or {}).items() if name != "communication"}
        work |= {"communication (exposed)": rank.communication_exposed_share or 0.0, "idle": rank.idle_share or 0.0}
        parts = sorted(work.items(), key=lambda part: -part[1])
        yield f"rank {rank.rank}, steps {rank.first} to {rank.last}: " + ", ".join(f"{n} {s:.1%}" for n, s in parts)
    if found.late:
        yield f"rank {found.late.rank} is late: the others wait for it {found.late.share:.0%} of a step"


@commands.command()
def diff(
    first: JobId,
    second: Annotated[str, typer.Argument(help="The other job.")],
    as_json: AsJson = False,
) -> None:
    """Settings in which two jobs differ: changed keys only. What a job does not set is the trainer's default."""
    with reported():
        found = Comparisons(Views(open_api())).difference(first, second)
        if as_json:
            changes = {difference.key: [asdict(setting) for setting in difference.settings] for difference in found}
            typer.echo(json.dumps({"jobs": [first, second], "changed": changes}, ensure_ascii=False, default=str))
            return
        for difference in found:
            typer.echo(f"{difference.key}: {' -> '.join(setting.describe() for setting in difference.settings)}")
        if not found:
            typer.echo("no setting differs")


@commands.command()
def export(
    job_id: JobId,
    to: Annotated[Path, typer.Option("--to", help="Folder to write into; files that exist are not overwritten.")],
    as_json: AsJson = False,
) -> None:
    """A job for use without Tunedeck: train.yaml, ds_config.json, run.sh, job.sbatch (Slurm) and spec.yaml."""
    with reported():
        written = [str(path) for path in open_api().export_to(job_id, to)]
        typer.echo(json.dumps({"files": written}) if as_json else "\n".join(written))


@commands.command()
def report(
    job_ids: Annotated[list[str], typer.Argument(help="One job, or several to compare.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.")],
    lang: Annotated[str, typer.Option(help="en or zh.")] = "en",
) -> None:
    """One HTML file with figures, settings and curves of a run or a comparison; it opens without a server."""
    from ui.report import build_report

    with reported():
        language = to_language(lang)
        api = open_api()
        comparisons = open_comparisons(api, open_gpus(api.paths))
        page = build_report(comparisons, job_ids, language)
        try:
            output.write_text(page, "utf-8")
        except OSError as error:
            raise StoreFault(f"Cannot write {output}: {error.strerror or error}.") from error
        typer.echo(f"{output} ({len(page.encode()) / 1e6:.1f} MB)")
