"""Work in threads, which cannot be cancelled: it is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from pagemill.server.capacity import Capacity

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """At most `count` threads, which run what they are given in turn. Belongs to one event loop."""

    def __init__(self, count: int, name: str) -> None:
        self._free = Capacity(count)
        self._executor = ThreadPoolExecutor(count, name)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `work`, run in a thread.

        Cancelling it ends a wait for a thread; nothing of `work` is kept then. If a thread has
        begun, it raises CancelledError when the thread has ended, so that what the caller releases
        afterwards is not in use any more.
        """
        await self._free.take(1)
        try:
            loop = asyncio.get_running_loop()
            return await _ended(loop.run_in_executor(self._executor, lambda: work(*args, **kwargs)))
        finally:
            self._free.give(1)


async def _ended(running: asyncio.Future[T]) -> T:
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        running.exception()  # seen
        raise cancelled
    return running.result()
