"""`trainer_state.json` into its logged rows at full precision and the run's plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from backend.errors import InvalidInput
from backend.parsing.trainer_rows import read_number


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """One entry of `log_history`."""

    step: int
    epoch: float | None
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerState:
    """Where the trainer stood when it wrote the file. `best_metric` belongs to `best_checkpoint`."""

    step: int
    max_steps: int | None
    epoch: float | None
    epochs: float | None
    logging_steps: int | None
    save_steps: int | None
    best_metric: float | None
    best_checkpoint: str | None
    tokens: int | None
    rows: tuple[StateRow, ...]

    @property
    def train_rows(self) -> tuple[StateRow, ...]:
        """Points of the training loss."""
        return tuple(row for row in self.rows if "loss" in row.values)

    @property
    def eval_rows(self) -> tuple[StateRow, ...]:
        """Points of evaluation."""
        return tuple(row for row in self.rows if any(key.startswith("eval_") for key in row.values))

    @property
    def finished(self) -> bool:
        """The last row is the summary of a training that came to its end."""
        return any("train_runtime" in row.values and "train_loss" in row.values for row in self.rows[-2:])


def parse_trainer_state(data: bytes) -> TrainerState:
    """Raises InvalidInput when the bytes are no complete trainer state (a checkpoint that was being written)."""
    try:
        found = json.loads(data.decode("utf-8-sig"))
    except ValueError as error:
        raise _refused(f"no complete JSON ({error})") from error
    if not isinstance(found, dict) or not isinstance(found.get("log_history"), list):
        raise _refused("no `log_history` list")
    rows = tuple(row for entry in found["log_history"] if isinstance(entry, dict) and (row := _row(entry)) is not None)
    return TrainerState(
        step=_int(found.get("global_step")) or 0, max_steps=_int(found.get("max_steps")), epoch=read_number(found.get("epoch")),
        epochs=read_number(found.get("num_train_epochs")), logging_steps=_int(found.get("logging_steps")),
        save_steps=_int(found.get("save_steps")), best_metric=read_number(found.get("best_metric")),
        best_checkpoint=found["best_model_checkpoint"] if isinstance(found.get("best_model_checkpoint"), str) else None,
        tokens=_int(found.get("num_input_tokens_seen")), rows=rows,
    )  # fmt: skip


def _refused(found: str) -> InvalidInput:
    return InvalidInput(
        "trainer_state.json", found=found, expected="the state that transformers writes into a checkpoint",
        remedy="Use an older checkpoint: this one was not written completely.",
    )  # fmt: skip


def _row(entry: Mapping[str, object]) -> StateRow | None:
    step = _int(entry.get("step"))
    if step is None:
        return None
    values = {
        key: number
        for key, value in entry.items()
        if key not in ("step", "epoch") and (number := read_number(value)) is not None
    }
    return StateRow(step=step, epoch=read_number(entry.get("epoch")), values=values)


def _int(value: object) -> int | None:
    number = read_number(value)
    return int(number) if number is not None and number == number and abs(number) < 1e18 else None
