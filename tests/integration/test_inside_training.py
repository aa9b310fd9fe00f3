"""Real LLaMA-Factory and DeepSpeed on the CPU, started as a plan starts them: what the recorder writes and obeys."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest

from backend.adapters.process import find_marked
from tests.integration.conftest import TRAINING_PYTHON
from tests.integration.inside_run import Run, arguments, free_port, inside, marked, start

pytestmark = pytest.mark.training

HERE = Path(__file__).resolve().parent
T = TypeVar("T")


@pytest.fixture(scope="session")
def single(demo_inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One process, LoRA in bf16, two evaluations, two checkpoints, to the end."""
    folder = tmp_path_factory.mktemp("single")
    changes = {"max_steps": 12, "bf16": True, "use_cpu": True, "save_strategy": "steps", "save_steps": 6}
    evaluation = {"eval_dataset": "demo_chat", "eval_strategy": "steps", "eval_steps": 6}
    run = start(folder, arguments(demo_inputs, folder, **changes, **evaluation))
    assert run.wait() == 0, run.console[-3000:]
    return run


@pytest.fixture(scope="session")
def stopped(demo_inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two ranks, ZeRO-2: a checkpoint asked for on the way, then a stop."""
    folder = tmp_path_factory.mktemp("stopped")
    run = start(folder, arguments(demo_inputs, folder, max_steps=400), processes=2, zero=2)
    run.until(lambda: len(run.steps(0)) >= 3)
    run.ask("save")
    run.until(lambda: run.records(0, "checkpoint"))
    run.ask("stop", mode="save")
    assert run.wait() == 0, run.console[-3000:]
    return run


@pytest.fixture(scope="session")
def zero3(demo_inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two ranks, ZeRO-3, to the end."""
    folder = tmp_path_factory.mktemp("zero3")
    run = start(folder, arguments(demo_inputs, folder, max_steps=6), processes=2, zero=3)
    assert run.wait() == 0, run.console[-3000:]
    return run


def batched(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def lengths(run: Run) -> list[int]:
    (found,) = marked(inside(HERE / "inside_lengths.py", str(run.folder / "train.yaml")), "LENGTHS ")
    return [int(length) for length in found["lengths"]]


def test_every_step_is_recorded_once_in_order_with_times(single: Run) -> None:
    steps = single.records(0, "step")
    assert [step["s"] for step in steps] == list(range(1, 13))
    assert all(one["t"] < other["t"] for one, other in pairwise(steps))
    assert all(0 <= step["data"] <= step["dt"] for step in steps)
    assert all(step["mem"] is None for step in steps)


def test_step_times_and_pauses_add_up_to_the_wall_time(single: Run) -> None:
    steps = single.records(0, "step")
    begin = single.records(0, "train_begin")[0]["t"]
    pauses = sum(
        after["t"] - before["t"]
        for kinds in (("eval_begin", "eval_end"), ("save_begin", "checkpoint"))
        for before, after in zip(single.records(0, kinds[0]), single.records(0, kinds[1]), strict=True)
        if after["s"] < 12
    )
    assert sum(step["dt"] for step in steps) + pauses == pytest.approx(steps[-1]["t"] - begin, abs=0.05)


def test_tokens_are_those_of_the_rows_without_padding(single: Run) -> None:
    micro_batches = list(batched(lengths(single), 2))
    expected = [sum(map(sum, step)) for step in batched(micro_batches, 2)][:12]
    assert [step["tok"] for step in single.records(0, "step")] == expected
    computed = [sum(2 * -(-max(rows) // 8) * 8 for rows in step) for step in batched(micro_batches, 2)][:12]
    assert [step["tok"] + step["pad"] for step in single.records(0, "step")] == computed


def test_logs_have_full_precision_and_agree_with_the_trainer(single: Run) -> None:
    state = json.loads((single.output / "trainer_state.json").read_text())
    expected = [
        (row["step"], row[name])
        for row in state["log_history"]
        for name in ("loss", "grad_norm", "eval_loss")
        if name in row
    ]
    found = [
        (log["s"], log["v"][name])
        for log in single.records(0, "log")
        for name in ("loss", "grad_norm", "eval_loss")
        if name in log["v"]
    ]
    assert found[:-1] == expected and len(expected) == 3 * 2 + 2
    assert found[-1] == (12, expected[-1][1]), "LLaMA-Factory evaluates once more after it has written its state"
    assert {log["s"] for log in single.records(0, "log") if "eval_loss" in log["v"]} == {6, 12}


def test_the_story_of_a_run_is_told_in_phases(single: Run) -> None:
    phases = [record["phase"] for record in single.records(0, "phase")]
    assert phases[:5] == ["importing", "parsing", "tokenizing", "loading", "training"]
    assert phases[5:] == ["evaluating", "training", "saving", "training"] * 2 + ["finishing", "evaluating", "finishing"]
    (begin,) = single.records(0, "train_begin")
    assert (begin["step"], begin["max_steps"], begin["micro_batch"], begin["accumulation"]) == (0, 12, 2, 2)
    assert 0 < begin["trainable_parameters"] < begin["all_parameters"]
    (began,) = single.records(0, "start")
    assert began["device"] == "cpu" and began["versions"]["llamafactory"] and began["versions"]["torch"]
    assert single.records(0, "train_end")[0]["stopped"] is False
    assert single.records(0)[-1] == {"t": single.records(0)[-1]["t"], "k": "done", "ok": True}
    assert [one["path"] for one in single.records(0, "checkpoint")] == ["checkpoint-6", "checkpoint-12"]


def test_all_ranks_stop_at_one_step_after_saving(stopped: Run) -> None:
    stops = [[r["s"] for r in stopped.records(rank, "request") if r["what"] == "stop"] for rank in (0, 1)]
    assert stops[0] == stops[1] and len(stops[0]) == 1
    last = stops[0][0]
    for rank in (0, 1):
        assert stopped.steps(rank) == list(range(1, last + 1))
        assert stopped.records(rank, "checkpoint")[-1]["s"] == last
        assert stopped.records(rank, "train_end")[0]["stopped"] is True
        assert stopped.records(rank)[-1]["ok"] is True
    assert len(list((stopped.output / f"checkpoint-{last}").glob("global_step*/*optim_states.pt"))) == 2


def test_save_now_writes_a_checkpoint_and_training_goes_on(stopped: Run) -> None:
    saves = [[r["s"] for r in stopped.records(rank, "request") if r["what"] == "save"] for rank in (0, 1)]
    assert saves[0] == saves[1] and len(saves[0]) == 1
    assert (stopped.output / f"checkpoint-{saves[0][0]}" / "trainer_state.json").exists()
    assert not (stopped.folder / "control" / "save.json").exists()
    assert stopped.steps(0)[-1] > saves[0][0]


def test_resume_goes_on_at_the_next_step(stopped: Run, demo_inputs: Path, tmp_path: Path) -> None:
    last = stopped.steps(0)[-1]
    checkpoint = stopped.output / f"checkpoint-{last}"
    changes = {"max_steps": last + 3, "resume_from_checkpoint": str(checkpoint)}
    run = start(tmp_path, arguments(demo_inputs, tmp_path, **changes), processes=2, zero=2)
    assert run.wait() == 0, run.console[-3000:]
    assert run.records(0, "train_begin")[0]["step"] == last
    assert run.steps(0) == run.steps(1) == [last + 1, last + 2, last + 3]


def test_zero3_counts_the_tokens_of_both_ranks_and_all_parameters(zero3: Run, single: Run) -> None:
    per_rank = [[step["tok"] for step in zero3.records(rank, "step")] for rank in (0, 1)]
    rows = lengths(zero3)
    assert [sum(both) for both in zip(*per_rank, strict=True)] == [sum(step) for step in batched(rows, 8)][:6]
    counted = [
        (r["trainable_parameters"], r["all_parameters"])
        for run in (zero3, single)
        for r in run.records(0, "train_begin")
    ]
    assert counted[0] == counted[1], "ZeRO-3 partitions the parameters; their number stays"
    assert not zero3.records(1, "log") and zero3.records(0, "log")


def test_a_failing_run_says_why_and_keeps_its_traceback(demo_inputs: Path, tmp_path: Path) -> None:
    run = start(tmp_path, arguments(demo_inputs, tmp_path, dataset="nowhere", max_steps=2, use_cpu=True))
    assert run.wait() == 1
    done = run.records(0)[-1]
    assert (done["k"], done["ok"]) == ("done", False)
    assert done["error"] == "ValueError: Undefined dataset nowhere in dataset_info.json."
    assert "Traceback" in run.console and "Undefined dataset nowhere" in run.console


def test_ranks_die_with_their_launcher(demo_inputs: Path, tmp_path: Path) -> None:
    run = start(tmp_path, arguments(demo_inputs, tmp_path, max_steps=10_000), processes=2, zero=2)
    run.until(lambda: all(run.records(rank, "phase") for rank in (0, 1)))
    assert len(ranks_of(run)) >= 2
    os.kill(run.launcher.pid, signal.SIGKILL)
    run.launcher.wait(10)
    deadline = time.monotonic() + 5
    while ranks_of(run) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not ranks_of(run)


def ranks_of(run: Run) -> list[int]:
    """Processes that carry this run's mark, its launcher apart."""
    marked_pids = find_marked("TUNEDECK_JOB_DIR", str(run.folder))
    return [found.pid for found in marked_pids if found.pid != run.launcher.pid]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ranks_of_uneven_speed_agree_on_the_step(tmp_path: Path, seed: int) -> None:
    argv = [
        str(TRAINING_PYTHON),
        "-m",
        "torch.distributed.run",
        "--nproc_per_node",
        "3",
        "--master_port",
        str(free_port()),
    ]
    argv += [str(HERE / "inside_agreement.py"), str(tmp_path), "120", str(seed)]
    subprocess.run(argv, check=True, capture_output=True, timeout=120)
    answers = [json.loads((tmp_path / f"told-{rank}.json").read_text()) for rank in range(3)]
    assert answers[0]["told"] == answers[1]["told"] == answers[2]["told"]
    assert 1 <= len(answers[0]["told"]) <= 3


def test_tokens_are_counted_in_every_shape_of_batch(demo_inputs: Path) -> None:
    (counts,) = marked(inside(HERE / "inside_tokens.py", str(demo_inputs)), "COUNTS ")
    assert counts["no_mask"] == counts["positional"] == counts["wrapped"] == counts["boolean_4d"] == [12, 0]
    assert (counts["padded"], counts["left_padded"], counts["sequence_numbers"]) == ([8, 4], [10, 2], [7, 5])
    assert counts["embeddings_only"] is None and counts["strange_mask"] is None
    assert counts["packing"][0] == counts["neat_packing"][0] == counts["rows"][0] > 1000
    assert counts["trained_once"] == [12, 0], "recomputation, reference passes and evaluation do not count"
    assert counts["taken_twice"] is None and counts["detached"] is None
    assert counts["compiled"] == [36, 0]
