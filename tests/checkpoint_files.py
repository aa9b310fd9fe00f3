"""Steps and ranks in, checkpoint folders with files of the right formats out (tiny safetensors, torch-like zips)."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path


def write_safetensors(path: Path, names: tuple[str, ...] = ("a", "b"), elements: int = 4) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    for index, name in enumerate(names):
        begin = index * elements * 4
        header[name] = {"dtype": "F32", "shape": [elements], "data_offsets": [begin, begin + elements * 4]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(len(names) * elements * 4))


def write_torch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"0" * 64)


def write_adapter(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    write_safetensors(folder / "adapter_model.safetensors")
    (folder / "tokenizer.json").write_text("{}")


def write_checkpoint(output: Path, step: int) -> Path:
    """A checkpoint of one process with a LoRA adapter."""
    folder = output / f"checkpoint-{step}"
    write_adapter(folder)
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
        write_torch(folder / name)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return folder


def write_zero3_checkpoint(output: Path, step: int, ranks: int = 2) -> Path:
    """A DeepSpeed ZeRO-3 checkpoint: shards of every rank beside the gathered adapter."""
    folder = output / f"checkpoint-{step}"
    write_adapter(folder)
    for rank in range(ranks):
        write_torch(folder / f"global_step{step}" / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
        write_torch(folder / f"global_step{step}" / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
        write_torch(folder / f"rng_state_{rank}.pth")
    write_torch(folder / "scheduler.pt")
    (folder / "latest").write_text(f"global_step{step}")
    (folder / "zero_to_fp32.py").write_text("")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return folder
