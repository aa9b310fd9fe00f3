"""A JobSpec in, Workload out: the settings that memory, FLOPs and speed depend on, with the trainer's own defaults filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from backend.domain.job import JobSpec, Offload, ZeroConfig
from backend.domain.problem import ArgValue
from backend.errors import InvalidInput


class Method(StrEnum):
    """LLaMA-Factory's finetuning_type."""

    FULL = "full"
    FREEZE = "freeze"
    LORA = "lora"
    OFT = "oft"


class Attention(StrEnum):
    """Kernels that differ in memory: EAGER keeps the score matrix, the others do not. FA2 also skips padding."""

    EAGER = "eager"
    SDPA = "sdpa"
    FA2 = "fa2"


class Checkpointing(StrEnum):
    """What is kept of a layer for the backward pass: everything, its input, or its input in host memory."""

    NONE = "none"
    LAYERS = "layers"
    HOST = "host"


class Optimizer(StrEnum):
    """Optimizers by the state they keep per trained parameter."""

    ADAM = "adam"
    ADAM_8BIT = "adam_8bit"
    ADAFACTOR = "adafactor"
    SGD = "sgd"
    LION = "lion"
    MUON = "muon"
    GALORE = "galore"
    APOLLO = "apollo"
    BADAM = "badam"
    ADAM_MINI = "adam_mini"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One rank's work. Lengths in tokens, ranks of adapters as LLaMA-Factory names them.

    `bf16_or_fp16` False: fp32 throughout. `pure_bf16` keeps even the trained weights in bf16.
    `quantization_bits` None: not quantized on the fly. `micro_batch` counts rows (packed blocks when `packing`).
    """

    stage: str = "sft"
    method: Method = Method.LORA
    quantization_bits: int | None = None
    double_quantization: bool = True
    bf16_or_fp16: bool = True
    pure_bf16: bool = False
    lora_rank: int = 8
    lora_targets: tuple[str, ...] = ("all",)
    lora_dropout: float = 0.0
    dora: bool = False
    extra_targets: tuple[str, ...] = ()
    freeze_layers: int = 2
    micro_batch: int = 8
    accumulation: int = 1
    world: int = 1
    gpus_per_node: int = 1
    cutoff: int = 2048
    packing: bool = False
    neat_packing: bool = False
    attention: Attention = Attention.SDPA
    checkpointing: Checkpointing = Checkpointing.LAYERS
    reentrant: bool = True
    liger: bool = False
    upcast_layernorm: bool = False
    compile: bool = False
    optimizer: Optimizer = Optimizer.ADAM
    zero_stage: int | None = None
    offload_optimizer: bool = False
    offload_param: bool = False
    reference_model: bool = False
    reduce_bucket: int | None = None
    """Elements of DeepSpeed's reduce bucket; None = its default (or "auto" in stage 3: hidden width squared)."""
    save_only_model: bool = False
    save_total_limit: int | None = None

    @property
    def effective_batch(self) -> int:
        """Rows (or blocks) that one optimizer step sees over all ranks."""
        return self.micro_batch * self.accumulation * self.world

    @property
    def is_preference(self) -> bool:
        """Each row is two sequences: chosen and rejected."""
        return self.stage in ("dpo", "rm")

    @property
    def sequences(self) -> int:
        """Sequences in one micro batch."""
        return self.micro_batch * (2 if self.is_preference else 1)

    @property
    def adapters(self) -> bool:
        return self.method in (Method.LORA, Method.OFT)


def build_workload(spec: JobSpec, *, world: int = 1, gpus_per_node: int = 0, sdpa_default: bool = True) -> Workload:
    """Raises InvalidInput for a value that cannot be read as what it must be.

    `world` is the number of ranks. `sdpa_default`: what `flash_attn: auto` comes to (torch's sdpa wherever it has one).
    """
    args = _Arguments(spec.train)
    zero = zero_of(spec)
    stage = args.text("stage", "sft")
    packing = args.flag("packing", stage == "pt") or args.flag("neat_packing", False)
    return Workload(
        stage=stage,
        method=_method(args),
        quantization_bits=args.optional_whole("quantization_bit"),
        double_quantization=args.flag("double_quantization", True),
        bf16_or_fp16=args.flag("bf16", False) or args.flag("fp16", False) or args.flag("pure_bf16", False),
        pure_bf16=args.flag("pure_bf16", False),
        lora_rank=args.whole("lora_rank", 8),
        lora_targets=args.names("lora_target", ("all",)),
        lora_dropout=args.number("lora_dropout", 0.0),
        dora=args.flag("use_dora", False),
        extra_targets=args.names("additional_target", ()),
        freeze_layers=args.signed("freeze_trainable_layers", 2),
        micro_batch=args.whole("per_device_train_batch_size", 8),
        accumulation=args.whole("gradient_accumulation_steps", 1),
        world=max(1, world),
        gpus_per_node=gpus_per_node or max(1, world),
        cutoff=args.whole("cutoff_len", 2048),
        packing=packing,
        neat_packing=args.flag("neat_packing", False),
        attention=_attention(args.text("flash_attn", "auto"), sdpa_default),
        checkpointing=_checkpointing(args),
        reentrant=args.flag("use_reentrant_gc", True),
        liger=args.flag("enable_liger_kernel", False),
        upcast_layernorm=args.flag("upcast_layernorm", False),
        compile=args.flag("torch_compile", False),
        optimizer=_optimizer(args),
        zero_stage=zero.stage,
        offload_optimizer=zero.offload_optimizer is Offload.CPU,
        offload_param=zero.offload_param is Offload.CPU,
        reference_model=_needs_reference(stage, args),
        save_only_model=args.flag("save_only_model", False),
        save_total_limit=args.optional_whole("save_total_limit"),
    )


def zero_of(spec: JobSpec) -> ZeroConfig:
    """ZeRO as it will run: an inline `deepspeed` mapping wins over `tunedeck.zero` (a path must be read by the caller)."""
    block = spec.train.get("deepspeed")
    if not isinstance(block, dict):
        return spec.zero
    zero = block.get("zero_optimization")
    if not isinstance(zero, dict):
        return ZeroConfig(stage=0)
    stage = zero.get("stage", 0)
    return ZeroConfig(
        stage=stage if isinstance(stage, int) else 0,
        offload_optimizer=_offload(zero.get("offload_optimizer")),
        offload_param=_offload(zero.get("offload_param")),
    )


def _offload(value: ArgValue) -> Offload:
    if not isinstance(value, dict):
        return Offload.NONE
    return Offload.CPU if value.get("device") in ("cpu", "nvme") else Offload.NONE


def _method(args: _Arguments) -> Method:
    text = args.text("finetuning_type", "lora")
    try:
        return Method(text)
    except ValueError as error:
        raise InvalidInput("finetuning_type", found=repr(text), expected="full, freeze, lora or oft") from error


def _attention(text: str, sdpa_default: bool) -> Attention:
    if text in ("fa2", "fa3"):
        return Attention.FA2
    if text == "disabled" or (text == "auto" and not sdpa_default):
        return Attention.EAGER
    return Attention.SDPA


def _checkpointing(args: _Arguments) -> Checkpointing:
    if args.flag("disable_gradient_checkpointing", False):
        return Checkpointing.NONE
    return Checkpointing.HOST if args.flag("use_unsloth_gc", False) else Checkpointing.LAYERS


_SWITCHES = (
    ("use_galore", Optimizer.GALORE),
    ("use_apollo", Optimizer.APOLLO),
    ("use_badam", Optimizer.BADAM),
    ("use_adam_mini", Optimizer.ADAM_MINI),
    ("use_muon", Optimizer.MUON),
)


def _optimizer(args: _Arguments) -> Optimizer:
    for switch, optimizer in _SWITCHES:
        if args.flag(switch, False):
            return optimizer
    name = args.text("optim", "adamw_torch_fused")
    if "8bit" in name or "4bit" in name:
        return Optimizer.ADAM_8BIT
    if "adafactor" in name:
        return Optimizer.ADAFACTOR
    if name.startswith(("sgd", "schedule_free_sgd", "lomo", "adalomo")):
        return Optimizer.SGD
    return Optimizer.LION if "lion" in name or name in ("rmsprop", "adagrad") else Optimizer.ADAM


def _needs_reference(stage: str, args: _Arguments) -> bool:
    """A second model in memory. With LoRA the base model without its adapter serves as reference."""
    if args.text("ref_model", ""):
        return True
    full = args.text("finetuning_type", "lora") not in ("lora", "oft")
    if stage == "dpo":
        return full and args.text("pref_loss", "sigmoid") not in ("orpo", "simpo")
    return stage in ("kto", "ppo") and full


@dataclass(frozen=True, slots=True)
class _Arguments:
    """Typed reads of trainer arguments, with an error that names the argument."""

    train: Mapping[str, ArgValue]

    def text(self, name: str, default: str) -> str:
        value = self.train.get(name)
        return default if value is None else str(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.train.get(name)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false", "yes", "no", "on", "off"):
            return value.lower() in ("true", "yes", "on")
        raise InvalidInput(name, found=repr(value), expected="true or false")

    def number(self, name: str, default: float) -> float:
        value = self.train.get(name)
        if value is None:
            return default
        try:
            return float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise InvalidInput(name, found=repr(value), expected="a number") from error

    def whole(self, name: str, default: int) -> int:
        value = self.signed(name, default)
        if value < 1:
            raise InvalidInput(name, found=str(value), expected="a whole number, 1 or more")
        return value

    def signed(self, name: str, default: int) -> int:
        value = self.train.get(name)
        if value is None:
            return default
        try:
            whole = int(value)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise InvalidInput(name, found=repr(value), expected="a whole number") from error
        return whole

    def optional_whole(self, name: str) -> int | None:
        return None if self.train.get(name) is None else self.whole(name, 0)

    def names(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        value = self.train.get(name)
        if value is None:
            return default
        parts = value if isinstance(value, list) else str(value).split(",")
        return tuple(str(part).strip() for part in parts if str(part).strip())
