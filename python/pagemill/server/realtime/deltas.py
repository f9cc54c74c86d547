"""The deltas of a generation, as the client of a session takes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from pagemill.render.assembly import ChoiceDelta
from pagemill.server.answer import Socket
from pagemill.server.generation import Generation


async def deltas(
    generation: Generation, socket: Socket, interval: int
) -> AsyncGenerator[ChoiceDelta]:
    """Each delta, until the end; `interval` tokens each. A client that is slow gets larger ones.

    Raises:
        ApiError: the generation failed.
    """
    news = asyncio.Event()
    generation.listen(news.set)
    portion = interval
    while True:
        for delta in generation.take(portion):
            yield delta
        if generation.ended:
            break
        await news.wait()
        news.clear()
        portion = 0 if socket.is_full else interval
        await socket.writable()
    if generation.failure is not None:
        raise generation.failure
