"""What every API request passes before its handler: the server's phase, the queue's room, the body's
type and size.

Queue bounds are the engine's: it refuses what it cannot hold, and the client sees 429. It is asked
for room before a request is read, because most requests of an overloaded server are refused, with
the processor that those need which are served.
"""

from __future__ import annotations

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from pagemill.engine.outputs import EngineError
from pagemill.server.endpoints.table import QUEUED_PATHS, error_shape
from pagemill.server.errors import ApiError, from_engine
from pagemill.server.http_answer import error_response
from pagemill.server.records.record import RequestRecord
from pagemill.server.state import ServerState

_API_PREFIXES = ("/v1/", "/inference/", "/invocations")


class Admission:
    """Counts requests to generate and the like as active, and refuses them unless ready, or if they
    would need a place in the engine's queue and it is full."""

    def __init__(self, app: ASGIApp, server: ServerState) -> None:
        self._app = app
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] != "http" or not scope["path"].startswith(_API_PREFIXES):
            await self._app(scope, receive, send)
            return
        refused_as = error_shape(scope["path"])
        lifecycle = self._server.lifecycle
        try:
            lifecycle.enter()
        except ApiError as error:
            await error_response(error, refused_as)(scope, receive, send)
            return
        try:
            full = self._check_room(scope)
            app = self._app if full is None else error_response(full, refused_as)
            await app(scope, receive, send)
        finally:
            lifecycle.leave()

    def _check_room(self, scope: Scope) -> ApiError | None:
        """What the engine would refuse the request with, whatever it says."""
        pipeline = self._server.loaded
        if pipeline is None or (scope["method"], scope["path"]) not in QUEUED_PATHS:
            return None
        try:
            pipeline.engine.check_room()
        except EngineError as error:
            refusal = from_engine(error)
            self._server.returns.schedule(refusal)
            pipeline.metrics.turned_away()
            record: RequestRecord = scope["state"]["record"]
            record.route = scope["path"]
            return refusal
        return None


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The whole body of a JSON request.

    Raises:
        ApiError: 400 for another content type or none (a page may send those to another origin
            without asking first), 413 for more than `max_bytes`.
        ClientDisconnect: the client went away.
    """
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise ApiError(
            400,
            f"The header Content-Type must be application/json, not {content_type[:100]!r}; with"
            " curl: -H 'Content-Type: application/json'.",
        )
    declared = request.headers.get("content-length", "0")
    too_large = ApiError(
        413, f"The request body is larger than {max_bytes} bytes (--max-body-bytes)."
    )
    if declared.isdigit() and int(declared) > max_bytes:
        raise too_large
    parts: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise too_large
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)
