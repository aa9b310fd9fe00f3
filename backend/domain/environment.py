"""TrainingEnvironment: one Python interpreter with a training stack, described once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingEnvironment:
    """`versions` maps package names to installed versions (missing packages are absent). `accelerator`: rocm, cuda or cpu.

    `description` is the JSON text that backend/inside/describe.py printed (argument schema, templates ...): "" when the
    environment could not be described, then `fault` says why.
    """

    name: str
    python: str
    accelerator: str = "cpu"
    versions: Mapping[str, str] = field(default_factory=dict)
    device_names: tuple[str, ...] = ()
    described_at: float = 0.0
    description: str = ""
    fault: str = ""

    @property
    def usable(self) -> bool:
        return not self.fault
