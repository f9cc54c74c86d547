"""What every API request passes before its handler: the server's phase, the body's type and size.

Queue bounds are the engine's: it refuses what it cannot hold, and the client sees 429.
"""

from __future__ import annotations

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from pagemill.server.endpoints.plugins import PREFIX
from pagemill.server.endpoints.table import ENDPOINTS, error_shape
from pagemill.server.errors import ApiError
from pagemill.server.http_answer import error_response
from pagemill.server.lifecycle import Lifecycle

JSON, FORM = "application/json", "multipart/form-data"
_CURL = {JSON: f"-H 'Content-Type: {JSON}'", FORM: "-F file=@NAME"}
_API_PREFIXES = ("/v1/", "/v2/", "/inference/", PREFIX)
_ENGINE_PATHS = frozenset(endpoint.path for endpoint in ENDPOINTS if endpoint.queued)


class Admission:
    """Counts requests to generate and the like as active, and refuses them unless ready."""

    def __init__(self, app: ASGIApp, lifecycle: Lifecycle) -> None:
        self._app = app
        self._lifecycle = lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] != "http" or not _is_counted(scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            self._lifecycle.enter()
        except ApiError as error:
            await error_response(error, error_shape(scope["path"]))(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._lifecycle.leave()


def _is_counted(path: str) -> bool:
    return path.startswith(_API_PREFIXES) or path in _ENGINE_PATHS


async def read_body(request: Request, max_bytes: int, content: str = JSON) -> bytes:
    """The whole body of a request, of the content type `content`: JSON or FORM.

    Raises:
        ApiError: 400 for another one or none (a page may send those to another origin
            without asking first), 413 for more than `max_bytes`.
        ClientDisconnect: the client went away.
    """
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != content:
        raise ApiError(
            400,
            f"The header Content-Type must be {content}, not {content_type[:100]!r}; with curl:"
            f" {_CURL[content]}.",
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
