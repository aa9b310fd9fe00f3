"""Figures and settings of several runs side by side; export of one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from backend.domain.job import JobSpec, JobState, ZeroConfig
from backend.errors import Conflict, InvalidInput, NotFound
from backend.planning.command import Host, build_plan
from backend.planning.document import load_document
from backend.planning.export import build_export
from backend.planning.settings_diff import HIDDEN, compare_settings, flatten_settings
from backend.services.api import Api
from backend.services.comparison import Comparisons, Figure
from backend.services.energy import energy_at
from backend.services.preferences import MOST_BYTES, load_preferences, save_preferences
from backend.services.secrets import is_secret_name
from backend.services.series_export import csv_lines
from backend.services.views import Views
from backend.store.job_telemetry import append_job_sample
from backend.store.telemetry import KEYS
from tests.job_folders import add_job, open_api
from tests.recorder_files import RecorderFiles

GPU = "0000:01:00.0"


def trained(api: Api, job_id: str, spec: str = "stage: sft\n", steps: int = 10, **fields: object) -> RecorderFiles:
    paths = add_job(api, job_id, JobState.SUCCEEDED, ended_at=999_990.0 + 3600, **fields)
    paths.spec.write_text(spec)
    files = RecorderFiles(paths.recorder)
    files.start()
    for step in range(1, steps + 1):
        files.step(step, loss=3 - step / 10)
    return files


def measured(api: Api, job_id: str, watts: float = 360.0, samples: int = 11) -> None:
    for index in range(samples):
        sample = np.full((3, len(KEYS)), np.nan, dtype=np.float32)
        sample[:, KEYS.index("socket_power_watts")] = watts
        append_job_sample(api.paths.job(job_id).telemetry, GPU, 1_000_000.0 + 10 * index, sample)


# ---- settings ----


def test_only_settings_that_differ_are_told_and_names_are_no_settings() -> None:
    first = flatten_settings("tunedeck: {name: a, zero: {stage: 2}}\nlearning_rate: 1e-4\nseed: 1\n")
    second = flatten_settings("tunedeck: {name: b, zero: {stage: 3}}\nlearning_rate: 2e-4\nseed: 1\n")
    found = {row.key: [setting.value for setting in row.settings] for row in compare_settings([first, second])}
    assert found == {"tunedeck.zero.stage": [2, 3], "learning_rate": [1e-4, 2e-4]}


def test_a_setting_left_out_is_its_default() -> None:
    jobs = [flatten_settings("lora_rank: 8\nlora_dropout: 0.1\n"), flatten_settings("{}")]
    (found,) = compare_settings(jobs, {"lora_rank": 8, "lora_dropout": 0.0})
    assert found.key == "lora_dropout"
    assert [setting.describe() for setting in found.settings] == ["0.1", "not set (default 0.0)"]


def test_a_null_is_not_the_same_as_nothing_said() -> None:
    (found,) = compare_settings([{"max_samples": None}, {}], {"max_samples": 5})
    assert [(setting.given, setting.effective) for setting in found.settings] == [(True, None), (False, 5)]


def test_values_of_secrets_are_never_told() -> None:
    jobs = [{"hf_hub_token": "hf_abc"}, {"hf_hub_token": "hf_def"}, {"tunedeck.env.WANDB_API_KEY": "x"}]
    for row in compare_settings(jobs, is_secret=is_secret_name):
        assert {setting.value for setting in row.settings} <= {HIDDEN, None}


# ---- figures ----


def test_figures_of_a_run_on_a_card(tmp_path: Path) -> None:
    api = open_api(tmp_path, price_gpu_hour=2.0, price_kwh=10.0, currency="EUR")
    files = trained(api, "a", devices=(GPU,))
    files.evaluation(10, eval_loss=2.5)
    measured(api, "a")
    (run,) = Comparisons(Views(api)).compare(["a"]).runs
    assert run.figures["final_loss"] == Figure(value=2.0)
    assert run.figures["best_eval_loss"] == Figure(value=2.5)
    assert run.figures["tokens_per_second"].value == pytest.approx(200)
    assert run.figures["peak_memory_bytes"] == Figure(value=10.0)
    assert run.figures["hours"] == Figure(value=1.0)
    assert run.figures["kwh"] == Figure(value=pytest.approx(360 * 110 / 3.6e6), estimate=True)
    assert run.figures["cost"].value == pytest.approx(2.0 + 10 * 360 * 110 / 3.6e6)


def test_what_is_missing_says_why_and_is_never_zero(tmp_path: Path) -> None:
    api = open_api(tmp_path)
    trained(api, "cpu")
    add_job(api, "waiting", JobState.QUEUED)
    trained(api, "unmeasured", devices=(GPU,))
    cpu, waiting, unmeasured = Comparisons(Views(api)).compare(["cpu", "waiting", "unmeasured"]).runs
    assert all(figure.value is None and figure.missing for name, figure in waiting.figures.items())
    assert cpu.figures["kwh"] == cpu.figures["mfu"] == Figure(value=None, missing="no_gpu")
    assert unmeasured.figures["kwh"] == Figure(value=None, missing="no_telemetry")
    assert cpu.figures["cost"] == Figure(value=None, missing="no_price")
    assert cpu.figures["final_eval_loss"] == Figure(value=None, missing="no_evaluation")


def test_a_diverged_run_ends_at_nan_and_keeps_its_best(tmp_path: Path) -> None:
    api = open_api(tmp_path)
    trained(api, "a").step(11, loss="nan")
    (run,) = Comparisons(Views(api)).compare(["a"]).runs
    assert run.figures["final_loss"] == Figure(value="nan")
    assert run.figures["best_loss"] == Figure(value=2.0)


def test_runs_that_are_gone_are_named_and_the_rest_is_compared(tmp_path: Path) -> None:
    api = open_api(tmp_path)
    trained(api, "a", "seed: 1\n")
    trained(api, "b", "seed: 2\n")
    comparison = Comparisons(Views(api)).compare(["a", "gone", "b", "a"])
    assert ([run.job["id"] for run in comparison.runs], comparison.absent) == (["a", "b"], ("gone",))
    assert [(row.key, [value.text for value in row.values]) for row in comparison.differences] == [("seed", ["1", "2"])]
    with pytest.raises(NotFound):
        Comparisons(Views(api)).compare(["gone"])
    with pytest.raises(InvalidInput, match="runs"):
        Comparisons(Views(api)).compare([" "])


def test_energy_grows_over_the_steps_and_a_card_without_readings_leaves_it_unknown(tmp_path: Path) -> None:
    api = open_api(tmp_path)
    trained(api, "a", devices=(GPU,))
    measured(api, "a")
    folder = api.paths.job("a").telemetry
    used = energy_at(folder, [GPU], np.array([1_000_000.0, 1_000_050.0, 1_000_100.0]))
    assert used is not None and np.all(np.diff(used) > 0)
    assert energy_at(folder, [GPU, "0000:02:00.0"], np.array([1_000_000.0])) is None
    asked = Views(api).series("a", ["energy_kwh"]).series
    assert len(asked["energy_kwh"].x) == 10
    assert "energy_kwh" not in Views(api).series("a").series


# ---- tags and preferences ----


def test_jobs_are_found_by_whole_tags(tmp_path: Path) -> None:
    api = open_api(tmp_path)
    for job_id, tags in (("a", ("lr", "v2")), ("b", ("lr",)), ("c", ("lr-sweep",))):
        add_job(api, job_id, tags=tags)
    assert {job.id for job in api.list_jobs(tags=["lr"])[1]} == {"a", "b"}
    assert {job.id for job in api.list_jobs(tags=["lr", "v2"])[1]} == {"a"}
    assert api.list_tags() == {"lr": 2, "lr-sweep": 1, "v2": 1}


def test_tags_are_trimmed_once_each_and_bounded(tmp_path: Path) -> None:
    api = open_api(tmp_path)
    add_job(api, "a")
    assert api.annotate("a", "", [" x ", "x", ""]).tags == ("x",)
    with pytest.raises(InvalidInput, match="tags"):
        api.annotate("a", "", ["x" * 101])
    with pytest.raises(InvalidInput, match="notes"):
        api.annotate("a", "n" * 20_001, [])


def test_preferences_are_of_one_user(tmp_path: Path) -> None:
    paths = open_api(tmp_path).paths
    save_preferences(paths, "../ana", {"smoothing": 3})
    assert load_preferences(paths, "../ana") == {"smoothing": 3}
    assert load_preferences(paths, "bo") == {}
    with pytest.raises(InvalidInput):
        save_preferences(paths, "bo", {"x": "y" * MOST_BYTES})


# ---- points and scripts ----


def test_csv_holds_every_point_gaps_stay_empty_and_nan_is_a_word(tmp_path: Path) -> None:
    api = open_api(tmp_path)
    files = trained(api, "a", steps=3)
    files.step(4, tokens=None)
    files.log(5, loss="nan")
    found = Views(api).series("a", ["loss", "tokens_per_second"], points=0)
    rows = [line.split(",") for line in b"".join(csv_lines(found)).decode().splitlines()]
    assert rows[0] == ["step", "loss", "tokens_per_second"]
    assert [row[0] for row in rows[1:]] == ["1", "2", "3", "4", "5"]
    assert rows[1][1] == "2.9" and rows[4] == ["4", "", ""] and rows[5][1] == "nan"


def exported(**changes: object) -> dict[str, str]:
    train = {"model_name_or_path": "/m", "learning_rate": 1e-5, "output_dir": "saves/x"}
    spec = JobSpec(name="a run\nrm -rf /", train=train, processes=2, zero=ZeroConfig(stage=2), env={"A_B": "x y'z"})
    host = Host(python="/env/bin/python", entry="/deck/train.py", accelerator="rocm", cpu_count=8)
    plan = build_plan(spec, job_id="j", job_dir="/jobs/j", host=host, devices=("g0", "g1"))
    return dict(build_export(plan, spec.name))


def test_an_export_points_at_nothing_of_ours() -> None:
    files = exported()
    train = load_document(files["train.yaml"])
    assert (train["output_dir"], train["deepspeed"]) == ("output", "ds_config.json")
    assert train["learning_rate"] == 1e-5
    assert not any("/jobs/j" in text or "/deck" in text or "TUNEDECK" in text for text in files.values())


def test_exported_scripts_are_shell_and_keep_values_and_names_harmless() -> None:
    files = exported()
    for name in ("run.sh", "job.sbatch"):
        checked = subprocess.run(["bash", "-n"], input=files[name], text=True, capture_output=True)
        assert checked.returncode == 0, checked.stderr
        assert not any(line.startswith("rm") for line in files[name].splitlines())
    assert "#SBATCH --gpus-per-node=2" in files["job.sbatch"]
    assert "NPROC_PER_NODE=2" in files["run.sh"]
    said = subprocess.run(["bash", "-c", files["run.sh"].replace("exec llamafactory-cli", "printenv A_B; echo")],
                          text=True, capture_output=True, cwd="/")  # fmt: skip
    assert said.stdout.splitlines() == ["x y'z", "train train.yaml"]


def test_export_overwrites_nothing(tmp_path: Path) -> None:
    api = open_api(tmp_path / "data")
    add_job(api, "a")
    with pytest.raises(NotFound):
        api.export_to("a", tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "run.sh").write_text("mine")
    spec = JobSpec(name="n", train={"model_name_or_path": "/m"})
    host = Host(python="/env/bin/python", entry="/deck/train.py", accelerator="cpu", cpu_count=8)
    from backend.store.plans import save_plan

    save_plan(api.paths.job("a").plan, build_plan(spec, job_id="a", job_dir=str(api.paths.job("a").root), host=host))
    with pytest.raises(Conflict, match=r"run\.sh"):
        api.export_to("a", tmp_path / "out")
    assert {path.name for path in api.export_to("a", tmp_path / "new")} == {
        "train.yaml",
        "run.sh",
        "job.sbatch",
        "spec.yaml",
    }
