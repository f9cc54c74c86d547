"""A record of each HTTP request, for what counts or logs requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from pagemill.observe.metrics import RequestMetrics
from pagemill.server.records.record import RequestRecord

OnEnd = Callable[[RequestRecord], None]
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_TRACE_HEADERS = frozenset({b"traceparent", b"tracestate"})
_NO_ROUTE = "none"
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


def count(metrics: RequestMetrics, record: RequestRecord) -> None:
    """Counts a request. Labels are a fixed set, whatever was sent."""
    method = record.method if record.method in _METHODS else "other"
    route = record.route or _NO_ROUTE
    metrics.responded(route, method, record.status, record.duration_s, record.key_id)
