"""A train YAML in, everything that LLaMA-Factory would reject out, before any weights are read.

`dry_run.py [--parse-only] [--accelerator cpu|cuda|rocm] [--processes N] [--rows N] FILE...` in the training environment.
One line a file on stdout, behind TUNEDECK_DRY_RUN:
{"file", "ok", "errors": [{"stage", "type", "message", "dataset"?, "argument"?}], "warnings": [same], "facts": {...}, "seconds"}.
It asks LLaMA-Factory's own parser, template, converter and tokenizer, and DeepSpeed's own configuration classes. GPUs are
hidden from it, so that it takes none; the accelerator that is named stands in for them. Nothing is downloaded.
Exit code: 0 all files pass, 1 one does not, 2 usage.
"""

from __future__ import annotations

import argparse
import copy
import enum
import importlib
import json
import os
import signal
import sys
import time
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

MARK = "TUNEDECK_DRY_RUN "
DATA_SECONDS = 10.0  # for all data sets together; what was not reached by then is said
COUNT_BYTES = 1 << 28  # rows of larger files are not counted
STAGE_OF_DATA = {"dpo": "rm"}


@dataclass
class Findings:
    """What was found in one file."""

    errors: list[dict[str, str]] = field(default_factory=list)
    warnings: list[dict[str, str]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str, **where: str) -> Iterator[None]:
        """What the block raises is a finding of this stage."""
        try:
            yield
        except TimeoutError as error:
            self.warnings.append({"stage": name, "type": "TooSlow", "message": str(error)} | where)
        except Exception as error:  # noqa: BLE001 - whatever the trainer's code raises here, it would raise in training
            if not any(known["stage"] == name and where.items() <= known.items() for known in self.errors):
                self.errors.append({"stage": name, "type": type(error).__name__, "message": message_of(error)} | where)

    def warn(self, stage: str, message: str, **where: str) -> None:
        """Not wrong, but worth saying."""
        self.warnings.append({"stage": stage, "type": "Warning", "message": message} | where)


def main(arguments: Sequence[str]) -> int:
    """Check the files; see the module's text."""
    options = read_options(arguments)
    forget_script_folder()
    stand_in_for_ranks(options.processes)
    stand_in_for_accelerator(options.accelerator)
    good = True
    for file in options.files:
        begun = time.monotonic()
        found = Findings()
        check(Path(file), found, parse_only=options.parse_only, rows=options.rows)
        good = good and not found.errors
        report = {
            "file": file,
            "ok": not found.errors,
            "errors": found.errors,
            "warnings": found.warnings,
            "facts": found.facts,
        }
        report["seconds"] = round(time.monotonic() - begun, 2)
        print(MARK + json.dumps(report, ensure_ascii=False, default=str), flush=True)
    return 0 if good else 1


def read_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Options of the command line; leaves with code 2 and a usage line when they are wrong."""
    parser = argparse.ArgumentParser(
        description="Ask LLaMA-Factory and DeepSpeed what they would reject in a train YAML."
    )
    parser.add_argument("--parse-only", action="store_true", help="arguments and DeepSpeed configuration only")
    parser.add_argument("--accelerator", choices=("cpu", "cuda", "rocm"), default="cpu")
    parser.add_argument("--processes", type=int, default=1, help="ranks that will train")
    parser.add_argument("--rows", type=int, default=64, help="first rows of each data set to convert and tokenize")
    parser.add_argument("files", nargs="+", metavar="FILE")
    return parser.parse_args(arguments)


def check(file: Path, found: Findings, *, parse_only: bool, rows: int) -> None:
    """All stages; later ones need the earlier ones' results."""
    with found.stage("parse"):
        settings = read_yaml(file)
    if found.errors:
        return
    with found.stage("parse"):
        model, data, training, finetuning, _ = parse(settings)
    if found.errors:
        return
    found.facts |= {
        "stage": finetuning.stage,
        "finetuning_type": finetuning.finetuning_type,
        "world_size": training.world_size,
    }
    check_values(settings, (model, data, finetuning), found)
    check_known_traps(finetuning.stage, data, training, found)
    if parse_only:
        check_deepspeed(training, None, found)
        return
    with found.stage("model"):
        path = Path(model.model_name_or_path)
        if path.is_absolute() and not (path / "config.json").is_file():
            raise FileNotFoundError(f"model_name_or_path: found {path}, expected a folder with a config.json.")
    if any(error["stage"] == "model" for error in found.errors):
        return
    with found.stage("model"):
        check_model(model, finetuning, training, found)
    with found.stage("tokenizer"):
        check_data(model, data, training, finetuning, rows, found)


# -- standing in for ranks and devices --------------------------------------------------------------------------------------


def stand_in_for_ranks(processes: int) -> None:
    """Be rank 0 of `processes` without the others: torch's own fake process group answers every collective at once."""
    for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        os.environ[variable] = ""
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2"),
    }
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=processes, store=FakeStore())
    try:
        from deepspeed import comm
    except ImportError:
        return
    comm.init_distributed = lambda *_, **__: None  # it would compile its own communication for a CPU


def stand_in_for_accelerator(accelerator: str) -> None:
    """Answer the parser's question for bf16 (and, for CUDA, TF32) as the accelerator would: every supported one has both."""
    from llamafactory.hparams import parser
    from transformers import training_args

    if accelerator != "cpu":
        training_args.is_torch_bf16_gpu_available = lambda: True
        parser.is_torch_bf16_gpu_available = lambda: True
    if accelerator == "cuda":
        training_args.is_torch_tf32_available = lambda: True


# -- arguments --------------------------------------------------------------------------------------------------------------


def read_yaml(file: Path) -> dict[str, Any]:
    """The file as LLaMA-Factory reads it. Raises ValueError when it is no mapping, and what OmegaConf raises."""
    from omegaconf import OmegaConf

    content = OmegaConf.to_container(OmegaConf.load(file))
    if not isinstance(content, dict):
        raise ValueError(f"{file} holds no mapping of arguments.")
    return {str(key): value for key, value in content.items()}


def parse(settings: Mapping[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
    """LLaMA-Factory's five groups of arguments. Raises what its parser raises."""
    from llamafactory.hparams import get_train_args
    from transformers.integrations.deepspeed import unset_hf_deepspeed_config

    unset_hf_deepspeed_config()  # of the file before
    parsed: tuple[Any, Any, Any, Any, Any] = get_train_args(dict(settings))
    return parsed


def check_values(settings: Mapping[str, Any], groups: Sequence[Any], found: Findings) -> None:
    """Choices and number types: the parser validates them on a command line, and not at all in a YAML."""
    for group in groups:
        hints = typing.get_type_hints(type(group))
        for name in settings.keys() & hints.keys():
            kinds = [kind for kind in typing.get_args(hints[name]) or (hints[name],) if kind is not type(None)]
            value, choices = settings[name], choices_of(hints[name])
            if choices and value is not None and value not in choices:
                expected = ", ".join(str(choice) for choice in choices)
                with found.stage("arguments", argument=name):
                    raise ValueError(f"{name}: found {value!r}, expected one of {expected}")
            if set(kinds) <= {int, float} and isinstance(value, str):
                found.warn("arguments", f"{name}: found the text {value!r} where a number is expected.", argument=name)


def choices_of(hint: Any) -> list[Any]:
    """Legal values of a Literal or Enum, alone or optional; [] where anything goes."""
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    if typing.get_origin(hint) is typing.Literal:
        return list(typing.get_args(hint))
    if len(kinds) == 1:
        return choices_of(kinds[0])
    return [member.value for member in hint] if isinstance(hint, type) and issubclass(hint, enum.Enum) else []


def check_known_traps(stage: str, data: Any, training: Any, found: Findings) -> None:
    """What the parser accepts and training rejects minutes later."""
    from llamafactory.data.template import TEMPLATES

    with found.stage("template"):
        if data.template is not None and data.template not in TEMPLATES:
            raise ValueError(f"Template {data.template} does not exist.")
        if data.train_on_prompt and getattr(TEMPLATES.get(data.template), "efficient_eos", False):
            raise ValueError("Current template does not support `train_on_prompt`.")
    with found.stage("packages"):
        if stage == "ppo" and not version("trl").startswith(("0.8.", "0.9.")):
            raise ImportError(
                f"stage ppo needs trl 0.8.6 to 0.9.6, here is {version('trl')}, which the other stages need."
            )
    with found.stage("deepspeed"):
        if training.deepspeed and training.use_cpu:
            raise ValueError("use_cpu does not go with deepspeed: on a CPU host leave use_cpu out and train in fp32.")


# -- DeepSpeed --------------------------------------------------------------------------------------------------------------


def check_deepspeed(training: Any, config: Any, found: Findings) -> None:
    """The DeepSpeed configuration, filled in by transformers, in DeepSpeed's own classes. `config` is the model's, if known."""
    if not training.deepspeed:
        return
    with found.stage("deepspeed"):
        from deepspeed.runtime.config import DeepSpeedConfig

        filled = training.hf_deepspeed_config
        steps = training.max_steps if training.max_steps > 0 else 1000
        filled.trainer_config_finalize(training, _Model(config or _Sizes()), steps)
        settings = copy.deepcopy(filled.config)
        # The three batch sizes were compared above with the true number of ranks; alone, DeepSpeed would count one rank.
        settings["train_batch_size"] = (
            settings["train_micro_batch_size_per_gpu"] * settings["gradient_accumulation_steps"]
        )
        checked = DeepSpeedConfig(settings)
        found.facts["zero_stage"] = int(checked.zero_optimization_stage)
        zero = settings.get("zero_optimization", {})
        if checked.zero_optimization_stage == 3 and not checked.zero_config.gather_16bit_weights_on_model_save:
            found.warn(
                "deepspeed",
                "stage3_gather_16bit_weights_on_model_save is off: a full fine-tune writes no model.safetensors, only "
                "DeepSpeed's shards (zero_to_fp32.py recovers them).",
            )
        found.facts["offload"] = [name for name in ("offload_optimizer", "offload_param") if offloads(zero.get(name))]


def offloads(section: Any) -> bool:
    """Whether an offload section really moves something."""
    return isinstance(section, dict) and str(section.get("device", "none")) != "none"


class _Sizes:
    hidden_size = 4096  # only fills "auto" bucket sizes, when the model is not looked at


@dataclass(frozen=True)
class _Model:
    config: Any


# -- model ------------------------------------------------------------------------------------------------------------------


def check_model(model: Any, finetuning: Any, training: Any, found: Findings) -> None:
    """The model's configuration, its attention, and the names of the modules to train. Reads no weights."""
    from llamafactory.model.loader import load_config
    from llamafactory.model.model_utils.attention import configure_attn_implementation

    config = load_config(model)
    found.facts["model_type"] = config.model_type
    found.facts["vocabulary"] = getattr(config, "vocab_size", None)
    found.facts["max_positions"] = getattr(config, "max_position_embeddings", None)
    with found.stage("attention"):
        configure_attn_implementation(config, model)
        found.facts["attention"] = getattr(config, "_attn_implementation", None) or "sdpa where the model has it"
    check_deepspeed(training, config, found)
    targets = [name for name in finetuning.lora_target if name != "all"] if finetuning.finetuning_type == "lora" else []
    if targets:
        with found.stage("modules"):
            check_targets(config, targets, found)


def check_targets(config: Any, targets: Sequence[str], found: Findings) -> None:
    """LoRA's target modules must exist; the model is built without memory to look."""
    import torch
    from transformers import AutoModelForCausalLM

    if type(config) not in AutoModelForCausalLM._model_mapping:
        return
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(config)
    names = [name for name, _ in built.named_modules()]
    missing = [target for target in targets if not any(name == target or name.endswith(f".{target}") for name in names)]
    linear = sorted(
        {name.rsplit(".", 1)[-1] for name, module in built.named_modules() if isinstance(module, torch.nn.Linear)}
    )
    if len(missing) == len(targets):
        raise ValueError(
            f"Target modules {', '.join(missing)} not found in the base model. It has: {', '.join(linear)}."
        )
    if missing:
        found.warn(
            "modules", f"lora_target {', '.join(missing)} names no module of this model. It has: {', '.join(linear)}."
        )


# -- data -------------------------------------------------------------------------------------------------------------------


def check_data(model: Any, data: Any, training: Any, finetuning: Any, rows: int, found: Findings) -> None:
    """Tokenizer, template, and the first rows of each data set through LLaMA-Factory's converter and tokenizer."""
    try:
        from llamafactory.data import get_template_and_fix_tokenizer, loader, parser
        from llamafactory.extras.misc import has_tokenized_data
        from llamafactory.model import load_tokenizer

        _ = loader._load_single_dataset, loader._get_dataset_processor, parser.get_dataset_list
    except (ImportError, AttributeError) as error:
        found.warn("data", f"The data was not looked at: this LLaMA-Factory is built differently ({error}).")
        return
    loaded = load_tokenizer(model)
    with found.stage("template"):
        template = get_template_and_fix_tokenizer(loaded["tokenizer"], data)
        if data.tokenized_path is not None and has_tokenized_data(data.tokenized_path):
            found.warn("data", f"{data.tokenized_path} is used as it is; all other data arguments are ignored.")
            return
        stage = STAGE_OF_DATA.get(finetuning.stage, finetuning.stage)
        sampler = Sampler(model, data, training, stage, template, loaded["tokenizer"], loaded["processor"], rows)
        names = [*(data.dataset or ()), *(data.eval_dataset or ())]
        found.facts["datasets"] = {}
        with time_limit(
            DATA_SECONDS,
            f"Reading the first {rows} rows of each data set took more than {DATA_SECONDS:.0f} s: not all checked.",
        ):
            for name in dict.fromkeys(names):
                with found.stage("data", dataset=name):
                    found.facts["datasets"][name] = sampler.sample(name, found)


@dataclass(frozen=True)
class Sampler:
    """Takes the first rows of a data set through the same functions as training does."""

    model: Any
    data: Any
    training: Any
    stage: str
    template: Any
    tokenizer: Any
    processor: Any
    rows: int

    def sample(self, name: str, found: Findings) -> dict[str, Any]:
        """Facts of one data set. Raises what training would raise on these rows."""
        from llamafactory.data import loader, parser

        (attributes,) = parser.get_dataset_list([name], self.data.dataset_dir)
        if attributes.load_from != "file":
            found.warn(
                "data",
                f"{attributes.dataset_name} comes from elsewhere ({attributes.load_from}): not looked at.",
                dataset=name,
            )
            return {}
        if (self.stage == "rm") != bool(attributes.ranking):
            raise ValueError("The dataset is not applicable in the current training stage.")
        attributes.num_samples = None
        settings = self.settings(cutoff=1 << 30)
        with first_rows(loader, self.rows):
            aligned = loader._load_single_dataset(attributes, self.model, settings, self.training)
        processor = loader._get_dataset_processor(settings, self.stage, self.template, self.tokenizer, self.processor)
        encoded = processor.preprocess_dataset(aligned[:])
        lengths = row_lengths(encoded)
        if not lengths:
            raise RuntimeError("Cannot find valid samples, check `data/README.md` for the data format.")
        facts = {"sampled": len(aligned), "valid": len(lengths), "tokens": statistics(lengths)}
        facts["lengths"] = quantiles(lengths)
        facts["over_cutoff"] = sum(length > self.data.cutoff_len for length in lengths)
        facts["rows"] = count_rows(Path(self.data.dataset_dir) / attributes.dataset_name)
        if len(lengths) < len(aligned):
            found.warn(
                "data",
                f"{len(aligned) - len(lengths)} of the first {len(aligned)} rows are invalid and would be dropped.",
                dataset=name,
            )
        return facts

    def settings(self, *, cutoff: int) -> Any:
        """The data arguments, so that every row keeps its own length and nothing is cached or forked."""
        changed = copy.copy(self.data)
        changed.cutoff_len, changed.packing, changed.neat_packing = cutoff, False, False
        changed.streaming, changed.max_samples = False, None
        changed.preprocessing_num_workers, changed.overwrite_cache = None, True
        return changed


@contextmanager
def first_rows(loader: Any, rows: int) -> Iterator[None]:
    """Let LLaMA-Factory's loader read the first rows only; which files and how is still its own decision."""
    from datasets import Dataset

    original: Callable[..., Any] = loader.load_dataset

    def load(*arguments: Any, **named: Any) -> Any:
        named |= {"streaming": True, "num_proc": None}
        taken = list(original(*arguments, **named).take(rows))
        if not taken:
            raise ValueError('Instruction "train" corresponds to no data!')
        return Dataset.from_list(taken)

    loader.load_dataset = load
    try:
        yield
    finally:
        loader.load_dataset = original


def row_lengths(encoded: Mapping[str, Sequence[Sequence[int]]]) -> list[int]:
    """Tokens of each row; of a preference pair, the longer of the two."""
    if "input_ids" in encoded:
        return [len(ids) for ids in encoded["input_ids"]]
    pairs = zip(encoded.get("chosen_input_ids", ()), encoded.get("rejected_input_ids", ()), strict=True)
    return [max(len(chosen), len(rejected)) for chosen, rejected in pairs]


def statistics(lengths: Sequence[int]) -> dict[str, float]:
    """Mean, median, 95th percentile and maximum."""
    ordered = sorted(lengths)
    return {
        "mean": round(sum(ordered) / len(ordered), 1),
        "p50": ordered[(len(ordered) - 1) // 2],
        "p95": ordered[max(0, -(-len(ordered) * 95 // 100) - 1)],
        "max": ordered[-1],
    }


def quantiles(lengths: Sequence[int], most: int = 1000) -> list[int]:
    """The lengths in ascending order, thinned out to `most` evenly spaced ranks: enough for padding and packing forecasts."""
    ordered = sorted(lengths)
    if len(ordered) <= most:
        return ordered
    return [ordered[round(rank * (len(ordered) - 1) / (most - 1))] for rank in range(most)]


def count_rows(path: Path) -> int | None:
    """Rows of a data set where counting is cheap and certain, else None."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    counts = [count_file(file) for file in files]
    return None if None in counts else sum(count for count in counts if count is not None)


def count_file(file: Path) -> int | None:
    """Rows of one file; None where only reading it all would tell."""
    if file.suffix == ".parquet":
        return int(importlib.import_module("pyarrow.parquet").read_metadata(file).num_rows)
    if file.suffix not in {".json", ".jsonl"} or file.stat().st_size > COUNT_BYTES:
        return None
    content = file.read_bytes()
    if content.lstrip()[:1] == b"[":
        return len(json.loads(content))
    rows = [line for line in content.splitlines() if line.strip()]
    return len(rows) if all(row.lstrip()[:1] == b"{" for row in rows) else None


# -- helpers ----------------------------------------------------------------------------------------------------------------


@contextmanager
def time_limit(seconds: float, message: str) -> Iterator[None]:
    """Raise TimeoutError inside the block when it takes longer."""

    def ring(*_: object) -> None:
        raise TimeoutError(message)

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def message_of(error: BaseException) -> str:
    """The message with what caused it: libraries wrap the cause that a person needs."""
    parts = [str(error) or type(error).__name__]
    cause = error.__cause__
    while cause is not None and len(parts) < 4:
        if str(cause) and str(cause) not in parts[-1]:
            parts.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__
    return " <- ".join(parts)[:4000]


def forget_script_folder() -> None:
    """Python puts a script's folder first on the search path, where our modules could stand in for someone's."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != here]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
