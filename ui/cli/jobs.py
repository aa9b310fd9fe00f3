"""Commands that start, end and continue jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from backend.domain.job import StopMode
from backend.errors import (
    InvalidInput,
)
from backend.services.attach import attach as attach_run
from backend.services.presets import load_preset
from ui.cli.common import (
    EXIT_FAILED,
    EXIT_OF_STATE,
    AsJson,
    JobId,
    await_gpus,
    follow_to_end,
    open_api,
    parse_changes,
    read_text,
    reported,
    show_job,
)

commands = typer.Typer()


@commands.command()
def submit(
    file: Annotated[
        Path | None, typer.Argument(help="YAML: LLaMA-Factory arguments, and `tunedeck:` for ours.")
    ] = None,
    preset: Annotated[str, typer.Option(help="A preset's name instead of a file (see `presets`).")] = "",
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, e.g. --set learning_rate=1e-4")] = None,
    as_json: AsJson = False,
) -> None:
    """Check, store and queue a job."""
    with reported():
        api = open_api()
        if (file is None) == (not preset):
            raise InvalidInput("FILE", found="both or neither of FILE and --preset", expected="one of them")
        text = read_text(file) if file else load_preset(preset, demo=api.paths.demo)
        changes = parse_changes(set_ or [])
        await_gpus(api)
        show_job(api.submit(text, changes), as_json)


@commands.command()
def attach(
    path: Annotated[Path, typer.Argument(help="Output folder or console log of a run that Tunedeck did not start.")],
    pid: Annotated[
        int | None, typer.Option(help="Its process, so that it can be stopped; found by itself when it writes the log.")
    ] = None,
    name: Annotated[str, typer.Option(help="How the run is called; default the name of the file or folder.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show a run that Tunedeck did not start, running or finished: charts, diagnosis, checkpoints, log. Writes nothing there."""
    with reported():
        show_job(attach_run(open_api(), str(path.absolute()), pid=pid, name=name), as_json)


@commands.command()
def stop(
    job_id: JobId,
    mode: Annotated[
        StopMode, typer.Option(help="save: after a checkpoint; no_save: at once; kill: SIGKILL.")
    ] = StopMode.SAVE,
    as_json: AsJson = False,
) -> None:
    """End a run, or cancel a waiting one."""
    with reported():
        show_job(open_api().request_stop(job_id, mode), as_json)


@commands.command()
def save(job_id: JobId, as_json: AsJson = False) -> None:
    """Write a checkpoint now, without stopping."""
    with reported():
        show_job(open_api().request_save(job_id), as_json)


@commands.command()
def resume(
    job_id: JobId,
    checkpoint: Annotated[
        str, typer.Option(help="Folder name, e.g. checkpoint-100; the last complete one if left out.")
    ] = "",
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value to change for the new job")] = None,
    as_json: AsJson = False,
) -> None:
    """A new job that goes on from a checkpoint."""
    with reported():
        api = open_api()
        name, changes = checkpoint or api.last_checkpoint(job_id), parse_changes(set_ or [])
        await_gpus(api)
        show_job(api.resume(job_id, name, changes), as_json)


@commands.command()
def delete(job_id: JobId, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False) -> None:
    """Delete a finished job with all its files, checkpoints included."""
    with reported():
        if not yes:
            typer.confirm(f"Delete {job_id} and all its checkpoints?", abort=True)
        open_api().delete(job_id)


@commands.command()
def wait(
    job_id: JobId,
    timeout: Annotated[float, typer.Option(help="Seconds; 0 = for ever.")] = 0.0,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress line.")] = False,
    as_json: AsJson = False,
) -> None:
    """Wait for the end of a job, with a progress line; the exit code tells how it ended."""
    with reported():
        api = open_api()
        job = follow_to_end(api, job_id, timeout=timeout, quiet=quiet or as_json)
        show_job(job, as_json)
    raise typer.Exit(EXIT_OF_STATE.get(job.state, EXIT_FAILED))
