"""How much text is being tokenized at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from pagemill.server.capacity import Capacity

T = TypeVar("T")


class TextGate:
    """Runs work on texts in threads, at most `capacity` bytes of text at once, in turn.

    A text larger than that runs alone. Belongs to one event loop.
    """

    def __init__(self, capacity: int) -> None:
        self._room = Capacity(capacity)

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """The result of `work`, run in a thread, on `size` bytes. Cancelling it ends a wait."""
        await self._room.take(size)
        # If this is cancelled now, the thread continues and keeps its share.
        running = asyncio.get_running_loop().run_in_executor(None, work)
        running.add_done_callback(lambda done: self._left(size, done))
        return await asyncio.shield(running)

    def _left(self, size: int, done: asyncio.Future[T]) -> None:
        done.exception()  # seen, even if the request has gone away
        self._room.give(size)
