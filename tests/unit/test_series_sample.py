"""Long runs: a sample at once, all of it when a thread has read it."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from backend.store.series import RunSeries
from backend.store.series_cache import AT_ONCE, SAMPLES_KEPT, Look, SeriesCache
from backend.store.series_sample import HEAD, TAIL, sample_run

STEPS = 9_000


class LongRun:
    """Recorder files of many steps, written at once: pauses, noise, logged values every `log_every` steps."""

    def __init__(self, folder: Path, ranks: int = 1, log_every: int = 1) -> None:
        self.folder, self.ranks, self.log_every = folder, ranks, log_every
        self.now, self.chance = 1_800_000_000.0, random.Random(5)
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, step: int = 0) -> None:
        self.now += 60
        begin = self._line(k="train_begin", step=step, max_steps=2 * STEPS, world_size=self.ranks)
        lines = [self._line(k="phase", phase="importing"), self._line(k="start", world_size=self.ranks), begin]
        self._write([lines] * self.ranks)

    def steps(self, first: int, last: int, tilt: float = 0.0) -> None:
        lines: list[list[str]] = [[] for _ in range(self.ranks)]
        for step in range(first, last + 1):
            seconds = 0.5 + self.chance.random() / 10
            self.now += seconds + (40 if step % 500 == 0 else 0)
            for rank, own in enumerate(lines):
                own.append(
                    self._line(k="step", s=step, dt=seconds + rank / 1e3, data=0.01, tok=100 + rank, pad=5, mem=7)
                )
            if step % self.log_every == 0:
                lines[0].append(self._line(k="log", s=step, epoch=step / 1e4, v={"loss": 3 / (1 + step / 1e3) + tilt}))
        self._write(lines)

    def finish(self, step: int) -> None:
        self._write([[self._line(k="train_end", s=step), self._line(k="done", ok=True)]] * self.ranks)

    def _line(self, **fields: object) -> str:
        return json.dumps({"t": self.now, **fields}, separators=(",", ":")) + "\n"

    def _write(self, lines: list[list[str]]) -> None:
        for rank, own in enumerate(lines):
            with (self.folder / f"rank-{rank}.jsonl").open("a") as file:
                file.writelines(own)


def exact(folder: Path) -> RunSeries:
    run = RunSeries(folder)
    run.refresh()
    return run


def sampled(folder: Path) -> RunSeries:
    run = sample_run(folder, clock=lambda: 0.0)
    run.refresh()
    return run


def points(run: RunSeries, key: str) -> dict[float, float]:
    curve = run.curves([key])[key]
    assert (np.diff(curve.x) > 0).all()
    return dict(zip(curve.x.tolist(), curve.y.tolist(), strict=True))


def check_sample(sample: RunSeries, whole: RunSeries, *, estimates: tuple[str, ...] = ("tokens",)) -> None:
    """True points only, both ends, and something of every twentieth of the way."""
    assert set(sample.names()) == set(whole.names())
    for key in whole.names():
        some, all_ = points(sample, key), points(whole, key)
        assert len(some) < len(all_) / 2, key
        if key not in estimates:
            assert some.items() <= all_.items(), key
        ends = list(all_)
        assert (min(some), max(some)) == (ends[0], ends[-1]), key
        counts, _ = np.histogram(list(some), 20, (ends[0], ends[-1]))
        assert counts.min() > 0, key


@pytest.mark.parametrize(("ranks", "log_every"), [(1, 1), (1, 200), (3, 10)])
def test_sample_holds_true_points_from_end_to_end(tmp_path: Path, ranks: int, log_every: int) -> None:
    files = LongRun(tmp_path, ranks, log_every)
    files.start()
    files.steps(1, STEPS)
    sample, whole = sampled(tmp_path), exact(tmp_path)
    if log_every < 200:
        check_sample(sample, whole)
    else:
        assert points(sample, "loss") == points(whole, "loss")
    assert points(sample, "tokens")[STEPS] == pytest.approx(points(whole, "tokens")[STEPS], rel=0.01)
    now, then = sample.progress(), whole.progress()
    assert (now.step, now.loss, now.epoch, now.last_step_at) == (then.step, then.loss, then.epoch, then.last_step_at)
    assert now.seconds.tolist() == then.seconds.tolist()
    assert sample.load != whole.load


def test_sample_goes_on_with_what_is_appended(tmp_path: Path) -> None:
    files = LongRun(tmp_path, 2)
    files.start()
    files.steps(1, STEPS)
    sample = sampled(tmp_path)
    mark = sample.mark()
    files.steps(STEPS + 1, STEPS + 3)
    sample.refresh()
    changes = sample.changes(mark, sample.mark())
    assert changes is not None
    assert changes["loss"].x.tolist() == changes["seconds_per_step"].x.tolist() == [STEPS + 1, STEPS + 2, STEPS + 3]


def test_sample_leaves_out_steps_that_a_restart_went_back_behind(tmp_path: Path) -> None:
    """But for those between the restart and the next window: at most 100 of these steps."""
    files = LongRun(tmp_path, 2)
    files.start()
    files.steps(1, 5_000)
    given_up = exact(tmp_path)
    files.start(step=3_000)
    files.steps(3_001, STEPS, tilt=9.0)
    sample, whole = sampled(tmp_path), exact(tmp_path)
    check_sample(sample, whole, estimates=tuple(whole.names()))
    for key in ("loss", "seconds_per_step"):
        kept = points(whole, key)
        others = {step: value for step, value in points(sample, key).items() if kept[step] != value}
        assert others.items() <= points(given_up, key).items()
        assert all(3_000 < step <= 3_100 for step in others)


@pytest.mark.parametrize("back_at", [50, STEPS - 30])
def test_restart_near_an_end_is_seen_as_one(tmp_path: Path, back_at: int) -> None:
    files = LongRun(tmp_path, 2)
    files.start()
    files.steps(1, back_at)
    files.start(step=back_at - 20)
    files.steps(back_at - 19, STEPS)
    files.finish(STEPS)
    sample, whole = sampled(tmp_path), exact(tmp_path)
    check_sample(sample, whole)
    now, then = sample.progress().segment, whole.progress().segment
    assert now is not None and then is not None
    assert (now.index, now.begin_step, now.ok) == (then.index, then.begin_step, True) == (1, back_at - 20, True)


@pytest.mark.parametrize("size", [0, 1, HEAD, HEAD + 1, HEAD + TAIL, HEAD + TAIL + 4000])
def test_short_file_is_its_own_sample(tmp_path: Path, size: int) -> None:
    files = LongRun(tmp_path / "long")
    files.start()
    files.steps(1, 3_000)
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "rank-0.jsonl").write_bytes((tmp_path / "long" / "rank-0.jsonl").read_bytes()[:size])
    sample, whole = sampled(tmp_path / "cut"), exact(tmp_path / "cut")
    for key in whole.names():
        if size <= HEAD + TAIL:
            assert points(sample, key) == points(whole, key)
        assert max(points(sample, key)) == max(points(whole, key))


def test_slow_disk_gives_a_coarser_sample_not_a_later_one(tmp_path: Path) -> None:
    files = LongRun(tmp_path)
    files.start()
    files.steps(1, STEPS)
    ticks = iter(np.arange(0.0, 99.0, 0.05).tolist())
    coarse = sample_run(tmp_path, clock=lambda: next(ticks))
    coarse.refresh()
    assert coarse.steps.size < sampled(tmp_path).steps.size
    check_sample_ends = points(coarse, "loss")
    assert (min(check_sample_ends), max(check_sample_ends)) == (1, STEPS)


# ---- read by a thread ----


class Gate:
    """Holds the reading thread up after its first portion until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.held: set[int] = set()

    def wait_for(self, threads: int) -> None:
        pause = threading.Event()
        for _ in range(2_000):
            if len(self.held) >= threads:
                return
            pause.wait(0.01)
        raise AssertionError(f"{len(self.held)} threads of {threads} came")

    def __call__(self) -> None:
        self.held.add(threading.get_ident())
        assert self.opened.wait(20)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.fixture
def long_run(tmp_path: Path) -> LongRun:
    files = LongRun(tmp_path / "recorder")
    files.start()
    files.steps(1, STEPS)
    return files


def settled(cache: SeriesCache, folder: Path) -> Look:
    """What is looked at when the thread has come to its end."""
    cache.open(folder)
    return cache.look(folder)


def same(run: RunSeries, other: RunSeries) -> bool:
    return run.names() == other.names() and all(
        repr(points(run, key)) == repr(points(other, key)) for key in run.names()
    )


def test_long_run_is_a_sample_until_it_has_been_read(long_run: LongRun, gate: Gate) -> None:
    cache = SeriesCache(quick_bytes=100_000, head_start=0.0, pause=gate)
    first, second = cache.look(long_run.folder), cache.look(long_run.folder)
    assert first.share is not None and 0 <= first.share < 1
    assert second.run is first.run
    assert points(first.run, "loss").items() < points(exact(long_run.folder), "loss").items()
    gate.opened.set()
    after = settled(cache, long_run.folder)
    assert after.share is None and same(after.run, exact(long_run.folder))
    # A reader of the sample is told to start anew: none of its points is taken for one of the whole.
    assert after.run.changes(first.run.mark(), after.run.mark()) is None


def test_run_that_grows_while_it_is_read_loses_and_repeats_nothing(long_run: LongRun, gate: Gate) -> None:
    cache = SeriesCache(quick_bytes=100_000, head_start=0.0, pause=gate)
    look = cache.look(long_run.folder)
    mark = look.run.mark()
    long_run.steps(STEPS + 1, STEPS + 5)
    look = cache.look(long_run.folder)
    changes = look.run.changes(mark, look.run.mark())
    assert changes is not None and changes["loss"].x.tolist() == [STEPS + n for n in range(1, 6)]
    gate.opened.set()
    after = settled(cache, long_run.folder)
    long_run.steps(STEPS + 6, STEPS + 6)
    after = cache.look(long_run.folder)
    assert after.share is None and same(after.run, exact(long_run.folder))


@pytest.mark.parametrize("how", ["cut", "replaced", "gone"])
def test_files_that_change_under_the_reader_are_read_anew(long_run: LongRun, gate: Gate, how: str) -> None:
    cache = SeriesCache(quick_bytes=100_000, head_start=0.0, pause=gate)
    path = long_run.folder / "rank-0.jsonl"
    look = cache.look(long_run.folder)
    assert look.share is not None
    before = look.run.mark()
    if how == "cut":
        with path.open("r+b") as file:
            file.truncate(0)
    else:
        path.unlink()
    if how != "gone":
        long_run.start()
        long_run.steps(1, 700, tilt=5.0)
    while_reading = cache.look(long_run.folder)
    assert while_reading.run.mark().load != before.load
    gate.opened.set()
    after = settled(cache, long_run.folder)
    assert after.share is None and same(after.run, exact(long_run.folder))
    assert bool(after.run.names()) == (how != "gone")


def test_whoever_needs_every_point_waits_for_it(long_run: LongRun, gate: Gate) -> None:
    cache = SeriesCache(quick_bytes=100_000, head_start=0.0, pause=gate)
    assert cache.look(long_run.folder).share is not None
    gate.wait_for(1)
    opened: list[RunSeries] = []
    asker = threading.Thread(target=lambda: opened.append(cache.open(long_run.folder)))
    asker.start()
    asker.join(0.1)
    assert not opened
    gate.opened.set()
    asker.join(20)
    assert same(opened[0], exact(long_run.folder))


def test_after_a_restart_the_copy_is_shown_at_once(
    long_run: LongRun, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.store.series.WORTH_A_COPY", 1)
    gate.opened.set()
    settled(SeriesCache(quick_bytes=100_000, head_start=0.0, pause=gate, copies=tmp_path / "copies"), long_run.folder)
    _wait_for(tmp_path / "copies", 2)
    long_run.steps(STEPS + 1, STEPS + 9)
    gate.opened.clear()
    again = SeriesCache(quick_bytes=100_000, head_start=0.0, pause=gate, copies=tmp_path / "copies")
    look = again.look(long_run.folder)
    assert look.share is None and same(look.run, exact(long_run.folder))


def _wait_for(folder: Path, files: int) -> None:
    pause = threading.Event()
    for _ in range(500):
        if len(list(folder.glob("*.json"))) + len(list(folder.glob("*.f8"))) == files:
            return
        pause.wait(0.01)
    raise AssertionError(f"{folder} holds {list(folder.iterdir())}")


def test_reading_that_fails_is_told_to_whoever_asks(long_run: LongRun) -> None:
    def fail() -> None:
        raise OSError("disk is gone")

    cache = SeriesCache(quick_bytes=100_000, head_start=0.0, pause=fail)
    cache.look(long_run.folder)
    (long_run.folder / "rank-0.jsonl").unlink()
    (long_run.folder / "rank-0.jsonl").mkdir()
    with pytest.raises(OSError, match="rank-0"):
        for _ in range(3):
            cache.open(long_run.folder)


def test_torn_last_line_is_taken_when_its_rest_comes(long_run: LongRun, gate: Gate) -> None:
    path = long_run.folder / "rank-0.jsonl"
    whole_line = f'{{"t":{long_run.now + 1},"k":"log","s":{STEPS + 1},"v":{{"loss":0.5}}}}\n'
    with path.open("a") as file:
        file.write(whole_line[:30])
    cache = SeriesCache(quick_bytes=100_000, head_start=0.0, pause=gate)
    assert max(points(cache.look(long_run.folder).run, "loss")) == STEPS
    with path.open("a") as file:
        file.write(whole_line[30:])
    assert points(cache.look(long_run.folder).run, "loss")[STEPS + 1] == 0.5
    gate.opened.set()
    after = settled(cache, long_run.folder)
    assert (points(after.run, "loss")[STEPS + 1], after.run.skipped) == (0.5, 0)


def test_extremes_are_there_when_all_has_been_read(long_run: LongRun, gate: Gate) -> None:
    path = long_run.folder / "rank-0.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    spike = next(i for i, line in enumerate(lines) if '"k":"log"' in line and '"s":4321,' in line)
    lines[spike] = lines[spike].replace('"loss":', '"loss":77')
    path.write_text("".join(lines))
    cache = SeriesCache(quick_bytes=100_000, head_start=0.0, pause=gate)
    assert set(points(cache.look(long_run.folder).run, "loss").items()) <= set(
        points(exact(long_run.folder), "loss").items()
    )
    gate.opened.set()
    losses = points(settled(cache, long_run.folder).run, "loss")
    assert max(losses, key=lambda step: losses[step]) == 4321


def test_run_that_is_quickly_read_is_never_a_sample(long_run: LongRun) -> None:
    cache = SeriesCache()
    look = cache.look(long_run.folder)
    assert look.share is None and same(look.run, exact(long_run.folder))


def test_run_whose_turn_has_not_come_is_read_by_whoever_needs_every_point(tmp_path: Path, gate: Gate) -> None:
    cache = SeriesCache(quick_bytes=100_000, head_start=0.0, pause=gate)
    folders = [tmp_path / str(number) for number in range(AT_ONCE + 1)]
    for number, folder in enumerate(folders, 1):
        files = LongRun(folder)
        files.start()
        files.steps(1, 3_000)
        assert cache.look(folder).share is not None
        gate.wait_for(min(number, AT_ONCE))
    *_, last = folders
    assert same(cache.open(last), exact(last))
    assert cache.look(last).share is None
    assert cache.look(folders[0]).share is not None


def test_many_samples_are_not_all_kept(tmp_path: Path, gate: Gate) -> None:
    cache = SeriesCache(quick_bytes=100_000, head_start=0.0, pause=gate)
    files = LongRun(tmp_path / "0")
    files.start()
    files.steps(1, 1_000)
    loads = []
    for number in range(SAMPLES_KEPT + 1):
        folder = tmp_path / str(number)
        folder.mkdir(exist_ok=True)
        if number:
            (folder / "rank-0.jsonl").write_bytes((tmp_path / "0" / "rank-0.jsonl").read_bytes())
        loads.append(cache.look(folder).run.load)
    assert cache.look(tmp_path / "1").run.load == loads[1]
    assert cache.look(tmp_path / "0").run.load != loads[0]
