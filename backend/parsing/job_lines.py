"""Header and milestone lines of a job into plan, phase, checkpoints, launches, ranks, scores and how it ended."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from backend.parsing.progress import parse_clock
from backend.parsing.trainer_dict import parse_number

_HEADER = re.compile(
    r"(?:Total optimization steps|Num Epochs|Num examples|Gradient Accumulation steps|Number of trainable parameters|"
    r"Instantaneous batch size per device|Total train batch size[^=]*)\s*= ([\d,.]+)"
)
_WORLD = (
    re.compile(r"world size: (\d+), device"),
    re.compile(r"dist_world_size=(\d+)"),
    re.compile(r"RCCL initialized with (\d+) devices"),
    re.compile(r"Number of processes:? ?=?\s*(\d+)"),
    re.compile(r"\bworld[_ ]size ?[=:] ?(\d+)"),
    re.compile(r"using world size: (\d+)"),
)
_SAVING = re.compile(r"Saving (?:model )?(?:checkpoint|weights)(?: to)? (?:\S*?)checkpoint-(\d+)(?![\w.])")
_ABOUT = re.compile(r"Checkpoint global_step(\d+) is (about to be saved|ready now)")
_MEGATRON_SAVED = re.compile(r"successfully saved checkpoint (?:from|at) iteration\s+(\d+)")
_RESUME = (
    re.compile(r"Continuing training from global step (\d+)"),
    re.compile(
        r"(?:Attempting to resume from|Resuming training from|Loading (?:model|checkpoint) from|resume_from_checkpoint\S*) "
        r"\S*?checkpoint-(\d+)"
    ),
    re.compile(r"loading checkpoint from \S+ at iteration (\d+)"),
    re.compile(r"successfully loaded checkpoint from \S+ .*at iteration (\d+)"),
)
_RUNTIME = re.compile(
    r"Train(?:ing)? Runtime: (\d+(?:\.\d+)?) ?(\w+)(?:.*?Throughput: (\d[\d,]*(?:\.\d+)?) ?(tokens/sec\S*))?",
    re.IGNORECASE,
)
_THROUGHPUT = re.compile(r"\bthroughput: (\d[\d,]*(?:\.\d+)?) ?((?:tokens?|samples?)/s\S*)", re.IGNORECASE)
_TABLE = re.compile(r"^\s+([\w/.@-]+)\s+=\s+(\S+)\s*$")
_METRICS = re.compile(r"\*{5} (train|eval|predict) metrics \*{5}")
_SCORE = re.compile(r"^\|\s*([\w:./-]*)\s*\|[^|]*\|(.*)\|")
_DDP_TIMEOUT = re.compile(r"ddp_timeout[\"']?[=: ]+(\d+)")
_ATTENTION = re.compile(r"Using (FlashAttention-2|torch SDPA|eager\w*|\w+) for faster training")
_CHAT_VALUE = re.compile(r"\b(ppl|loss): (\d+(?:\.\d+)?)")
_SLURM = re.compile(r"\b(JobState|Reason|RunTime|TimeLimit|ExitCode|DerivedExitCode)=(\S+)")
_TRES_GPUS = re.compile(r"gres/gpu(?::\w+)?=(\d+)")
_STAGE = re.compile(
    r"\brun_(pt|sft|rm|ppo|dpo|kto)\b|--stage[ =](pt|sft|rm|ppo|dpo|kto)\b|^stage: (pt|sft|rm|ppo|dpo|kto)\b"
)
_HARNESS = re.compile(
    r"Selected Tasks: |Initializing hf model, with arguments|lighteval|\[evaluator\.py:|\[__main__\.py:\d+\] Verbosity"
)
_HARNESS_START = re.compile(r"Initializing \w+ model, with arguments")
_DATASET = re.compile(r"Loading dataset (\S+?)\.\.\.")
_ENDED_WELL = (
    "raining completed", "raining complete!", "raining complete.", "[after training is done]", "exiting program at iteration",
    "raining finished", "Job succeeded", "status: succeeded", "Run summary:", "训练完成", "训练结束",
)  # fmt: skip
_PHASES: tuple[tuple[str, str], ...] = (
    ("loading_data", "Loading dataset "), ("loading_data", "Generating train split"),
    ("tokenizing", "Converting format of dataset"), ("tokenizing", "Running tokenizer on"), ("tokenizing", "Tokenizing "),
    ("loading_model", "loading weights file"), ("loading_model", "Loading checkpoint shards"),
    ("loading_model", "Initializing hf model"), ("loading_model", "Fine-tuning method"), ("loading_model", "Instantiating "),
    ("loading_model", "trainable params:"), ("training", "***** Running training *****"),
)  # fmt: skip
_ORIGINS: tuple[tuple[str, str], ...] = (
    ("training", "trainer.py:training_step"), ("training", "trainer.py:_inner_training_loop"), ("training", ":training_step"),
    ("training", ":_inner_training_loop"), ("training", ":_run_backward"), ("loading_data", "llamafactory/data/"),
    ("loading_data", ":load_dataset"), ("loading_data", "datasets/"), ("loading_model", "llamafactory/model/"),
    ("loading_model", ":from_pretrained"), ("importing", "transformers/utils/import_utils"),
)  # fmt: skip


TRIGGERS = (
    " = ", "hroughput: ", "heckpoint", "ontinuing", "esum", "orld", "initialized with", "Number of processes", "***** ",
    "JobState",
    "RunTime", "TRES", "Reason=", "ppl: ", "chosen: ", "untime: ", "stage", "run_", "Selected Tasks", "with arguments",
    "lighteval", "Verbosity", "evaluator", "ddp_timeout", "faster training", *_ENDED_WELL, *(part for _, part in _PHASES),
)  # fmt: skip
"""Literals without which a line says nothing about the job (rows of a table begin with a bar)."""


@dataclass(slots=True)
class JobLines:
    """Takes lines in order; the fields hold what was found so far."""

    total_steps: int | None = None
    epochs: float | None = None
    train_batch_size: int | None = None
    accumulation: int | None = None
    trainable_parameters: int | None = None
    world_size: int | None = None
    phase: str | None = None
    stage: str | None = None
    job: str | None = None
    resumed_from: int | None = None
    trainings: int = 0
    harness_starts: int = 0
    saving: int | None = None
    saved: int | None = None
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    ended_offset: int = -1
    started_offset: int = -1
    """Where the step loop was announced last."""
    runtime_seconds: float | None = None
    throughput: float | None = None
    throughput_unit: str = ""
    scores: dict[str, float] = field(default_factory=dict)
    slurm: dict[str, str] = field(default_factory=dict)
    gpus: int | None = None
    ddp_timeout: float | None = None
    attention: str | None = None
    """The attention kernel that the model loader names."""
    datasets: list[str] = field(default_factory=list)
    chat: dict[str, float] = field(default_factory=dict)
    """What DeepSpeed-Chat prints outside of step lines: perplexity and loss before training."""
    _table: str | None = None
    _trained: bool = False
    _score_column: int | None = None

    def take(self, text: str, offset: int) -> None:
        """Most lines are none of these: the tests are cheap ones."""
        if " = " in text:
            self._take_header(text)
        if "heckpoint" in text or "ontinuing" in text or "esum" in text:
            self._take_checkpoint(text)
        if "orld" in text or "initialized with" in text or "Number of processes" in text:
            self._take_world(text)
        if "***** " in text:
            self._take_stars(text, offset)
        elif text.startswith("|"):
            self._take_score(text, offset)
        elif self._table:
            self._take_table(text)
        if "=" in text and ("JobState" in text or "RunTime" in text or "TRES" in text or "Reason=" in text):
            self._take_slurm(text)
        if "ddp_timeout" in text and (found := _DDP_TIMEOUT.search(text)):
            self.ddp_timeout = float(found[1])
        if "faster training" in text and (found := _ATTENTION.search(text)):
            self.attention = found[1]
        if text.startswith(("ppl: ", "chosen: ")):
            self._take_chat(text)
        self._take_phase(text)
        self._take_end(text, offset)

    @property
    def in_table(self) -> bool:
        """The lines that come now are rows of a table of metrics."""
        return self._table is not None

    def note_progress(self, step: int) -> None:
        """Training went on behind a save: that checkpoint is complete."""
        self._trained |= step > 0
        if self.saving is not None and step > self.saving:
            self.saved, self.saving = max(self.saved or 0, self.saving), None

    def phase_of_frame(self, path: str, function: str) -> str | None:
        """Where a stack frame belongs."""
        place = f"{path}:{function}"
        return next((phase for phase, part in _ORIGINS if part in place), None)

    def _take_header(self, text: str) -> None:
        if "Running" in text or (found := _HEADER.search(text)) is None:
            return
        number = float(found[1].replace(",", "").rstrip("."))
        if "Total optimization steps" in text:
            self.total_steps = int(number)
            self.phase = "training"
        elif "Num Epochs" in text:
            self.epochs = number
        elif "Total train batch size" in text:
            self.train_batch_size = int(number)
        elif "Gradient Accumulation" in text:
            self.accumulation = int(number)
        elif "trainable parameters" in text:
            self.trainable_parameters = int(number)

    def _take_checkpoint(self, text: str) -> None:
        if found := _SAVING.search(text):
            self.saving = int(found[1])
        elif found := _ABOUT.search(text):
            if found[2] == "ready now":
                self.saved, self.saving = max(self.saved or 0, int(found[1])), None
            else:
                self.saving = int(found[1])
        elif found := _MEGATRON_SAVED.search(text):
            self.saved, self.saving = int(found[1]), None
        for pattern in _RESUME:
            if found := pattern.search(text):
                self.resumed_from = int(found[1])

    def _take_world(self, text: str) -> None:
        for pattern in _WORLD:
            if found := pattern.search(text):
                self.world_size = max(self.world_size or 0, int(found[1]))
                return

    def _take_stars(self, text: str, offset: int) -> None:
        self._table = None
        if "Running training" in text:
            if self._trained or not self.trainings:  # several ranks may print one header
                self.trainings += 1
            self._trained = False
            self.phase, self.started_offset = "training", offset
        elif "Running Prediction" in text or "Running prediction" in text:
            self.job = "predict"
        elif found := _METRICS.search(text):
            self._table = found[1]
            self.metrics.setdefault(found[1], {})
            self.ended_offset = offset

    def _take_table(self, text: str) -> None:
        found = _TABLE.match(text)
        if found is None or self._table is None:
            self._table = None
            return
        number = parse_number(found[2])
        value = number if number is not None else parse_clock(found[2])
        if value is not None:
            self.metrics[self._table][found[1]] = value

    def _take_score(self, text: str, offset: int) -> None:
        """Result table of an evaluation harness: task, version, metric, value."""
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
        if "Task" in cells[0] or "Tasks" in cells[0]:
            self._score_column = next((at for at, cell in enumerate(cells) if cell.startswith("Value")), None)
            self.job = "eval"
            self.ended_offset = offset
            return
        if self._score_column is None or len(cells) <= self._score_column or cells[0] in ("", "all"):
            return
        number = parse_number(cells[self._score_column])
        if number is not None and set(cells[0]) != {"-"}:
            self.scores.setdefault(cells[0].lstrip("- "), number)

    def _take_chat(self, text: str) -> None:
        if found := _CHAT_VALUE.search(text):
            name = "initial_loss" if found[1] == "loss" else "ppl" if "ppl_before" in self.chat else "ppl_before"
            if name != "initial_loss" or name not in self.chat:
                self.chat[name] = float(found[2])

    def _take_slurm(self, text: str) -> None:
        self.slurm.update(dict(_SLURM.findall(text)))
        if found := _TRES_GPUS.search(text):
            self.gpus = int(found[1])

    def _take_phase(self, text: str) -> None:
        if "ing " in text or "trainable" in text:
            self.phase = next((phase for phase, part in _PHASES if part in text), self.phase)
        if "Loading dataset" in text and (found := _DATASET.search(text)) and len(self.datasets) < 256:
            self.datasets.append(found[1])
        if "stage" in text or "run_" in text:
            found = _STAGE.search(text)
            self.stage = next(part for part in found.groups() if part) if found else self.stage
        if ("asks" in text or "with arguments" in text or "eval" in text or "Verbosity" in text) and _HARNESS.search(
            text
        ):
            self.job = self.job or "eval"
            self.harness_starts += _HARNESS_START.search(text) is not None

    def _take_end(self, text: str, offset: int) -> None:
        if any(part in text for part in _ENDED_WELL):
            self.ended_offset = offset
        elif "untime: " in text and (found := _RUNTIME.search(text)):
            self.ended_offset = offset
            scale = {"s": 1, "m": 60, "h": 3600}.get(found[2][:1].lower(), 1)
            self.runtime_seconds = float(found[1]) * scale
            if found[3]:
                self.throughput, self.throughput_unit = float(found[3].replace(",", "")), found[4]
        if "hroughput: " in text and (rate := _THROUGHPUT.search(text)):
            self.throughput, self.throughput_unit = float(rate[1].replace(",", "")), rate[2]
