"""Takes half-installed packages out of this environment, so that pip installs them again instead of trusting them.

Run after an interrupted set-up: pip believes a package that has METADATA, even when some of its files never arrived.
"""

from __future__ import annotations

import shutil
from importlib.metadata import Distribution, distributions
from pathlib import Path


def main() -> None:
    """Name and remove the metadata of each package of which a recorded file, or the record itself, is missing."""
    for package in list(distributions()):
        folder = getattr(package, "_path", None)
        if isinstance(folder, Path) and folder.suffix == ".dist-info" and not is_whole(package):
            print(f"half installed, will be installed again: {folder.name}")
            shutil.rmtree(folder)


def is_whole(package: Distribution) -> bool:
    """Whether every file that the package records is there."""
    files = package.files
    if not files or package.read_text("RECORD") is None:
        return False
    return all(file.suffix == ".pyc" or Path(str(package.locate_file(file))).exists() for file in files)


if __name__ == "__main__":
    main()
