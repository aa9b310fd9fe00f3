"""JobSpec in, token lengths of its training rows out: counted by the trainer's own tokenizer and template where that was asked,
else estimated from the characters of the local files.

The counts are kept in one file for each model, template and state of the data files, so that one question answers many plans.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.adapters.process import run_tool
from backend.domain.job import JobSpec
from backend.errors import EnvironmentFault
from backend.planning.command import dump_yaml
from backend.planning.lengths import Lengths, build_lengths
from backend.planning.text_lengths import estimate_lengths, parse_rows
from backend.services.dry_run import SAMPLE_ROWS, DryRunState, Runner, build_argv, parse_answer
from backend.services.environments import Environments
from backend.store.files import read_json, write_json
from backend.store.paths import DataPaths

SAMPLE_BYTES = 4 << 20
_KEYS = ("model_name_or_path", "template", "dataset", "dataset_dir", "stage", "default_system", "enable_thinking")
"""Arguments that the lengths depend on, beside the data files themselves."""


class RowLengths:
    """Answers from files; only `count` starts a process."""

    def __init__(self, paths: DataPaths, environments: Environments, *, run: Runner = run_tool) -> None:
        self.paths, self.environments, self._run = paths, environments, run

    def known(self, spec: JobSpec, notes: list[str]) -> Lengths | None:
        """Counted ones, else an estimate; None (and a note) when there is nothing to look at."""
        kept = read_json(self._file(spec))
        if isinstance(kept, dict) and isinstance(kept.get("sample"), list):
            return build_lengths([int(value) for value in kept["sample"]], rows=kept.get("rows"))
        found = self._estimate(spec)
        if found is None:
            notes.append("Row lengths are not known: every row is taken to be as long as cutoff_len.")
        return found

    def count(self, spec: JobSpec, *, timeout_seconds: float = 120.0) -> Lengths | None:
        """Ask the training environment's tokenizer and template (some seconds), and keep the answer.

        None when the data cannot be counted. Raises EnvironmentFault when the environment does not answer.
        """
        environment = self.environments.describe(spec.environment)
        train = {**spec.train, "output_dir": str(self.paths.root / "unused"), "do_train": True}
        train.setdefault("dataset_dir", str(self.paths.datasets))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "train.yaml"
            file.write_text(dump_yaml({k: v for k, v in train.items() if k != "deepspeed"}), "utf-8")
            result = self._run(build_argv(environment, 1, str(file)), timeout_seconds=timeout_seconds)
        answer = parse_answer("", result)
        if answer.state is not DryRunState.DONE:
            raise EnvironmentFault(f"{environment.python} gave no answer about the data: {answer.message}")
        return self.keep(spec, answer.facts)

    def keep(self, spec: JobSpec, facts: Mapping[str, object]) -> Lengths | None:
        """Lengths among a dry run's facts, on disk for the plans to come; None when it counted none."""
        counts = list(_counts(spec, facts))
        if not counts:
            return None
        sample, rows = merge_counts(counts)
        file = self._file(spec)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, {"sample": sample, "rows": rows})
        return build_lengths(sample, rows=rows)

    def _file(self, spec: JobSpec) -> Path:
        stamps = [(str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in self._data_files(spec)]
        text = json.dumps([[spec.train.get(key) for key in (*_KEYS, "max_samples")], stamps], default=str)
        return self.paths.lengths / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"

    def _estimate(self, spec: JobSpec) -> Lengths | None:
        rows: list[object] = []
        total = 0
        for path in self._data_files(spec):
            try:
                with path.open("rb") as stream:
                    head = stream.read(SAMPLE_BYTES)
            except OSError:
                continue
            found = parse_rows(head.decode("utf-8", "replace"))
            rows += found
            total += round(len(found) * path.stat().st_size / max(1, len(head)))
        return estimate_lengths(rows, total=total) if rows else None

    def _data_files(self, spec: JobSpec) -> list[Path]:
        """Local JSON files of the job's data sets, as dataset_info.json names them."""
        folder = Path(str(spec.train.get("dataset_dir") or self.paths.datasets))
        registry = read_json(folder / "dataset_info.json")
        files = []
        for name in names_of(spec, "dataset"):
            entry = registry.get(name) if isinstance(registry, dict) else None
            file = entry.get("file_name") if isinstance(entry, dict) else None
            if isinstance(file, str) and (folder / file).is_file() and file.endswith((".json", ".jsonl")):
                files.append(folder / file)
        return files


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Token counts of a data set's first rows, and how many rows of it are trained on (None: not counted)."""

    sample: tuple[int, ...]
    rows: int | None


def names_of(spec: JobSpec, key: str) -> list[str]:
    """Data sets that an argument lists, as YAML list or separated by commas."""
    value = spec.train.get(key)
    listed = value if isinstance(value, list) else str(value or "").split(",")
    return [name for name in (str(each).strip() for each in listed) if name]


def _counts(spec: JobSpec, facts: Mapping[str, object]) -> Sequence[Counted]:
    """What a dry run counted of the data sets that are trained on; it looks at those for evaluation as well."""
    found = facts.get("datasets")
    wanted, most = names_of(spec, "dataset"), spec.train.get("max_samples")
    counts = []
    for name, entry in found.items() if isinstance(found, dict) else ():
        lengths = entry.get("lengths") if isinstance(entry, dict) else None
        if name in wanted and lengths:
            rows = entry.get("rows")
            known = rows if most is None or rows is None else min(int(rows), int(str(most)))
            counts.append(Counted(sample=tuple(sorted(int(value) for value in lengths)), rows=known))
    return counts


def merge_counts(counts: Sequence[Counted], most: int = SAMPLE_ROWS) -> tuple[list[int], int | None]:
    """(lengths, rows) of all data sets together, each with the share of rows that it has; without their numbers, as counted."""
    numbers = [count.rows for count in counts if count.rows]
    if len(counts) == 1 or len(numbers) < len(counts):
        rows = sum(numbers) if len(numbers) == len(counts) else None
        return [value for count in counts for value in count.sample], rows
    total = sum(numbers)
    sample: list[int] = []
    for count, rows in zip(counts, numbers, strict=True):
        wanted, size = max(1, round(most * rows / total)), len(count.sample)
        sample += [count.sample[(2 * rank + 1) * size // (2 * wanted)] for rank in range(wanted)]
    return sample, total
