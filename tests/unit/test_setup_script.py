"""scripts/setup with a stand-in for Python: what it installs, trusts, repairs and refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

STAND_IN = """#!/bin/bash
# Takes the place of python: makes environments of copies of itself, and notes what pip was asked for.
here=$(cd "$(dirname "$0")" && pwd)
case "$*" in
  *"-m venv "*) folder=${@: -1}; mkdir -p "$folder/bin"; cp "$0" "$folder/bin/python"
    echo "#!$(realpath "$folder")/bin/python" > "$folder/bin/pip" ;;
  *"pip --version"*) ;;
  *"pip install"*) echo "$*" >> "$PIP_LOG"; [ ! -e "$PIP_FAILS" ] || { echo "no space left"; exit 1; } ;;
  *version_info*"%d.%d"*) echo 3.11 ;;
  *get_path*) echo "$INCLUDE" ;;
  *--version*) echo "Python 3.11.0" ;;
  *check_training.py*) exit "${CHECK_CODE:-0}" ;;
esac
exit 0
"""


class Checkout:
    """A copy of what scripts/setup needs, in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(REPOSITORY / "scripts", root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        for file in REPOSITORY.glob("requirements*.txt"):
            shutil.copy(file, root)
        (root / "stand-in").write_text(STAND_IN)
        (root / "stand-in").chmod(0o755)
        (root / "include").mkdir()
        (root / "include" / "Python.h").touch()

    def setup(self, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        usual = {"TUNEDECK_PYTHON": str(self.root / "stand-in"), "TUNEDECK_ACCELERATOR": "cpu"}
        usual |= {"PIP_LOG": str(self.root / "pip.log"), "PIP_FAILS": str(self.root / "pip-fails")}
        usual |= {"INCLUDE": str(self.root / "include")}
        return subprocess.run(
            [str(self.root / "scripts" / "setup"), *options],
            env=os.environ | usual | environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )

    def installs(self) -> list[str]:
        """What pip was asked for since the last call."""
        log = self.root / "pip.log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [line.split(" 10 ", 1)[-1].split("--quiet ", 1)[-1] for line in lines]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "a")


def test_a_complete_environment_is_left_alone_at_once(checkout: Checkout) -> None:
    first = checkout.setup()
    assert first.returncode == 0, first.stderr
    assert checkout.installs() == ["-r requirements.txt"]
    begun = time.monotonic()
    second = checkout.setup()
    assert (second.returncode, second.stdout, checkout.installs()) == (0, "", [])
    assert time.monotonic() - begun < 2


def test_an_interrupted_installation_is_gone_on_with(checkout: Checkout) -> None:
    (checkout.root / "pip-fails").touch()
    failed = checkout.setup()
    assert failed.returncode == 1
    assert "no space left" in failed.stderr and "Run scripts/setup again" in failed.stderr
    (checkout.root / "pip-fails").unlink()
    checkout.installs()
    assert checkout.setup().returncode == 0
    assert checkout.installs() == ["-r requirements.txt"]


def test_changed_requirements_are_installed(checkout: Checkout) -> None:
    checkout.setup()
    checkout.installs()
    with (checkout.root / "requirements.txt").open("a") as file:
        file.write("# one more\n")
    assert checkout.setup().returncode == 0
    assert checkout.installs() == ["-r requirements.txt"]


def test_development_tools_satisfy_the_plain_environment_too(checkout: Checkout) -> None:
    checkout.setup("--dev")
    assert checkout.installs() == ["-r requirements-dev.txt"]
    checkout.setup()
    assert checkout.installs() == []


def test_a_moved_environment_is_made_anew(checkout: Checkout, tmp_path: Path) -> None:
    checkout.setup()
    moved = tmp_path / "b"
    checkout.root.rename(moved)
    checkout.root = moved
    checkout.installs()
    result = checkout.setup()
    assert result.returncode == 0 and "made anew" in result.stdout
    assert checkout.installs() == ["-r requirements.txt"]


def test_the_training_environment_is_installed_in_order(checkout: Checkout) -> None:
    result = checkout.setup("--training")
    assert result.returncode == 0, result.stderr
    names = [line.rsplit(" ", 1)[-1].rsplit("/", 1)[-1] for line in checkout.installs()]
    assert names == [
        "requirements.txt",
        "requirements-training-torch.txt",
        "requirements-training.txt",
        "nodeps.txt",
        "requirements-training-build.txt",
    ]
    assert checkout.setup("--training").stdout == ""


def test_an_index_of_your_own_brings_torch_and_torchaudio(checkout: Checkout) -> None:
    checkout.setup("--training", TUNEDECK_ACCELERATOR="rocm", TUNEDECK_TORCH_INDEX="http://127.0.0.1/rocm")
    assert "--index-url http://127.0.0.1/rocm torch==2.13.0 torchaudio" in checkout.installs()


def test_rocm_without_an_index_needs_a_decision_before_anything_is_installed(checkout: Checkout) -> None:
    result = checkout.setup("--training", TUNEDECK_ACCELERATOR="rocm")
    assert result.returncode == 3
    assert "TUNEDECK_TORCH_INDEX" in result.stderr and "--training-python" in result.stderr
    assert checkout.installs() == []


@pytest.mark.parametrize(
    ("options", "environment"), [(("--bad",), {}), (("--training",), {"TUNEDECK_ACCELERATOR": "gpu"})]
)
def test_wrong_usage_is_refused(checkout: Checkout, options: tuple[str, ...], environment: dict[str, str]) -> None:
    assert checkout.setup(*options, **environment).returncode == 2
    assert checkout.installs() == []


def test_nothing_is_installed_into_an_environment_of_yours_unasked(checkout: Checkout) -> None:
    mine = str(checkout.root / "stand-in")
    assert checkout.setup("--training-python", mine, CHECK_CODE="4").returncode == 3
    assert checkout.installs() == []
    checkout.setup("--training-python", mine, "--install-missing", CHECK_CODE="4")
    assert [line.rsplit("/", 1)[-1].rsplit(" ", 1)[-1] for line in checkout.installs()] == [
        "requirements-training.txt",
        "requirements-training-nodeps.txt",
        "requirements-training-build.txt",
    ]
    assert checkout.setup("--training-python", "/nowhere/python").returncode == 3


def test_an_environment_without_torch_is_named_unusable() -> None:
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "scripts" / "check_training.py"), "rocm"], capture_output=True, text=True
    )
    assert done.returncode == 3 and "torch cannot be imported" in done.stdout


def test_half_installed_packages_are_taken_out(tmp_path: Path) -> None:
    for name, present in (("whole", True), ("half", False)):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "RECORD").write_text(f"{name}.py,,\n{name}-1.0.dist-info/METADATA,,\n")
        if present:
            (tmp_path / f"{name}.py").touch()
    script = str(REPOSITORY / "scripts" / "drop_broken_packages.py")
    environment = {"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-S", script], env=environment, capture_output=True, text=True, check=True)
    assert "half-1.0.dist-info" in done.stdout
    assert sorted(path.name for path in tmp_path.glob("*.dist-info")) == ["whole-1.0.dist-info"]
