"""A failed run's page gets the cause, its remedy and the proof, in the reader's language."""

from __future__ import annotations

from backend.domain.job import JobState
from backend.services.views import Views
from tests.integration.conftest import Deck
from ui.routes import translate_diagnosis


def test_failed_run_is_diagnosed_from_its_console(deck: Deck) -> None:
    oom = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 191.98 GiB"
    job = deck.api.submit(deck.spec(steps=9, seconds=0.01, fail_rank=1, fail_at=3, error=oom))
    deck.start_worker()
    job = deck.end(job.id)
    assert job.state is JobState.FAILED
    found = Views(deck.api).diagnosis(job.id)
    english, chinese = translate_diagnosis(found, "en"), translate_diagnosis(found, "zh")
    assert english["root_cause"] == chinese["root_cause"] == "gpu_oom"
    assert "HIP out of memory" in str(english["evidence"])
    assert chinese["title"] == "显存不足"
    assert english["remedy"] != chinese["remedy"]
