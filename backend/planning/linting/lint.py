"""Text of a config of any kind -> all Problems of all rules, worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from backend.domain.job import JobSpec
from backend.domain.problem import ArgValue, Fix, Problem, Severity
from backend.errors import InvalidInput
from backend.planning.importing.yaml_text import YamlText, read_yaml
from backend.planning.linting import amd, arguments, combinations, deepspeed, names, packages, sanity
from backend.planning.linting.config import OWN_SECTION, TrainConfig
from backend.planning.linting.context import LintContext
from backend.planning.linting.report import report
from backend.planning.schema import nearest
from backend.planning.secret_arguments import VARIABLES, given_secrets, has_no_variable

Rule = Callable[[TrainConfig], Iterator[Problem]]

HIDDEN = "***"
_WORST_FIRST = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def lint_values(
    values: Mapping[str, ArgValue],
    context: LintContext,
    *,
    source: YamlText | None = None,
    from_command: bool = False,
    name: str = "",
) -> list[Problem]:
    """All rules for a train config given as values. `name`: its file name, for the promise that a name makes."""
    config = TrainConfig(
        values=values, context=context, source=source or YamlText(values=values), from_command=from_command, name=name
    )
    problems = [problem for rule in RULES for problem in rule(config)]
    return sort_problems(problems)


def lint_train_yaml(text: str, context: LintContext) -> list[Problem]:
    """All rules for a train YAML (with or without our section). Text that is no YAML gives one problem with its line."""
    try:
        document = read_yaml(text)
    except InvalidInput as error:
        return [not_yaml(error)]
    return lint_values(document.values, context, source=document)


def lint_spec(spec: JobSpec, context: LintContext) -> list[Problem]:
    """All rules for a job: the document the user sees where there is one, so that lines are right."""
    if spec.text:
        return lint_train_yaml(spec.text, context)
    zero = {"stage": spec.zero.stage, "offload_optimizer": spec.zero.offload_optimizer.value}
    own: dict[str, ArgValue] = {
        "name": spec.name,
        "env": dict(spec.env),
        "zero": dict(zero),
        "processes": spec.processes,
    }
    return lint_values({**spec.train, OWN_SECTION: own}, context)


def lint_deepspeed_file(content: Mapping[str, ArgValue], context: LintContext, *, name: str = "") -> list[Problem]:
    """All rules for a DeepSpeed JSON."""
    return sort_problems(list(deepspeed.lint_deepspeed(content, context, name=name)))


def sort_problems(problems: list[Problem]) -> list[Problem]:
    """Errors first, then by line; equal ones once."""
    unique = list({(p.code, p.field, p.found, p.line): p for p in problems}.values())
    return sorted(unique, key=lambda p: (_WORST_FIRST[p.severity], p.line or 0))


def not_yaml(error: InvalidInput) -> Problem:
    """The problem that stands for a parse error."""
    return report(
        "not_valid_yaml", Severity.ERROR, field=error.field, found=error.found, expected="YAML", line=error.line
    )


def needs_torchrun(config: TrainConfig) -> Iterator[Problem]:
    """DeepSpeed wants a launcher even on one GPU. Tunedeck always gives it one; another start may not."""
    if not config.values.get("deepspeed") or config.own:
        return
    severity = Severity.WARNING if config.context.started_elsewhere else Severity.NOTE
    yield report(
        "needs_torchrun",
        severity,
        field="deepspeed",
        found=config.values["deepspeed"],
        expected="FORCE_TORCHRUN=1",
        line=config.line("deepspeed"),
    )


def secret_arguments(config: TrainConfig) -> Iterator[Problem]:
    """Tokens and keys among the arguments. Their values are never shown."""
    given = given_secrets(config.values)
    for name in given:
        variable = VARIABLES[name]
        other = next((known for known in given if VARIABLES[known] == variable and given[known] != given[name]), "")
        if other and list(given).index(other) < list(given).index(name):
            yield report("secret_arguments_differ", Severity.ERROR, field=name, found=HIDDEN, expected=variable,
                         line=config.line(name), fix=Fix(remove=(name,)), other=other)  # fmt: skip
        else:
            yield report("secret_argument", Severity.NOTE, field=name, found=HIDDEN, expected=variable,
                         line=config.line(name))  # fmt: skip
    severity = Severity.ERROR if config.context.launched_here else Severity.WARNING
    for name, value in config.values.items():
        if value and isinstance(value, str) and has_no_variable(name):
            yield report("secret_without_variable", severity, field=name, found=HIDDEN, line=config.line(name),
                         fix=Fix(remove=(name,)))  # fmt: skip


def deepspeed_path(config: TrainConfig) -> Iterator[Problem]:
    """A DeepSpeed file that does not exist, or whose path depends on where the trainer is started."""
    path = config.values.get("deepspeed")
    if not isinstance(path, str):
        return
    context = config.context
    if path in context.missing_paths:
        yield report(
            "deepspeed_config_missing", Severity.ERROR, field="deepspeed", found=path, line=config.line("deepspeed")
        )
    elif not path.startswith("/") and path not in context.existing_paths:
        yield report(
            "deepspeed_path_relative",
            Severity.NOTE,
            field="deepspeed",
            found=path,
            expected="/...",
            line=config.line("deepspeed"),
        )


def deepspeed_content(config: TrainConfig) -> Iterator[Problem]:
    """An inline DeepSpeed mapping by its own rules; any known content together with the train config."""
    inline, content = config.values.get("deepspeed"), config.deepspeed
    if isinstance(inline, dict):
        for problem in (*deepspeed.lint_deepspeed(inline, config.context), *_offload(config, inline)):
            fix = problem.fix
            moved = fix and replace(
                fix,
                set={f"deepspeed.{name}": value for name, value in fix.set.items()},
                remove=tuple(f"deepspeed.{name}" for name in fix.remove),
            )
            yield replace(problem, field=f"deepspeed.{problem.field}", fix=moved, line=config.line("deepspeed"))
    if content is not None:
        yield from deepspeed.lint_deepspeed_with(config, content, ours=isinstance(inline, dict))


def _offload(config: TrainConfig, content: Mapping[str, ArgValue]) -> Iterator[Problem]:
    own = config.own.get("processes")
    context = replace(config.context, processes=own) if isinstance(own, int) else config.context
    parameters = context.model_parameters or deepspeed.parameters_of_name(config.text("model_name_or_path"))
    quantized = config.given("quantization_bit")
    yield from deepspeed.offload_with_room(
        content, context, method=config.method, parameters=parameters, quantized=quantized
    )


def paths(config: TrainConfig) -> Iterator[Problem]:
    """Local folders and data sets that are known not to exist."""
    context = config.context
    model = config.text("model_name_or_path")
    if model and model in context.missing_paths:
        yield report(
            "model_path_missing",
            Severity.ERROR,
            field="model_name_or_path",
            found=model,
            line=config.line("model_name_or_path"),
        )
    for name in ("adapter_name_or_path", "resume_from_checkpoint", "reward_model", "ref_model"):
        path = config.text(name)
        if path and path in context.missing_paths:
            yield report("path_missing", Severity.ERROR, field=name, found=path, line=config.line(name))
    if context.datasets is None or config.text("dataset_dir").startswith(("ONLINE", "REMOTE:")):
        return
    for name in ("dataset", "eval_dataset"):
        for word in config.words(name) if config.given(name) else ():
            if word not in context.datasets:
                near = nearest(word.removesuffix(".json").removesuffix(".jsonl"), context.datasets)
                yield report(
                    "dataset_undefined",
                    Severity.ERROR,
                    field=name,
                    found=word,
                    expected=near or "dataset_info.json",
                    line=config.line(name),
                )


def environment(config: TrainConfig) -> Iterator[Problem]:
    """Variables in our section, and those the job inherits."""
    env = config.own.get("env")
    own = {str(name): str(value) for name, value in env.items()} if isinstance(env, dict) else {}
    yield from amd.lint_environment(own, config.context, own=True)
    inherited = {name: value for name, value in config.context.environment.items() if name not in own}
    yield from amd.lint_environment(inherited, config.context)


RULES: tuple[Rule, ...] = (
    *arguments.RULES,
    *combinations.RULES,
    *packages.RULES,
    *sanity.RULES,
    *names.RULES,
    needs_torchrun,
    secret_arguments,
    deepspeed_path,
    deepspeed_content,
    paths,
    environment,
)
