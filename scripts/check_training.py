"""`check_training.py ACCELERATOR`, run by an environment's own Python: can it train, and if not, what is missing?

Prints one line a finding. Exit codes: 0 can train, 3 cannot and we cannot help (Python, torch), 4 packages are missing
that the printed commands would install.
"""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
TESTED = {"llamafactory": "0.9.5", "transformers": "5.5.4", "deepspeed": "0.19.8"}


def main(accelerator: str) -> int:
    """Look at Python, torch and the packages, in this order."""
    if sys.version_info < (3, 11):  # noqa: UP036 - whichever Python the user names runs this
        return refuse(f"Python {sys.version.split()[0]} is too old: LLaMA-Factory 0.9.5 needs 3.11 or newer.")
    try:
        torch = importlib.import_module("torch")
    except Exception as error:  # noqa: BLE001 - a broken torch may raise anything, and all of it means the same
        return refuse(f"torch cannot be imported ({error!r}). Install the build for your accelerator first.")
    built_for = "rocm" if torch.version.hip else "cuda" if torch.version.cuda else "cpu"
    print(f"torch {torch.__version__} for {built_for}, Python {sys.version.split()[0]}")
    if accelerator != "cpu" and built_for != accelerator:
        print(
            f"warning: this host has {accelerator} devices, this torch is built for {built_for}: it trains without them."
        )
    for name, tested in TESTED.items():
        found = installed(name)
        if found and found != tested:
            print(f"note: {name} {found} is installed; Tunedeck is tested with {tested}.")
    if installed("transformers") == "5.6.0":
        print("warning: transformers 5.6.0 breaks flash_attn: fa2 on most models; use sdpa, or transformers 5.5.4.")
    return check_packages()


def check_packages() -> int:
    """LLaMA-Factory must import; DeepSpeed may be missing, then ZeRO is."""
    missing = [name for name in ("llamafactory", "transformers", "torchaudio") if not installed(name)]
    if not missing:
        try:
            importlib.import_module("llamafactory.train.tuner")
        except Exception as error:  # noqa: BLE001 - whatever it raises, training would raise too
            return refuse(f"LLaMA-Factory is installed but cannot be imported: {error!r}")
    if not installed("deepspeed"):
        print("deepspeed is not installed: training without ZeRO works, ZeRO stages do not.")
    if not missing and installed("deepspeed"):
        print(f"LLaMA-Factory {installed('llamafactory')}, DeepSpeed {installed('deepspeed')}: ready")
        return 0
    if missing:
        print(f"missing: {', '.join(missing)}")
    print_commands()
    return 4 if missing else 0


def print_commands() -> None:
    """What would install the missing packages here; torch is left as it is."""
    pip = f"{sys.executable} -m pip install"
    print("To install what is missing (torch stays as it is):")
    print(f"  {pip} -r {REPOSITORY}/requirements-training.txt")
    print(f"  {pip} --no-deps -r {REPOSITORY}/requirements-training-nodeps.txt")
    print(f"  DS_BUILD_OPS=0 {pip} --no-build-isolation -r {REPOSITORY}/requirements-training-build.txt")
    if not installed("torchaudio"):
        print("torchaudio: take the build that belongs to this torch; the one pinned above is a CUDA build.")


def installed(name: str) -> str:
    """A package's version, "" when it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def refuse(reason: str) -> int:
    """Not usable, and not by our packages."""
    print(reason)
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "cpu"))
