"""The ASGI application: routes from the table, layers around them, errors in one shape."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp

from pagemill import __version__
from pagemill.server.admission import Admission
from pagemill.server.auth import ApiKeyAuth
from pagemill.server.endpoints.table import ENDPOINTS, Endpoint, Handler
from pagemill.server.errors import ApiError, error_response
from pagemill.server.openapi import describe
from pagemill.server.origins import guard_origins
from pagemill.server.request_ids import RequestIds
from pagemill.server.state import ServerState, state_of

_LOGGER = logging.getLogger("pagemill.server")
_CLIENT_GONE = 499


def create_app(state: ServerState, endpoints: Sequence[Endpoint] = ENDPOINTS) -> ASGIApp:
    """The application over `state`, which may still be loading its model.

    The API keys are those of `state.config`.
    """
    app = FastAPI(title="Pagemill", version=__version__, docs_url=None, redoc_url=None)
    app.state.server = state
    for endpoint in endpoints:
        app.add_api_route(
            endpoint.path,
            _answering(endpoint),
            methods=[endpoint.method, "HEAD"] if endpoint.method == "GET" else [endpoint.method],
            name=endpoint.name,
            response_model=None,
        )
    app.add_exception_handler(HTTPException, _http_error)
    describe(app, endpoints)
    guarded = ApiKeyAuth(Admission(app, state.lifecycle), state.config.api_key)
    return RequestIds(guard_origins(guarded, state.config.origins))


def _answering(endpoint: Endpoint) -> Handler:
    """The endpoint's handler with every outcome turned into a response, and counted."""
    handler, path = endpoint.load(), endpoint.path

    async def answer(request: Request) -> Response:
        try:
            response = await handler(request)
        except ApiError as error:
            response = error_response(error)
        except ClientDisconnect:
            response = Response(status_code=_CLIENT_GONE)  # no client reads it
        except Exception:
            _LOGGER.exception("%s %s failed", endpoint.method, path)
            response = error_response(
                ApiError(500, "The server failed in an unexpected way; its log says more.")
            )
        pipeline = state_of(request).loaded
        if pipeline is not None:
            pipeline.metrics.responded(path, response.status_code)
        return response

    return answer


async def _http_error(request: Request, error: Exception) -> Response:
    """What the router itself refuses: unknown paths and methods. It also answers OPTIONS."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return error_response(ApiError(404, f"There is no route {request.url.path[:200]}."))
    if error.status_code != 405:
        return error_response(ApiError(error.status_code, str(error.detail)))
    allowed = {"allow": ", ".join(_methods(request))}
    if request.method == "OPTIONS":
        return Response(status_code=204, headers=allowed)
    refusal = ApiError(405, f"{request.url.path[:200]} does not take {request.method[:20]}.")
    response = error_response(refusal)
    response.headers.update(allowed)
    return response


def _methods(request: Request) -> list[str]:
    """The methods of a path, which several routes may share."""
    routes: list[BaseRoute] = request.app.routes
    found = {"OPTIONS"}
    for route in routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return sorted(found)
