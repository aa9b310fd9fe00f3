"""Each complete object of a growing file comes once, whatever happens to the file."""

from pathlib import Path

from backend.store.json_lines import JsonLines


def test_half_a_line_waits_for_its_rest(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = JsonLines(path)
    assert lines.read_new() == []
    path.write_bytes(b'{"a": 1}\n{"a"')
    assert lines.read_new() == [{"a": 1}]
    path.write_bytes(b'{"a": 1}\n{"a": 2}\nno json\n[3]\n')
    assert lines.read_new() == [{"a": 2}]
    assert lines.read_new() == []


def test_file_that_shrank_or_went_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": 2}\n')
    lines = JsonLines(path)
    assert len(lines.read_new()) == 2
    path.write_bytes(b'{"b": 1}\n')
    assert lines.read_new() == [{"b": 1}]
    path.unlink()
    assert lines.read_new() == []
    path.write_bytes(b'{"c": 1}\n')
    assert lines.read_new() == [{"c": 1}]
