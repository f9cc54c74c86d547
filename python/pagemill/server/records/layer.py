"""A record of each HTTP request, as an ASGI layer."""

from __future__ import annotations

import time
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from pagemill.server.records.record import OnEnd, RequestRecord

_TRACE_HEADERS = frozenset({b"traceparent", b"tracestate"})
_CLIENT_GONE = 499


class RequestRecords:
    """The outermost ASGI layer: puts a record into the request's state, and passes it on once the
    response is over. Costs nothing while a body is sent."""

    def __init__(self, app: ASGIApp, listeners: Sequence[OnEnd]) -> None:
        """`listeners` must not raise."""
        self._app = app
        self._listeners = tuple(listeners)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = scope.get("client")
        record = RequestRecord(
            scope["method"],
            scope["path"],
            client[0] if client else "",
            time.monotonic(),
            _trace_context(scope),
        )
        state = scope.setdefault("state", {})
        state["record"] = record
        try:
            await self._app(scope, receive, send)
        finally:
            record.duration_s = time.monotonic() - record.started
            record.request_id = state.get("request_id", "")
            record.status = state.get("status", _CLIENT_GONE)
            for listener in self._listeners:
                listener(record)


def _trace_context(scope: Scope) -> dict[str, str]:
    return {
        name.decode(): value.decode("latin-1")
        for name, value in scope["headers"]
        if name in _TRACE_HEADERS
    }
