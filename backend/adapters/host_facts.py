"""This host in, HostFacts for the doctor out. Reads files and limits, starts nothing, opens no device."""

from __future__ import annotations

import getpass
import os
import platform
import re
import resource
from collections.abc import Iterable, Mapping
from pathlib import Path

from backend.adapters.gpus_amd import AmdHost
from backend.adapters.host import SHM, read_disk
from backend.domain.host import HostFacts

_VARIABLES = (
    "HSA_OVERRIDE_GFX_VERSION",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "LD_LIBRARY_PATH",
)


def read_host_facts(folders: Mapping[str, Path], amd: AmdHost | None = None) -> HostFacts:
    """`folders`: label -> path whose disk is looked at."""
    host = amd or AmdHost()
    root = host.root
    arguments = _text(root / "proc/cmdline")
    nodes = [
        root / "dev/kfd",
        *sorted((root / "dev/dri").glob("renderD*")),
        *sorted((root / "dev").glob("nvidia[0-9]*")),
    ]
    present = [node for node in nodes if node.exists()]
    environment = os.environ if host.environment is None else host.environment
    return HostFacts(
        in_container=(root / ".dockerenv").exists() or (root / "run/.containerenv").exists(),
        kernel=platform.release(),
        kernel_arguments=tuple(arguments.split()) if arguments else None,
        numa_balancing=_text(root / "proc/sys/kernel/numa_balancing").strip() or None,
        shm_total_bytes=read_disk("shm", SHM).total_bytes if SHM.is_dir() else None,
        memlock_bytes=_limit(resource.RLIMIT_MEMLOCK),
        open_files=_limit(resource.RLIMIT_NOFILE),
        user=_user(),
        group_ids=tuple(os.getgroups()),
        device_groups={_shown(node, root): node.stat().st_gid for node in present},
        unreachable_nodes=tuple(_shown(node, root) for node in present if not os.access(node, os.R_OK | os.W_OK)),
        rocm_version=next((found for rocm in host.rocm() if (found := _rocm_version(rocm))), ""),
        rccl_libraries=_libraries(host.rocm(), environment.get("LD_LIBRARY_PATH", "")),
        environment={name: environment[name] for name in _VARIABLES if environment.get(name)},
        disks=tuple(read_disk(label, path) for label, path in folders.items()),
    )


def _libraries(rocm: Iterable[Path], search: str) -> tuple[str, ...]:
    """Places with an RCCL or NCCL that a process could pick up beside torch's own."""
    folders = [*(folder / "lib" for folder in rocm), *(Path(part) for part in search.split(os.pathsep) if part)]
    found = {
        str(library.resolve())
        for folder in folders
        if folder.is_dir()
        for pattern in ("librccl.so*", "libnccl.so*")
        for library in folder.glob(pattern)
    }
    return tuple(sorted(found))


def _rocm_version(rocm: Path) -> str:
    found = re.match(r"\d+\.\d+(?:\.\d+)?", _text(rocm / ".info/version"))
    return found.group(0) if found else ""


def _limit(which: int) -> int:
    soft = resource.getrlimit(which)[0]
    return -1 if soft == resource.RLIM_INFINITY else soft


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's numeric user without a name
        return f"uid {os.getuid()}"


def _shown(node: Path, root: Path) -> str:
    return f"/{node.relative_to(root)}"


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
