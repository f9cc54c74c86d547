"""The stream of a response that runs in the background: its events are stored, and read from there.

Any process can read them, from any event on, while the response runs and after it. They are stored
several at a time, so that a stream is behind its response by a part of a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pagemill.server.answer import Events
from pagemill.server.errors import ApiError
from pagemill.server.responses.store import LOST_AFTER_S, ResponseStore

_STORE_S = 0.1
_LOOK_S = 0.1
_MAX_UNREAD_BYTES = 2**20
_END = b"\n\n"  # of an event


async def store_events(
    begun: bytes, events: Events, add: Callable[[int, bytes], Awaitable[bool]]
) -> None:
    """Gives the events to `add` as they come, with the number of the first, until they end.

    Args:
        begun: the first events.
        events: the others. Tokens that come together are one event.
        add: stores events; False: no more can be.
    """
    news = asyncio.Event()
    events.listen(news.set)
    data, number, is_stored = begun, 0, True
    while True:
        data += events.take(behind=True)
        if data and is_stored:
            is_stored = await add(number, data)
            number += data.count(_END)
        if events.ended:
            return
        data = b""
        await news.wait()
        news.clear()
        await asyncio.sleep(_STORE_S)


class StoredStream:
    """Implements `answer.Events`: the events of a stored response behind number `after`."""

    def __init__(self, store: ResponseStore, owner: str, response_id: str, after: int) -> None:
        self._store = store
        self._owner = owner
        self._response_id = response_id
        self._after = after
        self._unread = b""
        self._is_over = False
        self._task: asyncio.Task[None] | None = None
        self._on_news: Callable[[], None] = lambda: None
        self.ended = False
        self.failure: ApiError | None = None  # its events say how the response ended

    def listen(self, on_news: Callable[[], None]) -> None:
        """See `Events`."""
        self._on_news = on_news
        if self._task is None:
            self._task = asyncio.create_task(self._follow())

    def take(self, behind: bool) -> bytes:
        """See `Events`."""
        del behind
        unread, self._unread = self._unread, b""
        self.ended = self._is_over
        return unread

    def close(self) -> None:
        """See `Events`. The response goes on."""
        if self._task is not None:
            self._task.cancel()

    async def _follow(self) -> None:
        """Reads until the response has ended, is deleted, or is lost with its process."""
        while True:
            before = self._after
            found = await self._store.events(self._owner, self._response_id, before)
            for first, data in [] if found is None else found.chunks:
                self._add(first, data)
            idle_s = None if found is None else found.idle_s
            if self._after > before:
                self._on_news()
            elif idle_s is None or idle_s > LOST_AFTER_S:
                break
            else:
                await asyncio.sleep(_LOOK_S)
            while len(self._unread) > _MAX_UNREAD_BYTES:
                await asyncio.sleep(_LOOK_S)
        self._is_over = True
        self._on_news()

    def _add(self, first: int, data: bytes) -> None:
        events = data.split(_END)[:-1]
        new = events[max(0, self._after + 1 - first) :]
        self._unread += b"".join([event + _END for event in new])
        self._after = max(self._after, first + len(events) - 1)
