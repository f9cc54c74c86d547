"""Refusals by the engine's queue, before a request is read.

Queue bounds are the engine's, which refuses what it cannot hold. It is asked first: an overloaded
server refuses most requests, and their templates and tokens would take the processor from those
that it serves. Requests that are being prepared count as if they were queued: clients that come
together would all find the same room otherwise.
"""

from __future__ import annotations

from dataclasses import replace

from starlette.types import ASGIApp, Receive, Scope, Send

from pagemill.engine.outputs import EngineError
from pagemill.server.access.caller import Caller
from pagemill.server.endpoints.table import error_shape
from pagemill.server.errors import ApiError, from_engine
from pagemill.server.http_answer import error_response
from pagemill.server.pipeline import Pipeline
from pagemill.server.records.record import RequestRecord
from pagemill.server.state import ServerState


class FullQueue:
    """An ASGI layer that refuses requests for the queue while there is no room in it."""

    def __init__(self, app: ASGIApp, server: ServerState) -> None:
        self._app = app
        self._server = server
        self._queued = frozenset((e.method, e.path) for e in server.endpoints if e.queued)
        self._preparing: set[int] = set()
        """Numbers of requests that have been let in and not been submitted."""
        self._last = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        is_queued = scope["type"] == "http" and (scope["method"], scope["path"]) in self._queued
        pipeline = self._server.loaded if is_queued else None
        if pipeline is None:
            await self._app(scope, receive, send)
            return
        try:
            if len(self._preparing) >= pipeline.engine.room():
                raise EngineError(
                    "RESOURCE_EXHAUSTED",
                    "Requests that came just now take all the room in the queue"
                    " (--max-num-queued-reqs)",
                    retry_after_s=1,
                )
        except EngineError as error:
            refusal = self._turned_away(pipeline, error, scope)
            await error_response(refusal, error_shape(scope["path"]))(scope, receive, send)
            return
        await self._prepare(scope, receive, send)

    async def _prepare(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._last = number = self._last + 1
        caller: Caller = scope["state"]["caller"]

        def prepared() -> None:
            self._preparing.discard(number)

        scope["state"]["caller"] = replace(caller, prepared=prepared)
        self._preparing.add(number)
        try:
            await self._app(scope, receive, send)
        finally:
            prepared()  # it may never have been submitted

    def _turned_away(self, pipeline: Pipeline, error: EngineError, scope: Scope) -> ApiError:
        refusal = from_engine(error)
        self._server.returns.schedule(refusal)
        pipeline.metrics.turned_away()
        record: RequestRecord = scope["state"]["record"]
        record.route = scope["path"]
        return refusal
