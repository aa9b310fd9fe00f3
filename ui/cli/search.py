"""Commands that search for better settings: tuner and sweep."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from backend.errors import (
    InvalidInput,
)
from backend.services.gpus import open_gpus
from backend.services.searches import Searches, SearchRecord, describe_rows
from backend.services.sweep_view import SweepView, describe_sweep
from backend.services.sweeps import Sweeps, parse_range
from ui.cli.common import (
    EXIT_FAILED,
    EXIT_STOPPED,
    AsJson,
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
    show_: Annotated[str, typer.Option("--show", metavar="ID", help="The table of this search.")] = "",
    stop_: Annotated[str, typer.Option("--stop", metavar="ID", help="End this search; what it measured is kept.")] = "",
    launch: Annotated[str, typer.Option("--launch", metavar="ID", help="Train with the best settings it found.")] = "",
    list_: Annotated[bool, typer.Option("--list", help="All searches.")] = False,
    search: Annotated[str, typer.Option(hidden=True)] = "",
    as_json: AsJson = False,
) -> None:
    """Measure short trials of the job itself and find the fastest settings that do the same training."""
    with reported():
        require_one(
            {"FILE": file, "--show": show_, "--stop": stop_, "--launch": launch, "--list": list_, "--search": search}
        )
        api = open_api()
        searches = Searches(api, open_gpus(api.paths))
        if launch:
            job = searches.launch(launch)
            typer.echo(json.dumps({"job": job.id}) if as_json else job.id)
        elif list_:
            tell_searches(searches.list(), as_json=as_json)
        elif stop_:
            tell_search(searches, searches.request_stop(stop_), as_json=as_json)
        elif show_:
            tell_search(searches, searches.get(show_), out=out, as_json=as_json)
        else:
            name = search or searches.claim(read_text(file or Path()), budget * 60).id
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: what was measured is kept
            try:
                record = searches.run(name, lambda progress: typer.echo(progress.text, err=True))
            except KeyboardInterrupt:
                record = searches.get(name)  # what was measured until now
            tell_search(searches, record, out=out, as_json=as_json)
            raise typer.Exit({"finished": 0, "stopped": EXIT_STOPPED}.get(record.state, EXIT_FAILED))


def tell_search(searches: Searches, record: SearchRecord, *, out: Path | None = None, as_json: bool) -> None:
    best = searches.best_text(record.id) if record.best else ""
    if out and best:
        out.write_text(best, "utf-8")
    if as_json:
        typer.echo(json.dumps({"search": asdict(record), "best_spec": best}, ensure_ascii=False))
        return
    for line in describe_rows(record):
        typer.echo(line)
    gain = f"{record.gain:.2f} times the present settings" if record.gain else "no comparison"
    where = f" Best: {searches.root / record.id / 'best.yaml'}" if best else ""
    why = f" ({record.message})" if record.message else ""
    typer.echo(f"{record.id}: {record.state}{why} after {record.seconds:.0f} s: {gain}.{where}")


def tell_searches(records: Sequence[SearchRecord], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([asdict(record) for record in records], ensure_ascii=False))
    for record in records if not as_json else ():
        gain = f"{record.gain:.2f} times" if record.gain else "-"
        typer.echo(f"{record.id}  {record.state}  {gain}  {record.best}")


def require_one(given: Mapping[str, object]) -> None:
    """Raises InvalidInput unless exactly one of what a command may be asked for was given."""
    asked = [name for name, value in given.items() if value]
    if len(asked) != 1:
        others = ", ".join(name for name in given if name.startswith("--") and name != "--search")
        expected = f"the YAML of a job, or one of {others}"
        raise InvalidInput("FILE", found=" and ".join(asked) or "nothing", expected=expected)


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
        require_one(
            {"FILE": file, "--show": show_, "--stop": stop_, "--resume": resume_, "--launch": launch, "--list": list_}
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
