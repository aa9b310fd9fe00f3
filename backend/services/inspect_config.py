"""One configuration file (text and name) -> its facts in the words of `inspect`: format, verdict, findings, values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from backend.domain.problem import ArgValue, Problem, Severity
from backend.errors import InvalidInput
from backend.parsing.datasets.container import commas_in_the_way
from backend.planning.importing.command_line import Launch, typed_arguments
from backend.planning.importing.detect import Kind, foreign_program, placeholders_of
from backend.planning.importing.imported import trainer_launches, yaml_documents
from backend.planning.importing.llamaboard import convert_board_state
from backend.planning.importing.shell_script import ShellScript, parse_shell
from backend.planning.importing.yaml_text import YamlText, read_yaml
from backend.planning.linting.amd import SPEED_VARIABLES, count_visible, lint_environment
from backend.planning.linting.context import LintContext
from backend.planning.linting.deepspeed import offload_with_room, parameters_of_name
from backend.planning.linting.launch import (
    environment_of,
    gpus_per_node,
    lint_script,
    parse_time_limit,
    processes_per_node,
    slurm_tasks,
)
from backend.planning.linting.lint import lint_deepspeed_file, lint_values, not_yaml, sort_problems
from backend.planning.linting.report import report
from backend.planning.linting.sanity import is_placeholder
from backend.services.inspect_words import word_of

Facts = dict[str, ArgValue]

_SHOWN_VALUES = (
    "learning_rate",
    "save_steps",
    "num_train_epochs",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "cutoff_len",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """What files beside a DeepSpeed JSON say about the job: method and model of the train config."""

    method: str = ""
    model: str = ""
    quantized: bool = False


def config_facts(
    kind: Kind, name: str, text: str, context: LintContext, neighbour: Neighbour | None = None
) -> tuple[Facts, list[Problem]]:
    """Facts and Problems of one file of a known kind."""
    text = text.lstrip("\ufeff")
    if kind is Kind.SCRIPT:
        return _script(name, text, context)
    if kind is Kind.DEEPSPEED:
        return _deepspeed(name, text, context, neighbour or Neighbour())
    if kind is Kind.BOARD:
        return _board(text, context)
    if kind is Kind.V1:
        return _single(kind, report("v1_config", Severity.ERROR, found="v1", expected="USE_V1=1"))
    if kind is Kind.TEMPLATE:
        names = placeholders_of(text)
        problem = report("placeholder", Severity.ERROR, found=f"{len(names)}", expected=", ".join(names[:12]))
        facts, problems = _single(kind, problem)
        return {**facts, "placeholders": list(names)}, problems
    if kind is Kind.FOREIGN:
        program = _program(text)
        severity = Severity.NOTE if program == "accelerate" and context.started_elsewhere else Severity.ERROR
        return _single(kind, report("foreign_config", severity, found=program))
    return _train(name, text, context)


def _program(text: str) -> str:
    try:
        return foreign_program(read_yaml(text).values) or "another program"
    except InvalidInput:
        return "another program"


def _single(kind: Kind, problem: Problem) -> tuple[Facts, list[Problem]]:
    return {"detected_format": kind.value, **findings([problem])}, [problem]


_OF_ANOTHER_VERSION = frozenset(
    (
        "unknown_key",
        "misspelt_key",
        "renamed_key",
        "removable_key",
        "replaced_key",
        "fork_key",
        "other_backend_key",
        "template_unknown",
        "bad_choice",
        "attention_value",
        "deepspeed_unknown_key",
        "deepspeed_misspelt_key",
        "zero_partition_grads",
        "removed_block",
        "optimizer_not_supported",
    )
)
"""Mistakes only for the version that runs here: a log that reached the step loop shows that another one took them."""


def settle(problems: Iterable[Problem], context: LintContext) -> list[Problem]:
    """Errors that the job's own log disproves become warnings."""
    if not context.has_run and not context.has_log:
        return list(problems)
    weak = _OF_ANOTHER_VERSION if context.has_run else frozenset()
    weak = weak | {"obsolete_script", "obsolete_flag", "obsolete_flag_gone"}
    return [
        replace(p, severity=Severity.WARNING) if p.code in weak and p.severity is Severity.ERROR else p
        for p in problems
    ]


def findings(problems: Iterable[Problem]) -> Facts:
    """Verdict and the sorted words of all problems."""
    by_severity: dict[Severity, set[str]] = {severity: set() for severity in Severity}
    for problem in problems:
        by_severity[problem.severity].add(word_of(problem.code))
    errors = by_severity[Severity.ERROR]
    warnings = by_severity[Severity.WARNING] - errors
    notes = by_severity[Severity.NOTE] - errors - warnings
    return {
        "verdict": "error" if errors else "warning" if warnings else "ok",
        "errors": list[ArgValue](sorted(errors)),
        "warnings": list[ArgValue](sorted(warnings)),
        "notes": list[ArgValue](sorted(notes)),
    }


def _keyed(problems: Iterable[Problem], values: Mapping[str, ArgValue]) -> Facts:
    """unknown_keys, missing_keys and bad_values of the errors among the problems."""
    unknown, missing, bad = set(), set(), {}
    for problem in problems:
        if problem.severity is not Severity.ERROR:
            continue
        word = word_of(problem.code)
        if word == "unknown_key":
            unknown.add(problem.params.get("key") or problem.field)
        elif word == "missing_key":
            missing.add(problem.field)
        elif word in ("bad_choice", "boolean_instead_of_word"):
            bad[problem.field] = values.get(problem.field, problem.found)
        elif word == "removed_block":
            bad["block"] = problem.params.get("block", problem.found)
    facts: Facts = {}
    if unknown:
        facts["unknown_keys"] = list[ArgValue](sorted(unknown))
    if missing:
        facts["missing_keys"] = list[ArgValue](sorted(missing))
    if bad:
        facts["bad_values"] = bad
    return facts


def _train(name: str, text: str, context: LintContext) -> tuple[Facts, list[Problem]]:
    try:
        document = _read(name, text)
    except InvalidInput as error:
        problem = not_yaml(error)
        return {"detected_format": Kind.TRAIN.value, **findings([problem])}, [problem]
    problems = settle(lint_values(document.values, context, source=document, name=name), context)
    if name.endswith(".json"):
        problems = sort_problems([*problems, report("json_config", Severity.ERROR, found=name, expected="*.yaml")])
    shown = {key: document.values[key] for key in _SHOWN_VALUES if isinstance(document.values.get(key), (int, float))}
    package = next((p.params["package"] for p in problems if p.code in ("needs_package", "package_missing")), None)
    facts: Facts = {**shown, **({"package": package} if package else {})}
    out = {
        "detected_format": Kind.TRAIN.value,
        **findings(problems),
        **_keyed(problems, document.values),
        "facts": facts,
    }
    stage = document.values.get("stage")
    return {**out, **({"stage": stage} if isinstance(stage, str) else {})}, problems


def _read(name: str, text: str) -> YamlText:
    if not name.endswith(".json"):
        return read_yaml(text)
    content = json.loads(text)
    return YamlText(values=content if isinstance(content, dict) else {})


def _board(text: str, context: LintContext) -> tuple[Facts, list[Problem]]:
    converted = convert_board_state(read_yaml(text).values)
    state = report("ui_state_file", Severity.ERROR, found="top.*, train.*")
    inner = [p for p in lint_values(converted.values, context) if p.severity is not Severity.ERROR]
    problems = sort_problems([state, *inner])
    return {"detected_format": Kind.BOARD.value, **findings(problems), "converted": dict(converted.values)}, problems


def _deepspeed(name: str, text: str, context: LintContext, neighbour: Neighbour) -> tuple[Facts, list[Problem]]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        commas = commas_in_the_way(text)
        found = f"line {', '.join(map(str, commas[:8]))}" if commas else str(error)
        code = "trailing_comma" if commas else "not_valid_json"
        problem = report(code, Severity.ERROR, found=found, expected="JSON", rows=", ".join(map(str, commas[:8])))
        return {"detected_format": Kind.DEEPSPEED.value, **findings([problem])}, [problem]
    problems = settle(lint_deepspeed_file(content, context, name=name), context)
    parameters = context.model_parameters or parameters_of_name(neighbour.model)
    problems += offload_with_room(
        content, context, method=neighbour.method, parameters=parameters, quantized=neighbour.quantized
    )
    since = next((p.params["since"] for p in problems if "since" in p.params), None)
    facts: Facts = {"since": since} if since else {}
    zero = content.get("zero_optimization")
    if isinstance(zero, dict) and isinstance(zero.get("stage"), int):
        facts["zero_stage"] = zero["stage"]
    return {
        "detected_format": Kind.DEEPSPEED.value,
        **findings(problems),
        **_keyed(problems, {}),
        "facts": facts,
    }, problems


# --- scripts -------------------------------------------------------------------------------------------------------


def _script(name: str, text: str, context: LintContext) -> tuple[Facts, list[Problem]]:
    script = parse_shell(text)
    launches = trainer_launches(script)
    launch = launches[-1] if launches else None
    variables = environment_of(script, launch)
    problems = [
        *lint_script(script, launches, text, context),
        *lint_environment(variables, context, lines=script.export_lines),
    ]
    arguments: dict[str, ArgValue] = {}
    if launch and launch.ours:
        arguments = typed_arguments(launch, context.trainer)
        written = _written_config(script, launch)
        problems += _argument_problems(launch, arguments, context) if written is None else []
        if written is not None:
            problems += lint_values(written.values, context, source=written)
            arguments = {**written.values, **arguments}
    if launch and is_placeholder(launch.config):
        problems.append(report("file_is_placeholder", Severity.WARNING, field="", found=launch.config))
    problems = sort_problems(settle(problems, context))
    out: Facts = {
        "detected_format": Kind.SCRIPT.value,
        **findings(problems),
        **_keyed(problems, arguments),
        "facts": _script_facts(script, launches, launch, variables, arguments, problems),
    }
    if arguments:
        out["arguments"] = {key: value for key, value in arguments.items() if value is not None}
    stage = arguments.get("stage")
    return {**out, **({"stage": stage} if isinstance(stage, str) else {})}, problems


def _written_config(script: ShellScript, launch: Launch) -> YamlText | None:
    """The train config that the script writes itself and then starts."""
    documents = yaml_documents(script)
    text = next((body for name, body in documents.items() if launch.config and name == launch.config), None)
    if text is None and len(documents) == 1 and "$" in launch.config + " ".join(launch.stray):
        text = next(iter(documents.values()))
    try:
        return read_yaml(text) if text else None
    except InvalidInput:
        return None


def _argument_problems(launch: Launch, arguments: Mapping[str, ArgValue], context: LintContext) -> list[Problem]:
    """Rules for train configs on a command line. What is not said there may come from elsewhere: missing keys are notes.

    A script for an old version is judged by its script and flags: its values follow that version's rules.
    """
    launched = launch.launcher != "llamafactory-cli" and launch.launcher != "python"
    launched = launched or launch.environment.get("FORCE_TORCHRUN", "").lower() in ("1", "true", "y")
    out: list[Problem] = []
    for problem in lint_values(arguments, context, from_command=True):
        if word_of(problem.code) == "missing_key" or problem.code == "nothing_to_do":
            continue
        if problem.code == "needs_torchrun" and launched:
            continue
        if problem.code == "other_backend_key" and launch.environment.get("USE_MCA"):
            continue
        if launch.obsolete_script and problem.code in _JUDGED_BY_OLD_RULES:
            problem = replace(problem, severity=Severity.WARNING, fix=None)
        out.append(problem)
    return out


_JUDGED_BY_OLD_RULES = ("flag_without_value", "template_unknown", "bad_choice", "attention_value")


def _script_facts(
    script: ShellScript,
    launches: tuple[Launch, ...],
    launch: Launch | None,
    variables: Mapping[str, str],
    arguments: Mapping[str, ArgValue],
    problems: list[Problem],
) -> Facts:
    facts: Facts = {
        key: arguments[key] for key in ("learning_rate", "save_steps") if isinstance(arguments.get(key), (int, float))
    }
    speed = sorted(name for name, values in SPEED_VARIABLES.items() if variables.get(name, "").upper() in values)
    if speed:
        facts["env"] = list[ArgValue](speed)
    if any(p.code == "lora_alpha_below_rank" for p in problems):
        facts["lora_alpha_below_rank"] = True
    facts.update(_slurm_facts(script, launch))
    if launch is None:
        return facts
    facts["launcher"] = launch.launcher
    if len(launches) > 1:
        facts["commands"] = len(launches)
    if launch.config:
        facts["config"] = launch.config
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        if variables.get(name):
            facts.setdefault("visible_devices", variables[name])
    obsolete = [p for p in problems if p.code in ("obsolete_flag", "obsolete_flag_gone")]
    if obsolete:
        facts["obsolete_flags"] = list[ArgValue](sorted(p.field for p in obsolete))
        facts["replacement"] = {p.field: p.expected for p in obsolete if p.expected}
    facts.update(_device_facts(launch, variables))
    return facts


def _slurm_facts(script: ShellScript, launch: Launch | None) -> Facts:
    facts: Facts = {}
    tasks, nodes, per_node = slurm_tasks(script.sbatch, launch)
    gpus = gpus_per_node(script.sbatch)
    if nodes is not None:
        facts["nodes"] = nodes
    if tasks is not None:
        facts["tasks"] = tasks
    if gpus is not None:
        facts["gpus"] = gpus
    seconds = parse_time_limit(script.sbatch.get("time", ""))
    if seconds is not None:
        facts["time_limit_seconds"] = seconds
    if launch and launch.wrapper == "srun" and per_node and per_node > 1 and gpus:
        facts["world_size_per_job"] = gpus
    return facts


def _device_facts(launch: Launch, variables: Mapping[str, str]) -> Facts:
    wanted, visible = processes_per_node(launch, variables), count_visible(variables)
    facts: Facts = {}
    if visible is not None:
        facts["visible"] = visible
    if wanted is not None:
        facts["processes"] = wanted
    if wanted is not None and visible is not None and wanted > visible:
        facts["ranks_without_device"] = list[ArgValue](range(visible, wanted))
    return facts
