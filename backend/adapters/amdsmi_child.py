"""The `amdsmi` module in, one JSON line per question out: the only place that imports amdsmi, in a process that may be killed.

    python amdsmi_child.py --answers FD [--module FOLDER]

`amdsmi_init` can hang, and a module that does not match its library crashes or corrupts memory, so this runs alone and is
started as a file (standard library only). Questions on stdin: identity, metrics, slow, processes. An answer has the form of
backend/parsing/telemetry/amdsmi_calls.py; an exception of one call never loses the others.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

_IDENTITY = (
    "amdsmi_get_gpu_device_bdf",
    "amdsmi_get_gpu_device_uuid",
    "amdsmi_get_gpu_asic_info",
    "amdsmi_get_gpu_driver_info",
    "amdsmi_get_gpu_vram_usage",
    "amdsmi_get_gpu_vram_info",
    "amdsmi_get_power_cap_info",
    "amdsmi_get_gpu_enumeration_info",
    "amdsmi_get_gpu_kfd_info",
    "amdsmi_get_xgmi_info",
    # These two wake a sleeping card: asked once, never polled.
    "amdsmi_get_gpu_compute_partition",
    "amdsmi_get_gpu_memory_partition",
    "amdsmi_get_gpu_virtualization_mode",
)
_METRICS = ("amdsmi_get_gpu_metrics_info", "amdsmi_get_gpu_vram_usage")
_SLOW = ("amdsmi_get_gpu_total_ecc_count", "amdsmi_get_power_cap_info", "amdsmi_get_gpu_xgmi_link_status")
_PROCESSES = ("amdsmi_get_gpu_process_list",)
_TEMPERATURES = (
    ("EDGE", "CURRENT"),
    ("HOTSPOT", "CURRENT"),
    ("HOTSPOT", "CRITICAL"),
    ("HOTSPOT", "EMERGENCY"),
    ("VRAM", "CURRENT"),
    ("VRAM", "CRITICAL"),
)
_UNUSED = ("xcp_stats.", "jpeg_activity", "vcn_activity", "current_vclk", "current_dclk", "current_socclk")
"""Parts of the metrics table that nothing here reads; they are most of its bytes."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--answers", type=int, required=True)
    parser.add_argument("--module", default="")
    options = parser.parse_args()
    with os.fdopen(options.answers, "w", encoding="utf-8") as answers:
        session = _Session(options.module)
        for line in sys.stdin:
            answers.write(json.dumps(session.answer(line.strip()), default=str) + "\n")
            answers.flush()
    return 0


class _Session:
    """Imports and initialises once; both failures are remembered and answered to every question."""

    def __init__(self, folder: str) -> None:
        self.module: Any = None
        self.handles: list[Any] = []
        self.failure: dict[str, Any] | None = None
        self.once: dict[str, Any] = {}
        if folder:
            sys.path.insert(0, folder)
        try:
            import amdsmi

            self.module = amdsmi
        except BaseException:  # noqa: BLE001 - a missing library is a KeyError, a wrong one an AttributeError or SystemExit
            self.failure = {"import_error": traceback.format_exc(limit=3)}
            return
        self.once["amdsmi_init"] = _call(self.module.amdsmi_init)
        if _failed(self.once["amdsmi_init"]):
            return
        for name in ("amdsmi_get_lib_version", "amdsmi_get_rocm_version"):
            if hasattr(self.module, name):
                self.once[name] = _call(getattr(self.module, name))
        handles = _call(self.module.amdsmi_get_processor_handles)
        if _failed(handles):
            self.once["amdsmi_init"] = handles
        else:
            self.handles = list(handles)

    def answer(self, question: str) -> dict[str, Any]:
        head: dict[str, Any] = {
            "module": "amdsmi",
            "question": question,
            "path": str(getattr(self.module, "__file__", "")),
            "global_calls": self.once,
        }
        if self.failure:
            return {**head, **self.failure}
        if _failed(self.once.get("amdsmi_init")):
            return head
        names = {"identity": _IDENTITY, "metrics": _METRICS, "slow": _SLOW, "processes": _PROCESSES}.get(question, ())
        devices: list[dict[str, Any]] = [
            {"monotonic": time.monotonic(), "calls": self._ask(handle, names)} for handle in self.handles
        ]
        if question == "identity":
            for handle, device in zip(self.handles, devices, strict=True):
                device["calls"]["amdsmi_get_temp_metric"] = {"by_arg": self._temperatures(handle)}
            head["pair_calls"] = {"amdsmi_topo_get_link_type": self._links()}
        return {**head, "devices": devices}

    def _ask(self, handle: Any, names: tuple[str, ...]) -> dict[str, Any]:
        answers = {name: _call(getattr(self.module, name), handle) for name in names if hasattr(self.module, name)}
        metrics = answers.get("amdsmi_get_gpu_metrics_info")
        if isinstance(metrics, dict):
            answers["amdsmi_get_gpu_metrics_info"] = {
                key: value for key, value in metrics.items() if not str(key).startswith(_UNUSED)
            }
        return answers

    def _temperatures(self, handle: Any) -> dict[str, Any]:
        kinds, metrics = self.module.AmdSmiTemperatureType, self.module.AmdSmiTemperatureMetric
        return {
            f"{kind},{metric}": _call(
                self.module.amdsmi_get_temp_metric, handle, getattr(kinds, kind), getattr(metrics, metric)
            )
            for kind, metric in _TEMPERATURES
            if hasattr(kinds, kind) and hasattr(metrics, metric)
        }

    def _links(self) -> dict[str, Any]:
        if not hasattr(self.module, "amdsmi_topo_get_link_type"):
            return {}
        pairs = itertools.combinations(range(len(self.handles)), 2)
        ask = self.module.amdsmi_topo_get_link_type
        return {f"{one},{other}": _call(ask, self.handles[one], self.handles[other]) for one, other in pairs}


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever a call raises is its answer
        code = getattr(error, "err_code", None)
        return {
            "raises": {
                "exception": type(error).__name__,
                "err_code": code if isinstance(code, int) else None,
                "err_info": str(getattr(error, "err_info", error)),
            }
        }


def _failed(answer: Any) -> bool:
    return isinstance(answer, dict) and "raises" in answer


if __name__ == "__main__":
    sys.exit(main())
