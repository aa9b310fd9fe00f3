"""LaunchPlan in, files that do the same training without Tunedeck out: YAML, DeepSpeed JSON, shell and Slurm script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from backend.domain.launch import LaunchPlan
from backend.planning.command import OURS, VISIBILITY, dump_yaml
from backend.planning.document import load_document

TRAIN, DEEPSPEED, SHELL, SLURM = "train.yaml", "ds_config.json", "run.sh", "job.sbatch"


def build_export(plan: LaunchPlan, name: str) -> Mapping[str, str]:
    """File name to text. Paths of the job folder become relative, so that the folder may be copied to another host.

    Secrets are named, never written; which cards to use is left to the host (or to Slurm). Raises ValueError for a plan
    that trains nothing.
    """
    if TRAIN not in plan.files:
        raise ValueError("this plan has no train.yaml")
    train = load_document(plan.files[TRAIN])
    if str(train.get("output_dir", "")).startswith(f"{plan.job_dir}/"):
        train["output_dir"] = "output"
    if train.get("deepspeed") == f"{plan.job_dir}/{DEEPSPEED}":
        train["deepspeed"] = DEEPSPEED
    files = {TRAIN: dump_yaml(train), SHELL: _shell(plan, name), SLURM: _slurm(plan, name)}
    return files | ({DEEPSPEED: plan.files[DEEPSPEED]} if DEEPSPEED in plan.files else {})


def _shell(plan: LaunchPlan, name: str) -> str:
    folder = plan.argv[0].rpartition("/")[0]
    kept = {key: value for key, value in plan.env.items() if not key.startswith(OURS) and key not in VISIBILITY}
    lines = [
        "#!/usr/bin/env bash",
        f"# {_one_line(name)}: the training of job {plan.job_id}. Needs LLaMA-Factory; further arguments win over {TRAIN}.",
        "set -euo pipefail",
        'cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"',
        *(f': "${{{secret}:?is a secret of this job: export it first}}"' for secret in plan.secrets),
        f"# The environment that the job used, where this host has it; else what stands in PATH.\n"
        f'[ -x {shlex.quote(folder + "/llamafactory-cli")} ] && export PATH={shlex.quote(folder)}:"$PATH"',
        *(f"export {key}={shlex.quote(value)}" for key, value in sorted(kept.items())),
        f"export FORCE_TORCHRUN=1 NPROC_PER_NODE={plan.processes}",
        f'exec llamafactory-cli train {TRAIN} "$@"',
    ]
    return "\n".join(lines) + "\n"


def _slurm(plan: LaunchPlan, name: str) -> str:
    """One task a node: llamafactory-cli starts the ranks. Submitted from its own folder, for Slurm runs a copy of the script."""
    threads = plan.env.get("OMP_NUM_THREADS", "")
    cpus = int(threads) * plan.processes if threads.isascii() and threads.isdigit() else 0
    lines = [
        "#!/usr/bin/env bash",
        f"#SBATCH --job-name={re.sub(r'[^A-Za-z0-9._-]+', '-', name).strip('-')[:60] or 'train'}",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks-per-node=1",
        *([f"#SBATCH --gpus-per-node={len(plan.devices)}"] if plan.devices else []),
        *([f"#SBATCH --cpus-per-task={cpus}"] if cpus else []),
        "#SBATCH --output=%x-%j.log",
        f"# Submit it from this folder: sbatch {SLURM}. Partition, account and time limit are your cluster's.",
        "set -euo pipefail",
        'cd "$SLURM_SUBMIT_DIR"',
        f"srun --ntasks=1 bash {SHELL}",
    ]
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())
