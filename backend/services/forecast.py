"""A specification's text in, what it will need and how fast it should be out: shape, lengths, memory plan, advice, FLOPs.

Reads config.json, data files and what this installation measured before (finished runs, host checks); never the weights.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backend.domain.advice import Advice
from backend.domain.environment import TrainingEnvironment
from backend.domain.gpu import Device
from backend.domain.job import JobSpec, Task
from backend.errors import InvalidInput, NotFound, StoreFault
from backend.planning.cards import CardPeak, find_card
from backend.planning.known_models import known_shape
from backend.planning.lengths import Lengths
from backend.planning.memory import Card, MeasuredPeak, largest_micro_batch, plan_memory
from backend.planning.memory import MemoryPlan as MemoryPlan
from backend.planning.model_config import parse_model_config
from backend.planning.model_shape import ModelShape
from backend.planning.profiles import advise_profile
from backend.planning.spec import parse_spec
from backend.planning.speed import SpeedContext, SpeedPlan, plan_speed
from backend.planning.steptime import Machine, machine_of
from backend.planning.variants import Abilities
from backend.planning.workload import Workload, build_workload
from backend.services.bench import BenchStore
from backend.services.environments import Environments
from backend.services.row_lengths import RowLengths
from backend.settings import Settings
from backend.store.files import read_json
from backend.store.memory_history import MemoryHistory, peak_of_run
from backend.store.paths import DataPaths, JobPaths
from backend.store.plans import load_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Everything known before a launch. `notes` say in words what could not be found out."""

    spec: JobSpec
    work: Workload
    shape: ModelShape | None
    lengths: Lengths | None
    memory: MemoryPlan | None
    largest_micro_batch: int | None
    speed: SpeedPlan
    advices: tuple[Advice, ...]
    notes: tuple[str, ...]


class Forecaster:
    """Answers from files and caches; starts no process (`row_lengths.count` does)."""

    def __init__(self, settings: Settings, paths: DataPaths, environments: Environments) -> None:
        self.settings, self.paths, self.environments = settings, paths, environments
        self.benches = BenchStore(paths)
        self.row_lengths = RowLengths(paths, environments)
        self.history = MemoryHistory(paths.memory_history)

    def forecast(self, spec_text: str, devices: Sequence[Device] = ()) -> Forecast:
        """Raises InvalidInput when the text is no specification or a value cannot be read."""
        spec = parse_spec(spec_text)
        context, notes = self.context(spec, devices)
        plan = plan_speed(context)
        memory = most = None
        if context.shape is not None:
            memory = plan_memory(context.shape, context.work, context.lengths, context.card, history=context.history)
            if context.card is not None:
                most = largest_micro_batch(context.shape, context.work, context.card, context.lengths)
        profile = self._profile(spec, context.work, devices)
        return Forecast(
            spec=spec,
            work=context.work,
            shape=context.shape,
            lengths=context.lengths,
            memory=memory,
            largest_micro_batch=most,
            speed=plan,
            advices=(*plan.advices, *([profile] if profile else [])),
            notes=tuple(notes),
        )

    def context(
        self, spec: JobSpec, devices: Sequence[Device] = (), *, world: int | None = None
    ) -> tuple[SpeedContext, list[str]]:
        """What the rules look at, and what is missing of it in words."""
        notes: list[str] = []
        ranks = world or spec.processes or len(spec.gpus) or max(1, len(devices))
        work = build_workload(self._with_zero(spec), world=ranks)
        shape = self.shape(spec, notes)
        lengths = self.row_lengths.known(spec, notes)
        environment = self.environments.cached(spec.environment)
        card, peak, machine = self._card(devices, notes)
        family = f"{shape.model_type}-{work.method.value}" if shape else ""
        context = SpeedContext(
            spec=spec,
            work=work,
            shape=shape,
            lengths=lengths,
            card=card,
            peak=peak,
            machine=machine,
            abilities=abilities_of(environment),
            history=tuple(self.history.peaks(family)),
            cpu_count=os.cpu_count() or 1,
        )
        return context, notes

    def plan(self, context: SpeedContext) -> SpeedPlan:
        """Advice for a context that is known already."""
        return plan_speed(context)

    def _with_zero(self, spec: JobSpec) -> JobSpec:
        """A `deepspeed` path is read, so that its stage counts; one that cannot be read is left to the preflight."""
        path = spec.train.get("deepspeed")
        if not isinstance(path, str):
            return spec
        block = read_json(Path(path).expanduser())
        if not isinstance(block, dict):
            return spec
        return replace(spec, train={**spec.train, "deepspeed": block})

    def learn(self, job_id: str) -> MeasuredPeak | None:
        """After a run: keep its measured peak beside what was planned, for the next plan. None when nothing was measured."""
        paths = self.paths.job(job_id)
        peak = peak_of_run(paths)
        try:
            spec = parse_spec(paths.spec.read_text("utf-8"))
        except (OSError, InvalidInput):
            return None
        if spec.task is not Task.TRAIN:
            return None  # trials run many settings in one process: their peak belongs to none of them
        context, _ = self.context(spec, world=_processes(paths))
        if peak is None or context.shape is None:
            return None
        planned = plan_memory(context.shape, context.work, context.lengths).allocated
        measured = MeasuredPeak(planned=planned, measured=peak)
        self.history.add(f"{context.shape.model_type}-{context.work.method.value}", job_id, measured)
        return measured

    # --- the model -----------------------------------------------------------------------------------------------------

    def shape(self, spec: JobSpec, notes: list[str]) -> ModelShape | None:
        """From the model's own config.json (local folder or hub cache), else from the table of known models."""
        name = str(spec.train.get("model_name_or_path") or "")
        if not name:
            return None
        file = find_config(name, self._hub_cache(spec))
        if file is not None:
            try:
                return parse_model_config(file.read_text("utf-8"), source=str(file))
            except (OSError, InvalidInput) as error:
                notes.append(f"The model's shape could not be read: {error}")
                return None
        shape = known_shape(name)
        if shape is None:
            notes.append(f"{name} is neither a folder here nor in the table of known models: no memory plan.")
        return shape

    def _hub_cache(self, spec: JobSpec) -> Path:
        own = spec.train.get("cache_dir")
        if isinstance(own, str) and own:
            return Path(own)
        home = spec.env.get("HF_HOME") or os.environ.get("HF_HOME")
        return Path(home).expanduser() / "hub" if home else Path.home() / ".cache" / "huggingface" / "hub"

    # --- the machine ---------------------------------------------------------------------------------------------------

    def _card(self, devices: Sequence[Device], notes: list[str]) -> tuple[Card | None, CardPeak | None, Machine]:
        """The smallest of the devices decides; speeds from the last host check where there is one."""
        known = [device for device in devices if device.vram_total_bytes]
        if not known:
            notes.append("No GPU with known memory: whether the job fits cannot be said.")
            return None, None, Machine()
        smallest = min(known, key=lambda device: device.vram_total_bytes or 0)
        peak = find_card(
            smallest.name,
            gfx=smallest.gfx_target,
            compute_units=smallest.num_compute_units,
            partition=smallest.partition,
        )
        bench = self.benches.latest()
        machine = machine_of(
            peak,
            matmul_flops=bench.matmul_flops if bench else None,
            memory_bytes_per_second=bench.memory_bytes_per_second if bench else None,
        )
        return Card(capacity_bytes=smallest.vram_total_bytes or 0, name=smallest.name), peak, machine

    def _profile(self, spec: JobSpec, work: Workload, devices: Sequence[Device]) -> Advice | None:
        if not devices:
            return None
        return advise_profile(devices[0].gfx_target, work.world, spec.env, devices[0].name)


def _processes(paths: JobPaths) -> int | None:
    try:
        return load_plan(paths.plan).processes
    except (OSError, StoreFault, NotFound):
        return None


def find_config(name: str, hub_cache: Path) -> Path | None:
    """config.json of a local folder, or of the newest snapshot in the hub cache."""
    local = Path(name).expanduser() / "config.json"
    if local.is_file():
        return local
    snapshots = hub_cache / f"models--{name.replace('/', '--')}" / "snapshots"
    found = [path for path in snapshots.glob("*/config.json") if path.is_file()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def abilities_of(environment: TrainingEnvironment | None) -> Abilities:
    """What the environment can do. Liger's kernels and FlashAttention need an accelerator."""
    if environment is None:
        return Abilities()
    accelerated = environment.accelerator != "cpu"
    names = {name.replace("-", "_").lower() for name in environment.versions}
    return Abilities(
        liger=accelerated and "liger_kernel" in names, flash_attention=accelerated and "flash_attn" in names
    )
