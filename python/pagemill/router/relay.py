"""A server's response on its way to the client."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from starlette.types import Scope, Send

from pagemill.router.event_cut import EventCut
from pagemill.router.headers import to_client, value_of
from pagemill.router.upstream import Reply, UpstreamError
from pagemill.server.endpoints.table import error_shape
from pagemill.server.error_shapes import ErrorShape
from pagemill.server.errors import ApiError
from pagemill.server.event_stream import BODY_WRITER, BodyWriter
from pagemill.server.sse import failed_stream

_EVENT_STREAM = b"text/event-stream"
_SLOW_S = 5.0
"""A server disconnects clients that take little for long (--send-timeout). The router is such a one
while its own client does not read."""


async def relay(
    reply: Reply, scope: Scope, send: Send, clock: Callable[[], float] = time.monotonic
) -> None:
    """Sends `reply` as it arrives. A client that reads slowly makes the server wait.

    If the server breaks off, a stream of events ends with an error event, as a server ends it; any
    other body stays incomplete, and the client's connection is closed.

    Raises:
        UpstreamError: the server broke off; nothing more is to be sent.
    """
    longest_s = 0.0
    state = scope.setdefault("state", {})
    if request_id := value_of(reply.headers, b"x-request-id"):
        state["request_id"] = request_id.decode("latin-1")  # a field of the body may have set it
    head: dict[str, Any] = {"type": "http.response.start", "status": reply.status}
    await send(head | {"headers": to_client(reply.headers)})
    is_stream = value_of(reply.headers, b"content-type").startswith(_EVENT_STREAM)
    cut = EventCut() if is_stream else None
    body: BodyWriter | None = state.get(BODY_WRITER) if is_stream else None
    try:
        async for part in reply.parts():
            data = part if cut is None else cut.push(part)
            if data and not (body is not None and body.write(data)):
                began = clock()
                await send({"type": "http.response.body", "body": data, "more_body": True})
                longest_s = max(longest_s, clock() - began)
    except UpstreamError as error:
        if cut is not None:
            await _end_stream(cut, error, error_shape(scope["path"]), send)
        raise UpstreamError(str(error), by_client=longest_s > _SLOW_S) from error
    rest = b"" if cut is None else cut.rest()
    await send({"type": "http.response.body", "body": rest, "more_body": False})


async def _end_stream(cut: EventCut, error: UpstreamError, shape: ErrorShape, send: Send) -> None:
    failure = ApiError(502, f"The server that answered has failed: {error}.")
    ending = b"" if cut.between_events else b"\n\n"
    ending += failed_stream(failure, shape)
    await send({"type": "http.response.body", "body": ending, "more_body": False})
