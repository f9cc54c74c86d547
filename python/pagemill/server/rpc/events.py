"""A stream of events as messages of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pagemill.server.answer import Events
from pagemill.server.error_shapes import ErrorShape
from pagemill.server.sse import failed_stream, payloads


async def write_events(
    source: Events, write: Callable[[bytes], Awaitable[None]], errors: ErrorShape
) -> None:
    """Writes the data of each event of `source` until it ends, and closes it.

    What comes while one is being written is merged: the next one has it all. `errors` is how
    `source` writes its failure.

    Raises:
        ApiError: the stream failed; it is not written as an event.
    """
    news = asyncio.Event()
    behind = False
    try:
        source.listen(news.set)
        while True:
            news.clear()
            data = source.take(behind)
            if source.ended and source.failure is not None:
                data = data.removesuffix(failed_stream(source.failure, errors))
            for payload in payloads(data):
                await write(payload)
            if source.ended:
                break
            behind = news.is_set()
            if not behind:
                await news.wait()
    finally:
        source.close()
    if source.failure is not None:
        raise source.failure
