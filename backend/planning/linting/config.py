"""Values of a train config -> TrainConfig: typed reads with the trainer's defaults, and the ZeRO stage that will run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from backend.domain.problem import ArgValue
from backend.planning.importing.yaml_text import YamlText
from backend.planning.linting.context import LintContext

OWN_SECTION = "tunedeck"
_TRAINING_SIGNS = (
    "stage",
    "do_train",
    "do_eval",
    "do_predict",
    "dataset",
    "eval_dataset",
    "output_dir",
    "learning_rate",
    "num_train_epochs",
    "max_steps",
    "per_device_train_batch_size",
    "lora_rank",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """One train config under the lens. `from_command`: the values came from a command line (argparse checks types)."""

    values: Mapping[str, ArgValue]
    context: LintContext
    source: YamlText = field(default_factory=lambda: YamlText(values={}))
    from_command: bool = False
    name: str = ""

    def given(self, name: str) -> bool:
        return self.values.get(name) is not None

    def value(self, name: str) -> ArgValue:
        """The value as given, else the trainer's default."""
        found = self.values.get(name)
        if found is not None:
            return found
        argument = self.context.trainer.arguments.get(name)
        return argument.default if argument else None

    def on(self, name: str) -> bool:
        """A switch as Python sees it (YAML is not checked: any non-empty value counts as true)."""
        return bool(self.value(name))

    def number(self, name: str) -> float | None:
        found = self.value(name)
        if isinstance(found, bool) or found is None:
            return None
        if isinstance(found, (int, float)):
            return float(found)
        try:
            return float(found) if isinstance(found, str) else None
        except ValueError:
            return None

    def text(self, name: str) -> str:
        """A text value; "" when absent or not text."""
        found = self.value(name)
        return found if isinstance(found, str) else ""

    def words(self, name: str) -> tuple[str, ...]:
        """A comma list or a YAML list as words."""
        found = self.value(name)
        parts = (
            found if isinstance(found, list) else str(found).split(",") if isinstance(found, (str, int, float)) else []
        )
        return tuple(str(part).strip() for part in parts if str(part).strip())

    def line(self, name: str) -> int | None:
        return self.source.lines.get(name)

    @property
    def own(self) -> Mapping[str, ArgValue]:
        """Our section of the document."""
        section = self.values.get(OWN_SECTION)
        return section if isinstance(section, dict) else {}

    @property
    def deepspeed(self) -> Mapping[str, ArgValue] | None:
        """The DeepSpeed config when its content is known: an inline mapping, or a file that the context holds."""
        found = self.values.get("deepspeed")
        if isinstance(found, dict):
            return found
        return self.context.deepspeed_files.get(found) if isinstance(found, str) else None

    @property
    def uses_deepspeed(self) -> bool:
        return bool(self.values.get("deepspeed")) or self._own_stage() is not None

    @property
    def zero_stage(self) -> int | None:
        """The ZeRO stage: from the content, else from our section, else from a conventional name (`ds_z3...`)."""
        content = self.deepspeed
        if content is not None:
            zero = content.get("zero_optimization")
            stage = zero.get("stage", 0) if isinstance(zero, dict) else 0
            return stage if isinstance(stage, int) and not isinstance(stage, bool) else None
        named = self.values.get("deepspeed")
        if isinstance(named, str):
            match = re.search(r"(?:z|zero|stage)[-_]?([0-3])(?!\d)", named.rpartition("/")[2].lower())
            return int(match[1]) if match else None
        return self._own_stage()

    def _own_stage(self) -> int | None:
        zero = self.own.get("zero")
        stage = zero.get("stage") if isinstance(zero, dict) else None
        return stage if isinstance(stage, int) and not isinstance(stage, bool) else None

    @property
    def distributed(self) -> bool | None:
        """Started by torchrun (for the trainer that is distributed, even with one rank): True, False, None = unknown."""
        if self.context.launched_here:
            return True
        own = self.own.get("processes")
        count = own if isinstance(own, int) else self.context.processes
        return None if count is None else count > 1

    @property
    def stage(self) -> str:
        return self.text("stage")

    @property
    def method(self) -> str:
        return self.text("finetuning_type")

    @property
    def trains(self) -> bool:
        """Tunedeck's launcher adds `do_train: true` where nothing is said; a false one stays."""
        return self.on("do_train") or (self.context.launched_here and not self.given("do_train"))

    @property
    def is_for_training(self) -> bool:
        """False for the configs of `llamafactory-cli export`, `chat` and `api`, which need less and take less."""
        if self.given("export_dir"):
            return False
        return self.from_command or bool(self.own) or any(name in self.values for name in _TRAINING_SIGNS)
