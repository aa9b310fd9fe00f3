"""Events of a Hugging Face Trainer in, record lines out; requests of the user in, the trainer's control flags out.

`train.py` joins `Recorder` with `transformers.TrainerCallback`; this module itself needs only the standard library until
training begins, so that it can be tested without torch.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from .control import PROFILE, SAVE, STOP, Agreement, RequestFiles
from .profiler import ProfileWindow
from .records import RecordWriter, numbers
from .tokens import TokenCounter

_MAX_PENDING = 256  # step records that may wait for their token counts; beyond, the oldest is waited for


T = TypeVar("T")


class StepClock:
    """Times of one rank's steps. Seconds of `monotonic`; a pause is an evaluation or a save."""

    def __init__(self, monotonic: Callable[[], float] = time.perf_counter) -> None:
        self._now = monotonic
        self.restart()

    def restart(self) -> None:
        """Training begins, or begins again."""
        self._step_ended = self._mark = self._now()
        self._paused = 0.0
        self._waited = 0.0
        self._watched = False

    def watch(self, batches: Iterator[T]) -> Iterator[T]:
        """The same batches; the time spent in getting each counts as waiting for data."""
        return _Watched(batches, self)

    def waited(self, seconds: float) -> None:
        """A batch was waited for."""
        self._watched = True
        self._waited += seconds

    def step_begun(self) -> None:
        """All batches of the step are there. Where nothing watches the batches, what passed since the last event was waiting."""
        if not self._watched:
            self._waited += self._now() - self._mark

    def step_ended(self) -> tuple[float, float]:
        """(seconds since the last step ended without pauses, seconds waiting for data)."""
        now = self._now()
        seconds, waited = now - self._step_ended - self._paused, self._waited
        self._step_ended = self._mark = now
        self._paused = self._waited = 0.0
        return seconds, waited

    def worked(self) -> None:
        """Something between two steps that belongs to the step (logging) is over."""
        self._mark = self._now()

    def pause_ended(self) -> None:
        """What passed since the last event was an evaluation or a save."""
        now = self._now()
        self._paused += now - self._mark
        self._mark = now


class _Watched(Generic[T]):
    def __init__(self, batches: Iterator[T], clock: StepClock) -> None:
        self._batches, self._clock = batches, clock

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        begun = time.perf_counter()
        try:
            return next(self._batches)
        finally:
            self._clock.waited(time.perf_counter() - begun)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A step record whose token counts may still be on their way from the accelerator."""

    at: float
    fields: Mapping[str, object]
    counts: Any
    arrived: Any


class Recorder:
    """What every rank notes and obeys. Methods named `on_...` are called by the trainer."""

    def __init__(
        self,
        job_dir: Path,
        *,
        rank: int = 0,
        world_size: int = 1,
        peak_memory: Callable[[], int | None] = lambda: None,
        monotonic: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.records = RecordWriter(job_dir / "recorder" / f"rank-{rank}.jsonl")
        self.clock = StepClock(monotonic)
        self._rank = rank
        self._world_size = world_size
        self._files = RequestFiles(job_dir / "control")
        self._agreement = Agreement(self._files, rank=rank, world_size=world_size)
        self._window = ProfileWindow(job_dir / "profile", rank)
        self._tokens = TokenCounter()
        self._waiting: deque[_Step] = deque()
        self.peak_memory = peak_memory
        self._stopped = False
        self._begun = False
        self._evaluating = False

    def phase(self, name: str) -> None:
        """Note a phase of the run (contract: `phase` records)."""
        self.records.phase(name)

    def done(self, error: BaseException | None = None) -> None:
        """The last record: the run returned, or what it died of."""
        try:
            self._write_steps(wait=True)
        except RuntimeError:  # a broken accelerator gives no counts back; the steps themselves were done
            while self._waiting:
                self._write_step(self._waiting.popleft(), None)
        if error is None:
            self.records.write("done", ok=True)
        else:
            self.records.write("done", ok=False, error=f"{type(error).__name__}: {error}".rstrip(": "))
        self.records.close()

    # -- training -----------------------------------------------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self._stopped = False
        self._begun = True
        self._write_steps(wait=True)
        if model is not None:
            self._tokens.attach(model)
        trainable, everything = count_parameters(model)
        self.records.write(
            "train_begin",
            step=state.global_step,
            max_steps=state.max_steps,
            epochs=state.num_train_epochs,
            micro_batch=args.per_device_train_batch_size,
            accumulation=args.gradient_accumulation_steps,
            world_size=self._world_size,
            trainable_parameters=trainable,
            all_parameters=everything,
        )
        self._agreement.open()
        self.peak_memory()
        self.phase("training")
        self.clock.restart()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.clock.step_begun()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        at = time.time()
        seconds, waited = self.clock.step_ended()
        fields = {"s": state.global_step, "dt": seconds, "data": waited, "mem": self.peak_memory()}
        self._waiting.append(_fetch(at, fields, self._tokens.take()))
        self._write_steps(wait=False)
        if self._window.is_open:
            self._profile(lambda: self._window.step(state.global_step, waited), state)
        self._obey(self._agreement.exchange(), state, control)
        self._note_pause(state, control)

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, object] | None = None, **_: Any) -> None:
        self._write_steps(wait=True)  # the trainer has just fetched the loss: nothing more to wait for
        if self._rank == 0 and logs:
            values = numbers(logs)
            epoch = values.pop("epoch", state.epoch)
            self.records.write("log", s=state.global_step, epoch=epoch, v=values)
        if not self._evaluating:
            self.clock.worked()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._stopped:  # the epoch was cut: its step is saved already, and an evaluation would hold up the stop
            control.should_save = control.should_evaluate = False
        self._note_pause(state, control)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._agreement.collect()
        if self._window.is_open:
            self._profile(self._window.drop, state)
        self._tokens.detach()
        self._write_steps(wait=True)
        if self._rank == 0:
            self._files.drop()
        stopped = self._stopped and state.global_step < state.max_steps
        self.records.write("train_end", s=state.global_step, max_steps=state.max_steps, stopped=stopped)
        self._begun = False
        self.phase("finishing")

    # -- evaluation and checkpoints -----------------------------------------------------------------------------------

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._eval_begins(state)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._evaluation_over(state)
        self._note_pause(state, control)

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        self._evaluation_over(state)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.records.write("checkpoint", s=state.global_step, path=f"checkpoint-{state.global_step}")
        if self._rank == 0:
            self._files.done(SAVE)
        self.clock.pause_ended()
        self.phase("training" if self._begun else "finishing")

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _obey(self, asked: int, state: Any, control: Any) -> None:
        if asked & SAVE:
            self.records.write("request", s=state.global_step, what="save")
            control.should_save = True
        if asked & PROFILE:
            self._profile(self._window.open, state)
        if asked & STOP:
            self.records.write("request", s=state.global_step, what="stop")
            self._stopped = True
            control.should_save = control.should_training_stop = control.should_log = True

    def _profile(self, move: Callable[[], bool | None], state: Any) -> None:
        """Open the profiler's window or go on in it. A tracer that fails costs its window, never the run."""
        error = ""
        try:
            over = move()
        except Exception as failed:  # noqa: BLE001 - whatever a tracer library raises, the run goes on
            error, over = f"{type(failed).__name__}: {failed}", True
            self._window.fail(error)
        self.clock.pause_ended()  # the tracer's own work is no part of a step
        if over:
            self.records.write("profile", s=state.global_step, ok=not error, error=error)
            if self._rank == 0:
                self._files.done(PROFILE)

    def _note_pause(self, state: Any, control: Any) -> None:
        """The trainer logs, evaluates and saves in this order, and tells nobody when it begins: the flags do."""
        if control.should_evaluate:
            self._eval_begins(state)
        elif control.should_save:
            self.phase("saving")
            self.records.write("save_begin", s=state.global_step, path=f"checkpoint-{state.global_step}")

    def _eval_begins(self, state: Any) -> None:
        if not self._evaluating:
            self._evaluating = True
            self.phase("evaluating")
            self.records.write("eval_begin", s=state.global_step)

    def _evaluation_over(self, state: Any) -> None:
        self._eval_begins(state)
        self._evaluating = False
        self.records.write("eval_end", s=state.global_step)
        self.clock.pause_ended()
        self.phase("training" if self._begun else "finishing")

    def _write_steps(self, *, wait: bool) -> None:
        """Write the waiting step records whose counts have arrived, in order; with `wait` all of them."""
        while self._waiting:
            step = self._waiting[0]
            if step.arrived is not None and not step.arrived.query():
                if not wait and len(self._waiting) <= _MAX_PENDING:
                    return
                step.arrived.synchronize()
            self._write_step(self._waiting.popleft(), step.counts)

    def _write_step(self, step: _Step, counts: Any) -> None:
        tokens, padding = (None, None) if counts is None else counts.tolist()
        self.records.write("step", at=step.at, **step.fields, tok=tokens, pad=padding)


def peak_memory(*, reset: bool) -> Callable[[], int | None]:
    """A reader of the peak bytes that tensors took on this rank's accelerator, since its last call when `reset`.

    None where there is no accelerator. `reset` is off when LLaMA-Factory itself reports the peak (RECORD_VRAM).
    """
    import torch

    def read() -> int | None:
        if not torch.cuda.is_initialized():
            return None
        peak = int(torch.cuda.max_memory_allocated())
        if reset:
            torch.cuda.reset_peak_memory_stats()
        return peak

    return read


def _fetch(at: float, fields: Mapping[str, object], counts: Any) -> _Step:
    """Begin to bring the counts from the accelerator without waiting for it."""
    if counts is None or counts.device.type != "cuda":  # ROCm's devices are called cuda as well
        return _Step(at=at, fields=fields, counts=counts, arrived=None)
    import torch

    landed = torch.empty(counts.shape, dtype=counts.dtype, pin_memory=True)
    landed.copy_(counts, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()
    return _Step(at=at, fields=fields, counts=landed, arrived=arrived)


def count_parameters(model: Any) -> tuple[int | None, int | None]:
    """(trainable, all) parameters; ZeRO-3's partitioned ones and 4-bit packed ones at their true size."""
    if model is None:
        return None, None
    trainable = everything = 0
    for parameter in model.parameters():
        size = _true_size(parameter)
        everything += size
        trainable += size if parameter.requires_grad else 0
    return trainable, everything


def _true_size(parameter: Any) -> int:
    size = int(getattr(parameter, "ds_numel", 0) or parameter.numel())  # ZeRO-3 leaves 0 elements in place
    if type(parameter).__name__ != "Params4bit":
        return size
    stored = getattr(parameter, "quant_storage", None)  # bitsandbytes packs two 4-bit values into each stored byte
    return size * 2 * int(getattr(stored, "itemsize", 1))
