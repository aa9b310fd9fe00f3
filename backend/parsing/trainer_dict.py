"""The dict that a trainer prints at each log event into numbers: transformers 4 (floats) and 5 (quoted), copies, nan, inf."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_ENTRY = re.compile(r"""['"]([\w./@ :-]{1,80})['"]\s*:\s*(?:'([^']*)'|"([^"]*)"|([^,{}'"]*?))\s*(?=[,}]|$)""")
_ENTRY_BYTES = re.compile(_ENTRY.pattern.encode())
_WRAPPED_NUMBER = re.compile(r"^(?:np\.\w+|tensor|numpy\.\w+)\(\s*([^,)]+).*$")
_START = re.compile(
    r"""\{['"](?:loss|eval_|train_|learning_rate|epoch|grad_norm|rewards?/|objective/|step|reward|kl|ppo/|num_tokens|entropy)"""
)
_TRAIN_KEYS = frozenset({"loss", "reward", "objective/kl", "ppo/loss/total"})


class TrainerDict(NamedTuple):
    """One printed dict; a NamedTuple, for a console may have millions.

    `kind`: `train` (a point of the loss), `eval`, `final` (train_runtime ...) or `other`.

    `start` and `stop` are the positions in the text; `rounded`: the copy that LLaMA-Factory's callback prints (4 decimals).
    """

    kind: str
    values: Mapping[str, float]
    start: int
    stop: int
    rounded: bool = False


def find_dict_start(text: str) -> int:
    """Position of a trainer dict in the text, -1 when there is none."""
    if "{'" not in text and '{"' not in text:
        return -1
    match = _START.search(text)
    return match.start() if match else -1


def parse_trainer_dict(text: str, start: int | None = None) -> TrainerDict | None:
    """The dict that begins at `start` (searched when None); None when there is none or its closing brace is missing."""
    at = find_dict_start(text) if start is None else start
    if at < 0:
        return None
    stop = _closing_brace(text, at)
    if stop < 0:
        return None
    values = _read_entries(text[at + 1 : stop])
    if not values:
        return None
    return TrainerDict(
        kind=_kind_of(values), values=values, start=at, stop=stop + 1, rounded=is_rounded(text[at : stop + 1])
    )  # fmt: skip


def parse_number(text: str) -> float | None:
    """A float, also `nan`, `inf`, `1,120` and `np.float64(0.5)`; None for anything else."""
    text = text.strip()
    wrapped = _WRAPPED_NUMBER.match(text)
    try:
        return float((wrapped[1] if wrapped else text).replace(",", ""))
    except ValueError:
        return None


def _closing_brace(text: str, at: int) -> int:
    end = text.find("}", at)
    if text.find("{", at + 1, end) < 0:
        return end
    depth = 0
    for position in range(at, len(text)):
        character = text[position]
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if not depth:
                return position
    return -1


def _read_entries(inner: str) -> dict[str, float]:
    values = {}
    for key, single, double, bare in _ENTRY.findall(inner):
        number = parse_number(single or double or bare)
        if number is not None:
            values[key] = number
    return values


def value_spans(line: bytes, brace: int) -> Iterator[tuple[str, int, int]]:
    """Key, start and stop of each value of a dict without inner ones; `brace` is where it begins."""
    for match in _ENTRY_BYTES.finditer(line, brace + 1, line.find(b"}", brace)):
        start, stop = match.span(match.lastindex or 0)
        yield match[1].decode(), start, stop


def _kind_of(values: Mapping[str, float]) -> str:
    if "train_runtime" in values:
        # num_input_tokens logging adds train_runtime to ordinary rows; the last row has the mean loss instead of a loss
        return "train" if "loss" in values and "train_loss" not in values else "final"
    if any(key.startswith("eval_") for key in values):
        return "eval"
    return "train" if not _TRAIN_KEYS.isdisjoint(values) else "other"


def is_rounded(text: str) -> bool:
    """LLaMA-Factory's callback prints `'loss': 1.2345, 'learning_rate': 2.0000e-05, 'epoch': 0.25` and nothing else."""
    return (
        re.match(
            r"\{'(?:loss|reward)': -?\d+\.\d{4}, .*'learning_rate': \d\.\d{4}e[+-]\d\d, 'epoch': \d+\.\d\d[,}]", text
        )
        is not None
    )
