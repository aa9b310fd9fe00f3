"""Folders of small files and what `inspect` must say about them: written for these tests, answers checked by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.unit.valid_configs import BASE, config_text

ALPACA = [
    {"instruction": "Name a river of Wales.", "input": "", "output": "The Wye."},
    {"instruction": "Add up.", "input": "2 and 3", "output": "Five."},
    {"instruction": "Which tool cuts wood?", "input": "", "output": "A saw."},
]
CHAT = [
    {"conversations": [{"from": "human", "value": "Is the bridge open?"}, {"from": "gpt", "value": "From noon on."}]},
    {"conversations": [{"from": "human", "value": "How long is it?"}, {"from": "gpt", "value": "Ninety metres."}]},
    {"conversations": [{"from": "human", "value": "Who built it?"}, {"from": "gpt", "value": "A local mason."}]},
]
OPENAI = [
    {"messages": [{"role": "user", "content": "Left or right?"}, {"role": "assistant", "content": "Left."}]},
    {"messages": [{"role": "user", "content": "Up?"}, {"role": "assistant", "content": "No, down the stairs."}]},
]
PREFERENCE = [
    {
        "conversations": [{"from": "human", "value": "What is a quay?"}],
        "chosen": {"from": "gpt", "value": "A place where ships lie."},
        "rejected": {"from": "gpt", "value": "A door."},
    }
]
MEDIA = [
    {
        "messages": [
            {"role": "user", "content": "<image>What is shown?"},
            {"role": "assistant", "content": "A lighthouse."},
        ],
        "images": ["a.jpg"],
    }
]


def dumped(rows: object) -> str:
    return json.dumps(rows, ensure_ascii=False, indent=1)


def lines(rows: list[dict[str, object]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@dataclass(frozen=True)
class Folder:
    """`expect` are facts of the whole, `files` facts of single files; lists of codes must be equal, `warnings` contained."""

    name: str
    inputs: Mapping[str, str]
    expect: Mapping[str, object] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


def one(name: str, file: str, text: str, **expect: object) -> Folder:
    return Folder(name, {file: text}, expect)


FOLDERS: tuple[Folder, ...] = (
    # configurations
    one(
        "placeholders",
        "train.yaml",
        "model_name_or_path: ${MODEL_DIR}\nstage: sft\ndo_train: true\noutput_dir: out/$RUN\n# $NOT_THIS\nbf16: true\n",
        detected_format="envsubst_template",
        verdict="error",
        errors=["placeholder"],
        placeholders=["MODEL_DIR", "RUN"],
    ),
    one(
        "jinja template is no YAML and still a template",
        "train.yaml",
        "model_name_or_path: {{ model }}\nstage: sft\ndo_train: {{ train }}\noutput_dir: out\n",
        detected_format="envsubst_template",
        errors=["placeholder"],
        placeholders=["model", "train"],
    ),
    one(
        "v1 layout",
        "full.yaml",
        "model: acme/tiny\nmodel_class: llm\ndist_config:\n  name: fsdp2\ntrain_dataset: sets/a.yaml\noutput_dir: o\n",
        detected_format="llamafactory_v1",
        verdict="error",
        errors=["v1_config"],
    ),
    one(
        "config of accelerate alone",
        "acc.yaml",
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 4\n",
        detected_format="other_program",
        errors=["foreign_config"],
    ),
    one(
        "axolotl",
        "a.yaml",
        "base_model: a/b\nsequence_len: 2048\nadapter: lora\nmicro_batch_size: 2\nlearning_rate: 0.0002\ndatasets:\n- path: x\n",
        detected_format="other_program",
        errors=["foreign_config"],
    ),
    one("renamed key", "t.yaml", BASE + "evaluation_strategy: 'no'\n", verdict="error", errors=["renamed_key"]),
    one(
        "number without a dot",
        "t.yaml",
        BASE.replace("1.0e-4", "1e-4"),
        verdict="warning",
        errors=[],
        warnings=["number_without_dot"],
    ),
    one(
        "merging",
        "m.yaml",
        "model_name_or_path: a\nadapter_name_or_path: b\ntemplate: qwen\nexport_dir: c\n",
        verdict="ok",
        errors=[],
    ),
    one(
        "quantized with ZeRO-3",
        "t.yaml",
        BASE + "quantization_bit: 8\ndeepspeed: cfg/ds_z3_config.json\n",
        errors=["quantized_with_zero3"],
    ),
    one(
        "unsloth with ZeRO-3",
        "t.yaml",
        BASE + "use_unsloth: true\ndeepspeed: cfg/ds_z3_config.json\n",
        errors=["unsloth_with_zero3"],
    ),
    one("template of another name", "t.yaml", BASE.replace("qwen3_nothink", "qwen2.5"), errors=["template_unknown"]),
    one(
        "full training under a LoRA name",
        "model_lora_sft.yaml",
        config_text("dft"),
        errors=[],
        warnings=["file_name_misleads"],
    ),
    one(
        "needs a package",
        "t.yaml",
        config_text("galore"),
        verdict="ok",
        errors=[],
        warnings=["needs_package"],
        facts={"package": "galore_torch"},
    ),
    one(
        "fp8 depends on the GPU", "t.yaml", config_text("fp8"), verdict="ok", errors=[], warnings=["hardware_dependent"]
    ),
    one("two precisions", "t.yaml", BASE + "fp16: true\n", errors=["two_precisions"]),
    one(
        "epochs",
        "t.yaml",
        BASE.replace("num_train_epochs: 3.0", "num_train_epochs: 300"),
        verdict="warning",
        warnings=["epochs_too_many"],
    ),
    one(
        "DeepSpeed: retired optimizer and unused feature",
        "ds.json",
        dumped(
            {
                "train_micro_batch_size_per_gpu": "auto",
                "optimizer": {"type": "OneBitAdam", "params": {"lr": "auto"}},
                "pipeline": {"stages": 2},
                "zero_optimization": {"stage": 1},
            }
        ),
        detected_format="deepspeed_config",
        verdict="error",
        errors=["optimizer_not_supported"],
        warnings=["feature_not_used"],
    ),
    one(
        "DeepSpeed: old names still read",
        "ds.json",
        dumped({"zero_optimization": {"stage": 2, "cpu_offload": True}, "train_batch_size": "auto"}),
        verdict="warning",
        errors=[],
        warnings=["renamed_key"],
    ),
    one(
        "DeepSpeed: name against content",
        "ds_z3_offload_config.json",
        dumped({"zero_optimization": {"stage": 2}, "train_batch_size": "auto"}),
        verdict="warning",
        errors=[],
        warnings=["file_name_misleads"],
    ),
    one(
        "DeepSpeed: broken JSON",
        "ds_z2.json",
        '{"zero_optimization": {"stage": 2}\n "train_batch_size": "auto"}',
        errors=["not_valid_json"],
    ),
    one(
        "DeepSpeed: a comma before a bracket",
        "ds_z2.json",
        '{"zero_optimization": {"stage": 2,},\n "train_batch_size": "auto"}',
        errors=["trailing_comma"],
    ),
    Folder(
        "labels that are words are still labels",
        {
            "train.json": dumped([{**row, "label": "true"} for row in OPENAI]),
            "dataset_info.json": dumped(
                {
                    "notes": {
                        "file_name": "train.json",
                        "formatting": "sharegpt",
                        "columns": {"messages": "messages", "kto_tag": "label"},
                        "tags": {
                            "role_tag": "role",
                            "content_tag": "content",
                            "user_tag": "user",
                            "assistant_tag": "assistant",
                        },
                    }
                }
            ),
        },
        {"detected_format": "kto", "verdict": "error", "errors": ["bad_choice"]},
    ),
    Folder(
        "a card of 24 GiB for PyTorch, of 192 GiB for amd-smi",
        {
            "console.log": "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of "
            "23.98 GiB of which 0.30 GiB is free. Of the allocated memory 22.60 GiB is allocated by PyTorch, and 0.70 GiB is "
            "reserved by PyTorch but unallocated.\n",
            "amd_smi.json": dumped([{"gpu": 0, "vram": {"type": "HBM", "size": {"value": 196592, "unit": "MB"}}}]),
        },
        {
            "root_cause": "gpu_capacity_mismatch",
            "errors": ["gpu_capacity_mismatch"],
            "detected_format": "plain_console",
        },
    ),
    Folder(
        "rows that all end with a question",
        {
            "train.json": dumped([{"conversations": row["conversations"][:1]} for row in CHAT]),
            "dataset_info.json": dumped({"notes": {"file_name": "train.json", "formatting": "sharegpt"}}),
        },
        {"verdict": "error", "errors": ["all_samples_dropped"], "warnings": ["turn_count"]},
    ),
    one(
        "a config of ms-swift",
        "sft.yaml",
        "model: acme/oak-3b\ntrain_type: lora\ndataset:\n  - oak#200\ntorch_dtype: bfloat16\nlearning_rate: 1e-4\n"
        "target_modules: all-linear\nmax_length: 1024\noutput_dir: out\n",
        errors=["foreign_config"],
    ),
    Folder(
        "config and DeepSpeed file disagree",
        {
            "train.yaml": BASE.replace("output_dir: saves/tiny", "output_dir: saves/tiny\ndeepspeed: cfg/ds.json"),
            "ds.json": dumped({"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}),
        },
        {
            "verdict": "error",
            "errors": ["deepspeed_batch_mismatch"],
            "warnings": ["fixed_batch_value", "needs_torchrun"],
        },
    ),
    Folder(
        "script that writes its config",
        {
            "run.sh": "M=/models/a\ncat > /tmp/t.yaml <<EOF\nmodel_name_or_path: $M\nstage: sft\ndo_train: true\ndataset: d\n"
            "output_dir: o\nflash_attn: yes\nEOF\nFORCE_TORCHRUN=1 llamafactory-cli train /tmp/t.yaml\n"
        },
        {
            "detected_format": "launch_script",
            "errors": ["bad_choice"],
            "arguments": {"model_name_or_path": "/models/a", "stage": "sft"},
            "facts": {"launcher": "llamafactory-cli", "config": "/tmp/t.yaml"},
        },
    ),
    Folder(
        "srun starts each rank's launcher",
        {
            "job.slurm": "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-node=4\n"
            "srun torchrun --nproc_per_node=4 src/train.py a.yaml\n"
        },
        {"errors": ["tasks_times_torchrun"], "facts": {"nodes": 2, "tasks": 8, "gpus": 4}},
    ),
    one(
        "someone else's train.py",
        "run.sh",
        "torchrun --nproc_per_node=4 train.py --model_name_or_path a --data_path b --output_dir c --fsdp x --bf16 True\n",
        errors=[],
        facts={"launcher": "torchrun", "processes": 4},
    ),
    # data
    one(
        "alpaca",
        "a.json",
        dumped(ALPACA),
        detected_format="alpaca",
        container="json_array",
        verdict="ok",
        rows=3,
        errors=[],
    ),
    one(
        "lines in a .json file",
        "a.json",
        lines(ALPACA),
        container="json_lines",
        verdict="warning",
        rows=3,
        errors=[],
        warnings=["json_lines_in_json_file"],
    ),
    one("lines", "a.jsonl", lines(ALPACA), container="json_lines", verdict="ok", rows=3, errors=[]),
    one(
        "two objects on a line",
        "a.json",
        "".join(map(json.dumps, ALPACA)),
        container="json_concatenated",
        verdict="warning",
        rows=3,
        errors=[],
    ),
    one(
        "arrays one after another",
        "a.json",
        dumped(ALPACA) + dumped(ALPACA[:1]),
        container="json_concatenated",
        errors=["concatenated_objects"],
    ),
    one(
        "types that do not fit",
        "a.json",
        dumped([*ALPACA, {"instruction": "Count.", "input": "", "output": 4}]),
        verdict="error",
        errors=["mixed_types"],
    ),
    one(
        "turn whose value is a number",
        "c.json",
        dumped([*CHAT, {"conversations": [{"from": "human", "value": 3}, {"from": "gpt", "value": "x"}]}]),
        errors=["mixed_types"],
    ),
    one("not closed", "a.json", dumped(ALPACA)[:-1], verdict="error", errors=["not_valid_json"]),
    one("Python, not JSON", "a.json", repr(ALPACA), verdict="error", errors=["not_valid_json"]),
    one("empty", "a.json", "[]", verdict="error", errors=["no_rows"]),
    one("wrapped", "a.json", dumped({"data": ALPACA}), verdict="error", errors=["wrapped_rows"], rows=3),
    one(
        "names left open",
        "a.json",
        dumped([*ALPACA, {"instruction": "Who are you?", "input": "", "output": "I am {{name}}."}]),
        verdict="warning",
        errors=[],
        warnings=["placeholder_text"],
    ),
    one(
        "plain text",
        "a.jsonl",
        lines([{"text": "The tide turns."}, {"text": "The ferry waits."}]),
        detected_format="pretrain_text",
        verdict="warning",
        rows=2,
        warnings=["unregistered_format"],
        facts={"registry_entry": {"columns": {"prompt": "text"}}},
    ),
    one(
        "text file",
        "book.txt",
        "Far out at sea a bell was heard.\nNobody knew whose it was.\n",
        detected_format="pretrain_text",
        rows=2,
        errors=[],
    ),
    one(
        "labels",
        "k.json",
        dumped([{**OPENAI[0], "label": True}, {**OPENAI[1], "label": False}]),
        detected_format="kto",
        errors=[],
        warnings=["unregistered_format"],
    ),
    one(
        "labels as words",
        "k.json",
        dumped([{**OPENAI[0], "kto_tag": "true"}, {**OPENAI[1], "kto_tag": "false"}]),
        detected_format="kto",
        errors=["bad_choice"],
    ),
    one(
        "comparison",
        "p.json",
        dumped(PREFERENCE),
        detected_format="preference",
        verdict="warning",
        errors=[],
        warnings=["unregistered_format"],
    ),
    one(
        "answer as text",
        "p.json",
        dumped([{**PREFERENCE[0], "rejected": "A door."}, *PREFERENCE]),
        detected_format="preference",
        verdict="error",
        errors=["answer_not_an_object", "mixed_types"],
    ),
    one(
        "all answers as text",
        "p.json",
        dumped([{**PREFERENCE[0], "chosen": "A place.", "rejected": "A door."}]),
        verdict="error",
        errors=["answer_not_an_object"],
    ),
    one(
        "answer in a list",
        "p.json",
        dumped([{**PREFERENCE[0], "chosen": [PREFERENCE[0]["chosen"]], "rejected": [PREFERENCE[0]["rejected"]]}]),
        verdict="error",
        errors=["nested_answer"],
    ),
    one(
        "one picture too many",
        "m.json",
        dumped([*MEDIA, {**MEDIA[0], "images": ["a.jpg", "b.jpg"]}]),
        detected_format="multimodal",
        verdict="error",
        errors=["image_count_mismatch"],
        facts={"bad_rows": [2]},
    ),
    one(
        "no columns that fit",
        "x.json",
        dumped([{"colour": "red", "size": 3}, {"colour": "blue", "size": 4}]),
        detected_format="unknown_dataset",
        verdict="error",
        errors=["missing_key"],
    ),
    one(
        "questions and answers",
        "q.jsonl",
        lines([{"question": "Where?", "answer": "There."}]),
        detected_format="prompt_completion",
        warnings=["unregistered_format"],
    ),
    Folder(
        "registry and data fit",
        {
            "dataset_info.json": dumped({"chat": {"file_name": "c.json", "formatting": "sharegpt"}}),
            "c.json": dumped(CHAT),
        },
        {"detected_format": "sharegpt", "verdict": "ok", "rows": 3, "errors": []},
    ),
    Folder(
        "formatting forgotten",
        {"dataset_info.json": dumped({"chat": {"file_name": "c.json"}}), "c.json": dumped(CHAT)},
        {"verdict": "error", "errors": ["missing_key"]},
    ),
    Folder(
        "roles that are not named",
        {
            "dataset_info.json": dumped(
                {
                    "chat": {
                        "file_name": "c.json",
                        "formatting": "sharegpt",
                        "columns": {"messages": "messages"},
                        "tags": {
                            "role_tag": "role",
                            "content_tag": "content",
                            "user_tag": "human",
                            "assistant_tag": "assistant",
                        },
                    }
                }
            ),
            "c.json": dumped(OPENAI),
        },
        {
            "verdict": "error",
            "errors": ["role_tag_mismatch"],
            "facts": {"roles_found": ["assistant", "user"], "bad_rows": [1, 2]},
        },
    ),
    Folder(
        "empty names in the registry",
        {
            "dataset_info.json": dumped(
                {"a": {"file_name": "a.json", "columns": {"prompt": "instruction", "query": "", "response": "output"}}}
            ),
            "a.json": dumped(ALPACA),
        },
        {"errors": [], "warnings": ["empty_mapping"]},
    ),
    Folder(
        "comparison without the flag",
        {
            "dataset_info.json": dumped(
                {
                    "p": {
                        "file_name": "p.json",
                        "formatting": "sharegpt",
                        "columns": {"messages": "conversations", "chosen": "chosen", "rejected": "rejected"},
                    }
                }
            ),
            "p.json": dumped(PREFERENCE),
        },
        {"warnings": ["ranking_flag_missing"]},
    ),
    Folder(
        "a file that is not there",
        {"dataset_info.json": dumped({"a": {"file_name": "b.json"}}), "a.json": dumped(ALPACA)},
        {"errors": ["file_missing"]},
    ),
    Folder(
        "a name that is not registered",
        {
            "dataset_info.json": dumped({"manual": {"file_name": "a.json"}}),
            "a.json": dumped(ALPACA),
            "t.yaml": BASE.replace("manuals,tickets", "manuals"),
        },
        {"errors": ["dataset_undefined"]},
    ),
    one(
        "registry that is no JSON",
        "dataset_info.json",
        '{"a": {"file_name": "b.json"},}',
        detected_format="dataset_registry",
        errors=["trailing_comma"],
    ),
)
