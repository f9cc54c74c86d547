"""Work in threads, which cannot be cancelled: it is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from pagemill.render.stop import Stop
from pagemill.server.capacity import Capacity

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """At most `count` threads, which run what tenants give them in turn, and one more for a tenant
    that has none of them (`Capacity`). Belongs to one event loop."""

    def __init__(self, count: int, name: str) -> None:
        self._free = Capacity(count, spare=1)
        self._executor = ThreadPoolExecutor(count + 1, name)

    async def run(self, tenant: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `work`, run in a thread.

        Cancelling it ends a wait for a thread; nothing of `work` is kept then. If a thread has
        begun, it raises CancelledError when the thread has ended, so that what the caller releases
        afterwards is not in use any more.
        """
        return await self.run_with(Stop(), tenant, work, *args, **kwargs)

    async def run_with(
        self, stop: Stop, tenant: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As `run`, and cancelling it sets `stop`, by which `work` can end early."""
        await self._free.take(1, tenant)
        try:
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self._executor, lambda: work(*args, **kwargs))
            return await _ended(running, stop)
        finally:
            self._free.give(1, tenant)


async def _ended(running: asyncio.Future[T], stop: Stop) -> T:
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError as error:
            cancelled = error
            stop.set()
    if cancelled is not None:
        running.exception()  # seen
        raise cancelled
    return running.result()
