"""Outputs in the forms that amd-smi and its relatives print; all values are ours."""

from __future__ import annotations

import json
from typing import Any


def quantity(value: object, unit: str) -> dict[str, object]:
    return {"value": value, "unit": unit}


def metric_record(gpu: int, **changes: Any) -> dict[str, Any]:
    """A record of `amd-smi metric --json` of an MI300-like card; `changes` replace whole sections."""
    record: dict[str, Any] = {
        "gpu": gpu,
        "usage": {"gfx_activity": quantity(91, "%"), "umc_activity": quantity(33, "%"), "mm_activity": "N/A"},
        "power": {"socket_power": quantity(633, "W"), "gfx_voltage": "N/A", "throttle_status": "N/A"},
        "clock": {
            "gfx_0": {"clk": quantity(1777, "MHz"), "max_clk": quantity(2100, "MHz")},
            "gfx_1": {"clk": quantity(1900, "MHz")},
            "mem_0": {"clk": quantity(1300, "MHz")},
        },
        "temperature": {"edge": "N/A", "hotspot": quantity(77, "C"), "mem": quantity(58, "C")},
        "pcie": {"width": 16, "speed": quantity(32, "GT/s"), "replay_count": 0},
        "ecc": {"total_correctable_count": 0, "total_uncorrectable_count": 0, "total_deferred_count": 0},
        "energy": {"total_energy_consumption": quantity(1234.5, "J")},
        "mem_usage": {"total_vram": quantity(196592, "MB"), "used_vram": quantity(1000, "MB")},
        "throttle": {
            "ppt_violation_activity": quantity(12, "%"),
            "socket_thermal_violation_activity": quantity(0, "%"),
        },
    }
    return {**record, **changes}


def blank(value: Any) -> Any:
    """The same record with every value N/A, as a card prints that no longer answers."""
    if isinstance(value, dict):
        return (
            "N/A"
            if set(value) == {"value", "unit"}
            else {key: item if key == "gpu" else blank(item) for key, item in value.items()}
        )
    return "N/A"


def metric_list(*records: dict[str, Any]) -> str:
    """Top level of ROCm 6."""
    return json.dumps(list(records), indent=4)


def metric_object(*records: dict[str, Any]) -> str:
    """Top level of ROCm 7, with the CPU's list beside it."""
    return json.dumps({"cpu_data": [{"cpu": 0, "prochot": "N/A"}], "gpu_data": list(records)}, indent=4)


METRIC_TEXT = """$ amd-smi metric
GPU: 0
    USAGE:
        GFX_ACTIVITY: 91 %
        UMC_ACTIVITY: 33 %
        VCN_ACTIVITY: [0 %, N/A]
    POWER:
        SOCKET_POWER: 633 W
        THROTTLE_STATUS: UNTHROTTLED
    CLOCK:
        GFX_0:
            CLK: 1777 MHz
            MAX_CLK: 2100 MHz
        MEM_0:
            CLK: 1300 MHz
    TEMPERATURE:
        EDGE: N/A
        HOTSPOT: 77 °C
        MEM: 58 °C
    ECC:
        TOTAL_CORRECTABLE_COUNT: 4
        TOTAL_UNCORRECTABLE_COUNT: 0
    MEM_USAGE:
        TOTAL_VRAM: 196592 MB
        USED_VRAM: 1000 MB


GPU: 1
    USAGE: N/A
    MEM_USAGE:
        TOTAL_VRAM: 196592 MB
        USED_VRAM: 900 MB
"""

METRIC_CSV = (
    "gpu,gfx_activity,umc_activity,socket_power,gfx_0_clk,mem_0_clk,edge,hotspot,mem,total_correctable_count,"
    "total_uncorrectable_count,total_vram,used_vram\r\n"
    "0,91,33,633,1777,1300,N/A,77,58,4,0,196592,1000\r\n"
    "1,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,0,0,196592,900\r\n"
)

MONITOR_TEXT = """GPU  XCP  POWER  PWR_CAP   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%  MEM_CLOCK
  0    0  612 W    750 W   71 °C   55 °C  1811 MHz   93 %   35 %   1300 MHz
  1    0    N/A    750 W     N/A   33 °C   131 MHz    0 %    0 %    900 MHz
"""

MONITOR_CPX = """GPU  POWER   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%   ENC%   DEC%      VRAM_USAGE
  0  400 W   70 °C   50 °C  1700 MHz   50 %   20 %    N/A    0 %    0.4/192.0 GB
  1    N/A     N/A     N/A       N/A    N/A    N/A    N/A    N/A    1.5/ 24.0 GB
  2    N/A     N/A     N/A       N/A    N/A    N/A    N/A    N/A    0.5/ 24.0 GB
  3  120 W   40 °C   35 °C   132 MHz    0 %    0 %    N/A    0 %    0.3/192.0 GB
  4    N/A     N/A     N/A       N/A    N/A    N/A    N/A    N/A    0.5/ 24.0 GB
"""

CONCISE_EDGE = """========================= ROCm System Management Interface =========================
GPU  Temp (DieEdge)  AvgPwr  SCLK     MCLK     Fan  Perf  PwrCap  VRAM%  GPU%
0    51.0c            390.0W  1502Mhz  1600Mhz  0%   auto  560.0W    61%   89%
1    49.0c            N/A     1510Mhz  1600Mhz  0%   auto  0.0W      60%   88%
"""

CONCISE_JUNCTION = """\
Device  Node  IDs           Temp        Power     Partitions     SCLK     MCLK     Fan  Perf  PwrCap  VRAM%  GPU%
              (DID, GUID)   (Junction)  (Socket)  (Mem, Compute)
0       2     0x74a1, 2885  66.0°C      501.0W    NPS1, SPX, 0   1700Mhz  1300Mhz  0%   auto  750.0W  50%    77%
"""
