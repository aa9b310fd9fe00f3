"""Bad input is named before anything starts, and nothing half-made stays behind."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from backend.domain.problem import Problem, Severity
from backend.errors import SpecRejected
from backend.planning.spec import apply_changes
from backend.services.api import Api
from tests.integration.conftest import Deck


def problems(deck: Deck, text: str, api: Api | None = None) -> dict[str, Problem]:
    """Errors of a refused submit by their code; asserts that nothing was stored."""
    api = api or deck.api
    with pytest.raises(SpecRejected) as refused:
        api.submit(text)
    assert api.list_jobs()[0] == 0
    assert list(api.paths.jobs.iterdir()) == []
    found = [problem for problem in refused.value.problems if isinstance(problem, Problem)]
    errors = {problem.code: problem for problem in found if problem.severity is Severity.ERROR}
    for problem in errors.values():
        assert problem.remedy and problem.reason and problem.field
        assert problem.found or problem.code == "missing_key"  # of what is missing nothing can be shown
    return errors


def with_data(deck: Deck, dataset: str, folder: Path) -> str:
    return apply_changes(deck.spec(), {"dataset": dataset, "dataset_dir": str(folder)})


def test_missing_model_path(deck: Deck) -> None:
    assert problems(deck, "model_name_or_path: /models/none\n")["model_path_missing"].found == "/models/none"


def test_unregistered_data_set_lists_the_known_ones(deck: Deck, tmp_path: Path) -> None:
    (tmp_path / "dataset_info.json").write_text(json.dumps({"known": {"file_name": "known.json"}}))
    text = with_data(deck, "nope", tmp_path)
    assert problems(deck, text)["dataset_undefined"].expected == "one of: known"


def test_registered_file_that_does_not_exist(deck: Deck, tmp_path: Path) -> None:
    (tmp_path / "dataset_info.json").write_text(json.dumps({"known": {"file_name": "known.json"}}))
    assert "file_missing" in problems(deck, with_data(deck, "known", tmp_path))


def test_folder_without_registry(deck: Deck, tmp_path: Path) -> None:
    assert "dataset_registry_missing" in problems(deck, with_data(deck, "a", tmp_path))


def test_port_in_use(deck: Deck) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = deck.spec().replace("  env:\n", f"  env:\n    MASTER_PORT: '{port}'\n", 1)
        assert str(port) in problems(deck, text)["port_in_use"].found


def test_output_folder_that_holds_files(deck: Deck, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "checkpoint-1").mkdir()
    assert "output_not_empty" in problems(deck, deck.spec() + f"output_dir: {full}\n")


@pytest.mark.skipif(shutil.which("mount") is None, reason="needs mount")
@pytest.mark.parametrize(("options", "code"), [("size=64k", "disk_full"), ("size=64k,ro", "output_not_writable")])
def test_full_or_read_only_disk(deck: Deck, tmp_path: Path, options: str, code: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], check=True)
    try:
        api = Api(replace(deck.settings, min_free_disk_bytes=1 << 20), start_worker=lambda _: None)
        assert str(disk) in problems(deck, deck.spec() + f"output_dir: {disk}/out\n", api)[code].found
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_environment_without_llamafactory(deck: Deck, tmp_path: Path) -> None:
    python = tmp_path / "bare-python"
    description = {"accelerator": "cpu", "versions": {"torch": "2.13.0", "transformers": "5.5.4"}, "devices": []}
    python.write_text(f"#!/bin/sh\necho 'TUNEDECK_DESCRIPTION {json.dumps(description)}'\n")
    python.chmod(0o755)
    api = Api(replace(deck.settings, training_python=python), start_worker=lambda _: None)
    assert "has no llamafactory" in problems(deck, deck.spec(), api)["environment_unusable"].found


def test_no_training_environment_at_all(deck: Deck) -> None:
    api = Api(replace(deck.settings, training_python=None), start_worker=lambda _: None)
    assert "scripts/setup" in problems(deck, deck.spec(), api)["environment_unusable"].found


def test_card_that_does_not_exist(deck: Deck) -> None:
    text = deck.spec().replace("tunedeck:\n", "tunedeck:\n  gpus: ['0000:99:00.0']\n", 1)
    assert "gpu_unknown" in problems(deck, text)


def test_unknown_key_names_the_nearest_known_one(deck: Deck) -> None:
    found = problems(deck, deck.spec() + "learning_rat: 1e-4\n")["misspelt_key"]
    assert found.field == "learning_rat"
    assert "learning_rate" in found.expected + found.remedy


def test_output_folder_need_not_be_named(deck: Deck) -> None:
    assert "output_dir" not in {problem.field for problem in deck.api.preview(deck.spec()).problems}


def registered(deck: Deck, folder: Path, content: str, name: str = "mine.json") -> str:
    """A specification that trains on this file through a registry of its own."""
    folder.mkdir()
    (folder / name).write_text(content)
    (folder / "dataset_info.json").write_text(json.dumps({"mine": {"file_name": name}}))
    return apply_changes(deck.spec(), {"dataset": "mine", "dataset_dir": str(folder)})


def test_broken_rows_of_a_registered_file_are_told_before_the_launch(deck: Deck, tmp_path: Path) -> None:
    row = json.dumps({"instruction": "a", "input": "", "output": "b"})
    text = registered(deck, tmp_path / "rows", f"{row} {row}\n{row}\n")
    told = [problem for problem in deck.api.preview(text).problems if problem.field == "dataset"]
    assert told and all(problem.severity is Severity.WARNING and problem.found.startswith("mine") for problem in told)
    assert "one object a line" in " ".join(problem.reason + problem.remedy for problem in told)


def test_sound_rows_and_the_head_of_a_large_file_give_no_warning(deck: Deck, tmp_path: Path) -> None:
    rows = [
        json.dumps({"instruction": f"question {n}", "input": "", "output": f"answer {n} " * 20}) for n in range(6000)
    ]
    lines = registered(deck, tmp_path / "lines", "\n".join(rows), "mine.jsonl")
    array = registered(deck, tmp_path / "array", "[" + ",".join(rows) + "]")
    for text in (lines, array):
        assert [problem for problem in deck.api.preview(text).problems if problem.field == "dataset"] == []


def test_training_switched_off_is_told_and_an_unsaid_switch_is_not(deck: Deck) -> None:
    off = deck.api.preview(deck.spec() + "do_train: false\n").problems
    assert "nothing_to_do" in {problem.code for problem in off}
    assert "nothing_to_do" not in {problem.code for problem in deck.api.preview(deck.spec()).problems}


def test_missing_data_set_is_named_before_the_launch(deck: Deck) -> None:
    without = apply_changes(deck.spec(), {}, ["dataset"])
    assert problems(deck, without)["missing_key"].field == "dataset"
