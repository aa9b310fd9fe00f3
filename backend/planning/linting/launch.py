"""A launch script -> Problems: old scripts and flags, ranks against devices, Slurm tasks against torchrun, ports, time limits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from backend.domain.problem import Problem, Severity
from backend.planning.importing.command_line import OBSOLETE_SCRIPTS, Launch
from backend.planning.importing.shell_script import ShellScript
from backend.planning.linting.amd import count_visible
from backend.planning.linting.context import LintContext
from backend.planning.linting.report import report

_SHORT_LIMIT_SECONDS = 1800
_UNKNOWN_TOOLS = ("rccl-env", "rccl_env", "rocm-env", "nccl-env", "hip-env")


def lint_script(
    script: ShellScript, launches: tuple[Launch, ...], text: str, context: LintContext
) -> Iterator[Problem]:
    """Rules about the script itself; its trainer arguments are judged by the rules for train configs."""
    for number in script.broken_continuations:
        yield report("continuation_broken", Severity.ERROR, field="", found="\\ ", expected="\\", line=number)
    yield from _tools(script)
    yield from _time_limit(script)
    yield from _ports(script, launches, text, context)
    if not launches:
        return
    launch = launches[-1]
    if len(launches) > 1:
        yield report("several_launches", Severity.NOTE, field="", found=str(len(launches)))
    yield from _script_file(launch)
    yield from _world_size(script, launch)
    yield from _devices(launch, script, context)
    yield from _slurm_tasks(script, launch)


def environment_of(script: ShellScript, launch: Launch | None) -> dict[str, str]:
    """Variables that the launched program gets from the script (later ones win; `unset` takes them away)."""
    found = dict(script.exports)
    if launch:
        found.update(launch.environment)
    return found


def unknown_tools(script: ShellScript) -> list[str]:
    """Programs that tutorials name and that do not exist."""
    names = (command.words[0].rpartition("/")[2] for command in script.commands if command.words)
    return list(dict.fromkeys(name for name in names if name in _UNKNOWN_TOOLS))


def _tools(script: ShellScript) -> Iterator[Problem]:
    for command in script.commands:
        name = command.words[0].rpartition("/")[2] if command.words else ""
        if name in _UNKNOWN_TOOLS:
            yield report(
                "unknown_tool", Severity.WARNING, field=name, found=name, expected="NCCL_DEBUG=INFO", line=command.line
            )


def parse_time_limit(text: str) -> int | None:
    """Slurm's time formats (`MM`, `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM`, `D-HH:MM:SS`) in seconds."""
    days, dash, rest = text.partition("-")
    if not dash:
        days, rest = "", text
    parts = rest.split(":")
    if not all(part.isdigit() for part in parts) or (dash and not days.isdigit()) or len(parts) > 3:
        return None
    numbers = [int(part) for part in parts]
    if dash:
        numbers += [0] * (3 - len(numbers))
        return int(days) * 86400 + numbers[0] * 3600 + numbers[1] * 60 + numbers[2]
    if len(numbers) == 1:
        return numbers[0] * 60
    if len(numbers) == 2:
        return numbers[0] * 60 + numbers[1]
    return numbers[0] * 3600 + numbers[1] * 60 + numbers[2]


def _time_limit(script: ShellScript) -> Iterator[Problem]:
    text = script.sbatch.get("time", "")
    seconds = parse_time_limit(text)
    if seconds is not None and 0 < seconds <= _SHORT_LIMIT_SECONDS:
        yield report(
            "time_limit_short", Severity.WARNING, field="--time", found=text, expected="hours", seconds=seconds
        )


def _ports(script: ShellScript, launches: tuple[Launch, ...], text: str, context: LintContext) -> Iterator[Problem]:
    """One port for two services: Ray's head and torchrun's master, or two launches at the same time."""
    ray = re.findall(r"ray\s+start\b[^\n]*?--port[= ]\"?([^\s\"]+)", text)
    master = [m[1].strip("\"'") for m in re.finditer(r"(?:MASTER_PORT=|--master[_-]port[= ])\s*([^\s;\\]+)", text)]
    shared = {_name(port) for port in ray} & {_name(port) for port in master}
    background = [c for c in script.commands if c.background]
    twice = [
        port
        for port in {_name(p) for p in master}
        if [_name(p) for p in master].count(port) > 1 and len(background) > 1
    ]
    for port in sorted(shared) or sorted(twice):
        yield report("port_reused", Severity.WARNING, field="MASTER_PORT", found=port, expected="two ports")
    for port in master:
        if port.isdigit() and int(port) in context.ports_in_use:
            yield report("port_busy", Severity.WARNING, field="MASTER_PORT", found=port, expected="a free port")


def _name(port: str) -> str:
    return port.strip("\"'").replace("{", "").replace("}", "")


def _script_file(launch: Launch) -> Iterator[Problem]:
    if launch.obsolete_script:
        yield report(
            "obsolete_script",
            Severity.ERROR,
            field="",
            found=launch.entry,
            expected=OBSOLETE_SCRIPTS[launch.obsolete_script],
        )
    if launch.launcher == "torch.distributed.launch":
        yield report("obsolete_launcher", Severity.WARNING, field="", found=launch.launcher, expected="torchrun")
    if launch.launcher == "llamafactory-cli" and launch.action == "eval":
        yield report(
            "eval_removed", Severity.ERROR, field="", found="llamafactory-cli eval", expected="train + do_eval: true"
        )
    if launch.config.endswith(".json") and launch.ours:
        yield report("json_config", Severity.ERROR, field="", found=launch.config, expected="*.yaml")
    flags = [f"--{name}" for name in launch.arguments]
    if launch.config and flags and launch.ours:
        yield report("flags_after_yaml", Severity.ERROR, field="", found=" ".join(flags[:3]), expected="key=value")


def _world_size(script: ShellScript, launch: Launch) -> Iterator[Problem]:
    """WORLD_SIZE is the number of ranks for torch; some platforms set it to the number of nodes."""
    for name in ("num_machines", "nnodes", "num_nodes", "nnode"):
        if "WORLD_SIZE" in launch.options.get(name, ""):
            yield report(
                "world_size_ambiguous", Severity.WARNING, field=name, found=launch.options[name], expected="nodes"
            )
            return


def processes_per_node(launch: Launch, variables: Mapping[str, str] | None = None) -> int | None:
    """Ranks that the launch line (or NPROC_PER_NODE) asks for on this node, when it is a plain number."""
    for name in ("nproc_per_node", "nproc", "num_gpus"):
        value = launch.options.get(name) or ""
        if value.isdigit():
            return int(value)
    include = launch.options.get("include", "")
    if include and "@" not in include:
        slots = include.partition(":")[2]
        return len(slots.split(",")) if slots else None
    total, nodes = launch.options.get("num_processes", ""), launch.options.get("num_machines", "1")
    if total.isdigit() and nodes == "1":
        return int(total)
    value = {**(variables or {}), **launch.environment}.get("NPROC_PER_NODE", "")
    return int(value) if value.isdigit() else None


def _devices(launch: Launch, script: ShellScript, context: LintContext) -> Iterator[Problem]:
    variables = environment_of(script, launch)
    wanted, visible = processes_per_node(launch, variables), count_visible(variables)
    if visible is None:
        visible = context.visible_devices if context.visible_devices is not None else context.gpu_count
    if wanted is not None and visible is not None and wanted > visible > 0:
        yield report(
            "nproc_exceeds_visible",
            Severity.ERROR,
            field="nproc_per_node",
            found=wanted,
            expected=f"<= {visible}",
            visible=visible,
            processes=wanted,
        )


def slurm_tasks(sbatch: Mapping[str, str], launch: Launch | None = None) -> tuple[int | None, int | None, int | None]:
    """Tasks in all, nodes, and tasks a node that a job starts with srun, as far as the options say."""
    options = {name: value for name, value in sbatch.items()}
    if launch and launch.wrapper == "srun":
        long = {"n": "ntasks", "N": "nodes"}
        options.update(
            {long.get(name, name).replace("_", "-"): value for name, value in launch.wrapper_options.items() if value}
        )
    nodes = _whole(options.get("nodes"))
    per_node = _whole(options.get("ntasks-per-node"))
    tasks = _whole(options.get("ntasks"))
    if tasks is None and per_node is not None:
        tasks = per_node * (nodes or 1)
    if per_node is None and tasks is not None:
        per_node = max(1, tasks // (nodes or 1))
    return tasks, nodes, per_node


def gpus_per_node(sbatch: Mapping[str, str]) -> int | None:
    """GPUs that a Slurm script asks for on each node."""
    for name in ("gpus-per-node", "gres", "gpus"):
        match = re.search(r"(?:^|:)(\d+)$", sbatch.get(name, ""))
        if match:
            return int(match[1])
    return None


def _slurm_tasks(script: ShellScript, launch: Launch) -> Iterator[Problem]:
    """srun starts the line once a task; a launcher that starts all ranks itself then runs as several jobs at once."""
    if launch.wrapper != "srun":
        return
    _, _, per_node = slurm_tasks(script.sbatch, launch)
    launches_all = launch.launcher in (
        "llamafactory-cli",
        "torchrun",
        "deepspeed",
        "accelerate",
        "torch.distributed.launch",
    )
    if launches_all and per_node is not None and per_node > 1:
        yield report(
            "tasks_times_torchrun",
            Severity.ERROR,
            field="--ntasks-per-node",
            found=per_node,
            expected="1",
            tasks=per_node,
        )


def _whole(text: str | None) -> int | None:
    match = re.match(r"\d+", text or "")
    return int(match[0]) if match else None
