"""Short ends of consoles, each with the one cause to name: wordings of several versions, prefixes, consequences and torn ends."""

from __future__ import annotations

import json

import pytest

from backend.parsing.diagnosis import Diagnosis, diagnose
from backend.parsing.log_inspection import read_log_facts

STEPS = "".join(f"\r {at}%|#         | {at}/100 [00:{at:02d}<03:00,  1.90s/it]" for at in range(1, 12)) + "\n"
WAITED = (
    "[rank0]:[E311 07:02:10.400 ProcessGroupNCCL.cpp:629] [PG ID 1 PG GUID 0(default_pg) Rank 0] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=58, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=900000) ran for 900020 "
    "milliseconds before timing out.\n"
)


def end_of(text: str) -> Diagnosis:
    """The diagnosis of a console that ends with this text."""
    return diagnose((STEPS + text).encode())


def traced(error: str, rank: int | None = None) -> str:
    """A traceback that ends in this error, as torch prints it for a rank."""
    lines = ["Traceback (most recent call last):", '  File "/srv/work/train.py", line 8, in main', "    run()", error]
    head = "" if rank is None else f"[rank{rank}]: "
    return "".join(f"{head}{line}\n" for line in lines)


def block(rank: int, local_rank: int, time: str) -> str:
    """torchrun's summary."""
    return (
        "Root Cause (first observed failure):\n[0]:\n"
        f"  time      : {time}\n  host      : node-{rank}\n  rank      : {rank} (local_rank: {local_rank})\n"
        "  exitcode  : 1 (pid: 77)\n  error_file: <N/A>\n============\n"
    )


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("RuntimeError: unable to mmap 1024 bytes from file </torch_91_7_2>: Cannot allocate memory (12)", "shared_memory_full"),
        ("PermissionError: [Errno 13] Permission denied: '/pool/hf/hub/models--acme--oak'", "cache_dir_unwritable"),
        ("ValueError: Image features and image tokens do not match, tokens: 812, features: 1040", "sequence_too_long"),
        ("ValueError: Image features and image tokens do not match, tokens: 0, features: 1040", "image_count_mismatch"),
        (
            "requests.exceptions.ConnectionError: (MaxRetryError('HTTPSConnectionPool(host=\\'huggingface.co\\', port=443): "
            "Max retries exceeded with url: /acme/oak (Caused by ...)",
            "hub_offline_miss",
        ),
        ("modelscope.hub.errors.NotExistError: The file path in model: acme/oak-3b not exists", "model_path_missing"),
        ("ImportError: /opt/t/lib/libtorch_hip.so: undefined symbol: rocblas_thing", "native_library_missing"),
        ("torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found in x", "toolchain_missing"),
        ("ValueError: [deepspeed] failed to resume from checkpoint out/checkpoint-40", "checkpoint_incomplete"),
        ("RuntimeError: DataLoader worker (pid(s) 512) exited unexpectedly", "killed_without_reason"),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: 'out/tmp-checkpoint-40/trainer_state.json'",
            "checkpoint_rename_race",
        ),
        ("OSError: [Errno 39] Directory not empty: 'out/tmp-checkpoint-a8_k2' -> 'out/checkpoint-40'", "checkpoint_rename_race"),
        (
            "ValueError: Can't find a checkpoint index (a.index.json or b.index.json) in out/checkpoint-40.",
            "checkpoint_incomplete",
        ),
        ("_pickle.UnpicklingError: invalid load key, 'v'.", "weights_file_corrupt"),
        (
            "_pickle.UnpicklingError: Weights only load failed. WeightsUnpickler error: Unsupported operand 118",
            "weights_file_corrupt",
        ),
        ("_pickle.UnpicklingError: Weights only load failed. Unsupported global: GLOBAL numpy.core", "checkpoint_load_refused"),
        (
            "requests.exceptions.HTTPError: 404 Client Error: Not Found for url: "
            "https://www.modelscope.cn/api/v1/models/a/oak/revisions",
            "model_path_missing",
        ),
        ("ImportError: cannot import name 'flash_attn_func' from 'flash_attn' (/opt/t/__init__.py)", "attention_package_missing"),
        (
            "pyarrow.lib.ArrowNotImplementedError: Unsupported cast from string to list using function cast_list",
            "dataset_type_conflict",
        ),
        ("pyarrow.lib.ArrowInvalid: JSON parse error: Invalid value. in row 5", "not_valid_json"),
        (
            "pyarrow.lib.ArrowInvalid: JSON parse error: Column(/a) changed from string to number in row 2",
            "dataset_type_conflict",
        ),
        ("json.decoder.JSONDecodeError: Extra data: line 2 column 1 (char 88)", "not_valid_json"),
        ("ValueError: The decoder prompt (length 9120) is longer than the maximum model length of 8192.", "sequence_too_long"),
        ("torch._inductor.exc.TritonMissing: Cannot find a working triton installation.", "package_missing"),
        ("AttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'", "op_build_failed"),
        ("ValueError: Cannot open d/dataset_info.json due to Expecting value: line 4 column 1 (char 9).", "not_valid_json"),
    ],
)  # fmt: skip
def test_an_error_in_the_words_of_several_versions(error: str, cause: str) -> None:
    assert end_of(traced(error)).root_cause == cause


def test_too_many_open_files_is_no_full_shared_memory() -> None:
    error = (
        "RuntimeError: unable to open shared memory object </torch_91_7_2> in read-write mode: Too many open files (24)"
    )
    assert end_of(traced(error)).root_cause is None


def test_a_wait_that_timed_out_is_a_collective() -> None:
    wait = "[rank1]:[E311 07:02:10.4 ProcessGroupNCCL.cpp:683] [Rank 1] Work WorkNCCL(SeqNum=5, OpType=ALLREDUCE) timed out in"
    assert end_of(f"{wait} blocking wait.\n").root_cause == "collective_timeout"


def test_a_missing_repository_is_told_from_a_gated_one() -> None:
    missing = traced("huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. (Request ID: Root=1-c)")
    assert end_of(missing).root_cause == "model_path_missing"
    gated = traced("huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-c)")
    assert end_of(gated).root_cause == "hub_gated"


def test_a_broad_error_is_no_stop_that_hides_the_exact_one_behind_it() -> None:
    first = traced("huggingface_hub.errors.HFValidationError: Repo id must be in the form 'a/b': 'out/oak/lora'.")
    second = traced("ValueError: Can't find 'adapter_config.json' at 'out/oak/lora'")
    assert end_of(first + second).root_cause == "checkpoint_not_found"


def test_an_unknown_error_before_a_timeout_is_the_one_to_show() -> None:
    found = end_of(traced("KeyError: 'labels'", 3) + WAITED)
    assert (found.outcome, found.root_cause, found.first_failing_rank) == ("failed", None, 3)
    assert found.evidence[0].text == "KeyError: 'labels'"


def test_a_lost_connection_before_a_timeout_explains_nothing() -> None:
    found = end_of(traced("torch.distributed.DistBackendError: NCCL error: remote process exited", 2) + WAITED)
    assert found.root_cause == "collective_timeout"
    assert found.reporting_ranks == (0,)


def test_killing_subprocess_after_an_error_code_is_cleaning_up() -> None:
    killed = "[INFO] [launch.py:319:sigkill_handler] Killing subprocess 71\n"
    code = "[ERROR] [launch.py:325:sigkill_handler] ['python3', 'a.py'] exits with return code = {}\n"
    assert end_of(killed + code.format(1)).root_cause is None
    assert end_of(killed + code.format(1)).outcome == "failed"
    assert end_of(killed + code.format(-9)).root_cause == "killed_without_reason"


def test_of_two_nodes_summaries_the_earlier_failure_counts() -> None:
    early, late = block(9, 1, "2026-03-11_07:02:08"), block(0, 0, "2026-03-11_07:02:31")
    assert end_of(early + late).first_failing_rank == 9
    assert end_of(late + early).first_failing_rank == 9


def test_of_two_launches_summaries_the_last_counts() -> None:
    assert end_of(block(9, 1, "2026-03-11_07:02:08") + block(2, 2, "2026-03-11_09:40:00")).first_failing_rank == 2


@pytest.mark.parametrize("prefix", ["3: ", "node12: ", "[node-12] ", "trainer-1  | ", "2026-03-11T07:02:08.123456Z "])
def test_prefixes_of_launchers_and_containers_hide_no_rank(prefix: str) -> None:
    text = traced("RuntimeError: HIP error: an illegal memory access was encountered", 12)
    found = end_of("".join(f"{prefix}{line}\n" for line in text.splitlines()))
    assert (found.root_cause, found.first_failing_rank) == ("gpu_memory_fault", 12)


def test_a_prefixed_summary_of_torchrun_is_read() -> None:
    prefixed = "".join(f"1: {line}\n" for line in block(11, 3, "2026-03-11_07:02:08").splitlines())
    assert end_of(prefixed).first_failing_rank == 11


@pytest.mark.parametrize(
    ("line", "outcome", "cause"),
    [
        ("run.sh：行 9: 4182 已杀死               llamafactory-cli train a.yaml", "failed", "killed_without_reason"),
        ("run.sh: 行 9: 4182 挂起                 llamafactory-cli train a.yaml", "stopped", "terminal_hangup"),
        ("run.sh：行 9: 4182 段错误               （核心已转储） llamafactory-cli train a.yaml", "failed", None),
        ("cp: 写入错误: 设备上没有空间", "failed", "disk_full"),
        ("run.sh: line 9: 4182 Aborted                 (core dumped) llamafactory-cli train a.yaml", "failed", None),
    ],
)
def test_what_a_shell_says_in_two_languages(line: str, outcome: str, cause: str | None) -> None:
    found = end_of(line + "\n")
    assert (found.outcome, found.root_cause) == (outcome, cause)


def test_a_step_log_in_words_ends_with_its_throughput() -> None:
    steps = "".join(f"Step {at}/300, Loss: {2.2 - at / 300:.2f}, LR: 3e-5\n" for at in (100, 200, 300))
    end = "Saving checkpoint to out/checkpoint-300\nTraining completed in 0:09:31. Throughput: 2,040 tokens/sec/GPU\n"
    facts = read_log_facts({"console.log": (steps + end).encode()})
    assert (facts["outcome"], facts["last_checkpoint_step"], facts["throughput"]) == ("completed", 300, 2040.0)


def test_throughput_that_is_always_zero_was_not_counted() -> None:
    def log(rate: float) -> dict[str, object]:
        rows = [{"current_steps": n, "total_steps": 40, "loss": 1.5, "throughput": rate * n} for n in (10, 20, 30)]
        return read_log_facts({"trainer_log.jsonl": "".join(f"{json.dumps(row)}\n" for row in rows).encode()})

    assert "throughput_zero" in as_list(log(0.0)["notes"])
    assert "throughput_zero" not in as_list(log(9.5)["notes"])


def as_list(value: object) -> list[object]:
    """A list of a JSON answer."""
    assert isinstance(value, (list, tuple))
    return list(value)


def test_an_empty_parameter_of_zero3_is_no_other_vocabulary() -> None:
    error = "size mismatch for model.embed_tokens.weight: copying a param with shape torch.Size([900, 64]) from checkpoint, "
    assert end_of(traced(f"{error}the shape in current model is torch.Size([0]).")).root_cause is None
    other = end_of(traced(f"{error}the shape in current model is torch.Size([904, 64])."))
    assert (other.root_cause, other.facts["model_rows"]) == ("embedding_size_mismatch", 904)


def test_a_step_that_slurm_cancels_after_a_task_failed_was_not_cancelled() -> None:
    task = "srun: error: n7: task 3: Segmentation fault (core dumped)\n"
    cancel = "slurmstepd: error: *** STEP 88.0 ON n6 CANCELLED AT 2026-03-11T07:02:08 ***\n"
    assert (end_of(task + cancel).outcome, end_of(task + cancel).root_cause) == ("failed", None)
    ended = cancel + "srun: error: n7: task 3: Terminated\n"
    assert (end_of(ended).outcome, end_of(ended).root_cause) == ("stopped", "cancelled")


def test_a_new_launch_leaves_the_failure_of_the_old_one_behind() -> None:
    header = "***** Running training *****\n  Total optimization steps = 100\n"
    failed = traced("RuntimeError: HIP error: invalid device function", 1) + block(1, 1, "2026-03-11_07:02:08")
    assert diagnose((header + STEPS + failed).encode()).outcome == "failed"
    again = diagnose((header + STEPS + failed + header + STEPS).encode())
    assert (again.outcome, again.root_cause) == ("running", None)
