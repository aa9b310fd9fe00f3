"""What all commands of the command line share: exit codes, how errors and jobs are told, how inputs are read."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from backend.domain.job import Job, JobState
from backend.domain.problem import ArgValue, Problem
from backend.errors import (
    Conflict,
    EnvironmentFault,
    InvalidInput,
    NotFound,
    PathRefused,
    SpecRejected,
    StoreFault,
    TunedeckError,
)
from backend.services.api import Api
from backend.services.gpus import open_gpus
from backend.settings import load_settings

EXIT_FAILED, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_CONFLICT, EXIT_STOPPED, EXIT_LOST, EXIT_FAULT = 1, 2, 3, 4, 5, 6, 7
EXIT_OF_STATE = {
    JobState.SUCCEEDED: 0,
    JobState.FAILED: EXIT_FAILED,
    JobState.CANCELLED: EXIT_STOPPED,
    JobState.LOST: EXIT_LOST,
}

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]
JobId = Annotated[str, typer.Argument(help="Job id (see `list`).")]


@contextmanager
def reported() -> Iterator[None]:
    """Expected errors as one clear line and their exit code; unexpected ones keep their traceback."""
    try:
        yield
    except SpecRejected as error:
        for problem in error.problems:
            if isinstance(problem, Problem):
                typer.echo(describe_problem(problem), err=True)
        raise typer.Exit(EXIT_USAGE) from error
    except TunedeckError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(exit_code(error)) from error


def exit_code(error: TunedeckError) -> int:
    match error:
        case InvalidInput() | PathRefused():
            return EXIT_USAGE
        case NotFound():
            return EXIT_NOT_FOUND
        case Conflict():
            return EXIT_CONFLICT
        case EnvironmentFault() | StoreFault():
            return EXIT_FAULT
        case _:
            return EXIT_FAILED


def describe_problem(problem: Problem) -> str:
    where = f"{problem.field}: " if problem.field else ""
    expected = f"; expected {problem.expected}" if problem.expected else ""
    return (
        f"{problem.severity.value}: {where}found {problem.found}{expected}. {problem.reason} {problem.remedy}".rstrip()
    )


def open_api() -> Api:
    """This installation's jobs, with the GPUs that its telemetry knows."""
    api = Api(load_settings())
    api.read_devices = open_gpus(api.paths).device_ids
    return api


def await_gpus(api: Api) -> None:
    """Before a job is planned: which GPUs there are must be known, also right after an installation."""
    gpus = open_gpus(api.paths)
    if gpus.latest_readings().at is not None:
        return
    typer.echo("Looking for GPUs, for the first time in this installation ...", err=True)
    api.ensure_worker()
    if not gpus.await_first_round():
        typer.echo("warning: the worker has not looked at the GPUs yet; the job is planned without them", err=True)


def follow_to_end(api: Api, job_id: str, *, timeout: float, quiet: bool) -> Job:
    """Poll until the job is final; restarts a worker that died meanwhile. Raises Conflict at the time limit."""
    began, shown = time.monotonic(), ""
    interactive = sys.stderr.isatty()
    while True:
        job = api.get_job(job_id)
        line = progress_line(job)
        if not quiet and line != shown:
            typer.echo(f"\r\033[K{line}" if interactive else line, err=True, nl=not interactive or job.state.is_final)
            shown = line
        if job.state.is_final:
            return job
        if timeout and time.monotonic() - began > timeout:
            raise Conflict(f"Job {job_id} is still {job.state.value} after {timeout:.0f} s.")
        api.ensure_worker()
        time.sleep(0.5)


def to_language(lang: str) -> Literal["en", "zh"]:
    if lang not in ("en", "zh"):
        raise InvalidInput("--lang", found=repr(lang), expected="en or zh")
    return "zh" if lang == "zh" else "en"


def progress_line(job: Job) -> str:
    steps = f"step {job.step}/{job.max_steps}" if job.max_steps else ""
    loss = f"loss {job.loss:.4f}" if job.loss is not None else ""
    return " · ".join(part for part in (job.state.value, job.phase if job.state.is_active else "", steps, loss) if part)


def summary_line(job: Job) -> str:
    reason = f" ({job.reason.value})" if job.reason else ""
    kind = f"{job.stage}/{job.finetuning_type}" if job.stage else "check"
    return f"{job.id}  {progress_line(job)}{reason}  {kind}  {job.model}"


def show_job(job: Job, as_json: bool) -> None:
    typer.echo(json.dumps({"job": asdict(job)}, ensure_ascii=False) if as_json else summary_line(job))


def read_text(path: Path) -> str:
    """Raises InvalidInput naming the file."""
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(str(path), found=str(error), expected="a readable UTF-8 text file") from error


def parse_changes(pairs: list[str]) -> dict[str, ArgValue]:
    """`key=value` pairs; values as the trainer reads them."""
    from omegaconf import OmegaConf

    changes: dict[str, ArgValue] = {}
    for key, value in parse_pairs(pairs, "--set").items():
        read = OmegaConf.to_container(OmegaConf.create(f"v: {value}"))
        changes[key] = read["v"] if isinstance(read, dict) else value
    return changes


def parse_pairs(pairs: list[str], option: str) -> dict[str, str]:
    """`key=value` texts as they stand; raises InvalidInput naming the option."""
    for pair in pairs:
        if "=" not in pair:
            raise InvalidInput(option, found=repr(pair), expected="key=value, e.g. learning_rate=1e-4")
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
