"""A response to its end, of which no stream is written."""

from __future__ import annotations

from pagemill.render.assembly import ChoiceDelta
from pagemill.server.protocol.responses import Response
from pagemill.server.respond import Source, read_all
from pagemill.server.responses.wording import ResponseWording
from pagemill.server.tools.events import ToolEvent

ResponseSource = Source[ChoiceDelta | ToolEvent]


async def whole_response(source: ResponseSource, wording: ResponseWording) -> Response:
    """The response that `wording` makes of `source`, which is closed.

    Raises:
        ApiError: it failed before it did anything. One whose tools were called says what they did.
    """
    try:
        # One token at a time: those of a delta may belong to parts that are different items.
        await read_all(source, wording.delta, 1 if wording.has_logprobs else 0)
        if source.failure is not None and not wording.has_acted:
            raise source.failure
        wording.end(source.failure)
        return wording.response
    finally:
        source.close()
