"""The end of a request's time while it is read; the engine ends what has been submitted."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator

from pagemill.server.errors import ApiError


@contextlib.asynccontextmanager
async def in_time(deadline: float | None) -> AsyncGenerator[None]:
    """Cancels what runs in the context at `deadline`, by `time.monotonic()`; None: never.

    Raises:
        ApiError: 504: it was cancelled.
    """
    limit = asyncio.timeout(None if deadline is None else deadline - time.monotonic())
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise ApiError(
            504, "The request was not read within its time (`timeout`, --request-timeout)."
        ) from None
