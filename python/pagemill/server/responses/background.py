"""Responses that are generated while no client waits for them.

The process that began a response runs it, and says in the store that it does; any process can
cancel it there. A response whose process has said nothing for long has failed with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

import msgspec

from pagemill.server.errors import ApiError
from pagemill.server.lifecycle import Lifecycle
from pagemill.server.responses.store import ResponseStore
from pagemill.server.responses.whole import ResponseSource, whole_response
from pagemill.server.responses.wording import ResponseWording

LOST_AFTER_S = 60.0
_LOGGER = logging.getLogger("pagemill.server")
_LOOK_S = 1.0  # how often the store is asked whether a response is cancelled
_END_GRACE_S = 5.0


class BackgroundResponses:
    """Those of this process. A server that drains waits for them as for others."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._running: set[asyncio.Task[None]] = set()

    def start(
        self, store: ResponseStore, owner: str, source: ResponseSource, wording: ResponseWording
    ) -> None:
        """Runs `source` to its end. The caller stores the response next, as running.

        Raises:
            ApiError: 503: the server drains; the caller closes `source`.
        """
        self._lifecycle.enter()
        task = asyncio.create_task(_run(store, owner, source, wording))
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Waits until the ends of those that were aborted are stored."""
        if self._running:
            await asyncio.wait(self._running, timeout=_END_GRACE_S)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._lifecycle.leave()


async def _run(
    store: ResponseStore, owner: str, source: ResponseSource, wording: ResponseWording
) -> None:
    response = wording.response
    work = asyncio.ensure_future(whole_response(source, wording))
    try:
        while not work.done():
            await asyncio.wait({work}, timeout=_LOOK_S)
            if not work.done() and not await store.still_wanted(owner, response.id):
                return
        try:
            work.result()
        except ApiError as error:
            wording.end(error)
        except Exception:
            _LOGGER.exception("a background response failed")
            wording.end(ApiError(500, "The server failed in an unexpected way; its log says more."))
        await store.end(owner, response.id, msgspec.json.encode(response))
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await work
        source.close()
