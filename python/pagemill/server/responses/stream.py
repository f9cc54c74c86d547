"""A streamed response that begins before its first token, and ends when it is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from pagemill.server.answer import Events
from pagemill.server.errors import ApiError

Keep = Callable[[], Coroutine[Any, Any, None]]


class ResponseStream:
    """Events whose last ones wait until a client could continue the response."""

    def __init__(self, events: Events, begin: Callable[[], bytes], keep: Keep | None) -> None:
        """Begins a stream.

        Args:
            events: the generation's.
            begin: the first events, unless `events` has written them.
            keep: stores the response; None: it is not stored.
        """
        self._events = events
        self._begin: Callable[[], bytes] | None = begin
        self._keep = keep
        self._keeping: asyncio.Task[None] | None = None
        self._last = b""
        self._on_news: Callable[[], None] = lambda: None
        self.ended = False
        self.failure: ApiError | None = None

    def listen(self, on_news: Callable[[], None]) -> None:
        """See `Events`."""
        self._on_news = on_news
        self._events.listen(on_news)

    def take(self, behind: bool) -> bytes:
        """See `Events`."""
        if self._keeping is not None:
            return self._rest() if self._keeping.done() else b""
        data = self._events.take(behind)
        if self._begin is not None:
            data = self._begin() + data
            self._begin = None
        if self._events.ended:
            self.failure = self._events.failure
            if self._keep is not None:
                self._last = data
                self._keeping = asyncio.create_task(self._keep())
                self._keeping.add_done_callback(lambda _: self._on_news())
                return b""
            self.ended = True
        return data

    def close(self) -> None:
        """See `Events`."""
        self._events.close()

    def _rest(self) -> bytes:
        self.ended = True
        last, self._last = self._last, b""
        return last
