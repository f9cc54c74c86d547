"""Refusals by the engine's queue, before a request is read.

Queue bounds are the engine's, which refuses what it cannot hold. It is asked first: an overloaded
server refuses most requests, and their templates and tokens would take the processor from those
that it serves.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from pagemill.engine.outputs import EngineError
from pagemill.server.endpoints.table import QUEUED_PATHS, error_shape
from pagemill.server.errors import ApiError, from_engine
from pagemill.server.http_answer import error_response
from pagemill.server.records.record import RequestRecord
from pagemill.server.state import ServerState


class FullQueue:
    """An ASGI layer that refuses requests for the queue while the engine would refuse any."""

    def __init__(self, app: ASGIApp, server: ServerState) -> None:
        self._app = app
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] == "http" and (scope["method"], scope["path"]) in QUEUED_PATHS:
            refusal = self._refusal(scope)
            if refusal is not None:
                response = error_response(refusal, error_shape(scope["path"]))
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> ApiError | None:
        pipeline = self._server.loaded
        if pipeline is None:
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
