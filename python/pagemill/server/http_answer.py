"""Answers and refusals as ASGI responses."""

from __future__ import annotations

import contextlib

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pagemill.server.answer import Answer, Events, Text
from pagemill.server.disconnect import until_disconnect
from pagemill.server.errors import RETRY_AFTER_S, ApiError, error_json

_EVENT_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy that collects events defeats their purpose
]


def answer_response(answer: Answer) -> Response:
    """The response that carries `answer`."""
    if isinstance(answer, Events):
        return EventStream(answer)
    if isinstance(answer, Text):
        return Response(answer.content, headers={"content-type": answer.media_type})
    # Encoding thousands of vectors takes long, but a thread would hold the GIL for as long.
    return Response(msgspec.json.encode(answer), media_type="application/json")


def error_response(error: ApiError) -> Response:
    """The complete HTTP response, with Retry-After if retrying can help."""
    headers: dict[str, str] = {}
    if error.status in RETRY_AFTER_S:
        headers["retry-after"] = str(error.retry_after_s)
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(error_json(error), error.status, headers, media_type="application/json")


class EventStream(Response):
    """Writes what the source of `events` yields.

    Written for one event per token: no task group and no wrapper per chunk. The source is closed,
    and with it the engine's side of the request, as soon as the client is gone.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self.status_code = 200
        self.background = None
        self.raw_headers = list(_EVENT_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        try:
            with contextlib.suppress(ClientDisconnect):  # the client has gone
                await until_disconnect(self._write(send), receive)
        finally:
            self._events.close()
            await self._events.source.aclose()

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for chunk in self._events.source:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
