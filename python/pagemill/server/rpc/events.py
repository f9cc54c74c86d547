"""A stream of events as messages of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pagemill.server.answer import Events
from pagemill.server.error_shapes import ErrorShape
from pagemill.server.rpc.message import json_message
from pagemill.server.sse import failed_stream, payloads


class SlowReaderError(Exception):
    """The client took nothing of a stream for too long."""


async def write_events(
    source: Events,
    write: Callable[[bytes], Awaitable[None]],
    errors: ErrorShape,
    send_timeout_s: float,
) -> None:
    """Writes what `source` has until it ends, and closes it.

    What comes while a message is being written is merged: the next one has it all. `errors` is how
    `source` writes its failure.

    Raises:
        ApiError: the stream failed; it is not written as an event.
        SlowReaderError: one message took longer than `send_timeout_s`.
    """
    loop = asyncio.get_running_loop()
    news = asyncio.Event()
    source.listen(news.set)
    behind = False
    try:
        async with asyncio.timeout(None) as limit:
            while True:
                news.clear()
                data = source.take(behind)
                if source.ended and source.failure is not None:
                    data = data.removesuffix(failed_stream(source.failure, errors))
                for payload in payloads(data):
                    limit.reschedule(loop.time() + send_timeout_s)
                    await write(json_message(payload))
                limit.reschedule(None)
                if source.ended:
                    break
                behind = news.is_set()
                if not behind:
                    await news.wait()
    except TimeoutError:
        raise SlowReaderError from None
    finally:
        source.close()
    if source.failure is not None:
        raise source.failure
