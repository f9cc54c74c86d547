"""The ASGI application: routes from the table, layers around them, errors in one shape."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp

from pagemill.server.access.auth import ApiKeyAuth
from pagemill.server.access.caller import ANONYMOUS, Caller
from pagemill.server.access.key_ring import KeyRing
from pagemill.server.access.origins import guard_origins
from pagemill.server.admission import Admission
from pagemill.server.dispatch import no_such_route
from pagemill.server.endpoints.admin_table import ADMIN_ENDPOINTS
from pagemill.server.endpoints.endpoint import Endpoint
from pagemill.server.endpoints.table import error_shape
from pagemill.server.errors import ApiError
from pagemill.server.full_queue import FullQueue
from pagemill.server.http_answer import error_response
from pagemill.server.http_route import HttpRoute
from pagemill.server.limits.layer import LimitKeys
from pagemill.server.middleware import add_middleware
from pagemill.server.playground.layer import Playground
from pagemill.server.records.layer import RequestRecords
from pagemill.server.records.record import OnEnd
from pagemill.server.request_ids import RequestIds
from pagemill.server.root_path import RootPath
from pagemill.server.state import ServerState

_OTHER_SERVERS = {
    "/completion": "/v1/completions",  # llama.cpp
    "/embedding": "/v1/embeddings",
    "/props": "/tokenizer_info",
    "/slots": "/metrics",
    "/api/chat": "/v1/chat/completions",  # Ollama
    "/api/embed": "/v1/embeddings",
    "/api/generate": "/v1/completions",
    "/api/tags": "/v1/models",
    "/api/version": "/version",
    "/embed": "/v1/embeddings",  # Text Embeddings Inference
    "/v1/embed": "/v2/embed",  # Cohere, before its second version
    "/v1/chat": "/v2/chat",
}
"""Routes of other servers, and those that do the same here, with other fields."""


def create_app(
    state: ServerState,
    ring: KeyRing | None = None,
    listeners: Sequence[OnEnd] = (),
) -> ASGIApp:
    """The application over `state`, which may still be loading its model.

    Without keys in `ring` every caller is the same, anonymous one. `listeners` get the record of
    each request at its end.

    Raises:
        ConfigError: the operator's middleware cannot be used.
    """
    limited = LimitKeys(_routes(state, state.endpoints), state.limiter, state.endpoints)
    admitted = Admission(FullQueue(limited, state), state.lifecycle)
    answering: ASGIApp = ApiKeyAuth(admitted, ring or KeyRing())
    if state.config.playground:
        answering = Playground(answering)
    answering = add_middleware(answering, state.config.middleware)
    return _observed(state, answering, listeners)


def create_admin_app(
    state: ServerState,
    ring: KeyRing | None = None,
    unnamed: Caller = ANONYMOUS,
    listeners: Sequence[OnEnd] = (),
) -> ASGIApp:
    """The operator's routes over the same `state`. Without keys every caller is `unnamed`."""
    answering = ApiKeyAuth(_routes(state, ADMIN_ENDPOINTS), ring or KeyRing(), unnamed)
    return _observed(state, answering, listeners)


def _routes(state: ServerState, endpoints: Sequence[Endpoint]) -> Starlette:
    app = Starlette(
        routes=[HttpRoute(state, endpoint) for endpoint in endpoints],
        exception_handlers={HTTPException: _http_error},
    )
    app.state.server = state
    return app


def _observed(state: ServerState, app: ASGIApp, listeners: Sequence[OnEnd]) -> ASGIApp:
    """`app` behind the rules of origins, with ids and records of its requests."""
    named = RequestIds(guard_origins(app, state.config.origins))
    recorded = RequestRecords(named, (state.request_ended, *listeners))
    root_path = state.config.root_path
    return RootPath(recorded, root_path) if root_path else recorded


async def _http_error(request: Request, error: Exception) -> Response:
    """What the router itself refuses: unknown paths and methods. It also answers OPTIONS."""
    assert isinstance(error, HTTPException)
    shape = error_shape(request.url.path)
    if error.status_code == 404:
        return error_response(_no_route(request), shape)
    if error.status_code != 405:
        return error_response(ApiError(error.status_code, str(error.detail)), shape)
    allowed = {"allow": ", ".join(_methods(request))}
    if request.method == "OPTIONS":
        return Response(status_code=204, headers=allowed)
    refusal = ApiError(405, f"{request.url.path[:200]} does not take {request.method[:20]}.")
    response = error_response(refusal, shape)
    response.headers.update(allowed)
    return response


def _no_route(request: Request) -> ApiError:
    state, path = request.app.state.server, request.url.path[:200]
    assert isinstance(state, ServerState)
    if any(path == row.path and not state.has_task(row.tasks) for row in state.endpoints):
        return no_such_route(state.models, path)
    if any(path == row.path for row in ADMIN_ENDPOINTS):
        return ApiError(404, f"{path} is not among clients' routes, but at --admin-address.")
    near = _OTHER_SERVERS.get(path)
    if near is None:  # a base URL with /v1 twice, or without it
        near = path[3:] if path.startswith("/v1/") else f"/v1{path}"
    if any(near == route.path for route in request.app.routes):
        return ApiError(404, f"There is no route {path}; use {near}.")
    return ApiError(404, f"There is no route {path}; /openapi.json lists those there are.")


def _methods(request: Request) -> list[str]:
    """The methods of a path, which several routes may share."""
    routes: list[HttpRoute] = request.app.routes
    found = {"OPTIONS"}
    for route in routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return sorted(found)
