"""API keys: an ASGI layer before every route but the probes."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from pagemill.server.errors import ApiError, error_response

OPEN_PATHS = frozenset({"/health", "/ready"})


class ApiKeyAuth:
    """Refuses requests without a valid `Authorization: Bearer KEY` with 401.

    Only digests of the keys are kept. Every comparison takes the same time, whether and where the
    key differs, and all keys are always compared.
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
            401, "A valid API key is required: send it as `Authorization: Bearer <key>`."
        )
        await error_response(error)(scope, receive, send)

    def _is_valid(self, scope: Scope) -> bool:
        for name, value in scope["headers"]:
            if name != b"authorization":
                continue
            scheme, _, key = value.partition(b" ")
            if scheme.lower() != b"bearer":
                return False
            digest = hashlib.sha256(key.strip()).digest()
            matches = [hmac.compare_digest(digest, known) for known in self._digests]
            return any(matches)
        return False
