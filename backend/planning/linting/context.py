"""What is known about the place where a config will run. All optional: a rule about something unknown stays silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from backend.domain.problem import ArgValue
from backend.planning.schema import TrainerSchema
from backend.planning.schema_builtin import BUILTIN_SCHEMA


@dataclass(frozen=True, slots=True, kw_only=True)
class LintContext:
    """Facts for the rules. Sizes in bytes. Planning does no I/O: paths, rows and files come in as data."""

    schema: TrainerSchema | None = None
    """The trainer of the chosen environment; None = the built-in description of 0.9.5."""
    accelerator: str = ""
    """"rocm", "cuda", "cpu" or "" (unknown)."""
    gpu_model: str = ""
    gfx_target: str = ""
    gpu_count: int | None = None
    gpu_memory_bytes: int | None = None
    visible_devices: int | None = None
    """How many devices the job may see, when that is settled."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the job will inherit."""
    processes: int | None = None
    nodes: int | None = None
    datasets: frozenset[str] | None = None
    """Names in the registry that the config uses; None = not looked up."""
    dataset_rows: Mapping[str, int] = field(default_factory=dict)
    existing_paths: frozenset[str] = frozenset()
    missing_paths: frozenset[str] = frozenset()
    deepspeed_files: Mapping[str, Mapping[str, ArgValue]] = field(default_factory=dict)
    """Content of DeepSpeed files by the path as the config names it."""
    free_disk_bytes: int | None = None
    checkpoint_bytes: int | None = None
    """Estimated size of one checkpoint of this job."""
    model_parameters: int | None = None
    model_type: str = ""
    ports_in_use: frozenset[int] = frozenset()
    started_elsewhere: bool = False
    """The config belongs to a job that was (or will be) started by something other than Tunedeck."""
    has_log: bool = False
    """A log of the job lies beside the config: whatever starts it was there."""
    launched_here: bool = False
    """Tunedeck will start this job: it adds what its launcher always adds (an output folder, do_train, torchrun)."""
    has_run: bool = False
    """A log shows that this config reached the step loop: its names were known to the version that ran it."""

    @property
    def trainer(self) -> TrainerSchema:
        return self.schema or BUILTIN_SCHEMA

    def version(self, package: str) -> tuple[int, ...] | None:
        """Version numbers of an installed package; None when not installed or not looked for."""
        text = self.trainer.versions.get(package)
        if not text:
            return None
        numbers: list[int] = []
        for part in text.split("+")[0].split("."):
            if not part.isdigit():
                break
            numbers.append(int(part))
        return tuple(numbers) or None

    def lacks(self, package: str) -> bool | None:
        """True: looked for and not installed; False: installed; None: not looked for."""
        versions = self.trainer.versions
        return versions[package] is None if package in versions else None
