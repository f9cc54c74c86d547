"""How much text is being tokenized at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class TextGate:
    """Runs work on texts in threads, at most `capacity` bytes of text at once, in turn.

    A text larger than that runs alone. Belongs to one event loop.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._in_use = 0
        self._queue: deque[tuple[int, asyncio.Event]] = deque()

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """The result of `work`, run in a thread, on `size` bytes. Cancelling it ends a wait."""
        if self._queue or not self._fits(size):
            await self._wait(size)
        else:
            self._in_use += size
        # If this is cancelled now, the thread continues and keeps its share.
        running = asyncio.get_running_loop().run_in_executor(None, work)
        running.add_done_callback(lambda done: self._left(size, done))
        return await asyncio.shield(running)

    def _fits(self, size: int) -> bool:
        return self._in_use == 0 or self._in_use + size <= self._capacity

    async def _wait(self, size: int) -> None:
        entry = (size, asyncio.Event())
        self._queue.append(entry)
        try:
            await entry[1].wait()
        except BaseException:
            if entry in self._queue:
                self._queue.remove(entry)
            else:  # its turn came at the same moment
                self._in_use -= size
            self._admit()
            raise

    def _left(self, size: int, done: asyncio.Future[T]) -> None:
        done.exception()  # seen, even if the request has gone away
        self._in_use -= size
        self._admit()

    def _admit(self) -> None:
        while self._queue and self._fits(self._queue[0][0]):
            size, turn = self._queue.popleft()
            self._in_use += size
            turn.set()
