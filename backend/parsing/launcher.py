"""The blocks that launchers print at the end (torchrun, DeepSpeed, srun, Slurm) into who failed first, and how."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

_ONE_END_SECONDS = 600
_ROOT = re.compile(r"Root Cause \(first observed failure\)")
_FIELD = re.compile(r"^\s+(time|host|rank|exitcode|error_file|traceback)\s*: (.*)")
_RANK = re.compile(r"(\d+) \(local_rank: (\d+)\)")
_EXIT = re.compile(r"(-?\d+) \(pid: (\d+)\)")
_AGENT = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: (\d+)\)")
_CLOSING = re.compile(r"Sending process (\d+) closing signal (\w+)")
_COMMAND = re.compile(r"CalledProcessError: Command .*?returned non-zero exit status (\d+)")
_NPROC = re.compile(r"--nproc[-_]per[-_]node'?[,=\s]+'?(\d+)")
_NNODES = re.compile(r"--nnodes'?[,=\s]+'?(\d+)")
_TASKS = re.compile(r"Initializing (\d+) distributed tasks at: (\S+?):(\d+)")
_NODE_RANK = re.compile(r"num nodes: (\d+), node rank: (\d+)")
_SRUN = re.compile(r"srun: error: (\S+): tasks? ([\d,-]+): (.+)")
_DEEPSPEED = re.compile(r"exits with return code = (-?\d+)")
_SHELL_SIGNALS = {
    "Aborted": 6, "Segmentation fault": 11, "Bus error": 7, "Killed": 9, "Floating point exception": 8, "已放弃": 6, "已中止": 6,
    "中止": 6, "段错误": 11, "总线错误": 7, "已杀死": 9, "浮点数例外": 8, "浮点异常": 8,
}  # fmt: skip
"""What a shell says about a child that a signal ended, in English and Chinese."""
_SHELL = re.compile(
    rf"^(?:\S+[:\uff1a] ?(?:line|行) ?\d+[:\uff1a] +\d+ )?({'|'.join(_SHELL_SIGNALS)})(?![\w:])"
    r"(?:\s*[(\uff08](?:core dumped|核心已转储|吐核)[)\uff09])?(?:$|\s{3,})"
)
_SSH = re.compile(r"ssh exited with exit code ([1-9]\d*)")
TRIGGERS = (
    "Root Cause", "local_rank:", "closing signal", "nproc", "Initializing", "num nodes", "exits with return code", "srun: error",
    "ssh exited",
    *_SHELL_SIGNALS,
)  # fmt: skip
"""Literals without which a line is none of a launcher's."""
NOISE = re.compile(
    r"ChildFailedError|CalledProcessError|SignalException|subprocess\.|returned non-zero exit status|"
    r"DistNetworkError|<NO_OTHER_FAILURES>"
)
"""What launchers raise because a child ended: never a cause."""


@dataclass(slots=True)
class LauncherLines:
    """Takes lines in order; the fields hold what was found so far."""

    rank: int | None = None
    local_rank: int | None = None
    host: str = ""
    exit_code: int | None = None
    exit_signal: int | None = None
    processes_per_node: int | None = None
    nodes: int | None = None
    node_ranks: list[int] = field(default_factory=list)
    node_starts: list[tuple[int, int]] = field(default_factory=list)
    """Offset and node rank of each start."""
    port: int | None = None
    master: str = ""
    starts: int = 0
    closing_signal: str = ""
    task_errors: list[str] = field(default_factory=list)
    failed_offset: int = -1
    """Where a launcher last said that its job failed."""
    task_failed_offset: int = -1
    """Where srun first named a task that failed of itself: what Slurm then cancels is a consequence."""
    _in_root: bool = False
    _when: datetime | None = None
    """Time of the failure that is held."""
    _is_later: bool = False
    """The block being read tells of a failure after the one that is held: another node's view of one end."""

    def take(self, text: str, offset: int) -> None:
        """Most lines are none of a launcher's: the tests are cheap ones."""
        if self._in_root:
            self._take_field(text)
        if "Root Cause" in text and _ROOT.search(text):
            self._in_root, self.failed_offset, self._is_later = True, offset, False
        elif "local_rank:" in text and (found := _AGENT.search(text)):
            self.failed_offset = offset
            self._take_agent(int(found[1]), int(found[2]))
        elif "closing signal" in text and (found := _CLOSING.search(text)):
            self.closing_signal = found[2]
        elif "nproc" in text or "Initializing" in text or "num nodes" in text:
            self._take_start(text, offset)
        elif "exits with return code" in text and (found := _DEEPSPEED.search(text)):
            self.failed_offset = offset
            self._set_exit(int(found[1]))
        elif "srun: error" in text and (found := _SRUN.search(text)):
            self.failed_offset = offset
            self._take_task_error(found[1], found[2], found[3], offset)
        elif "ssh exited" in text and (found := _SSH.search(text)):
            self.failed_offset = offset
            self._set_exit(int(found[1]))
        elif found := _SHELL.match(text):
            self.failed_offset = offset
            self.exit_signal = _SHELL_SIGNALS[found[1]]

    @property
    def failed(self) -> bool:
        """A launcher said that its job failed."""
        return self.failed_offset >= 0

    @property
    def in_block(self) -> bool:
        """The lines that come now are torchrun's summary."""
        return self._in_root

    @property
    def world_size(self) -> int | None:
        """Ranks of the whole job, None when the launcher does not say."""
        return self.processes_per_node * (self.nodes or 1) if self.processes_per_node else None

    def node_at(self, offset: int) -> int | None:
        """The node whose launcher printed last before this place."""
        before = [node for start, node in self.node_starts if start <= offset]
        return before[-1] if before else None

    def _take_field(self, text: str) -> None:
        found = _FIELD.match(text)
        if found is None:
            self._in_root = text.strip().startswith("[") or not text.strip().startswith("=")
            return
        name, value = found[1], found[2]
        if name == "time":
            self._take_time(value.strip())
        elif self._is_later:
            return
        elif name == "host":
            self.host = value.strip()
        elif name == "rank" and (rank := _RANK.match(value)):
            self.rank, self.local_rank = int(rank[1]), int(rank[2])
        elif name == "exitcode" and (code := _EXIT.match(value)):
            self._set_exit(int(code[1]))

    def _take_time(self, text: str) -> None:
        """Each node's launcher prints a block of its own: the earliest failure of one end counts, of several ends the last."""
        try:
            when = datetime.strptime(text[:19], "%Y-%m-%d_%H:%M:%S")
        except ValueError:
            return
        self._is_later = self._when is not None and 0 <= (when - self._when).total_seconds() <= _ONE_END_SECONDS
        if not self._is_later:
            self._when = when

    def _take_task_error(self, host: str, task: str, what: str, offset: int) -> None:
        if len(self.task_errors) < 64:
            self.task_errors.append(f"{host}: task {task}: {what}")
        if self.task_failed_offset < 0 and not what.startswith("Terminated"):
            self.task_failed_offset = offset

    def _take_agent(self, code: int, local_rank: int) -> None:
        self._set_exit(code)
        if self.local_rank is None:
            self.local_rank = local_rank

    def _set_exit(self, code: int) -> None:
        if code < 0:
            self.exit_signal = -code
        else:
            self.exit_code = code

    def _take_start(self, text: str, offset: int) -> None:
        if found := _TASKS.search(text):
            self.starts += 1
            self.processes_per_node, self.master, self.port = int(found[1]), found[2], int(found[3])
        if found := _NODE_RANK.search(text):
            self.nodes = int(found[1])
            if len(self.node_starts) < 4096:
                self.node_starts.append((offset, int(found[2])))
            if int(found[2]) not in self.node_ranks:
                self.node_ranks.append(int(found[2]))
        if found := _NPROC.search(text):
            self.processes_per_node = int(found[1])
        if found := _NNODES.search(text):
            self.nodes = int(found[1])
