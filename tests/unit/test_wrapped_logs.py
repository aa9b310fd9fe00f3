"""A terminal that breaks lines at its width, inside words and numbers, changes nothing of what a log says."""

from __future__ import annotations

import pytest

from backend.parsing.diagnosis import diagnose
from backend.parsing.log_inspection import read_log_facts

ROWS = [
    {
        "loss": round(0.69 - at / 50, 4), "grad_norm": 2.25, "learning_rate": 4e-06, "rewards/chosen": at / 8,
        "rewards/rejected": -at / 4, "rewards/accuracies": 0.75, "rewards/margins": at / 2, "logps/chosen": -118.25,
        "logps/rejected": -140.5, "logits/chosen": -1.125, "logits/rejected": -1.0625, "epoch": at / 10,
    }
    for at in range(1, 7)
]  # fmt: skip
LOG = "".join(
    f"\r {at * 10}%|##  | {at * 10}/100 [00:{at:02d}<01:00,  1.00s/it]\n{row}\n" for at, row in enumerate(ROWS, 1)
)


def wrapped(text: str, width: int) -> str:
    """The text as a terminal of this width copies it; progress bars stay whole."""
    lines = []
    for line in text.split("\n"):
        lines += (
            [line]
            if "\r" in line or len(line) <= width
            else [line[at : at + width] for at in range(0, len(line), width)]
        )
    return "\n".join(lines)


@pytest.mark.parametrize("width", [80, 97, 100, 120, 132])
def test_a_row_over_several_lines_is_one_point(width: int) -> None:
    whole, broken = (read_log_facts({"console.log": text.encode()}) for text in (LOG, wrapped(LOG, width)))
    assert whole["points"] == len(ROWS)
    for field in ("points", "last_step", "first_loss", "final_loss", "final_accuracy", "series"):
        assert broken[field] == whole[field], field


def test_a_row_that_was_cut_does_not_swallow_what_follows() -> None:
    cut = f"{str(ROWS[0])[:90]}\nTraceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: 'x'\n"
    facts = read_log_facts({"console.log": (cut + str(ROWS[1]) + "\n").encode()})
    assert (facts["points"], facts["outcome"]) == (1, "running")
    assert diagnose(cut.encode()).evidence[0].text == "KeyError: 'x'"


@pytest.mark.parametrize("width", [80, 100, 120])
def test_an_error_over_several_lines_is_one_error(width: int) -> None:
    error = (
        "RuntimeError: Error(s) in loading state_dict for PeftModelForCausalLM:\n\tsize mismatch for base_model.model."
        "embed_tokens.weight: copying a param with shape torch.Size([700, 64]) from checkpoint, the shape in current model is "
        "torch.Size([704, 64]).\n"
    )
    assert diagnose(wrapped(error, width).encode()).root_cause == "embedding_size_mismatch"


@pytest.mark.parametrize("width", [70, 80, 100])
def test_a_stop_by_the_scheduler_over_two_lines_keeps_its_reason(width: int) -> None:
    line = "slurmstepd: error: *** STEP 912.0 ON node-a11 CANCELLED AT 2026-03-11T07:02:08 DUE TO TIME LIMIT ***\n"
    found = diagnose(wrapped(line, width).encode())
    assert (found.outcome, found.root_cause) == ("stopped", "time_limit")


def test_a_message_that_was_cut_accuses_no_other_process() -> None:
    cut = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 63.98 GiB of "
    assert diagnose(f"{cut}which 1.50 GiB is free. Of the allo".encode()).root_cause == "gpu_oom"
    whole = f"{cut}which 1.50 GiB is free. Of the allocated memory 4.00 GiB is allocated by PyTorch, and 0.10 GiB is reserved"
    assert diagnose(f"{whole} by PyTorch but unallocated.".encode()).root_cause == "gpu_memory_held_elsewhere"


def test_the_last_words_of_a_process_group_tell_nothing() -> None:
    line = (
        "[rank0]:[W311 07:02:10.1 ProcessGroupNCCL.cpp:1538] destroy_process_group() was not called before program exit"
    )
    facts = read_log_facts({"console.log": f"{line}\n".encode()})
    assert (facts["outcome"], facts["detected_format"]) == ("unknown", "plain_console")
