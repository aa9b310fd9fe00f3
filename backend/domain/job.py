"""What a user asks for (JobSpec), how it stands (JobState, TerminationReason) and the row we keep of it (Job)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from backend.domain.problem import ArgValue


class JobState(StrEnum):
    """Where a job stands. The last four are final."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"

    @property
    def is_final(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.LOST)

    @property
    def is_active(self) -> bool:
        """A process of the job may exist."""
        return self in (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)


class TerminationReason(StrEnum):
    """Why a job ended. Message keys of ui/text are `reason.<value>`."""

    COMPLETED = "completed"
    STOPPED_AFTER_SAVE = "stopped_after_save"
    STOPPED_WITHOUT_SAVE = "stopped_without_save"
    KILLED_BY_USER = "killed_by_user"
    CANCELLED_IN_QUEUE = "cancelled_in_queue"
    TRAINER_FAILED = "trainer_failed"
    KILLED_BY_SIGNAL = "killed_by_signal"
    LAUNCH_FAILED = "launch_failed"
    PREFLIGHT_FAILED = "preflight_failed"
    SUPERVISOR_VANISHED = "supervisor_vanished"

    @property
    def state(self) -> JobState:
        return _FINAL_STATE[self]

    @property
    def may_retry(self) -> bool:
        """A second try of the same spec can make sense."""
        return self in (TerminationReason.KILLED_BY_SIGNAL, TerminationReason.SUPERVISOR_VANISHED)


_FINAL_STATE = {
    TerminationReason.COMPLETED: JobState.SUCCEEDED,
    TerminationReason.STOPPED_AFTER_SAVE: JobState.CANCELLED,
    TerminationReason.STOPPED_WITHOUT_SAVE: JobState.CANCELLED,
    TerminationReason.KILLED_BY_USER: JobState.CANCELLED,
    TerminationReason.CANCELLED_IN_QUEUE: JobState.CANCELLED,
    TerminationReason.TRAINER_FAILED: JobState.FAILED,
    TerminationReason.KILLED_BY_SIGNAL: JobState.FAILED,
    TerminationReason.LAUNCH_FAILED: JobState.FAILED,
    TerminationReason.PREFLIGHT_FAILED: JobState.FAILED,
    TerminationReason.SUPERVISOR_VANISHED: JobState.LOST,
}


class StopMode(StrEnum):
    """The three ways to end a run."""

    SAVE = "save"
    NO_SAVE = "no_save"
    KILL = "kill"


class Offload(StrEnum):
    """Where DeepSpeed keeps optimizer states or parameters."""

    NONE = "none"
    CPU = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroConfig:
    """DeepSpeed ZeRO as the form offers it. `stage` None: no DeepSpeed at all (plain DDP or one process)."""

    stage: int | None = None
    offload_optimizer: Offload = Offload.NONE
    offload_param: Offload = Offload.NONE


class Task(StrEnum):
    """What a job does: training, short measured trials of one (services/tuning.py), or the check of GPUs and their links."""

    TRAIN = "train"
    TRIAL = "trial"
    BENCH = "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What the user asks for.

    `train` holds LLaMA-Factory's own argument names, nothing renamed, unknown keys included. Everything else is ours and
    stands under `tunedeck:` in spec.yaml. `deepspeed` inside `train` (path or mapping), when given, wins over `zero`.
    `gpus` are PCI addresses; empty means "choose for me". `processes` None: one per GPU (or 1 on a CPU host).
    """

    name: str
    train: Mapping[str, ArgValue]
    processes: int | None = None
    gpus: tuple[str, ...] = ()
    zero: ZeroConfig = field(default_factory=ZeroConfig)
    env: Mapping[str, str] = field(default_factory=dict)
    environment: str = ""
    executor: str = "local"
    priority: int = 0
    tags: tuple[str, ...] = ()
    notes: str = ""
    parent: str = ""
    task: Task = Task.TRAIN
    text: str = ""
    """The document as the user wrote it (comments, order); "" when it came from code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One row of the job table: the record that lists and pages show. Times are Unix seconds."""

    id: str
    name: str
    state: JobState
    reason: TerminationReason | None = None
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None
    priority: int = 0
    position: float = 0.0
    processes: int = 1
    devices: tuple[str, ...] = ()
    stage: str = ""
    finetuning_type: str = ""
    model: str = ""
    dataset: str = ""
    parent: str = ""
    tags: tuple[str, ...] = ()
    notes: str = ""
    created_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    step: int | None = None
    max_steps: int | None = None
    loss: float | None = None
    phase: str = ""
