"""The field catalogue in, Gradio's widgets out; and a document's form values as updates of those widgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import gradio as gr
from gradio.components import Component

from backend.domain.form import Field, FormValue, Kind, Level
from backend.services.form import Form, list_fields, show_text

Texts = Mapping[str, str]
_SHORT = 6
"""Up to so many choices are shown side by side, more as a list."""


@dataclass(slots=True)
class Widgets:
    """The widgets in the order of the catalogue. Handlers get and give their values in this order."""

    fields: list[Field] = field(default_factory=list)
    components: list[Component] = field(default_factory=list)

    def add(self, item: Field, component: Component) -> None:
        self.fields.append(item)
        self.components.append(component)

    def component(self, name: str) -> Component:
        return self.components[[item.name for item in self.fields].index(name)]

    def edits(self) -> list[Callable[..., object]]:
        """Events that say "a person chose something". Typing is told by the browser's own events instead (new_run.js):
        Gradio 6.31's Textbox says `input` only for key presses, so neither for Backspace nor for pasted text nor for Chinese
        input, and its `change` comes also while widgets are being filled, when only some of them hold their new value.
        """
        return [component.input for component in self.components if not isinstance(component, gr.Textbox)]  # type: ignore[attr-defined]

    def values(self, payload: Sequence[FormValue]) -> dict[str, FormValue]:
        """What the browser sent, by field name."""
        return {item.name: value for item, value in zip(self.fields, payload, strict=True)}

    def fill(self, form: Form, choices: Mapping[str, Sequence[str]]) -> list[object]:
        """Updates that show `form` in every widget; `choices` are known names for fields whose list depends on the host."""
        if not choices.get("tunedeck.gpus") and not form.values["tunedeck.gpus"]:
            form = replace(form, visible=form.visible - {"tunedeck.gpus"})  # nothing to choose from on this host
        return [
            _update(item, component, form, choices)
            for item, component in zip(self.fields, self.components, strict=True)
        ]

    def refit(self, before: Form, after: Form) -> list[object]:
        """Updates after an edit in the form itself: only what has to appear or to go away."""
        return [
            gr.skip()
            if (item.name in before.visible) == (item.name in after.visible)
            else gr.update(visible=_visible(item, after))
            for item in self.fields
        ]


def build_fields(widgets: Widgets, group: str, level: Level, texts: Texts) -> None:
    """Make the widgets of one group and level at this place of the page."""
    for item in list_fields():
        if item.group.value == group and item.level is level:
            widgets.add(item, build_widget(item, texts))


def build_widget(item: Field, texts: Texts) -> Component:
    """One widget, with label, help and the trainer's default as a hint."""
    common: dict[str, object] = {
        "label": _label(item, texts),
        "info": texts[f"help.{item.name}"],
        "elem_id": element_id(item.name),
        "elem_classes": ["td-field", f"td-field-{item.kind.value.replace('_', '-')}"],
        "interactive": True,
    }
    hint = texts["form.default"].format(value=show_text(item.default)) if item.default is not None else ""
    match item.kind:
        case Kind.SWITCH:
            return gr.Checkbox(value=bool(item.default), **common)  # type: ignore[arg-type]
        case Kind.WHOLE:
            return gr.Number(value=None, precision=0, placeholder=hint, **common)  # type: ignore[arg-type]
        case Kind.CHOICE if len(item.choices) <= _SHORT:
            return gr.Radio(choices=_choices(item, texts), value=item.default, **common)  # type: ignore[arg-type]
        case Kind.CHOICE:
            return gr.Dropdown(
                choices=_choices(item, texts),
                value=item.default,
                filterable=False,
                **common,  # type: ignore[arg-type]
            )
        case Kind.OPEN_CHOICE:
            return gr.Dropdown(
                choices=_choices(item, texts),
                value="",
                allow_custom_value=True,
                num_choices_shown=200,
                **common,  # type: ignore[arg-type]
            )
        case Kind.NAMES:
            return gr.Dropdown(choices=[], value=[], multiselect=True, allow_custom_value=True, **common)  # type: ignore[arg-type]
        case _:
            return gr.Textbox(value="", placeholder=hint or _example(item, texts), **_lines(item), **common)  # type: ignore[arg-type]


def element_id(name: str) -> str:
    """`f-tunedeck-name`: the widget's id on the page."""
    return f"f-{name.replace('.', '-')}"


def _label(item: Field, texts: Texts) -> str:
    unit = f" ({texts[f'unit.{item.unit}']})" if item.unit else ""
    return texts[f"field.{item.name}"] + unit


def _choices(item: Field, texts: Texts) -> list[tuple[str, str]]:
    return [(texts.get(f"choice.{item.name}.{value}", str(value)), str(value)) for value in item.choices]


def _example(item: Field, texts: Texts) -> str:
    return texts.get(f"example.{item.name}", "")


def _lines(item: Field) -> dict[str, int]:
    match item.kind:
        case Kind.VARIABLES:
            return {"lines": 4, "max_lines": 16}
        case Kind.LONG_TEXT:
            return {"lines": 2, "max_lines": 8}
        case Kind.YAML if item.arguments == ("*",):
            return {"lines": 5, "max_lines": 20}
        case _:
            return {"lines": 1, "max_lines": 1}


def _visible(item: Field, form: Form) -> bool | Literal["hidden"]:
    """ "hidden" keeps the widget on the page, so that its value is still sent."""
    return True if item.name in form.visible else "hidden"


def _update(item: Field, component: Component, form: Form, choices: Mapping[str, Sequence[str]]) -> object:
    value = form.values[item.name]
    visible = _visible(item, form)
    if item.name in choices:
        return gr.update(value=value, visible=visible, choices=_with_value(choices[item.name], value))
    if item.kind is Kind.CHOICE:
        return gr.update(value=value, visible=visible, choices=_offered(component, value))
    return gr.update(value=value, visible=visible)


def _offered(component: Component, value: FormValue) -> list[tuple[str, str]]:
    """The choices, and besides them what a document has in their place (`finetuning_type: loar`): it is shown, not lost."""
    assert isinstance(component, (gr.Radio, gr.Dropdown))
    choices = [(str(label), str(choice)) for label, choice in component.choices]
    return choices if value in [choice for _, choice in choices] else [*choices, (str(value), str(value))]


def _with_value(names: Sequence[str], value: FormValue) -> list[str]:
    """The known names, and the ones that the document has besides."""
    chosen = value if isinstance(value, list) else [value] if isinstance(value, str) and value else []
    return [*names, *(name for name in chosen if name not in names)]
