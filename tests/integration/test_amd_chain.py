"""The whole chain on a host made of files, a fake amdsmi module and a fake amd-smi: choice, failures, recovery."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.adapters import gpus_amd
from backend.adapters.gpus_amd import AmdHost, AmdReader
from backend.adapters.process import identify, is_alive
from backend.services.gpus import GpuService
from backend.services.sampler import Sampler
from backend.store.telemetry import TelemetryStore

FAKE_ROCM = Path(__file__).parents[1] / "data" / "telemetry" / "fake_rocm"
FIRST, SECOND = "0000:1b:00.0", "0000:3d:00.0"

Build = Callable[..., AmdReader]


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def make_host(root: Path, *, renders: tuple[int, ...] = (128, 136)) -> None:
    """Two MI300X in /sys, /dev and KFD; HIP's order is the reverse of the bus."""
    for card, bdf, render, node, kfd in ((1, FIRST, 128, 3, 11), (9, SECOND, 136, 2, 22)):
        device = f"sys/class/drm/card{card}/device"
        bus = int(bdf[5:7], 16)
        _write(
            root,
            {
                f"{device}/vendor": "0x1002\n",
                f"{device}/device": "0x74a1\n",
                f"{device}/uevent": f"DRIVER=amdgpu\nPCI_SLOT_NAME={bdf}\n",
                f"{device}/gpu_busy_percent": "40\n",
                f"{device}/mem_info_vram_total": "206141652992\n",
                f"{device}/mem_info_vram_used": "1048576\n",
                f"{device}/drm/renderD{render}/dev": f"226:{render}\n",
                f"{device}/hwmon/hwmon{card}/name": "amdgpu\n",
                f"{device}/hwmon/hwmon{card}/power1_input": "300000000\n",
                f"{device}/hwmon/hwmon{card}/temp2_label": "junction\n",
                f"{device}/hwmon/hwmon{card}/temp2_input": "66000\n",
                f"{device}/hwmon/hwmon{card}/freq1_label": "sclk\n",
                f"{device}/hwmon/hwmon{card}/freq1_input": "1500000000\n",
                f"{device}/ras/umc_err_count": "ue: 0\nce: 2\n",
                f"sys/class/kfd/kfd/topology/nodes/{node}/gpu_id": f"{kfd}\n",
                f"sys/class/kfd/kfd/topology/nodes/{node}/properties": (
                    f"simd_count 1216\nsimd_per_cu 4\ngfx_target_version 90402\nlocation_id {bus << 8}\n"
                    f"domain 0\ndrm_render_minor {render}\nnum_xcc 8\nhive_id 777\n"
                ),
                f"sys/class/kfd/kfd/proc/4711/vram_{kfd}": "5000000000\n" if kfd == 22 else "0\n",
            },
        )
    _write(root, {"sys/class/kfd/kfd/topology/nodes/0/gpu_id": "0\n", "sys/module/amdgpu/version": "6.16.13\n"})
    _write(root, {f"dev/dri/renderD{minor}": "" for minor in renders} | {"proc/4711/comm": "train.py\n", "dev/kfd": ""})


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """Make readers on the file host; keyword arguments become environment variables of the tools."""
    made: list[AmdReader] = []

    def make(*, rocm: tuple[Path, ...] = (FAKE_ROCM,), **variables: str) -> AmdReader:
        waits = any(mode.startswith("hang") for mode in variables.values())
        monkeypatch.setattr(gpus_amd, "PROBE_SECONDS", 4.0 if waits else 30.0)
        monkeypatch.setattr(gpus_amd, "POLL_SECONDS", 2.0 if waits else 30.0)
        make_host(tmp_path / "root")
        environment = {"PATH": os.environ["PATH"], **variables}
        made.append(AmdReader(AmdHost(root=tmp_path / "root", rocm_folders=rocm, environment=environment)))
        return made[-1]

    yield make
    for reader in made:
        reader.close()


def test_amdsmi_comes_first_with_exact_means(build: Build) -> None:
    reader = build()
    devices = reader.inventory().devices
    assert [(device.id, device.hip_id, device.hip_id_source) for device in devices] == [
        (SECOND, 0, "enumeration"),
        (FIRST, 1, "enumeration"),
    ]
    assert (devices[1].render_minor, devices[1].gfx_target, devices[1].hive_id) == (128, "gfx942", 777)
    assert [link.kind for link in reader.inventory().links] == ["XGMI"]
    first = reader.read(1.0)
    assert first.source.kind == "amdsmi"
    assert first.source.label == "amdsmi 26.2.1, ROCm 7.2.1, amdgpu 6.16.13"
    by_device = {reading.device: reading for reading in first.readings}
    assert by_device[FIRST].gfx_activity_percent == 5, "no interval yet: the moment"
    time.sleep(0.4)
    reading = {reading.device: reading for reading in reader.read(2.0).readings}[FIRST]
    assert reading.gfx_activity_percent == pytest.approx(80, abs=4)
    assert reading.socket_power_watts == pytest.approx(400, rel=0.1)
    assert reading.power_violation_percent == pytest.approx(25, abs=3)
    assert (reading.edge_celsius, reading.hotspot_celsius, reading.power_cap_watts) == (None, 71, 750)
    assert (reading.ecc_correctable, reading.ecc_uncorrectable, reading.xgmi_links_down) == (3, 0, 1)


@pytest.mark.parametrize(
    ("mode", "word"),
    [
        ("no_library", "library_missing"),
        ("mismatch", "library_mismatch"),
        ("no_driver", "driver_not_loaded"),
        ("hang", "no answer within"),
    ],
)
@pytest.mark.parametrize("version", ["6", "7"])
def test_amdsmi_that_does_not_start_leaves_amd_smi(build: Build, mode: str, word: str, version: str) -> None:
    if mode == "hang" and version == "6":
        pytest.skip("once is enough: it waits")
    reader = build(FAKE_AMDSMI=mode, FAKE_AMD_SMI_VERSION=version)
    devices = reader.inventory().devices
    assert [(device.id, device.hip_id) for device in devices] == [(SECOND, 0), (FIRST, 1)]
    snapshot = reader.read(1.0)
    assert snapshot.source.kind == "amd-smi"
    assert snapshot.source.label.startswith("amd-smi 26.2.1")
    assert word in snapshot.source.tried["amdsmi"]
    assert {reading.device: reading.gfx_activity_percent for reading in snapshot.readings} == {FIRST: 60, SECOND: 61}
    if mode != "hang":  # its short time limits hold for the error counters as well
        assert {reading.ecc_correctable for reading in snapshot.readings} == {1}
    assert {device.power_cap_watts for device in devices} == {700}


@pytest.mark.parametrize(
    ("mode", "word"),
    [
        ("invalid_platform", "not_amd_smi_output"),
        ("garbage", "not_amd_smi_output"),
        ("crash", "crash"),
        ("denied", "no_permission"),
        ("hang", "no answer within"),
    ],
)
def test_amd_smi_that_fails_leaves_sysfs(build: Build, mode: str, word: str) -> None:
    reader = build(FAKE_AMDSMI="no_library", FAKE_AMD_SMI=mode)
    devices = reader.inventory().devices
    assert [(device.id, device.hip_id, device.hip_id_source) for device in devices] == [
        (SECOND, 0, "kfd"),
        (FIRST, 1, "kfd"),
    ]
    snapshot = reader.read(1.0)
    assert (snapshot.source.kind, snapshot.source.label) == ("sysfs", "sysfs, amdgpu 6.16.13")
    assert word in snapshot.source.tried["amd-smi"]
    reading = snapshot.readings[0]
    assert (reading.gfx_activity_percent, reading.socket_power_watts, reading.hotspot_celsius) == (40, 300, 66)
    assert (reading.ecc_correctable, reading.gfx_clock_mhz) == (2, 1500)


@pytest.mark.parametrize("variables", [{"FAKE_AMDSMI": "lost"}, {"FAKE_AMDSMI": "no_library", "FAKE_AMD_SMI": "lost"}])
def test_one_lost_card_is_marked_and_the_other_stays(build: Build, variables: dict[str, str]) -> None:
    reader = build(**variables)
    assert len(reader.inventory().devices) == 2
    snapshot = reader.read(1.0)
    assert snapshot.source.verdict == "gpu_lost"
    assert {reading.device: reading.lost for reading in snapshot.readings} == {FIRST: False, SECOND: True}
    assert next(reading for reading in snapshot.readings if not reading.lost).vram_used_bytes


def test_library_older_than_the_driver_is_said_and_sysfs_fills_in(build: Build) -> None:
    reader = build(FAKE_AMDSMI="driver_newer")
    reader.inventory()
    snapshot = reader.read(1.0)
    assert snapshot.source.verdict == "driver_newer_than_library"
    assert "update the ROCm user space" in snapshot.source.reason
    reading = snapshot.readings[0]
    assert (reading.socket_power_watts, reading.hotspot_celsius, reading.gfx_activity_percent) == (300, 66, 40)
    assert reading.vram_used_bytes in (1000 << 20, 2000 << 20)


@pytest.mark.parametrize("mode", ["crash", "garbage"])
def test_three_failures_in_a_row_move_on_to_the_next_source(build: Build, mode: str) -> None:
    reader = build(FAKE_AMDSMI=mode)
    reader.inventory()
    kinds = []
    for beat in range(4):
        snapshot = reader.read(float(beat))
        kinds.append((snapshot.source.kind, bool(snapshot.readings)))
    assert kinds[-1] == ("amd-smi", True)
    assert kinds[0] == ("amdsmi", False), "a failed round has no readings and says so"


def test_poll_that_hangs_is_killed_and_reported(build: Build) -> None:
    reader = build(FAKE_AMDSMI="hang_later")
    reader.inventory()
    source = reader._sources[0]
    child = source._child.pid  # type: ignore[attr-defined]
    before = identify(child)
    assert before is not None
    began = time.monotonic()
    snapshot = reader.read(1.0)
    assert time.monotonic() - began < 8
    assert snapshot.readings == ()
    assert "no answer within 2 s and was killed" in snapshot.errors[0]
    assert not is_alive(before)


def test_processes_come_from_kfd_with_their_own_device(build: Build) -> None:
    reader = build()
    reader.inventory()
    assert [(row.device, row.pid, row.name, row.vram_bytes) for row in reader.read_processes()] == [
        (SECOND, 4711, "train.py", 5_000_000_000)
    ]


def test_container_with_one_render_node_counts_hip_anew(tmp_path: Path) -> None:
    make_host(tmp_path, renders=(128,))
    reader = AmdReader(AmdHost(root=tmp_path, rocm_folders=(), environment={"PATH": "/nonexistent"}))
    devices = reader.inventory().devices
    assert [(device.id, device.accessible, device.hip_id) for device in devices] == [
        (SECOND, False, None),
        (FIRST, True, 0),
    ]


def test_host_without_amd_starts_nothing_and_says_why(tmp_path: Path) -> None:
    reader = AmdReader(AmdHost(root=tmp_path, rocm_folders=(), environment={"PATH": "/nonexistent"}))
    assert reader.inventory().devices == ()
    source = reader.read(1.0).source
    assert (source.kind, source.verdict) == ("none", "no_gpu")
    assert "no /dev/kfd" in source.reason


def test_from_the_fake_library_to_what_the_page_gets(build: Build, tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path / "telemetry.sqlite")
    sampler = Sampler(store, [build()], beat_seconds=0.3)
    for _ in range(3):
        sampler.beat()
        time.sleep(0.35)
    service = GpuService(store, environment={})
    assert service.device_ids() == (SECOND, FIRST)
    assert service.source().label.startswith("amdsmi 26.2.1")
    assert service.visibility([FIRST]) == {"HIP_VISIBLE_DEVICES": "1"}
    row = service.to_json({FIRST: "job-1"})[1]
    assert (row["id"], row["leased_by"]) == (FIRST, "job-1")
    assert row["reading"]["gfx_activity_percent"] == pytest.approx(80, abs=6)
    assert row["gaps"]["edge_celsius"] == "not_on_part"
    assert service.processes()[0].name == "train.py"
    now = time.time()
    history = service.history(FIRST, "hotspot_celsius", now - 60, now)
    assert set(history.mean) == {71.0}
