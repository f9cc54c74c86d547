"""Limits of API keys as an ASGI layer: they are checked before a body is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagemill.server.access.caller import Caller
from pagemill.server.endpoints.endpoint import Endpoint
from pagemill.server.endpoints.table import error_shape
from pagemill.server.errors import ApiError
from pagemill.server.http_answer import error_response
from pagemill.server.limits.limiter import KeyLimiter, KeyLimits


class LimitKeys:
    """Refuses requests beyond their key's limits, and says in headers what is left of them."""

    def __init__(self, app: ASGIApp, limiter: KeyLimiter, endpoints: Iterable[Endpoint]) -> None:
        """`endpoints`: those of `app`."""
        self._app = app
        self._limiter = limiter
        self._metered = frozenset((e.method, e.path) for e in endpoints if e.is_metered)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        is_metered = scope["type"] == "http" and (scope["method"], scope["path"]) in self._metered
        caller: Caller | None = scope["state"]["caller"] if is_metered else None
        if caller is None or caller.limits is None:
            await self._app(scope, receive, send)
            return
        await self._limited(caller, caller.limits, scope, receive, send)

    async def _limited(
        self, caller: Caller, limits: KeyLimits, scope: Scope, receive: Receive, send: Send
    ) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                left = self._limiter.headers(caller.key_id, limits)
                message["headers"] = [*message["headers"], *left]
            await send(message)

        try:
            admitted = self._limiter.admit(caller.key_id, limits)
        except ApiError as error:
            refusal = error_response(error, error_shape(scope["path"]))
            await refusal(scope, receive, send_with_headers)
            return
        scope["state"]["caller"] = replace(caller, admitted=admitted)
        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            admitted.leave()
