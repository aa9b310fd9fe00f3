"""Ranges, tags and names of downloads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from starlette.requests import Request
from starlette.types import Message, Scope

from ui.downloads import LARGE, Gate, Unsatisfiable, disposition, requested_range, send


class Bytes:
    size, etag, modified_at = 100, '"tag"', 0.0

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        yield bytes(stop - start)


def ask(**headers: str) -> tuple[int, int] | None:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return requested_range(Request({"type": "http", "method": "GET", "headers": named}), Bytes())


@pytest.mark.parametrize(("header", "expected"), [
    ("bytes=0-9", (0, 10)), ("bytes=10-", (10, 100)), ("bytes=-10", (90, 100)), ("bytes=-1000", (0, 100)),
    ("bytes=0-999", (0, 100)), ("bytes=99-99", (99, 100)), ("bytes = 1 - 2", (1, 3)),
    ("", None), ("bytes=-", None), ("bytes=5-1", None), ("items=0-1", None), ("bytes=0-1,4-5", None), ("bytes=a-b", None),
    ("bytes=0-" + "9" * 30, None),
])  # fmt: skip
def test_range(header: str, expected: tuple[int, int] | None) -> None:
    assert ask(range=header) == expected


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0"])
def test_range_behind_the_end(header: str) -> None:
    with pytest.raises(Unsatisfiable):
        ask(range=header)


def test_range_of_another_state_of_the_file_gives_the_whole() -> None:
    assert ask(range="bytes=5-", if_range='"tag"') == (5, 100)
    assert ask(range="bytes=5-", if_range='"old"') is None
    assert ask(range="bytes=5-", if_range="Wed, 21 Oct 2026 07:28:00 GMT") is None


def test_name_with_other_letters_and_quotes() -> None:
    assert (
        disposition('模 "x"\n.tar')
        == "attachment; filename=\"___x__.tar\"; filename*=UTF-8''%E6%A8%A1%20%22x%22%0A.tar"
    )


class Slow(Bytes):
    size = LARGE

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        while True:
            time.sleep(0.001)
            yield b"x"


async def run_one(gate: Gate, content: Bytes, gone: asyncio.Event) -> list[Message]:
    """One request served until its client is `gone`."""
    scope: Scope = {"type": "http", "method": "GET", "headers": []}
    sent: list[Message] = []

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def note(message: Message) -> None:
        sent.append(message)

    await send(Request(scope), content, "a.bin", gate=gate)(scope, receive, note)
    return sent


def test_one_download_too_many_is_refused_in_words_and_the_place_of_a_lost_reader_is_free_again() -> None:
    async def story() -> None:
        gate, gone, never = Gate(2), asyncio.Event(), asyncio.Event()
        running = [asyncio.create_task(run_one(gate, Slow(), gone)) for _ in range(2)]
        while gate.running < 2:
            await asyncio.sleep(0.001)
        start, body = await run_one(gate, Slow(), never)
        assert start["status"] == 503 and (b"retry-after", b"30") in start["headers"]
        assert b"2 large downloads are running" in body["body"] and b"content-disposition" not in dict(start["headers"])
        assert (await run_one(gate, Bytes(), never))[0]["status"] == 200, "a small file never waits"
        gone.set()
        await asyncio.gather(*running)
        assert gate.running == 0

    asyncio.run(asyncio.wait_for(story(), 20))
