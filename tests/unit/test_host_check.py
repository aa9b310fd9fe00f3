import json
from dataclasses import replace
from pathlib import Path

import pytest

from backend.domain.bench import DeviceCheck, HostCheck, LinkRow
from backend.domain.job import Job, JobState, Task
from backend.errors import InvalidInput
from backend.inside.bench import parse_rccl_tests
from backend.parsing.host_check import parse_host_check
from backend.planning.drift import compare_checks, find_drift, find_usual
from backend.planning.spec import parse_spec
from backend.services.bench import BenchStore
from backend.store.paths import DataPaths

RCCL_TESTS = """\
# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 8(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    12.31    0.00    0.00      0    11.90    0.00    0.00      0
    16777216       4194304     float     sum      -1    151.2  110.96  110.96      0    150.9  111.18  111.18      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 55.5
"""

CHECK = HostCheck(
    at=1.0, job="j1", host="node1", world=2, seconds=9.0, backend="nccl", profile="plain",
    devices=(DeviceCheck(device="cuda:0", name="MI300X", matmul_flops=6.5e14, memory_bytes_per_second=4.0e12),
             DeviceCheck(device="cuda:1", name="MI300X", matmul_flops=6.4e14, memory_bytes_per_second=4.1e12)),
    links=(LinkRow(bytes=8, seconds=20e-6, bytes_per_second=4e5, bus_bytes_per_second=4e5, right=True),
           LinkRow(bytes=1 << 28, seconds=2e-3, bytes_per_second=1.3e11, bus_bytes_per_second=1.3e11, right=True)),
)  # fmt: skip


def test_tables_of_rccl_tests_are_read_in_plain_units() -> None:
    rows = parse_rccl_tests(RCCL_TESTS)
    assert [row["bytes"] for row in rows] == [8, 16777216]
    assert rows[1]["seconds"] == pytest.approx(151.2e-6)
    assert rows[1]["bus_bytes_per_second"] == pytest.approx(110.96e9)


def test_slowest_device_and_largest_link_stand_for_the_host() -> None:
    assert CHECK.matmul_flops == 6.4e14
    assert CHECK.bus_bytes_per_second == 1.3e11
    assert CHECK.latency_seconds == 20e-6


def test_drift_needs_two_earlier_checks_of_the_same_host_ranks_and_profile() -> None:
    slow = replace(CHECK, job="j9", devices=(replace(CHECK.devices[0], matmul_flops=5.0e14), CHECK.devices[1]))
    assert find_drift(slow, [CHECK]) == ()
    other = [replace(CHECK, world=4), replace(CHECK, host="node2"), replace(CHECK, profile="amd_single_node")]
    assert find_drift(slow, other) == ()
    (alarm,) = find_drift(slow, [CHECK, replace(CHECK, job="j2")])
    assert (alarm.what, alarm.device) == ("matmul_flops", "cuda:0")
    assert alarm.share == pytest.approx(5.0 / 6.5)


def test_card_is_compared_with_itself_whatever_it_was_called_and_whoever_took_part() -> None:
    first = replace(CHECK.devices[0], id="0000:c1:00.0")
    second = replace(CHECK.devices[1], id="0000:c2:00.0")
    both = replace(CHECK, devices=(first, second))
    # Alone the second card is cuda:0; it is as fast as always, though slower than the other cuda:0.
    alone = replace(
        CHECK, job="j9", world=1, links=(), devices=(replace(second, device="cuda:0", matmul_flops=5.9e14),)
    )
    before = [both, replace(both, job="j2")]
    assert [alarm.device for alarm in find_drift(alone, before)] == []
    slow = replace(alone, devices=(replace(alone.devices[0], matmul_flops=5.0e14),))
    assert [(alarm.what, alarm.device) for alarm in find_drift(slow, before)] == [("matmul_flops", "0000:c2:00.0")]
    other_links = replace(both, devices=(first, replace(second, id="0000:d1:00.0")), links=(CHECK.links[0],))
    assert not [usual for usual in find_usual(other_links, before) if not usual.device], "other cards, other links"


def test_two_processes_of_one_check_are_one_earlier_check() -> None:
    ranks = tuple(replace(CHECK.devices[0], device="cpu") for _ in range(2))
    before = [replace(CHECK, job=job, devices=ranks) for job in ("j1", "j2")]
    now = replace(CHECK, job="j9", devices=tuple(replace(rank, matmul_flops=3.0e14) for rank in ranks))
    assert find_usual(now, before[:1]) == ()
    assert [alarm.what for alarm in find_drift(now, before)] == ["matmul_flops"] * 2


def test_usual_figures_are_told_without_an_alarm_too() -> None:
    usual = find_usual(replace(CHECK, job="j9"), [CHECK, replace(CHECK, job="j2")])
    assert {one.what for one in usual} == {
        "matmul_flops", "memory_bytes_per_second", "bus_bytes_per_second", "latency_seconds"
    }  # fmt: skip
    assert all(one.share == 1.0 and not one.alarm for one in usual)


def test_slower_links_and_longer_latency_are_alarms_small_noise_is_not() -> None:
    before = [CHECK, replace(CHECK, job="j2")]
    noisy = replace(CHECK, links=(CHECK.links[0], replace(CHECK.links[1], bus_bytes_per_second=1.2e11)))
    assert find_drift(noisy, before) == ()
    bad = replace(
        CHECK,
        links=(replace(CHECK.links[0], seconds=90e-6), replace(CHECK.links[1], bus_bytes_per_second=0.5e11)),
    )
    assert {alarm.what for alarm in find_drift(bad, before)} == {"bus_bytes_per_second", "latency_seconds"}


def test_profiles_are_compared_size_by_size() -> None:
    faster = replace(CHECK, links=(replace(CHECK.links[1], bus_bytes_per_second=2.6e11),))
    (row,) = compare_checks(CHECK, faster)
    assert (row.bytes, row.ratio) == (1 << 28, 2.0)


@pytest.mark.parametrize("record", [None, [], {}, {"devices": 3}])
def test_anything_but_an_answer_is_refused(record: object) -> None:
    with pytest.raises(InvalidInput):
        parse_host_check(record, at=0.0)


class Queue:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def submit(self, spec_text: str) -> Job:
        self.texts.append(spec_text)
        return Job(
            id="check-1", name="host-check", state=JobState.SUCCEEDED, tags=("host-check", "plain"), ended_at=5.0
        )


def test_check_is_submitted_as_a_job_and_kept_once(tmp_path: Path) -> None:
    paths, queue = DataPaths(tmp_path), Queue()
    store = BenchStore(paths)
    job = store.submit(queue, gpus=("0000:c1:00.0",), env={"HIP_FORCE_DEV_KERNARG": "1"}, profile="plain")
    spec = parse_spec(queue.texts[0])
    assert spec.task is Task.BENCH and spec.gpus == ("0000:c1:00.0",) and spec.env == {"HIP_FORCE_DEV_KERNARG": "1"}
    folder = paths.job(job.id).root
    folder.mkdir(parents=True)
    answer = {
        "host": "n",
        "world": 1,
        "seconds": 3,
        "devices": [{"device": "cuda:0", "name": "x", "matmul_flops": 1e14}],
    }
    (folder / "bench.json").write_text(json.dumps(answer))
    job = replace(job, devices=("0000:c1:00.0",))
    check, drift = store.collect(job)
    assert check.devices[0].id == "0000:c1:00.0"
    store.collect(job)
    assert drift == () and store.checks() == [check] and store.latest() == check
    with paths.benches.open("a") as stream:
        stream.write('{"half a li')
    assert store.checks() == [check]
    with pytest.raises(InvalidInput):
        store.compare("check-1", "missing")
