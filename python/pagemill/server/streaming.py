"""The part of a streamed response that every generating endpoint shares."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator

from pagemill.server.errors import ApiError, error_json
from pagemill.server.protocol.sampling import StreamOptions
from pagemill.server.sse import DONE, event

_LOGGER = logging.getLogger("pagemill.server")


def usage_events(options: StreamOptions | None) -> tuple[bool, bool]:
    """Where a stream has `usage`: in a last event of its own, and in every event.

    `include_usage: false` means no usage at all.
    """
    final = options is not None and options.include_usage
    return final, final and options.continuous_usage_stats


async def guarded(events: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """`events`, then `[DONE]`; a failure becomes an event with the error object before it.

    The status line is long gone when a stream fails, so this is the only way to say it.
    """
    try:
        async for chunk in events:
            yield chunk
    except ApiError as error:
        yield event(error_json(error))
    except Exception:
        _LOGGER.exception("a stream failed")
        yield event(error_json(ApiError(500, "The server failed while it streamed; see its log.")))
    yield DONE
