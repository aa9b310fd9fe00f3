"""The New run page: preset, form and YAML as views of one document, and beside them what exactly will be launched.

The document in the YAML view is the truth. Every event sends it with all widgets and gets back what changed; nothing is
kept on the server between events, so a reload, a second tab or a restart of the dashboard loses nothing.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

from backend.domain.form import FieldError, FormValue, Group, Level, Preset
from backend.domain.job import Job
from backend.domain.problem import Fix
from backend.errors import Conflict, InvalidInput, SpecRejected, TunedeckError
from backend.services.form import START, Form, FormService, apply_fix, edit_text, list_fields, open_form
from backend.services.importing import import_texts
from backend.services.presets import list_presets
from ui.forms import Widgets, build_fields, element_id
from ui.pages.forecast_view import build_forecast_view
from ui.pages.import_view import import_refusal, import_report, read_payload
from ui.pages.launch_view import LaunchView, broken_view, build_view, problem_id
from ui.text import fields_en, fields_zh, new_run_en, new_run_zh

TEXTS: Mapping[str, Mapping[str, str]] = {
    "en": {"lang": "en", **fields_en.TEXTS, **new_run_en.TEXT},
    "zh": {"lang": "zh", **fields_zh.TEXTS, **new_run_zh.TEXT},
}
"""Every text of this page by language."""

# Many people may use the page at once, each event is short, and none may be called through Gradio's client.
_EVENT: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": None}
# While one event runs, the newest of the following waits and the ones between are dropped: typing never piles up.
_TYPING: dict[str, Any] = {**_EVENT, "trigger_mode": "always_last"}


def build(pages: gr.Blocks, lang: str, service: FormService, *, script: str, prefix: str = "") -> None:
    """Draw the page inside a route of `pages`. `script`: address of ui/static/new_run.js below the root of the service;
    `prefix`: where the pages of this language are mounted ("" or "/zh").
    """
    page = _Page(lang, service, script, prefix)
    page.draw()
    page.connect(pages)


class LaunchOnce:
    """One job per visit and text, however often Launch is pressed: a second click gets the first one's job."""

    def __init__(self, submit: Callable[[str], Job], *, remembered: int = 256) -> None:
        self._submit, self._remembered = submit, remembered
        self._jobs: OrderedDict[str, Future[Job]] = OrderedDict()
        self._lock = threading.Lock()

    def launch(self, visit: str, text: str) -> Job:
        """Submit, or wait for the same submit of another thread. One that failed may be tried again."""
        key = hashlib.sha256(f"{visit}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()
        with self._lock:
            known = self._jobs.get(key)
            if known is None:
                mine = self._jobs[key] = Future()
            while len(self._jobs) > self._remembered:
                self._jobs.popitem(last=False)
        if known is not None:
            return self._wait(known)
        try:
            mine.set_result(self._submit(text))
        finally:
            if not mine.done():
                with self._lock:
                    self._jobs.pop(key, None)
                mine.cancel()
        return mine.result()

    def _wait(self, job: Future[Job]) -> Job:
        try:
            return job.result(timeout=300)
        except (CancelledError, TimeoutError) as error:
            raise Conflict("The first press of Launch did not succeed. Try again.") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Notice:
    """A line above the form: where the document came from, or why it cannot be read. Empty: nothing to say."""

    kind: str = ""
    text: str = ""
    detail: str = ""
    undo: str = ""
    line: int | None = None
    good: str = ""

    def to_json(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__slots__}, ensure_ascii=False)


class _Page:
    """One language's page: its widgets and the handlers of their events. Holds nothing of any visitor."""

    def __init__(self, lang: str, service: FormService, script: str, prefix: str) -> None:
        self.lang, self.service, self.script, self.prefix = lang, service, script, prefix
        self.texts = TEXTS[lang]
        self.widgets = Widgets()
        self.guard = LaunchOnce(service.submit)

    # --- drawing -----------------------------------------------------------------------------------------------------

    def draw(self) -> None:
        with gr.Column(elem_id="td-main", elem_classes=["td-form-page", "td-new"]):
            self.picker = self._place("new-presets", "startPresets", ["pick"])
            with gr.Row(elem_classes="td-new-columns"):
                with gr.Column(elem_classes="td-new-form", min_width=280):
                    self._draw_form()
                with gr.Column(elem_classes="td-new-side", min_width=280):
                    self.launch = gr.Button(
                        self.texts["new.launch.wait"], variant="primary", interactive=False, elem_id="new-launch"
                    )
                    self.panel = self._place("new-panel", "startPanel", ["fix", "fixall", "faster", "recheck"])
        self.good = gr.Textbox(visible="hidden", elem_id="new-good")
        self.draft = gr.Textbox(visible="hidden", elem_id="new-draft")
        self.visit = gr.Textbox(visible="hidden", elem_id="new-visit")
        self.goto = gr.Textbox(visible="hidden", elem_id="new-goto")

    def _draw_form(self) -> None:
        self.notice = self._place("new-notice", "startNotice", ["restore"])
        with gr.Tabs(elem_id="new-tabs"):
            with gr.Tab(self.texts["new.tab.form"], id="form", elem_id="new-tab-form"):
                self.finder = self._place("new-find", "startFinder", ["input"], fields=self._index())
                for group in Group:
                    self._draw_group(group)
            with gr.Tab(self.texts["new.tab.yaml"], id="yaml", elem_id="new-tab-yaml"):
                gr.Markdown(self.texts["new.yaml.help"], elem_classes="td-new-help")
                self.code = gr.Code(
                    value="", language="yaml", label=self.texts["new.yaml.label"], elem_id="new-yaml", lines=24,
                    max_lines=60, wrap_lines=True, interactive=True,
                )  # fmt: skip

            with gr.Tab(self.texts["new.tab.import"], id="import", elem_id="new-tab-import"):
                self.importer = self._place("new-import", "startImport", ["take"])

    def _draw_group(self, group: Group) -> None:
        fields = [item for item in list_fields() if item.group is group]
        title = self.texts[f"group.{group.value}"]
        simple = any(item.level is Level.SIMPLE for item in fields)
        with gr.Column(elem_id=f"group-{group.value}", elem_classes="td-new-group"):
            if simple:
                gr.HTML(f"<h2>{title}</h2>", elem_classes="td-new-title")
                with gr.Row(elem_classes="td-new-fields"):
                    build_fields(self.widgets, group.value, Level.SIMPLE, self.texts)
            if any(item.level is Level.ADVANCED for item in fields):
                label = self.texts["new.more"].format(group=title) if simple else title
                more = gr.Accordion(label, open=False, elem_id=f"more-{group.value}", elem_classes="td-new-more")
                with more, gr.Row(elem_classes="td-new-fields"):
                    build_fields(self.widgets, group.value, Level.ADVANCED, self.texts)

    def _place(self, name: str, start: str, events: Sequence[str], **config: object) -> gr.HTML:
        """An element that new_run.js draws from the component's value (JSON); data never becomes markup."""
        told = json.dumps({"lang": self.lang, "prefix": self.prefix, "text": self._words(), **config})
        # Gradio makes `component.<event>` for each event name that stands quoted in the script.
        triggers = ", ".join(f"{event}: (data) => trigger('{event}', data)" for event in events)
        return gr.HTML(
            value="",
            html_template=f'<div class="td-{name}"></div>',
            js_on_load=f'import((window.tunedeck?.root ?? "") + {json.dumps(self.script)})'
            f".then((page) => page.{start}({{element, props, watch, events: {{{triggers}}}, config: {told}}}))",
            elem_id=name,
            apply_default_css=False,
        )

    def _words(self) -> dict[str, str]:
        return {key: text for key, text in self.texts.items() if key.startswith("new.")}

    def _index(self) -> list[dict[str, str]]:
        """What "find a setting" searches."""
        return [
            {
                "id": element_id(item.name),
                "name": item.name,
                "label": self.texts[f"field.{item.name}"],
                "group": item.group.value,
                "where": self.texts[f"group.{item.group.value}"],
            }
            for item in list_fields()
        ]

    # --- events ------------------------------------------------------------------------------------------------------

    def connect(self, pages: gr.Blocks) -> None:
        widgets = self.widgets.components
        everything = [self.code, self.good, self.notice, self.panel, self.launch, *widgets]
        pages.load(
            self.on_load, [self.draft], [self.visit, self.picker, *everything],
            js="() => [window.sessionStorage.getItem('td-draft:' + window.location.search) ?? '']", **_EVENT,
        )  # fmt: skip
        gr.on([*self.widgets.edits(), self.finder.input], self.on_form, [self.code, *widgets], everything, **_TYPING)
        self.code.input(self.on_yaml, [self.code, self.good], everything, **_TYPING)
        self.picker.pick(self.on_pick, [self.code], everything, **_EVENT)
        self.panel.fix(self.on_fix, [self.code], everything, **_EVENT)
        self.panel.fixall(self.on_fix_all, [self.code], everything, **_EVENT)
        self.panel.faster(self.on_faster, [self.code], everything, **_EVENT)
        self.panel.recheck(self.on_recheck, [self.code], [self.panel, self.launch], **_TYPING)
        self.importer.take(self.on_import, [self.code], everything, **_EVENT)
        self.notice.restore(self.on_restore, None, everything, **_EVENT)
        folder, names = self.widgets.component("dataset_dir"), ("dataset", "eval_dataset")
        folder.change(  # type: ignore[attr-defined]
            self.on_folder, [folder], [self.widgets.component(name) for name in names], **_TYPING
        )
        launched = self.launch.click(
            self.on_launch, [self.visit, self.code, self.good, *widgets], [self.goto, *everything], **_EVENT
        )
        launched.then(
            None, [self.goto], None,
            js="(path) => { if (path) { sessionStorage.removeItem('td-draft:' + location.search); "
            "location.assign((window.tunedeck?.root ?? '') + path); } }",
        )  # fmt: skip

    def on_load(self, draft: str, request: gr.Request) -> list[object]:
        """A fresh page: an unfinished form of this tab, or what the address asks for, or an empty document."""
        query = dict(request.query_params)
        text, notice = self._start(query)
        if draft and draft != text and _readable(draft):
            text, notice = draft, _Notice(kind="restored", text=self.texts["new.restored"])
        chosen = query.get("preset", "") if notice.kind == "" else ""
        return [secrets.token_hex(8), self._presets(chosen), *self._show(text, notice)]

    def on_form(self, text: str, *payload: FormValue) -> list[object]:
        """A widget changed: write it into the document. While the YAML is broken, it waits."""
        try:
            before = open_form(text)
            edited = edit_text(text, self.widgets.values(payload))
        except InvalidInput:
            return [gr.skip()] * (5 + len(payload))
        view = self._view(edited.text, edited.form, edited.errors)
        return [
            *([gr.skip()] * 3 if edited.text == text else [edited.text, edited.text, _Notice().to_json()]),
            *self._panel(view),
            *self.widgets.refit(before, edited.form),
        ]

    def on_yaml(self, text: str, good: str) -> list[object]:
        """The YAML changed: fill the form, or say where it cannot be read and leave the form as it is."""
        text = text or ""
        try:
            return [gr.skip(), *self._show(text, _Notice())[1:]]
        except InvalidInput as error:
            return self._broken(text, good, error)

    def on_pick(self, text: str, event: gr.EventData) -> list[object]:
        """A preset's card was pressed."""
        name = str(getattr(event, "name", "") or "")
        if not name:
            return self._show(START, _Notice(kind="loaded", text=self.texts["new.start.empty"], undo=text or ""))
        try:
            wanted = self.service.preset_text(name)
        except TunedeckError as error:
            raise gr.Error(str(error), print_exception=False) from error
        title = next(preset.title[self.lang] for preset in list_presets() if preset.name == name)
        message = self.texts["new.preset.loaded"].format(title=title)
        return self._show(wanted, _Notice(kind="loaded", text=message, undo=text or ""))

    def on_restore(self, event: gr.EventData) -> list[object]:
        """Undo of a preset, or back to the last readable YAML: the browser says the text."""
        text = str(getattr(event, "text", "") or "") or START
        try:
            return self._show(text, _Notice())
        except InvalidInput as error:
            return self._broken(text, START, error, show=True)

    def on_fix(self, text: str, event: gr.EventData) -> list[object]:
        """One problem's fix. The fix is looked up in a fresh preview: the browser names the problem only."""
        wanted = str(getattr(event, "id", "") or "")
        return self._fixed(text, lambda name: name == wanted)

    def on_fix_all(self, text: str) -> list[object]:
        return self._fixed(text, lambda name: True)

    def on_faster(self, text: str, event: gr.EventData) -> list[object]:
        """One advice, or all of them: the browser names it, the change is looked up in a fresh forecast."""
        wanted = str(getattr(event, "id", "") or "")
        try:
            faster = self.service.faster_text(text or "", "" if wanted == "all" else wanted)
            return self._show(faster, _Notice(kind="loaded", text=self.texts["new.speed.done"], undo=text or START))
        except InvalidInput as error:
            return self._broken(text, text, error)

    def on_recheck(self, text: str) -> list[object]:
        """The form was left alone for a moment: ask the trainer itself, or look whether it has answered."""
        try:
            form = open_form(text or "")
        except InvalidInput:
            return [gr.skip(), gr.skip()]
        view = self._view(text, form, _widget_errors(text, form), ask=True)
        return self._panel(replace(view, asked=secrets.token_hex(4)))

    def on_import(self, text: str, event: gr.EventData) -> list[object]:
        """Files and pasted text: one document, and a line that says what became of them."""
        imported = import_texts(read_payload(getattr(event, "files", None)))
        try:
            if imported.spec_text:
                done = _Notice(
                    kind="loaded",
                    text=self.texts["new.imported"].format(kind=self.texts[f"new.kind.{imported.kind}"]),
                    detail=import_report(imported, self.texts),
                    undo=text or START,
                )
                return self._show(imported.spec_text, done)
        except InvalidInput as error:
            return self._broken(imported.spec_text, text or START, error, show=True)
        failed = _Notice(
            kind="failed", text=import_refusal(imported, self.texts), detail=import_report(imported, self.texts)
        )
        return [gr.skip(), gr.skip(), failed.to_json(), *[gr.skip()] * (2 + len(self.widgets.fields))]

    def on_folder(self, folder: str) -> list[object]:
        """Another data folder: its names to choose from."""
        update = gr.update(choices=list(self.service.dataset_names(folder or "")))
        return [update, update]

    def on_launch(self, visit: str, text: str, good: str, *payload: FormValue) -> list[object]:
        """Launch what the page shows: widgets not yet written are written first."""
        try:
            edited = edit_text(text, self.widgets.values(payload))
            if edited.errors:
                return ["", *self._refresh(edited.text, edited.form, edited.errors)]
            job = self.guard.launch(visit, edited.text)
        except SpecRejected:
            return ["", *self._refresh(edited.text, edited.form, ())]
        except InvalidInput as error:
            return ["", *self._broken(text, good, error)]
        except TunedeckError as error:
            shown = self._refresh(edited.text, edited.form, ())
            notice = _Notice(kind="failed", text=self.texts["new.conflict"].format(why=error))
            return ["", *shown[:2], notice.to_json(), *shown[3:]]
        return [f"{self.prefix}/run?id={job.id}", *[gr.skip()] * (5 + len(payload))]

    # --- parts of answers --------------------------------------------------------------------------------------------

    def _start(self, query: Mapping[str, str]) -> tuple[str, _Notice]:
        """The document that the address asks for."""
        what = query.get("clone") or query.get("resume") or query.get("tuned") or query.get("preset") or ""
        try:
            if query.get("clone"):
                text = self.texts["new.cloned"].format(id=what)
                return self.service.clone_text(what), _Notice(kind="cloned", text=text)
            if query.get("resume"):
                checkpoint = query.get("checkpoint", "")
                text = self.texts["new.resumed"].format(id=what, checkpoint=checkpoint)
                return self.service.resume_text(what, checkpoint), _Notice(kind="resumed", text=text)
            if query.get("tuned"):
                return self.service.tuned_text(what), _Notice(kind="cloned", text=self.texts["new.tuned"])
            if query.get("preset"):
                return self.service.preset_text(what), _Notice()
        except TunedeckError as error:
            return START, _Notice(kind="failed", text=self.texts["new.not_found"].format(what=what, why=error))
        return START, _Notice()

    def _show(self, text: str, notice: _Notice) -> list[object]:
        """Fill everything from a document; raises InvalidInput."""
        form = open_form(text)
        view = self._view(text, form, _widget_errors(text, form))
        return [text, text, notice.to_json(), *self._panel(view), *self.widgets.fill(form, self._choices(form))]

    def _refresh(self, text: str, form: Form, errors: Sequence[FieldError]) -> list[object]:
        """Panel and YAML anew, the widgets as they are."""
        panel = self._panel(self._view(text, form, errors))
        return [text, text, _Notice().to_json(), *panel, *[gr.skip()] * len(self.widgets.fields)]

    def _broken(self, text: str, good: str, error: InvalidInput, *, show: bool = False) -> list[object]:
        """The YAML cannot be read: say where; form and last readable text stay."""
        key = "new.yaml.broken" if error.line else "new.yaml.broken_somewhere"
        notice = _Notice(
            kind="broken",
            text=self.texts[key].format(line=error.line, column=error.column),
            detail=self.texts["new.yaml.broken.help"],
            line=error.line,
            good=good or START,
        )
        panel = self._panel(broken_view(text, error, self.texts))
        code = text if show else gr.skip()
        return [code, gr.skip(), notice.to_json(), *panel, *[gr.skip()] * len(self.widgets.fields)]

    def _fixed(self, text: str, chosen: Callable[[str], bool]) -> list[object]:
        """The document with the chosen problems' fixes, then everything anew."""
        try:
            for fix in self._fixes(text, chosen):
                text = apply_fix(text, fix)
            return self._show(text, _Notice(kind="done", text=self.texts["new.fixed"]))
        except InvalidInput as error:
            return self._broken(text, text, error)

    def _fixes(self, text: str, chosen: Callable[[str], bool]) -> list[Fix]:
        problems = (*self.service.preview(text).problems, *self.service.final_check(text).problems)
        return [problem.fix for problem in problems if problem.fix is not None and chosen(problem_id(problem))]

    def _view(self, text: str, form: Form, errors: Sequence[FieldError], *, ask: bool = False) -> LaunchView:
        """The panel; with the trainer's own check when it is to be asked (it takes seconds of CPU, so not at every key)."""
        try:
            preview = self.service.preview(text)
            check = self.service.final_check(text) if ask and not errors else None
            view = build_view(text, form, preview, errors, self.texts, check)
            forecast = self.service.forecast(text) if form.values.get("model_name_or_path") else None
            if forecast is None:
                return view
            on_gpu = bool(self.service.devices())
            return replace(view, forecast=build_forecast_view(forecast, self.texts, on_gpu=on_gpu))
        except InvalidInput as error:
            return broken_view(text, error, self.texts)
        except TunedeckError as error:
            problem = InvalidInput("document", found=str(error), expected=self.texts["new.launch"])
            return replace(broken_view(text, problem, self.texts), title=self.texts["new.stale"].format(why=error))

    def _panel(self, view: LaunchView) -> list[object]:
        return [view.to_json(), gr.update(value=view.launch, interactive=view.ready)]

    def _choices(self, form: Form) -> dict[str, Sequence[str]]:
        names = self.service.dataset_names(str(form.values["dataset_dir"] or ""))
        return {
            "dataset": names,
            "eval_dataset": names,
            "tunedeck.gpus": self.service.devices(),
            "tunedeck.environment": self.service.environments(),
            "template": self.service.templates(),
        }

    def _presets(self, chosen: str) -> str:
        """The cards, those for this host's hardware first in view."""
        cards = [_card(preset, self.lang) for preset in list_presets()]
        return json.dumps({"cards": cards, "hardware": self.service.hardware(), "chosen": chosen}, ensure_ascii=False)


def _card(preset: Preset, lang: str) -> dict[str, object]:
    return {
        "name": preset.name,
        "hardware": preset.hardware,
        "gpus": preset.gpus,
        "method": preset.method,
        "title": preset.title[lang],
        "purpose": preset.purpose[lang],
        "memory": preset.memory[lang],
        "tested": preset.tested_on[lang],
    }


def _readable(text: str) -> bool:
    try:
        open_form(text)
    except InvalidInput:
        return False
    return True


def _widget_errors(text: str, form: Form) -> tuple[FieldError, ...]:
    """What the document itself holds that its fields cannot be (`learning_rate: fast`)."""
    return edit_text(text, form.values).errors
