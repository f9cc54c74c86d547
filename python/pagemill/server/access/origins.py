"""Which browser pages may send requests, and by which names the server may be addressed.

A page of any site can make a browser send requests to a server on the user's own machine or
network. Browsers name the page's origin in every request that could change something, so a foreign
`Origin` is refused before any handler runs. Programs other than browsers send no `Origin`.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from pagemill.config import OriginConfig
from pagemill.server.endpoints.table import OPEN_PATHS, error_shape
from pagemill.server.errors import ApiError
from pagemill.server.http_answer import error_response


def guard_origins(app: ASGIApp, config: OriginConfig) -> ASGIApp:
    """`app` behind the rules of `config`; preflight requests of allowed pages are answered here."""
    if config.allowed_origins:
        app = CORSMiddleware(
            app,
            allow_origins=config.allowed_origins,
            allow_methods=config.allowed_methods,
            allow_headers=config.allowed_headers,
            allow_credentials=config.allow_credentials,
            allow_private_network=True,  # an origin that is named may be outside this network
            expose_headers=("X-Request-Id", "Retry-After", "Metadata"),
        )
    return _OriginGuard(app, config)


class _OriginGuard:
    def __init__(self, app: ASGIApp, config: OriginConfig) -> None:
        self._app = app
        self._origins = frozenset(config.allowed_origins)
        self._hosts = tuple(host.strip("[]").lower() for host in config.allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            refusal = self._refusal(scope["path"], Headers(scope=scope))
            if refusal is not None:
                shape = error_shape(scope["path"])
                await error_response(refusal, shape)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, path: str, headers: Headers) -> ApiError | None:
        host = headers.get("host", "")
        # Probes address a machine by its number, and get no more than a status.
        if self._hosts and path not in OPEN_PATHS and not _is_listed(host, self._hosts):
            return ApiError(
                403, f"The host {host[:100]!r} is not one that this server has (--allowed-hosts)."
            )
        origin = headers.get("origin")
        if origin is None or "*" in self._origins or origin in self._origins:
            return None
        if origin.partition("://")[2].lower() == host.lower():
            return None  # a page of this server; a proxy in front may have added TLS
        return ApiError(
            403,
            f"Pages of {origin[:100]} may not use this server; start it with"
            " --allowed-origins to let them.",
        )


def _is_listed(host: str, patterns: Sequence[str]) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return any(
        pattern in ("*", name) or (pattern.startswith("*.") and name.endswith(pattern[1:]))
        for pattern in patterns
    )
