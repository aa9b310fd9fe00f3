"""Any output of amd-smi, rocm-smi, the amdsmi module, sysfs, KFD or the kernel log in, a ToolReading with one verdict out.

`parse_output` takes text (JSON, JSON after a warning, several JSON documents, CSV, columns, indented text, an error text,
garbage) and never raises, `parse_tree` takes the files of a sysfs or KFD tree. Formats are told apart by content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from backend.parsing.telemetry import amd_smi_json, amdsmi_calls, fdinfo, missing, monitor, ras, rocm_smi, tables, trees
from backend.parsing.telemetry.missing import Json
from backend.parsing.telemetry.rows import GpuRow, ProcessRow, ToolReading, Verdict, Versions
from backend.parsing.telemetry.verdicts import remedy_of, verdict_of_rows, verdict_of_text, warnings_of

Record = Mapping[str, Json]

_OTHER_TOOL_LISTS = ("cpu_data", "core_data", "nic_data", "switch_data")
_DEEPEST = 16
_BARE = frozenset({"gfx_activity_percent"})
_NCCL = re.compile(r"^\S+:\d+:\d+ \[\d+\] .*NCCL |^RCCL version", re.MULTILINE)


def parse_output(text: str) -> ToolReading:
    """Whatever a tool printed, to rows and a verdict."""
    text = text.lstrip("﻿")
    if ras.is_kernel_log(text):
        return ToolReading(verdict=Verdict.OK, events=ras.parse_kernel_log(text))
    documents, preamble = json_documents(text)
    if reading := _parse_documents(documents) or _parse_text(text):
        return _finish(reading, preamble, text)
    if not documents and _looks_cut(text):
        return _finish(ToolReading(verdict=Verdict.CRASH), "", text)
    return _finish(ToolReading(verdict=verdict_of_text(text)), "", text)


def parse_bytes(data: bytes) -> ToolReading:
    """`parse_output` of undecoded output."""
    return parse_output(data.decode("utf-8", "replace"))


def parse_tree(tree: trees.Tree) -> ToolReading:
    """A sysfs tree (root = below /sys), a KFD tree (root = below /sys/class/kfd/kfd), or both in one."""
    cards = trees.split_cards(tree)
    rows = tuple(trees.parse_card(files, index, card) for index, (card, files) in enumerate(cards.items()))
    devices = trees.parse_kfd_devices(tree)
    processes = trees.parse_kfd_processes(tree, devices)
    verdict = verdict_of_rows(rows, _BARE) if rows else Verdict.OK if devices else _verdict_without_cards(tree)
    return _finish(ToolReading(verdict=verdict, gpus=rows, devices=devices, processes=processes), "", "")


def _verdict_without_cards(tree: trees.Tree) -> Verdict:
    state = next((content.strip() for path, content in tree.items() if path.endswith("module/amdgpu/initstate")), None)
    return Verdict.DRIVER_NOT_LOADED if state not in (None, "live") else Verdict.NO_GPU


def json_documents(text: str) -> tuple[list[Json], str]:
    """JSON documents that begin at the start of a line, and the text before the first one.

    Some commands print two documents in a row; warnings and library messages may come first.
    """
    found: list[Json] = []
    preamble, at, decoder = "", 0, json.JSONDecoder()
    while match := re.compile(r"^[ \t]*[\[{]", re.MULTILINE).search(text, at):
        start = match.end() - 1
        try:
            value, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            if _ends_inside(text, start, error):
                break  # its complete records are lines that begin with a brace, too: none of them is a document
            newline = text.find("\n", start)
            at = len(text) if newline < 0 else newline + 1
            continue
        if isinstance(value, dict) or (
            isinstance(value, list) and all(isinstance(item, (dict, list)) for item in value)
        ):
            preamble = preamble if found else text[: match.start()].strip()
            found.append(value)
    return found, preamble


def _ends_inside(text: str, start: int, error: Exception) -> bool:
    """The document that begins at `start` lacks its end."""
    if not isinstance(error, json.JSONDecodeError) or not re.match(r"[\[{]\s*(?:[\[{]|\")", text[start : start + 200]):
        return False
    return error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")


def _looks_cut(text: str) -> bool:
    """A JSON document of amd-smi that ends in the middle: the tool was killed or died while printing."""
    return re.search(r"^[\[{]\s*(?:[\[{]|\")", text, re.MULTILINE) is not None and '"gpu"' in text


def _finish(reading: ToolReading, preamble: str, text: str) -> ToolReading:
    warnings = warnings_of(preamble or text) if reading.verdict.has_readings else ()
    return replace(reading, preamble=preamble, warnings=warnings, remedy=remedy_of(reading.verdict))


# --- JSON -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """Records of one kind (metric, monitor, static ...)."""

    kind: str
    records: tuple[Record, ...]


def _parse_documents(documents: Sequence[Json]) -> ToolReading | None:
    if not documents:
        return None
    if calls := next((document for document in documents if _is_calls(document)), None):
        return _parse_calls(calls)
    parts: dict[str, _Part] = {}
    empty = False
    for document in documents:
        split = _split_document(document)
        empty = empty or split == []
        for part in split or []:
            # A later document of the same kind (watch mode) is the newer one, but xgmi prints its halves as two documents.
            before = parts[part.kind].records if part.kind == "xgmi" and part.kind in parts else ()
            parts[part.kind] = _Part(part.kind, (*before, *part.records))
    if parts:
        return _parse_parts(parts)
    return ToolReading(verdict=Verdict.NO_GPU) if empty else ToolReading(verdict=Verdict.NOT_AMD_SMI_OUTPUT)


def _split_document(document: Json) -> list[_Part] | None:
    """Parts of a document; [] when it says that there is no GPU; None when it is not amd-smi's."""
    if isinstance(document, list):
        return _split_records(
            [record for record in _flat_records(document) if not {"cpu", "core", "nic"} & set(record)], not document
        )
    if not isinstance(document, Mapping):
        return None
    keys = {str(key).lower(): value for key, value in document.items()}
    if rocm_smi.is_rocm_smi_json(document):
        cards = rocm_smi.cards_of(document)
        return [_Part("rocm-smi", tuple(cards))] if cards else []
    if "gpu_info_list" in keys:
        listed = _flat_records(keys["gpu_info_list"])
        processes = _flat_records(keys.get("processes"))
        return [_Part("default", tuple(listed)), _Part("process", tuple(processes))] if listed else []
    if "xgmi_metric" in keys or ("link_status" in keys and "gpu" not in keys):
        return _split_records(_flat_records(keys.get("xgmi_metric")) + _flat_records(keys.get("link_status")), True)
    if "gpu_data" in keys:
        return _split_records(_flat_records(keys["gpu_data"]), True)
    if "gpu" in keys:
        return _split_records([document], False)
    if all(key in _OTHER_TOOL_LISTS for key in keys):
        return []
    listed = [record for value in keys.values() for record in _flat_records(value)]
    return [_Part("other", ())] if any("gpu_id" in record for record in listed) else None


def _flat_records(value: Json) -> list[Record]:
    """Mappings of a list, of lists in a list (xgmi of late 7.x), or a single one."""
    if isinstance(value, Mapping):
        return [value]
    if not isinstance(value, list):
        return []
    return [
        record
        for item in value
        for record in (_flat_records(item) if isinstance(item, list) else [item])
        if isinstance(record, Mapping)
    ]


def _split_records(records: Sequence[Record], may_be_empty: bool) -> list[_Part] | None:
    if not records:
        return [] if may_be_empty else None
    records = [_lowered(record) for record in records]
    groups: dict[str, list[Record]] = {}
    newest = _newest(records)
    for record, kind in zip(newest, _kinds_of(newest), strict=True):
        groups.setdefault(kind, []).append(record)
        if "process_list" in record and groups.get("monitor"):
            groups.setdefault("process", []).append(record)
    if "version" in groups:
        return [_Part("version", tuple(groups["version"]))]
    if set(groups) == {"other"} and not any("gpu" in {str(key).lower() for key in record} for record in records):
        return None
    return [_Part(kind, tuple(group)) for kind, group in groups.items()]


def _kinds_of(records: Sequence[Record]) -> list[str]:
    """The kind of each record. One that holds nothing but a card's number is a card that did not answer: it keeps its row."""
    kinds = [amd_smi_json.kind_of(record) for record in records]
    measured = next((kind for kind in kinds if kind in ("metric", "monitor")), "other")
    return [
        measured if kind == "other" and "gpu" in record else kind for record, kind in zip(records, kinds, strict=True)
    ]


def _lowered(value: Record, depth: int = 0) -> Record:
    """Keys in lower case: the tool's text prints them in capitals, and so do some who convert it. Deeper than records are
    nothing is read."""
    return {str(key).lower(): _lowered_value(inner, depth + 1) for key, inner in value.items()}


def _lowered_value(value: Json, depth: int) -> Json:
    if depth > _DEEPEST:
        return value
    if isinstance(value, Mapping):
        return dict(_lowered(value, depth))
    return [_lowered_value(one, depth + 1) for one in value] if isinstance(value, list) else value


def _newest(records: Sequence[Record]) -> Sequence[Record]:
    """With --watch each round carries a time stamp: keep the newest one."""
    stamps = {missing.number(record.get("timestamp"), 0, 1e12) for record in records}
    if None in stamps or len(stamps) < 2:
        return records
    newest = max(stamp for stamp in stamps if stamp is not None)
    return [record for record in records if missing.number(record.get("timestamp"), 0, 1e12) == newest]


def _parse_parts(parts: Mapping[str, _Part]) -> ToolReading:
    reading = ToolReading(verdict=Verdict.OK)
    for part in parts.values():
        reading = _PARSERS.get(part.kind, _parse_other)(reading, part.records)
    return reading


def _parse_metric(reading: ToolReading, records: Sequence[Record]) -> ToolReading:
    rows = [amd_smi_json.parse_metric(record, index) for index, record in enumerate(records)]
    rows = _number_partitions(rows, [amd_smi_json.partition_count(record) for record in records])
    asked = frozenset(field for record in records for field in amd_smi_json.asked_metric(record))
    return replace(reading, gpus=tuple(rows), verdict=verdict_of_rows(rows, asked))


def _number_partitions(rows: list[GpuRow], partitions: Sequence[int]) -> list[GpuRow]:
    """A card in DPX, QPX or CPX prints one record per partition; only the first names all (`gfx_busy_inst`: xcp_0 ...)."""
    numbered = list(rows)
    for position, several in enumerate(partitions):
        following = range(position + 1, position + several)
        if several > 1 and position + several <= len(rows) and not any(partitions[n] for n in following):
            for partition, n in enumerate([position, *following]):
                numbered[n] = replace(rows[n], partition_id=partition)
    return numbered


def _parse_monitor(reading: ToolReading, records: Sequence[Record]) -> ToolReading:
    rows = monitor.parse_monitor(records)
    return replace(reading, gpus=rows, verdict=verdict_of_rows(rows, monitor.asked_monitor(records)))


def _parse_default(reading: ToolReading, records: Sequence[Record]) -> ToolReading:
    rows = monitor.parse_default_json(records)
    return replace(
        reading, gpus=rows, verdict=verdict_of_rows(rows, frozenset({"gfx_activity_percent", "vram_total_bytes"}))
    )


def _parse_static(reading: ToolReading, records: Sequence[Record]) -> ToolReading:
    return replace(reading, devices=tuple(amd_smi_json.parse_static(record, n) for n, record in enumerate(records)))


def _parse_list(reading: ToolReading, records: Sequence[Record]) -> ToolReading:
    return replace(reading, devices=tuple(amd_smi_json.parse_list(record, n) for n, record in enumerate(records)))


def _parse_process(reading: ToolReading, records: Sequence[Record]) -> ToolReading:
    return replace(reading, processes=amd_smi_json.parse_processes(records))


def _parse_topology(reading: ToolReading, records: Sequence[Record]) -> ToolReading:
    return replace(reading, links=amd_smi_json.parse_topology(records))


def _parse_xgmi(reading: ToolReading, records: Sequence[Record]) -> ToolReading:
    links, status = amd_smi_json.parse_xgmi(records)
    return replace(reading, links=links, link_status=status)


def _parse_rocm_smi(reading: ToolReading, records: Sequence[Record]) -> ToolReading:
    rows = rocm_smi.parse_cards(records)
    return replace(reading, gpus=rows, verdict=verdict_of_rows(rows, _BARE))


def _parse_version_records(reading: ToolReading, records: Sequence[Record]) -> ToolReading:
    """`amd-smi version` as JSON or CSV."""
    record = records[0]
    driver = record.get("amdgpu_version", record.get("driver_version"))
    return replace(
        reading,
        versions=Versions(
            tool=missing.text(record.get("version")),
            library=missing.text(record.get("amdsmi_library_version")),
            rocm=missing.text(record.get("rocm_version")),
            driver=missing.text(driver),
        ),
    )


def _parse_other(reading: ToolReading, records: Sequence[Record]) -> ToolReading:
    return reading


_PARSERS: dict[str, Callable[[ToolReading, Sequence[Record]], ToolReading]] = {
    "metric": _parse_metric,
    "monitor": _parse_monitor,
    "default": _parse_default,
    "static": _parse_static,
    "list": _parse_list,
    "process": _parse_process,
    "topology": _parse_topology,
    "xgmi": _parse_xgmi,
    "rocm-smi": _parse_rocm_smi,
    "version": _parse_version_records,
}


# --- the Python module ----------------------------------------------------------------------------------------------


def _is_calls(document: Json) -> bool:
    return (
        isinstance(document, Mapping)
        and document.get("module") == "amdsmi"
        and bool({"devices", "polls", "global_calls"} & set(document))
    )


def _parse_calls(document: Json) -> ToolReading:
    if not isinstance(document, Mapping):
        return ToolReading(verdict=Verdict.NOT_AMD_SMI_OUTPUT)
    once = document.get("global_calls")
    failed = amdsmi_calls.error_code(once.get("amdsmi_init")) if isinstance(once, Mapping) else None
    if failed is not None:
        return ToolReading(verdict=amdsmi_calls.verdict_of_code(failed))
    devices = [_calls_of(entry) for entry in _flat_records(document.get("devices"))]
    if not devices and (polls := _flat_records(document.get("polls"))):
        devices = [polls[-1]]
    rows = [amdsmi_calls.parse_device(calls, index) for index, calls in enumerate(devices)]
    asked = frozenset(field for calls in devices for field in amdsmi_calls.asked_calls(calls))
    pairs = document.get("pair_calls")
    return ToolReading(
        verdict=verdict_of_rows(rows, asked),
        gpus=tuple(rows),
        devices=tuple(amdsmi_calls.parse_identity(calls, index) for index, calls in enumerate(devices)),
        processes=amdsmi_calls.parse_process_lists(devices),
        links=amdsmi_calls.parse_pairs(pairs, devices) if isinstance(pairs, Mapping) else (),
        versions=_module_versions(once if isinstance(once, Mapping) else {}, rows),
    )


def _calls_of(entry: Record) -> Record:
    calls = entry.get("calls")
    return calls if isinstance(calls, Mapping) else {}


def _module_versions(once: Record, rows: Sequence[GpuRow]) -> Versions:
    library, rocm = once.get("amdsmi_get_lib_version"), once.get("amdsmi_get_rocm_version")
    numbers = (
        [str(library[key]) for key in ("major", "minor", "release") if key in library]
        if isinstance(library, Mapping)
        else []
    )
    return Versions(
        library=".".join(numbers) or None,
        rocm=missing.text(rocm[1]) if isinstance(rocm, list) and len(rocm) > 1 else None,
        driver=next((row.driver_version for row in rows if row.driver_version), None),
    )


# --- text -----------------------------------------------------------------------------------------------------------


def _parse_text(text: str) -> ToolReading | None:
    for parse in (
        _parse_csv,
        _parse_by_pid,
        _parse_blocks,
        _parse_default_text,
        _parse_concise,
        _parse_columns,
        _parse_version,
        _parse_log,
    ):
        if reading := parse(text):
            return reading
    return None


def _parse_csv(text: str) -> ToolReading | None:
    start = re.search(r"^(?:timestamp,)?(?:gpu|device|gpu_id|tool)(?:,\S[^\n]*)$", text, re.MULTILINE)
    if not start:
        return None
    parsed = tables.parse_csv_tables(text[start.start() :])
    if not parsed:
        return ToolReading(verdict=Verdict.NO_GPU)
    if cards := rocm_smi.cards_of_csv(parsed[0]):
        return _parse_rocm_smi(ToolReading(verdict=Verdict.OK), cards)
    parts: dict[str, _Part] = {}
    for table in parsed:
        parts |= {part.kind: part for part in _split_records(table, True) or [] if part.kind not in parts}
    return _parse_parts(parts) if parts else None


def _parse_by_pid(text: str) -> ToolReading | None:
    """`amd-smi process --sort-by-pid`: a line per process, below it one per device."""
    records: list[Record] = []
    owner: Record = {}
    for line in text.splitlines():
        if head := re.match(r"PID: (\d+)  NAME: (.*)$", line):
            owner = {"pid": head.group(1), "name": head.group(2)}
        elif owner and (row := re.match(r"\s+GPU: (\d+)  MEM: (\S+ ?\S*)", line)):
            records.append({**owner, "gpu": row.group(1), "vram_mem": row.group(2)})
    return _parse_process(ToolReading(verdict=Verdict.OK), records) if records else None


def _parse_blocks(text: str) -> ToolReading | None:
    records = [record for record in tables.parse_indented(text) if "gpu" in record and len(record) > 1]
    if records:
        parts = _split_records(records, False)
        return _parse_parts({part.kind: part for part in parts}) if parts else None
    if cards := rocm_smi.cards_of_lines(text):
        return _parse_rocm_smi(ToolReading(verdict=Verdict.OK), cards)
    return None


def _parse_default_text(text: str) -> ToolReading | None:
    table = monitor.parse_default_table(text)
    if table is None:
        return None
    rows, processes = table
    asked = frozenset({"gfx_activity_percent", "vram_total_bytes"})
    return ToolReading(
        verdict=verdict_of_rows(rows, asked),
        gpus=rows,
        processes=amd_smi_json.parse_processes(processes),
        versions=_versions(text),
    )


def _parse_concise(text: str) -> ToolReading | None:
    rows = rocm_smi.parse_concise(text)
    return None if rows is None else ToolReading(verdict=verdict_of_rows(rows, _BARE), gpus=rows)


def _parse_columns(text: str) -> ToolReading | None:
    table = monitor.parse_monitor_text(text)
    if table is None or amd_smi_json.kind_of(table[0][0] if table[0] else {}) not in ("monitor", "metric"):
        return None
    devices, listed = table
    processes: tuple[ProcessRow, ...] = amd_smi_json.parse_processes(listed)
    return replace(_parse_monitor(ToolReading(verdict=Verdict.OK), devices), processes=processes)


def _parse_version(text: str) -> ToolReading | None:
    """`AMDSMI Tool: 25.3.0 | AMDSMI Library version: 25.3.0 | ROCm version: 6.4.0 | amdgpu version: 6.12.12 | ...`."""
    versions = _versions(text)
    if versions is None:
        return None
    failed = verdict_of_text(text)
    known = failed in (Verdict.NO_GPU, Verdict.DRIVER_NOT_LOADED, Verdict.NO_PERMISSION, Verdict.LIBRARY_MISSING)
    return ToolReading(verdict=failed if known else Verdict.OK, versions=versions)


def _versions(text: str) -> Versions | None:
    if not re.search(r"AMDSMI Tool:|AMD-SMI \d", text):
        return None

    def find(pattern: str) -> str | None:
        found = re.search(pattern, text)
        return missing.text(found.group(1)) if found else None

    return Versions(
        tool=find(r"(?:AMDSMI Tool:|AMD-SMI) *([^\s|]+)"),
        library=find(r"AMDSMI Library version: *([^\s|]+)"),
        rocm=find(r"ROCm version: *([^\s|]+)"),
        driver=find(r"(?:amdgpu|Driver) version: *([^\s|]+)"),
    )


def _parse_log(text: str) -> ToolReading | None:
    """A client's fdinfo or a log of RCCL: readable, without rows."""
    return ToolReading(verdict=Verdict.OK) if fdinfo.is_fdinfo(text) or _NCCL.search(text) else None
