"""The New run page without a browser: texts, the panel's contents, and that one press of Launch makes one job."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backend.domain.form import FieldError
from backend.domain.job import Job, JobState
from backend.domain.launch import LaunchPlan
from backend.domain.problem import ArgValue, Fix, Problem, Severity
from backend.errors import InvalidInput, StoreFault
from backend.planning.spec import parse_spec
from backend.services.api import Preview
from backend.services.dry_run import DryRun, DryRunState
from backend.services.form import open_form
from ui.pages.launch_view import LaunchView, broken_view, build_view
from ui.pages.new_run import TEXTS, LaunchOnce
from ui.text import host_problems_zh, new_run_en, new_run_zh, problems_zh

ROOT = Path(__file__).parents[2]
DOCUMENT = "model_name_or_path: /m\ndataset: a\nstage: sft\nfinetuning_type: lora\n"


def view(
    document: str = DOCUMENT,
    problems: tuple[Problem, ...] = (),
    errors: tuple[FieldError, ...] = (),
    lang: str = "en",
    **facts: int,
) -> LaunchView:
    plan = LaunchPlan(
        job_id="preview",
        job_dir="/jobs/x",
        argv=("/py", "-m", "torch.distributed.run", "a b"),
        env={"HF_TOKEN": "hf_secret", "A": "1"},
        unset=("CUDA_VISIBLE_DEVICES",),
        cwd="/jobs/x",
        files={"train.yaml": document},
        processes=1,
    )
    preview = Preview(spec=parse_spec(document), plan=plan, problems=problems, facts=facts)
    return build_view(document, open_form(document), preview, errors, TEXTS[lang])


def problem(severity: Severity = Severity.ERROR, **more: object) -> Problem:
    return Problem(code="bad_choice", severity=severity, field="flash_attn", found="Fa", expected="sdpa", **more)  # type: ignore[arg-type]


def test_texts_agree_between_the_languages_and_every_one_is_used() -> None:
    names = lambda words: set(re.findall(r"\{(\w+)\}", words))  # noqa: E731
    assert new_run_en.TEXT.keys() == new_run_zh.TEXT.keys()
    assert [key for key, words in new_run_en.TEXT.items() if names(words) != names(new_run_zh.TEXT[key])] == []
    sources = [
        ROOT / "ui" / "static" / "new_run.js",
        ROOT / "ui" / "static" / "forecast.js",
        ROOT / "ui" / "forms.py",
        *(ROOT / "ui" / "pages").glob("*.py"),
    ]
    code = "\n".join(path.read_text("utf-8") for path in sources)
    built = (
        "new.hardware.",
        "new.severity.",
        "new.number.processes.",
        "new.number.batch.how.",
        "example.",
        "new.tab.",
        "new.kind.",
        "new.check.",
        "import.",
        "new.memory.",
        "new.effect.",
        "advice.",
    )
    assert [
        key
        for key in new_run_en.TEXT
        if not re.search(rf"['\"]{re.escape(key)}['\"]", code) and not key.startswith(built)
    ] == []


def test_every_problem_of_the_host_has_a_chinese_text() -> None:
    source = (ROOT / "backend" / "services" / "preflight.py").read_text("utf-8")
    codes = set(re.findall(r'_error\(\s*"(\w+)"', source))
    assert len(codes) > 10
    assert codes - host_problems_zh.TEXT.keys() - problems_zh.TEXT.keys() == set()


def test_button_names_what_is_missing() -> None:
    assert view("stage: sft\n").launch == "Choose a model"
    assert view("model_name_or_path: /m\n").launch == "Choose training data"
    assert view(problems=(problem(),)).launch == "Solve “Attention”"
    assert view(problems=(problem(), problem())).launch == "Solve 2 problems"
    assert (
        view(errors=(FieldError(field="learning_rate", found="x", expected="a number"),)).launch
        == "Correct “Learning rate”"
    )
    assert view("stage: sft\n", lang="zh").launch == "请选择模型"


def test_warnings_do_not_block() -> None:
    shown = view(problems=(problem(Severity.WARNING), problem(Severity.NOTE)))
    assert (shown.ready, shown.state, shown.launch) == (True, "warned", "Launch")
    assert view().state == "ready"


def test_errors_come_first_and_problems_lead_to_their_field() -> None:
    shown = view(problems=(problem(Severity.NOTE), problem(Severity.ERROR, fix=Fix(set={"flash_attn": "sdpa"}))))
    assert [item.severity for item in shown.problems] == ["error", "note"]
    assert (shown.problems[0].target, shown.problems[0].group, shown.problems[0].fixable) == (
        "flash_attn",
        "speed",
        True,
    )


def test_problem_is_told_in_the_language_of_the_page() -> None:
    host = Problem(code="disk_full", severity=Severity.ERROR, reason="A", remedy="B")
    assert re.search("[一-鿿]", view(problems=(host,), lang="zh").problems[0].remedy)
    assert view(problems=(host,)).problems[0].remedy == "B"
    advice = Problem(code="numa_balancing_on", severity=Severity.WARNING, reason="A", remedy="B")
    assert "sysctl" in view(problems=(advice,), lang="zh").problems[0].remedy
    unknown = Problem(code="nobody_knows", severity=Severity.ERROR, reason="A", remedy="B")
    assert view(problems=(unknown,), lang="zh").problems[0].remedy == "B"


def test_secrets_are_named_but_not_shown() -> None:
    shown = view()
    assert ("HF_TOKEN", "", "kept secret") in shown.variables
    assert ("CUDA_VISIBLE_DEVICES", "", "removed") in shown.variables
    assert "hf_secret" not in shown.to_json()
    secret = DOCUMENT + "tunedeck: {env: {HF_TOKEN: hf_secret}}\n"
    assert view(secret).document == ""


def test_steps_are_estimated_only_when_rows_are_known_and_not_packed() -> None:
    numbers = {line.label: line.value for line in view(rows=1000, effective_batch=8).numbers}
    assert numbers["Steps"] == "375"
    packed = view(DOCUMENT + "packing: true\n", rows=1000, effective_batch=8)
    assert "Steps" not in {line.label for line in packed.numbers}
    assert "Steps" not in {line.label for line in view(effective_batch=8).numbers}
    limited = view(DOCUMENT + "max_steps: 7\n", effective_batch=8)
    assert {line.label: line.value for line in limited.numbers}["Steps"] == "7"


def test_broken_yaml_names_its_line() -> None:
    error = InvalidInput("document", found="x", expected="YAML", line=2, column=3)
    shown = broken_view("a: 1\nb: [\n", error, TEXTS["en"])
    assert (shown.ready, shown.problems[0].line, shown.problems[0].evidence) == (False, 2, "b: [")


def checked(check: DryRun, document: str = DOCUMENT, **facts: int) -> LaunchView:
    preview = Preview(spec=parse_spec(document), plan=None, problems=(), facts=facts)
    return build_view(document, open_form(document), preview, (), TEXTS["en"], check)


def test_trainers_answer_is_told_with_its_data() -> None:
    tokens: ArgValue = {"mean": 52.4, "p50": 50, "p95": 80, "max": 91}
    data: dict[str, ArgValue] = {"a": {"sampled": 20, "over_cutoff": 0, "rows": 1000, "tokens": tokens}}
    check = DryRun(digest="d", state=DryRunState.DONE, problems=(problem(Severity.WARNING),), facts={"datasets": data})
    shown = checked(check, effective_batch=8)
    numbers = {line.label: (line.value, line.how) for line in shown.numbers}
    assert numbers["a"] == ("1,000 rows", "tokens a row: 52 on average, 95 % up to 80, longest 91")
    assert numbers["Steps"][0] == "375"
    assert (shown.ready, shown.ask, shown.check, [item.severity for item in shown.problems]) == (
        True, False, "done", ["warning"],
    )  # fmt: skip


def test_unknown_rows_give_no_steps() -> None:
    data: dict[str, ArgValue] = {"a": {"sampled": 20, "rows": None, "tokens": None}}
    shown = checked(DryRun(digest="d", state=DryRunState.DONE, facts={"datasets": data}), effective_batch=8)
    assert {line.label: line.value for line in shown.numbers} == {"Effective batch": "8", "a": ""}


def test_trainer_is_asked_only_about_what_could_be_launched() -> None:
    assert view().ask
    assert not view(problems=(problem(),)).ask
    assert not view("stage: sft\n").ask


def job(name: str) -> Job:
    return Job(id=name, name=name, state=JobState.QUEUED)


def test_many_presses_at_once_make_one_job() -> None:
    made: list[str] = []
    gate = threading.Barrier(8)

    def submit(text: str) -> Job:
        time.sleep(0.05)
        made.append(text)
        return job(f"job-{len(made)}")

    once = LaunchOnce(submit)

    def press(_: int) -> str:
        gate.wait()
        return once.launch("visit", "text").id

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(press, range(8))) == {"job-1"}
    assert made == ["text"]
    assert once.launch("visit", "other text").id == "job-2"
    assert once.launch("another visit", "text").id == "job-3"


def test_a_launch_that_failed_may_be_tried_again() -> None:
    answers: list[Exception | Job] = [StoreFault("disk full"), job("second")]

    def submit(text: str) -> Job:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    once = LaunchOnce(submit)
    with pytest.raises(StoreFault):
        once.launch("visit", "text")
    assert once.launch("visit", "text").id == "second"


def test_old_visits_are_forgotten() -> None:
    count = iter(range(100))
    once = LaunchOnce(lambda text: job(f"job-{next(count)}"), remembered=2)
    first = [once.launch("visit", str(number)).id for number in range(3)]
    assert first == ["job-0", "job-1", "job-2"]
    assert once.launch("visit", "2").id == "job-2"
    assert once.launch("visit", "0").id == "job-3"
