"""Commands as a user types them: what they print and how they exit."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app import cli
from backend.domain.job import JobState
from backend.domain.problem import Problem, Severity
from backend.errors import Conflict, EnvironmentFault, InvalidInput, NotFound, PathRefused, StoreFault, TunedeckError
from ui.cli.common import describe_problem, exit_code, parse_changes
from ui.cli.watch import copy_from, start_of_tail


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEDECK_DATA", str(tmp_path / "data"))


def call(*arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(cli, list(arguments), input=given)


def test_an_installation_without_jobs_lists_none() -> None:
    assert json.loads(call("list", "--json").stdout) == {"total": 0, "runs": []}
    assert call("list").stdout == ""


@pytest.mark.parametrize("command", ["show", "logs", "stop", "save", "resume", "wait", "profile"])
def test_an_unknown_job_is_named_and_exits_with_three(command: str) -> None:
    result = call(command, "no-such-job")
    assert result.exit_code == 3
    assert "no-such-job" in result.stderr


def test_every_expected_error_has_its_exit_code() -> None:
    bad = InvalidInput("x", found="y", expected="z")
    codes = [exit_code(error) for error in (bad, PathRefused("p"), NotFound("n"), Conflict("c"))]
    assert codes == [2, 2, 3, 4]
    assert [exit_code(error) for error in (EnvironmentFault("e"), StoreFault("s"), TunedeckError("t"))] == [7, 7, 1]


def test_submit_wants_a_file_or_a_preset() -> None:
    result = call("submit")
    assert result.exit_code == 2
    assert "one of them" in result.stderr


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing, binary = tmp_path / "missing.yaml", tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (missing, binary):
        result = call("submit", str(path))
        assert result.exit_code == 2
        assert path.name in result.stderr


def test_presets_are_listed_with_their_memory() -> None:
    assert "demo/cpu_sft_lora_zero3_2x" in call("presets").stdout
    assert all(preset["name"] for preset in json.loads(call("presets", "--json").stdout))


def test_import_prints_the_spec_and_says_when_there_is_nothing_to_run(tmp_path: Path) -> None:
    script, poem = tmp_path / "run.sh", tmp_path / "poem.txt"
    script.write_text("llamafactory-cli train --stage sft --model_name_or_path m --dataset d --output_dir out\n")
    poem.write_text("The cat sat on the mat\n")
    result = call("import", str(script))
    assert result.exit_code == 0
    assert "model_name_or_path: m" in result.stdout
    assert call("import", str(poem)).exit_code == 2


def test_a_password_line_never_shows_the_password() -> None:
    result = call("hash-password", "ann", "--stdin", given="secret words\n")
    assert set(json.loads(result.stdout)) == {"ann"}
    assert "secret" not in result.stdout


def test_a_language_that_is_not_ours_is_refused() -> None:
    result = call("show", "any", "--lang", "fr")
    assert (result.exit_code, "en or zh" in result.stderr) == (2, True)


def test_changes_are_read_as_the_trainer_reads_yaml() -> None:
    assert parse_changes(["a=1e-4", "b=true", "c=x=y", "d="]) == {"a": 1e-4, "b": True, "c": "x=y", "d": None}
    with pytest.raises(InvalidInput, match="key=value"):
        parse_changes(["alone"])


def test_a_problem_tells_where_what_and_what_to_do() -> None:
    problem = Problem(
        code="c", severity=Severity.ERROR, field="bf16", found="true", expected="false", reason="No.", remedy="Fix it."
    )
    assert describe_problem(problem) == "error: bf16: found true; expected false. No. Fix it."


def test_only_the_last_lines_of_a_log_and_then_what_is_new(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = tmp_path / "console.log"
    log.write_bytes(b"one\ntwo\nthree\n")
    offset = copy_from(log, start_of_tail(log, 2))
    log.write_bytes(b"one\ntwo\nthree\nfour\n")
    copy_from(log, offset)
    assert capsysbinary.readouterr().out == b"two\nthree\nfour\n"


def test_sweep_wants_a_job_and_tune_a_file() -> None:
    assert call("sweep").exit_code == 2
    assert call("tune").exit_code == 2


def test_final_states_have_exit_codes_of_their_own() -> None:
    from ui.cli.common import EXIT_OF_STATE

    assert {state for state in JobState if state.is_final} == set(EXIT_OF_STATE)
    assert len(set(EXIT_OF_STATE.values())) == len(EXIT_OF_STATE)
