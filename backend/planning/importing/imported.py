"""Texts of configurations (one, or several that belong together) -> one spec text with what was understood and changed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from backend.domain.job import JobSpec, Offload, ZeroConfig
from backend.domain.problem import ArgValue, Problem, Severity
from backend.errors import InvalidInput
from backend.planning.importing.command_line import OBSOLETE_SCRIPTS, Launch, parse_launch, typed_arguments
from backend.planning.importing.detect import Kind, detect_config
from backend.planning.importing.llamaboard import convert_board_state
from backend.planning.importing.shell_script import ShellScript, parse_shell
from backend.planning.importing.yaml_text import read_yaml
from backend.planning.linting.launch import environment_of, processes_per_node, unknown_tools
from backend.planning.schema import TrainerSchema
from backend.planning.schema_builtin import BUILTIN_SCHEMA
from backend.planning.spec import apply_changes, derive_name, dump_spec
from backend.planning.words import words

_ENV_PREFIXES = tuple(
    sorted(
        words(
            "HF_ WANDB_ SWANLAB_ MODELSCOPE_ TRANSFORMERS_ TRITON_ DS_ UCX_ FI_ MKL_ CUDA_ HIP_ HSA_ ROCR_ ROCM_ NCCL_ RCCL_ "
            "TORCH_ PYTORCH_ GPU_MAX AMD_ MIOPEN_ GLOO_ FLASH_ATTENTION_"
        )
    )
)
_ENV_NAMES = words(
    "ALLOW_EXTRA_ARGS DISABLE_VERSION_CHECK USE_MODELSCOPE_HUB HF_ENDPOINT HF_HUB_OFFLINE OMP_NUM_THREADS WANDB_PROJECT "
    "WANDB_DISABLED TOKENIZERS_PARALLELISM CUDA_LAUNCH_BLOCKING CUDA_DEVICE_MAX_CONNECTIONS OPTIM_TORCH"
)
_OF_THE_SHELL = words(
    "PATH LD_LIBRARY_PATH LD_PRELOAD PYTHONPATH HOME USER SHELL LANG LC_ALL TERM PWD PYTHONUNBUFFERED"
)
"""Variables that say where things are on the host the script was written for: the environment chosen here says it."""
_OURS_TO_SET = words(
    "MASTER_ADDR MASTER_PORT NNODES NODE_RANK RANK WORLD_SIZE LOCAL_RANK NPROC_PER_NODE FORCE_TORCHRUN "
    "CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES GPU_DEVICE_ORDINAL"
)
"""Variables that Tunedeck sets itself for every run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One line of the import report. `key` names a text of the page; `values` fill it in."""

    key: str
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """`spec_text` is "" when nothing can be run from the input (`problems` then say why). `kind` is the input's own kind."""

    kind: str
    spec_text: str = ""
    understood: tuple[Remark, ...] = ()
    changed: tuple[Remark, ...] = ()
    not_understood: tuple[Remark, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(slots=True)
class _Notes:
    understood: list[Remark] = field(default_factory=list)
    changed: list[Remark] = field(default_factory=list)
    not_understood: list[Remark] = field(default_factory=list)

    def result(self, kind: str, text: str) -> Imported:
        return Imported(
            kind=kind,
            spec_text=text,
            understood=tuple(self.understood),
            changed=tuple(self.changed),
            not_understood=tuple(self.not_understood),
        )


def import_texts(files: Mapping[str, str], schema: TrainerSchema | None = None) -> Imported:
    """Several files that belong together (a script, its YAML, its DeepSpeed JSON), by name, become one spec.

    The names decide which file a launch line or `deepspeed:` means (folders are ignored). Never raises: what cannot be
    run comes back with an empty `spec_text`, and the lint rules name the reason.
    """
    kinds = {name: detect_config(text.lstrip("\ufeff"), name) for name, text in files.items()}
    scripts = [name for name, kind in kinds.items() if kind is Kind.SCRIPT]
    trains = [name for name, kind in kinds.items() if kind is Kind.TRAIN]
    boards = [name for name, kind in kinds.items() if kind is Kind.BOARD]
    jsons = {name: files[name] for name, kind in kinds.items() if kind is Kind.DEEPSPEED}
    notes = _Notes()
    schema = schema or BUILTIN_SCHEMA
    if scripts:
        imported = _from_script(files[scripts[-1]], {name: files[name] for name in trains}, schema, notes)
    elif trains:
        imported = _from_yaml(files[trains[0]], notes)
    elif boards:
        imported = _from_board(files[boards[0]], notes)
    elif jsons:
        return _from_deepspeed(next(iter(jsons.values())), notes)
    else:
        kind = next((kind for kind in kinds.values() if kind is not None), None)
        return Imported(kind=kind.value if kind else "unknown")
    return _with_deepspeed(imported, jsons, notes) if jsons and imported.spec_text else imported


def import_text(text: str, filename: str = "", schema: TrainerSchema | None = None) -> Imported:
    """One pasted or uploaded text."""
    return import_texts({filename: text}, schema)


# --- by kind -------------------------------------------------------------------------------------------------------


def _from_yaml(text: str, notes: _Notes) -> Imported:
    text = text.lstrip("\ufeff")
    try:
        values = read_yaml(text).values
    except InvalidInput:
        return Imported(kind=Kind.TRAIN.value, spec_text=text)
    notes.understood.append(Remark(key="arguments", values={"count": str(len([k for k in values if k != "tunedeck"]))}))
    return notes.result(Kind.TRAIN.value, text)


def _from_board(text: str, notes: _Notes) -> Imported:
    try:
        converted = convert_board_state(read_yaml(text.lstrip("\ufeff")).values)
    except InvalidInput:
        return Imported(kind=Kind.BOARD.value)
    values = dict(converted.values)
    own = values.pop("tunedeck", None)
    zero = own.get("zero") if isinstance(own, dict) else None
    spec = JobSpec(name=derive_name(values), train=values, zero=_zero(zero if isinstance(zero, dict) else {}))
    notes.understood.append(Remark(key="arguments", values={"count": str(len(values))}))
    notes.changed.append(Remark(key="converted_from_board"))
    if (model := str(values.get("model_name_or_path") or "")) and "/" not in model:
        notes.not_understood.append(Remark(key="model_by_name", values={"name": model}))
    notes.not_understood += [Remark(key="control_dropped", values={"name": name}) for name in converted.dropped]
    return notes.result(Kind.BOARD.value, dump_spec(spec))


def _zero(zero: Mapping[str, ArgValue]) -> ZeroConfig:
    stage = zero.get("stage")
    return ZeroConfig(
        stage=stage if isinstance(stage, int) and not isinstance(stage, bool) else None,
        offload_optimizer=Offload(str(zero.get("offload_optimizer") or "none")),
        offload_param=Offload(str(zero.get("offload_param") or "none")),
    )


def _from_deepspeed(text: str, notes: _Notes) -> Imported:
    """A DeepSpeed JSON alone: kept word for word as an inline mapping of an otherwise empty spec."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return Imported(kind=Kind.DEEPSPEED.value)
    spec = JobSpec(name="", train={"deepspeed": content})
    notes.understood.append(Remark(key="deepspeed_inlined"))
    return notes.result(Kind.DEEPSPEED.value, dump_spec(spec))


def _from_script(text: str, trains: Mapping[str, str], schema: TrainerSchema, notes: _Notes) -> Imported:
    script = parse_shell(text)
    launches = trainer_launches(script)
    if not launches:
        notes.not_understood.append(Remark(key="no_launch"))
        return notes.result(Kind.SCRIPT.value, next(iter(trains.values()), ""))
    launch = launches[-1]
    if len(launches) > 1:
        notes.understood.append(Remark(key="last_launch", values={"count": str(len(launches))}))
    notes.understood.append(Remark(key="launcher", values={"launcher": launch.launcher}))
    arguments = typed_arguments(launch, schema)
    base = _base_text(launch, arguments, {**trains, **yaml_documents(script)}, notes)
    if not launch.ours and not base:
        notes.not_understood.append(Remark(key="other_entry", values={"entry": launch.entry}))
        return notes.result(Kind.SCRIPT.value, "")
    arguments = _known_arguments(launch, arguments, notes)
    env = _environment(script, launch, notes)
    _launcher_options(script, launch, notes)
    notes.not_understood += [Remark(key="unknown_tool", values={"name": name}) for name in unknown_tools(script)]
    processes = processes_per_node(launch, environment_of(script, launch))
    if processes is not None:
        notes.understood.append(Remark(key="processes", values={"count": str(processes)}))
    if base:
        changes: dict[str, ArgValue] = dict(arguments)
        changes.update({f"tunedeck.env.{name}": value for name, value in env.items()})
        changes.update({"tunedeck.processes": processes} if processes else {})
        return notes.result(Kind.SCRIPT.value, _changed_text(base, changes))
    spec = JobSpec(name=derive_name(arguments), train=arguments, processes=processes, env=env)
    return notes.result(Kind.SCRIPT.value, dump_spec(spec))


def _launcher_options(script: ShellScript, launch: Launch, notes: _Notes) -> None:
    """What the launcher was told and a run of ours does not do: several hosts, a config of accelerate."""
    options = {**script.sbatch, **launch.wrapper_options, **launch.options}
    given = (options.get(name) or "" for name in ("nnodes", "num_machines", "num_nodes", "nodes", "N"))
    hosts = next((value for value in given if re.fullmatch(r"[\d:-]+", value) and value not in ("1", "1:1")), "")
    if hosts:
        notes.not_understood.append(Remark(key="several_hosts", values={"count": hosts}))
    if launch.launcher == "accelerate" and options.get("config_file"):
        notes.not_understood.append(Remark(key="launcher_config", values={"path": options["config_file"]}))


def trainer_launches(script: ShellScript) -> tuple[Launch, ...]:
    """All launches of a script in order, `bash -c "..."` looked into; the trainer's own when there are any."""
    found: list[Launch] = []
    for command in script.commands:
        inner = next((command.words[i + 1] for i, word in enumerate(command.words[:-1]) if word in ("-c", "-lc")), "")
        if inner and any(word.rpartition("/")[2] in ("bash", "sh") for word in command.words):
            wrapped = parse_launch(command.words[:1])
            found += trainer_launches(parse_shell(inner)) if wrapped is None else ()
            continue
        launch = parse_launch(command.words, command.inline)
        if launch is not None and (launch.ours or launch.launcher != "python"):
            found.append(launch)
    ours = [launch for launch in found if launch.ours and launch.action in ("train", "", "eval")]
    return tuple(ours or found)


def yaml_documents(script: ShellScript) -> dict[str, str]:
    """Train configs that a script writes itself before it uses them."""
    return {name: text for name, text in script.documents.items() if name.endswith((".yaml", ".yml"))}


def _base_text(launch: Launch, arguments: dict[str, ArgValue], trains: Mapping[str, str], notes: _Notes) -> str:
    """The YAML that the launch line names (also by the wrong flag), if it was given along."""
    named = launch.config or str(
        arguments.get("config_file") or arguments.get("config") or arguments.get("config_path") or ""
    )
    by_base = {PurePosixPath(name).name: text for name, text in trains.items()}
    text = by_base.get(PurePosixPath(named).name, "") if named else ""
    if named and not text:
        notes.not_understood.append(Remark(key="config_not_given", values={"path": named}))
    if text and not launch.config:
        for name in ("config_file", "config", "config_path"):
            arguments.pop(name, None)
        notes.changed.append(Remark(key="config_flag_dropped", values={"path": named}))
    if not text and not launch.arguments and len(trains) == 1:
        text = next(iter(trains.values()))
    return text.lstrip("\ufeff")


def _known_arguments(launch: Launch, arguments: Mapping[str, ArgValue], notes: _Notes) -> dict[str, ArgValue]:
    kept: dict[str, ArgValue] = {}
    for name, value in arguments.items():
        if value is None:
            notes.not_understood.append(Remark(key="flag_without_value", values={"name": name}))
        elif isinstance(value, str) and re.search(r"\$\{?\w", value):
            notes.not_understood.append(Remark(key="variable_unknown", values={"name": name, "value": value}))
            kept[name] = value
        else:
            kept[name] = value
    if kept:
        notes.understood.append(Remark(key="arguments", values={"count": str(len(kept))}))
    if launch.obsolete_script:
        new = OBSOLETE_SCRIPTS[launch.obsolete_script]
        notes.changed.append(Remark(key="script_replaced", values={"old": launch.obsolete_script, "new": new}))
    notes.not_understood += [Remark(key="stray_word", values={"word": word}) for word in launch.stray]
    return kept


def _environment(script: ShellScript, launch: Launch, notes: _Notes) -> dict[str, str]:
    """Variables worth keeping for the job; those that Tunedeck sets itself are left out and said so."""
    kept: dict[str, str] = {}
    for name, value in environment_of(script, launch).items():
        if name in _OF_THE_SHELL:
            continue
        if name in _OURS_TO_SET:
            notes.changed.append(Remark(key="variable_ours", values={"name": name}))
        elif "$" in value or "`" in value:
            notes.not_understood.append(Remark(key="variable_unknown", values={"name": name, "value": value}))
        elif name.startswith(_ENV_PREFIXES) or name in _ENV_NAMES:
            kept[name] = value
        else:
            notes.not_understood.append(Remark(key="variable_left", values={"name": name}))
    if kept:
        notes.understood.append(Remark(key="environment", values={"names": ", ".join(sorted(kept))}))
    return kept


def _with_deepspeed(imported: Imported, jsons: Mapping[str, str], notes: _Notes) -> Imported:
    """`deepspeed: some/path.json` becomes the content of the file that was given along."""
    try:
        named = read_yaml(imported.spec_text).values.get("deepspeed")
        by_base = {PurePosixPath(name).name: text for name, text in jsons.items()}
        text = by_base.get(PurePosixPath(named).name) if isinstance(named, str) else None
        content = json.loads(text) if text else None
    except (InvalidInput, ValueError, RecursionError):
        return imported
    if not isinstance(content, dict):
        return imported
    notes.changed.append(Remark(key="deepspeed_inlined", values={"path": str(named)}))
    return replace(
        notes.result(imported.kind, _changed_text(imported.spec_text, {"deepspeed": content})),
        problems=imported.problems,
    )


def _changed_text(text: str, changes: Mapping[str, ArgValue]) -> str:
    try:
        return apply_changes(text, changes)
    except InvalidInput:
        return text


def fixable(problems: tuple[Problem, ...] | list[Problem]) -> list[Problem]:
    """Problems whose fix is applied by "apply all": errors and warnings (notes are left to the reader)."""
    return [p for p in problems if p.fix is not None and p.severity is not Severity.NOTE]


def apply_fixes(text: str, problems: tuple[Problem, ...] | list[Problem]) -> str:
    """The text with the fixes of all given problems applied, in order; one that no longer fits is passed over."""
    for problem in problems:
        if problem.fix is None:
            continue
        try:
            text = apply_changes(text, problem.fix.set, problem.fix.remove)
        except InvalidInput:
            continue
    return text
