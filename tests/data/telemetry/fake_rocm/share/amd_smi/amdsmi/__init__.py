"""A stand-in for ROCm's amdsmi module: two cards with counters that run; FAKE_AMDSMI names a failure."""

import os
import sys
import time

_MODE = os.environ.get("FAKE_AMDSMI", "")
_BORN = time.monotonic()
print("a library line on stdout that would spoil JSON")

if _MODE == "no_library":
    raise KeyError("libamd_smi.so")
if _MODE == "mismatch":
    raise AttributeError("/opt/rocm/lib/libamd_smi.so: undefined symbol: amdsmi_get_gpu_new_thing")


class AmdSmiException(Exception):
    pass


class AmdSmiLibraryException(AmdSmiException):
    def __init__(self, err_code, err_info=""):
        self.err_code, self.err_info = err_code, err_info
        super().__init__(f"Error code:\n\t{err_code} | {err_info}")


class AmdSmiTemperatureType:
    EDGE, HOTSPOT, VRAM = 0, 1, 2


class AmdSmiTemperatureMetric:
    CURRENT, CRITICAL, EMERGENCY = 0, 5, 7


def amdsmi_init():
    if _MODE == "hang":
        time.sleep(3600)
    if _MODE == "no_driver":
        raise AmdSmiLibraryException(34, "AMDSMI_STATUS_DRIVER_NOT_LOADED - Driver not loaded")


def amdsmi_get_lib_version():
    return {"major": 26, "minor": 2, "release": 1, "build": "x"}


def amdsmi_get_rocm_version():
    return (True, "7.2.1")


def amdsmi_get_processor_handles():
    return [0, 1]


def amdsmi_get_gpu_device_bdf(handle):
    return ("0000:1b:00.0", "0000:3D:00.0")[handle]


def amdsmi_get_gpu_device_uuid(handle):
    return f"a{handle}ff74a1-0000-1000-8000-00000000b00{handle}"


def amdsmi_get_gpu_asic_info(handle):
    return {
        "market_name": "AMD Instinct MI300X",
        "device_id": "0x74a1",
        "num_compute_units": 304,
        "target_graphics_version": "gfx942",
        "oam_id": handle,
    }


def amdsmi_get_gpu_driver_info(handle):
    return {"driver_name": "amdgpu", "driver_version": "6.16.13"}


def amdsmi_get_gpu_enumeration_info(handle):
    return {"drm_render": (128, 136)[handle], "drm_card": (1, 9)[handle], "hip_id": 1 - handle, "hip_uuid": "N/A"}


def amdsmi_get_gpu_kfd_info(handle):
    return {"kfd_id": (11, 22)[handle], "node_id": 3 - handle, "current_partition_id": 0}


def amdsmi_get_xgmi_info(handle):
    return {"xgmi_hive_id": 777}


def amdsmi_get_gpu_compute_partition(handle):
    return "SPX"


def amdsmi_get_gpu_memory_partition(handle):
    return "NPS1"


def amdsmi_get_power_cap_info(handle):
    return {"power_cap": 750_000_000, "max_power_cap": 750_000_000}


def amdsmi_get_gpu_vram_info(handle):
    raise AmdSmiLibraryException(2, "AMDSMI_STATUS_NOT_SUPPORTED")


def amdsmi_get_temp_metric(handle, sensor, metric):
    if sensor == AmdSmiTemperatureType.EDGE:
        raise AmdSmiLibraryException(2, "AMDSMI_STATUS_NOT_SUPPORTED")
    return {0: 70, 5: 100, 7: 110}[metric]


def amdsmi_topo_get_link_type(one, other):
    return {"hops": 1, "type": 2}


def amdsmi_get_gpu_vram_usage(handle):
    if _MODE == "lost" and handle == 1:
        raise AmdSmiLibraryException(54, "AMDSMI_STATUS_AMDGPU_RESTART_ERR")
    return {"vram_total": 196592, "vram_used": 1000 * (handle + 1)}


def amdsmi_get_gpu_total_ecc_count(handle):
    if _MODE == "lost" and handle == 1:
        raise AmdSmiLibraryException(54, "AMDSMI_STATUS_AMDGPU_RESTART_ERR")
    return {"correctable_count": 3, "uncorrectable_count": 0, "deferred_count": 0}


def amdsmi_get_gpu_xgmi_link_status(handle):
    return {"status": ["U", "D", "X"], "total_links": 3}


def amdsmi_get_gpu_metrics_info(handle):
    if _MODE == "crash":
        os.kill(os.getpid(), 11)
    if _MODE == "hang_later":
        time.sleep(3600)
    if _MODE == "lost" and handle == 1:
        raise AmdSmiLibraryException(54, "AMDSMI_STATUS_AMDGPU_RESTART_ERR")
    if _MODE == "garbage":
        os.write(int(sys.argv[sys.argv.index("--answers") + 1]), b"this is no JSON\n")
    if _MODE == "driver_newer":
        return {"average_gfx_activity": "N/A", "current_socket_power": "N/A", "temperature_hotspot": "N/A"}
    passed = time.monotonic() - _BORN
    return {
        "average_gfx_activity": 5,
        "average_umc_activity": 33,
        "current_socket_power": 600,
        "temperature_hotspot": 71,
        "temperature_mem": 55,
        "temperature_edge": "N/A",
        "current_gfxclks": [1800, 1801],
        "current_uclk": 1300,
        "throttle_status": "N/A",
        # 80 % all the time, and 400 W: the mean over the interval, not the moment.
        "gfx_activity_acc": int(passed * 1000 * 80),
        "energy_accumulator": int((1000 + passed * 400 * (handle + 1)) / 15.259e-6),
        "firmware_timestamp": int(passed * 1e8) + 1,
        "accumulation_counter": int(passed * 1000) + 1,
        "ppt_residency_acc": int(passed * 250),
        "xcp_stats.gfx_busy_inst": [["N/A"] * 8] * 8,
    }
