"""LaunchPlan -> DryRun: what the trainer's own parser, template, data loader and DeepSpeed say of exactly these files.

Runs inside/dry_run.py in the training environment, on the CPU, without loading weights; in the background while a user
edits, and cached by content, so that asking again costs nothing. Contract: docs/contracts.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from backend.adapters.process import ToolResult, run_tool
from backend.domain.environment import TrainingEnvironment
from backend.domain.launch import LaunchPlan
from backend.domain.problem import ArgValue, Problem, Severity
from backend.planning.importing.yaml_text import read_yaml
from backend.planning.linting.dry_run import translate_findings
from backend.planning.linting.report import report
from backend.settings import REPOSITORY

SCRIPT = REPOSITORY / "backend" / "inside" / "dry_run.py"
MARK = "TUNEDECK_DRY_RUN "
TIME_LIMIT_SECONDS = 120.0
SAMPLE_ROWS = 1000
"""Rows of each data set that go through the trainer's converter and tokenizer; forecasts of memory and speed stand on them."""
_KEPT = 64
_JOB = "/tunedeck-job"
"""Stands for the job's folder in a digest: a preview has no folder yet."""

Runner = Callable[..., ToolResult]


class DryRunState(StrEnum):
    """CHECKING: an answer will come. DONE: `problems` are the trainer's. UNAVAILABLE: it could not be asked.
    SKIPPED: it was not asked, for something else is wrong already or no environment is described yet."""

    SKIPPED = "skipped"
    CHECKING = "checking"
    DONE = "done"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """Answer for one set of files. `facts` are those of dry_run.py (model_type, attention, datasets with token lengths ...)."""

    digest: str
    state: DryRunState
    problems: tuple[Problem, ...] = ()
    facts: Mapping[str, ArgValue] = field(default_factory=dict)
    seconds: float | None = None
    message: str = ""
    """Why the trainer could not be asked."""


class DryRuns:
    """One check at a time, the newest request first: while one runs, only the last one asked for waits."""

    def __init__(self, *, run: Runner = run_tool, script: Path = SCRIPT) -> None:
        self._run, self._script = run, script
        self._lock = threading.Lock()
        self._answers: OrderedDict[str, DryRun] = OrderedDict()
        self._running: str | None = None
        self._waiting: tuple[str, LaunchPlan, TrainingEnvironment] | None = None

    def request(self, plan: LaunchPlan, environment: TrainingEnvironment) -> DryRun:
        """The cached answer, or CHECKING and a check in the background. Ask again with the same plan for the answer."""
        digest = digest_of(plan, environment)
        with self._lock:
            if digest in self._answers:
                self._answers.move_to_end(digest)
                return self._answers[digest]
            if self._running is None:
                self._running = digest
                threading.Thread(target=self._work, args=((digest, plan, environment),), daemon=True).start()
            elif self._running != digest:
                self._waiting = (digest, plan, environment)
        return DryRun(digest=digest, state=DryRunState.CHECKING)

    def check(self, plan: LaunchPlan, environment: TrainingEnvironment) -> DryRun:
        """The answer now (seconds): from the cache, or made here."""
        digest = digest_of(plan, environment)
        with self._lock:
            known = self._answers.get(digest)
        return known or self._keep(self._ask(digest, plan, environment))

    def _work(self, job: tuple[str, LaunchPlan, TrainingEnvironment] | None) -> None:
        while job is not None:
            try:
                self._keep(self._ask(*job))
            finally:
                with self._lock:
                    job, self._waiting = self._waiting, None
                    if job is not None and job[0] in self._answers:
                        job = None
                    self._running = job[0] if job else None

    def _keep(self, answer: DryRun) -> DryRun:
        with self._lock:
            self._answers[answer.digest] = answer
            while len(self._answers) > _KEPT:
                self._answers.popitem(last=False)
        return answer

    def _ask(self, digest: str, plan: LaunchPlan, environment: TrainingEnvironment) -> DryRun:
        with tempfile.TemporaryDirectory(prefix="tunedeck-check-") as name:
            for file, text in plan.files.items():
                (Path(name) / file).write_text(text.replace(plan.job_dir, name), "utf-8")
            result = self._run(
                build_argv(environment, plan.processes, f"{name}/train.yaml", script=self._script),
                timeout_seconds=TIME_LIMIT_SECONDS,
                env={
                    **os.environ,
                    **plan.env,
                    "TUNEDECK_JOB_DIR": name,
                    "CUDA_VISIBLE_DEVICES": "",
                    "HIP_VISIBLE_DEVICES": "",
                },
                cwd=Path(name),
            )
            return parse_answer(digest, result)


def build_argv(environment: TrainingEnvironment, processes: int, file: str, *, script: Path = SCRIPT) -> list[str]:
    """The command that asks. The accelerator must be named: GPUs are hidden from it, and without one the parser refuses bf16."""
    accelerator = environment.accelerator if environment.accelerator in ("cpu", "cuda", "rocm") else "cpu"
    given = ["--accelerator", accelerator, "--processes", str(processes), "--rows", str(SAMPLE_ROWS)]
    return [environment.python, str(script), *given, file]


def parse_answer(digest: str, result: ToolResult) -> DryRun:
    """What it said; UNAVAILABLE with the reason when it said nothing."""
    text = result.stdout.decode("utf-8", "replace")
    line = next((line for line in text.splitlines() if line.startswith(MARK)), "")
    if not line:
        return DryRun(digest=digest, state=DryRunState.UNAVAILABLE, message=_why(result))
    answer = json.loads(line.removeprefix(MARK))
    return DryRun(
        digest=digest,
        state=DryRunState.DONE,
        problems=tuple(translate_findings(answer.get("errors") or [], answer.get("warnings") or [])),
        facts=answer.get("facts") or {},
        seconds=answer.get("seconds"),
    )


def _why(result: ToolResult) -> str:
    if result.timed_out:
        return f"no answer within {TIME_LIMIT_SECONDS:.0f} s"
    lines = [line.strip() for line in result.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"exit code {result.exit_code} and no answer"


def unavailable_problem(answer: DryRun) -> Problem | None:
    """A note for the page when the trainer could not be asked."""
    if answer.state is not DryRunState.UNAVAILABLE:
        return None
    return report("dry_run_unavailable", Severity.NOTE, found=answer.message)


def digest_of(plan: LaunchPlan, environment: TrainingEnvironment) -> str:
    """Changes with anything that the answer depends on: files, ranks, environment, and the data and model files' stamps."""
    hasher = hashlib.sha256()
    parts = [environment.python, environment.accelerator, str(environment.described_at), str(plan.processes)]
    parts += [f"{name}\n{text.replace(plan.job_dir, _JOB)}" for name, text in sorted(plan.files.items())]
    parts += _stamps(plan.files.get("train.yaml", ""))
    for part in parts:
        hasher.update(part.encode("utf-8", "replace") + b"\0")
    return hasher.hexdigest()[:24]


def _stamps(train_yaml: str) -> list[str]:
    """Size and change time of the registry, of the files beside it and of the model's config."""
    values = read_yaml(train_yaml).values
    folder, model = values.get("dataset_dir"), values.get("model_name_or_path")
    paths: list[Path] = []
    if isinstance(folder, str) and Path(folder).is_dir():
        paths += sorted(Path(folder).iterdir())[:500]
    if isinstance(model, str):
        paths += [Path(model) / name for name in ("config.json", "tokenizer_config.json")]
    return [stamp for path in paths if (stamp := _stamp(path))]


def _stamp(path: Path) -> str:
    try:
        stat = path.stat()
    except OSError:
        return ""
    return f"{path}:{stat.st_size}:{stat.st_mtime_ns}"
