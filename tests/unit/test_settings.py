"""Settings come from documented variables; a wrong value is refused by its name."""

import re
from pathlib import Path

import pytest

from backend.errors import InvalidInput
from backend.settings import REPOSITORY, load_settings


def test_every_variable_is_documented_and_every_documented_one_exists() -> None:
    read = set(re.findall(r'"(TUNEDECK_[A-Z_]+)"', (REPOSITORY / "backend/settings.py").read_text()))
    documented = set(
        re.findall(r"^\| `(TUNEDECK_[A-Z_]+)`", (REPOSITORY / "docs/settings.md").read_text(), re.MULTILINE)
    )
    assert read and read == documented


def test_bad_number_names_its_variable() -> None:
    with pytest.raises(InvalidInput, match="TUNEDECK_PORT: found 'many'"):
        load_settings({"TUNEDECK_PORT": "many"})


def test_data_folder_can_be_chosen() -> None:
    assert load_settings({"TUNEDECK_DATA": "/srv/deck"}).data_dir == Path("/srv/deck")
