import pytest

from backend.planning.cards import CARDS, find_card
from backend.planning.flops import attention_forward, count_flops, utilization
from backend.planning.known_models import known_shape
from backend.planning.model_config import parse_model_shape
from backend.planning.model_shape import ModelShape
from backend.planning.workload import Attention, Checkpointing, Method, Workload


def eight_billion() -> ModelShape:
    shape = known_shape("Meta-Llama-3-8B")
    assert shape is not None
    return shape


def test_full_training_is_about_six_flops_a_parameter_and_token() -> None:
    work = Workload(method=Method.FULL, checkpointing=Checkpointing.NONE)
    flops = count_flops(eight_billion(), work, sequences=1, length=512)
    matrices = eight_billion().parameters - eight_billion().embedding_parameters
    assert flops.model_per_token / (6 * matrices) == pytest.approx(1, abs=0.05)
    assert flops.recompute == 0


def test_lora_skips_the_weight_gradients() -> None:
    lora = count_flops(eight_billion(), Workload(checkpointing=Checkpointing.NONE), sequences=1, length=512)
    full = count_flops(
        eight_billion(), Workload(method=Method.FULL, checkpointing=Checkpointing.NONE), sequences=1, length=512
    )
    assert lora.model / full.model == pytest.approx(2 / 3, abs=0.02)


def test_checkpointing_adds_one_forward_of_the_layers_to_hardware_flops_only() -> None:
    kept = count_flops(eight_billion(), Workload(checkpointing=Checkpointing.NONE), sequences=4, length=512)
    again = count_flops(eight_billion(), Workload(), sequences=4, length=512)
    assert again.model == kept.model
    assert again.hardware > 1.25 * kept.hardware


def test_attention_grows_with_the_square_of_the_length() -> None:
    shape = eight_billion()
    short = attention_forward(shape, sequences=1, length=1024)
    assert attention_forward(shape, sequences=1, length=4096) == 16 * short
    assert attention_forward(shape, sequences=1, length=1024, needed_only=True) == pytest.approx(short / 2, rel=0.01)


def test_window_limits_the_needed_attention() -> None:
    gemma = known_shape("google/gemma-3-1b-it")
    assert gemma is not None
    needed = attention_forward(gemma, sequences=1, length=32768, needed_only=True)
    assert needed < 0.2 * attention_forward(gemma, sequences=1, length=32768)


def test_mixture_counts_only_the_experts_a_token_passes() -> None:
    shape = known_shape("Qwen/Qwen3-30B-A3B")
    assert shape is not None
    flops = count_flops(shape, Workload(method=Method.FULL, checkpointing=Checkpointing.NONE), sequences=1, length=64)
    assert flops.model_per_token == pytest.approx(6 * shape.active_parameters, rel=0.2)


def test_freeze_walks_back_only_through_the_trained_layers() -> None:
    frozen = Workload(method=Method.FREEZE, freeze_layers=2, checkpointing=Checkpointing.NONE)
    flops = count_flops(eight_billion(), frozen, sequences=1, length=512)
    assert flops.backward < 0.35 * flops.forward


def test_eager_attention_backward_is_two_products_less_than_flash() -> None:
    eager = count_flops(eight_billion(), Workload(attention=Attention.EAGER), sequences=1, length=4096)
    flash = count_flops(eight_billion(), Workload(attention=Attention.SDPA), sequences=1, length=4096)
    assert flash.backward - eager.backward == pytest.approx(
        0.5 * attention_forward(eight_billion(), sequences=1, length=4096)
    )


def test_tied_head_is_multiplied_all_the_same() -> None:
    config = {
        "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 4,
        "intermediate_size": 128, "vocab_size": 1000,
    }  # fmt: skip
    loose, tied = (parse_model_shape(config | {"tie_word_embeddings": flag}) for flag in (False, True))
    work = Workload(method=Method.FULL)
    assert count_flops(tied, work, sequences=1, length=8).model == count_flops(loose, work, sequences=1, length=8).model


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("AMD Instinct MI300X OAM", "MI300X"),
        ("AMD Instinct MI250X / MI250", "MI250"),
        ("AMD Instinct MI250X", "MI250X"),
        ("AMD Instinct MI325X", "MI325X"),
        ("AMD Instinct MI300A", "MI300A"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA B200", "B200"),
    ],
)
def test_driver_names_lead_to_their_card(name: str, expected: str) -> None:
    card = find_card(name)
    assert card is not None
    assert card.name == expected


def test_unknown_card_has_no_peak_rather_than_a_guess() -> None:
    assert find_card("Radeon Something") is None
    assert utilization(1e12, 1.0, None).of_peak is None


def test_unknown_amd_part_is_computed_from_its_units() -> None:
    card = find_card("mystery", gfx="gfx942:sramecc+:xnack-", compute_units=38)
    assert card is not None
    assert card.bf16_flops == pytest.approx(163.4e12, rel=0.01)
    assert "computed" in card.source


@pytest.mark.parametrize(("mode", "count"), [("SPX", 1), ("DPX", 2), ("QPX", 4), ("CPX/NPS4", 8)])
def test_partition_gets_its_share_of_the_card(mode: str, count: int) -> None:
    card = find_card("AMD Instinct MI300X", partition=mode)
    whole = find_card("AMD Instinct MI300X")
    assert card is not None and whole is not None
    assert card.bf16_flops == pytest.approx(whole.bf16_flops / count)
    assert card.memory_bytes == whole.memory_bytes // count


def test_measured_matmul_of_this_host_wins_over_the_table() -> None:
    use = utilization(4e14, 1.0, find_card("NVIDIA H200"), measured_matmul=8e14)
    assert use.of_matmul == 0.5
    assert use.matmul_source == "measured on this host"
    assert use.of_peak == pytest.approx(0.404, abs=0.001)


def test_every_card_names_the_source_of_its_figures() -> None:
    assert len({card.name for card in CARDS}) == len(CARDS)
    assert all(card.source for card in CARDS)
    assert all(card.matmul_source for card in CARDS if card.matmul_flops)


def test_seconds_of_zero_are_refused() -> None:
    with pytest.raises(ValueError, match="seconds"):
        utilization(1e12, 0.0, None)
