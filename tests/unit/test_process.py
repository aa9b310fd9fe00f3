"""Short tools end at their limit with all their children; recorded processes are told from reused pids."""

import sys
import time
from pathlib import Path

import pytest

from backend.adapters.process import (
    ProcessIdentity,
    find_marked,
    identify,
    is_alive,
    kill_all,
    run_tool,
    spawn_detached,
)
from backend.errors import EnvironmentFault


def test_output_and_exit_code_come_back() -> None:
    result = run_tool([sys.executable, "-c", "import sys; print('out'); sys.exit(3)"], timeout_seconds=20)
    assert (result.exit_code, result.stdout, result.timed_out) == (3, b"out\n", False)


def test_hung_tool_is_killed_at_its_limit_and_keeps_what_it_printed() -> None:
    code = "import time; print('early', flush=True); time.sleep(60)"
    began = time.monotonic()
    result = run_tool([sys.executable, "-c", code], timeout_seconds=0.5)
    assert result.timed_out and result.exit_code is None
    assert time.monotonic() - began < 10


def test_missing_program_is_an_environment_fault() -> None:
    with pytest.raises(EnvironmentFault, match="no-such-program"):
        run_tool(["/no-such-program"], timeout_seconds=1)


def test_marked_processes_are_found_and_killed(tmp_path: Path) -> None:
    pid = spawn_detached(
        ["/bin/sleep", "60"], log=tmp_path / "log", env={"TUNEDECK_TEST_MARK": str(tmp_path), "PATH": "/usr/bin:/bin"}
    )
    found = []
    for _ in range(100):
        if found := find_marked("TUNEDECK_TEST_MARK", str(tmp_path)):
            break
        time.sleep(0.02)
    assert [identity.pid for identity in found] == [pid]
    assert kill_all(found) == []
    assert identify(pid) is None


def test_reused_pid_is_another_process() -> None:
    me = identify(1)
    assert me is not None
    assert is_alive(me)
    assert not is_alive(ProcessIdentity(pid=me.pid, start_ticks=me.start_ticks + 100))
