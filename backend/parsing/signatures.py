"""The table of failures: what the software prints, which cause it proves, and how much it says about the cause.

Texts are those of the real programs (torch, transformers, LLaMA-Factory, DeepSpeed, ROCm, Slurm, Ray, the kernel). Order
does not matter; `weight` does: the heaviest finding is the root cause, the earliest among equals.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

OUTSIDE = 100
"""Said by the kernel, the scheduler or the driver about this very job: proves what Python can only guess."""
OWN = 90
"""The program's own error with a known meaning."""
BROAD = 80
"""The same, but the words fit other causes too: a more exact finding wins."""
STOP = 70
"""A stop from outside; an error of its own before it wins."""
PEER = 60
"""A consequence seen by other ranks or launchers: names no guilty one."""
GUESS = 50
"""The process is gone and nothing says why."""

IMPORTING, LOADING_DATA, TOKENIZING, LOADING_MODEL, TRAINING = (
    "importing", "loading_data", "tokenizing", "loading_model", "training"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Signature:
    """`needs`: every match contains one of these literals (a cheap test first). Named groups of `pattern` become facts."""

    code: str
    needs: tuple[str, ...]
    pattern: re.Pattern[str]
    weight: int = OWN
    phase: str | None = None
    exact: bool = False
    """Show only the matched words: the rest of the line misleads."""
    trainer: bool = False
    """Only LLaMA-Factory, transformers or what they load prints this: it tells the kind of console."""


def _sign(
    code: str, needs: str, pattern: str, weight: int = OWN, phase: str | None = None, trainer: bool = False, exact: bool = False
) -> Signature:  # fmt: skip
    return Signature(code, tuple(needs.split("|")), re.compile(pattern), weight, phase, exact, trainer)


_CACHE_DIR = r"(?:\.cache|cache|models--|datasets--|/hub/|torch_extensions|\.triton|triton|miopen|MIOpen|huggingface|\.config|inductor|comgr|hf_home|HF_HOME|extensions?)"

_GPU = (
    _sign("gpu_oom", "out of memory", r"(?:CUDA|HIP) out of memory\. Tried to allocate"),
    _sign("gpu_oom", "OutOfMemoryError", r"(?:torch\.|torch\.cuda\.)OutOfMemoryError\b"),
    _sign("gpu_oom", "out of memory", r"(?:CUDA|HIP)(?: runtime)? error(?: \(\d+\))?:? ?:?\s*out of memory"),
    _sign("gpu_oom", "OutOfMemory|OUT_OF_RESOURCES", r"hipErrorOutOfMemory|HSA_STATUS_ERROR_OUT_OF_RESOURCES.*(?:out of memory|Available Free mem : 0)"),
    _sign("gpu_oom", "ALLOC_FAILED", r"(?:HIPBLAS|CUBLAS|ROCBLAS)_STATUS_ALLOC_FAILED", BROAD),
    _sign("gpu_memory_held_elsewhere", "VRAM", r"VRAM is held by|no free VRAM: process \d+"),
    _sign("gpu_ecc_error", "ncorrectable|NotCorrectable", r"(?i)uncorrectable (?:ECC|hardware|memory) errors?|ECCNotCorrectable", OUTSIDE),
    _sign("gpu_ecc_error", "RAS|oison", r"(?i)\bRAS\b.*(?:fatal|poison|uncorrect)|poison (?:is )?consum", OUTSIDE),
    _sign("gpu_ecc_error", "oison", r"(?i)poison (?:is )?(?:consum|creat)\w+|RAS poison", OUTSIDE),
    _sign("gpu_hang", "GPU Hang", r"HW Exception by GPU node-(?P<hsa_node>\d+) .*reason ?:? ?GPU Hang", OUTSIDE),
    _sign("gpu_hang", "GPU Hang|GPU hang|gpu hang", r"(?i)\bGPU hang\b"),
    _sign("gpu_hang", "timeout|vmid|MES failed", r"amdgpu.*ring \S+ timeout|amdgpu.*(?:wait_for_vmid_ack|MES failed to respond)", OUTSIDE),
    _sign("gpu_hang", "GPU reset", r"amdgpu.*GPU reset (?:begin|succeeded|failed)", BROAD),
    _sign("gpu_hang", "HW Exception", r"HW Exception by GPU node-(?P<hsa_node>\d+)", BROAD),
    _sign("gpu_hang", "HSA_STATUS_ERROR_EXCEPTION", r"HSA_STATUS_ERROR_EXCEPTION", BROAD),
    _sign("gpu_memory_fault", "Memory access fault", r"Memory access fault by GPU node-(?P<hsa_node>\d+)(?:.*on address (?P<address>0x[0-9a-f]+))?"),
    _sign("gpu_memory_fault", "HSA_STATUS_ERROR_MEMORY_FAULT", r"HSA_STATUS_ERROR_MEMORY_FAULT"),
    _sign("gpu_code_object_missing", "HSA_STATUS_ERROR_I", r"HSA_STATUS_ERROR_(?:INVALID_ISA|ILLEGAL_INSTRUCTION)"),
    _sign("gpu_memory_fault", "APERTURE", r"HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION"),
    _sign("gpu_memory_fault", "illegal memory access", r"(?:HIP|CUDA) error.*an illegal memory access was encountered"),
    _sign("gpu_memory_fault", "hipErrorIllegalAddress", r"hipErrorIllegalAddress"),
    _sign("gpu_memory_fault", "page fault", r"amdgpu.*(?:\[gfxhub\d*\]|\[mmhub\d*\])?.*page fault", BROAD),
    _sign("gpu_memory_fault", "unspecified launch failure", r"(?:HIP|CUDA) error: unspecified launch failure", BROAD),
    _sign("gpu_code_object_missing", "NoBinaryForGpu", r"hipErrorNoBinaryForGpu"),
    _sign("gpu_code_object_missing", "invalid device function|InvalidDeviceFunction", r"(?:HIP|CUDA) error.*invalid device function|hipErrorInvalidDeviceFunction"),
    _sign("gpu_code_object_missing", "no kernel image", r"no kernel image is available for execution on the device"),
    _sign("gpu_code_object_missing", "Tensile", r"rocBLAS error: (?:Cannot read|Could not (?:load|initialize)).*Tensile"),
    _sign("gpu_code_object_missing", "InvalidKernelFile", r"hipErrorInvalidKernelFile"),
    _sign("gpu_code_object_missing", "shared object initialization", r"HIP error: shared object initialization failed"),
    _sign("hipblaslt_unsupported", "hipBLASLt", r"^(?!.*[Ww]arning).*Attempting to use hipBLASLt on an? unsupported architecture!(?! Overriding)"),
    _sign("hipblaslt_unsupported", "HIPBLAS_STATUS_NOT_SUPPORTED", r"HIPBLAS_STATUS_NOT_SUPPORTED"),
    _sign("hipblaslt_unsupported", "hipblasLt", r"HIPBLAS_STATUS_(?:INVALID_VALUE|INTERNAL_ERROR|ARCH_MISMATCH).*hipblasLt", BROAD),
    _sign("device_ordinal_invalid", "invalid device ordinal", r"invalid device ordinal"),
    _sign("device_ordinal_invalid", "InvalidDevice|Invalid device", r"hipErrorInvalidDevice\b|AssertionError: Invalid device id"),
    _sign("gpu_not_visible", "GPUs are available", r"RuntimeError: No (?:HIP|CUDA) GPUs are available"),
    _sign("gpu_not_visible", "-capable device", r"no (?:ROCm|CUDA)-capable device is detected"),
    _sign("gpu_not_visible", "no accelerator|no NVIDIA driver", r"DeepSpeed .*no accelerator|Found no NVIDIA driver", BROAD),
)  # fmt: skip

_HOST = (
    _sign("host_oom_job_limit", "CONSTRAINT_MEMCG", r"constraint=CONSTRAINT_MEMCG", OUTSIDE),
    _sign("host_oom_job_limit", "cgroup out of memory", r"Memory cgroup out of memory: Kill(?:ed)? process (?P<victim_pid>\d+)(?:.*?anon-rss:(?P<victim_rss_kb>\d+)kB)?", OUTSIDE),
    _sign("host_oom_job_limit", "oom", r"Detected \d+ oom[_-]kill events?", OUTSIDE),
    _sign("host_oom_job_limit", "OOM Killed|Out Of Memory", r"task \d+: Out Of Memory|have been OOM Killed|OOM Killed", OUTSIDE),
    _sign("host_oom_job_limit", "Out Of Memory", r"srun: error: .*Out Of Memory", OUTSIDE),
    _sign("host_oom_job_limit", "memory limit", r"Exceeded (?:job|step) memory limit|exceeded memory limit", OUTSIDE),
    _sign("host_oom_job_limit", "OOMKilled", r"\bOOMKilled\b", OUTSIDE),
    _sign("host_oom_job_limit", "OUT_OF_ME", r"JobState=OUT_OF_MEMORY|\bOUT_OF_ME(?:MORY|\+)", OUTSIDE),
    _sign("host_oom_job_limit", "mem-limit|MEMLIMIT|PBS: job killed", r"mem-limit|TERM_MEMLIMIT|PBS: job killed: (?:v?mem|pmem)", OUTSIDE),
    _sign("host_oom_node", "constraint=CONSTRAINT_", r"constraint=CONSTRAINT_(?:NONE|CPUSET|MEMORY_POLICY)", OUTSIDE),
    _sign("host_oom_node", "Out of memory", r"(?<!cgroup )\bOut of memory: Kill(?:ed)? process (?P<victim_pid>\d+)(?:.*?anon-rss:(?P<victim_rss_kb>\d+)kB)?", OUTSIDE),
    _sign("host_oom_node", "low on memory", r"due to the node running low on memory", OUTSIDE),
    _sign("host_oom_node", "memory pressure|earlyoom|systemd-oomd", r"killed due to memory pressure|earlyoom|systemd-oomd.*[Kk]illed", OUTSIDE),
    _sign("host_oom_node", "ray.exceptions.OutOfMemoryError", r"ray\.exceptions\.OutOfMemoryError", OUTSIDE),
    _sign("host_oom_node", "Cannot allocate memory|os error 12", r"\[Errno 12\] Cannot allocate memory|os error 12\b", BROAD),
    _sign("host_oom_node", "DefaultCPUAllocator", r"DefaultCPUAllocator: can't allocate memory: you tried to allocate (?P<tried_bytes>\d+) bytes", OWN),
    _sign("host_oom_node", "WinError 1455|页面文件太小", r"WinError 1455|页面文件太小"),
    _sign("host_oom_node", "MemoryError", r"(?:_ArrayMemoryError|ArrowMemoryError|^MemoryError)\b", BROAD),
    _sign("host_oom_node", "bad_alloc", r"std::bad_alloc", BROAD),
    _sign("shared_memory_full", "Bus error", r"(?:is|was) killed by signal: Bus error"),
    _sign("shared_memory_full", "SIGBUS", r"Signal 7 \(SIGBUS\) received by PID", BROAD),
    _sign("shared_memory_full", "bus error", r"Unexpected bus error encountered in worker", BROAD),
    _sign("shared_memory_full", "unable to", r"unable to (?:mmap|open|write|resize|allocate)\b.*</?torch_\d+_\d+\S*>(?!.*(?:Permission denied|Too many open files))"),
    _sign("shared_memory_full", "No space left", r"(?:shm|shared memory|/torch_\d+|torch_\d+_\d+).*No space left on device"),
    _sign("shared_memory_full", "No space left", r"Call to (?:posix_fallocate|ftruncate|fallocate) failed ?: No space left on device"),
    _sign("shared_memory_full", "nccl-", r"failed to extend /dev/shm/nccl-\w+ to \d+ bytes"),
    _sign("shared_memory_full", "nccl-", r"Error while creating shared memory segment \S*nccl-\S+", BROAD),
    _sign("shared_memory_denied", "shm_open", r"Call to shm_open failed ?: Permission denied"),
    _sign("shared_memory_denied", "ermission denied", r"(?:/dev/shm|shared memory)\S*.*Permission denied"),
    _sign("pci_topology_hidden", "pci_bus", r"Could not find real path of /sys/class/pci_bus", BROAD),
    _sign("disk_full", "No space left", r"(?:\[Errno 28\]|os error 28|OSError: |IOException: |write failed).{0,40}No space left on device|No space left on device", trainer=True),
    _sign("disk_full", "没有空间|没有可用空间", r"设备上没有(?:可用)?空间", trainer=True),
    _sign("disk_full", "quota|Errno 122", r"(?i)disk quota exceeded|\[Errno 122\]", trainer=True),
    _sign("disk_full", "PytorchStreamWriter", r"PytorchStreamWriter failed writing file", BROAD, trainer=True),
    _sign("disk_full", "inline_container", r"inline_container\.cc.*unexpected pos \d+ vs \d+", BROAD, trainer=True),
    _sign("disk_full", "os error", r"I/O error: .*os error 28", trainer=True),
)  # fmt: skip

_COLLECTIVE = (
    _sign("collective_desync", "didn't join collective|didn't finish collective", r"\[(?P<lagging_rank>\d+)\] (?:finished|joined) collective #\d+.*but didn't (?:join|finish) collective #\d+"),
    _sign("collective_desync", "mismatch between collectives", r"Detected mismatch between collectives on ranks"),
    _sign("collective_desync", "isn't |is not ", r"\[(?P<lagging_rank>\d+)\].*(?:is not|isn't) (?:running|joined)"),
    _sign("watchdog_stuck", "watchdog got stuck", r"watchdog got stuck for (?P<heartbeat_seconds>\d+) seconds"),
    _sign("watchdog_stuck", "Heartbeat monitor timed out", r"Heartbeat monitor timed out"),
    _sign("watchdog_stuck", "watchdog hang", r"due to ProcessGroupNCCL watchdog hang"),
    _sign("collective_timeout", "collective operation timeout", r"Watchdog caught collective operation timeout", PEER),
    _sign("collective_timeout", "blocking wait", r"WorkNCCL\(.*timed out in blocking wait", PEER),
    _sign("collective_timeout", "Timeout at NCCL work", r"\bTimeout at NCCL work: \d+", PEER),
    _sign("collective_timeout", "client socket has timed out", r"client socket has timed out after \d+", PEER),
    _sign("collective_timeout", "Timed out waiting", r"Timed out waiting \d+ms for (?:recv|send) operation", PEER),
    _sign("collective_timeout", "Timed out after", r"Timed out after \d+ seconds waiting for clients", PEER),
    _sign("collective_timeout", "Socket Timeout", r"store->get\(.*got error: Socket Timeout|RuntimeError: Socket Timeout", PEER),
    _sign("collective_timeout", "wait timeout", r"(?:DistStoreError|DistBackendError): .*wait timeout after \d+ms", PEER),
    _sign("collective_timeout", "monitoredBarrier", r"\[Rank (?P<reporting_rank>\d+)\]: Ranks? .* failed to pass monitoredBarrier", PEER),
    _sign("p2p_transport_failed", "IpcGetMemHandle", r"(?:hip|cuda)IpcGetMemHandle"),
    _sign("p2p_transport_failed", "IpcOpenMemHandle", r"(?:hip|cuda)IpcOpenMemHandle"),
    _sign("p2p_transport_failed", "p2p.cc", r"transport/p2p\.cc:\d+ NCCL WARN"),
    _sign("p2p_transport_failed", "peer", r"NCCL WARN.*(?:peer access is not supported|peer mapping resources exhausted)"),
    _sign("p2p_transport_failed", "P2P", r"NCCL WARN.*P2P.*(?:fail|not (?:available|supported)|disabled)"),
    _sign("p2p_transport_failed", "ipc", r"NCCL WARN.*[Ff]ailed to (?:open|get|import|map).*\b(?:ipc|IPC)"),
    _sign("port_in_use", "EADDRINUSE", r"port: (?P<port>\d+).*EADDRINUSE|EADDRINUSE"),
    _sign("port_in_use", "ddress already in use", r"(?:(?:\[::\]|0\.0\.0\.0|\S+?):(?P<port>\d+) )?\(?(?:errno: ?98|Errno 98)\)?.*[Aa]ddress already in use|[Aa]ddress already in use"),
    _sign("port_in_use", "already in use", r"(?i)\bport (?P<port>\d+) (?:is )?already in use"),
)  # fmt: skip

_STOPS = (
    _sign("time_limit", "TIME LIMIT", r"CANCELLED AT \S+ DUE TO TIME LIMIT|DUE TO TIME LIMIT", STOP + 15),
    _sign("time_limit", "TIMEOUT", r"JobState=TIMEOUT|\bTIMEOUT\s+0:\d+", STOP + 15),
    _sign("time_limit", "walltime", r"PBS: job killed: walltime|walltime \d+ exceeded limit", STOP + 15),
    _sign("time_limit", "RUNLIMIT", r"TERM_RUNLIMIT", STOP + 15),
    _sign("time_limit", "DeadlineExceeded", r"\bDeadlineExceeded\b", STOP + 15),
    _sign("node_terminated", "PREEMPTION|PREEMPTED", r"DUE TO PREEMPTION|JobState=PREEMPTED", STOP + 15),
    _sign("node_terminated", "NODE FAILURE|NODE_FAIL|NodeDown", r"DUE TO NODE FAILURE|JobState=NODE_FAIL|Reason=NodeDown", STOP + 15),
    _sign("node_terminated", "Node failure", r"srun: error: Node failure on (?P<node>\S+)", STOP + 15),
    _sign("node_terminated", "marked dead", r"[Nn]ode .*(?:has been|was) marked dead", STOP + 15),
    _sign("node_terminated", "ode", r"(?i)\bnodes? \S* ?(?:was|were|is being|has been|got) (?:terminated|preempted|evicted|drained|deleted|shut ?down|reclaimed)", STOP + 15),
    _sign("node_terminated", "NodeDiedError|node has died", r"ray\.exceptions\.NodeDiedError|because its node has died", STOP + 15),
    _sign("node_terminated", "preempt|Preempt|interruption|terminat", r"(?i)\bspot (?:instance |VM )?(?:interruption|preempt|terminat)|instance (?:was|is being) preempted|Preempted by scheduler", STOP + 15),
    _sign("node_terminated", "Evicted|evicted|low on resource", r"Reason:\s*Evicted|\bwas evicted\b|The node was low on resource", STOP + 15),
    _sign("node_terminated", "NODE_FAIL", r"\bNODE_FAIL\b", STOP + 15),
    _sign("node_terminated", "lost communication", r"ORTE has lost communication with a remote daemon", STOP + 15),
    _sign("node_terminated", "going down", r"[Ss]ystem is going down", STOP + 15),
    _sign("node_terminated", "closed by remote host", r"Connection to \S+ closed by remote host", STOP + 15),
    _sign("node_terminated", " is | appears ", r"(?i)\bnode \S+ (?:is|appears to be) (?:dead|down|unreachable)", STOP + 15),
    _sign("node_terminated", "PREEMPTED", r"\bPREEMPTED\b", STOP + 15),
    _sign("terminal_hangup", "death signal", r"Received (?:Signals\.SIGHUP|(?P<signal>1)) death signal"),
    _sign("terminal_hangup", "got signal: 1", r"got signal: (?P<signal>1)\b(?!\d)"),
    _sign("terminal_hangup", "SIGHUP", r"closing signal SIGHUP|\bSIGHUP\b", BROAD),
    _sign("terminal_hangup", "Hangup|挂起|挂断", r"^(?:\S+[:\uff1a] ?(?:line|行) ?\d+[:\uff1a] +\d+ )?(?:Hangup\b|挂起|挂断)", BROAD),
    _sign("cancelled", "CANCELLED", r"\*\*\* (?:JOB|STEP) (?P<job>\S+) ON \S+ CANCELLED AT \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?! D)", STOP),
    _sign("cancelled", "DUE ", r"CANCELLED AT \S+ DUE (?:TO JOB REQUEUE|to SIGNAL)", STOP),
    _sign("cancelled", "CANCELLED", r"JobState=CANCELLED|CANCELLED by \d+", STOP),
    _sign("cancelled", "death signal", r"Received (?:Signals\.SIG(?:TERM|INT|QUIT)|(?P<signal>2|3|15)) death signal", STOP),
    _sign("cancelled", "got signal", r"got signal: (?P<signal>2|3|15)\b", STOP),
    _sign("cancelled", "KeyboardInterrupt", r"^KeyboardInterrupt\b|\bKeyboardInterrupt$", STOP),
    _sign("cancelled", "TERM_OWNER|qdel", r"TERM_OWNER|PBS: job killed: .*qdel", STOP),
    _sign("cancelled", "Job was ", r"Job was stopped by|Status message: Job was intentionally stopped", STOP),
    _sign("killed_without_reason", "SIGKILL", r"Signal 9 \(SIGKILL\) received by PID (?P<pid>\d+)", GUESS),
    _sign("killed_without_reason", "exitcode", r"exitcode ?: -9\b|exitcode: -9\b", GUESS),
    _sign("killed_without_reason", "Killed", r"^(?:srun: error: .*: )?Killed$|\d+ Killed  |: line \d+: +\d+ Killed", GUESS),
    _sign("killed_without_reason", "已杀死", r"^(?:\S+[:\uff1a] ?行 ?\d+[:\uff1a] +\d+ )?已杀死", GUESS),
    _sign("killed_without_reason", "exited unexpectedly", r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) exited unexpectedly", GUESS - 5),
    _sign("killed_without_reason", "return code = -9", r"exits with return code = -9", GUESS),
    _sign("killed_without_reason", "Killing subprocess", r"Killing subprocess \d+", GUESS - 5),
    _sign("killed_without_reason", "signal|Signal", r"(?i)(?:terminated by|died from|killed by|exited (?:with|on)) signal:? (?:9|Killed)", GUESS),
    _sign("killed_without_reason", "abruptly died", r"One of the subprocesses has abruptly died", GUESS - 5),
    _sign("killed_without_reason", "signal: Killed", r"DataLoader worker \(pid\(?s?\)? \d+\) is killed by signal: Killed", GUESS),
    _sign("killed_without_reason", "xit|XIT", r"(?i)exit(?:ed)?(?: with)?(?: code| status)? ?[:(]? ?137\b", GUESS),
    _sign("killed_without_reason", "SIGKILL", r"(?:terminated with signal SIGKILL|died with <Signals\.SIGKILL: 9>)", GUESS),
    _sign("cancelled", "Terminated|已终止", r"^(?:\S+[:\uff1a] ?(?:line|行) ?\d+[:\uff1a] +\d+ )?(?:Terminated\b|已终止)", GUESS),
    _sign("killed_without_reason", "SYSTEM_ERROR|died unexpectedly", r"Worker exit type: SYSTEM_ERROR|worker died unexpectedly", GUESS - 5),
)  # fmt: skip

_CHECKPOINT = (
    _sign("checkpoint_rename_race", "tmp-checkpoint", r"FileNotFoundError.*tmp-checkpoint-(?P<step>\w+)", OWN + 1, trainer=True),
    _sign("checkpoint_rename_race", "tmp-checkpoint", r"(?:OSError|FileExistsError).*tmp-checkpoint-(?P<step>\w+).*->", OWN + 1, trainer=True),
    _sign("checkpoint_incomplete", "checkpoint-", r"No such file or directory: '?(?P<path>[^'\s]*checkpoint-(?P<checkpoint_step>\d+)[^'\s]*/[^'/\s]+)", trainer=True),
    _sign("checkpoint_incomplete", "checkpoint index", r"Can't find a checkpoint index \(.*\) in (?P<path>\S*checkpoint-(?P<checkpoint_step>\d+)\S*?)\.?$", trainer=True),
    _sign("checkpoint_incomplete", "global_step", r"(?:No such file or directory|does not exist|missing).*?(?P<path>[^'\s\[]*global_step(?P<checkpoint_step>\d+)/[^'\s\]]+)", trainer=True),
    _sign("checkpoint_incomplete", "checkpoint load paths", r"Client provided checkpoint load paths: .* does not exist", trainer=True),
    _sign("checkpoint_incomplete", "latest", r"Unable to find latest file at (?P<path>\S+?),", trainer=True),
    _sign("checkpoint_incomplete", "failed to resume", r"\[deepspeed\] failed to resume from checkpoint (?P<path>\S+)", BROAD, trainer=True),
    _sign("checkpoint_incomplete", "Missing", r"(?:Error|ERROR).*[Mm]issing .*(?:shard|optim_states|model_states)", trainer=True),
    _sign("checkpoint_not_found", "valid checkpoint", r"Can't find a valid checkpoint at (?P<path>\S+)", trainer=True),
    _sign("checkpoint_not_found", "No valid checkpoint", r"No valid checkpoint found in output directory(?: \((?P<path>[^)]*)\))?", trainer=True),
    _sign("checkpoint_not_found", "adapter_config", r"Can't find 'adapter_config\.json' at '(?P<path>[^']*)'", trainer=True),
    _sign("checkpoint_not_found", "heckpoint", r"(?i)no (?:zero )?checkpoint found|Failed to find checkpoint", trainer=True),
    _sign("checkpoint_world_size", "DP world size", r"used a DP world size of (?P<saved_world_size>\d+) but the current world size is (?P<current_world_size>\d+)", trainer=True),
    _sign("checkpoint_world_size", "world size", r"(?i)checkpoint .*world size (?:of )?\d+ .*(?:but|while|current) .*world size", BROAD, trainer=True),
    _sign("checkpoint_load_refused", "Weights only load failed", r"Weights only load failed", trainer=True),
    _sign("checkpoint_load_refused", "torch.load", r"serious vulnerability issue in `?torch\.load`?", trainer=True),
    _sign("weights_file_corrupt", "deserializing header", r"Error while deserializing header:? ?(?P<reason>\w+)", trainer=True),
    _sign("weights_file_corrupt", "SafetensorError", r"SafetensorError: (?!.*os error 28).*(?:header|incomplete|invalid|[Ff]ile)", BROAD, trainer=True),
    _sign("weights_file_corrupt", "PytorchStreamReader", r"PytorchStreamReader failed", trainer=True),
    _sign("weights_file_corrupt", "archive|central directory", r"invalid header or archive is corrupted|central directory", trainer=True),
    _sign("weights_file_corrupt", "Unable to load weights", r"Unable to load weights from pytorch checkpoint file", trainer=True),
    _sign("weights_file_corrupt", "invalid load key", r"invalid load key, '", trainer=True),
    _sign("weights_file_corrupt", "Unsupported operand 118", r"WeightsUnpickler error: Unsupported operand 118\b", OWN + 2, trainer=True),
    _sign("weights_file_corrupt", "Ran out of input", r"EOFError: Ran out of input", BROAD, trainer=True),
    _sign("weights_file_corrupt", "unexpected EOF", r"unexpected EOF, expected \d+ more bytes", trainer=True),
    _sign("weights_file_corrupt", "Consistency check failed", r"Consistency check failed: file should be of size", trainer=True),
    _sign("weights_file_corrupt", "git-lfs", r"git-lfs\.github\.com|appears to be a git-lfs pointer|You seem to have cloned a repository without having git-lfs", trainer=True),
    _sign("embedding_size_mismatch", "size mismatch for", r"size mismatch for \S*(?:embed|lm_head|wte|embeddings|word_embeddings)\S*: copying a param with shape torch\.Size\(\[(?P<saved_rows>\d+)[^\]]*\]\) from checkpoint, the shape in current model is torch\.Size\(\[(?P<model_rows>[1-9]\d*)", trainer=True),
    _sign("embedding_size_mismatch", "Trying to set a tensor", r"Trying to set a tensor of shape torch\.Size\(\[(?P<saved_rows>\d{4,})[^\]]*\]\) in \"weight\" \(which has shape torch\.Size\(\[(?P<model_rows>\d{4,})", BROAD, trainer=True),
    _sign("embedding_size_mismatch", "vocab", r"(?i)vocab(?:ulary)? size .*(?:mismatch|does not match)", BROAD, trainer=True),
)  # fmt: skip

_SOURCES = (
    _sign("hub_offline_miss", "OfflineModeIsEnabled", r"OfflineModeIsEnabled", trainer=True),
    _sign("hub_offline_miss", "Couldn't reach", r"Couldn't reach '?(?P<repo>[\w./-]+)'? on the Hub", trainer=True),
    _sign("hub_offline_miss", "couldn't connect to", r"[Ww]e couldn't connect to 'https://\S+' to load", trainer=True),
    _sign("hub_offline_miss", "LocalEntryNotFoundError", r"LocalEntryNotFoundError", BROAD, trainer=True),
    _sign("hub_offline_miss", "outgoing traffic|offline mode", r"outgoing traffic has been disabled|offline mode is enabled", trainer=True),
    _sign("hub_offline_miss", "Max retries exceeded", r"HTTPSConnectionPool\(host=\\?'(?:huggingface\.co|hf-mirror\.com|\S*modelscope\S*?)\\?'.*Max retries exceeded", BROAD, trainer=True),
    _sign("hub_gated", "gated repo|GatedRepo", r"[Cc]annot access gated repo|trying to access a gated repo|GatedRepoError", trainer=True),
    _sign("hub_gated", "is restricted", r"Access to model (?P<repo>\S+) is restricted", trainer=True),
    _sign("hub_gated", "Client Error", r"(?P<status>401|403) Client Error", BROAD - 5, trainer=True),
    _sign("model_path_missing", "RepositoryNotFound", r"RepositoryNotFoundError", BROAD - 3, trainer=True),
    _sign("model_path_missing", "404 Client Error", r"404 Client Error.*url: https?://\S*(?:modelscope|huggingface|hf-mirror)\S*/(?:models/)?(?P<path>[\w.-]+/[\w.-]+)/(?:revisions|resolve|repo)", BROAD - 3, trainer=True),
    _sign("model_path_missing", "NotExistError", r"modelscope.*NotExistError: .*?model:? ?(?P<path>[\w.-]+/[\w.-]+)", trainer=True),
    _sign("model_path_missing", "Incorrect path_or_model_id", r"Incorrect path_or_model_id: '(?P<path>[^']*)'", trainer=True),
    _sign("model_path_missing", "Repo id must", r"HFValidationError: Repo id must", BROAD - 5, trainer=True),
    _sign("model_path_missing", "not a local folder", r"(?P<path>\S+) is not a local folder and is not a valid model identifier", trainer=True),
    _sign("model_path_missing", "does not appear to have", r"(?P<path>\S+) does not appear to have (?:a file|files) named", trainer=True),
    _sign("model_path_missing", "Can't load", r"Can't load (?:the )?(?:configuration|tokenizer|config|model|processor|feature extractor) (?:of|for) '(?P<path>[^']*)'", BROAD, trainer=True),
    _sign("model_path_missing", "no file named", r"Error no file named .*found in directory (?P<path>[^\s]+)", trainer=True),
    _sign("model_name_missing", "model_name_or_path", r"Please (?:provide|specify) `?model_name_or_path`?", trainer=True),
    _sign("model_name_missing", "--model_name_or_path", r"the following arguments are required: .*--model_name_or_path", trainer=True),
    _sign("native_library_missing", "cannot open shared object", r"(?<!\S)(?P<library>(?!\S*bitsandbytes)[\w./+-]+\.so[\w.]*): cannot open shared object file", phase=IMPORTING),
    _sign("native_library_missing", "lib", r"^(?!.*bitsandbytes).*?(?:Could not load|Unable to load|Failed to load|Library not loaded:?).*?(?P<library>lib[\w./+-]+\.so[\w.]*)", BROAD),
    _sign("native_library_missing", "undefined symbol", r"(?P<library>lib(?:torch|c10|rocblas|hipblas|MIOpen|rccl|amdhip64|rocsolver|hsa-runtime64)\w*\.so[\w.]*): undefined symbol", BROAD - 5),
    _sign("native_library_missing", "CXXABI|GLIBC", r"(?:version|symbol) `?(?:GLIBCXX|CXXABI|GLIBC)_[\d.]+'? not found", BROAD),
    _sign("native_library_missing", "libamd_smi", r"KeyError: '(?P<library>libamd_smi\.so)'"),
    _sign("triton_hip_mismatch", "hip", r"hip_utils\.so: undefined symbol: (?P<symbol>\w+)"),
    _sign("triton_hip_mismatch", "cannot get address", r"cannot get address for '(?P<symbol>\w+)' from libamdhip64"),
    _sign("triton_hip_mismatch", "libamdhip64", r"(?i)cannot (?:find|open|query).*libamdhip64|libamdhip64\S* .*(?:required|too old|newer)|triton.*libamdhip64"),
    _sign("triton_hip_mismatch", "undefined symbol", r"triton\S*: undefined symbol: (?P<symbol>hip\w+)"),
    _sign("cache_dir_unwritable", "ermission denied", rf"Permission denied:? '?(?P<path>[^'\s]*{_CACHE_DIR}[^'\s]*)"),
    _sign("cache_dir_unwritable", "Read-only file system", rf"Read-only file system:? '?(?P<path>[^'\s]*{_CACHE_DIR}[^'\s]*)"),
    _sign("cache_dir_unwritable", "not writable", r"(?i)(?:cache|extension).*(?:is )?not writable"),
    _sign("cache_dir_unwritable", "MIOpen", r"MIOpen.*(?:unable to open database file|readonly database|Cannot (?:create|open|write))"),
    _sign("op_build_failed", "Error building extension", r"Error building extension '(?P<op>[^']+)'", trainer=True),
    _sign("op_build_failed", "ninja", r"ninja: build stopped: subcommand failed|Command '\['ninja', '-v'", BROAD, trainer=True),
    _sign("op_build_failed", "failed with exit", r"error: command '?\S*(?:hipcc|nvcc|gcc|g\+\+|c\+\+|cc)'? failed with exit (?:code|status) \d+", BROAD, trainer=True),
    _sign("op_build_failed", "Unable to JIT|Unable to pre-compile", r"Unable to (?:JIT|pre-compile)\s*(?:load )?(?:the )?(?P<op>\w+)", trainer=True),
    _sign("op_build_failed", "unable to compile", r"unable to compile (?:\w+/\w+ extensions|\w+ ops?)\b", BROAD, trainer=True),
    _sign("op_build_failed", "ds_opt_a", r"AttributeError: 'DeepSpeedCPU\w+' object has no attribute 'ds_opt_a\w+'", GUESS - 5, trainer=True),
    _sign("op_build_failed", "Error compiling objects", r"RuntimeError: Error compiling objects for extension", BROAD, trainer=True),
    _sign("op_build_failed", "Failed building wheel", r"Failed building wheel for (?P<op>[\w-]+)", BROAD, trainer=True),
    _sign("toolchain_missing", "C compiler", r"Failed to find C compiler", OWN + 2),
    _sign("toolchain_missing", "C++ compiler", r"No working C\+\+ compiler found", OWN + 2),
    _sign("toolchain_missing", "_HOME|ROCM_PATH", r"(?:CUDA_HOME|ROCM_HOME|HIP_HOME|ROCM_PATH) (?:does not exist|environment variable is not set|is not set)", OWN + 2),
    _sign("toolchain_missing", "No such file or directory", r"No such file or directory:? ?'?\"?(?P<compiler>[^'\"\s]*(?:hipcc|nvcc|clang\+\+|clang|g\+\+|gcc|c\+\+|x86_64\S*-cc))['\"]?(?=$|[\s'\":,;)])", OWN + 2),
    _sign("toolchain_missing", "not found", r"(?:^|[\s:])(?P<compiler>\S*(?:hipcc|nvcc|clang\+\+|clang|g\+\+|gcc|c\+\+)): (?:command )?not found", OWN + 2),
    _sign("toolchain_missing", "No such file or directory", r"(?P<compiler>\S*(?:hipcc|nvcc|clang\+\+|clang|g\+\+|gcc|c\+\+)): No such file or directory", OWN + 2),
    _sign("toolchain_missing", "ompiler|CC|CXX", r"(?i)(?:\bCC\b|\bCXX\b|\bHIPCC\b|\$CC|compiler).{0,60}(?:does not exist|no such file|not found)", OWN + 2),
    _sign("package_version_rejected", "is required for a normal functioning", r"(?P<package>[\w-]+?)(?P<op>[<>=!~].*?) is required for a normal functioning of this module, but found [\w-]+==(?P<found>[\w.+-]+?)\.?$", trainer=True),
    _sign("package_version_rejected", "require", r"ImportError: .*requires? (?P<package>[\w-]+) ?>= ?(?P<minimum>[\w.]+).*(?:but|found|installed)", BROAD, trainer=True),
    _sign("package_missing", "No module named", r"(?:ModuleNotFoundError|ImportError): No module named '?(?P<package>[\w-]+)", phase=IMPORTING),
    _sign("package_missing", "were not found in your environment", r"packages that were not found in your environment: (?P<package>[\w-]+)", trainer=True),
    _sign("package_missing", "is not installed => run", r"is not installed => run `pip3? install (?P<package>[\w-]+)", trainer=True),
    _sign("package_missing", "is not available => install", r"is not available => install it using `pip3? install (?P<package>[\w-]+)", trainer=True),
    _sign("package_missing", "distribution was not found", r"The '(?P<package>[\w-]+)[^']*' distribution was not found", trainer=True),
    _sign("package_missing", "No package metadata", r"No package metadata was found for (?:The )?'?(?P<package>[\w-]+)", trainer=True),
    _sign("package_missing", "requires", r"ImportError: (?:Using )?.*requires (?:the )?`?(?P<package>[\w-]+)`?(?: library| package)?[:,]? .*(?:pip install|not (?:found|installed))", BROAD, trainer=True),
    _sign("package_missing", "pip install", r"(?:ImportError|RuntimeError|ValueError): .*(?:please|run|install).*pip install (?:-U )?`?(?P<package>[\w.-]+)", BROAD - 2),
    _sign("package_missing", "working triton installation", r"Cannot find a working (?P<package>triton) installation", BROAD),
    _sign("package_missing", "is required", r"(?:ImportError|RuntimeError): (?P<package>Ninja|ninja|\w+) is required to ", BROAD - 2),
    _sign("attention_package_missing", "lash", r"(?:ImportError|ValueError|RuntimeError): .*Flash ?Attention ?-?2?.*(?:cannot be used|not installed|not available|toggled on)", OWN + 2, trainer=True),
    _sign("attention_package_missing", "flash_attn", r"(?:package flash_attn seems to be not installed|No module named 'flash_attn|flash_attn.*(?:>=|minimum|required|version))", OWN + 2, trainer=True),
    _sign("attention_package_missing", "flash_attn", r"ImportError: cannot import name '\w+' from '?flash_attn", OWN + 2, trainer=True),
    _sign("attention_package_missing", "flash_attn", r"flash_attn\S*: undefined symbol", BROAD, trainer=True),
    _sign("attention_package_missing", "flash-attn", r"(?:ImportError|RuntimeError|ValueError): .*flash-attn.*(?:install|required|not)", OWN + 2, trainer=True),
)  # fmt: skip

_SETTINGS = (
    _sign("bf16_unavailable", "support bf16", r"Your setup doesn't support bf16\S*", trainer=True, exact=True),
    _sign("bf16_unavailable", "bf16 precision was requested", r"bf16 precision was requested but not available", trainer=True),
    _sign("bf16_unavailable", "bf16", r"(?i)(?:bf16|bfloat16)\b.*(?:is not supported (?:on|by)|not available|requires|unsupported)", BROAD, trainer=True),
    _sign("cli_value_rejected", "error: argument", r"error: argument (?P<argument>--?[\w-]+)(?:/\S+)?: (?:invalid|expected|not allowed)", trainer=True),
    _sign("cli_value_rejected", "Truthy value expected", r"Truthy value expected: got (?P<value>\S+)", trainer=True),
    _sign("cli_value_rejected", "is not a valid", r"ValueError: '?(?P<value>[^']+)'? is not a valid \w*(?:Strategy|Type|Option|OptimizerNames|SchedulerType)", trainer=True),
    _sign("unknown_key", "HfArgumentParser", r"Some (?:keys|specified arguments) are not used by the HfArgumentParser", trainer=True),
    _sign("unknown_key", "unrecognized arguments", r"error: unrecognized arguments: (?P<arguments>.*)", trainer=True),
    _sign("unknown_key", "unexpected keyword", r"TypeError: (?:\w*Arguments|\w*Config)\.?_?_?i?n?i?t?_?_?(?:\(\))? .*unexpected keyword argument '(?P<key>[^']+)'", trainer=True),
    _sign("unknown_key", "Extra inputs", r"Extra inputs are not permitted", BROAD, trainer=True),
    _sign("template_unknown", "Template", r"Template (?P<template>\S+) does not exist", trainer=True),
    _sign("template_unknown", "emplate", r"Unknown template:? '?(?P<template>[\w.-]+)", trainer=True),
    _sign("deepspeed_config_missing", "deepspeed config", r"Expected a string path to an existing deepspeed config, or a dictionary.*Received: (?P<path>\S+)", trainer=True),
    _sign("deepspeed_config_missing", ".json", r"No such file or directory: '(?P<path>[^']*(?:ds_|deepspeed|zero)[^']*\.json)'", trainer=True),
    _sign("deepspeed_batch_mismatch", "batch related", r"(?:AssertionError: )?Check batch related parameters\. train_batch_size is not equal", trainer=True),
    _sign("deepspeed_batch_mismatch", "mismatch TrainingArguments", r"DeepSpeed config values that mismatch TrainingArguments values", trainer=True),
    _sign("deepspeed_batch_mismatch", "- ds ", r"^- ds \w+=(?P<deepspeed>\S+) vs hf \w+=(?P<trainer>\S+)", trainer=True),
    _sign("unsloth_with_zero3", "nsloth", r"(?i)unsloth (?:is incompatible|does not support|cannot be used).*(?:zero-?3|deepspeed)", trainer=True),
    _sign("quantized_with_zero3", "uantiz", r"(?i)(?:zero-?3|fsdp).*(?:incompatible|not supported|cannot).*quantiz|quantiz\S*.*(?:incompatible|not supported|cannot).*(?:zero-?3|fsdp)|Only 4-bit quantized model can use", trainer=True),
    _sign("quantized_with_zero3", "4-bit", r"Only 4-bit quantized model can use fsdp", trainer=True),
    _sign("streaming_without_max_steps", "max_steps", r"Please specify `?max_steps`? in streaming mode", trainer=True),
    _sign("streaming_without_max_steps", "max_steps", r"args\.max_steps must be set to a positive value", trainer=True),
    _sign("dataset_undefined", "Undefined dataset", r"Undefined dataset (?P<name>[^\s{]+) in (?P<registry>\S+?\.json)", phase=LOADING_DATA, trainer=True),
    _sign("dataset_registry_missing", "Cannot open", r"Cannot open (?P<path>\S*dataset_info\.json) due to (?!.*\bline \d+ column \d+)", OWN + 1, LOADING_DATA, True),
    _sign("not_valid_json", "Cannot open", r"Cannot open (?P<path>\S*dataset_info\.json) due to .*\bline (?P<line>\d+) column", OWN + 1, LOADING_DATA, True),
    _sign("dataset_type_conflict", "Column", r"(?:ArrowInvalid: )?JSON parse error: Column\(.*\) (?:changed|was)", phase=LOADING_DATA, trainer=True),
    _sign("dataset_type_conflict", "ArrowInvalid", r"ArrowInvalid: .*(?:cannot mix|Could not convert|tried to convert)", phase=LOADING_DATA, trainer=True),
    _sign("not_valid_json", "JSON parse error", r"JSON parse error: (?!Column)(?P<what>[A-Z].*?)\.? in row (?P<row>\d+)|JSON parse error: (?!Column)[A-Z]", phase=LOADING_DATA, trainer=True),
    _sign("not_valid_json", "JSONDecodeError", r"^json\.decoder\.JSONDecodeError: |^requests\.exceptions\.JSONDecodeError: ", BROAD - 10, LOADING_DATA),
    _sign("dataset_type_conflict", "ArrowNotImplementedError", r"ArrowNotImplementedError: Unsupported cast", phase=LOADING_DATA, trainer=True),
    _sign("dataset_type_conflict", "ArrowTypeError", r"ArrowTypeError", phase=LOADING_DATA, trainer=True),
    _sign("dataset_type_conflict", "Couldn't cast", r"Couldn't cast(?: array)?", phase=LOADING_DATA, trainer=True),
    _sign("dataset_type_conflict", "CastError", r"CastError: ", BROAD, LOADING_DATA, True),
    _sign("dataset_type_conflict", "DatasetGenerationError", r"DatasetGenerationError: An error occurred while generating the dataset", BROAD - 5, LOADING_DATA, True),
    _sign("role_tag_mismatch", "Invalid role tag", r"Invalid role tag in \[", OWN + 1, LOADING_DATA, True),
    _sign("all_samples_dropped", "Cannot find valid samples", r"Cannot find valid samples", trainer=True),
    _sign("all_samples_dropped", "Cannot find sufficient samples", r"Cannot find sufficient samples", trainer=True),
    _sign("all_samples_dropped", "corresponds to no data", r"Instruction \"\w+\" corresponds to no data", trainer=True),
    _sign("image_count_mismatch", "The number of ", r"The number of (?:images|videos|audios) does not match the number of", OWN + 1, trainer=True),
    _sign("image_count_mismatch", "features and ", r"(?:[Ii]mage|[Vv]ideo|[Aa]udio) features and (?:image|video|audio) tokens do not match[:,]? tokens: (?P<tokens>0),? features:? (?P<features>\d+)", OWN + 1, trainer=True),
    _sign("sequence_too_long", "features and ", r"(?:[Ii]mage|[Vv]ideo|[Aa]udio) features and (?:image|video|audio) tokens do not match[:,]? tokens: (?P<tokens>[1-9]\d*),? features:? (?P<features>\d+)", OWN + 1, trainer=True),
    _sign("sequence_too_long", "token count between text", r"Mismatch in `\w+` token count between text and `input_ids`", trainer=True),
    _sign("sequence_too_long", "cannot be broadcast to indexing result", r"value tensor of shape \[\d+, (?P<tokens>\d+)\] cannot be broadcast to indexing result of shape \[\d+, (?P<cutoff>\d+)\]", trainer=True),
    _sign("sequence_too_long", "maximum model length", r"prompt \(length (?P<tokens>\d+)\) is longer than the maximum model length of (?P<cutoff>\d+)"),
    _sign("sequence_too_long", "exceeds|is longer than", r"(?i)(?:sequence|input|prompt) length (?:\(?\d+\)? )?.*(?:exceeds|is longer than) .*(?:max|cutoff)", BROAD, trainer=True),
    _sign("utf8_bom", "UTF-8 BOM", r"Unexpected UTF-8 BOM", OWN + 1, LOADING_DATA, True),
    _sign("loss_scale_collapse", "already at minimum", r"Current loss scale already at minimum - cannot decrease scale anymore", OWN + 1),
)  # fmt: skip

SIGNATURES: tuple[Signature, ...] = (
    *_GPU, *_HOST, *_COLLECTIVE, *_STOPS, *_CHECKPOINT, *_SOURCES, *_SETTINGS
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Remark:
    """A line that is worth showing but ends no job."""

    code: str
    needs: tuple[str, ...]
    pattern: re.Pattern[str]


def _remark(code: str, needs: str, pattern: str) -> Remark:
    return Remark(code, tuple(needs.split("|")), re.compile(pattern))


REMARKS: tuple[Remark, ...] = (
    _remark("shutdown_noise", "destroy_process_group", r"destroy_process_group\(\) was not called before program exit"),
    _remark("shutdown_noise", "Cleanup error", r"Cleanup error: while (?:stopping|unmounting)"),
    _remark("shutdown_noise", "leaked", r"resource_tracker: There appear to be \d+ leaked"),
    _remark("shutdown_noise", "parent process exited", r"server: parent process exited, terminating"),
    _remark("shutdown_noise", "PyGILState_Release|without an active exception", r"PyGILState_Release|terminate called without an active exception"),
    _remark("shutdown_noise", "failed on SocketImpl", r"(?:sendBytes|recvValue|recvBytes) failed on SocketImpl"),
    _remark("telemetry_failed", "amdsmi|NVML", r"Can't initialize (?:amdsmi|NVML)|amdsmi.*Error code"),
    _remark("telemetry_failed", "rocm|ROCm|rsmi", r"(?i)rocm[-_]?smi.*(?:fail|error|not found)|rsmi_init.*fail"),
    _remark("telemetry_failed", "NVML", r"(?i)NVML.*(?:not found|fail|error|mismatch)"),
    _remark("blas_fallback", "Overriding blas backend", r"unsupported architecture! Overriding blas backend"),
    _remark("bitsandbytes_on_rocm", "bitsandbytes", r"(?i)(?:could not (?:find|load).*bitsandbytes|bitsandbytes library load error|libbitsandbytes_\w+\.so)"),
    _remark("bitsandbytes_on_rocm", "compiled without GPU support", r"bitsandbytes was compiled without GPU support"),
    _remark("attention_fallback", "lash|alling back|memory efficient attention", r"(?i)flash[ _-]?attention ?-?2? is not (?:installed|available)|falling back to (?:the )?(?:eager|sdpa|PyTorch-native|math)"),
    _remark("attention_fallback", "lash|alling back|memory efficient attention", r"(?i)flash[ _-]?attn.*(?:not (?:installed|available|supported)|fall(?:ing)? ?back)|was not compiled with (?:flash|memory efficient) attention"),
    _remark("attention_fallback", "ttention", r"(?i)Flash (?:Efficient )?attention on .* GPU is still experimental|Mem Efficient attention on .* is still experimental"),
    _remark("numa_balancing_on", "NUMA|numa", r"(?i)NUMA (?:auto|automatic)? ?balancing (?:is )?enabled|numa_balancing ?= ?1"),
    _remark("stack_location_unreliable", "asynchronously reported", r"kernel errors might be asynchronously reported"),
    _remark("long_sequences", "longer than the specified maximum", r"[Tt]oken indices sequence length is longer than the specified maximum"),
    _remark("nightly_build", ".dev20", r"\btorch[^\n]{0,20}\d+\.\d+\.\d+\.dev20\d{6}"),
    _remark("gfx_override_set", "HSA_OVERRIDE_GFX_VERSION", r"HSA_OVERRIDE_GFX_VERSION[= :]+\d"),
)  # fmt: skip
