"""Requests of `/pooling` with `data`, which a plugin reads (`--io-processor-plugin`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
import numpy as np

from pagemill.inputs.io_processor import IOProcessor
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.protocol.completion import MAX_PROMPTS

T = TypeVar("T")

MAX_WAITING = 256
"""Requests that a plugin works on, or that wait for it."""
_THREADS = 4
_MAX_REFUSAL_CHARS = 1000


class DataPlugin:
    """A plugin for the requests of one server. Belongs to one event loop."""

    def __init__(self, processor: IOProcessor) -> None:
        self._processor = processor
        self._num_waiting = 0
        self._threads = ThreadPoolExecutor(_THREADS, "io-processor")

    async def read(self, data: Any, request_id: str) -> tuple[Any, list[str | list[int]]]:
        """What the plugin makes of a request's `data`, and its prompts.

        Raises:
            ApiError: 400 if the plugin refuses it, 429 if too many requests wait.
        """

        def work() -> tuple[Any, Sequence[str | list[int]]]:
            parsed = self._processor.parse_data(data)
            return parsed, self._processor.pre_process(parsed, request_id)

        try:
            parsed, made = await self._run(work)
        except ValueError as error:
            why = str(error)[:_MAX_REFUSAL_CHARS]
            raise bad_request(f"`data` cannot be read: {why}", "data") from error
        if not 0 < len(made) <= MAX_PROMPTS:
            raise bad_request(
                f"`data` becomes {len(made)} prompts; there must be 1 to {MAX_PROMPTS}.", "data"
            )
        return parsed, list(made)

    async def write(self, parsed: Any, rows: Sequence[np.ndarray], request_id: str) -> msgspec.Raw:
        """What the plugin answers, as JSON.

        Raises:
            ApiError: 429 if too many requests wait.
        """

        def work() -> bytes:
            return msgspec.json.encode(self._processor.post_process(parsed, rows, request_id))

        return msgspec.Raw(await self._run(work))

    async def _run(self, work: Callable[[], T]) -> T:
        if self._num_waiting >= MAX_WAITING:
            raise ApiError(429, "Too many requests wait for the server's plugin; try again.")
        self._num_waiting += 1
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        running.add_done_callback(self._left)  # its thread continues if the request goes away
        return await asyncio.shield(running)

    def _left(self, done: asyncio.Future[Any]) -> None:
        self._num_waiting -= 1
        if not done.cancelled():
            done.exception()  # seen, even if the request has gone away
