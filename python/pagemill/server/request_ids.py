"""The name of a request: in the response's `X-Request-Id`, in its body's `id`, for logs."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagemill.server.protocol.request_id import NAME


class RequestIds:
    """Gives each request an id, and each response the header.

    The id is the client's `X-Request-Id` if that is usable, else a new one. A handler may replace
    it before the response starts; see `HttpRoute`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["request_id"] = request_id_of(scope["headers"])

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                state["status"] = message["status"]  # for the request's record
                header = (b"x-request-id", state["request_id"].encode())
                message["headers"] = [*message["headers"], header]
            await send(message)

        await self._app(scope, receive, send_with_id)


def request_id_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The usable `X-Request-Id` among `headers`, whose names are in lower case, or a new id."""
    for name, value in headers:
        if name == b"x-request-id" and NAME.fullmatch(value):
            return value.decode()
    return secrets.token_hex(16)
