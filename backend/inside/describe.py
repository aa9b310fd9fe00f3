"""Printed by a training environment's Python: what is installed and which accelerator it sees, as one marked JSON line."""

from __future__ import annotations

import importlib
import json
from importlib.metadata import PackageNotFoundError, version
from typing import Any

MARK = "TUNEDECK_DESCRIPTION "
PACKAGES = (
    "torch",
    "transformers",
    "llamafactory",
    "deepspeed",
    "accelerate",
    "peft",
    "trl",
    "datasets",
    "flash_attn",
    "bitsandbytes",
    "liger_kernel",
)


def main() -> None:
    print(MARK + json.dumps({"versions": versions(), **accelerator()}))


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def accelerator() -> dict[str, Any]:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return {"accelerator": "cpu", "devices": []}
    if not torch.cuda.is_available():
        return {"accelerator": "cpu", "devices": []}
    devices = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    kind = "rocm" if torch.version.hip else "cuda"
    return {
        "accelerator": kind,
        "devices": [{"name": device.name, "memory_bytes": device.total_memory} for device in devices],
    }


if __name__ == "__main__":
    main()
