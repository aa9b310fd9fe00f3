"""Trials switch Liger on one loaded model: on must patch everything, off must leave the model as it was."""

import pytest

from tests.training.inside import run_inside

pytestmark = pytest.mark.training

SMALL = {
    "vocab_size": 200, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "pad_token_id": 0,
}  # fmt: skip


def test_liger_can_be_taken_off_a_loaded_model_again() -> None:
    cases = [{"config": {"model_type": name, **SMALL}} for name in ("llama", "qwen2", "mistral", "qwen3")]
    answers = run_inside("liger_switch.py", cases)
    assert len(answers) == len(cases)
    for case, answer in zip(cases, answers, strict=True):
        losses, states = answer["losses"], answer["states"]
        assert isinstance(losses, list) and len(set(losses)) == 1, (case, losses)
        on, off = [True] * 3, [False] * 3
        assert states == [off, on, off, on, off], (case, states)
