"""A training environment in, what its optional parts can do on this host out: one JSON object behind TUNEDECK_STACK.

Run as a script by the environment's own interpreter. Each part is really imported, since a package that is installed for
another accelerator fails only then; a part that crashes the interpreter is seen by the doctor as no answer.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

MARK = "TUNEDECK_STACK "


def main() -> None:
    # Python puts this script's folder first: it holds a train.py and others that must not hide packages.
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    found: dict[str, Any] = {"amdsmi_breaks_torch": amdsmi_breaks_torch()}
    found |= read_torch()
    found["parts"] = {name: state(probe) for name, probe in PARTS.items()}
    found["versions"] = {name: installed for name in PARTS if (installed := installed_version(name))}
    print(MARK + json.dumps(found), flush=True)


def amdsmi_breaks_torch() -> bool:
    """The package without its library raises KeyError where PyTorch expects ImportError."""
    if not installed_version("amdsmi"):
        return False
    try:
        importlib.import_module("amdsmi")
    except ImportError:
        return False
    except Exception:  # noqa: BLE001 - KeyError, AttributeError, OSError: what torch does not expect
        return True
    return False


def read_torch() -> dict[str, Any]:
    try:
        import torch
    except Exception as error:  # noqa: BLE001 - a broken build raises what it likes; the doctor shows it
        return {"fault": f"import torch fails: {type(error).__name__}: {error}"}
    return {
        "torch_version": torch.__version__,
        "built_for": "rocm" if torch.version.hip else "cuda" if torch.version.cuda else "cpu",
        "runtime": torch.version.hip or torch.version.cuda or "",
        "architectures": torch.cuda.get_arch_list(),
        "device_count": torch.cuda.device_count(),
        "collective_library": collective_library(torch),
    }


def collective_library(torch: Any) -> str:
    if not torch.cuda.is_available():
        return ""
    numbers = torch.cuda.nccl.version()
    name = "RCCL" if torch.version.hip else "NCCL"
    return (
        f"{name} {'.'.join(str(number) for number in numbers)}" if isinstance(numbers, tuple) else f"{name} {numbers}"
    )


def probe_bitsandbytes() -> None:
    extension = importlib.import_module("bitsandbytes.cextension")
    library = getattr(extension, "lib", None)
    if library is None or type(library).__name__ == "ErrorHandlerMockBNBNativeLibrary":
        raise RuntimeError("installed without a native library for this accelerator")


def probe_flash_attn() -> None:
    importlib.import_module("flash_attn.flash_attn_interface")


def probe_deepspeed() -> None:
    from deepspeed.ops.op_builder import CPUAdamBuilder

    if not CPUAdamBuilder().is_compatible(verbose=False):
        raise RuntimeError("its CPU optimizer cannot be built here")


def probe_compiler() -> None:
    absent = [
        name
        for name in ("c++", "ninja")
        if not shutil.which(name) and not (Path(sys.executable).parent / name).exists()
    ]
    if absent:
        raise RuntimeError(f"no {' and no '.join(absent)}")


def probe_liger_kernel() -> None:
    importlib.import_module("liger_kernel.transformers")


PARTS: dict[str, Callable[[], None]] = {
    "bitsandbytes": probe_bitsandbytes,
    "flash_attn": probe_flash_attn,
    "deepspeed": probe_deepspeed,
    "compiler": probe_compiler,
    "liger_kernel": probe_liger_kernel,
}


def state(probe: Callable[[], None]) -> str:
    try:
        probe()
    except ModuleNotFoundError as error:
        own = probe.__name__.removeprefix("probe_")
        return "not installed" if (error.name or "").split(".")[0] == own else f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - optional packages raise anything at import
        return f"{type(error).__name__}: {error}"[:300]
    return "ok"


def installed_version(name: str) -> str:
    try:
        return version(name.replace("_", "-"))
    except PackageNotFoundError:
        return ""


if __name__ == "__main__":
    main()
