"""Words of one command -> Launch: which launcher starts which trainer with which arguments, or None when it starts none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from backend.domain.problem import ArgValue
from backend.planning.importing.yaml_text import read_scalar
from backend.planning.schema import Kind, TrainerSchema
from backend.planning.words import words

_CLI = frozenset(("llamafactory-cli", "lmf"))
_PYTHON = re.compile(r"python(?:\d(?:\.\d+)?)?t?")
_LAUNCH_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torch.distributed.launch",
    "torch.distributed.elastic.multiprocessing": "torchrun",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed": "deepspeed",
    "accelerate.commands.launch": "accelerate",
}
_TRAINER_MODULES = ("llamafactory.cli", "llamafactory.launcher", "llmtuner")
_TRAINER_FILES = frozenset(("train.py", "train_bash.py", "launcher.py", "cli.py", "export_model.py", "cli_demo.py"))
OBSOLETE_SCRIPTS = {
    "train_bash.py": "src/train.py",
    "train_web.py": "src/webui.py",
    "export_model.py": "llamafactory-cli export",
    "cli_demo.py": "llamafactory-cli chat",
    "web_demo.py": "llamafactory-cli webchat",
    "api_demo.py": "llamafactory-cli api",
    "evaluate.py": "llamafactory-cli eval",
    "train_sft.py": "src/train.py",
    "train_rm.py": "src/train.py",
    "train_ppo.py": "src/train.py",
    "train_pt.py": "src/train.py",
    "train_dpo.py": "src/train.py",
}
"""Entry files of LLaMA-Factory's earlier versions and what took their place."""

_FLAGS_WITHOUT_VALUE = {
    "torchrun": frozenset(("standalone", "no_python", "run_path", "module", "m")),
    "torch.distributed.launch": frozenset(("use_env", "use-env", "no_python", "module", "m", "standalone")),
    "deepspeed": frozenset(
        ("force_multi", "no_python", "no_local_rank", "no_ssh", "save_pid", "bind_cores_to_rank", "module")
    ),
    "accelerate": words(
        "cpu multi_gpu tpu ipex quiet use_deepspeed use_fsdp use_megatron_lm use_xpu same_network module m "
        "no_python debug dynamo_use_fullgraph dynamo_use_dynamic deepspeed_multinode_launcher_off"
    ),
    "srun": words("u unbuffered l label exclusive export-all v verbose pty overlap O oversubscribe Q quiet"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One start of a trainer. `options` are the launcher's own, `arguments` the trainer's, as words (None: no value).

    `config` is the YAML given as first positional; `overrides` the `key=value` words behind it. `environment` holds what
    the command itself sets (`env A=1`, `apptainer --env`, assignments in front). `wrapper` is "srun", "apptainer" ...
    """

    launcher: str
    entry: str
    options: Mapping[str, str] = field(default_factory=dict)
    config: str = ""
    arguments: Mapping[str, str | None] = field(default_factory=dict)
    repeated: tuple[str, ...] = ()
    overrides: Mapping[str, str] = field(default_factory=dict)
    stray: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    wrapper: str = ""
    wrapper_options: Mapping[str, str] = field(default_factory=dict)
    action: str = "train"
    """train, export, api, chat, eval, webui ... for llamafactory-cli; train elsewhere."""
    ours: bool = True
    """The entry is LLaMA-Factory's; False: some other program that a launcher starts."""

    @property
    def obsolete_script(self) -> str | None:
        """File name of an entry script that no longer exists, or None."""
        name = self.entry.rpartition("/")[2]
        return name if name in OBSOLETE_SCRIPTS else None


def parse_launch(words: tuple[str, ...], environment: Mapping[str, str] | None = None) -> Launch | None:
    """The launch that a command makes. Wrappers in front (env, nohup, srun, docker run ...) are taken off."""
    head = _head(words)
    if head is None:
        return None
    before, rest = words[:head], words[head:]
    env = {**(environment or {}), **_assignments(before)}
    wrapper, wrapper_options = _wrapper(before)
    found = _parse_launcher(rest)
    if found is None:
        return None
    launcher, options, entry, tail, action = found
    arguments = _parse_arguments(tail)
    config = arguments.positional[0] if arguments.positional else ""
    is_config = config.endswith((".yaml", ".yml", ".json"))
    return Launch(
        launcher=launcher,
        entry=entry,
        options=options,
        config=config if is_config else "",
        arguments=arguments.flags,
        repeated=arguments.repeated,
        overrides=arguments.overrides,
        stray=arguments.positional[1 if is_config else 0 :],
        environment=env,
        wrapper=wrapper,
        wrapper_options=wrapper_options,
        action=action,
        ours=_is_trainer(launcher, entry, arguments, is_config),
    )


def typed_arguments(launch: Launch, schema: TrainerSchema) -> dict[str, ArgValue]:
    """The trainer's arguments as values: by the schema's type where the name is known, else as YAML would read them."""
    typed: dict[str, ArgValue] = {}
    for name, text in launch.arguments.items():
        typed[name] = _typed(name, text, schema)
    for name, text in launch.overrides.items():
        typed[name] = read_scalar(text)
    return typed


def _typed(name: str, text: str | None, schema: TrainerSchema) -> ArgValue:
    argument = schema.arguments.get(name)
    if text is None:
        return True if argument is None or argument.kind is Kind.BOOL else None
    if argument is None:
        return read_scalar(text)
    if argument.kind is Kind.BOOL:
        word = text.lower()
        return True if word in _TRUE else False if word in _FALSE else text
    if argument.kind in (Kind.INT, Kind.FLOAT):
        return _number(text, argument.kind)
    if argument.loose and text.lower() in ("true", "false"):
        return text.lower() == "true"
    return text


_TRUE = frozenset(("yes", "true", "t", "y", "1"))
_FALSE = frozenset(("no", "false", "f", "n", "0"))
"""What transformers' `string_to_bool` takes on a command line."""


def _number(text: str, kind: Kind) -> ArgValue:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return text if kind is Kind.INT else float(text)
    except ValueError:
        return text


# --- from words to parts -------------------------------------------------------------------------------------------


def _head(words: tuple[str, ...]) -> int | None:
    """Index of the launcher among wrappers and their options."""
    for index, word in enumerate(words):
        name = word.rpartition("/")[2]
        if (
            name in _CLI
            or name in ("torchrun", "deepspeed")
            or (name == "accelerate" and "launch" in words[index + 1 : index + 2])
        ):
            return index
        if _PYTHON.fullmatch(name):
            return index
    return None


def _assignments(words: tuple[str, ...]) -> dict[str, str]:
    """`env A=1`, `apptainer --env A=1`, `docker run -e A=1`, `srun --export=ALL,A=1`."""
    found: dict[str, str] = {}
    for word in words:
        text = word.partition("=")[2] if word.startswith(("--env=", "--export=")) else word
        for piece in text.split(",") if word.startswith("--export=") else (text,):
            name, equals, value = piece.partition("=")
            if equals and re.fullmatch(r"[A-Za-z_]\w*", name):
                found[name] = value
    return found


_WRAPPERS = (
    "srun",
    "mpirun",
    "mpiexec",
    "apptainer",
    "singularity",
    "docker",
    "podman",
    "numactl",
    "nohup",
    "env",
    "ray",
)


def _wrapper(words: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    for index, word in enumerate(words):
        name = word.rpartition("/")[2]
        if name in _WRAPPERS:
            options, _ = _split_options(words[index + 1 :], _FLAGS_WITHOUT_VALUE["srun"])
            return name, options
    return "", {}


_Found = tuple[str, dict[str, str], str, tuple[str, ...], str]


def _parse_launcher(words: tuple[str, ...]) -> _Found | None:
    """launcher, its options, the entry, the trainer's words, the action."""
    name = words[0].rpartition("/")[2]
    if name in _CLI:
        action = words[1] if len(words) > 1 else ""
        return "llamafactory-cli", {}, "llamafactory-cli", words[2:], action
    if name in ("torchrun", "deepspeed"):
        return _with_entry(name, words[1:])
    if name == "accelerate":
        return _with_entry(name, words[2:])
    return _parse_python(words[1:])


def _parse_python(words: tuple[str, ...]) -> _Found | None:
    index = 0
    while index < len(words) and words[index].startswith("-") and words[index] != "-m":
        if words[index] == "-c":
            return None
        index += 2 if words[index] in ("-W", "-X") else 1
    if index >= len(words):
        return None
    if words[index] != "-m":
        return "python", {}, words[index], words[index + 1 :], "train"
    module = words[index + 1] if index + 1 < len(words) else ""
    rest = words[index + 2 :]
    if module in _LAUNCH_MODULES:
        return _with_entry(_LAUNCH_MODULES[module], rest)
    if module == "accelerate.commands.accelerate_cli":
        return _with_entry("accelerate", rest[1:])
    if module == "llamafactory.cli":
        return "llamafactory-cli", {}, "llamafactory-cli", rest[1:], rest[0] if rest else ""
    return "python", {}, module, rest, "train"


def _with_entry(launcher: str, words: tuple[str, ...]) -> _Found | None:
    options, rest = _split_options(words, _FLAGS_WITHOUT_VALUE[launcher])
    if "m" in options or "module" in options:
        options.pop("m", None)
        options.pop("module", None)
    if not rest:
        return None
    entry, tail, action = rest[0], rest[1:], "train"
    if entry.rpartition("/")[2] in _CLI:
        entry, action, tail = "llamafactory-cli", tail[0] if tail else "", tail[1:]
    return launcher, options, entry, tail, action


def _split_options(words: tuple[str, ...], without_value: frozenset[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Options in front of the first positional, names with underscores. The rest begins with that positional."""
    options: dict[str, str] = {}
    index = 0
    while index < len(words) and words[index].startswith("-"):
        name, equals, value = words[index].lstrip("-").partition("=")
        index += 1
        takes_value = not equals and name not in without_value and name.replace("-", "_") not in without_value
        if takes_value and index < len(words) and not words[index].startswith("--"):
            value = words[index]
            index += 1
        options[name.replace("-", "_")] = value
    return options, words[index:]


@dataclass(frozen=True, slots=True)
class _Arguments:
    flags: dict[str, str | None]
    positional: tuple[str, ...]
    overrides: dict[str, str]
    repeated: tuple[str, ...]


def _parse_arguments(words: tuple[str, ...]) -> _Arguments:
    flags: dict[str, str | None] = {}
    repeated: list[str] = []
    overrides: dict[str, str] = {}
    positional: list[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not _is_flag(word):
            name, equals, value = word.partition("=")
            if equals and positional and re.fullmatch(r"[A-Za-z_][\w.]*", name):
                overrides[name] = value
            else:
                positional.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        values = [value] if equals else []
        if not equals:
            while index < len(words) and not _is_flag(words[index]):
                values.append(words[index])
                index += 1
        name = name.replace("-", "_") if word.startswith("--") else name
        if name in flags:
            repeated.append(name)
        flags[name] = " ".join(values) if values else None
    return _Arguments(flags, tuple(positional), overrides, tuple(repeated))


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not re.fullmatch(r"-\.?\d.*", word)


def _is_trainer(launcher: str, entry: str, arguments: _Arguments, has_config: bool) -> bool:
    """LLaMA-Factory's own entry. A bare `train.py` of an unknown folder counts only with arguments that are its own."""
    if launcher == "llamafactory-cli" or entry == "llamafactory-cli" or entry.startswith(_TRAINER_MODULES):
        return True
    name = entry.rpartition("/")[2]
    if name in OBSOLETE_SCRIPTS and name != "evaluate.py":
        return True
    if name not in _TRAINER_FILES:
        return False
    flags = set(arguments.flags)
    if flags & _OWN_FLAGS or (has_config and not arguments.positional[0].endswith(".json")):
        return True
    inside = entry.endswith(("src/train.py", "llamafactory/launcher.py", "inside/train.py"))
    return inside and len(flags - _SHARED_FLAGS) <= 1


_OWN_FLAGS = words("stage finetuning_type dataset_dir cutoff_len lora_target use_v2 template")
_SHARED_FLAGS = words(
    "config_file config config_path model_name_or_path output_dir deepspeed bf16 fp16 do_train local_rank"
)
"""Flags that tell LLaMA-Factory from the many other programs with a train.py, and those that they all have."""
