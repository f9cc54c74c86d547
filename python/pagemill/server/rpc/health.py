"""`grpc.health.v1.Health`: would a new request be served? Needs no key."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from pagemill.server.access.caller import ANONYMOUS
from pagemill.server.endpoints.probes import ready
from pagemill.server.errors import ApiError
from pagemill.server.lifecycle import Phase
from pagemill.server.rpc.handler import Context, bytes_handler
from pagemill.server.rpc.message import number_message
from pagemill.server.state import ServerState

MAX_WATCHES = 256
"""At a time: they need no key, and last. They take at most a quarter of all calls."""
_POLL_S = 0.5
_SERVICE = "/grpc.health.v1.Health"
_SERVING, _NOT_SERVING = 1, 2


class HealthService(grpc.GenericRpcHandler):
    """`Check` answers once, `Watch` whenever the answer changes, until the server shuts down.

    Their requests, which may name a service, are not read: any sender could make them large, and
    all services are served or none is.
    """

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._num_watches = 0
        self._most_watches = min(MAX_WATCHES, state.config.connections.max_connections // 4)
        self._handlers = {
            f"{_SERVICE}/Check": bytes_handler(self._check),
            f"{_SERVICE}/Watch": bytes_handler(self._watch),
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The handler of a call."""
        return self._handlers.get(handler_call_details.method)

    async def _check(self, messages: object, context: Context) -> None:
        del messages
        await context.write(number_message(await self._status()))

    async def _watch(self, messages: object, context: Context) -> None:
        del messages
        if self._num_watches >= self._most_watches:
            # Clients take any other status as bad health: a sender without a key could cause that.
            await context.abort(
                grpc.StatusCode.UNIMPLEMENTED,
                f"{self._most_watches} clients watch the server's health already: use Check.",
            )
        self._num_watches += 1
        try:
            said = 0
            while True:
                status = await self._status()
                if status != said:
                    await context.write(number_message(status))
                    said = status
                if self._state.lifecycle.phase is Phase.DRAINING:
                    return  # or the shutdown would wait for the client
                await asyncio.sleep(_POLL_S)
        finally:
            self._num_watches -= 1

    async def _status(self) -> int:
        try:
            await ready(self._state, {}, ANONYMOUS)
        except ApiError:
            return _NOT_SERVING
        return _SERVING
