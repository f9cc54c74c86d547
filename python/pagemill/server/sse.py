"""Server-sent events: an ASGI response that writes what its source yields.

Written for one event per token: no task group and no wrapper per chunk. The source is closed, and
with it the engine's side of the request, as soon as the client is gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pagemill.server.disconnect import until_disconnect

DONE = b"data: [DONE]\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy that collects events defeats their purpose
]


def event(payload: bytes) -> bytes:
    """One event whose data is `payload`, which holds no line break (JSON never does)."""
    return b"data: " + payload + b"\n\n"


class EventStream(Response):
    """Streams `source`, whose items are complete events (one or several, concatenated).

    `close` is called when the response is over, however it ends: a source that was never started
    has no `finally` to run.
    """

    def __init__(self, source: AsyncGenerator[bytes, None], close: Callable[[], None]) -> None:
        self._source = source
        self._close = close
        self.status_code = 200
        self.background = None
        self.raw_headers = list(_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        try:
            with contextlib.suppress(ClientDisconnect):  # the client has gone
                await until_disconnect(self._write(send), receive)
        finally:
            self._close()
            await self._source.aclose()

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for chunk in self._source:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
