"""Command line and composition root of Tunedeck. Without a command it serves the dashboard.

Exit codes: 0 done (wait: the job succeeded), 1 failed, 2 bad input or usage, 3 not found, 4 conflicts with the job's state,
5 the job was stopped or cancelled (wait), 6 the job was lost (wait), 7 environment or storage fault.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from backend.domain.events import Alert, Event
from backend.domain.host import CheckStatus
from backend.domain.job import Job, JobState, StopMode
from backend.domain.problem import ArgValue, Problem, Severity
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
from backend.planning.spec import apply_changes
from backend.services.api import Api
from backend.services.attach import attach as attach_run
from backend.services.bench import BenchStore, Comparison, describe_check, describe_comparison, describe_drift
from backend.services.bench_runs import Benches, BenchWish
from backend.services.comparison import Comparisons
from backend.services.doctor import examine_host
from backend.services.gpus import build_sampler, open_gpus, read_fixture
from backend.services.importing import import_path, is_train_config, lint_text
from backend.services.inspect import inspect_path
from backend.services.presets import list_presets, load_preset
from backend.services.profile import StepProfile, load_profile
from backend.services.run_speed import open_comparisons
from backend.services.searches import Searches, describe_rows
from backend.services.sweeps import Sweeps, describe_sweep, parse_range
from backend.services.views import Views
from backend.services.worker import Worker, WorkerRunning
from backend.settings import load_settings
from backend.store.paths import DataPaths

EXIT_FAILED, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_CONFLICT, EXIT_STOPPED, EXIT_LOST, EXIT_FAULT = 1, 2, 3, 4, 5, 6, 7
_EXIT_OF_STATE = {
    JobState.SUCCEEDED: 0,
    JobState.FAILED: EXIT_FAILED,
    JobState.CANCELLED: EXIT_STOPPED,
    JobState.LOST: EXIT_LOST,
}

cli = typer.Typer(add_completion=False, no_args_is_help=False, pretty_exceptions_enable=False, help=__doc__)

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
    settings = load_settings()
    return Api(settings, read_devices=open_gpus(DataPaths(settings.data_dir)).device_ids)


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


@cli.command()
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
        show_job(api.submit(apply_changes(text, parse_changes(set_ or []))), as_json)


@cli.command()
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


@cli.command()
def presets(as_json: AsJson = False) -> None:
    """Starting points for `submit --preset`: name, purpose, expected memory (an estimate)."""
    with reported():
        found = list_presets()
        if as_json:
            typer.echo(json.dumps([asdict(preset) for preset in found], ensure_ascii=False))
            return
        for preset in found:
            typer.echo(f"{preset.name}\n    {preset.title['en']}: {preset.memory['en']}")


@cli.command("list")
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


@cli.command()
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


@cli.command()
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


@cli.command()
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


@cli.command()
def save(job_id: JobId, as_json: AsJson = False) -> None:
    """Write a checkpoint now, without stopping."""
    with reported():
        show_job(open_api().request_save(job_id), as_json)


@cli.command()
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


@cli.command()
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
        name = checkpoint or api.last_checkpoint(job_id)
        show_job(api.resume(job_id, name, parse_changes(set_ or [])), as_json)


@cli.command()
def delete(job_id: JobId, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False) -> None:
    """Delete a finished job with all its files, checkpoints included."""
    with reported():
        if not yes:
            typer.confirm(f"Delete {job_id} and all its checkpoints?", abort=True)
        open_api().delete(job_id)


@cli.command()
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
    raise typer.Exit(_EXIT_OF_STATE.get(job.state, EXIT_FAILED))


@cli.command()
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


@cli.command()
def export(
    job_id: JobId,
    to: Annotated[Path, typer.Option("--to", help="Folder to write into; files that exist are not overwritten.")],
    as_json: AsJson = False,
) -> None:
    """A job for use without Tunedeck: train.yaml, ds_config.json, run.sh, job.sbatch (Slurm) and spec.yaml."""
    with reported():
        written = [str(path) for path in open_api().export_to(job_id, to)]
        typer.echo(json.dumps({"files": written}) if as_json else "\n".join(written))


@cli.command()
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


@cli.command()
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


@cli.command()
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


@cli.command("import")
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


@cli.command()
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


@cli.command()
def doctor(
    as_json: AsJson = False,
    stack: Annotated[bool, typer.Option(help="Also ask the training environment what works in it.")] = True,
) -> None:
    """Check GPUs, host and training environment; each line with what to do and who says so. Exit code 1: an error."""
    with reported():
        settings = load_settings()
        paths = DataPaths(settings.data_dir)
        python = settings.training_python if stack else None
        report = examine_host({"data": paths.root}, gpus=open_gpus(paths), python=python)
        if as_json:
            typer.echo(json.dumps(report.to_json(), ensure_ascii=False))
        else:
            for check in report.checks:
                typer.echo(f"{check.status.value:8} {check.title}: {check.found}")
                if check.status is not CheckStatus.OK:
                    typer.echo(f"         expected {check.expected}. {check.advice} [{check.source}]")
        raise typer.Exit(EXIT_FAILED if report.status is CheckStatus.ERROR else 0)


@cli.command()
def tune(
    file: Annotated[Path | None, typer.Argument(help="YAML of the job whose settings are to be tuned.")] = None,
    budget: Annotated[float, typer.Option(help="Minutes that the trials may take.")] = 8.0,
    out: Annotated[Path | None, typer.Option(help="Write the tuned specification here.")] = None,
    search: Annotated[str, typer.Option(hidden=True)] = "",
    as_json: AsJson = False,
) -> None:
    """Measure short trials of the job itself and find the fastest settings that do the same training."""
    with reported():
        settings = load_settings()
        gpus_ = open_gpus(DataPaths(settings.data_dir))
        searches = Searches(Api(settings, read_devices=gpus_.device_ids), gpus_)
        if not search and file is None:
            raise InvalidInput("FILE", found="nothing", expected="the YAML of a job")
        name = search or searches.create(read_text(file or Path()), budget * 60).id
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


@cli.command()
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
        sweeps = Sweeps(open_api())
        if not show_:
            if file is None:
                raise InvalidInput("FILE", found="nothing", expected="the YAML of a job")
            ranges = [parse_range(*pair) for each in grid or [] for pair in parse_pairs([each], "--grid").items()]
            show_ = sweeps.start(read_text(file), ranges, samples=samples, seed=seed, early_stop=early_stop).id
        view = sweeps.view(show_)
        if as_json:
            typer.echo(json.dumps(asdict(view), ensure_ascii=False))
            return
        typer.echo(f"sweep {show_}: {len(view.rows)} runs, {view.active} not ended")
        for line in describe_sweep(view):
            typer.echo(line)


@cli.command()
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
        raise typer.Exit(_EXIT_OF_STATE.get(job.state, EXIT_FAILED))
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


def show_host_gpus(as_json: bool) -> None:
    service = open_gpus(DataPaths(load_settings().data_dir))
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


def event_line(event: Event, language: Literal["en", "zh"]) -> str:
    """One event of a job's history; alerts in words of the language, the others as their fields."""
    if isinstance(event, Alert):
        from ui.text.alarms import alarm_line

        return f"{event.kind} {event.severity.value}: {alarm_line(language, event)}"
    values = {name: value for name, value in asdict(event).items() if name != "at" and value}
    return f"{event.kind} {values}"


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


if __name__ == "__main__":
    cli()
