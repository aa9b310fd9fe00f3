"""A run's output folder and what its ranks recorded in, its checkpoints out: size, step, and whether each can be used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from backend.domain.checkpoint import Checkpoint
from backend.store.checkpoint_files import (
    CHECKPOINT_NAME,
    FileFact,
    list_files,
    read_step,
    shard_ranks,
    what_is_missing,
)

FINAL = "final"
"""Name of the model at the top of the output folder, written when training ends."""


def list_checkpoints(
    output: Path,
    *,
    parts: Mapping[str, tuple[int, int]],
    is_active: bool,
    is_done: bool,
    eval_losses: Mapping[int, float] | None = None,
) -> tuple[Checkpoint, ...]:
    """By step, the final model last. `parts`: by path, how many ranks wrote their part and how many have to (recorder).

    `is_active`: a process of the run may be writing. `is_done`: the trainer has returned, so the final model is written.
    """
    folders = [path for path in output.glob("checkpoint-*") if CHECKPOINT_NAME.fullmatch(path.name) and path.is_dir()]
    found = [_checkpoint(folder, parts.get(folder.name), is_active, eval_losses or {}) for folder in folders]
    found.sort(key=lambda checkpoint: checkpoint.step or 0)
    final = _final_model(output, is_active and not is_done)
    return (*found, final) if final else tuple(found)


def checkpoint_files(output: Path, name: str) -> tuple[FileFact, ...]:
    """Files of one checkpoint; those of `final` are all of the output folder but the checkpoints in it."""
    return list_files(output, without_checkpoints=True) if name == FINAL else list_files(output / name)


def _checkpoint(
    folder: Path, parts: tuple[int, int] | None, is_active: bool, eval_losses: Mapping[int, float]
) -> Checkpoint:
    files = list_files(folder)
    step = int(folder.name.removeprefix("checkpoint-"))
    fault = _recorded_fault(parts, is_active) or what_is_missing(files, step=step)
    return _describe(
        files,
        name=folder.name,
        path=folder.name,
        step=step,
        fault=fault,
        world_size=parts[1] if parts else shard_ranks(files),
        eval_loss=eval_losses.get(step),
    )


def _recorded_fault(parts: tuple[int, int] | None, is_active: bool) -> str:
    if parts is None or parts[0] >= parts[1]:
        return ""
    written, needed = parts
    verb = "being written" if is_active else "cut short"
    return f"{verb}: {written} of {needed} ranks have written their part"


def _final_model(output: Path, is_being_written: bool) -> Checkpoint | None:
    files = list_files(output, without_checkpoints=True)
    if not any(fact.is_weights for fact in files):
        return None
    fault = "being written: training has not returned yet" if is_being_written else what_is_missing(files, step=None)
    return _describe(
        files, name=FINAL, path="", step=read_step(files), fault=fault, world_size=None, eval_loss=None
    )  # fmt: skip


def _describe(
    files: tuple[FileFact, ...],
    *,
    name: str,
    path: str,
    step: int | None,
    fault: str,
    world_size: int | None,
    eval_loss: float | None,
) -> Checkpoint:
    inference = [fact.size_bytes for fact in files if fact.for_inference]
    return Checkpoint(
        name=name,
        path=path,
        step=step,
        size_bytes=sum(fact.size_bytes for fact in files),
        files=len(files),
        saved_at=max((fact.modified_ns for fact in files), default=0) / 1e9,
        complete=not fault,
        why_incomplete=fault,
        world_size=world_size,
        adapter_bytes=sum(inference) if any(fact.is_weights for fact in files) else None,
        eval_loss=eval_loss,
    )
