"""Every shape of amd-smi and its relatives to rows and one verdict."""

from __future__ import annotations

import json
import random

import pytest

from backend.parsing.amd_smi import parse_bytes, parse_output, parse_tree
from backend.parsing.telemetry.rows import Verdict
from tests.unit.telemetry import outputs
from tests.unit.telemetry.outputs import metric_list, metric_object, metric_record, quantity


@pytest.mark.parametrize("build", [metric_list, metric_object])
def test_list_of_rocm_6_and_object_of_rocm_7_say_the_same(build: object) -> None:
    reading = parse_output(build(metric_record(0), metric_record(1)))  # type: ignore[operator]
    assert reading.verdict is Verdict.OK
    row = reading.gpus[1]
    assert (row.index, row.gfx_activity_percent, row.mem_activity_percent, row.socket_power_watts) == (1, 91, 33, 633)
    assert (row.gfx_clock_mhz, row.mem_clock_mhz, row.hotspot_celsius, row.memory_celsius) == (1777, 1300, 77, 58)
    assert (row.edge_celsius, row.throttle_status, row.bdf) == (None, None, None)
    assert row.vram_total_bytes == 196592 << 20
    assert (row.power_violation_percent, row.thermal_violation_percent) == (12, 0)
    assert (row.ecc_correctable, row.ecc_uncorrectable) == (0, 0)


@pytest.mark.parametrize("text", [outputs.METRIC_TEXT, outputs.METRIC_CSV])
def test_text_and_csv_say_what_json_says(text: str) -> None:
    reading = parse_output(text)
    assert reading.verdict is Verdict.OK
    first, second = reading.gpus
    assert (first.gfx_activity_percent, first.socket_power_watts, first.gfx_clock_mhz) == (91, 633, 1777)
    assert (first.hotspot_celsius, first.memory_celsius, first.edge_celsius, first.ecc_correctable) == (77, 58, None, 4)
    assert first.vram_used_bytes == 1000 << 20
    assert (second.gfx_activity_percent, second.vram_used_bytes) == (None, 900 << 20)


def test_warning_before_json_is_kept_and_shown() -> None:
    line = "WARNING: User is missing the following required groups: render, video. Please add user to these groups.\n"
    reading = parse_output(line + metric_list(metric_record(0)))
    assert reading.verdict is Verdict.OK
    assert reading.warnings == ("user_not_in_groups:render,video",)
    assert reading.preamble == line.strip()


def test_one_dead_card_is_lost_and_the_others_stay() -> None:
    reading = parse_output(metric_object(metric_record(0), outputs.blank(metric_record(1)), metric_record(2)))
    assert reading.verdict is Verdict.GPU_LOST
    assert [row.gfx_activity_percent for row in reading.gpus] == [91, None, 91]
    assert reading.gpus[1].vram_total_bytes is None


def test_table_missing_on_all_cards_is_a_library_older_than_the_driver() -> None:
    records = [
        metric_record(
            n,
            usage={"gfx_activity": "N/A"},
            power={"socket_power": "N/A"},
            clock={"gfx_0": {"clk": "N/A"}},
            temperature="N/A",
        )
        for n in range(2)
    ]
    reading = parse_output(metric_object(*records))
    assert reading.verdict is Verdict.DRIVER_NEWER_THAN_LIBRARY
    assert all(row.vram_total_bytes for row in reading.gpus)


def test_sections_that_nobody_asked_for_are_no_fault() -> None:
    record = {"gpu": 0, "mem_usage": {"total_vram": quantity(196592, "MB"), "used_vram": quantity(5, "MB")}}
    assert parse_output(metric_object(record)).verdict is Verdict.OK


def test_partitions_are_numbered_from_the_card_that_names_them() -> None:
    busy = {"xcp_0": [quantity(90, "%"), "N/A"], "xcp_1": [quantity(0, "%"), "N/A"]}
    card = {"gpu": 0, "usage": {"gfx_activity": quantity(45, "%"), "gfx_busy_inst": busy}}
    part = {"gpu": 1, "usage": {"gfx_activity": "N/A", "gfx_busy_inst": "N/A"}}
    reading = parse_output(metric_object(card, part))
    assert reading.verdict is Verdict.OK
    assert [row.partition_id for row in reading.gpus] == [0, 1]


def test_monitor_columns_go_by_name_with_power_cap_and_partition() -> None:
    first, second = parse_output(outputs.MONITOR_TEXT).gpus
    assert (first.socket_power_watts, first.power_cap_watts, first.hotspot_celsius, first.gfx_clock_mhz) == (
        612,
        750,
        71,
        1811,
    )
    assert (first.partition_id, first.mem_clock_mhz, first.mem_activity_percent) == (0, 1300, 35)
    assert (second.socket_power_watts, second.hotspot_celsius, second.gfx_activity_percent) == (None, None, 0)


def test_monitor_in_cpx_has_sensors_per_card_and_memory_per_partition() -> None:
    reading = parse_output(outputs.MONITOR_CPX)
    assert reading.verdict is Verdict.OK
    assert [row.partition_id for row in reading.gpus] == [0, 1, 2, 0, 1]
    assert [row.vram_scope for row in reading.gpus] == ["card", "partition", "partition", "card", "partition"]
    assert reading.gpus[1].vram_total_bytes == 24 << 30


def test_monitor_csv_in_gibibytes_and_in_mebibytes() -> None:
    gib = parse_output("gpu,gfx,vram_used,vram_total\r\n0,5,10.5,192.0\r\n\r\n").gpus[0]
    mib = parse_output("gpu,gfx_clk,gfx,vram_used,vram_total\r\n0,1700,5,1000,196592\r\n").gpus[0]
    assert gib.vram_used_bytes == 21 << 29
    assert (mib.vram_used_bytes, mib.gfx_clock_mhz, mib.gfx_activity_percent) == (1000 << 20, 1700, 5)


def test_apu_monitor_shows_the_shared_pool_not_vram() -> None:
    row = parse_output("GPU  POWER   GFX%       GTT_USAGE\n  0  300 W   50 %    4.0/376.0 GB\n").gpus[0]
    assert (row.vram_used_bytes, row.gtt_used_bytes) == (None, 4 << 30)


def test_watch_mode_keeps_the_newest_round() -> None:
    text = "timestamp,gpu,gfx,mem\r\n100,0,1,1\r\n101,0,2,2\r\n"
    assert [row.gfx_activity_percent for row in parse_output(text).gpus] == [2]


def test_process_lists_count_each_pid_once_and_repair_kilo_of_kibi() -> None:
    def record(gpu: int) -> dict[str, object]:
        infos = [
            {
                "process_info": {
                    "name": "/usr/bin/python3",
                    "pid": pid,
                    "memory_usage": {"vram_mem": quantity(size, "B")},
                }
            }
            for pid, size in ((41, 26_511_872_000), (42, 81_000))
        ]
        return {"gpu": gpu, "process_list": infos}

    processes = parse_output(json.dumps([record(0), record(1)])).processes
    assert [(row.pid, row.listed_under) for row in processes] == [(41, (0, 1)), (42, (0, 1))]
    assert [row.vram_bytes for row in processes] == [26_511_872 * 1024, 81 * 1024]


def test_no_processes_is_a_sentence_where_an_object_would_be() -> None:
    text = "GPU: 0\n    PROCESS_INFO:\n        No running processes detected\n"
    assert parse_output(text).processes == ()
    assert parse_output(text).verdict is Verdict.OK


def test_two_processes_in_one_text_block() -> None:
    info = "    PROCESS_INFO:\n        NAME: a\n        PID: {}\n        MEMORY_USAGE:\n            VRAM_MEM: 2.0 GB\n"
    processes = parse_output("GPU: 0\n" + info.format(7) + info.format(8)).processes
    assert [(row.pid, row.vram_bytes) for row in processes] == [(7, 2 << 30), (8, 2 << 30)]


def test_list_with_and_without_enumeration() -> None:
    full = {
        "gpu": 0,
        "bdf": "0000:3d:00.0",
        "uuid": "a1ff",
        "kfd_id": 5,
        "node_id": 2,
        "render": "renderD136",
        "card": "card9",
        "hip_id": 0,
    }
    old = {"gpu": 0, "bdf": "0000:c2:00.0", "uuid": "00ff1586-0000-1000-8000-000000000000", "kfd_id": 5, "node_id": 1}
    device = parse_output(json.dumps([full])).devices[0]
    assert (device.bdf, device.render_minor, device.drm_card, device.hip_id) == ("0000:3d:00.0", 136, 9, 0)
    device = parse_output(json.dumps([old])).devices[0]
    assert (device.hip_id, device.uuid, device.kfd_node) == (None, None, 1)
    csv = "gpu,gpu_bdf,gpu_uuid,kfd_id,node_id,partition_id\r\n0,0000:3d:00.0,a1ff,5,2,0\r\n"
    assert parse_output(csv).devices[0].bdf == "0000:3d:00.0"


def test_static_names_of_three_generations() -> None:
    def cap(limit: dict[str, object]) -> object:
        return parse_output(json.dumps([{"gpu": 0, "limit": limit}])).devices[0].power_cap_watts

    assert cap({"max_power": quantity(750, "W"), "socket_power": quantity(600, "W")}) == 600
    assert (
        cap({"ppt0": {"socket_power_limit": quantity(281, "W")}, "ppt1": {"socket_power_limit": quantity(900, "W")}})
        == 281
    )
    csv = "gpu,max_power,socket_power,slowdown_hotspot_temperature\r\n0,750,600,100\r\n"
    assert parse_output(csv).devices[0].power_cap_watts == 600


def test_csv_of_partitions_and_of_the_driver() -> None:
    usage = "gpu,gfx_activity,gfx_busy_inst,gfx_busy_inst_xcp_0,gfx_busy_inst_xcp_1\r\n0,45,N/A,[90],[0]\r\n1,N/A,N/A,N/A,N/A\r\n"
    reading = parse_output(usage)
    assert (reading.verdict, [row.partition_id for row in reading.gpus]) == (Verdict.OK, [0, 1])
    static = "gpu,market_name,name,version\r\n0,AMD Instinct MI300X,amdgpu,6.12.12\r\n"
    assert parse_output(static).devices[0].driver_version == "6.12.12"


def test_static_identity_details() -> None:
    record = {
        "gpu": 0,
        "asic": {
            "market_name": "X",
            "device_id": "0x740f",
            "target_graphics_version": "gfx9010",
            "num_compute_units": 104,
        },
        "driver": {"name": "amdgpu", "version": "Linuxversion6.8.0-31-generic(builder@host)#1SMP"},
        "numa": {"node": 0, "affinity": -1},
        "partition": {"accelerator_partition": "DPX", "memory_partition": "NPS2", "partition_id": 1},
    }
    device = parse_output(json.dumps({"gpu_data": [record]})).devices[0]
    assert (device.gfx_target, device.driver_version, device.numa_node) == ("gfx90a", "6.8.0-31-generic", None)
    assert (device.compute_partition, device.partition_id) == ("DPX", 1)


def test_xgmi_in_two_documents_and_in_one() -> None:
    metric = {
        "gpu": 0,
        "bdf": "0000:1b:00.0",
        "link_metrics": {
            "link_type": "XGMI",
            "links": [{"bdf": "0000:3d:00.0", "read": quantity(10, "KB"), "write": "N/A"}],
        },
    }
    status = {"gpu": 0, "bdf": "0000:1b:00.0", "link_status": ["U", "D", "X"]}
    for text in (
        json.dumps([metric]) + "\n" + json.dumps([status]),
        json.dumps({"xgmi_metric": [[metric]], "link_status": [status]}),
    ):
        reading = parse_output(text)
        assert reading.link_status == {0: "UDX"}
        assert (reading.links[0].read_bytes, reading.links[0].write_bytes) == (10240, None)


def test_concise_tables_of_rocm_smi_name_their_sensor() -> None:
    even, odd = parse_output(outputs.CONCISE_EDGE).gpus
    assert (even.edge_celsius, even.hotspot_celsius, even.socket_power_watts, even.power_cap_watts) == (
        51,
        None,
        390,
        560,
    )
    assert (odd.socket_power_watts, odd.power_cap_watts, odd.gfx_activity_percent) == (None, None, 88)
    row = parse_output(outputs.CONCISE_JUNCTION).gpus[0]
    assert (row.hotspot_celsius, row.edge_celsius, row.socket_power_watts, row.vram_used_percent) == (66, None, 501, 50)


def test_rocm_smi_json_csv_and_lines() -> None:
    labels = {
        "GPU use (%)": "97",
        "GPU memory use (%)": "38",
        "sclk clock speed:": "(1833Mhz)",
        "PCI Bus": "0000:2A:00.0",
    }
    power = {"Current Socket Graphics Package Power (W)": "688.0", "Temperature (Sensor junction) (C)": "77.0"}
    texts = [
        json.dumps({"card0": labels | power, "system": {"Driver version": "6.7"}}),
        "device," + ",".join(labels | power) + "\ncard0," + ",".join((labels | power).values()) + "\n",
        "\n".join(f"GPU[0]\t\t: {name.rstrip(':')}: {value}" for name, value in (labels | power).items()),
    ]
    for text in texts:
        row = parse_output(text).gpus[0]
        assert (row.gfx_activity_percent, row.mem_activity_percent, row.gfx_clock_mhz) == (97, 38, 1833)
        assert (row.socket_power_watts, row.hotspot_celsius, row.bdf) == (688, 77, "0000:2a:00.0")


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("", Verdict.NO_OUTPUT),
        (" \n", Verdict.NO_OUTPUT),
        ("[]", Verdict.NO_GPU),
        ("{}", Verdict.NO_GPU),
        ('{"gpu_data": []}', Verdict.NO_GPU),
        ('{"cpu_data": [{"cpu": 0}]}', Verdict.NO_GPU),
        ('{"system": {"Driver version": "6.7"}}', Verdict.NO_GPU),
        ("Invalid platform", Verdict.NOT_AMD_SMI_OUTPUT),
        ('{"jobs": []}', Verdict.NOT_AMD_SMI_OUTPUT),
        ("zsh: command not found", Verdict.NOT_AMD_SMI_OUTPUT),
        ("ERROR:root:Driver not initialized (amdgpu not found in modules)", Verdict.DRIVER_NOT_LOADED),
        ("ERROR:root:Unable to detect any GPU devices, check amdgpu version", Verdict.NO_GPU),
        ("KeyError: 'libamd_smi.so'", Verdict.LIBRARY_MISSING),
        ("AttributeError: /opt/rocm/lib/libamd_smi.so: undefined symbol: amdsmi_get_x", Verdict.LIBRARY_MISMATCH),
        ("Traceback (most recent call last):\nPermissionError: [Errno 13]", Verdict.NO_PERMISSION),
        ("Traceback (most recent call last):\nTypeError: x", Verdict.CRASH),
        ("Segmentation fault (core dumped)", Verdict.CRASH),
        ('[\n    {\n        "gpu": 0,\n        "usage": {"gfx', Verdict.CRASH),
    ],
)
def test_texts_without_readings(text: str, verdict: Verdict) -> None:
    reading = parse_output(text)
    assert reading.verdict is verdict
    assert reading.gpus == ()
    assert bool(reading.remedy) == (verdict is not Verdict.OK)


def test_version_line_with_and_without_driver() -> None:
    line = (
        "AMDSMI Tool: 26.2.0+1 | AMDSMI Library version: 26.2.0 | ROCm version: 7.2.0"
        " | amdgpu version: 6.16.13 | hsmp version: N/A"
    )
    versions = parse_output(line).versions
    assert versions is not None
    assert (versions.tool, versions.library, versions.rocm, versions.driver) == (
        "26.2.0+1",
        "26.2.0",
        "7.2.0",
        "6.16.13",
    )


def test_version_as_json_csv_and_in_late_words() -> None:
    record = {"tool": "AMDSMI Tool", "version": "26.2.1", "amdsmi_library_version": "26.2.1", "rocm_version": "7.2.1"}
    texts = [
        json.dumps([record | {"amdgpu_version": "6.16"}]),
        "tool,version,amdsmi_library_version,rocm_version,driver_version\r\nAMDSMI Tool,26.2.1,26.2.1,7.2.1,6.16\r\n",
        "AMDSMI Tool: 26.2.1 | AMDSMI Library version: 26.2.1 | ROCm version: 7.2.1 | Kernel version: 6.8 | Driver version: 6.16",
    ]
    for text in texts:
        reading = parse_output(text)
        assert reading.versions is not None
        assert (reading.verdict, reading.versions.library, reading.versions.driver) == (Verdict.OK, "26.2.1", "6.16")


def test_partition_tables_are_readable_without_rows() -> None:
    document = {"current_partition": [{"gpu_id": 0, "memory": "NPS1", "accelerator_type": "SPX", "partition_id": "0"}]}
    assert parse_output(json.dumps(document)).verdict is Verdict.OK


def test_processes_sorted_by_pid() -> None:
    gpus = [{"gpu_index": n, "memory_usage": {"vram_mem": quantity(8192, "B")}} for n in (0, 3)]
    text = "PID: 9  NAME: train\n    GPU: 0  MEM: 8.0 KB  GFX: 0 ns\n    GPU: 3  MEM: 8.0 KB  GFX: 0 ns\n"
    for output in (json.dumps([{"pid": 9, "name": "train", "gpus": gpus}]), text):
        row = parse_output(output).processes[0]
        assert (row.pid, row.name, row.listed_under, row.vram_bytes) == (9, "train", (0, 3), 8192)


def test_bare_table_with_a_lost_card() -> None:
    rule = "|-------------------------------------+----------------------------------------|"
    rows = [
        "| BDF                        GPU-Name | Mem-Uti   Temp   UEC       Power-Usage |",
        "| GPU  HIP-ID  OAM-ID  Partition-Mode | GFX-Uti    Fan               Mem-Usage |",
        rule,
        "| 0000:1b:00.0    AMD Instinct MI300X | 37 %     81 °C   2           701/750 W |",
        "|   0       1       4        SPX/NPS1 | 96 %       N/A        140877/196592 MB |",
        rule,
        "| 0000:3d:00.0    AMD Instinct MI300X | N/A      N/A     N/A               N/A |",
        "|   1       0       5        N/A      | N/A        N/A                     N/A |",
    ]
    reading = parse_output("\n".join(rows))
    assert reading.verdict is Verdict.GPU_LOST
    first, second = reading.gpus
    assert (first.gfx_activity_percent, first.socket_power_watts, first.power_cap_watts, first.hip_id) == (
        96,
        701,
        750,
        1,
    )
    assert (first.ecc_uncorrectable, first.vram_used_bytes, first.memory_partition) == (2, 140877 << 20, "NPS1")
    assert (second.bdf, second.vram_total_bytes, second.ecc_uncorrectable) == ("0000:3d:00.0", None, None)


def test_kernel_log_names_the_cause_before_the_reset() -> None:
    log = (
        "[10.5] amdgpu 0000:4e:00.0: amdgpu: GPU reset begin!\n"
        "[10.6] amdgpu 0000:4e:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!\n"
        "[11.0] usb 1-1: new device\n"
    )
    assert [(event.kind, event.bdf) for event in parse_output(log).events] == [
        ("gpu_reset", "0000:4e:00.0"),
        ("uncorrectable_error", "0000:4e:00.0"),
    ]


def _mutations(seed: int) -> list[bytes]:
    """Cut, spliced, byte-flipped and random texts."""
    chance = random.Random(seed)
    seeds = [
        metric_object(metric_record(0), metric_record(1)),
        outputs.METRIC_TEXT,
        outputs.METRIC_CSV,
        outputs.MONITOR_CPX,
        outputs.CONCISE_JUNCTION,
        '{"module": "amdsmi", "devices": [{"calls": {"amdsmi_get_gpu_metrics_info": {"current_gfxclks": [1]}}}]}',
    ]
    texts = []
    for _ in range(60):
        data = bytearray(chance.choice(seeds).encode())
        for _ in range(chance.randrange(1, 12)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        cut = chance.randrange(len(data))
        texts += [bytes(data), bytes(data[:cut]), bytes(data[cut:]), chance.randbytes(chance.randrange(200))]
    return texts


@pytest.mark.parametrize("seed", range(4))
def test_any_text_gives_a_verdict_never_an_exception(seed: int) -> None:
    for data in _mutations(seed):
        assert isinstance(parse_bytes(data).verdict, Verdict)


@pytest.mark.parametrize(
    "document",
    [
        {"module": "amdsmi", "devices": [{"calls": None}, 5, {"calls": {"amdsmi_get_temp_metric": {"by_arg": 3}}}]},
        {"module": "amdsmi", "global_calls": [], "polls": [{}]},
        {"gpu_data": [{"gpu": {"value": []}, "usage": [1], "power": 5, "clock": {"gfx_0": 7}, "mem_usage": "N/A"}]},
        {"card0": {"GPU use (%)": {"a": 1}}},
        {"card0": 7},
        {"xgmi_metric": 5, "link_status": [{"link_status": [None, {}]}]},
        [{"gpu": 0, "process_list": [None, {"process_info": [{"pid": "x"}]}]}],
        [{"gpu": 0, "links": [{"bdf": 1}], "bdf": []}],
        [[[[]]]],
    ],
)
def test_wrong_types_inside_valid_json_are_missing(document: object) -> None:
    assert isinstance(parse_output(json.dumps(document)).verdict, Verdict)


def test_deep_nesting_is_no_crash() -> None:
    assert isinstance(parse_output("[" * 100_000).verdict, Verdict)
    assert isinstance(parse_output('{"gpu":0,"usage":' + '{"a":' * 500 + "1" + "}" * 501).verdict, Verdict)


# --- trees ----------------------------------------------------------------------------------------------------------------------


def _card(bdf: str, **files: str) -> dict[str, str]:
    return {
        "vendor": "0x1002\n",
        "uevent": f"DRIVER=amdgpu\nPCI_SLOT_NAME={bdf}\n",
        "gpu_busy_percent": "12\n",
        **files,
    }


def _tree(cards: dict[str, dict[str, str]]) -> dict[str, str]:
    return {f"class/drm/{card}/device/{name}": text for card, files in cards.items() for name, text in files.items()}


def test_sysfs_skips_other_vendors_connectors_and_partition_devices() -> None:
    hwmon = {
        "hwmon/hwmon9/name": "amdgpu\n",
        "hwmon/hwmon9/temp2_label": "junction\n",
        "hwmon/hwmon9/temp2_input": "61000\n",
        "hwmon/hwmon9/temp1_label": "mem\n",
        "hwmon/hwmon9/temp1_input": "-273150\n",
        "hwmon/hwmon9/power1_average": "201000000\n",
        "hwmon/hwmon9/power1_cap": "0\n",
        "pp_dpm_sclk": "0: 500Mhz\nS: 132Mhz *\n",
        "ras/umc_err_count": "ue: 1\nce: 2\n",
        "ras/gfx_err_count": "ue: 0\nce: 3\nde: 4\n",
    }
    tree = _tree(
        {
            "card0": {"vendor": "0x1a03\n", "uevent": "PCI_SLOT_NAME=0000:03:00.0\n"},
            "card10": _card("0000:3d:00.0", **hwmon),
            "card2": {"vendor": "0x1002\n", "uevent": "DRIVER=amdgpu_xcp\n"},
            "card1": _card("0000:1b:00.0"),
        }
    ) | {"class/drm/card1-DP-1/status": "connected\n"}
    rows = parse_tree(tree).gpus
    assert [(row.index, row.bdf, row.drm_card) for row in rows] == [(0, "0000:1b:00.0", 1), (1, "0000:3d:00.0", 10)]
    row = rows[1]
    assert (row.hotspot_celsius, row.memory_celsius, row.socket_power_watts, row.power_cap_watts) == (
        61,
        None,
        201,
        None,
    )
    assert (row.gfx_clock_mhz, row.ecc_uncorrectable, row.ecc_correctable, row.ecc_deferred) == (132, 1, 5, 4)
    assert rows[0].ecc_uncorrectable is None


def test_kfd_gives_identity_and_memory_per_process_and_device() -> None:
    def node(number: int, gpu_id: int, location: int) -> dict[str, str]:
        properties = (
            "simd_count 416\nsimd_per_cu 4\ngfx_target_version 90010\n"
            f"location_id {location}\ndomain 1\ndrm_render_minor 128\n"
        )
        return {
            f"topology/nodes/{number}/gpu_id": f"{gpu_id}\n",
            f"topology/nodes/{number}/properties": properties,
            f"topology/nodes/{number}/mem_banks/0/properties": "heap_type 1\nsize_in_bytes 68702699520\n",
        }

    cpu = {"topology/nodes/0/gpu_id": "0\n", "topology/nodes/0/properties": "cpu_cores_count 8\n"}
    proc = {"proc/77/vram_11": "4096\n", "proc/77/vram_22": "0\n", "proc/77/sdma_22": "0\n", "proc/77/pasid": "5\n"}
    reading = parse_tree(cpu | node(1, 11, 0x2900) | node(2, 22, 0x2A19) | proc)
    first, second = reading.devices
    assert (first.hip_id, first.bdf, first.gfx_target, first.num_compute_units) == (0, "0001:29:00.0", "gfx90a", 104)
    assert (second.hip_id, second.bdf, second.vram_total_bytes) == (1, "0001:2a:03.1", 68702699520)
    process = reading.processes[0]
    assert (process.pid, process.pasid, process.vram_by_device, process.sdma_us) == (77, 5, {"0001:29:00.0": 4096}, {})


def test_empty_tree_has_no_gpu() -> None:
    assert parse_tree({}).verdict is Verdict.NO_GPU
    assert parse_tree({"module/amdgpu/initstate": "going\n"}).verdict is Verdict.DRIVER_NOT_LOADED


def in_capitals(value: object) -> object:
    """The same record with the keys that the text form prints."""
    if isinstance(value, dict):
        return {key.upper(): in_capitals(inner) for key, inner in value.items()}
    return [in_capitals(one) for one in value] if isinstance(value, list) else value


def test_keys_in_capitals_are_the_same_keys() -> None:
    records = [metric_record(0), metric_record(1)]
    assert parse_output(json.dumps(in_capitals(records))).gpus == parse_output(json.dumps(records)).gpus


@pytest.mark.parametrize("build", [metric_list, metric_object])
def test_a_record_with_nothing_but_its_number_is_a_lost_card(build: object) -> None:
    reading = parse_output(build(metric_record(0), {"gpu": 1}, metric_record(2)))  # type: ignore[operator]
    assert reading.verdict is Verdict.GPU_LOST
    assert [row.index for row in reading.gpus] == [0, 1, 2]
    assert [row.socket_power_watts for row in reading.gpus] == [633, None, 633]


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_output_that_ends_in_the_middle_is_a_crash_and_no_smaller_host(share: float) -> None:
    whole = json.dumps({"gpu_data": [metric_record(n) for n in range(4)]}, indent=4)
    reading = parse_output(whole[: int(len(whole) * share)])
    assert (reading.verdict, reading.gpus) == (Verdict.CRASH, ())


def test_a_second_round_that_ends_in_the_middle_leaves_the_first() -> None:
    whole = json.dumps([metric_record(0)], indent=4)
    assert len(parse_output(f"{whole}\n{whole[:200]}").gpus) == 1
