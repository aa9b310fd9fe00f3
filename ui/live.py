"""What the views say is new in, one message a run and second out to every browser that looks at it.

A message is built and encoded once, whoever many look. Each browser has a short queue of its own: one that cannot keep up
is told to fetch the whole picture again instead of holding up the others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping
from dataclasses import fields, replace

from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocket, WebSocketDisconnect

from backend.errors import NotFound
from backend.services.cursor import Cursor, parse_cursor
from backend.services.headline import Headline
from backend.services.views import State, Update, Views
from ui.encoding import already_encoded, curves_record, encode

NOT_SIGNED_IN, NO_SUCH_RUN, GOING_AWAY = 4401, 4404, 1001
QUEUE_LENGTH = 8
BEAT_SECONDS = 15.0
SHORTEST_LOOK = 0.25
"""Share of the interval that at least lies between two looks."""

_UNSENT = object()

log = logging.getLogger(__name__)
Message = dict[str, object]


class Client:
    """One WebSocket and the messages it has still to get; a number closes it with that code."""

    def __init__(self, socket: WebSocket) -> None:
        self.socket = socket
        self.queue: asyncio.Queue[str | int] = asyncio.Queue(QUEUE_LENGTH)

    def put(self, text: str, cursor: str) -> None:
        """Never waits: a reader that is too slow loses its queue and is told so."""
        if self.queue.full():
            self._clear()
            text = encode({"c": cursor, "reset": True}).decode()
        self.queue.put_nowait(text)

    def close(self, code: int) -> None:
        self._clear()
        self.queue.put_nowait(code)

    def _clear(self) -> None:
        while not self.queue.empty():
            self.queue.get_nowait()

    async def send_all(self) -> None:
        """Until the other side goes, or `close`."""
        while True:
            item = await self.queue.get()
            if isinstance(item, int):
                await self.socket.close(item)
                return
            await self.socket.send_text(item)

    async def drain(self) -> None:
        """Browsers have nothing to say; this notices when they go."""
        while (await self.socket.receive())["type"] != "websocket.disconnect":
            pass


class Channel:
    """Browsers that look at the same thing. Subclasses say what is new."""

    def __init__(self, interval: float) -> None:
        self.clients: set[Client] = set()
        self.users = 0
        """Clients and those on their way in."""
        self.lock = asyncio.Lock()
        self.interval = interval
        self.sent: dict[str, bytes] = {}
        self.spoke_at = time.monotonic()
        self.looked_at = 0.0

    @property
    def place(self) -> str:
        """Cursor after the last message."""
        raise NotImplementedError

    async def whats_new(self) -> Message:
        """Changes since the last call, {} when there are none."""
        raise NotImplementedError

    async def catch_up(self, after: str | None, log_offset: int | None) -> Message:
        """What a new reader at cursor `after` needs to be where the channel is."""
        raise NotImplementedError

    def is_behind(self, after: str | None) -> bool:
        """Whether a reader at cursor `after` has seen more than the channel has sent."""
        raise NotImplementedError

    async def welcome(self, after: str | None) -> None:
        """Be where the new reader is, or further. Many that come at once make no more than a few looks a second."""
        soonest = self.looked_at + self.interval * SHORTEST_LOOK
        if time.monotonic() < soonest and not self.is_behind(after):
            return
        await asyncio.sleep(max(0.0, soonest - time.monotonic()))
        if time.monotonic() >= self.looked_at + self.interval * SHORTEST_LOOK:
            await self.tick()

    async def tick(self) -> None:
        """Look once, tell everybody. The caller holds `lock`."""
        self.looked_at = time.monotonic()
        try:
            message = await self.whats_new()
        except NotFound:
            for client in self.clients:
                client.close(NO_SUCH_RUN)
            return
        except Exception as error:  # noqa: BLE001 - one bad file must not end the live view; it is logged and shown
            log.exception("live view")
            message = self._changed({"problem": f"{type(error).__name__}: {error}"})
        if not message and time.monotonic() - self.spoke_at > BEAT_SECONDS:
            message = {"beat": time.time()}
        if message:
            self.spoke_at = time.monotonic()
            text = encode({"c": self.place, **message}).decode()
            for client in self.clients:
                client.put(text, self.place)

    async def run(self) -> None:
        """Look every `interval` seconds while anybody does."""
        while True:
            await asyncio.sleep(self.interval)
            async with self.lock:
                await self.tick()

    def _changed(self, parts: Mapping[str, object]) -> Message:
        """Those parts that are not what was sent last, encoded."""
        encoded = {name: encode(part) for name, part in parts.items()}
        changed = {name: data for name, data in encoded.items() if self.sent.get(name) != data}
        self.sent.update(changed)
        return {name: already_encoded(data) for name, data in changed.items()}


class RunChannel(Channel):
    """Browsers on the page of one run."""

    def __init__(self, views: Views, job_id: str, interval: float) -> None:
        super().__init__(interval)
        self.views, self.job_id = views, job_id
        self.cursor: Cursor | None = None
        self.fields: dict[str, Mapping[str, object]] = {}

    @property
    def place(self) -> str:
        return str(self.cursor) if self.cursor else ""

    async def whats_new(self) -> Message:
        is_first = self.cursor is None
        update = await run_in_threadpool(self.views.update, self.job_id, self.cursor)
        self.cursor = update.cursor
        gpus = {"gpus": await run_in_threadpool(self.views.gpu_readings)}
        open_line = {} if update.log is None else {"open": update.log.open}
        same = self._changed({**gpus, "open": open_line, "reading": update.reading})
        same |= self._changed_fields({"job": update.job, "headline": _fields_of(update.headline)})
        once = message_of(update)
        if "open" not in same and "log" in once and update.log is not None and not update.log.lines:
            del once["log"]
        same.pop("open", None)
        return {} if is_first else {**same, **once}

    def _changed_fields(self, records: Mapping[str, Mapping[str, object]]) -> Message:
        """Of each record the fields that are not what was sent last: most of a job and its figures stay as they are."""
        before, self.fields = self.fields, {**self.fields, **records}
        found = {
            name: {key: value for key, value in record.items() if before.get(name, {}).get(key, _UNSENT) != value}
            for name, record in records.items()
        }
        return {name: changed for name, changed in found.items() if changed}

    def is_behind(self, after: str | None) -> bool:
        since = parse_cursor(after or "")
        if since is None or self.cursor is None or since.mark.load != self.cursor.mark.load:
            return self.cursor is None
        return any(theirs > ours for theirs, ours in zip(since.numbers, self.cursor.numbers, strict=True))

    async def catch_up(self, after: str | None, log_offset: int | None) -> Message:
        since = parse_cursor(after or "")
        if since and log_offset is not None:
            since = replace(since, log=log_offset)
        update = await run_in_threadpool(self.views.update, self.job_id, since, self.cursor)
        gpus = await run_in_threadpool(self.views.gpu_readings)
        return {**everything_of(update), "gpus": gpus, **message_of(update)}


class HomeChannel(Channel):
    """Browsers on every other page."""

    def __init__(self, views: Views, interval: float) -> None:
        super().__init__(interval)
        self.views = views
        self.count = 0

    @property
    def place(self) -> str:
        return str(self.count)

    async def whats_new(self) -> Message:
        changed = self._changed(parts_of(await run_in_threadpool(self.views.state)))
        self.count += bool(changed)
        return changed

    def is_behind(self, after: str | None) -> bool:
        return not self.sent

    async def catch_up(self, after: str | None, log_offset: int | None) -> Message:
        return {name: already_encoded(data) for name, data in self.sent.items() if name != "problem"}


class Hub:
    """All channels of a server."""

    def __init__(self, views: Views, interval: float = 1.0) -> None:
        self.views, self.interval = views, interval
        self._channels: dict[str, Channel] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def serve(self, socket: WebSocket, job_id: str, after: str | None, log_offset: int | None) -> None:
        """From the handshake to the end of one WebSocket. `job_id` "" = the home page."""
        client = Client(socket)
        channel = self._enter(job_id)
        try:
            async with channel.lock:
                await channel.welcome(after)
                message = await channel.catch_up(after, log_offset)
                await socket.send_text(encode({"c": channel.place, **message}).decode())
                channel.clients.add(client)
            await _first_to_end(client.send_all(), client.drain())
        except NotFound:
            await socket.close(NO_SUCH_RUN)
        except WebSocketDisconnect:
            pass
        finally:
            channel.clients.discard(client)
            self._leave(job_id, channel)

    async def close(self) -> None:
        """The server stops: tell every browser, so that it comes back by itself."""
        for task in self._tasks.values():
            task.cancel()
        for channel in self._channels.values():
            for client in channel.clients:
                client.close(GOING_AWAY)

    def _enter(self, job_id: str) -> Channel:
        channel = self._channels.get(job_id)
        if channel is None:
            channel = (
                RunChannel(self.views, job_id, self.interval) if job_id else HomeChannel(self.views, self.interval)
            )
            self._channels[job_id] = channel
            self._tasks[job_id] = asyncio.create_task(channel.run(), name=f"live {job_id or 'home'}")
        channel.users += 1
        return channel

    def _leave(self, job_id: str, channel: Channel) -> None:
        channel.users -= 1
        if not channel.users:
            del self._channels[job_id]
            self._tasks.pop(job_id).cancel()


def everything_of(update: Update) -> Message:
    """What a reader has to know who has seen none of it."""
    reading = {} if update.reading is None else {"reading": update.reading}
    return {"job": update.job, "headline": update.headline, **reading}


def message_of(update: Update) -> Message:
    """The parts of an update that hold something, named as in docs/contracts.md."""
    log_part = update.log
    parts: Message = {
        "reset": update.reset,
        "rows": curves_record(update.rows),
        "markers": update.markers,
        "events": update.events,
        "checkpoints": update.checkpoints,
        "can": update.can,
        "log": log_part if log_part and (log_part.lines or log_part.open) else None,
    }
    return {name: part for name, part in parts.items() if part or (name == "checkpoints" and part is not None)}


def parts_of(state: State) -> Message:
    """Top-level parts of the home page, to be compared one by one."""
    return _fields_of(state)


def _fields_of(record: State | Headline) -> dict[str, object]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


async def _first_to_end(*jobs: Coroutine[object, object, None]) -> None:
    """Run all until one ends, then stop the others. A connection that broke is an end, not an error."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    except (
        WebSocketDisconnect,
        RuntimeError,
    ) as error:  # RuntimeError: starlette, a send after the other side has gone
        log.debug("socket ended: %s", error)
    finally:
        for task in tasks:
            task.cancel()
