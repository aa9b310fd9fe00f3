"""The launch plan: exact command, environment and files."""

import json

import pytest
import yaml

from backend.domain.job import JobSpec, Offload, Task, ZeroConfig
from backend.planning.command import Host, build_plan, dump_yaml, shell_command
from backend.planning.deepspeed import build_deepspeed_config

HOST = Host(python="/env/bin/python", entry="/deck/train.py", accelerator="cpu", cpu_count=8)


def plan(processes: int | None = 2, devices: tuple[str, ...] = (), env: dict[str, str] | None = None, **train: object):  # type: ignore[no-untyped-def]
    spec = JobSpec(name="n", train=train, processes=processes, env=env or {}, zero=ZeroConfig(stage=2))  # type: ignore[arg-type]
    return build_plan(spec, job_id="j", job_dir="/jobs/j", host=HOST, devices=devices)


def test_command_is_torchrun_of_the_chosen_interpreter() -> None:
    argv = plan().argv
    assert argv[:3] == ("/env/bin/python", "-m", "torch.distributed.run")
    assert argv[argv.index("--nproc_per_node") + 1] == "2"
    assert argv[-2:] == ("/deck/train.py", "/jobs/j/train.yaml")


def test_own_master_port_gives_the_static_form() -> None:
    argv = plan(env={"MASTER_PORT": "29600"}).argv
    assert argv[argv.index("--master_port") + 1] == "29600"
    assert "--rdzv_backend" not in argv


def test_zero_stage_writes_a_deepspeed_file_and_names_it_absolutely() -> None:
    made = plan()
    assert json.loads(made.files["ds_config.json"])["zero_optimization"]["stage"] == 2
    assert yaml.safe_load(made.files["train.yaml"])["deepspeed"] == "/jobs/j/ds_config.json"


def test_own_deepspeed_mapping_wins_over_the_stage() -> None:
    made = plan(deepspeed={"zero_optimization": {"stage": 1}})
    assert json.loads(made.files["ds_config.json"]) == {"zero_optimization": {"stage": 1}}


def test_relative_output_goes_to_the_job_absolute_is_kept() -> None:
    assert yaml.safe_load(plan(output_dir="saves/x").files["train.yaml"])["output_dir"] == "/jobs/j/output"
    assert yaml.safe_load(plan(output_dir="/out").files["train.yaml"])["output_dir"] == "/out"


def test_leased_devices_leave_one_visibility_variable_at_most() -> None:
    made = plan(devices=("0000:c1:00.0",), env={"HIP_VISIBLE_DEVICES": "3"})
    assert set(made.unset) == {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"}


def test_user_environment_wins_but_cannot_take_our_variables() -> None:
    env = plan(env={"OMP_NUM_THREADS": "3", "TUNEDECK_JOB_ID": "forged"}).env
    assert (env["OMP_NUM_THREADS"], env["TUNEDECK_JOB_ID"]) == ("3", "j")


def test_threads_are_shared_out_between_ranks() -> None:
    assert plan(processes=4).env["OMP_NUM_THREADS"] == "2"


def test_shell_command_has_no_variable_of_ours_and_its_own_output() -> None:
    text = shell_command(plan(), output_dir="/else where")
    assert "TUNEDECK" not in text
    assert text.endswith("'output_dir=/else where'")


@pytest.mark.parametrize(
    "value", [1e-5, 5e-05, "no", "on", "1e-5", "1:30", "", True, None, 7, "中文", ["a", 1.5], {"k": "off"}]
)
def test_yaml_reads_back_as_it_was(value: object) -> None:
    assert yaml.safe_load(dump_yaml({"v": value})) == {"v": value}  # type: ignore[dict-item]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("offload", [Offload.NONE, Offload.CPU])
def test_offload_stands_only_where_the_stage_can_use_it(stage: int, offload: Offload) -> None:
    section = build_deepspeed_config(ZeroConfig(stage=stage, offload_optimizer=offload, offload_param=offload))
    zero = section["zero_optimization"]
    assert isinstance(zero, dict)
    assert ("offload_optimizer" in zero) == (stage >= 1 and offload is Offload.CPU)
    assert ("offload_param" in zero) == (stage == 3 and offload is Offload.CPU)


def test_other_tasks_run_the_neighbours_of_the_training_script() -> None:
    trial = build_plan(JobSpec(name="n", train={}, task=Task.TRIAL), job_id="j", job_dir="/jobs/j", host=HOST)
    assert trial.argv[-2:] == ("/deck/trial.py", "/jobs/j/train.yaml")
    bench = build_plan(JobSpec(name="n", train={}, task=Task.BENCH), job_id="j", job_dir="/jobs/j", host=HOST)
    assert bench.argv[-3:] == ("/deck/bench.py", "--out", "/jobs/j/bench.json")
