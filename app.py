"""Command line and composition root of Tunedeck. Without a command it serves the dashboard.

Exit codes: 0 done (wait: the job succeeded), 1 failed, 2 bad input or usage, 3 not found, 4 conflicts with the job's state,
5 the job was stopped or cancelled (wait), 6 the job was lost (wait), 7 environment or storage fault.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Annotated

import typer

from backend.domain.job import JobState
from backend.errors import Conflict
from backend.services.gpus import build_sampler, open_gpus
from backend.services.worker import Worker, WorkerRunning
from backend.settings import load_settings
from backend.store.paths import DataPaths
from ui.cli import configs, host, jobs, search, watch
from ui.cli.common import open_api, reported

cli = typer.Typer(add_completion=False, no_args_is_help=False, pretty_exceptions_enable=False, help=__doc__)
for module in (jobs, watch, configs, host, search):
    cli.add_typer(module.commands)


@cli.callback(invoke_without_command=True)
def main(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        serve()


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; other than loopback needs a login.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one.")] = None,
) -> None:
    """Serve the dashboard (and start a worker when there is none)."""
    with reported():
        from ui.main import serve_dashboard

        serve_dashboard(load_settings(), host=host, port=port)


@cli.command("hash-password")
def hash_password_(
    user: Annotated[str, typer.Argument(help="Name to sign in with.")],
    stdin: Annotated[bool, typer.Option("--stdin", help="Read the password from standard input.")] = False,
) -> None:
    """One line for TUNEDECK_AUTH_FILE: {"user": "hash"}. Several users go into one object."""
    from ui.sessions import hash_password

    with reported():
        password = (
            sys.stdin.readline().rstrip("\n")
            if stdin
            else typer.prompt("Password", hide_input=True, confirmation_prompt=True)
        )
        typer.echo(json.dumps({user: hash_password(password)}, ensure_ascii=False))


@cli.command()
def worker(
    stop: Annotated[
        bool, typer.Option("--stop", help="End the running worker; runs go on, waiting ones wait.")
    ] = False,
    if_idle: Annotated[bool, typer.Option("--if-idle", help="With --stop: only while no job runs or waits.")] = False,
) -> None:
    """Run the worker alone: queue, supervision, telemetry. Ends at once when one serves this data folder already."""
    if stop:
        with reported():
            api = open_api()
            if if_idle and (busy := api.list_jobs(states=[state for state in JobState if not state.is_final])[0]):
                raise Conflict(f"{busy} jobs run or wait.")
            typer.echo("The worker has ended." if api.stop_worker() else "No worker was running.")
        return
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        settings = load_settings()
        paths = DataPaths(settings.data_dir)
        Worker(settings, gpus=open_gpus(paths), sampler=build_sampler(paths)).run()
    except WorkerRunning as error:
        typer.echo(str(error))


if __name__ == "__main__":
    cli()
