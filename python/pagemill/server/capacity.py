"""A bound on what is in use at once, shared among tenants."""

from __future__ import annotations

import asyncio
from collections import deque


class Capacity:
    """At most `capacity` is in use at once; more than that is used alone. The tenants that wait
    take turns: next is the one that uses least, and among equals the one that was served longest
    ago. Within a tenant the order is that of arrival.

    `spare` comes on top, for a tenant that uses nothing yet: one that uses the whole capacity does
    not keep the others waiting until it is done. Belongs to one event loop.
    """

    def __init__(self, capacity: int, spare: int = 0) -> None:
        self._capacity = capacity
        self._spare = spare
        self._in_use = 0
        self._used: dict[str, int] = {}
        """By tenant; those that use nothing are missing."""
        self._queues: dict[str, deque[tuple[int, asyncio.Event]]] = {}
        """What waits, by tenant, in the order of their turns; none is empty."""

    async def take(self, size: int, tenant: str = "") -> None:
        """Returns when `tenant` may use `size`, until `give`. Cancelling it ends a wait."""
        entry = (size, asyncio.Event())
        self._queues.setdefault(tenant, deque()).append(entry)
        self._admit()
        if entry[1].is_set():
            return
        try:
            await entry[1].wait()
        except BaseException:
            if entry[1].is_set():  # its turn came at the same moment
                self.give(size, tenant)
            else:
                self._leave(entry, tenant)
                self._admit()
            raise

    def give(self, size: int, tenant: str = "") -> None:
        """`tenant` does not use `size` any more."""
        self._use(-size, tenant)
        self._admit()

    def _admit(self) -> None:
        while self._queues:
            tenant = min(self._queues, key=self._uses)
            entry = self._queues[tenant][0]
            size, turn = entry
            if not self._fits(size, tenant):
                return
            self._leave(entry, tenant)
            if tenant in self._queues:  # its next turn is behind the others'
                self._queues[tenant] = self._queues.pop(tenant)
            self._use(size, tenant)
            turn.set()

    def _fits(self, size: int, tenant: str) -> bool:
        spare = 0 if self._uses(tenant) else self._spare
        return self._in_use == 0 or self._in_use + size <= self._capacity + spare

    def _leave(self, entry: tuple[int, asyncio.Event], tenant: str) -> None:
        self._queues[tenant].remove(entry)
        if not self._queues[tenant]:
            del self._queues[tenant]

    def _use(self, size: int, tenant: str) -> None:
        self._in_use += size
        self._used[tenant] = self._uses(tenant) + size
        if not self._used[tenant]:
            del self._used[tenant]

    def _uses(self, tenant: str) -> int:
        return self._used.get(tenant, 0)
