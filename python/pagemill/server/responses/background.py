"""Responses that are generated while no client waits for them.

The process that began a response runs it, and says in the store that it does; any process can
cancel it there. A response whose process has said nothing for long has failed with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from pagemill.render.assembly import ChoiceDelta
from pagemill.server.errors import ApiError
from pagemill.server.lifecycle import Lifecycle
from pagemill.server.protocol.responses import Response
from pagemill.server.respond import ResponseEvents
from pagemill.server.responses.store import ResponseStore
from pagemill.server.responses.stored_stream import store_events
from pagemill.server.responses.whole import ResponseSource, whole_response
from pagemill.server.responses.wording import ResponseWording
from pagemill.server.tools.events import ToolEvent

OnEnd = Callable[[], Coroutine[Any, Any, None]]
_LOGGER = logging.getLogger("pagemill.server")
_LOOK_S = 1.0  # how often the store is asked whether a response is cancelled
_END_GRACE_S = 5.0


class BackgroundResponses:
    """Those of this process. A server that drains waits for them as for others."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._running: set[asyncio.Task[None]] = set()

    async def start(
        self,
        store: ResponseStore,
        owner: str,
        conversation: bytes,
        source: ResponseSource,
        wording: ResponseWording,
        stream_interval: int | None,
        on_end: OnEnd,
    ) -> Response:
        """Stores a response, as it is now, and runs it to its end.

        Args:
            store: where it is until then, and afterwards.
            owner: the key that it belongs to.
            conversation: what it answers.
            source: what answers; closed at the end.
            wording: of the response.
            stream_interval: tokens of an event, if its events are stored; None: they are not.
            on_end: called when the response has been stored, unless it was cancelled.

        Raises:
            ApiError: 503: the server drains; 500: it cannot be stored.
        """
        response = wording.response
        response.background = True
        begun = msgspec.structs.replace(response)
        try:
            self._lifecycle.enter()
            try:
                if not await store.put(
                    owner, response.id, conversation, msgspec.json.encode(begun), running=True
                ):
                    raise ApiError(500, "The response cannot be stored; the server's log says why.")
            except BaseException:
                self._lifecycle.leave()
                raise
        except BaseException:
            source.close()
            raise
        work = (
            whole_response(source, wording)
            if stream_interval is None
            else _streamed(store, owner, ResponseEvents(source, wording, stream_interval), wording)
        )
        task = asyncio.create_task(_run(store, owner, work, source, wording, on_end))
        self._running.add(task)
        task.add_done_callback(self._ended)
        return begun

    async def close(self) -> None:
        """Waits until the ends of those that were aborted are stored."""
        if self._running:
            await asyncio.wait(self._running, timeout=_END_GRACE_S)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._lifecycle.leave()


async def _streamed(
    store: ResponseStore,
    owner: str,
    events: ResponseEvents[ChoiceDelta | ToolEvent],
    wording: ResponseWording,
) -> None:
    add = functools.partial(store.add_events, owner, wording.response.id)
    await store_events(wording.begin(), events, add)


async def _run(
    store: ResponseStore,
    owner: str,
    work: Coroutine[Any, Any, object],
    source: ResponseSource,
    wording: ResponseWording,
    on_end: OnEnd,
) -> None:
    """Awaits `work`, which writes the response, as long as the response is wanted."""
    response = wording.response
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=_LOOK_S)
            if not task.done() and not await store.still_wanted(owner, response.id):
                return
        try:
            task.result()
        except ApiError as error:
            wording.end(error)
        except Exception:
            _LOGGER.exception("a background response failed")
            wording.end(ApiError(500, "The server failed in an unexpected way; its log says more."))
        item_ids = [item.id for item in response.output]
        if await store.end(owner, response.id, msgspec.json.encode(response), item_ids):
            await on_end()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
        source.close()
