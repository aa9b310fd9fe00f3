"""Secret environment variables of jobs: values in a file only its owner may read, names everywhere else."""

from __future__ import annotations

import re
from collections.abc import Mapping

from backend.store.files import read_json, write_json
from backend.store.paths import DataPaths

_SECRET_NAME = re.compile(r"(^|_)(TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(_|$)", re.IGNORECASE)
PLACEHOLDER = "${secret}"
"""Stands in spec.yaml where the user wrote a value."""


def is_secret_name(name: str) -> bool:
    """`HF_TOKEN`, `WANDB_API_KEY`, `hf_hub_token` ... but not `TOKENIZERS_PARALLELISM` or `KEYBOARD`."""
    return bool(_SECRET_NAME.search(name))


def save_secrets(paths: DataPaths, job_id: str, values: Mapping[str, str]) -> None:
    """Keep `values` for the start of the job."""
    if values:
        write_json(paths.secrets, {**_load(paths), job_id: dict(values)}, mode=0o600)


def load_secrets(paths: DataPaths, job_id: str) -> dict[str, str]:
    return _load(paths).get(job_id, {})


def forget_secrets(paths: DataPaths, job_id: str) -> None:
    known = _load(paths)
    if known.pop(job_id, None) is not None:
        write_json(paths.secrets, known, mode=0o600)


def _load(paths: DataPaths) -> dict[str, dict[str, str]]:
    record = read_json(paths.secrets)
    return record if isinstance(record, dict) else {}
