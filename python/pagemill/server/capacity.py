"""A bound on what is in use at once."""

from __future__ import annotations

import asyncio
from collections import deque


class Capacity:
    """At most `capacity` is in use at once, in turn; more than that is used alone.

    Belongs to one event loop.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._in_use = 0
        self._queue: deque[tuple[int, asyncio.Event]] = deque()

    async def take(self, size: int) -> None:
        """Returns when `size` may be used, until `give`. Cancelling it ends a wait."""
        if not self._queue and self._fits(size):
            self._in_use += size
            return
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

    def give(self, size: int) -> None:
        """`size` is not used any more."""
        self._in_use -= size
        self._admit()

    def _fits(self, size: int) -> bool:
        return self._in_use == 0 or self._in_use + size <= self._capacity

    def _admit(self) -> None:
        while self._queue and self._fits(self._queue[0][0]):
            size, turn = self._queue.popleft()
            self._in_use += size
            turn.set()
