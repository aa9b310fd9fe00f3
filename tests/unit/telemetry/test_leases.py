"""Which devices a job gets, and what the job is told about them."""

from __future__ import annotations

import pytest

from backend.domain.gpu import Device, DeviceHealth, DeviceLink, DeviceProcess
from backend.errors import InvalidInput
from backend.planning.leases import (
    VISIBILITY_VARIABLES,
    DeviceState,
    Hindrance,
    build_visibility,
    check_devices,
    choose_devices,
    clear_health,
    find_islands,
    judge_health,
    restrict_devices,
)


def _device(number: int, **changes: object) -> Device:
    values = {
        "id": f"0000:{number:02x}:00.0",
        "vendor": "amd",
        "hip_id": number,
        "smi_index": 7 - number,
        "uuid": f"GPU-{number}abc",
    }
    return Device(**(values | changes))  # type: ignore[arg-type]


def _states(count: int, **changes: dict[int, object]) -> list[DeviceState]:
    """`changes`: field -> {device number: value}."""
    return [
        DeviceState(device=_device(n), **{field: values[n] for field, values in changes.items() if n in values})  # type: ignore[arg-type]
        for n in range(count)
    ]


def _mesh(*numbers: int) -> list[DeviceLink]:
    return [
        DeviceLink(source=_device(a).id, target=_device(b).id, kind="XGMI", hops=1)
        for a in numbers
        for b in numbers
        if a < b
    ]


def test_choice_prefers_one_island_and_leaves_larger_ones_whole() -> None:
    links = _mesh(0, 1, 2, 3) + _mesh(4, 5)
    assert choose_devices(2, _states(6), links).devices == (_device(4).id, _device(5).id)
    assert choose_devices(3, _states(6), links).devices == (_device(0).id, _device(1).id, _device(2).id)
    spread = choose_devices(5, _states(6), links)
    assert (len(spread.devices), spread.islands) == (5, 2)


def test_choice_says_why_each_device_was_left() -> None:
    states = _states(
        6,
        leased_by={0: "job"},
        health={1: DeviceHealth(device="x", set_aside="1 new error")},
        lost={2: True},
        foreign={3: (DeviceProcess(device="x", pid=5),)},
        activity_percent={4: 88.0},
    )
    choice = choose_devices(1, states)
    assert choice.devices == (_device(5).id,)
    assert list(choice.hindered.values()) == [
        Hindrance.LEASED,
        Hindrance.SET_ASIDE,
        Hindrance.LOST,
        Hindrance.FOREIGN_PROCESS,
        Hindrance.BUSY,
    ]
    assert choose_devices(2, states).devices == ()


def test_device_that_reports_nothing_is_not_called_busy() -> None:
    assert choose_devices(1, _states(1)).devices == (_device(0).id,)


def test_named_devices_may_be_busy_but_not_leased() -> None:
    states = _states(3, leased_by={0: "other"}, foreign={1: (DeviceProcess(device="x", pid=5, name="train.py"),)})
    choice = check_devices([_device(2).id, _device(1).id], states)
    assert choice.devices == (_device(1).id, _device(2).id)
    assert "train.py 5" in choice.warnings[0]
    assert check_devices([_device(0).id], states).hindered == {_device(0).id: Hindrance.LEASED}
    with pytest.raises(InvalidInput, match="0000:ff"):
        check_devices(["0000:ff:00.0"], states)
    with pytest.raises(InvalidInput, match="twice"):
        check_devices([_device(2).id] * 2, states)


def test_islands_follow_links_hives_and_cards() -> None:
    devices = [
        _device(0, hive_id=9),
        _device(1, hive_id=9),
        _device(2),
        _device(3, id="0000:02:00.1", card=_device(2).id),
        _device(4),
    ]
    islands = find_islands(devices, [DeviceLink(source=_device(2).id, target=_device(4).id, kind="XGMI", hops=2)])
    assert islands[devices[0].id] == islands[devices[1].id] != islands[devices[2].id]
    assert islands[devices[2].id] == islands["0000:02:00.1"]
    assert islands[_device(4).id] == _device(4).id, "two hops are no direct link"


def test_rocm_gets_hip_indices_in_one_variable() -> None:
    chosen, removed = build_visibility([_device(4), _device(5)], "rocm")
    assert chosen == {"HIP_VISIBLE_DEVICES": "4,5"}
    assert set(removed) == set(VISIBILITY_VARIABLES) - {"HIP_VISIBLE_DEVICES"}


def test_nvidia_gets_bus_order_indices() -> None:
    chosen, removed = build_visibility([_device(3, vendor="nvidia", hip_id=None)], "cuda")
    assert chosen == {"CUDA_VISIBLE_DEVICES": "4", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert "HIP_VISIBLE_DEVICES" in removed


@pytest.mark.parametrize("accelerator", ["rocm", "cuda", "cpu"])
def test_no_devices_are_hidden_by_minus_one_never_by_an_empty_value(accelerator: str) -> None:
    chosen, removed = build_visibility([], accelerator)
    visible = {name: value for name, value in chosen.items() if name in VISIBILITY_VARIABLES}
    assert list(visible.values()) == ["-1"]
    assert set(removed) | set(visible) == set(VISIBILITY_VARIABLES)


def test_device_without_index_is_refused() -> None:
    with pytest.raises(InvalidInput, match="HIP index"):
        build_visibility([_device(0, hip_id=None)], "rocm")


def test_own_environment_restricts_what_may_be_leased() -> None:
    devices = [_device(n) for n in range(6)]

    def ids(environment: dict[str, str]) -> list[int | None]:
        return [device.hip_id for device in restrict_devices(devices, environment)[0]]

    assert ids({}) == [0, 1, 2, 3, 4, 5]
    assert ids({"HIP_VISIBLE_DEVICES": "4,5"}) == [4, 5]
    assert ids({"HIP_VISIBLE_DEVICES": ""}) == [0, 1, 2, 3, 4, 5], "empty means not set"
    assert ids({"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "1"}) == [5], "HIP counts what ROCR left"
    assert ids({"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "4,5"}) == []
    assert ids({"CUDA_VISIBLE_DEVICES": "2"}) == [2]
    assert ids({"ROCR_VISIBLE_DEVICES": "GPU-3abc"}) == [3]
    assert ids({"ROCR_VISIBLE_DEVICES": "-1"}) == []
    assert restrict_devices(devices, {"ROCR_VISIBLE_DEVICES": "0"})[1]


def test_new_uncorrectable_errors_set_a_card_aside_until_cleared() -> None:
    health = judge_health(DeviceHealth(device="x"), 2, 1.0)
    assert health.set_aside == "", "errors from before we looked are the baseline"
    assert judge_health(health, None, 2.0) == health, "no reading, no judgement"
    health = judge_health(health, 3, 3.0)
    assert (health.set_aside, health.since) == ("1 new uncorrectable memory error(s)", 3.0)
    health = judge_health(health, 3, 4.0)
    assert (bool(health.set_aside), health.since) == (True, 3.0)
    health = clear_health(health)
    assert judge_health(health, 3, 5.0).set_aside == ""
    rebooted = judge_health(health, 1, 6.0)
    assert rebooted.set_aside == "1 new uncorrectable memory error(s)"
