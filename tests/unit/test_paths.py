"""Job paths can never leave the jobs folder."""

from pathlib import Path

import pytest

from backend.errors import NotFound
from backend.store.paths import DataPaths


@pytest.mark.parametrize("job_id", ["", "..", "../x", "a/b", "a\x00", ".hidden", "A", "a..b", "x" * 101])
def test_job_id_that_could_leave_the_folder_is_not_found(job_id: str) -> None:
    with pytest.raises(NotFound):
        DataPaths(Path("/data")).job(job_id)


def test_job_folder_stands_below_jobs() -> None:
    assert DataPaths(Path("/data")).job("20261130-demo").exit == Path("/data/jobs/20261130-demo/exit.json")
