"""Anything in, one spec out: scripts with their files, LLaMA Board states, DeepSpeed files, folders; and the tutorial test."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.domain.job import JobSpec, Offload, ZeroConfig
from backend.domain.problem import ArgValue, Severity
from backend.errors import NotFound
from backend.planning.importing.detect import Kind
from backend.planning.importing.imported import Imported, apply_fixes, fixable, import_text, import_texts
from backend.planning.linting.context import LintContext
from backend.planning.spec import dump_spec, parse_spec
from backend.services.importing import import_bytes, import_path, lint_bytes, lint_text

TUTORIAL = Path(__file__).parents[1] / "data" / "tutorial"
MI300X = LintContext(
    accelerator="rocm", gpu_model="MI300X", gfx_target="gfx942", gpu_count=8, gpu_memory_bytes=196592 << 20
)


def tutorial(*names: str) -> dict[str, str]:
    return {name: (TUTORIAL / name).read_text() for name in names}


def keys(imported: Imported, part: str) -> list[str]:
    return [remark.key for remark in getattr(imported, part)]


# --- the tutorial test ---------------------------------------------------------------------------------------------


def test_every_mistake_of_the_tutorial_is_named_and_all_fixes_make_it_launchable() -> None:
    imported = import_texts(tutorial("launch.sh", "train.yaml", "ds_z3_config.json"))
    problems = lint_text(imported.spec_text, filename="spec.yaml", context=MI300X)
    named = {problem.code for problem in problems}
    assert {
        "compute_type",
        "attention_value",
        "replaced_key",
        "zero_partition_grads",
        "offload_with_free_memory",
        "gfx_override_set",
        "build_variable_at_run",
        "deepspeed_batch_missing",
    } <= named
    assert "config_flag_dropped" in keys(imported, "changed")
    assert "deepspeed_inlined" in keys(imported, "changed")

    fixed = apply_fixes(imported.spec_text, problems)
    after = lint_text(fixed, filename="spec.yaml", context=MI300X)
    assert [p.code for p in after if p.severity is not Severity.NOTE] == []
    spec = parse_spec(fixed)
    assert spec.processes == 8
    assert spec.env == {}
    assert spec.train["bf16"] is True and spec.train["flash_attn"] == "auto"
    assert not {"compute_type", "disable_torch_compile"} & set(spec.train)
    deepspeed = spec.train["deepspeed"]
    assert isinstance(deepspeed, dict)
    assert deepspeed["zero_optimization"] == {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}
    assert "# half the memory" not in fixed and "# from a blog" in fixed


def test_script_of_the_tutorial_alone_names_its_own_mistakes() -> None:
    named = {p.code for p in lint_text((TUTORIAL / "launch.sh").read_text(), filename="launch.sh", context=MI300X)}
    assert {"config_flag", "gfx_override_set", "build_variable_at_run", "unknown_tool"} <= named


def test_slow_command_of_the_tutorial() -> None:
    text = (TUTORIAL / "slow.sh").read_text()
    problems = lint_text(text, filename="slow.sh")
    (attention,) = [p for p in problems if p.severity is Severity.ERROR]
    assert (attention.code, attention.field, attention.found) == ("attention_value", "flash_attn", "Fa")
    spec_text = import_text(text, "slow.sh").spec_text
    fixed = apply_fixes(spec_text, lint_text(spec_text, filename="spec.yaml"))
    assert parse_spec(fixed).train["flash_attn"] == "auto"
    assert [p for p in lint_text(fixed, filename="spec.yaml") if p.severity is Severity.ERROR] == []


def test_data_of_the_tutorial_is_named() -> None:
    problems = lint_bytes((TUTORIAL / "desk_qa.json").read_bytes(), filename="desk_qa.json")
    assert [p.code for p in problems] == ["concatenated_objects"]


def test_relative_deepspeed_path_is_noted_when_the_file_is_not_given_along() -> None:
    imported = import_texts(tutorial("launch.sh", "train.yaml"))
    assert "deepspeed_path_relative" in [p.code for p in lint_text(imported.spec_text, filename="spec.yaml")]


# --- kinds of input ------------------------------------------------------------------------------------------------


def test_yaml_is_kept_byte_for_byte() -> None:
    text = tutorial("train.yaml")["train.yaml"]
    imported = import_text(text, "train.yaml")
    assert (imported.kind, imported.spec_text) == ("llamafactory_train", text)


def test_pasted_text_needs_no_name() -> None:
    assert import_text("llamafactory-cli train --stage sft --do_train\n").kind == "launch_script"
    assert import_text('{"zero_optimization": {"stage": 2}}').kind == "deepspeed_config"
    assert import_text("stage: sft\nmodel_name_or_path: a\ndo_train: true\n").kind == "llamafactory_train"
    assert import_text("hello").spec_text == ""


def test_command_line_becomes_a_spec_with_processes_and_environment() -> None:
    text = (
        "export NCCL_DEBUG=WARN MASTER_PORT=29501 OTHER=1\n"
        "HIP_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 src/train.py --stage dpo --do_train --pref_beta 0.2 "
        "--model_name_or_path a --dataset b --learning_rate 5e-6 --output_dir $OUT stray\n"
    )
    imported = import_text(text)
    spec = parse_spec(imported.spec_text)
    assert spec.processes == 2
    assert spec.env == {"NCCL_DEBUG": "WARN"}
    assert spec.train["pref_beta"] == 0.2 and spec.train["learning_rate"] == 5e-6
    assert {r.values["name"] for r in imported.changed if r.key == "variable_ours"} == {
        "MASTER_PORT",
        "HIP_VISIBLE_DEVICES",
    }
    assert "variable_unknown" in keys(imported, "not_understood")


def test_overrides_behind_a_yaml_win() -> None:
    files = {
        "run.sh": "llamafactory-cli train cfg/a.yaml learning_rate=2e-5 bf16=true\n",
        "a.yaml": "stage: sft  # kept\nbf16: false\n",
    }
    spec_text = import_texts(files).spec_text
    assert "# kept" in spec_text
    assert parse_spec(spec_text).train == {"stage": "sft", "bf16": True, "learning_rate": 2e-5}


def test_config_that_is_not_given_along_is_named() -> None:
    imported = import_text("llamafactory-cli train configs/a.yaml\n", "run.sh")
    (remark,) = [r for r in imported.not_understood if r.key == "config_not_given"]
    assert remark.values["path"] == "configs/a.yaml"


def test_script_that_writes_its_config() -> None:
    text = "L=1e-5\ncat <<EOF > t.yaml\nstage: sft\nlearning_rate: $L\nEOF\ntorchrun --nproc_per_node 2 src/train.py t.yaml\n"
    spec = parse_spec(import_text(text, "run.sh").spec_text)
    assert spec.train == {"stage": "sft", "learning_rate": 1e-5}
    assert spec.processes == 2


def test_board_state_is_converted_as_the_board_would_pass_it() -> None:
    state = (
        "top.model_name: Harbour-8B\ntop.finetuning_type: lora\ntop.template: llama3\ntop.quantization_bit: '4'\n"
        "top.quantization_method: bitsandbytes\ntop.booster: flashattn2\ntrain.training_stage: DPO\ntrain.dataset: [a, b]\n"
        "train.learning_rate: 5e-6\ntrain.num_train_epochs: '2'\ntrain.compute_type: bf16\ntrain.batch_size: 2\n"
        "train.val_size: 0.1\ntrain.save_steps: 50\ntrain.pref_beta: 0.1\ntrain.ds_stage: '2'\ntrain.ds_offload: true\n"
        'train.extra_args: \'{"optim": "adamw_torch"}\'\ntrain.neftune_alpha: 0\ntrain.unheard_of: 7\n'
    )
    imported = import_text(state, "board.yaml")
    spec = parse_spec(imported.spec_text)
    assert spec.zero == ZeroConfig(stage=2, offload_optimizer=Offload.CPU)
    assert spec.train["stage"] == "dpo" and spec.train["dataset"] == "a,b"
    assert spec.train["quantization_bit"] == 4 and spec.train["quantization_method"] == "bnb"
    assert spec.train["flash_attn"] == "fa2" and spec.train["bf16"] is True
    assert (spec.train["eval_steps"], spec.train["per_device_eval_batch_size"]) == (50, 2)
    assert spec.train["optim"] == "adamw_torch"
    assert "neftune_noise_alpha" not in spec.train
    assert [r.values["name"] for r in imported.not_understood] == ["Harbour-8B", "train.unheard_of"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("llamafactory_v1", "model: a\nmodel_class: llm\ntrain_dataset: b\n"),
        ("other_program", "base_model: a\nsequence_len: 9\nmicro_batch_size: 1\nload_in_4bit: true\n"),
        ("envsubst_template", "model_name_or_path: ${A}\nstage: sft\n"),
    ],
)
def test_what_cannot_be_run_is_named_and_not_mangled(kind: str, text: str) -> None:
    imported = import_text(text, "x.yaml")
    assert (imported.kind, imported.spec_text) == (kind, "")
    assert [p for p in lint_text(text, filename="x.yaml") if p.severity is Severity.ERROR]


def test_finished_output_folder_tells_what_it_can(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(
        json.dumps(
            {"base_model_name_or_path": "a/b", "r": 16, "lora_alpha": 32, "target_modules": ["v_proj", "q_proj"]}
        )
    )
    (tmp_path / "trainer_state.json").write_text(json.dumps({"num_train_epochs": 3, "train_batch_size": 2}))
    imported = import_path(tmp_path)
    train = parse_spec(imported.spec_text).train
    assert train["lora_rank"] == 16 and train["lora_target"] == "q_proj,v_proj"
    assert train["per_device_train_batch_size"] == 2
    assert keys(imported, "not_understood") == ["partial_output"]


def test_job_folder_and_file_by_path(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text("tunedeck: {name: a}\nstage: sft\n")
    assert parse_spec(import_path(tmp_path).spec_text).name == "a"
    (tmp_path / "run.sh").write_text("llamafactory-cli train spec.yaml\n")
    assert parse_spec(import_path(tmp_path / "run.sh").spec_text).train == {"stage": "sft"}
    with pytest.raises(NotFound):
        import_path(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound):
        import_path(tmp_path / "empty")


def test_bytes_that_are_no_text_are_a_problem() -> None:
    assert [p.code for p in import_bytes({"a.yaml": b"\xff\xfe\x00"}).problems] == ["not_valid_yaml"]
    assert [p.code for p in lint_bytes(b"\x80\x81", filename="a.yaml")] == ["not_valid_yaml"]


def test_fixes_of_notes_are_left_to_the_reader() -> None:
    problems = lint_text("stage: sft\nlora_rank: 8\nfinetuning_type: full\n", filename="a.yaml")
    assert all(p.severity is not Severity.NOTE for p in fixable(problems))


# --- properties ----------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["model_name_or_path", "dataset", "learning_rate", "bf16", "lora_rank", "own_key", "deepspeed"])
SCALARS: st.SearchStrategy[ArgValue] = (
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("abc 123:#'\"-_./\\é汉\n", max_size=12)
    | st.sampled_from(["no", "1e-5", "null", "~", "true", "0x1", "1_0", "", " "])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
SPECS = st.builds(
    JobSpec,
    name=st.text("abc-1", min_size=1, max_size=8),
    train=st.dictionaries(NAMES, VALUES, max_size=5),
    processes=st.none() | st.integers(1, 64),
    zero=st.builds(ZeroConfig, stage=st.none() | st.integers(0, 3)),
    env=st.dictionaries(st.sampled_from(["NCCL_DEBUG", "HIP_X"]), st.text("ab1", min_size=1, max_size=4), max_size=2),
)


@settings(max_examples=120, deadline=None)
@given(SPECS)
def test_import_of_an_export_gives_the_same_spec(spec: JobSpec) -> None:
    text = dump_spec(spec)
    imported = import_text(text, "spec.yaml")
    assert imported.kind == "llamafactory_train"
    assert imported.spec_text == text
    again = parse_spec(imported.spec_text)
    assert (again.train, again.processes, again.zero, again.env) == (
        spec.train,
        spec.processes,
        spec.zero,
        spec.env,
    )


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(["a.yaml", "a.sh", "a.json", "", "b.txt"]), st.binary(max_size=120), max_size=3))
def test_any_bytes_are_imported_or_named(files: dict[str, bytes]) -> None:
    imported = import_bytes(files)
    assert imported.kind
    for name, data in files.items():
        for problem in lint_bytes(data, filename=name):
            assert problem.reason


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*"abc", "stage", "dataset", "flash_attn", "deepspeed", "tunedeck"]), VALUES, max_size=6
    )
)
def test_rules_and_fixes_survive_any_values(values: dict[str, ArgValue]) -> None:
    text = dump_spec(JobSpec(name="x", train={k: v for k, v in values.items() if k != "tunedeck"}))
    problems = lint_text(text, filename="a.yaml")
    apply_fixes(text, problems)


def test_every_remark_has_words_in_both_languages() -> None:
    source = Path(__file__).parents[2] / "backend"
    used = set()
    for file in (source / "planning" / "importing" / "imported.py", source / "services" / "importing.py"):
        used |= set(re.findall(r'Remark\(\s*key="(\w+)"', file.read_text()))
    from ui.text import new_run_en, new_run_zh

    shown = used - {"arguments", "launcher", "last_launch", "processes", "environment"}
    for texts in (new_run_en.TEXT, new_run_zh.TEXT):
        assert {f"import.{key}" for key in shown} <= set(texts)
        assert {f"new.kind.{kind.value}" for kind in Kind} <= set(texts)


def test_secret_of_a_script_goes_along_and_what_is_left_out_is_said() -> None:
    imported = import_texts({
        "job.sh": "#!/bin/bash\n#SBATCH --nodes=2\nexport HF_TOKEN=hf_x\nexport SITE_CODE=7\nexport PATH=/opt/x:$PATH\n"
        "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 4 src/train.py --stage sft --model_name_or_path a/b\n"
    })  # fmt: skip
    assert parse_spec(imported.spec_text).env == {"HF_TOKEN": "hf_x"}
    left = {(remark.key, *remark.values.values()) for remark in imported.not_understood}
    assert left == {("variable_left", "SITE_CODE"), ("several_hosts", "2")}


def test_launcher_config_of_accelerate_is_not_passed_over() -> None:
    command = (
        "accelerate launch --config_file fsdp.yaml --num_processes 2 src/train.py --stage sft --model_name_or_path a/b"
    )
    imported = import_texts({"run.sh": command})
    assert keys(imported, "not_understood") == ["launcher_config"]


def test_model_that_only_llama_board_knows_by_name_is_said() -> None:
    board = "top.model_name: Some-7B-Chat\ntop.finetuning_type: lora\ntrain.training_stage: Supervised Fine-Tuning\n"
    assert keys(import_text(board + "train.dataset: [a]\n"), "not_understood") == ["model_by_name"]
    assert keys(import_text(board + "top.model_path: /models/a\ntrain.dataset: [a]\n"), "not_understood") == []
