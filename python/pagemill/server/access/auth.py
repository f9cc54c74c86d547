"""API keys: an ASGI layer before every route but the probes."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from pagemill.server.access.caller import ANONYMOUS, Caller
from pagemill.server.access.key_ring import KeyRing
from pagemill.server.endpoints.table import OPEN_PATHS, error_shape
from pagemill.server.errors import no_key
from pagemill.server.http_answer import error_response
from pagemill.server.records.record import RequestRecord
from pagemill.server.upgrade import KEY_HOLDS


class ApiKeyAuth:
    """Identifies the sender of a request by `Authorization: Bearer KEY` or `X-API-Key: KEY`.

    Requests without a valid key are refused with 401, except those of `OPEN_PATHS`. The headers
    decide: the body of a refused request is never read.
    """

    def __init__(self, app: ASGIApp, ring: KeyRing, unnamed: Caller = ANONYMOUS) -> None:
        """`unnamed`: every caller, if the `ring` has no keys."""
        self._app = app
        self._ring = ring
        self._unnamed = unnamed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        caller = self._caller(scope["path"], scope["headers"])
        if caller is None:
            refusal = error_response(no_key(), error_shape(scope["path"]))
            await refusal(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["caller"] = caller
        path, headers = scope["path"], scope["headers"]  # not the scope, which has this
        state[KEY_HOLDS] = lambda: self._caller(path, headers) is not None
        record: RequestRecord | None = state.get("record")
        if record is not None:
            record.key_id, record.tenant = caller.key_id, caller.tenant
        await self._app(scope, receive, send)

    def _caller(self, path: str, headers: Iterable[tuple[bytes, bytes]]) -> Caller | None:
        if not self._ring.keys:
            return self._unnamed
        if path in OPEN_PATHS:
            return ANONYMOUS
        return self._ring.owner(headers)
