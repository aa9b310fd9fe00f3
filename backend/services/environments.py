"""Training environments: an interpreter's path in, its description out, cached on disk until its packages change."""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import asdict
from pathlib import Path

from backend.adapters.process import run_tool
from backend.domain.environment import TrainingEnvironment
from backend.errors import EnvironmentFault, NotFound
from backend.settings import REPOSITORY, Settings
from backend.store.files import read_json, write_json
from backend.store.paths import DataPaths

DESCRIBE = REPOSITORY / "backend" / "inside" / "describe.py"
DESCRIBE_SECONDS = 180.0
MARK = "TUNEDECK_DESCRIPTION "
"""describe.py prints its JSON on one line behind this word: packages print their own lines at import."""


class Environments:
    """Describing takes many seconds (it imports the whole training stack): callers that must be quick use `cached`."""

    def __init__(self, paths: DataPaths, settings: Settings) -> None:
        self.paths, self.settings = paths, settings
        self._lock = threading.Lock()
        self._faulty: dict[str, tuple[str, TrainingEnvironment]] = {}
        """Unusable environments with their fingerprint: in memory only, for the next start may find them repaired."""

    def names(self) -> list[str]:
        """Registered environments, the default first."""
        others = sorted(path.stem.removesuffix(".python") for path in self.paths.environments.glob("*.python.json"))
        return ["default", *(name for name in others if name != "default")]

    def python(self, name: str = "") -> Path:
        """Interpreter of an environment. Raises EnvironmentFault when there is none, NotFound for an unknown name."""
        if name in ("", "default"):
            if self.settings.training_python is None:
                raise EnvironmentFault(
                    "There is no training environment yet. Run scripts/setup --training, or start with "
                    "scripts/run --training-python PATH."
                )
            return self.settings.training_python
        record = read_json(self._registration(name))
        if not isinstance(record, dict):
            raise NotFound(f"No training environment is called {name!r}. Known: {', '.join(self.names())}.")
        return Path(str(record["python"]))

    def register(self, name: str, python: Path) -> TrainingEnvironment:
        """Add an environment after describing it. Raises EnvironmentFault when it cannot train."""
        found = self._describe(name, python)
        if found.fault:
            raise EnvironmentFault(found.fault)
        self.paths.environments.mkdir(parents=True, exist_ok=True)
        write_json(self._registration(name), {"python": str(python)})
        self._save(found)
        return found

    def cached(self, name: str = "") -> TrainingEnvironment | None:
        """The stored description if it still fits the interpreter's packages; never runs anything."""
        try:
            python = self.python(name)
        except (EnvironmentFault, NotFound):
            return None
        known = self._faulty.get(name or "default")
        if known and known[0] == fingerprint(python):
            return known[1]
        record = read_json(self._cache(name, python))
        if not isinstance(record, dict) or record.pop("fingerprint", None) != fingerprint(python):
            return None
        return TrainingEnvironment(**{**record, "device_names": tuple(record["device_names"])})

    def describe(self, name: str = "") -> TrainingEnvironment:
        """The description, made now when there is none. Raises EnvironmentFault, NotFound."""
        with self._lock:
            known = self.cached(name)
            if known is not None:
                return known
            python = self.python(name)
            found = self._describe(name or "default", python)
            if found.fault:
                self._faulty[found.name] = (fingerprint(python), found)
            else:
                self._save(found)
            return found

    def describe_soon(self, name: str = "") -> bool:
        """Have it described in the background; False when there is nothing that could be."""
        try:
            if not self.python(name).is_file():
                return False
        except (EnvironmentFault, NotFound):
            return False
        if not self._lock.locked():  # whoever holds it is describing
            threading.Thread(target=self.describe, args=(name,), daemon=True).start()
        return True

    def _describe(self, name: str, python: Path) -> TrainingEnvironment:
        if not python.is_file():
            raise EnvironmentFault(f"{python} does not exist: the training environment {name!r} has no interpreter.")
        result = run_tool([str(python), str(DESCRIBE)], timeout_seconds=DESCRIBE_SECONDS)
        line = next(
            (line for line in result.stdout.decode("utf-8", "replace").splitlines() if line.startswith(MARK)), ""
        )
        if not line:
            why = "it did not answer in time" if result.timed_out else last_line(result.stderr) or "it printed nothing"
            return TrainingEnvironment(name=name, python=str(python), fault=f"{python} cannot be described: {why}")
        text = line.removeprefix(MARK)
        facts = json.loads(text)
        return TrainingEnvironment(
            name=name,
            python=str(python),
            accelerator=str(facts.get("accelerator") or "cpu"),
            versions={str(key): str(value) for key, value in (facts.get("versions") or {}).items() if value},
            device_names=tuple(str(device.get("name")) for device in facts.get("devices") or []),
            described_at=time.time(),
            description=text,
            fault=missing_parts(facts.get("versions") or {}, python),
        )

    def _save(self, environment: TrainingEnvironment) -> None:
        self.paths.environments.mkdir(parents=True, exist_ok=True)
        python = Path(environment.python)
        write_json(self._cache(environment.name, python), {**asdict(environment), "fingerprint": fingerprint(python)})

    def _registration(self, name: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
            raise NotFound(f"No training environment is called {name!r}.")
        return self.paths.environments / f"{name}.python.json"

    def _cache(self, name: str, python: Path) -> Path:
        return self.paths.environments / f"{name or 'default'}.description.json"


def missing_parts(versions: dict[str, object], python: Path) -> str:
    """What a training environment cannot do without; "" when all is there."""
    needed = [package for package in ("torch", "transformers", "llamafactory") if not versions.get(package)]
    if not needed:
        return ""
    return f"{python} has no {', '.join(needed)}: install them there, or choose another interpreter with --training-python."


def fingerprint(python: Path) -> str:
    """Changes when packages are installed or removed: path and change time of the site-packages folder, and describe.py's."""
    folders = sorted(python.parent.parent.glob("lib/python3*/site-packages"))
    stats = [f"{path}:{path.stat().st_mtime_ns}" for path in [*folders, DESCRIBE] if path.exists()]
    return "|".join([str(python), *stats])


def last_line(output: bytes) -> str:
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""
