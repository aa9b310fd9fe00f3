"""Processes: run a short tool with a time limit, spawn a detached one, tell whether a recorded process still lives."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from backend.errors import EnvironmentFault


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """How a short tool ended. `exit_code` None: it was killed at its time limit (`timed_out`)."""

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    timed_out: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A pid alone is reused by the kernel; pid and start time (clock ticks since boot) are not, until the next boot."""

    pid: int
    start_ticks: int


def run_tool(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes | None = None,
) -> ToolResult:
    """Run a tool in a process group of its own; at the time limit the whole group is killed.

    Raises EnvironmentFault when the program cannot be started at all.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            env=None if env is None else dict(env),
            cwd=cwd,
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise EnvironmentFault(f"Cannot start {argv[0]}: {error.strerror or error}.") from error
    try:
        out, err = process.communicate(stdin, timeout=timeout_seconds)
        return ToolResult(exit_code=process.returncode, stdout=out, stderr=err, timed_out=False)
    except subprocess.TimeoutExpired:
        out, err = _kill_and_collect(process)
        return ToolResult(exit_code=None, stdout=out, stderr=err, timed_out=True)


def _kill_and_collect(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        # A grandchild in a session of its own may hold the pipes open: do not wait for it.
        return process.communicate(timeout=2)
    except subprocess.TimeoutExpired as late:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        return late.stdout or b"", late.stderr or b""


def spawn_detached(
    argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> int:
    """Start a process that outlives us: own session, no terminal, output appended to `log`. Returns its pid."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(argv),
            env=None if env is None else dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    # The child may end before us: Popen's own list of unreaped children collects it at the next Popen call.
    return process.pid


def identify(pid: int) -> ProcessIdentity | None:
    """Identity of a living process; None when it is gone or a zombie."""
    try:
        # The name in brackets may hold blanks and brackets itself: count from the last one.
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else ProcessIdentity(pid=pid, start_ticks=int(fields[19]))


def boot_id() -> str:
    """Changes with every boot of the host: recorded start ticks are comparable only within one."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def is_alive(identity: ProcessIdentity) -> bool:
    """The very process that was recorded still runs."""
    return identify(identity.pid) == identity


def find_marked(variable: str, value: str) -> list[ProcessIdentity]:
    """Living processes of ours whose environment holds `variable=value`: a job's ranks, whatever became of their parents."""
    needle = f"{variable}={value}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            marked = needle in (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # gone, or another user's
            continue
        if marked and (identity := identify(int(entry.name))):
            found.append(identity)
    return found


def find_descendants(process: ProcessIdentity) -> list[ProcessIdentity]:
    """Every living process below it."""
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(process.pid).children(recursive=True) if is_alive(process) else []
        return [found for child in below if (found := identify(child.pid)) is not None]
    return []


def kill_all(identities: Sequence[ProcessIdentity], *, wait_seconds: float = 5.0) -> list[ProcessIdentity]:
    """SIGKILL each; returns those still alive after `wait_seconds` (a process in an uninterruptible driver call)."""
    for identity in identities:
        if is_alive(identity):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(identity.pid, signal.SIGKILL)
    deadline = time.monotonic() + wait_seconds
    left = [identity for identity in identities if is_alive(identity)]
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = [identity for identity in left if is_alive(identity)]
    return left


def end_process(identity: ProcessIdentity, *, wait_seconds: float = 10.0) -> bool:
    """Ask the very process that was recorded to end (SIGTERM), and wait. False: it still runs. Raises PermissionError."""
    with contextlib.suppress(ProcessLookupError):
        if is_alive(identity):
            os.kill(identity.pid, signal.SIGTERM)
    deadline = time.monotonic() + wait_seconds
    while is_alive(identity) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_alive(identity)


class Conversation:
    """A helper process that answers one JSON line to each line it is asked, within a time limit, or is killed.

    Answers come on a pipe of their own: libraries print to stdout as they like. What the child prints is kept in `noise`.
    """

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> None:
        """Start it; `{fd}` in `argv` becomes the number of the answer pipe. Raises EnvironmentFault."""
        read_end, write_end = os.pipe()
        self._noise = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        try:
            self._process = subprocess.Popen(
                [part.replace("{fd}", str(write_end)) for part in argv],
                env=None if env is None else dict(env),
                stdin=subprocess.PIPE,
                stdout=self._noise,
                stderr=self._noise,
                pass_fds=(write_end,),
                start_new_session=True,
            )
        except OSError as error:
            os.close(read_end)
            raise EnvironmentFault(f"Cannot start {argv[0]}: {error.strerror or error}.") from error
        finally:
            os.close(write_end)
        self._answers = read_end
        self._pending = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, line: bytes, *, timeout_seconds: float) -> bytes | None:
        """The answer to `line`; None when the child ended or gave none in time (it is killed then)."""
        try:
            if self._process.stdin is None or self._process.stdin.closed:
                return None
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
            answer = self._read_line(time.monotonic() + timeout_seconds)
        except OSError:
            answer = None
        if answer is None:
            self.close()
        return answer

    def _read_line(self, deadline: float) -> bytes | None:
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._answers, 1 << 20) if ready else b""
            if not data:
                return None
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    @property
    def noise(self) -> bytes:
        """The last 16 KiB that the child printed."""
        if self._noise.closed:
            return self._last_noise
        end = self._noise.seek(0, os.SEEK_END)
        self._noise.seek(max(0, end - (1 << 14)))
        return self._noise.read()

    _last_noise = b""

    def close(self) -> None:
        """Kill the child's group and collect it; safe to call twice. A child stuck in the driver is left to the kernel."""
        if self._noise.closed:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        self._last_noise = self.noise
        self._noise.close()
        os.close(self._answers)
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
