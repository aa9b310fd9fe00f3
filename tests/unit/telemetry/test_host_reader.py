"""CPU, memory, disks and network of the machine that runs the tests."""

from __future__ import annotations

from pathlib import Path

from backend.adapters.gpus_amd import AmdHost
from backend.adapters.host import PsutilHostReader, read_disk
from backend.adapters.host_facts import read_host_facts


def test_first_reading_has_no_rates_and_the_second_has(tmp_path: Path) -> None:
    reader = PsutilHostReader({"data": tmp_path / "not" / "made" / "yet"})
    first, second = reader.read(100.0), reader.read(101.0)
    assert (first.cpu_percent, first.network_sent_bytes_per_second) == (None, None)
    assert second.network_sent_bytes_per_second is not None and second.network_sent_bytes_per_second >= 0
    assert second.cpu_percent is not None and 0 <= second.cpu_percent <= 100
    assert first.ram_total_bytes and first.ram_used_bytes and first.ram_used_bytes < first.ram_total_bytes
    assert first.disks[0].free_bytes, "of the nearest folder that exists"


def test_clock_that_stands_still_gives_no_rate(tmp_path: Path) -> None:
    reader = PsutilHostReader({})
    reader.read(100.0)
    assert reader.read(100.0).disk_read_bytes_per_second is None


def test_disk_of_a_path_is_its_file_system(tmp_path: Path) -> None:
    disk = read_disk("data", tmp_path)
    assert disk.total_bytes and disk.free_bytes and disk.free_bytes <= disk.total_bytes


def test_facts_come_from_files_below_the_root(tmp_path: Path) -> None:
    files = {
        "proc/cmdline": "quiet iommu=pt\n",
        "proc/sys/kernel/numa_balancing": "1\n",
        "dev/kfd": "",
        "dev/dri/renderD128": "",
        "rocm/.info/version": "7.2.1-43\n",
        "rocm/lib/librccl.so.1": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    host = AmdHost(
        root=tmp_path, rocm_folders=(tmp_path / "rocm",), environment={"HIP_VISIBLE_DEVICES": "1", "SECRET": "x"}
    )
    facts = read_host_facts({"data": tmp_path}, host)
    assert facts.kernel_arguments == ("quiet", "iommu=pt")
    assert (facts.numa_balancing, facts.rocm_version) == ("1", "7.2.1")
    assert set(facts.device_groups) == {"/dev/kfd", "/dev/dri/renderD128"}
    assert facts.unreachable_nodes == ()
    assert facts.rccl_libraries == (str(tmp_path / "rocm/lib/librccl.so.1"),)
    assert facts.environment == {"HIP_VISIBLE_DEVICES": "1"}, "nothing else of the environment is shown"
