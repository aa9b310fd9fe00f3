"""10,000 random histories of the lease table."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.lease_histories import History


def test_ten_thousand_histories_never_lease_twice_and_never_leak(tmp_path: Path) -> None:
    memory = Path("/dev/shm")  # each commit waits for the disk: memory makes this minutes shorter
    root = Path(tempfile.mkdtemp(dir=memory)) if memory.is_dir() else tmp_path
    try:
        granted = refused = 0
        for seed in range(100):
            history = History(path=root / f"{seed}.sqlite", seed=seed)
            for _ in range(100):
                history.play_sequence()
            granted, refused = granted + history.granted, refused + history.refused
        assert granted > 10_000 and refused > 2_000
    finally:
        if root != tmp_path:
            shutil.rmtree(root)
