"""Which checkpoints a run has and which of them can be used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from backend.domain.checkpoint import Checkpoint
from backend.services.checkpoints import checkpoint_files, list_checkpoints
from tests.checkpoint_files import write_adapter, write_checkpoint, write_safetensors, write_zero3_checkpoint


def found(output: Path, **options: object) -> dict[str, Checkpoint]:
    given = {"parts": {}, "is_active": False, "is_done": True} | options
    return {checkpoint.name: checkpoint for checkpoint in list_checkpoints(output, **given)}  # type: ignore[arg-type]


def test_missing_output_has_no_checkpoints(tmp_path: Path) -> None:
    assert found(tmp_path / "no") == {}


def test_checkpoints_come_by_step_with_size_and_the_final_model_last(tmp_path: Path) -> None:
    for step in (100, 20):
        write_checkpoint(tmp_path, step)
    write_adapter(tmp_path)
    (tmp_path / "checkpoint-old").mkdir()
    checkpoints = found(tmp_path, eval_losses={100: 1.5})
    assert list(checkpoints) == ["checkpoint-20", "checkpoint-100", "final"]
    first = checkpoints["checkpoint-100"]
    assert first.complete and first.why_incomplete == "" and first.step == 100 and first.eval_loss == 1.5
    assert first.size_bytes == sum(path.stat().st_size for path in (tmp_path / "checkpoint-100").iterdir())
    assert first.files == 8
    assert checkpoints["final"].path == "" and checkpoints["final"].files == 3 and checkpoints["final"].complete


def test_zero3_checkpoint_tells_its_world_size(tmp_path: Path) -> None:
    write_zero3_checkpoint(tmp_path, 7, ranks=3)
    checkpoint = found(tmp_path)["checkpoint-7"]
    assert checkpoint.complete, checkpoint.why_incomplete
    assert checkpoint.world_size == 3


def shorten(name: str) -> Callable[[Path], None]:
    def cut(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[:-5])

    return cut


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def write(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


BROKEN = [
    (remove("trainer_state.json"), "trainer_state.json is missing"),
    (write("trainer_state.json", '{"global_step": 4'), "trainer_state.json is not whole"),
    (write("trainer_state.json", '{"global_step": 4}'), "step 4, expected 7"),
    (remove("latest"), "`latest` is missing"),
    (write("latest", "global_step9"), "global_step9 is missing"),
    (remove("global_step7/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"), "optimizer shard of rank 0 is missing (1 of 2"),
    (remove("rng_state_1.pth"), "random state of rank 1 is missing"),
    (shorten("adapter_model.safetensors"), "adapter_model.safetensors has"),
    (shorten("global_step7/zero_pp_rank_1_mp_rank_00_model_states.pt"), "cut short"),
    (write("adapter_model.safetensors", ""), "no whole header"),
    (write("scheduler.pt", ""), "scheduler.pt is empty"),
    (write("checkpoint-is-incomplete.txt", ""), "checkpoint-is-incomplete.txt"),
    (lambda folder: write_safetensors(folder / "adapter_model.safetensors", names=()), "holds no weights"),
    (write("model.safetensors.index.json", '{"weight_map": {"x": "model-00002-of-00002.safetensors"}}'), "model-00002-of-00002"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "reason"), BROKEN, ids=[reason for _, reason in BROKEN])
def test_damaged_checkpoint_says_what_is_wrong(tmp_path: Path, damage: Callable[[Path], None], reason: str) -> None:
    damage(write_zero3_checkpoint(tmp_path, 7))
    checkpoint = found(tmp_path)["checkpoint-7"]
    assert not checkpoint.complete
    assert reason in checkpoint.why_incomplete


def test_checkpoint_without_weights_is_not_complete(tmp_path: Path) -> None:
    (write_checkpoint(tmp_path, 3) / "adapter_model.safetensors").unlink()
    assert found(tmp_path)["checkpoint-3"].why_incomplete == "there are no weights"


def test_recorder_knows_that_a_rank_is_still_writing(tmp_path: Path) -> None:
    write_zero3_checkpoint(tmp_path, 7)
    writing = found(tmp_path, parts={"checkpoint-7": (1, 2)}, is_active=True)["checkpoint-7"]
    assert (writing.complete, writing.why_incomplete) == (False, "being written: 1 of 2 ranks have written their part")
    dead = found(tmp_path, parts={"checkpoint-7": (1, 2)})["checkpoint-7"]
    assert dead.why_incomplete.startswith("cut short")
    assert found(tmp_path, parts={"checkpoint-7": (2, 2)})["checkpoint-7"].complete


def test_final_model_is_complete_once_training_has_returned(tmp_path: Path) -> None:
    write_adapter(tmp_path)
    assert not found(tmp_path, is_active=True, is_done=False)["final"].complete
    assert found(tmp_path, is_active=True, is_done=True)["final"].complete


def test_inference_needs_neither_optimizer_nor_shards(tmp_path: Path) -> None:
    write_zero3_checkpoint(tmp_path, 7)
    needed = [fact.name for fact in checkpoint_files(tmp_path, "checkpoint-7") if fact.for_inference]
    assert needed == ["adapter_config.json", "adapter_model.safetensors", "tokenizer.json"]
