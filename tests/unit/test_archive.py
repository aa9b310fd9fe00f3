"""Tar streams that can be resumed."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.adapters.archive import FileContent, Source, TarContent
from backend.errors import Conflict

FILES = {
    "checkpoint-7/empty": b"",
    "checkpoint-7/one-block": b"x" * 512,
    "checkpoint-7/" + "long-name-" * 20 + "模型.json": b"y" * 700,
    "checkpoint-7/weights": bytes(range(256)) * 20,
}


def tar_of(folder: Path) -> TarContent:
    sources = []
    for index, (name, data) in enumerate(FILES.items()):
        path = folder / str(index)
        path.write_bytes(data)
        os.utime(path, ns=(1_700_000_000_123_456_789, 1_700_000_000_123_456_789))
        status = path.stat()
        sources.append(Source(name=name, path=path, size=status.st_size, modified_ns=status.st_mtime_ns))
    return TarContent(sources)


def read(content: TarContent | FileContent, start: int = 0, stop: int | None = None) -> bytes:
    return b"".join(content.read(start, content.size if stop is None else stop))


def test_tar_has_the_announced_size_and_the_files(tmp_path: Path) -> None:
    content = tar_of(tmp_path)
    data = read(content)
    assert len(data) == content.size
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        assert {name: file.read() for name, file in members.items() if file} == FILES


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.data())
def test_every_part_equals_that_part_of_the_whole(tmp_path: Path, data: st.DataObject) -> None:
    content = tar_of(tmp_path)
    whole = read(content)
    start = data.draw(st.integers(0, content.size))
    stop = data.draw(st.integers(start, content.size))
    assert read(content, start, stop) == whole[start:stop]


def test_tag_is_stable_and_follows_the_files(tmp_path: Path) -> None:
    first = tar_of(tmp_path)
    assert tar_of(tmp_path).etag == first.etag
    source = Source(name="a", path=tmp_path / "0", size=0, modified_ns=1)
    assert TarContent([source]).etag != first.etag


def test_file_that_changed_since_the_plan_is_not_sent(tmp_path: Path) -> None:
    content = tar_of(tmp_path)
    (tmp_path / "3").write_bytes(b"other")
    with pytest.raises(Conflict, match="weights changed"):
        read(content)


def test_file_above_eight_gigabytes_has_a_header_and_a_right_size(tmp_path: Path) -> None:
    path = tmp_path / "big"
    with path.open("wb") as file:
        file.truncate(9 << 30)
    status = path.stat()
    content = TarContent([Source(name="big", path=path, size=status.st_size, modified_ns=status.st_mtime_ns)])
    member = tarfile.TarInfo.frombuf(read(content, 1024, 1536), "utf-8", "strict")
    assert content.size > 9 << 30
    assert member.name == "big"
    assert read(content, content.size - 1024) == bytes(1024)


def test_file_content_is_the_file_as_it_was_found(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")
    content = FileContent(path)
    with path.open("ab") as file:
        file.write(b"more")
    assert read(content) == b"0123456789"
    assert read(content, 3, 5) == b"34"
    assert FileContent(path).etag != content.etag
    os.truncate(path, 4)
    with pytest.raises(Conflict):
        read(content)
