"""API keys: an ASGI layer before every route but the probes."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from pagemill.server.errors import ApiError, error_response

OPEN_PATHS = frozenset({"/health", "/ping", "/ready"})


class ApiKeyAuth:
    """Refuses requests without a valid `Authorization: Bearer KEY` or `X-API-Key: KEY` with 401.

    The headers decide: the body of a refused request is never read. Only digests of the keys are
    kept. Every comparison takes the same time, whether and where the key differs, and all keys are
    always compared.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._digests = tuple(hashlib.sha256(key.encode()).digest() for key in keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if (
            not self._digests
            or scope["type"] not in ("http", "websocket")
            or scope["path"] in OPEN_PATHS
            or self._is_valid(scope)
        ):
            await self._app(scope, receive, send)
            return
        error = ApiError(
            401,
            "A valid API key is required: send it as `Authorization: Bearer <key>` or as"
            " `X-API-Key: <key>`.",
        )
        await error_response(error)(scope, receive, send)

    def _is_valid(self, scope: Scope) -> bool:
        digests = [hashlib.sha256(key).digest() for key in _keys(scope)]
        matches = [hmac.compare_digest(a, b) for a in digests for b in self._digests]
        return any(matches)


def _keys(scope: Scope) -> Iterator[bytes]:
    """The keys that a request's headers hold, by either convention."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, key = value.partition(b" ")
            if scheme.lower() == b"bearer":
                yield key.strip()
        elif name == b"x-api-key":
            yield value.strip()
