"""File or folder -> Inspection: what each file is, what is wrong with it, and what that means for the whole.

Configurations, scripts, registries and data are read here; logs and host facts by backend/parsing. `python app.py inspect
--json FOLDER...` prints one object a line.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from backend.domain.problem import ArgValue, Problem, Severity
from backend.errors import NotFound
from backend.parsing.datasets.records import RegistryEntry
from backend.parsing.datasets.registry import RegistryReport
from backend.parsing.log_inspection import read_log_facts
from backend.planning.importing.command_line import Launch
from backend.planning.importing.detect import Kind, detect_config, detect_json
from backend.planning.importing.imported import trainer_launches
from backend.planning.importing.shell_script import parse_shell
from backend.planning.importing.yaml_text import read_yaml
from backend.planning.linting.context import LintContext
from backend.planning.linting.launch import processes_per_node
from backend.services.inspect_config import Facts, Neighbour, config_facts
from backend.services.inspect_data import data_facts, read_registry, registry_facts

MAX_FILES = 400
MAX_BYTES = 64 << 20
_LOG_NAMES = ("trainer_log.jsonl", "running_log.txt", "trainer_state.json", "all_results.json", "train_results.json")
_DATA_SUFFIXES = (".json", ".jsonl", ".csv", ".tsv", ".parquet", ".arrow", ".ndjson")
_LOG_SUFFIXES = (".log", ".out", ".err", ".txt")
_SPECIAL = (Kind.FOREIGN, Kind.BOARD, Kind.V1, Kind.TEMPLATE)

LogReader = Callable[[Mapping[str, bytes]], Mapping[str, object]]
"""All files of the folder in, facts of its logs out: configurations beside a log help to read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInspection:
    """One file. `kind` is a config kind, "data", "registry" or "log"."""

    name: str
    kind: str
    facts: Facts
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A file or folder. `facts` are in the words of the cases' vocabulary, per file below `facts["files"]`."""

    input: str
    facts: Facts
    files: tuple[FileInspection, ...] = field(default=())

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps({"input": self.input, "facts": self.facts}, ensure_ascii=False, default=str)


def inspect_path(path: Path, *, read_logs: LogReader | None = None) -> Inspection:
    """Inspect one file or everything below one folder; raises NotFound when there is nothing at `path`."""
    files = load_files(path)
    return inspect_files(files, str(path), read_logs=read_logs)


inspect_folder = inspect_path


def load_files(path: Path) -> dict[str, bytes]:
    """Regular files by relative name, hidden ones and `expected.json` left out; large ones up to MAX_BYTES."""
    if path.is_file():
        return {path.name: _head(path)}
    if not path.is_dir():
        raise NotFound(f"There is no file or folder {path}.")
    found: dict[str, bytes] = {}
    for one in sorted(path.rglob("*")):
        relative = one.relative_to(path)
        if len(found) >= MAX_FILES:
            break
        if one.is_file() and not any(part.startswith(".") for part in relative.parts) and one.name != "expected.json":
            found[relative.as_posix()] = _head(one)
    return found


def _head(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(MAX_BYTES)


def inspect_files(files: Mapping[str, bytes], label: str, *, read_logs: LogReader | None = None) -> Inspection:
    """The same for files that are in memory already (an upload)."""
    sorted_files = _Sorted.of(files)
    logs = dict((read_logs or read_log_facts)(files)) if sorted_files.logs else {}
    has_log = any(not _is_host_file(name) for name in sorted_files.logs)
    has_run = bool(logs.get("last_step") or logs.get("points"))
    context = replace(_context(sorted_files), has_log=has_log, has_run=has_run)
    inspected = [
        *_inspect_configs(sorted_files, context),
        *_inspect_registries(sorted_files),
        *_inspect_data(sorted_files),
    ]
    return Inspection(input=label, facts=_merge(sorted_files, inspected, logs), files=tuple(inspected))


# --- what each file is ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sorted:
    configs: Mapping[str, tuple[Kind, str]]
    registries: Mapping[str, tuple[Kind, str]]
    data: Mapping[str, bytes]
    logs: Mapping[str, bytes]

    @staticmethod
    def of(files: Mapping[str, bytes]) -> _Sorted:
        configs: dict[str, tuple[Kind, str]] = {}
        registries: dict[str, tuple[Kind, str]] = {}
        data: dict[str, bytes] = {}
        logs: dict[str, bytes] = {}
        for name, content in files.items():
            base = PurePosixPath(name).name
            text = content[: 1 << 20].decode("utf-8", "replace")
            kind = None if base in _LOG_NAMES else detect_config(text, name)
            if kind in (Kind.REGISTRY, Kind.ARROW_INFO) or base == "dataset_info.json":
                registries[name] = (kind or Kind.REGISTRY, text)
            elif kind is not None:
                configs[name] = (kind, text)
            elif _is_data(name, text):
                data[name] = content
            else:
                logs[name] = content
        return _Sorted(configs, registries, data, logs)


def _is_data(name: str, text: str) -> bool:
    base = PurePosixPath(name).name
    if base in _LOG_NAMES:
        return False
    if base.endswith(".txt"):
        return not _is_host_file(name) and _is_prose(text)
    return base.endswith(_DATA_SUFFIXES) and not _is_log_lines(text)


_LOG_MARKS = re.compile(
    r"Traceback|\bERROR\b|\bWARN(?:ING)?\b|\bINFO\b|\[rank\d|it/s|s/it|'loss'|\d{2}:\d{2}:\d{2}|^\S+=\S+$|^\w[\w .()]*: ?\S+$|"
    r"NCCL|RCCL|error:|Error\b|\|\s*\d+/\d+",
    re.M,
)


_GPU_TOOL = re.compile(r"\s*\[?\s*\{\s*\"(?:gpu|gpu_data|card\d+)\"\s*:")
"""How the JSON of amd-smi and rocm-smi begins."""


def _is_prose(text: str) -> bool:
    """Plain text to train on, not the output of a program."""
    return bool(text.strip()) and not _LOG_MARKS.search(text)


def _is_log_lines(text: str) -> bool:
    """JSON that a trainer, a recorder or a GPU tool writes, not data."""
    if _GPU_TOOL.match(text.lstrip("\ufeff")):
        return True
    first = text.lstrip("\ufeff \n").partition("\n")[0]
    try:
        row = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and (
        ("current_steps" in row and "total_steps" in row) or {"t", "k"} <= set(row) or "log_history" in row
    )


# --- what the files say about each other ---------------------------------------------------------------------------


def _context(files: _Sorted) -> LintContext:
    hosts = "\n".join(content.decode("utf-8", "replace") for name, content in files.logs.items() if _is_host_file(name))
    processes = None
    for kind, text in files.configs.values():
        if kind is Kind.SCRIPT and (launches := trainer_launches(script := parse_shell(text))):
            processes = processes_per_node(launches[-1], script.exports)
    context = replace(
        host_context(hosts), processes=processes, started_elsewhere=bool(files.logs) or _has_script(files)
    )
    names = _registered_names(files)
    deepspeed = {name: content for name, content in _deepspeed_contents(files)}
    return replace(context, datasets=names, deepspeed_files=deepspeed, existing_paths=frozenset(deepspeed))


def _is_host_file(name: str) -> bool:
    return bool(re.search(r"(?:^|[/_-])(?:env|host|hardware|system|gpus?)\w*\.txt$", name))


def _has_script(files: _Sorted) -> bool:
    return any(kind is Kind.SCRIPT for kind, _ in files.configs.values())


def host_context(text: str) -> LintContext:
    """GPU model, count, memory and accelerator from a few lines that describe a host."""
    model = re.search(r"\b(MI\d{3}[AX]?|[AH]\d00|H20|B200|L40S?|RTX ?\w+)\b", text)
    count = re.search(
        r"(\d+)\s*x\s*(?:AMD |Instinct |NVIDIA )*(?:MI\d|[AHB]\d)|(?:MI\d{3}\w*|[AHB]\d00)\s*x\s*(\d+)", text
    )
    memory = re.search(r"(\d{4,7})\s*MiB", text)
    gfx = re.search(r"\bgfx\w+", text)
    rocm = bool(gfx or re.search(r"\bMI\d{3}|rocm|Instinct|hip[: ]", text, re.I))
    cuda = bool(re.search(r"\bcu\d{3}\b|nvidia", text, re.I)) and not rocm
    return LintContext(
        accelerator="rocm" if rocm else "cuda" if cuda else "",
        gpu_model=model[1] if model else "",
        gfx_target=gfx[0] if gfx else "",
        gpu_count=int(next(group for group in count.groups() if group)) if count else None,
        gpu_memory_bytes=int(memory[1]) << 20 if memory else None,
    )


def _deepspeed_contents(files: _Sorted) -> Iterable[tuple[str, dict[str, ArgValue]]]:
    """DeepSpeed files of the folder under every path by which a config here names them (compared by file name)."""
    contents = {}
    for name, (kind, text) in files.configs.items():
        if kind is Kind.DEEPSPEED:
            try:
                contents[PurePosixPath(name).name] = json.loads(text)
            except (ValueError, RecursionError):
                continue
    for named in _deepspeed_names(files):
        content = contents.get(PurePosixPath(named).name)
        if isinstance(content, dict):
            yield named, content


def _deepspeed_names(files: _Sorted) -> Iterable[str]:
    for kind, text in files.configs.values():
        if kind is Kind.TRAIN and (value := _values(text).get("deepspeed")) and isinstance(value, str):
            yield value
        if kind is Kind.SCRIPT:
            for launch in trainer_launches(parse_shell(text)):
                if launch.arguments.get("deepspeed"):
                    yield str(launch.arguments["deepspeed"])


def _values(text: str) -> Mapping[str, ArgValue]:
    try:
        return read_yaml(text).values
    except Exception:  # noqa: BLE001
        return {}


def _registered_names(files: _Sorted) -> frozenset[str] | None:
    """Names of the one registry beside the configs; None when there is none, or several."""
    found = [
        read_registry(text)
        for name, (kind, text) in files.registries.items()
        if kind is Kind.REGISTRY and "/" not in name
    ]
    return frozenset(found[0][0]) if len(found) == 1 and found[0] is not None else None


# --- each file -----------------------------------------------------------------------------------------------------


def _inspect_configs(files: _Sorted, context: LintContext) -> Iterable[FileInspection]:
    neighbour = _neighbour(files)
    for name, (kind, text) in files.configs.items():
        facts, problems = config_facts(kind, name, text, context, neighbour)
        yield FileInspection(name=name, kind=kind.value, facts=facts, problems=tuple(problems))


def _neighbour(files: _Sorted) -> Neighbour:
    """Method and model of the first train config (or launch) of the folder."""
    for kind, text in files.configs.values():
        if kind is Kind.TRAIN:
            values = _values(text)
            return Neighbour(
                method=str(values.get("finetuning_type") or ""),
                model=str(values.get("model_name_or_path") or ""),
                quantized=values.get("quantization_bit") is not None,
            )
    for kind, text in files.configs.values():
        if kind is Kind.SCRIPT and (launches := trainer_launches(parse_shell(text))):
            return _launch_neighbour(launches[-1])
    return Neighbour()


def _launch_neighbour(launch: Launch) -> Neighbour:
    given = launch.arguments
    return Neighbour(
        method=given.get("finetuning_type") or "",
        model=given.get("model_name_or_path") or "",
        quantized="quantization_bit" in given,
    )


def _inspect_registries(files: _Sorted) -> Iterable[FileInspection]:
    for name, (kind, text) in files.registries.items():
        read = read_registry(text.lstrip("\ufeff"))
        if read is None:
            facts, problems = data_facts(name, text.encode())
            facts = {**facts, "detected_format": Kind.REGISTRY.value}
        else:
            content, registry = read
            real_kind = detect_json(dict(content), name) or kind
            facts, problems = registry_facts(real_kind, content, registry, _missing_files(name, registry, files))
        yield FileInspection(name=name, kind="registry", facts=facts, problems=tuple(problems))


def _missing_files(name: str, registry: RegistryReport, files: _Sorted) -> Iterable[tuple[str, str, Severity]]:
    """An absolute path that this host lacks is an error; a relative one only when data lies beside and no entry fits it."""
    folder = PurePosixPath(name).parent
    here = {
        PurePosixPath(one).relative_to(folder).as_posix()
        for one in files.data
        if PurePosixPath(one).is_relative_to(folder)
    }
    here |= {PurePosixPath(one).name for one in files.logs if one.endswith(".txt")}
    named = [(entry.name, entry.file_name) for entry in registry.entries if entry.file_name]
    fits = any(file in here for _, file in named)
    for entry, file in named:
        if file.startswith("/"):
            if not Path(file).exists():
                yield entry, file, Severity.ERROR
        elif file not in here and here:
            yield entry, file, Severity.NOTE if fits else Severity.ERROR


def _inspect_data(files: _Sorted) -> Iterable[FileInspection]:
    entries = _entries_by_file(files)
    for name, content in files.data.items():
        facts, problems = data_facts(name, content, entries.get(name))
        yield FileInspection(name=name, kind="data", facts=facts, problems=tuple(problems))


def _entries_by_file(files: _Sorted) -> dict[str, RegistryEntry]:
    found: dict[str, RegistryEntry] = {}
    for name, (kind, text) in files.registries.items():
        read = read_registry(text.lstrip("\ufeff")) if kind is Kind.REGISTRY else None
        for entry in read[1].entries if read else ():
            path = (PurePosixPath(name).parent / entry.file_name).as_posix()
            if entry.file_name and path in files.data:
                found.setdefault(path, entry)
    return found


# --- the whole -----------------------------------------------------------------------------------------------------

_WORSE = {"error": 0, "warning": 1, "ok": 2}
_LISTS = ("errors", "warnings", "notes", "unknown_keys", "missing_keys", "placeholders")


def _merge(files: _Sorted, inspected: list[FileInspection], logs: Mapping[str, object]) -> Facts:
    """Facts of the whole: of the main file, with the findings of all files that belong to it."""
    merged: Facts = json.loads(json.dumps(logs, default=str)) if logs else {}
    per_file = merged.pop("files", {})
    per_file = per_file if isinstance(per_file, dict) else {}
    own = _main_group(files, inspected)
    for one in own:
        _add(merged, one.facts)
    main = _main_file(own)
    if main is not None and (main.kind == "data" or main.facts["detected_format"] in _SPECIAL or not logs):
        for key in ("detected_format", "container", "rows"):
            if key in main.facts:
                merged[key] = main.facts[key]
    verdicts = [str(one.facts["verdict"]) for one in inspected if "verdict" in one.facts]
    if verdicts:
        merged["verdict"] = (
            min((str(one.facts["verdict"]) for one in own), key=lambda v: _WORSE[v]) if own else min(verdicts)
        )
    names = {one.name: one.facts for one in inspected}
    if len(files.logs) == 1 and logs:
        only = next(iter(files.logs))
        per_file = {
            **{only: {k: v for k, v in json.loads(json.dumps(logs, default=str)).items() if k != "files"}},
            **per_file,
        }
    merged["files"] = {**per_file, **names}
    return merged


def _main_group(files: _Sorted, inspected: list[FileInspection]) -> list[FileInspection]:
    """Files whose findings count for the whole. A foreign config makes the rest pointless; where a registry names data
    files of the folder, the others are not part of the data set."""
    foreign = [one for one in inspected if one.kind == Kind.FOREIGN.value]
    if foreign and files.logs:
        inspected = [one for one in inspected if one not in foreign]
    elif any(one.facts["errors"] for one in foreign):
        return foreign
    registered = _entries_by_file(files)
    if registered:
        return [one for one in inspected if one.kind != "data" or one.name in registered]
    return inspected


def _main_file(group: list[FileInspection]) -> FileInspection | None:
    if not group:
        return None
    special = [one for one in group if one.kind in _SPECIAL]
    data = [one for one in group if one.kind == "data"]
    if special or data:
        return min(special or data, key=lambda one: _WORSE[str(one.facts["verdict"])])
    usual = Counter(str(one.facts["detected_format"]) for one in group).most_common()
    best = [name for name, count in usual if count == usual[0][1]]
    order = (Kind.TRAIN.value, Kind.SCRIPT.value, Kind.DEEPSPEED.value, Kind.REGISTRY.value)
    wanted = next((name for name in order if name in best), best[0])
    return next(one for one in group if one.facts["detected_format"] == wanted)


def _add(merged: Facts, facts: Facts) -> None:
    """Lists are joined, mappings merged (the first value of a key stays), other facts kept from the first file."""
    for key, value in facts.items():
        before = merged.get(key)
        if key in _LISTS:
            both = [*(before if isinstance(before, list) else []), *(value if isinstance(value, list) else [])]
            merged[key] = list[ArgValue](sorted({str(one) for one in both}))
        elif isinstance(value, dict):
            merged[key] = {**value, **before} if isinstance(before, dict) else dict(value)
        else:
            merged.setdefault(key, value)


def main(arguments: list[str]) -> int:
    """`--json FOLDER...`: one JSON object a line."""
    for name in arguments:
        if name != "--json":
            print(inspect_path(Path(name)).to_json())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
