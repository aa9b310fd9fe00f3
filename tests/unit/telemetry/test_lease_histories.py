"""The lease table under random histories (10,000 of them in tests/integration)."""

from __future__ import annotations

from pathlib import Path

from tests.lease_histories import History


def test_random_histories_never_lease_twice_and_never_leak(tmp_path: Path) -> None:
    history = History(path=tmp_path / "leases.sqlite", seed=11)
    for _ in range(40):
        history.play_sequence()
    assert history.granted > 40 and history.refused > 5 and history.crashes > 5
