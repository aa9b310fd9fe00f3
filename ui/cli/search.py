"""Commands that search for better settings: tuner and sweep."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from backend.errors import (
    InvalidInput,
)
from backend.services.gpus import open_gpus
from backend.services.searches import Searches, describe_rows
from backend.services.sweep_view import SweepView, describe_sweep
from backend.services.sweeps import Sweeps, parse_range
from ui.cli.common import (
    EXIT_FAILED,
    EXIT_STOPPED,
    AsJson,
    await_gpus,
    open_api,
    parse_pairs,
    read_text,
    reported,
)

commands = typer.Typer()


@commands.command()
def tune(
    file: Annotated[Path | None, typer.Argument(help="YAML of the job whose settings are to be tuned.")] = None,
    budget: Annotated[float, typer.Option(help="Minutes that the trials may take.")] = 8.0,
    out: Annotated[Path | None, typer.Option(help="Write the tuned specification here.")] = None,
    search: Annotated[str, typer.Option(hidden=True)] = "",
    as_json: AsJson = False,
) -> None:
    """Measure short trials of the job itself and find the fastest settings that do the same training."""
    with reported():
        api = open_api()
        searches = Searches(api, open_gpus(api.paths))
        if not search and file is None:
            raise InvalidInput("FILE", found="nothing", expected="the YAML of a job")
        name = search or searches.create(read_text(file or Path()), budget * 60).id
        await_gpus(api)
        record = searches.run(name, lambda progress: typer.echo(progress.text, err=True))
        best = searches.best_text(name) if record.best else ""
        if out and best:
            out.write_text(best, "utf-8")
        if as_json:
            typer.echo(json.dumps({"search": asdict(record), "best_spec": best}, ensure_ascii=False))
        else:
            for line in describe_rows(record):
                typer.echo(line)
            gain = f"{record.gain:.2f} times the present settings" if record.gain else "no comparison"
            typer.echo(
                f"{record.state} after {record.seconds:.0f} s: {gain}. Best: {searches.root / name / 'best.yaml'}"
            )
    raise typer.Exit({"finished": 0, "stopped": EXIT_STOPPED}.get(record.state, EXIT_FAILED))


@commands.command()
def sweep(
    file: Annotated[Path | None, typer.Argument(help="YAML of the job that is varied.")] = None,
    grid: Annotated[list[str] | None, typer.Option(help="key=a,b,c; key=1e-5..1e-3:log with --samples")] = None,
    samples: Annotated[int | None, typer.Option(help="Draw so many combinations instead of all.")] = None,
    seed: Annotated[int, typer.Option(help="Of the drawing.")] = 0,
    early_stop: Annotated[bool, typer.Option("--early-stop", help="Stop runs that fall behind by eval loss.")] = False,
    show_: Annotated[str, typer.Option("--show", metavar="ID", help="Only the table of this sweep.")] = "",
    stop_: Annotated[
        str, typer.Option("--stop", metavar="ID", help="Cancel its waiting runs; running ones save first.")
    ] = "",
    resume_: Annotated[str, typer.Option("--resume", metavar="ID", help="Let its stopped runs go on.")] = "",
    failed: Annotated[bool, typer.Option("--failed", help="With --resume: failed runs too.")] = False,
    launch: Annotated[
        str, typer.Option("--launch", metavar="ID", help="Train the best settings as a run of its own.")
    ] = "",
    list_: Annotated[bool, typer.Option("--list", help="All sweeps.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a job with every combination of some settings, as a group of jobs; `--show ID` compares them."""
    with reported():
        asked = [
            name
            for name, value in (
                ("FILE", file),
                ("--show", show_),
                ("--stop", stop_),
                ("--resume", resume_),
                ("--launch", launch),
                ("--list", list_),
            )
            if value
        ]
        if len(asked) != 1:
            raise InvalidInput(
                "FILE",
                found=" and ".join(asked) or "nothing",
                expected="the YAML of a job, or one of --list, --show, --stop, --resume, --launch",
            )
        sweeps = Sweeps(open_api())
        if launch:
            job = sweeps.launch(launch)
            typer.echo(json.dumps({"job": job.id}) if as_json else job.id)
        elif list_:
            tell_sweeps([sweeps.view(each.id) for each in sweeps.every()], as_json=as_json)
        elif stop_:
            tell_sweep(sweeps.stop(stop_), as_json=as_json)
        elif resume_:
            tell_sweep(sweeps.resume(resume_, failed=failed), as_json=as_json)
        else:
            if file is not None:
                ranges = [parse_range(*pair) for each in grid or [] for pair in parse_pairs([each], "--grid").items()]
                show_ = sweeps.start(read_text(file), ranges, samples=samples, seed=seed, early_stop=early_stop).id
            tell_sweep(sweeps.view(show_), as_json=as_json)


def tell_sweep(view: SweepView, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(view), ensure_ascii=False))
        return
    typer.echo(f"sweep {view.sweep.id}: {len(view.rows)} runs, {view.active} not ended")
    for line in describe_sweep(view):
        typer.echo(line)


def tell_sweeps(views: Sequence[SweepView], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([asdict(view) for view in views], ensure_ascii=False))
    for view in views if not as_json else ():
        typer.echo(f"{view.sweep.id}  {len(view.rows)} runs, {view.active} not ended  {', '.join(view.sweep.keys)}")
