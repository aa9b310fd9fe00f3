"""Where the time of a few steps goes: names to categories, overlap of communication and work, the recorder's window."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backend.inside.profiler import Activity, category_of, merge_spans, summarize, table_seconds, uncovered
from backend.inside.recorder import Recorder
from tests.unit.test_recorder import Arguments, Control, State


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"),
        ("rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)", "communication"),
        ("gloo:all_reduce", "communication"),
        ("Cijk_Ailk_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64", "matmul"),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTT", "matmul"),
        ("aten::addmm", "matmul"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4>>", "attention"),
        ("attn_fwd.kd", "attention"),
        ("Memcpy HtoD (Pinned -> Device)", "copies"),
        ("CopyDeviceToDevice", "copies"),
        ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", "optimizer"),
        ("void at::native::elementwise_kernel<128, 4>(symmetric)", "other"),
    ],
)
def test_kernel_names_of_both_makers(name: str, category: str) -> None:
    assert category_of(name) == category


def test_overlapping_spans_count_once() -> None:
    assert merge_spans([(3, 5), (0, 2), (1, 4), (7, 8)]) == [(0, 5), (7, 8)]


def test_communication_is_exposed_only_where_nothing_is_computed() -> None:
    assert uncovered([(0, 10), (20, 30)], [(2, 4), (8, 22), (40, 50)]) == pytest.approx(14)
    facts = summarize(
        [
            Activity(name="nccl_all_reduce", begin=0.0, end=4.0),
            Activity(name="gemm_a", begin=1.0, end=3.0),
            Activity(name="gemm_a", begin=6.0, end=7.0),
        ]
    )
    assert facts["communication_seconds"] == pytest.approx(4.0)
    assert facts["communication_exposed_seconds"] == pytest.approx(2.0)
    assert facts["busy_seconds"] == pytest.approx(5.0)
    assert facts["categories"] == {"communication": 4.0, "matmul": 3.0}
    assert facts["kernels"][1] == {"name": "gemm_a", "category": "matmul", "calls": 2, "seconds": 3.0}  # type: ignore[index]


def test_table_is_summed_by_the_same_names() -> None:
    assert table_seconds([("aten::mm", 1.0), ("aten::bmm", 2.0), ("aten::mul", 4.0)]) == {"matmul": 3.0, "other": 4.0}


class Window:
    """A tracer that a test controls: `broken` raises when the window is opened."""

    def __init__(self, broken: bool = False) -> None:
        self.is_open, self.broken, self.steps, self.error = False, broken, list[int](), ""

    def open(self) -> None:
        if self.broken:
            raise RuntimeError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")
        self.is_open = True

    def step(self, step: int, waited: float) -> bool:
        self.steps.append(step)
        self.is_open = len(self.steps) < 4
        return not self.is_open

    def drop(self) -> None:
        self.is_open = False

    def fail(self, error: str) -> None:
        self.is_open, self.error = False, error


def run(tmp_path: Path, window: Window, steps: int, ask_at: int) -> list[dict[str, Any]]:
    recorder = Recorder(tmp_path)
    recorder._window = window  # type: ignore[assignment]
    (tmp_path / "control").mkdir()
    state, control = State(), Control()
    recorder.on_train_begin(Arguments(), state, control)
    for step in range(1, steps + 1):
        if step == ask_at:
            (tmp_path / "control" / "profile.json").write_text('{"at": 1}')
        state.global_step = step
        recorder.on_step_begin(Arguments(), state, control)
        recorder.on_step_end(Arguments(), state, control)
    recorder.on_train_end(Arguments(), state, control)
    recorder.done()
    lines = (tmp_path / "recorder" / "rank-0.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_request_opens_a_window_once_and_is_answered(tmp_path: Path) -> None:
    window = Window()
    records = run(tmp_path, window, steps=9, ask_at=2)
    assert window.steps == [3, 4, 5, 6]
    answers = [record for record in records if record["k"] == "profile"]
    assert [(answer["s"], answer["ok"], answer["error"]) for answer in answers] == [(6, True, "")]
    assert not (tmp_path / "control" / "profile.json").exists()


def test_broken_tracer_costs_its_window_and_not_the_run(tmp_path: Path) -> None:
    window = Window(broken=True)
    records = run(tmp_path, window, steps=5, ask_at=2)
    assert "INSUFFICIENT_PRIVILEGES" in window.error
    (answer,) = [record for record in records if record["k"] == "profile"]
    assert not answer["ok"] and "CUPTI" in answer["error"]
    assert [record["s"] for record in records if record["k"] == "step"] == [1, 2, 3, 4, 5]


def test_training_that_ends_inside_a_window_leaves_no_request(tmp_path: Path) -> None:
    window = Window()
    records = run(tmp_path, window, steps=4, ask_at=3)
    assert not window.is_open and not (tmp_path / "control" / "profile.json").exists()
    assert records[-1]["k"] == "done"
