"""The launch form and its document: two views of one text. The page asks here, never planning itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from backend.domain.form import Field, FieldError, FormValue
from backend.domain.gpu import Device
from backend.domain.job import Job
from backend.domain.launch import LaunchPlan
from backend.domain.problem import Fix
from backend.errors import InvalidInput
from backend.planning.command import shell_command
from backend.planning.document import render_value
from backend.planning.fields import FIELDS, TEMPLATES, visible_fields
from backend.planning.form_values import find_changes, load_form, read_values, show_number
from backend.planning.spec import apply_changes, derive_name
from backend.services.api import Api, Preview
from backend.services.dry_run import DryRun
from backend.services.forecast import Forecast, Forecaster
from backend.services.gpus import open_gpus
from backend.services.presets import list_presets, load_preset
from backend.services.searches import Searches
from backend.services.secrets import is_secret_name
from backend.services.tuning import present_names

MAX_REGISTRY_BYTES = 16 << 20
START = '### model\nmodel_name_or_path: ""\n\n### method\nstage: sft\ndo_train: true\nfinetuning_type: lora\n'
"""What "empty" starts from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A document as the form shows it. `visible` names the fields that are of use; `name` is the run's derived name."""

    values: Mapping[str, FormValue]
    visible: frozenset[str]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """The document after the form's changes, and the widgets that could not be written."""

    text: str
    form: Form
    errors: tuple[FieldError, ...]


class FormService:
    """What the New run page asks of the service: documents to start from, names to choose, a preview, a launch."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._forecaster = Forecaster(api.settings, api.paths, api.environments)

    def preview(self, text: str) -> Preview:
        """Raises InvalidInput when the text is no specification."""
        return self._api.preview(text)

    def forecast(self, text: str) -> Forecast | None:
        """Memory and speed before the launch; None when a value of the document cannot be read (the problems say which)."""
        try:
            return self._forecaster.forecast(text, self._devices())
        except InvalidInput:
            return None

    def faster_text(self, text: str, code: str = "") -> str:
        """The document with one advice's change, or with all that the forecast's best settings need. Raises InvalidInput."""
        forecast = self._forecaster.forecast(text, self._devices())
        one = next((advice.fix for advice in forecast.advices if advice.code == code and advice.fix), None)
        fix = one if code else forecast.speed.best_fix
        return text if fix is None else apply_changes(text, fix.set, present_names(text, fix.remove))

    def _devices(self) -> tuple[Device, ...]:
        return open_gpus(self._api.paths).read_devices()

    def final_check(self, text: str) -> DryRun:
        """The trainer's own word on it; CHECKING: ask again. Raises InvalidInput."""
        return self._api.final_check(text)

    def submit(self, text: str) -> Job:
        """Raises InvalidInput, SpecRejected, StoreFault."""
        return self._api.submit(text)

    def preset_text(self, name: str) -> str:
        """The document of a preset, demo inputs named; raises NotFound."""
        return load_preset(name, demo=self._api.paths.demo)

    def clone_text(self, job_id: str) -> str:
        return self._api.clone_text(job_id)

    def resume_text(self, job_id: str, checkpoint: str) -> str:
        return self._api.resume_text(job_id, checkpoint)

    def tuned_text(self, search_id: str) -> str:
        """The document with the best settings of a tuning search; raises NotFound, Conflict."""
        return Searches(self._api, open_gpus(self._api.paths)).best_text(search_id)

    def dataset_names(self, folder: str) -> tuple[str, ...]:
        """Registered names of a data folder; "" is Tunedeck's own."""
        return list_datasets(folder or str(self._api.paths.datasets))

    def devices(self) -> tuple[str, ...]:
        """PCI addresses of this host's GPUs."""
        return tuple(self._api.read_devices())

    def environments(self) -> tuple[str, ...]:
        """Names of the training environments, the default first."""
        return tuple(self._api.environments.names())

    def templates(self) -> tuple[str, ...]:
        """Chat templates that the default training environment knows; those of LLaMA-Factory 0.9.5 until it is described."""
        environment = self._api.environments.cached()
        return _templates(environment.description if environment else "") or TEMPLATES

    def hardware(self) -> str:
        """Which presets are made for this host: `mi300x` ..., `cpu` without GPUs, "" when the cards are not known."""
        environment = self._api.environments.cached()
        names = " ".join(environment.device_names).lower() if environment else ""
        known = next((preset.hardware for preset in list_presets() if preset.hardware in names), "")
        return known or ("" if self._api.read_devices() or names else "cpu")


@lru_cache(maxsize=4)
def _templates(description: str) -> tuple[str, ...]:
    try:
        names = json.loads(description).get("templates")
    except (ValueError, AttributeError):
        return ()
    return tuple(sorted(str(name) for name in names)) if isinstance(names, list) else ()


def list_fields() -> tuple[Field, ...]:
    """The catalogue in the order of the page."""
    return FIELDS


def show_text(value: FormValue) -> str:
    """A default as people write it: 5e-5, true."""
    if isinstance(value, float):
        return show_number(value)
    return value if isinstance(value, str) else "" if value is None else render_value(value)  # type: ignore[arg-type]


def open_form(text: str) -> Form:
    """Fill the form from a document; raises InvalidInput with line and column."""
    data = load_form(text)
    values = read_values(data)
    return Form(values=values, visible=visible_fields(values), name=derive_name(data))


def edit_text(text: str, values: Mapping[str, FormValue]) -> Edited:
    """Write the widgets that differ from the document into it; raises InvalidInput when the document is no YAML."""
    data = load_form(text)
    changes = find_changes(data, values)
    if changes.set or changes.remove:
        text = apply_changes(text, changes.set, changes.remove)
    return Edited(text=text, form=open_form(text), errors=tuple(changes.errors))


def apply_fix(text: str, fix: Fix) -> str:
    """The document with a problem's fix applied."""
    return apply_changes(text, fix.set, fix.remove)


def command_line(plan: LaunchPlan) -> str:
    """The plan as one line for a shell. Secrets are left out: the shell's own environment has to hold them."""
    return shell_command(replace(plan, env={name: text for name, text in plan.env.items() if not is_secret_name(name)}))


def field_of(argument: str) -> Field | None:
    """The field that shows an argument of the document (`tunedeck.zero.stage`, `bf16`); None when it has none."""
    wanted = "tunedeck.env" if argument.startswith("tunedeck.env.") else argument
    return next((item for item in FIELDS if wanted in item.arguments or wanted == item.name), None)


def list_datasets(folder: str) -> tuple[str, ...]:
    """Names registered in `<folder>/dataset_info.json`, sorted; empty when there is none that can be read."""
    path = Path(folder).expanduser() / "dataset_info.json"
    try:
        if not path.is_absolute() or path.stat().st_size > MAX_REGISTRY_BYTES:
            return ()
        entries = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError):
        return ()
    return tuple(sorted(str(name) for name in entries)) if isinstance(entries, dict) else ()
