"""Commands that read configurations: presets, inspection, lint, import."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from backend.domain.problem import Severity
from backend.services.importing import import_path, is_train_config, lint_text
from backend.services.inspect import inspect_path
from backend.services.presets import list_presets
from ui.cli.common import EXIT_USAGE, AsJson, describe_problem, open_api, read_text, reported

commands = typer.Typer()


@commands.command()
def presets(as_json: AsJson = False) -> None:
    """Starting points for `submit --preset`: name, purpose, expected memory (an estimate)."""
    with reported():
        found = list_presets()
        if as_json:
            typer.echo(json.dumps([asdict(preset) for preset in found], ensure_ascii=False))
            return
        for preset in found:
            typer.echo(f"{preset.name}\n    {preset.title['en']}: {preset.memory['en']}")


@commands.command()
def inspect(paths: Annotated[list[Path], typer.Argument(help="Files or folders.")], as_json: AsJson = False) -> None:
    """What files are and what is wrong with them: configs, scripts, DeepSpeed JSON, data sets, logs. One JSON object a line."""
    with reported():
        for path in paths:
            inspection = inspect_path(path)
            typer.echo(
                inspection.to_json()
                if as_json
                else json.dumps(inspection.facts, indent=2, ensure_ascii=False, default=str)
            )


@commands.command()
def lint(
    files: Annotated[list[Path], typer.Argument(help="Train YAMLs, DeepSpeed JSON, scripts, data files.")],
    as_json: AsJson = False,
) -> None:
    """Everything that is wrong with a config, judged for the training environment of this installation. Exit code 2 on errors."""
    failed = False
    with reported():
        api = open_api()
        for file in files:
            text = read_text(file)
            train = is_train_config(text, file.name)
            problems = api.lint(text) if train else lint_text(text, filename=file.name)
            failed = failed or any(problem.severity is Severity.ERROR for problem in problems)
            if as_json:
                record = {"input": str(file), "problems": [asdict(problem) for problem in problems]}
                typer.echo(json.dumps(record, ensure_ascii=False))
                continue
            for problem in problems:
                typer.echo(f"{file}:{problem.line or ''} {describe_problem(problem)}")
    raise typer.Exit(EXIT_USAGE if failed else 0)


class ImportFormat(StrEnum):
    """What `import` prints."""

    YAML = "yaml"
    JSON = "json"


@commands.command("import")
def import_config(
    file: Annotated[
        Path, typer.Argument(help="Script, YAML, DeepSpeed JSON, LLaMA Board state, job or output folder.")
    ],
    to: Annotated[ImportFormat, typer.Option("--to", help="The spec as YAML, or everything as one JSON object.")] = (
        ImportFormat.YAML
    ),
) -> None:
    """Any configuration as a spec of ours on stdout, what was changed or is unclear on stderr. Exit code 2: nothing to run."""
    with reported():
        imported = import_path(file)
    if to is ImportFormat.JSON:
        typer.echo(json.dumps(asdict(imported), ensure_ascii=False, default=str))
    else:
        for part, remarks in (("changed", imported.changed), ("not understood", imported.not_understood)):
            for remark in remarks:
                typer.echo(f"{part}: {remark.key} {' '.join(remark.values.values())}".rstrip(), err=True)
        typer.echo(imported.spec_text, nl=False)
    if not imported.spec_text:
        typer.echo(f"nothing to run in {file}: {imported.kind}", err=True)
        raise typer.Exit(EXIT_USAGE)
