"""Parameter counts of public models against the figures that their model cards and safetensors headers state."""

import pytest

from backend.planning.known_models import known_key, known_shape

PUBLIC_COUNTS = {
    "meta-llama/Meta-Llama-3-8B-Instruct": 8_030_261_248,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
    "meta-llama/Llama-3.2-1B-Instruct": 1_235_814_400,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-2-13b-chat-hf": 13_015_864_320,
    "meta-llama/Llama-2-70b-hf": 68_976_648_192,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
    "Qwen/Qwen2.5-3B": 3_085_938_688,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen2.5-14B": 14_770_033_664,
    "Qwen/Qwen2.5-32B-Instruct": 32_763_876_352,
    "Qwen/Qwen2.5-72B-Instruct": 72_706_203_648,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-14B": 14_768_307_200,
    "Qwen/Qwen3-32B": 32_762_123_264,
    "Qwen/Qwen3-30B-A3B-Instruct-2507": 30_532_122_624,
    "Qwen/Qwen3-235B-A22B": 235_093_634_560,
    "mistralai/Mistral-7B-v0.1": 7_241_732_096,
    "mistralai/Mistral-7B-Instruct-v0.3": 7_248_023_552,
    "mistralai/Mixtral-8x7B-Instruct-v0.1": 46_702_792_704,
    "google/gemma-2-2b-it": 2_614_341_888,
    "google/gemma-2-9b-it": 9_241_705_984,
    "google/gemma-2-27b": 27_227_128_320,
    "google/gemma-3-1b-it": 999_885_952,
    "microsoft/phi-4": 14_659_507_200,
    "microsoft/Phi-3-mini-4k-instruct": 3_821_079_552,
    "THUDM/GLM-4-9B-0414": 9_400_279_040,
    "openai/gpt-oss-20b": 20_914_757_184,
    "openai/gpt-oss-120b": 116_829_156_672,
    "deepseek-ai/DeepSeek-V2-Lite-Chat": 15_706_484_224,
    "deepseek-ai/DeepSeek-V3": 671_026_404_352,
    "internlm/internlm2_5-7b-chat": 7_737_708_544,
    "baichuan-inc/Baichuan2-7B-Chat": 7_505_973_248,
    "THUDM/chatglm3-6b": 6_243_584_000,
}


@pytest.mark.parametrize(("name", "count"), PUBLIC_COUNTS.items())
def test_public_model_has_its_published_parameter_count(name: str, count: int) -> None:
    shape = known_shape(name)
    assert shape is not None
    assert shape.parameters == count


@pytest.mark.parametrize("name", ["my-own-model", "Qwen/Qwen9-7B", "llama-3-800b", "", "/models/checkpoint-500"])
def test_unknown_name_is_not_guessed(name: str) -> None:
    assert known_shape(name) is None


def test_local_folder_named_like_the_model_is_recognised() -> None:
    assert known_key("/data/models/Qwen2.5-7B-Instruct/") == "qwen2.5-7b"
    assert known_key("/data/models/Meta-Llama-3-8B") == "llama-3-8b"


def test_mixture_reports_active_parameters() -> None:
    shape = known_shape("Qwen/Qwen3-30B-A3B")
    assert shape is not None
    assert 3.2e9 < shape.active_parameters < 3.5e9
    assert shape.experts == 128 and shape.experts_active == 8
