"""The router as an ASGI application: its routes, behind the layers that servers have, too."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from pagemill.config import RouteConfig
from pagemill.router.fleet import Fleet
from pagemill.router.hints import HintReader
from pagemill.router.metrics import RouterMetrics
from pagemill.router.own_routes import OwnRoutes
from pagemill.router.proxy import Proxy
from pagemill.server.access.auth import ApiKeyAuth
from pagemill.server.access.caller import Scope
from pagemill.server.access.key_ring import KeyRing
from pagemill.server.access.origins import guard_origins
from pagemill.server.admission import Admission
from pagemill.server.endpoints.endpoint import Transport
from pagemill.server.endpoints.table import ENDPOINTS, error_shape
from pagemill.server.errors import ApiError
from pagemill.server.http_answer import error_response
from pagemill.server.lifecycle import Lifecycle
from pagemill.server.playground.layer import Playground
from pagemill.server.records.access_log import log_request
from pagemill.server.records.layer import RequestRecords
from pagemill.server.request_ids import RequestIds


def create_app(
    config: RouteConfig,
    fleet: Fleet,
    hints: HintReader,
    lifecycle: Lifecycle,
    ring: KeyRing,
) -> ASGIApp:
    """The application. Requests to endpoints of scope `inference` with a body are passed on, and no
    others: what is for operators, and what is stored, is of one server, not of the fleet."""
    passed = tuple(
        row
        for row in ENDPOINTS
        if row.scope is Scope.INFERENCE and row.transport in (Transport.JSON, Transport.AUDIO_FORM)
    )
    own = OwnRoutes(fleet, lifecycle, RouterMetrics(fleet, config.router.policy), passed)
    proxy = Proxy(fleet, hints, config.listen.max_body_bytes)
    app = Starlette(
        routes=[
            Route("/health", own.health),
            Route("/ready", own.ready),
            Route("/ping", own.ready, methods=["GET", "POST"]),
            Route("/metrics", own.metrics),
            Route("/openapi.json", own.openapi),
            Route("/v1/models", own.models),
            *(Route(row.path, proxy, methods=[row.method], name=row.name) for row in passed),
        ],
        exception_handlers={HTTPException: _http_error},
    )
    guarded: ASGIApp = ApiKeyAuth(Admission(app, lifecycle), ring)
    if config.listen.playground:
        guarded = Playground(guarded)
    named = RequestIds(guard_origins(guarded, config.origins))
    return RequestRecords(named, (log_request,)) if config.observe.access_log else named


async def _http_error(request: Request, error: Exception) -> Response:
    """Unknown paths and methods."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    if error.status_code == 404:
        return error_response(ApiError(404, f"The router has no route {path}; a server may."))
    if error.status_code == 405:
        refusal = ApiError(405, f"{path} does not take {request.method[:20]}.")
        response = error_response(refusal, error_shape(request.url.path))
        response.headers.update(error.headers or {})  # the methods that it takes
        return response
    return error_response(ApiError(error.status_code, str(error.detail)))
