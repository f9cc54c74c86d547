"""Tests of pagemill.server.time_limit."""

import asyncio
import time

import pytest

from pagemill.server.errors import ApiError
from pagemill.server.time_limit import in_time


def test_what_takes_too_long_is_cancelled() -> None:
    async def main() -> None:
        released: list[str] = []
        for left_s in (0.01, -1.0):
            with pytest.raises(ApiError, match="--request-timeout") as error:
                async with in_time(time.monotonic() + left_s):
                    try:
                        await asyncio.Event().wait()
                    finally:
                        released.append("a")
            assert error.value.status == 504
        assert len(released) == 2

    asyncio.run(main())


def test_other_ends_are_as_they_are() -> None:
    async def main() -> None:
        for deadline in (None, time.monotonic() + 600):
            async with in_time(deadline):
                await asyncio.sleep(0)
            with pytest.raises(TimeoutError, match="of its own"):
                async with in_time(deadline):
                    raise TimeoutError("of its own")

    asyncio.run(main())
