"""`trial.py TRAIN.YAML`: short measured trials of one job, the model loaded once; started by torchrun like train.py.

Trials arrive as lines of `trials.in.jsonl` in the job folder (`{"id", "changes", "warm_up", "steps"}`, then `{"end": true}`);
results go to `trials.jsonl`, one line when a trial begins and one when it is over. Each trial is LLaMA-Factory's own
training of the same job with other switches, ended by an exception of ours after a few steps. An out-of-memory error is a
result, not the end. With several ranks it ends the process (the others would wait for ever); the asker starts a new one.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
IDLE_SECONDS = 300.0
"""Without a new trial for so long the process ends by itself: whoever asked is gone."""

FORCED: Mapping[str, object] = {
    "save_strategy": "no",
    "eval_strategy": "no",
    "val_size": 0.0,
    "do_eval": False,
    "do_predict": False,
    "load_best_model_at_end": False,
    "logging_steps": 1_000_000,
    "report_to": "none",
    "plot_loss": False,
    "overwrite_output_dir": True,
}
"""What a trial never does: write checkpoints, evaluate, call home."""


class TrialDone(Exception):  # noqa: N818 - not an error: it ends LLaMA-Factory's training from a callback
    """The measured steps are over."""


class StopAsked(Exception):  # noqa: N818
    """A person stopped the job."""


def main() -> int:
    """Run trials until told to end; 0 also when single trials failed."""
    train_module = _load_sibling_file("train")
    train_module.end_with_launcher(os.environ)
    train_module.forget_script_folder()
    recorder = train_module.load_sibling("records").RecordWriter(_job_dir() / "recorder" / f"rank-{_rank()}.jsonl")
    recorder.phase("importing")
    train_module.check_torchaudio()
    try:
        bench = Bench(_job_dir(), recorder, train_module)
        bench.serve()
    except BaseException as error:
        recorder.write("done", ok=False, error=f"{type(error).__name__}: {error}")
        raise
    recorder.write("done", ok=True)
    return 0


class Bench:
    """One process group's trials: keeps the loaded model and tokenized data between them."""

    def __init__(self, job_dir: Path, recorder: Any, train_module: Any) -> None:
        from llamafactory.hparams import read_args

        self.job_dir, self.recorder, self.train_module = job_dir, recorder, train_module
        self.base: dict[str, Any] = dict(read_args())
        self.inbox = Inbox(job_dir / "trials.in.jsonl")
        self.outbox = job_dir / "trials.jsonl"
        self.models: dict[str, Any] = {}
        self.data: dict[str, Any] = {}
        self.liger = LigerSwitch()
        self._group: Any = None

    def serve(self) -> None:
        while True:
            asked = self._next()
            if asked is None or asked.get("end") or self._stop_asked():
                return
            self.run(asked)

    def _next(self) -> dict[str, Any] | None:
        """Rank 0 reads the inbox; the others are told. The first trial lies there before the process starts."""
        if _world() == 1 or self._group is None:
            return self.inbox.take(IDLE_SECONDS, self._stop_asked)
        import torch.distributed as dist

        told: list[Any] = [self.inbox.take(IDLE_SECONDS, self._stop_asked) if _rank() == 0 else None]
        dist.broadcast_object_list(told, src=0, group=self._group)
        return told[0]  # type: ignore[no-any-return]

    def _stop_asked(self) -> bool:
        return (self.job_dir / "control" / "stop.json").exists()

    def run(self, asked: dict[str, Any]) -> None:
        """One trial: begin line, measure, result line. Errors of the trial are its result."""
        self._write({"k": "begin", "id": asked["id"], "at": time.time()})
        meter = Meter(
            int(asked.get("warm_up", 2)),
            int(asked.get("steps", 4)),
            float(asked.get("seconds", 60)),
            stopped=self._stop_asked,
            counter=self.train_module.load_sibling("tokens").TokenCounter(),
        )
        began = time.perf_counter()
        try:
            self._train({**self.base, **asked["changes"]}, meter)
            result: dict[str, object] = {"outcome": "error", "error": "training ended before the measured steps"}
        except TrialDone:
            result = {"outcome": "ok", **meter.result()}
        except StopAsked:
            result = {"outcome": "stopped"}
        except Exception as error:  # noqa: BLE001 - whatever a configuration raises is the result of its trial
            result = {
                "outcome": "oom" if _is_oom(error) else "error",
                "error": f"{type(error).__name__}: {error}"[:600],
            }
            _forget_frames(error)
        finally:
            meter.detach()
            self._clean_up()
        result |= {"peak_bytes": meter.peak_bytes, "reserved_bytes": meter.reserved_bytes}
        result["wall_seconds"] = time.perf_counter() - began
        self._write({"k": "result", "id": asked["id"], "at": time.time(), **result})
        if result["outcome"] in ("oom", "error") and _world() > 1:
            os._exit(13)  # the other ranks may wait in a collective; the launcher ends them
        self._open_group()

    def _open_group(self) -> None:
        import torch.distributed as dist

        if _world() > 1 and self._group is None and dist.is_initialized():
            self._group = dist.new_group(backend="gloo")

    def _write(self, record: dict[str, object]) -> None:
        if _rank() == 0:
            with self.outbox.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(record) + "\n")
            print("tunedeck trial:", json.dumps(record), flush=True)

    def _train(self, wanted: dict[str, Any], meter: Meter) -> None:
        from llamafactory.train.tuner import run_exp
        from transformers import TrainerCallback

        steps = meter.warm_up + meter.steps
        arguments = {
            name: value for name, value in wanted.items() if name not in ("resume_from_checkpoint", "num_train_epochs")
        }
        arguments |= {**FORCED, "max_steps": steps, "output_dir": str(self.job_dir / "output" / "trial")}
        if self.base.get("include_num_input_tokens_seen"):
            arguments["include_num_input_tokens_seen"] = "no"
        callback = type("MeterCallback", (TrainerCallback,), {})()
        for event in ("on_train_begin", "on_step_end"):
            setattr(callback, event, getattr(meter, event))
        with self._reused(arguments):
            run_exp(args=arguments, callbacks=[callback])

    @contextmanager
    def _reused(self, arguments: dict[str, Any]) -> Iterator[None]:
        """Put our own loaders in the place of the workflow's, so that model and data are taken from the last trial."""
        replaced: list[tuple[Any, str, Any]] = []
        for name, module in list(sys.modules.items()):
            if not (name.startswith("llamafactory.train.") and name.endswith(".workflow")):
                continue
            for function, ours in (("load_model", self._load_model), ("get_dataset", self._get_dataset)):
                original = getattr(module, function, None)
                if callable(original):
                    replaced.append((module, function, original))
                    setattr(module, function, _bound(ours, original, arguments))
        try:
            yield
        finally:
            for module, function, original in replaced:
                setattr(module, function, original)

    def _load_model(
        self, original: Callable[..., Any], arguments: dict[str, Any], tokenizer: Any, model_args: Any, finetuning_args: Any,
        is_trainable: bool = False, add_valuehead: bool = False,
    ) -> Any:  # fmt: skip
        if add_valuehead or not is_trainable or not _may_reuse(arguments):
            self.recorder.phase("loading")
            return original(tokenizer, model_args, finetuning_args, is_trainable, add_valuehead)
        key = _model_key(arguments)
        wants_liger, wants_none = model_args.enable_liger_kernel, model_args.disable_gradient_checkpointing
        if key not in self.models:
            self.models.clear()
            _free_memory()
            self.recorder.phase("loading")
            # Loaded plain and with checkpointing prepared; the trial's own switches are set on the loaded model.
            model_args.enable_liger_kernel = model_args.disable_gradient_checkpointing = False
            self.liger.forget()
            self.models[key] = original(tokenizer, model_args, finetuning_args, is_trainable)
            model_args.enable_liger_kernel, model_args.disable_gradient_checkpointing = wants_liger, wants_none
        model = self.models[key]
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.liger.set(base, on=wants_liger, keeps_logits=finetuning_args.stage not in ("pt", "sft"))
        _set_checkpointing(base, on=not wants_none, reentrant=model_args.use_reentrant_gc)
        _set_attention(base, model_args.flash_attn)
        return model

    def _get_dataset(self, original: Callable[..., Any], arguments: dict[str, Any], *given: Any, **named: Any) -> Any:
        key = json.dumps({name: arguments.get(name) for name in _DATA_KEYS}, sort_keys=True, default=str)
        if key not in self.data:
            self.recorder.phase("tokenizing")
            self.data[key] = original(*given, **named)
        return dict(self.data[key])

    def _clean_up(self) -> None:
        """What one trial leaves on the model and in memory must not weigh on the next one."""
        for model in self.models.values():
            for parameter in model.parameters():
                parameter.grad = None
            _unwrap_forward(model)
        _free_memory()


_DATA_KEYS = (
    "dataset", "dataset_dir", "template", "cutoff_len", "max_samples", "packing", "neat_packing", "train_on_prompt", "stage",
    "mask_history", "mix_strategy", "tokenized_path",
)  # fmt: skip
_SWITCHES = frozenset(
    ("enable_liger_kernel", "disable_gradient_checkpointing", "use_reentrant_gc", "flash_attn", "output_dir", "max_steps",
     "per_device_train_batch_size", "gradient_accumulation_steps", *_DATA_KEYS, *FORCED)
)  # fmt: skip
"""Arguments that a loaded model does not depend on."""


def _model_key(arguments: Mapping[str, Any]) -> str:
    return json.dumps(
        {name: value for name, value in arguments.items() if name not in _SWITCHES}, sort_keys=True, default=str
    )


def _may_reuse(arguments: Mapping[str, Any]) -> bool:
    """DeepSpeed and torch.compile leave the model in another state; unsloth patches it while loading."""
    return not (arguments.get("deepspeed") or arguments.get("torch_compile") or arguments.get("use_unsloth"))


def _bound(ours: Callable[..., Any], original: Callable[..., Any], arguments: dict[str, Any]) -> Callable[..., Any]:
    return lambda *given, **named: ours(original, arguments, *given, **named)


class Inbox:
    """Lines of a file that another process appends to, one at a time."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def take(self, seconds: float, stopped: Callable[[], bool]) -> dict[str, Any] | None:
        """The next whole line; None when none came in time or the job was stopped."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not stopped():
            line = self._line()
            if line is not None:
                return json.loads(line)  # type: ignore[no-any-return]
            time.sleep(0.1)
        return None

    def _line(self) -> bytes | None:
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                line = stream.readline()
        except FileNotFoundError:
            return None
        if not line.endswith(b"\n"):
            return None
        self._offset += len(line)
        return line


class Meter:
    """A trainer's callback: times steps after the warm-up, counts tokens and memory, ends the training.

    When `seconds` are over, one warm-up step and one measured step are enough.
    """

    def __init__(self, warm_up: int, steps: int, seconds: float, *, stopped: Callable[[], bool], counter: Any) -> None:
        self.warm_up, self.steps, self._stopped = max(1, warm_up), max(1, steps), stopped
        self._limit, self._begun = seconds, 0.0
        self.counter = counter
        self.seconds: list[float] = []
        self.warm_seconds: list[float] = []
        self.taken: list[Any] = []
        self.peak_bytes: int | None = None
        self.reserved_bytes: int | None = None
        self.loaded_bytes: int | None = None
        """Allocated when training begins: the model, and whatever an earlier trial should not have left."""
        self._from = self._to = 0.0
        self._mark = 0.0
        self._rows = 0
        self.longest = 0
        self._handle: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.counter.attach(model)
        self._watch_lengths(model)
        self._rows = args.per_device_train_batch_size * args.gradient_accumulation_steps
        self.loaded_bytes = _reset_peak()
        _wait()
        self._mark = self._begun = time.perf_counter()

    def _watch_lengths(self, model: Any) -> None:
        """The longest padded row decides the peak: note it, so that plans can be judged by it."""

        def look(_: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            ids = named.get("input_ids", given[0] if given else None)
            if ids is not None and hasattr(ids, "shape"):
                self.longest = max(self.longest, int(ids.shape[-1]))

        self._handle = model.register_forward_pre_hook(look, with_kwargs=True)

    def detach(self) -> None:
        """Leave the model alone; notes the peak of a trial that ended before its first step did."""
        self.counter.detach()
        if self._handle is not None:
            self._handle.remove()
        if self.peak_bytes is None and self._begun:
            self.peak_bytes, self.reserved_bytes = _peaks()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        _wait()
        now = time.perf_counter()
        spent, self._mark = now - self._mark, now
        self.peak_bytes, self.reserved_bytes = _peaks()
        taken = self.counter.take()
        late, stopped = _agree(now - self._begun > self._limit, self._stopped())
        if len(self.warm_seconds) < self.warm_up and not (late and self.warm_seconds):
            self.warm_seconds.append(spent)
            self._from = time.time()
        else:
            self.seconds.append(spent)
            self.taken.append(taken)
        if stopped:
            raise StopAsked
        if len(self.seconds) >= self.steps or (late and self.seconds):
            self._to = time.time()
            raise TrialDone

    def result(self) -> dict[str, object]:
        """Tokens and rows (or packed blocks) over all ranks; seconds of each measured step."""
        counts = [None if taken is None else [int(value) for value in taken.tolist()] for taken in self.taken]
        return {
            "step_seconds": self.seconds,
            "warm_seconds": self.warm_seconds,
            "tokens": _all_ranks([None if count is None else count[0] for count in counts]),
            "padding": _all_ranks([None if count is None else count[1] for count in counts]),
            "samples_per_step": self._rows * _world(),
            "longest": self.longest,
            "loaded_bytes": self.loaded_bytes,
            "from": self._from,
            "to": self._to,
        }


class LigerSwitch:
    """Liger on and off on one loaded model: LLaMA-Factory only knows how to patch before loading."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def forget(self) -> None:
        """The patched model is gone; the patched module functions are put back."""
        for step in reversed(self._undo):
            step()
        self._undo.clear()

    def set(self, model: Any, *, on: bool, keeps_logits: bool) -> None:
        if on == bool(self._undo):
            return
        if not on:
            self.forget()
            return
        from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

        apply = MODEL_TYPE_TO_APPLY_LIGER_FN.get(model.config.model_type)
        if apply is None:
            raise ValueError(f"Liger has no kernels for model type {model.config.model_type!r}")
        modeling = sys.modules[type(model).__module__]
        names = dict(vars(modeling))
        classes = {kind: vars(kind).get("forward") for kind in vars(modeling).values() if isinstance(kind, type)}
        forwards = [(module, module.__dict__.get("forward")) for module in model.modules()]
        import torch

        cross_entropy = torch.nn.functional.cross_entropy
        apply(model=model, **({"fused_linear_cross_entropy": False, "cross_entropy": True} if keeps_logits else {}))

        def undo() -> None:
            vars(modeling).update(names)
            torch.nn.functional.cross_entropy = cross_entropy
            for kind, forward in classes.items():
                if forward is not None and vars(kind).get("forward") is not forward:
                    kind.forward = forward  # type: ignore[attr-defined]
            for module, own in forwards:
                _restore_forward(module, own)

        self._undo.append(undo)


def _restore_forward(module: Any, own: Any) -> None:
    if own is None:
        module.__dict__.pop("forward", None)
    else:
        module.__dict__["forward"] = own


def _unwrap_forward(model: Any) -> None:
    """Accelerate wraps `forward` in autocast each time a trainer takes the model: take its last wrap off again."""
    original = model.__dict__.pop("_original_forward", None)
    if original is None:
        return
    model.__dict__.pop("forward", None)
    if getattr(original, "__func__", None) is not type(model).forward:
        model.__dict__["forward"] = original


def _set_checkpointing(model: Any, *, on: bool, reentrant: bool) -> None:
    if on:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    elif getattr(model, "is_gradient_checkpointing", False):
        model.gradient_checkpointing_disable()


def _set_attention(model: Any, wanted: Any) -> None:
    names = {"auto": "sdpa", "sdpa": "sdpa", "disabled": "eager", "fa2": "flash_attention_2"}
    name = names.get(str(getattr(wanted, "value", wanted)))
    if name and name != model.config._attn_implementation:
        model.set_attn_implementation(name)


def _is_oom(error: BaseException) -> bool:
    import torch

    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error).lower()


def _forget_frames(error: BaseException | None) -> None:
    """A traceback holds every local of the training, tensors included: drop it, or the next trial has no memory."""
    while error is not None:
        error.__traceback__ = None
        error = error.__context__


def _free_memory() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def _reset_peak() -> int | None:
    """Begin anew; returns what is allocated now, None without a device."""
    import torch

    if not torch.cuda.is_available():
        return None
    torch.cuda.reset_peak_memory_stats()
    return int(torch.cuda.memory_allocated())


def _peaks() -> tuple[int | None, int | None]:
    """(allocated, reserved) of this rank's device; None without one."""
    import torch

    if not torch.cuda.is_available():
        return None, None
    return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()


def _wait() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _agree(*flags: bool) -> tuple[bool, ...]:
    """What rank 0 sees, on every rank: all must end at the same step."""
    import torch
    import torch.distributed as dist

    if _world() == 1 or not dist.is_initialized():
        return flags
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    told = torch.tensor(flags, device=device, dtype=torch.int32)
    dist.broadcast(told, src=0)
    return tuple(bool(flag) for flag in told.tolist())


def _all_ranks(values: list[int | None]) -> list[int | None]:
    """Sums over the ranks; None where a rank could not count."""
    import torch
    import torch.distributed as dist

    if _world() == 1 or not dist.is_initialized():
        return values
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    sums = torch.tensor([[value or 0, value is None] for value in values], device=device, dtype=torch.int64)
    dist.all_reduce(sums)
    return [None if missing else total for total, missing in sums.tolist()]


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def _world() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def _job_dir() -> Path:
    folder = os.environ.get("TUNEDECK_JOB_DIR", "")
    if not folder:
        sys.exit("trial.py: TUNEDECK_JOB_DIR is not set; it is started by a job (see docs/speed.md)")
    return Path(folder)


def _load_sibling_file(name: str) -> Any:
    import importlib.util

    spec = importlib.util.spec_from_file_location(f"tunedeck_{name}", HERE / f"{name}.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"{HERE}/{name}.py is missing: Tunedeck's files are incomplete.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
