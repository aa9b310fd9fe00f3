from dataclasses import replace

import pytest

from backend.domain.advice import Advice, Basis, Effect
from backend.domain.job import JobSpec
from backend.planning.advice_texts import TEXTS
from backend.planning.communication import moved_bytes
from backend.planning.known_models import known_shape
from backend.planning.lengths import Lengths, build_lengths
from backend.planning.memory import GIB, Card, plan_memory, trainable_parameters, weight_bytes
from backend.planning.profiles import advise_profile, build_profiles
from backend.planning.spec import apply_changes, parse_spec
from backend.planning.speed import SpeedContext, plan_speed
from backend.planning.speed_running import DeviceFacts, RunningContext, RunningFacts, StepParts, advise_running
from backend.planning.steptime import Machine, calibrate, predict_step
from backend.planning.variants import Abilities, build_fix, packed_like, rows_per_step
from backend.planning.workload import Attention, Checkpointing, Method, Workload, build_workload
from ui.text.advice_zh import TEXT as CHINESE

H200 = Card(capacity_bytes=143_771 << 20)
DEFAULTS = Workload(micro_batch=2, accumulation=8)


def alpaca_like() -> Lengths:
    """Short rows with a long tail: mean about 160 tokens, longest 760."""
    lengths = build_lengths([round(60 + 700 * (rank / 1000) ** 6) for rank in range(1, 1001)], rows=12_000)
    assert lengths is not None
    return lengths


def context(work: Workload, **more: object) -> SpeedContext:
    plain = SpeedContext(
        spec=JobSpec(name="job", train={}),
        work=work,
        shape=known_shape("Meta-Llama-3-8B"),
        lengths=alpaca_like(),
        card=H200,
        abilities=Abilities(liger=True),
    )
    return replace(plain, **more)  # type: ignore[arg-type]


def codes(advices: tuple[Advice, ...]) -> list[str]:
    return [advice.code for advice in advices]


def test_defaults_are_told_of_packing_micro_batch_liger_sdpa_and_checkpointing() -> None:
    plan = plan_speed(context(replace(DEFAULTS, attention=Attention.EAGER)))
    assert {
        "packing_saves_padding",
        "micro_batch_small",
        "liger_saves_traffic",
        "attention_slow",
        "checkpointing_unneeded",
    } <= set(codes(plan.advices))
    assert plan.gain is not None and plan.gain > 8
    assert plan.best_work is not None
    assert rows_per_step(plan.best_work, alpaca_like()) == pytest.approx(16, rel=0.1)


@pytest.mark.parametrize(
    ("work", "code", "least"),
    [
        (replace(DEFAULTS, zero_stage=3), "zero3_unneeded", 3),
        (replace(DEFAULTS, zero_stage=3, offload_param=True, offload_optimizer=True), "offload_unneeded", 5),
        (replace(DEFAULTS, zero_stage=2), "zero_unneeded", 1.2),
    ],
)
def test_zero_on_a_model_that_fits_is_the_first_advice_or_a_warning(work: Workload, code: str, least: float) -> None:
    plan = plan_speed(context(work))
    advice = next(advice for advice in plan.advices if advice.code == code)
    assert advice.severity == "warning"
    assert advice.gain is not None and advice.gain > least
    assert advice.basis is Basis.ESTIMATE


def test_nothing_that_does_not_fit_is_proposed() -> None:
    small = Card(capacity_bytes=24 * GIB)
    plan = plan_speed(context(DEFAULTS, card=small))
    assert plan.best_memory is not None and plan.best_memory.fits
    full = replace(DEFAULTS, method=Method.FULL, zero_stage=3, offload_optimizer=True, world=2, gpus_per_node=2)
    assert "offload_unneeded" not in codes(plan_speed(context(full, card=Card(capacity_bytes=48 * GIB))).advices)


def test_without_a_known_card_no_advice_needs_more_memory() -> None:
    plan = plan_speed(context(DEFAULTS, card=None))
    shape = known_shape("Meta-Llama-3-8B")
    assert shape is not None and plan.best_work is not None
    assert plan_memory(shape, plan.best_work, alpaca_like()).used <= plan_memory(shape, DEFAULTS, alpaca_like()).used


def test_every_change_of_the_result_is_said() -> None:
    long_tail = build_lengths([100] * 95 + [9000] * 5)
    plan = plan_speed(context(DEFAULTS, lengths=long_tail))
    packing = next(advice for advice in plan.advices if advice.code == "packing_saves_padding")
    assert {Effect.LOSS, Effect.ROW_ORDER, Effect.ROWS_DROPPED} <= set(packing.effects)
    assert "drops rows" in packing.effect_text and "5.0%" in packing.effect_text
    assert all(advice.effect_text for advice in plan.advices if advice.effects)


def test_a_good_job_gets_no_advice() -> None:
    plan = plan_speed(context(DEFAULTS))
    assert plan.best_work is not None
    again = plan_speed(context(plan.best_work))
    assert again.advices == () and again.best_fix is None and again.gain == pytest.approx(1)


def test_an_unsupported_model_is_not_told_to_use_liger() -> None:
    shape = known_shape("chatglm3-6b")
    assert "liger_saves_traffic" not in codes(plan_speed(context(DEFAULTS, shape=shape)).advices)
    assert "liger_saves_traffic" not in codes(plan_speed(context(DEFAULTS, abilities=Abilities())).advices)


def test_the_fix_applied_to_the_document_gives_the_variant_that_was_predicted() -> None:
    text = (
        "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\nbf16: true\nflash_attn: disabled\n"
        "per_device_train_batch_size: 2\ngradient_accumulation_steps: 8\n"
        "tunedeck:\n  zero: {stage: 3, offload_optimizer: cpu, offload_param: cpu}\n"
    )
    work = build_workload(parse_spec(text))
    plan = plan_speed(context(work))
    assert plan.best_fix is not None and plan.best_work is not None
    fixed = apply_changes(text, plan.best_fix.set, plan.best_fix.remove)
    assert build_workload(parse_spec(fixed)) == plan.best_work


def test_packed_forms_keep_the_rows_of_a_step() -> None:
    for rows in (1, 3, 16, 64, 500):
        work = Workload(micro_batch=rows, accumulation=1)
        for packed in packed_like(work, alpaca_like()):
            assert rows_per_step(packed, alpaca_like()) == pytest.approx(rows, rel=0.101)
            assert packed.cutoff >= alpaca_like().longest


def test_predicted_order_of_known_measurements_is_right() -> None:
    """The H200 figures of docs/speed.md, slowest first; ZeRO-3 is slowest and packing without checkpointing fastest."""
    shape, lengths = known_shape("Meta-Llama-3-8B"), alpaca_like()
    assert shape is not None
    four = replace(DEFAULTS, micro_batch=4, accumulation=4)
    packed = replace(DEFAULTS, packing=True, liger=True, accumulation=1)
    order = [
        replace(four, zero_stage=3),
        replace(DEFAULTS, attention=Attention.EAGER),
        replace(four, zero_stage=2),
        replace(packed, micro_batch=8),
        replace(packed, micro_batch=4, checkpointing=Checkpointing.NONE),
    ]
    rates = [predict_step(shape, work, lengths, Machine()).tokens_per_second for work in order]
    assert rates == sorted(rates)
    assert rates[-1] > 8 * rates[1]


def test_calibration_reproduces_the_measured_step() -> None:
    shape = known_shape("Meta-Llama-3-8B")
    assert shape is not None
    predicted = predict_step(shape, DEFAULTS, alpaca_like(), Machine())
    machine = calibrate(Machine(), predicted, 2 * predicted.seconds)
    assert predict_step(shape, DEFAULTS, alpaca_like(), machine).seconds == pytest.approx(2 * predicted.seconds)


def test_rules_without_figures_speak_from_the_settings() -> None:
    spec = JobSpec(name="job", train={"optim": "adamw_torch", "save_steps": 10})
    work = replace(DEFAULTS, quantization_bits=4, packing=True, neat_packing=True, bf16_or_fp16=True)
    found = codes(plan_speed(context(work, spec=spec, checkpoint_seconds=30.0, cpu_count=16)).advices)
    assert {"optimizer_not_fused", "quantization_unneeded", "neat_packing_mask", "saves_too_often"} <= set(found)
    galore = JobSpec(name="job", train={"optim": "adamw_torch", "use_galore": True})
    assert "optimizer_not_fused" not in codes(plan_speed(context(work, spec=galore)).advices)


def running(**facts: object) -> tuple[Advice, ...]:
    steady: dict[str, object] = {"steps": [9.0, 5.0, 2.0] + [1.0] * 40}
    return advise_running(
        RunningContext(
            facts=RunningFacts(**(steady | facts)),  # type: ignore[arg-type]
            work=DEFAULTS,
            shape=known_shape("Meta-Llama-3-8B"),
            lengths=alpaca_like(),
        )
    )


def test_a_run_that_just_started_or_runs_well_gets_no_advice() -> None:
    assert running(steps=[1.0] * 5, waits=[0.9] * 5) == ()
    assert running() == ()


def test_waiting_for_data_is_measured_and_its_gain_follows() -> None:
    (advice,) = running(waits=[5.0, 3.0, 1.0] + [0.25] * 40)
    assert advice.code == "data_wait" and advice.basis is Basis.MEASURED
    assert advice.gain == pytest.approx(4 / 3)


def test_slow_rank_power_cap_heat_idle_saves_and_drift_are_found() -> None:
    device = DeviceFacts(
        name="GPU 1", activity_percent=40.0, power_watts=448.0, power_cap_watts=450.0, power_default_watts=750.0,
        throttled_percent=12.0,
    )  # fmt: skip
    found = running(
        rank_steps={0: 1.0, 1: 1.3, 2: 1.0},
        devices=(device,),
        save_seconds=[5.0, 5.0],
        elapsed_seconds=100.0,
        evaluation_seconds=20.0,
        parts=StepParts(first=5, last=7, communication=0.4, idle=0.6),
        steps=[1.0] * 60 + [1.5] * 60,
    )
    assert set(codes(found)) == {
        "rank_slow", "power_capped", "thermal_throttling", "gpu_idle", "saves_measured", "evaluation_measured",
        "communication_high", "slower_than_before",
    }  # fmt: skip


def zero3(**facts: object) -> tuple[Advice, ...]:
    """A LoRA run on four 192 GiB cards under ZeRO-3, profiled."""
    known: dict[str, object] = {
        "steps": [1.0] * 40, "capacity_bytes": 192 * GIB, "parts": StepParts(first=5, last=7, communication=0.5),
    }  # fmt: skip
    return advise_running(
        RunningContext(
            facts=RunningFacts(**(known | facts)),  # type: ignore[arg-type]
            work=replace(DEFAULTS, zero_stage=3, world=4),
            shape=known_shape("Meta-Llama-3-8B"),
            lengths=alpaca_like(),
        )
    )


def test_measured_communication_names_the_lighter_zero_that_fits_and_counts_its_bytes() -> None:
    (advice,) = zero3()
    assert (advice.code, advice.basis, advice.expected) == ("communication_zero", Basis.MEASURED, "DDP")
    # Adapters are 0.3 % of the weights that ZeRO-3 gathers: nearly all of the exposed half of the step goes.
    assert advice.gain == pytest.approx(2.0, rel=0.02)
    assert advice.fix is not None and "tunedeck.zero" in advice.fix.remove
    assert "5-7" in advice.reason and "50%" in advice.reason


def test_communication_that_no_setting_saves_points_at_the_links() -> None:
    (unknown_card,) = zero3(capacity_bytes=None)
    assert unknown_card.code == "communication_high" and unknown_card.fix is None and unknown_card.gain is None
    (small_card,) = zero3(capacity_bytes=12 * GIB)  # the whole model fits only in shards
    assert small_card.code == "communication_high"
    assert zero3(parts=StepParts(first=5, last=7, communication=0.1)) == (), "little communication is no advice"


def test_zero2_communicates_in_every_micro_batch_and_zero1_once_a_step() -> None:
    shape = known_shape("Meta-Llama-3-8B")
    assert shape is not None
    full = replace(DEFAULTS, method=Method.FULL, accumulation=8, world=4)
    gradients = 2 * trainable_parameters(shape, full)
    assert moved_bytes(shape, replace(full, zero_stage=1)) == 2 * gradients
    assert moved_bytes(shape, replace(full, zero_stage=2)) == 9 * gradients
    assert moved_bytes(shape, replace(full, zero_stage=3)) == 8 * (2 * weight_bytes(shape, full) + gradients)


def test_profiled_idle_and_late_rank_speak_instead_of_the_activity_counter() -> None:
    device = DeviceFacts(name="GPU 0", activity_percent=99.0)
    parts = StepParts(first=5, last=7, idle=0.4, late_rank=2, late_share=0.25)
    late, idle = running(parts=parts, devices=(device,), rank_steps={0: 1.0, 1: 1.0, 2: 1.0})
    assert (late.code, late.evidence["rank"], late.gain) == ("rank_late", 2, pytest.approx(4 / 3))
    assert idle.code == "gpu_idle" and idle.found == "60%"


def test_missing_telemetry_gives_no_advice() -> None:
    assert running(devices=(DeviceFacts(name="GPU 0"),)) == ()


def test_free_memory_after_the_measured_peak_allows_a_larger_micro_batch() -> None:
    (advice,) = running(peak_bytes=25 * GIB, capacity_bytes=H200.capacity_bytes)
    assert advice.code == "memory_left" and advice.fix is not None
    size, accumulation = (advice.fix.set[key] for key in ("per_device_train_batch_size", "gradient_accumulation_steps"))
    assert isinstance(size, int) and isinstance(accumulation, int)
    assert size > 2 and size * accumulation == 16
    assert running(peak_bytes=130 * GIB, capacity_bytes=H200.capacity_bytes) == ()


def test_112_channels_only_with_all_eight_gpus() -> None:
    eight, four = build_profiles("gfx942:sramecc+", 8), build_profiles("gfx942", 4)
    assert "NCCL_MIN_NCHANNELS" in eight[1].env and "NCCL_MIN_NCHANNELS" not in four[1].env
    assert [profile.name for profile in build_profiles("sm_90", 8)] == ["plain"]
    assert all(v.reason and v.source for profile in eight for v in profile.variables)


def test_profile_advice_names_only_what_is_not_set_yet() -> None:
    advice = advise_profile("gfx942", 2, {"HIP_FORCE_DEV_KERNARG": "1"}, "MI300X")
    assert advice is not None and advice.fix is not None
    assert "tunedeck.env.HIP_FORCE_DEV_KERNARG" not in advice.fix.set
    assert advise_profile("gfx90a", 2, {}, "MI250X") is None


def test_every_advice_has_its_chinese_words_with_the_same_values() -> None:
    assert set(TEXTS) == set(CHINESE)
    for code, text in TEXTS.items():
        for english, chinese in zip((text.reason, text.remedy), CHINESE[code], strict=True):
            for part in chinese.split("{")[1:]:
                assert "{" + part.split("}")[0] + "}" in text.reason + text.remedy, code
            assert bool(english) == bool(chinese)


def test_fix_of_equal_workloads_is_empty() -> None:
    fix = build_fix(DEFAULTS, DEFAULTS)
    assert (dict(fix.set), fix.remove) == ({}, ())
