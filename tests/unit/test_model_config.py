import json

import pytest

from backend.errors import InvalidInput
from backend.planning.model_config import parse_model_config, parse_model_shape

LLAMA = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 128, "vocab_size": 100,
}  # fmt: skip


def test_llama_parameters_are_the_sum_of_its_matrices() -> None:
    shape = parse_model_shape(LLAMA)
    attention = 64 * 64 * 2 + 64 * 32 * 2
    layer = attention + 3 * 64 * 128 + 2 * 64
    assert shape.parameters == 2 * layer + 64 + 2 * 100 * 64
    assert shape.estimate == ""


def test_tied_head_is_counted_once() -> None:
    tied = parse_model_shape(LLAMA | {"tie_word_embeddings": True})
    assert parse_model_shape(LLAMA).parameters - tied.parameters == 100 * 64
    assert tied.head_parameters == 0


def test_unknown_family_is_counted_but_says_estimate() -> None:
    shape = parse_model_shape(LLAMA | {"model_type": "brand_new"})
    assert shape.parameters == parse_model_shape(LLAMA).parameters
    assert "brand_new" in shape.estimate


def test_expert_parameters_are_out_of_reach_of_adapters() -> None:
    shape = parse_model_shape(
        LLAMA | {"model_type": "qwen3_moe", "head_dim": 16, "num_experts": 8, "num_experts_per_tok": 2,
                 "moe_intermediate_size": 32}
    )  # fmt: skip
    experts = [matrix for matrix in shape.matrices if matrix.part == "experts"]
    assert experts and not any(matrix.linear for matrix in experts)
    assert all(matrix.active == 0.25 for matrix in experts)
    assert shape.active_parameters == shape.parameters - sum(m.parameters for m in experts) * 3 // 4


def test_vision_model_uses_its_text_config_and_says_estimate() -> None:
    shape = parse_model_shape(
        {"model_type": "qwen2_5_vl", "text_config": LLAMA | {"model_type": "qwen2_5_vl_text"},
         "vision_config": {"depth": 3, "hidden_size": 32, "intermediate_size": 64}}
    )  # fmt: skip
    assert shape.hidden == 64
    assert shape.other_parameters == 3 * (4 * 32 * 32 + 2 * 32 * 64)
    assert "tower" in shape.estimate


def test_quantized_weights_are_recognised() -> None:
    shape = parse_model_shape(LLAMA | {"quantization_config": {"quant_method": "gptq", "bits": 4}})
    assert shape.quantized is not None
    assert (shape.quantized.method, shape.quantized.bits) == ("gptq", 4.0)


def test_windowed_layers_follow_layer_types() -> None:
    kinds = ["sliding_attention", "full_attention"]
    shape = parse_model_shape(LLAMA | {"model_type": "gemma3_text", "layer_types": kinds, "sliding_window": 16})
    assert (shape.window_layers, shape.sliding_window) == (1, 16)
    unused = parse_model_shape(LLAMA | {"model_type": "qwen2", "sliding_window": 16, "use_sliding_window": False})
    assert (unused.window_layers, unused.sliding_window) == (0, None)


@pytest.mark.parametrize("missing", ["num_hidden_layers", "hidden_size"])
def test_config_without_depth_or_width_is_refused_by_name(missing: str) -> None:
    with pytest.raises(InvalidInput, match=missing):
        parse_model_shape({key: value for key, value in LLAMA.items() if key != missing})


@pytest.mark.parametrize("text", ["", "{", "[1]", '"x"', json.dumps({"model_type": "llama"})])
def test_text_that_is_no_model_config_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_model_config(text)


def test_negative_or_boolean_numbers_are_not_taken_for_sizes() -> None:
    with pytest.raises(InvalidInput):
        parse_model_shape(LLAMA | {"hidden_size": True})
    with pytest.raises(InvalidInput):
        parse_model_shape(LLAMA | {"num_hidden_layers": -1})
