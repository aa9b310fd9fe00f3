import json
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from backend.planning.known_models import known_shape
from backend.planning.lengths import build_lengths
from backend.planning.memory import (
    GIB,
    Card,
    MeasuredPeak,
    checkpoint_bytes,
    largest_micro_batch,
    peak_batch,
    plan_memory,
    trainable_parameters,
    weight_bytes,
)
from backend.planning.model_shape import ModelShape
from backend.planning.workload import Attention, Checkpointing, Method, Workload

MEASURED = Path(__file__).parents[2] / "data" / "memory" / "h200.json"
"""Peaks of torch on one H200 with an 8B Llama (docs/evidence/one-h200.md, third run): settings, longest row met, GiB."""

H200 = Card(capacity_bytes=143_771 << 20)


def eight_billion() -> ModelShape:
    shape = known_shape("Meta-Llama-3-8B")
    assert shape is not None
    return shape


PACKED = Workload(packing=True, liger=True, micro_batch=4, cutoff=2048, checkpointing=Checkpointing.NONE)


def test_parts_of_the_bar_sum_up_to_what_the_driver_sees() -> None:
    for work in (PACKED, Workload(micro_batch=2), Workload(method=Method.FULL, micro_batch=1, zero_stage=3, world=8)):
        plan = plan_memory(eight_billion(), work, card=H200)
        assert sum(part.size for part in plan.parts) == plan.used
        assert plan.low < plan.used < plan.high


def test_lora_counts_its_adapters_exactly() -> None:
    per_layer = 8 * ((4096 + 4096) * 2 + (4096 + 1024) * 2 + (4096 + 14336) * 3)
    assert trainable_parameters(eight_billion(), Workload()) == 32 * per_layer == 20_971_520
    only = Workload(lora_targets=("q_proj", "v_proj"), lora_rank=16)
    assert trainable_parameters(eight_billion(), only) == 32 * 16 * (8192 + 5120)


def test_full_training_without_zero_needs_sixteen_bytes_a_parameter() -> None:
    plan = plan_memory(eight_billion(), Workload(method=Method.FULL, micro_batch=1, cutoff=64), card=H200)
    assert plan.allocated / eight_billion().parameters == pytest.approx(16, rel=0.02)
    assert plan.fits is True


def test_zero_shards_shrink_with_the_ranks() -> None:
    full = Workload(method=Method.FULL, micro_batch=1, cutoff=512)
    used = [plan_memory(eight_billion(), replace(full, zero_stage=3, world=ranks)).allocated for ranks in (1, 2, 4, 8)]
    assert used == sorted(used, reverse=True)
    assert used[0] > 3 * used[3]


def test_offloaded_states_move_to_the_host() -> None:
    work = Workload(method=Method.FULL, micro_batch=1, cutoff=512, zero_stage=3, world=2, gpus_per_node=2)
    kept = plan_memory(eight_billion(), work)
    moved = plan_memory(eight_billion(), replace(work, offload_optimizer=True, offload_param=True))
    assert moved.used < kept.used - 20 * GIB
    assert moved.host_bytes > kept.host_bytes + 16 * eight_billion().parameters


def test_four_bit_weights_take_about_a_quarter() -> None:
    whole = weight_bytes(eight_billion(), Workload())
    nf4 = weight_bytes(eight_billion(), Workload(quantization_bits=4))
    assert whole == 2 * eight_billion().parameters
    assert 0.33 < nf4 / whole < 0.37  # embedding and head stay in half precision


def test_liger_removes_the_logits_and_checkpointing_most_of_the_layers() -> None:
    plain = Workload(micro_batch=8, packing=True, checkpointing=Checkpointing.NONE)
    shape = eight_billion()
    base = plan_memory(shape, plain).allocated
    assert plan_memory(shape, replace(plain, liger=True)).allocated < base - 8 * 2048 * 128256 * 8
    assert plan_memory(shape, replace(plain, checkpointing=Checkpointing.LAYERS)).allocated < base / 2


def test_eager_attention_grows_with_the_square_of_the_length() -> None:
    shape = eight_billion()

    def extra(cutoff: int) -> int:
        work = Workload(micro_batch=1, packing=True, cutoff=cutoff, liger=True, checkpointing=Checkpointing.NONE)
        eager = plan_memory(shape, replace(work, attention=Attention.EAGER)).allocated
        return eager - plan_memory(shape, work).allocated

    assert extra(4096) > 3.5 * extra(2048)


def test_full_dpo_holds_a_second_model_and_lora_does_not() -> None:
    lora = plan_memory(eight_billion(), Workload(stage="dpo", micro_batch=1))
    full = plan_memory(eight_billion(), Workload(stage="dpo", method=Method.FULL, micro_batch=1, reference_model=True))
    assert "reference" not in {part.name for part in lora.parts}
    assert {part.name: part.size for part in full.parts}["reference"] == weight_bytes(eight_billion(), Workload())


def test_longest_rows_of_the_data_decide_the_peak_not_the_cutoff() -> None:
    short = build_lengths([40] * 900 + [300] * 100)
    assert short is not None
    batch = peak_batch(Workload(micro_batch=4), short, micro_batches=1000)
    assert batch.length == 304
    assert peak_batch(Workload(micro_batch=4), None, 1000).length == 2048
    with_data = plan_memory(eight_billion(), Workload(micro_batch=4), short)
    without = plan_memory(eight_billion(), Workload(micro_batch=4))
    assert with_data.allocated < without.allocated
    assert any("not known" in doubt for doubt in without.doubts) and not with_data.doubts


def test_largest_micro_batch_is_the_last_that_fits() -> None:
    shape = eight_billion()
    most = largest_micro_batch(shape, PACKED, H200)
    assert plan_memory(shape, replace(PACKED, micro_batch=most), card=H200).fits
    assert not plan_memory(shape, replace(PACKED, micro_batch=most + 1), card=H200).fits
    assert largest_micro_batch(shape, PACKED, Card(capacity_bytes=8 * GIB)) == 0


def test_finished_runs_correct_the_plan_and_narrow_its_band() -> None:
    shape = eight_billion()
    plain = plan_memory(shape, PACKED, card=H200)
    runs = [MeasuredPeak(planned=100, measured=measured) for measured in (109, 110, 111)]
    corrected = plan_memory(shape, PACKED, card=H200, history=runs)
    assert corrected.corrected_by == 3
    assert corrected.allocated > plain.allocated
    assert corrected.high - corrected.low < plain.high - plain.low
    other = [replace(run, same_family=False) for run in runs]
    assert plan_memory(shape, PACKED, card=H200, history=other).allocated == plain.allocated


def test_without_a_card_fitting_is_unknown() -> None:
    plan = plan_memory(eight_billion(), PACKED)
    assert (plan.fits, plan.may_fit, plan.free_bytes) == (None, None, None)


def test_adapter_checkpoint_is_small_and_a_full_one_holds_the_optimizer() -> None:
    shape = eight_billion()
    adapter = checkpoint_bytes(shape, Workload())
    assert adapter == 20_971_520 * (4 + 8)
    assert checkpoint_bytes(shape, Workload(save_only_model=True)) == 20_971_520 * 4
    full = checkpoint_bytes(shape, Workload(method=Method.FULL, zero_stage=3, world=8))
    assert full == shape.parameters * (2 + 4 + 8)
    assert plan_memory(shape, Workload(save_total_limit=2)).disk_bytes == 2 * adapter


def test_unknown_architecture_widens_the_band_and_says_why() -> None:
    unsure = replace(eight_billion(), estimate="counted as a Llama-like decoder")
    sure_plan, unsure_plan = plan_memory(eight_billion(), PACKED), plan_memory(unsure, PACKED)
    assert unsure_plan.high - unsure_plan.low > 2 * (sure_plan.high - sure_plan.low)
    assert "counted as a Llama-like decoder" in unsure_plan.doubts


def test_plan_meets_the_peaks_measured_on_a_real_card() -> None:
    errors = {}
    for row in json.loads(MEASURED.read_text()):
        given = row["work"]
        kinds = {"method": Method, "attention": Attention, "checkpointing": Checkpointing}
        work = Workload(**given | {name: kind(given[name]) for name, kind in kinds.items() if name in given})
        plan = plan_memory(eight_billion(), work, build_lengths([row["longest"]] * 8), H200)
        errors[str(given)] = plan.allocated / (row["measured_gib"] * GIB) - 1
    worst = max(errors, key=lambda name: abs(errors[name]))
    assert len(errors) >= 35
    assert statistics.median(map(abs, errors.values())) < 0.005
    assert abs(errors[worst]) < 0.07, worst
    assert min(errors.values()) > -0.015, "a plan that is too small runs out of memory"
