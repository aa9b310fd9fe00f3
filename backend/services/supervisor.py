"""One running job: plan.json in, a spawned trainer, console.log and exit.json out. Standard library only, started as a file.

    python supervisor.py JOB_DIR

It outlives the worker and the dashboard. It is the sub-reaper of everything below it, because torchrun puts each rank into a
session of its own: ranks whose launcher died become its children and are ended by it. The launcher gets PR_SET_PDEATHSIG, so
that nothing goes on training unsupervised when this process is killed with SIGKILL.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_SECONDS = 0.1
RESERVED_BYTES = 4096  # exit.json is written over these, so that a full disk cannot swallow the end of a run
MODES = ("save", "no_save", "kill")  # from mild to hard: a later request may only be harder

_libc = ctypes.CDLL(None, use_errno=True)


def main(job_dir: Path) -> int:
    """Supervise one job to its end. Exit code 0 whenever exit.json tells what happened."""
    lock = (job_dir / "supervisor.lock").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("another supervisor holds this job", flush=True)
        return 3
    if (job_dir / "exit.json").exists():
        return 0
    if (job_dir / "supervisor.json").exists():
        # Our predecessor died after it may have started something: never start the same job twice.
        print("this job was started before and has no end on record", flush=True)
        return 4
    return Supervisor(job_dir).run()


class Supervisor:
    """Spawns the plan, follows stop requests, writes the exit record."""

    def __init__(self, job_dir: Path) -> None:
        self.job_dir = job_dir
        self.plan: dict[str, Any] = json.loads((job_dir / "plan.json").read_text("utf-8"))
        self.started_at = time.time()
        self.child = 0
        self.status: int | None = None  # wait status of the launcher
        self.stop_mode: str | None = None
        self.stop_since = 0.0
        self.ladder: list[str] = []
        self.terminated_at: float | None = None

    def run(self) -> int:
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # The host shuts down: end like a person's "stop after saving", as far as the host leaves time for it.
        signal.signal(signal.SIGTERM, lambda *_: self._write_own_stop_request())
        reserve(self.job_dir / "exit.json.reserved")
        self._write_identity()
        try:
            self.child = self._spawn()
        except OSError as error:
            self._write_exit(launch_error=f"{self.plan['argv'][0]}: {error.strerror or error}")
            return 0
        self._write_identity()
        self._watch()
        self._end_descendants()
        self._write_exit()
        return 0

    def _spawn(self) -> int:
        environment = dict(os.environ)
        for name in self.plan["unset"]:
            environment.pop(name, None)
        environment.update(self.plan["env"])
        parent = os.getpid()

        def die_with_supervisor() -> None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # the supervisor died between fork and prctl
                os._exit(127)

        with (self.job_dir / "console.log").open("ab", buffering=0) as console:
            process = subprocess.Popen(
                self.plan["argv"],
                env=environment,
                cwd=self.plan["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=console,  # a file, never a pipe: an undrained pipe blocks every rank
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_supervisor,
            )
        process.returncode = 0  # we reap it ourselves below, together with adopted orphans
        return process.pid

    def _watch(self) -> None:
        pidfd = os.pidfd_open(self.child)
        try:
            while self.status is None:
                select.select([pidfd], [], [], POLL_SECONDS)
                self._reap()
                if self.status is None:
                    self._follow_stop_request()
        finally:
            os.close(pidfd)

    def _reap(self) -> None:
        """Collect every ended child, adopted ranks included."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.child:
                self.status = status

    # --- stopping -------------------------------------------------------------------------------------------------

    def _write_own_stop_request(self) -> None:
        path = self.job_dir / "control" / "stop.json"
        if not path.exists():
            write_json(path, {"at": time.time(), "mode": "save"})

    def _follow_stop_request(self) -> None:
        mode = self._requested_mode()
        if mode and (self.stop_mode is None or MODES.index(mode) > MODES.index(self.stop_mode)):
            self.stop_mode, self.stop_since = mode, time.monotonic()
        if self.stop_mode is None:
            return
        if self.stop_mode == "kill":
            self._kill()
        elif self.stop_mode == "no_save" or not self._is_training():
            self._terminate()
        elif time.monotonic() - self.stop_since > float(self.plan["stop_grace_seconds"]):
            self._note("save_timed_out")
            self._terminate()

    def _requested_mode(self) -> str | None:
        try:
            mode = json.loads((self.job_dir / "control" / "stop.json").read_text("utf-8")).get("mode")
        except (OSError, ValueError, AttributeError):
            return None
        return mode if mode in MODES else None

    def _is_training(self) -> bool:
        """The recorder can act on a request: the step loop has begun. Before it there is nothing to save."""
        if self.stop_mode == "save" and "asked" in self.ladder:
            return True
        try:
            begun = b'"train_begin"' in (self.job_dir / "recorder" / "rank-0.jsonl").read_bytes()
        except OSError:
            begun = False
        if begun:
            self._note("asked")
        return begun

    def _terminate(self) -> None:
        if self.terminated_at is None:
            self._note("terminated")
            self.terminated_at = time.monotonic()
            self._signal(signal.SIGTERM)
        elif time.monotonic() - self.terminated_at > float(self.plan["terminate_grace_seconds"]):
            self._kill()

    def _kill(self) -> None:
        self._note("killed")
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _note(self, what: str) -> None:
        if what not in self.ladder:
            self.ladder.append(what)

    def _end_descendants(self) -> None:
        """The launcher is gone; whatever it left behind must not hold a GPU."""
        grace_until = time.monotonic() + 2.0
        while True:
            self._reap()
            left = descendants(os.getpid())
            if not left:
                return
            if time.monotonic() > grace_until:
                self._note("orphans_killed")
                self._signal(signal.SIGKILL)
            time.sleep(0.05)

    # --- records --------------------------------------------------------------------------------------------------

    def _write_identity(self) -> None:
        record = {
            "pid": os.getpid(),
            "start_ticks": start_ticks(os.getpid()),
            "boot_id": boot_id(),
            "started_at": self.started_at,
        }
        if self.child:
            record |= {"child_pid": self.child, "child_start_ticks": start_ticks(self.child)}
        write_json(self.job_dir / "supervisor.json", record)

    def _write_exit(self, launch_error: str = "") -> None:
        status = self.status
        record = {
            "pid": self.child or None,
            "started_at": self.started_at,
            "ended_at": time.time(),
            "exit_code": os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
            "signal": os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None,
            "stop_mode": self.stop_mode,
            "ladder": self.ladder,
            "launch_error": launch_error,
        }
        fill_reserved(self.job_dir / "exit.json.reserved", self.job_dir / "exit.json", record)


def descendants(root: int) -> list[int]:
    """Living processes below `root`, whatever session they are in."""
    children: dict[int, list[int]] = {}
    for entry in (path.name for path in Path("/proc").iterdir()):
        if entry.isdigit() and (fields := stat_fields(int(entry))) and fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on (the name before it may hold blanks and brackets); None when gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None


def start_ticks(pid: int) -> int | None:
    """Start time in clock ticks since boot: with the boot id it names one process for ever."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else None


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write to a temporary name, then rename: a reader sees the old or the new text, never half."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def reserve(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b" " * RESERVED_BYTES)
        file.flush()
        os.fsync(file.fileno())


def fill_reserved(reserved: Path, target: Path, record: dict[str, Any]) -> None:
    """Write `record` over the reserved bytes (JSON ignores the blanks that remain) and rename."""
    with reserved.open("r+b") as file:
        file.write(json.dumps(record).encode())
        file.flush()
        os.fsync(file.fileno())
    reserved.replace(target)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
