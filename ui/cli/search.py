"""Commands that search for better settings: tuner and sweep."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from backend.errors import (
    InvalidInput,
)
from backend.services.gpus import open_gpus
from backend.services.searches import Searches, describe_rows
from backend.services.sweeps import Sweeps, describe_sweep, parse_range
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
    show_: Annotated[str, typer.Option("--show", help="Only the table of this sweep.")] = "",
    as_json: AsJson = False,
) -> None:
    """Train a job with every combination of some settings, as a group of jobs; `--show ID` compares them."""
    with reported():
        api = open_api()
        sweeps = Sweeps(api)
        if not show_:
            if file is None:
                raise InvalidInput("FILE", found="nothing", expected="the YAML of a job")
            ranges = [parse_range(*pair) for each in grid or [] for pair in parse_pairs([each], "--grid").items()]
            text = read_text(file)
            await_gpus(api)
            show_ = sweeps.start(text, ranges, samples=samples, seed=seed, early_stop=early_stop).id
        view = sweeps.view(show_)
        if as_json:
            typer.echo(json.dumps(asdict(view), ensure_ascii=False))
            return
        typer.echo(f"sweep {show_}: {len(view.rows)} runs, {view.active} not ended")
        for line in describe_sweep(view):
            typer.echo(line)
