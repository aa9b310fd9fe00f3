"""How fast consoles and trainer logs are read, and with how much memory. Prints one line a case; needs nothing but Python.

    python benchmarks/log_parsing.py [MEGABYTES]

The logs are generated: the figures are of this machine and this moment. Time is CPU time of this process.
"""

from __future__ import annotations

import json
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from backend.parsing.console import ConsoleReader  # noqa: E402
from backend.parsing.console_facts import console_facts  # noqa: E402
from backend.parsing.diagnosis import HEAD_BYTES, TAIL_BYTES, KnownRun, diagnose_windows  # noqa: E402
from backend.parsing.lines import LineDecoder, LineSplitter  # noqa: E402
from backend.parsing.trainer_log import TrainerLog  # noqa: E402

PORTION = 1 << 16


def bars(step: int) -> bytes:
    """Ten redrawn bars, a dict and a line of words: what a training step leaves in a console.

    tqdm clears the bar, prints the dict and draws the bar of the same step again: the first of the ten is of the step before.
    """
    drawn = "".join(
        f"\r {shown % 100:3d}%|█████     | {shown}/1000000 [{at:02d}:00<10:00,  1.20s/it]"
        for at, shown in enumerate([step - 1, *[step] * 9])
    )
    loss = 2 - step / 1e6 + step * 7919 % 1000 / 1e4
    values = f"{{'loss': '{loss:.4f}', 'grad_norm': '0.8123', 'learning_rate': '9.1e-06', 'epoch': '{step / 3e5:.4f}'}}"
    return f"{drawn}\r{' ' * 50}\r{values}\n[INFO|2026-05-04 09:00:10] trainer:157 >> step {step} done\n".encode()


def words(step: int) -> bytes:
    """A line of words that no pattern knows."""
    return b"[WARNING|2026-05-04 09:00:10] data.converter:149 >> row %d was read and holds nothing of interest\n" % step


def deepspeed(step: int) -> bytes:
    """The two lines of steps_per_print."""
    return (
        b"[2026-05-04 07:31:14,976] [INFO] [logging.py:96:log_dist] [Rank 0] step=%d, skipped=5, lr=[1.19e-05], mom=[(0.9, 0.95)]"
        b"\n"
        b"[2026-05-04 07:31:15,003] [INFO] [timer.py:199:stop] epoch=0/micro_step=%d/global_step=%d, "
        b"RunningAvgSamplesPerSec=88.91, CurrSamplesPerSec=88.49, MemAllocated=2.71GB, MaxMemAllocated=17.38GB\n"
    ) % (step, step, step)


def torn(step: int) -> bytes:
    """Tracebacks of ranks, again and again: the most expensive text."""
    return b'[rank%d]: Traceback (most recent call last):\n[rank%d]:   File "/srv/train.py", line %d, in main\n' % (
        step % 8,
        step % 8,
        step,
    )


def portions(make: Callable[[int], bytes], size: int) -> Iterator[bytes]:
    """About `size` bytes in portions, as a follower of a growing file gets them."""
    step, made, held = 0, 0, b""
    while made < size:
        step += 1
        held += make(step)
        if len(held) >= PORTION:
            made += len(held)
            yield held
            held = b""


def measure(label: str, make: Callable[[int], bytes], size: int, feed: Callable[[bytes], object]) -> None:
    """CPU seconds for one log."""
    spent, read = 0.0, 0
    for portion in portions(make, size):
        started = time.process_time()
        feed(portion)
        spent += time.process_time() - started
        read += len(portion)
    print(f"{label:34} {read / 1e6:7.1f} MB  {spent:6.2f} s  {read / spent / 1e6:7.1f} MB/s")


def measure_memory(size: int) -> None:
    """Peak of Python's own memory while a console without points is read: it must not grow with the log."""
    for factor in (1, 4):
        reader = ConsoleReader()
        tracemalloc.start()
        for portion in portions(words, size * factor):
            reader.feed(portion)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        print(f"peak memory, {size * factor / 1e6:5.1f} MB of words      {peak / 1e6:7.2f} MB")


def trainer_log_line(step: int) -> bytes:
    """One row of trainer_log.jsonl."""
    row = {"current_steps": step, "total_steps": 10**6, "loss": 1.5, "lr": 1e-5, "epoch": step / 1e5, "percentage": 1.0}
    return (
        json.dumps(row | {"elapsed_time": "1:00:00", "remaining_time": "2:00:00", "total_tokens": step * 4096}).encode()
        + b"\n"
    )


def measure_windows() -> None:
    """Diagnosis of a console of any size: only both ends are read."""
    head = b"".join(portions(bars, HEAD_BYTES))[:HEAD_BYTES]
    tail = b"".join(portions(bars, TAIL_BYTES))[:TAIL_BYTES]
    started = time.process_time()
    found = diagnose_windows(head, tail, tail_offset=2 << 30, known=KnownRun(signal=9))
    print(f"diagnosis of a 2 GB console        {time.process_time() - started:6.2f} s  ({found.root_cause})")


def main() -> None:
    """Run all."""
    size = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 20_000_000
    measure("lines: cut", bars, size, LineSplitter().feed)
    measure("lines: decoded for the log view", words, size, LineDecoder().feed)
    reader = ConsoleReader()
    measure("console: bars, dicts, words", bars, size, reader.feed)
    print(f"{'':34} points {console_facts(reader).points}")
    for label, make in (
        ("console: words", words),
        ("console: DeepSpeed steps", deepspeed),
        ("console: tracebacks", torn),
    ):
        measure(label, make, size, ConsoleReader().feed)
    measure("trainer_log.jsonl", trainer_log_line, size // 4, TrainerLog().feed)
    measure_windows()
    measure_memory(2_000_000)


if __name__ == "__main__":
    main()
