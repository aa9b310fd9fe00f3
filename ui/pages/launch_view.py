"""A previewed run in, the JSON of the panel beside the form out: state, problems, numbers, command, environment, files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from backend.domain.form import FieldError
from backend.domain.problem import ArgValue, Problem, Severity
from backend.errors import InvalidInput
from backend.services.api import Preview
from backend.services.dry_run import DryRun, DryRunState
from backend.services.form import Form, command_line, field_of
from backend.services.secrets import is_secret_name
from ui.pages.forecast_view import ForecastView
from ui.text import advice_zh, host_problems_zh
from ui.text.problems_zh import problem_text

Texts = Mapping[str, str]
"""Words of the page's language; `lang` names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemView:
    """One problem in the words of the page. `id` finds it again when its fix is asked for."""

    id: str
    severity: str
    label: str
    argument: str
    target: str
    group: str
    found: str
    expected: str
    reason: str
    remedy: str
    evidence: str
    line: int | None
    fixable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One line of "what it comes to"."""

    label: str
    value: str
    how: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchView:
    """What the panel shows. `launch` is the button's text; it can be pressed when `ready`.

    `document` is what the browser keeps for a reload; "" when it holds a secret, which belongs into no browser's storage.
    """

    ready: bool
    state: str
    title: str
    hint: str
    launch: str
    problems: tuple[ProblemView, ...] = ()
    numbers: tuple[Number, ...] = ()
    command: str = ""
    variables: tuple[tuple[str, str, str], ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    ask: bool = False
    """The trainer has still to be asked, once the form is left alone for a moment."""
    check: str = ""
    """How the trainer's own check stands: "" (not asked), checking, done, unavailable."""
    check_text: str = ""
    asked: str = ""
    """Differs with each question to the trainer, so that the browser notices an answer that is still "checking"."""
    forecast: ForecastView | None = None
    """Memory and advice; None while there is no model to speak of."""
    document: str = field(default="", repr=False)

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)


def build_view(
    text: str,
    form: Form,
    preview: Preview,
    errors: Sequence[FieldError],
    texts: Texts,
    check: DryRun | None = None,
) -> LaunchView:
    """The panel for a document that can be read. Widgets with impossible content come first.

    What the trainer's own check finds is shown and does not block: it looks from outside the job.
    """
    own = tuple(_field_problem(error, texts) for error in errors)
    shown = {problem.argument for problem in own} | _empty(form)
    found = tuple(problem_view(problem, texts) for problem in preview.problems if problem.field not in shown)
    problems = (*own, *found)
    blocking = [problem for problem in problems if problem.severity == Severity.ERROR.value]
    known = {(problem.code, problem.field) for problem in preview.problems}
    told = [problem for problem in check.problems if (problem.code, problem.field) not in known] if check else []
    problems = (*problems, *(problem_view(problem, texts) for problem in told))
    launch, hint = _missing(form, texts) or _to_solve(blocking, texts)
    ready = not launch
    return LaunchView(
        ready=ready,
        state="blocked" if not ready else "warned" if problems else "ready",
        title=_title(ready, len(problems), texts),
        hint=hint,
        launch=launch or texts["new.launch"],
        problems=tuple(sorted(problems, key=lambda problem: _RANK[problem.severity])),
        numbers=(*_numbers(form, preview, texts), *_data_numbers(check, form, preview, texts)),
        command=command_line(preview.plan) if preview.plan else "",
        variables=_variables(preview, texts),
        files=tuple(preview.plan.files.items()) if preview.plan else (),
        check=check.state.value if check and check.state is not DryRunState.SKIPPED else "",
        ask=ready and check is None,
        check_text=_check_text(check, len(told), texts),
        document="" if any(map(is_secret_name, preview.spec.env)) else text,
    )


def _check_text(check: DryRun | None, problems: int, texts: Texts) -> str:
    if check is None or check.state is DryRunState.SKIPPED:
        return ""
    if check.state is DryRunState.DONE:
        key = "new.check.found" if problems else "new.check.clean"
        return texts[key].format(n=problems, seconds=f"{check.seconds or 0:.0f}")
    return texts[f"new.check.{check.state.value}"].format(why=check.message)


def _data_numbers(check: DryRun | None, form: Form, preview: Preview, texts: Texts) -> tuple[Number, ...]:
    """What the trainer found in the data: one line a data set, and the steps when all rows are counted."""
    datasets = check.facts.get("datasets") if check else None
    known = datasets if isinstance(datasets, Mapping) else {}
    found = {name: facts for name, facts in known.items() if isinstance(facts, Mapping)}
    rows = [facts.get("rows") for facts in found.values()]
    lines = [_data_number(name, facts, texts) for name, facts in found.items()]
    counted = [count for count in rows if isinstance(count, int)]
    if counted and len(counted) == len(rows) and "rows" not in preview.facts and not form.values.get("max_steps"):
        steps = _steps(form, replace(preview, facts={**preview.facts, "rows": sum(counted)}), texts)
        lines += [steps] if steps else []
    return tuple(lines)


def _data_number(name: str, facts: Mapping[str, ArgValue], texts: Texts) -> Number:
    rows = facts.get("rows")
    value = texts["new.data.rows"].format(n=f"{rows:,}") if isinstance(rows, int) else ""
    return Number(label=name, value=value, how=_token_words(facts, texts))


_TOKEN_KEYS = ("mean", "p95", "max")


def _token_words(facts: Mapping[str, ArgValue], texts: Texts) -> str:
    tokens = facts.get("tokens")
    if not isinstance(tokens, Mapping) or not all(isinstance(tokens.get(key), (int, float)) for key in _TOKEN_KEYS):
        return ""
    words = texts["new.data.tokens"].format(**{key: f"{tokens[key]:,.0f}" for key in _TOKEN_KEYS})
    over = facts.get("over_cutoff")
    return f"{words}; {texts['new.data.over'].format(over=over, sampled=facts.get('sampled'))}" if over else words


def broken_view(text: str, error: InvalidInput, texts: Texts) -> LaunchView:
    """The panel while the YAML cannot be read."""
    problem = ProblemView(
        id="document",
        severity=Severity.ERROR.value,
        label="YAML" if error.field == "document" else error.field,
        argument=error.field,
        target="yaml",
        group="",
        found=error.found,
        expected=error.expected,
        reason="",
        remedy=error.remedy,
        evidence=_line_of(text, error.line),
        line=error.line,
        fixable=False,
    )
    return LaunchView(
        ready=False,
        state="blocked",
        title=texts["new.blocked"],
        hint="",
        launch=texts["new.launch.yaml"],
        problems=(problem,),
        document=text,
    )


def problem_id(problem: Problem) -> str:
    """Code and field: enough to find the same problem again in a fresh preview."""
    return f"{problem.code}:{problem.field}:{problem.found}"


def problem_view(problem: Problem, texts: Texts) -> ProblemView:
    """A Problem in the page's language where it has a translation, else in English."""
    item = field_of(problem.field) if problem.field else None
    reason, remedy = _words(problem, texts)
    return ProblemView(
        id=problem_id(problem),
        severity=problem.severity.value,
        label=texts[f"field.{item.name}"] if item else problem.field or texts["new.problems"],
        argument=problem.field,
        target=item.name if item else "",
        group=item.group.value if item else "",
        found=problem.found,
        expected=problem.expected,
        reason=reason,
        remedy=remedy,
        evidence=problem.evidence,
        line=problem.line,
        fixable=problem.fix is not None,
    )


_RANK = {Severity.ERROR.value: 0, Severity.WARNING.value: 1, Severity.NOTE.value: 2}


def _words(problem: Problem, texts: Texts) -> tuple[str, str]:
    """Reason and remedy; English where there is no translation."""
    english = problem.reason, problem.remedy
    if texts["lang"] != "zh":
        return english
    known = problem_text(problem.code, problem.field, problem.found, problem.expected, dict(problem.params))
    advice = advice_zh.TEXT.get(problem.code)
    return known or (_filled(advice, problem) if advice else None) or host_problems_zh.TEXT.get(problem.code, english)


def _filled(templates: Sequence[str], problem: Problem) -> tuple[str, str] | None:
    words = {"field": problem.field, "found": problem.found, "expected": problem.expected, **problem.params}
    try:
        return templates[0].format_map(words), templates[1].format_map(words)
    except (KeyError, IndexError, ValueError):
        return None


def _field_problem(error: FieldError, texts: Texts) -> ProblemView:
    item = field_of(error.field)
    return ProblemView(
        id=f"field:{error.field}",
        severity=Severity.ERROR.value,
        label=texts.get(f"field.{error.field}", error.field),
        argument=error.field,
        target=error.field,
        group=item.group.value if item else "",
        found=error.found[:200],
        expected=error.expected,
        reason="",
        remedy=texts["new.remedy.field"],
        evidence="",
        line=None,
        fixable=False,
    )


def _missing(form: Form, texts: Texts) -> tuple[str, str] | None:
    """What a newcomer has not filled in yet: named on the button, not counted as a mistake."""
    if not form.values.get("model_name_or_path"):
        return texts["new.launch.model"], texts["new.blocked.model"]
    if not form.values.get("dataset") and not form.values.get("tokenized_path"):
        return texts["new.launch.data"], texts["new.blocked.data"]
    return None


def _empty(form: Form) -> set[str]:
    """Fields whose emptiness the button names already."""
    return {name for name in ("model_name_or_path", "dataset") if not form.values.get(name)}


def _to_solve(blocking: Sequence[ProblemView], texts: Texts) -> tuple[str, str]:
    if not blocking:
        return "", ""
    first = blocking[0]
    if len(blocking) > 1:
        return texts["new.launch.problems"].format(n=len(blocking)), ""
    key = "new.launch.field" if first.id.startswith("field:") else "new.launch.problem"
    return texts[key].format(label=first.label), ""


def _title(ready: bool, problems: int, texts: Texts) -> str:
    if not ready:
        return texts["new.blocked"]
    return texts["new.ready.warnings"].format(n=problems) if problems else texts["new.ready"]


def _numbers(form: Form, preview: Preview, texts: Texts) -> tuple[Number, ...]:
    facts = preview.facts
    lines: list[Number] = []
    if (batch := facts.get("effective_batch")) is not None:
        many = "one" if facts.get("processes") == 1 else "other"
        how = texts[f"new.number.batch.how.{many}"].format(
            micro=form.values.get("per_device_train_batch_size") or 8,
            accumulation=form.values.get("gradient_accumulation_steps") or 1,
            processes=facts.get("processes"),
        )
        if form.values.get("packing"):
            how = f"{how}; {texts['new.number.batch.packed']}"
        lines.append(Number(label=texts["new.number.batch"], value=str(batch), how=how))
    if steps := _steps(form, preview, texts):
        lines.append(steps)
    if (memory := facts.get("memory_bytes")) is not None:
        value = f"{float(memory) / (1 << 30):.1f} GiB"
        lines.append(Number(label=texts["new.number.memory"], value=value, how=texts["new.number.memory.how"]))
    if facts.get("processes") is not None and facts.get("accelerator"):
        kind = "cpu" if facts["accelerator"] == "cpu" else "gpu"
        how = texts[f"new.number.processes.{kind}"]
        lines.append(Number(label=texts["new.number.processes"], value=str(facts["processes"]), how=how))
    if facts.get("llamafactory"):
        value = texts["new.number.environment"].format(llamafactory=facts["llamafactory"], torch=facts.get("torch"))
        lines.append(Number(label=texts["new.number.stack"], value="", how=value))
    return tuple(lines)


def _steps(form: Form, preview: Preview, texts: Texts) -> Number | None:
    """The steps that are set, or an estimate when the rows are known and each row is one sequence (no packing)."""
    if limit := form.values.get("max_steps"):
        return Number(label=texts["new.number.steps"], value=f"{limit:,}", how=texts["new.number.steps.set"])
    rows, batch = preview.facts.get("rows"), preview.facts.get("effective_batch")
    epochs = preview.spec.train.get("num_train_epochs", 3)
    counted = isinstance(rows, int) and isinstance(batch, int) and isinstance(epochs, (int, float))
    if not counted or not batch or form.values.get("packing"):
        return None
    assert isinstance(rows, int) and isinstance(batch, int) and isinstance(epochs, (int, float))
    how = texts["new.number.steps.how"].format(rows=f"{rows:,}", epochs=f"{epochs:g}", batch=batch)
    return Number(label=texts["new.number.steps"], value=f"{-(-rows // batch) * epochs:,.0f}", how=how)


def _variables(preview: Preview, texts: Texts) -> tuple[tuple[str, str, str], ...]:
    if preview.plan is None:
        return ()
    given = [
        (name, "", texts["new.env.secret"]) if is_secret_name(name) else (name, value, "")
        for name, value in preview.plan.env.items()
    ]
    return (*given, *((name, "", texts["new.env.unset"]) for name in preview.plan.unset))


def _line_of(text: str, line: int | None) -> str:
    lines = text.splitlines()
    return lines[line - 1].strip()[:160] if line and line <= len(lines) else ""
