"""JobSpec in, LaunchPlan out: the exact command, environment and files of a run. Pure: what is previewed is what is launched."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from ruamel.yaml import YAML

from backend.domain.job import JobSpec, Task
from backend.domain.launch import LaunchPlan
from backend.domain.problem import ArgValue
from backend.planning.deepspeed import build_deepspeed_config

VISIBILITY = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
OURS = "TUNEDECK_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the plan needs to know of the machine and the installation. Paths are absolute."""

    python: str
    entry: str
    """backend/inside/train.py"""
    accelerator: str
    """rocm, cuda or cpu"""
    cpu_count: int
    dataset_dir: str = ""
    """Where data sets are registered when the job names no `dataset_dir`; "" leaves it to the trainer."""
    stop_grace_seconds: float = 600.0
    terminate_grace_seconds: float = 20.0


def build_plan(
    spec: JobSpec,
    *,
    job_id: str,
    job_dir: str,
    host: Host,
    devices: tuple[str, ...] = (),
    visibility: Mapping[str, str] | None = None,
) -> LaunchPlan:
    """The plan of `spec`; `visibility` sets the one device variable for the leased `devices` (None: nothing to set)."""
    processes = spec.processes or len(devices) or 1
    train = train_arguments(spec, job_dir, host.dataset_dir)
    files = {"train.yaml": dump_yaml(train)}
    if spec.zero.stage is not None and "deepspeed" not in spec.train:
        files["ds_config.json"] = json.dumps(build_deepspeed_config(spec.zero), indent=2) + "\n"
    elif isinstance(inline := spec.train.get("deepspeed"), dict):
        files["ds_config.json"] = json.dumps(inline, indent=2, ensure_ascii=False) + "\n"
    env = {**_environment(spec, host, processes), **(visibility or {})}
    return LaunchPlan(
        job_id=job_id,
        job_dir=job_dir,
        argv=(host.python, *_torchrun(spec, processes), *_program(spec, host, job_dir)),
        env={**env, "TUNEDECK_JOB_ID": job_id, "TUNEDECK_JOB_DIR": job_dir},
        unset=tuple(name for name in VISIBILITY if devices and name not in env),
        cwd=job_dir,
        files=files,
        processes=processes,
        devices=devices,
        stop_grace_seconds=host.stop_grace_seconds,
        terminate_grace_seconds=host.terminate_grace_seconds,
    )


def _program(spec: JobSpec, host: Host, job_dir: str) -> tuple[str, str] | tuple[str, str, str]:
    """The script that each rank runs, and its arguments; train.py's neighbours do the other tasks."""
    program = (
        host.entry if spec.task is Task.TRAIN else str(PurePosixPath(host.entry).with_name(f"{spec.task.value}.py"))
    )
    if spec.task is Task.BENCH:
        return program, "--out", f"{job_dir}/bench.json"
    return program, f"{job_dir}/train.yaml"


def train_arguments(spec: JobSpec, job_dir: str, dataset_dir: str = "") -> dict[str, ArgValue]:
    """What LLaMA-Factory reads: the spec's own arguments, and the few that the launcher has to decide.

    A relative `output_dir` (as tutorials have it) goes to the job's own folder; an absolute one is kept.
    """
    train = dict(spec.train)
    output = train.get("output_dir")
    if not (isinstance(output, str) and output.startswith("/")):
        train["output_dir"] = f"{job_dir}/output"
    train.setdefault("do_train", True)
    if dataset_dir:
        train.setdefault("dataset_dir", dataset_dir)
    # LLaMA-Factory's default of 500 leaves short runs without a single point, "all" reporters would call home.
    train.setdefault("logging_steps", 5)
    train.setdefault("report_to", "none")
    if (spec.zero.stage is not None and "deepspeed" not in train) or isinstance(train.get("deepspeed"), dict):
        train["deepspeed"] = f"{job_dir}/ds_config.json"
    return train


def _torchrun(spec: JobSpec, processes: int) -> tuple[str, ...]:
    """torchrun as a module of the chosen interpreter: needs no PATH, survives blanks in paths."""
    head = ("-m", "torch.distributed.run", "--nnodes", "1", "--nproc_per_node", str(processes))
    if port := spec.env.get("MASTER_PORT"):
        return (*head, "--master_addr", "127.0.0.1", "--master_port", port)
    # Port 0: the rendezvous takes a free port itself, so that two jobs started together never collide.
    return (*head, "--rdzv_backend", "c10d", "--rdzv_endpoint", "127.0.0.1:0", "--local_addr", "127.0.0.1")


def _environment(spec: JobSpec, host: Host, processes: int) -> dict[str, str]:
    """Defaults of one node; what the user sets wins."""
    defaults = {
        "PYTHONUNBUFFERED": "1",
        # torchrun would say 1, which makes CPU offload and tokenizing crawl.
        "OMP_NUM_THREADS": str(max(1, host.cpu_count // processes)),
        # The recorder's own process group must not depend on the host's name being resolvable.
        "GLOO_SOCKET_IFNAME": "lo",
    }
    return defaults | {name: value for name, value in spec.env.items() if not name.startswith(OURS)}


def dump_yaml(values: Mapping[str, ArgValue]) -> str:
    """YAML that PyYAML and OmegaConf read back to the same values (`1e-05` would be a string to PyYAML: write `1.0e-05`)."""
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 4096
    yaml.version = (1, 1)  # quotes "no", "on" and their like
    out = io.StringIO()
    yaml.dump(dict(values), out)
    return out.getvalue().partition("---\n")[2]


def shell_command(plan: LaunchPlan, *, output_dir: str | None = None) -> str:
    """The plan as one line for a shell; without our own variables, so that it does the same training without Tunedeck.

    `output_dir` replaces the job's output folder (LLaMA-Factory would resume from the checkpoints it finds there).
    """
    argv = [*plan.argv, *([f"output_dir={output_dir}"] if output_dir else [])]
    env = [f"{name}={value}" for name, value in plan.env.items() if not name.startswith(OURS)]
    unset = [part for name in plan.unset for part in ("-u", name)]
    return f"cd {shlex.quote(plan.cwd)} && env {shlex.join([*unset, *env, *argv])}"
