"""ZeroConfig in, DeepSpeed JSON out ("auto" wherever the trainer decides, so that the two can never disagree)."""

from __future__ import annotations

from backend.domain.job import Offload, ZeroConfig
from backend.domain.problem import ArgValue


def build_deepspeed_config(zero: ZeroConfig) -> dict[str, ArgValue]:
    """The configuration for `zero`, whose stage must be 0 to 3.

    Sources of the values: Hugging Face's DeepSpeed guide ("auto" fields) and DeepSpeed's configuration page. ZeRO-3 gathers
    16-bit weights at save, for without it full fine-tuning leaves no model.safetensors at all.
    """
    if zero.stage is None:
        raise ValueError("no DeepSpeed configuration without a ZeRO stage")
    return {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "zero_allow_untested_optimizer": True,
        "fp16": {
            "enabled": "auto",
            "loss_scale": 0,
            "loss_scale_window": 1000,
            "initial_scale_power": 16,
            "hysteresis": 2,
            "min_loss_scale": 1,
        },
        "bf16": {"enabled": "auto"},
        "zero_optimization": _zero_section(zero),
    }


def _zero_section(zero: ZeroConfig) -> dict[str, ArgValue]:
    section: dict[str, ArgValue] = {"stage": zero.stage}
    if zero.stage in (1, 2):
        section |= {
            "allgather_partitions": True,
            "allgather_bucket_size": 500_000_000,
            "overlap_comm": True,
            "reduce_scatter": True,
            "reduce_bucket_size": 500_000_000,
            "contiguous_gradients": True,
            "round_robin_gradients": True,
        }
    if zero.stage == 3:
        section |= {
            "overlap_comm": True,
            "contiguous_gradients": True,
            "sub_group_size": 1_000_000_000,
            "reduce_bucket_size": "auto",
            "stage3_prefetch_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto",
            "stage3_max_live_parameters": 1_000_000_000,
            "stage3_max_reuse_distance": 1_000_000_000,
            "stage3_gather_16bit_weights_on_model_save": True,
        }
    # An absent block means no offload; `device: none` would mean the same and reads like a mistake.
    if zero.stage and zero.offload_optimizer is Offload.CPU:
        section["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if zero.stage == 3 and zero.offload_param is Offload.CPU:
        section["offload_param"] = {"device": "cpu", "pin_memory": True}
    return section
