"""The shape of a line into its plan: which readers may find something in it, most often none.

A plan is a sum of the bits below. `QUIET`: nobody has to look at lines of this shape.
"""

from __future__ import annotations

from backend.parsing import deepspeed_lines, failure, job_lines, launcher, rccl, step_lines
from backend.parsing.lines import LONGEST_TEXT
from backend.parsing.shapes import LiteralSet, ShapeCache

QUIET = 0
BAR, DICT, FAILURE, LAUNCHER, ENGINE, NETWORK, STEPS, JOB, READER, MARK, BLANK, RAW, CALM = (
    1 << at for at in range(13)
)  # fmt: skip
"""Bar or dict of a trainer; failure signatures; launchers; DeepSpeed; RCCL; step lines; milestones; the console reader's own;
words that tell the program (once is enough); nothing but digits; escape codes or NULs; a form of level INFO."""
EVERYTHING = (1 << 13) - 1 - CALM

TRAINER_MARKS = (
    "llamafactory", "LLaMA-Factory", "llmtuner", "transformers/", "torch/distributed/elastic", "torch.distributed.elastic",
    "torchrun", "HfArgumentParser", "huggingface.co", "dataset_info.json", "DataLoader worker", "/trl/", "/peft/",
    "[INFO|", "[WARNING|", "/accelerate/", "deepspeed/",
)  # fmt: skip
RAY_MARKS = ("ray.exceptions", "ray::", "RayTask", "raylet")
READER_WORDS = ("Running Evaluation", "Running Prediction", "Continuing training from global step")
_CALM_FORMS = (b"[INFO|", b"] [INFO] [", b"] NCCL INFO ")
_LOUD_WORDS = (b"ill", b"signal", b"already")
"""What launchers say about killed processes they say at level INFO."""

_LITERALS = (
    (BAR, ("%|",)), (DICT, ("{'", '{"')), (FAILURE, failure.TRIGGERS), (LAUNCHER, launcher.TRIGGERS),
    (ENGINE, deepspeed_lines.TRIGGERS), (NETWORK, rccl.TRIGGERS), (STEPS, step_lines.TRIGGERS), (JOB, job_lines.TRIGGERS),
    (READER, READER_WORDS), (MARK, (*TRAINER_MARKS, *RAY_MARKS)), (RAW, ("\x1b", "\0")),
)  # fmt: skip
_PREFIX_END = r"(?:^|[:)>\]Z|]\s?)"
_PATTERNS = ((JOB, _PREFIX_END + r"\|"), (NETWORK, _PREFIX_END + "#"), (MARK, r"^\("))
"""Rows of tables, frames of stacks and actors are told by how a line begins, behind the prefix of its rank."""
_BITS = (*(bit for bit, literals in _LITERALS for _ in literals), *(bit for bit, _ in _PATTERNS))
_SET = LiteralSet([one for _, literals in _LITERALS for one in literals], [pattern for _, pattern in _PATTERNS])


def plan_of(shape: bytes) -> int:
    """The plan of all lines of a shape. Not one of its readers is left out, one may be too many."""
    if not shape or shape.isspace():
        return BLANK
    if len(shape) > LONGEST_TEXT:
        return EVERYTHING
    plan = QUIET
    for index in _SET.find(shape):
        plan |= _BITS[index]
    if any(form in shape for form in _CALM_FORMS) and not any(word in shape for word in _LOUD_WORDS):
        plan |= CALM
    return plan


def is_calm(line: bytes) -> bool:
    """A line of level INFO, as `lines.is_ordinary` sees it in the text; asked only for lines whose plan says CALM."""
    return line.startswith(b"[INFO|") or b"] [INFO] [" in line[:48] or b"] NCCL INFO " in line[:120]


class Plans(ShapeCache[int]):
    """Plans by shape. What a word tells once it need not tell again: `heard` drops that from a plan."""

    def __init__(self) -> None:
        super().__init__(plan_of)

    def heard(self, shape: bytes, plan: int) -> None:
        """A line of this shape was read by `plan`; a line of which everything was read says nothing of its shape."""
        if plan & MARK and plan != EVERYTHING:
            self.remember(shape, plan & ~MARK)
