"""`train.py TRAIN.YAML [key=value ...]`: LLaMA-Factory's own training with our recorder listening.

Started by torchrun, one process a rank, in the training environment. Arguments are read as LLaMA-Factory reads them.
Without TUNEDECK_JOB_DIR (the command pasted into a shell) it trains the same and records nothing.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .recorder import Recorder

HERE = Path(__file__).resolve().parent
PACKAGES = (
    "torch",
    "transformers",
    "llamafactory",
    "deepspeed",
    "accelerate",
    "peft",
    "trl",
    "datasets",
    "liger_kernel",
    "flash_attn",
)


def main() -> None:
    """Train; returns when the run is over, and lets every error of the trainer through."""
    end_with_launcher(os.environ)
    forget_script_folder()
    job_dir = os.environ.get("TUNEDECK_JOB_DIR", "")
    if not job_dir:
        check_torchaudio()
        importlib.import_module("llamafactory.train.tuner").run_exp()
        return
    recorder = build_recorder(Path(job_dir), os.environ)
    try:
        train(recorder)
    except BaseException as error:
        recorder.done(None if isinstance(error, SystemExit) and not error.code else error)
        raise
    recorder.done()


def build_recorder(job_dir: Path, environ: os._Environ[str]) -> Recorder:
    """This rank's recorder, which has noted that imports begin."""
    module = load_sibling("recorder")
    recorder: Recorder = module.Recorder(
        job_dir, rank=int(environ.get("RANK", "0")), world_size=int(environ.get("WORLD_SIZE", "1"))
    )
    recorder.phase("importing")
    return recorder


def train(recorder: Recorder) -> None:
    """Import the trainer, listen to it, run it."""
    check_torchaudio()
    import torch
    from llamafactory.hparams import read_args
    from llamafactory.train.tuner import run_exp
    from transformers import TrainerCallback

    recorder.phase("parsing")
    arguments = read_args()
    on_cpu = not torch.cuda.is_available() or (isinstance(arguments, dict) and arguments.get("use_cpu") is True)
    write_start(recorder, on_cpu=on_cpu)
    if not on_cpu:
        counts_itself = os.environ.get("RECORD_VRAM", "").lower() in {"true", "y", "1"}
        recorder.peak_memory = load_sibling("recorder").peak_memory(reset=not counts_itself)
    note_phases(recorder)
    time_batches(recorder)
    callback = type("RecorderCallback", (TrainerCallback,), {})()
    for event in (name for name in dir(recorder) if name.startswith("on_")):
        setattr(callback, event, getattr(recorder, event))
    run_exp(args=arguments, callbacks=[callback])


def write_start(recorder: Recorder, *, on_cpu: bool) -> None:
    """Who this rank is (contract: the `start` record)."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    recorder.records.write(
        "start",
        rank=int(os.environ.get("RANK", "0")),
        local_rank=local_rank,
        world_size=int(os.environ.get("WORLD_SIZE", "1")),
        pid=os.getpid(),
        device="cpu" if on_cpu else f"cuda:{local_rank}",
        versions={name: found for name in PACKAGES if (found := installed_version(name))},
    )


def installed_version(package: str) -> str:
    """The version of a package in this environment, "" when it is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def note_phases(recorder: Recorder) -> None:
    """Note when data is tokenized and weights are loaded: LLaMA-Factory tells no callback.

    Each workflow module (`llamafactory.train.sft.workflow` ...) holds these two functions under its own names. Where
    another version has them elsewhere, the phase is not noted and nothing else changes.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("llamafactory.train.") and name.endswith(".workflow"):
            _note_call(module, "get_dataset", recorder, "tokenizing")
            _note_call(module, "load_model", recorder, "loading")


def _note_call(module: Any, name: str, recorder: Recorder, phase: str) -> None:
    function = getattr(module, name, None)
    if not callable(function):
        return

    def noted(*arguments: Any, **named: Any) -> Any:
        recorder.phase(phase)
        return function(*arguments, **named)

    setattr(module, name, noted)


def time_batches(recorder: Recorder) -> None:
    """Measure the time that the trainer waits for its batches, apart from the ranks' waiting for each other.

    `Trainer.get_batch_samples` takes the batches of a step from an iterator, then gathers a count from all ranks.
    Without it (another version), the recorder takes the time between two steps instead.
    """
    from transformers import Trainer

    original: Callable[..., Any] | None = getattr(Trainer, "get_batch_samples", None)
    if original is None:
        return

    def timed(trainer: Any, epoch_iterator: Iterator[Any], *arguments: Any, **named: Any) -> Any:
        return original(trainer, recorder.clock.watch(epoch_iterator), *arguments, **named)

    Trainer.get_batch_samples = timed


def check_torchaudio() -> None:
    """Say clearly what is wrong where torchaudio cannot be imported: LLaMA-Factory 0.9.5 imports it for text models too."""
    try:
        importlib.import_module("torchaudio")
    except (ImportError, OSError) as error:
        raise ImportError(
            f"torchaudio cannot be imported in this training environment ({error}). LLaMA-Factory imports it for every "
            "training, text models included. Install the torchaudio build that belongs to this torch "
            f"({installed_version('torch') or 'not installed'}), or run scripts/setup, which knows how to do without."
        ) from error


def load_sibling(name: str) -> Any:
    """A module of this folder, under a package name of its own: nothing of Tunedeck's goes on the trainer's search path."""
    if "tunedeck_inside" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "tunedeck_inside", HERE / "__init__.py", submodule_search_locations=[str(HERE)]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"{HERE}/__init__.py is missing: Tunedeck's files are incomplete.")
        sys.modules["tunedeck_inside"] = package = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(package)
    return importlib.import_module(f"tunedeck_inside.{name}")


def forget_script_folder() -> None:
    """Python puts a script's folder first on the search path, where our `train.py` could stand in for someone's `train`."""
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != HERE]


def end_with_launcher(environ: os._Environ[str]) -> None:
    """Under torchrun: ask the kernel to kill this rank when torchrun dies, so that no rank goes on holding a GPU."""
    if "TORCHELASTIC_RUN_ID" not in environ or not sys.platform.startswith("linux"):
        return
    launcher = os.getppid()
    set_parent_death_signal = 1
    ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != launcher or ("TUNEDECK_JOB_DIR" in environ and not _is_torchrun(launcher)):
        os.kill(os.getpid(), signal.SIGKILL)  # it died before the kernel was asked


def _is_torchrun(pid: int) -> bool:
    """Tunedeck's plans start ranks with `python -m torch.distributed.run`; any other parent adopted an orphan."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"torch.distributed.run" in command or b"torchrun" in command


if __name__ == "__main__":
    main()
