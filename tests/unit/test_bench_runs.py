"""Which cards a host check may take, under which variables, and who is named when it may not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from backend.domain.gpu import Device, DeviceProcess
from backend.domain.job import Job, JobState
from backend.errors import Conflict, InvalidInput
from backend.planning.leases import DeviceState
from backend.planning.spec import parse_spec
from backend.services.api import Api
from backend.services.bench_runs import Benches, BenchWish
from tests.job_folders import add_job, open_api

A, B, C = (f"0000:0{n}:00.0" for n in range(3))


class Cards:
    """Three MI300X; `foreign`: who uses one without us."""

    def __init__(self, *ids: str, foreign: Mapping[str, str] | None = None) -> None:
        self.ids, self.foreign = ids, foreign or {}

    def states(self, leases: Mapping[str, str]) -> tuple[DeviceState, ...]:
        return tuple(
            DeviceState(
                device=Device(id=each, vendor="amd", name="MI300X", gfx_target="gfx942", hip_id=at),
                leased_by=leases.get(each, ""),
                foreign=(DeviceProcess(device=each, pid=7, name=self.foreign[each], vram_bytes=1, job_id=""),)
                if each in self.foreign
                else (),
            )
            for at, each in enumerate(self.ids)
        )


def benches(api: Api, *ids: str, foreign: Mapping[str, str] | None = None) -> tuple[Benches, list[str]]:
    """And the documents that it submits."""
    made = Benches(api, Cards(*ids, foreign=foreign))  # type: ignore[arg-type]
    texts: list[str] = []

    class Queue:
        def submit(self, spec_text: str) -> Job:
            texts.append(spec_text)
            return Job(id=f"check-{len(texts)}", name="host-check", state=JobState.QUEUED)

    real = made.store.submit
    made.store.submit = lambda _, **wish: real(Queue(), **wish)  # type: ignore[method-assign]
    return made, texts


def lease(api: Api, card: str) -> None:
    add_job(api, "busy", JobState.RUNNING, name="my run", devices=(card,))
    with api.jobs.database.transaction() as connection:
        connection.execute("insert into leases (device, job_id) values (?, ?)", (card, "busy"))


def test_all_free_cards_are_checked_and_those_in_use_left_alone(tmp_path: Path) -> None:
    api = open_api(tmp_path)
    lease(api, A)
    made, texts = benches(api, A, B, C, foreign={C: "vllm"})
    made.start(BenchWish())
    assert parse_spec(texts[0]).gpus == (B,)
    assert [(card.why, card.job_name, card.process) for card in made.view().cards] == [
        ("leased", "my run", ""), ("", "", ""), ("foreign_process", "", "vllm 7")
    ]  # fmt: skip


@pytest.mark.parametrize(("wanted", "who"), [((A,), "run my run"), ((B, C), "vllm 7")])
def test_busy_card_that_is_asked_for_is_named_with_its_user(tmp_path: Path, wanted: tuple[str, ...], who: str) -> None:
    api = open_api(tmp_path)
    lease(api, A)
    made, texts = benches(api, A, B, C, foreign={C: "vllm"})
    with pytest.raises(Conflict, match=who):
        made.start(BenchWish(gpus=wanted))
    assert texts == []


def test_two_profiles_are_two_checks_of_the_same_cards(tmp_path: Path) -> None:
    made, texts = benches(open_api(tmp_path), A, B)
    assert len(made.start(BenchWish(gpus=(B, A), profiles=("plain", "amd_single_node")))) == 2
    plain, tuned = (parse_spec(text) for text in texts)
    assert plain.gpus == tuned.gpus == (B, A) and plain.env == {} and plain.tags == ("host-check", "plain")
    assert tuned.env["HIP_FORCE_DEV_KERNARG"] == "1" and tuned.tags[1] == "amd_single_node"
    assert [profile.name for profile in made.profiles()] == ["plain", "amd_single_node", "amd_multi_node"]
    made.start(BenchWish(profiles=("plain", "mine"), env={"NCCL_ALGO": "Ring"}))
    assert [parse_spec(text).env for text in texts[2:]] == [{}, {"NCCL_ALGO": "Ring"}]


@pytest.mark.parametrize(
    "wish",
    [
        BenchWish(profiles=("unheard-of",)),
        BenchWish(profiles=()),
        BenchWish(profiles=("plain",), env={"A": "1"}),
        BenchWish(profiles=("Bad Name",), env={"A": "1"}),
    ],
)
def test_profile_that_means_nothing_is_refused(tmp_path: Path, wish: BenchWish) -> None:
    made, texts = benches(open_api(tmp_path), A)
    with pytest.raises(InvalidInput, match="profiles"):
        made.start(wish)
    assert texts == []


def test_unknown_card_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="gpus"):
        benches(open_api(tmp_path), A)[0].start(BenchWish(gpus=("0000:ff:00.0",)))
    with pytest.raises(InvalidInput, match="no GPU"):
        benches(open_api(tmp_path))[0].start(BenchWish(gpus=(A,)))


def test_host_without_cards_checks_its_cpu_but_not_beside_a_run(tmp_path: Path) -> None:
    api = open_api(tmp_path)
    made, texts = benches(api)
    made.start(BenchWish())
    assert parse_spec(texts[0]).processes == 2
    with pytest.raises(InvalidInput, match="processes"):
        made.start(BenchWish(processes=99))
    add_job(api, "busy", JobState.RUNNING, name="my run", devices=())
    with pytest.raises(Conflict, match="my run"):
        made.start(BenchWish())


def test_running_check_tells_what_it_measures_and_a_failed_one_is_named(tmp_path: Path) -> None:
    api = open_api(tmp_path)
    made, _ = benches(api)
    paths = add_job(api, "check", JobState.RUNNING, devices=(), tags=("host-check", "plain"))
    (running,) = made.view().running
    assert running.part == ""
    paths.bench_progress.write_text(json.dumps({"part": "links", "bytes": 8}))
    (running,) = made.view().running
    assert (running.part, running.bytes) == ("links", 8) and made.view().failed is None
    api.jobs.update("check", state=JobState.FAILED)
    found = made.view()
    assert found.running == () and found.failed is not None and found.failed["id"] == "check"
