"""/sys, /dev and /proc below a root folder in, the few files that telemetry needs out, as path -> text. Opens no device."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_IDENTITY = (
    "vendor",
    "device",
    "uevent",
    "numa_node",
    "product_name",
    "unique_id",
)
_POLLED = (
    "vendor",
    "uevent",
    "gpu_busy_percent",
    "mem_busy_percent",
    "mem_info_vram_used",
    "mem_info_vram_total",
    "mem_info_gtt_used",
    "mem_info_gtt_total",
    "pp_dpm_sclk",
    "pp_dpm_mclk",
    "current_link_speed",
    "current_link_width",
    "pcie_replay_count",
)
_AMD = "0x1002"


class SysTree:
    """Reads below `root` (tests give a folder of theirs)."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self._cards: dict[Path, tuple[str, ...]] = {}

    def has_amd(self) -> bool:
        """A card of AMD's with a driver, or the compute device, is present."""
        return bool(self._amd_cards()) or (self.root / "dev/kfd").exists() or (self.root / "sys/module/amdgpu").is_dir()

    def driver_version(self) -> str:
        """Version of the amdgpu module; "" for the one that came with the kernel."""
        return _read(self.root / "sys/module/amdgpu/version").strip()

    def accessible_renders(self) -> frozenset[int]:
        """Minors of render nodes that this user may read and write, found without opening them."""
        folder = self.root / "dev/dri"
        names = folder.glob("renderD*") if folder.is_dir() else ()
        return frozenset(
            int(path.name[7:]) for path in names if path.name[7:].isdigit() and os.access(path, os.R_OK | os.W_OK)
        )

    def load_cards(self, *, errors: bool) -> dict[str, str]:
        """Sensors of all AMD cards. A suspended card is left alone: reading would wake it. `errors`: also RAS counters."""
        tree: dict[str, str] = {}
        for card in self._amd_cards():
            folder = card / "device"
            if _read(folder / "power/runtime_status").strip() == "suspended":
                continue
            names = [*_POLLED, *self._sensor_files(card)]
            if errors:
                names += [f"ras/{path.name}" for path in (folder / "ras").glob("*_err_count")]
            _add(tree, folder, names, f"class/drm/{card.name}/device")
        return tree

    def load_identity(self) -> dict[str, str]:
        """Identity of all AMD cards, and KFD's nodes."""
        tree: dict[str, str] = {}
        for card in self._amd_cards():
            folder = card / "device"
            names = [*_IDENTITY, *self._sensor_files(card)]
            _add(tree, folder, names, f"class/drm/{card.name}/device")
            for node in (folder / "drm").glob("renderD*"):
                tree[f"class/drm/{card.name}/device/drm/{node.name}/dev"] = _read(node / "dev")
        return tree | self._load_nodes()

    def _load_nodes(self) -> dict[str, str]:
        tree: dict[str, str] = {}
        for node in self._glob("sys/class/kfd/kfd/topology/nodes/*"):
            names = [
                "gpu_id",
                "properties",
                *(f"mem_banks/{bank.name}/properties" for bank in (node / "mem_banks").glob("*")),
            ]
            _add(tree, node, names, f"topology/nodes/{node.name}")
        return tree

    def load_processes(self) -> dict[str, str]:
        """KFD's nodes and one file per process and device; pids are the host's, also inside a container."""
        tree = self._load_nodes()
        for process in self._glob("sys/class/kfd/kfd/proc/*"):
            names = [path.name for pattern in ("vram_*", "sdma_*", "pasid") for path in process.glob(pattern)]
            names += [
                f"{stats.name}/{name}" for stats in process.glob("stats_*") for name in ("cu_occupancy", "evicted_ms")
            ]
            _add(tree, process, names, f"proc/{process.name}")
        return tree

    def process_name(self, pid: int) -> str:
        """Name of a process; "" when it is not visible here."""
        return _read(self.root / f"proc/{pid}/comm").strip()

    def _amd_cards(self) -> list[Path]:
        cards = [path for path in self._glob("sys/class/drm/card*") if path.name[4:].isdigit()]
        return [card for card in sorted(cards, key=lambda path: int(path.name[4:])) if self._is_amd(card)]

    @staticmethod
    def _is_amd(card: Path) -> bool:
        vendor = _read(card / "device/vendor").strip()
        return vendor == _AMD and "PCI_SLOT_NAME=" in _read(card / "device/uevent")

    def _sensor_files(self, card: Path) -> tuple[str, ...]:
        """hwmon files of a card, looked up once: its number may change with every boot, not in between."""
        if card not in self._cards:
            folder = card / "device"
            patterns = ("name", "temp*_input", "temp*_label", "temp*_crit", "temp*_emergency", "power1_*", "freq*_*")
            found = [
                path.relative_to(folder).as_posix()
                for pattern in patterns
                for path in folder.glob(f"hwmon/hwmon*/{pattern}")
            ]
            self._cards[card] = tuple(found)
        return self._cards[card]

    def _glob(self, pattern: str) -> Iterable[Path]:
        parent, _, name = pattern.rpartition("/")
        folder = self.root / parent
        return folder.glob(name) if folder.is_dir() else ()


def _add(tree: dict[str, str], folder: Path, names: Iterable[str], prefix: str) -> None:
    for name in names:
        if text := _read(folder / name):
            tree[f"{prefix}/{name}"] = text


def _read(path: Path) -> str:
    """The text, or "" when there is no such file or it may not be read: a missing value, not an error."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
