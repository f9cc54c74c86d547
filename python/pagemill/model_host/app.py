"""The host of models as an ASGI application: its routes, behind the layers that servers have."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from pagemill.config.serve_models import ServeModelsConfig
from pagemill.model_host.host import ModelHost
from pagemill.model_host.own_routes import OwnRoutes
from pagemill.model_host.proxy import ModelProxy
from pagemill.router.front import http_error, layered
from pagemill.server.access.key_ring import KeyRing
from pagemill.server.endpoints.table import PASSED_ENDPOINTS, error_shape
from pagemill.server.errors import ApiError
from pagemill.server.http_answer import error_response
from pagemill.server.lifecycle import Lifecycle


def create_app(
    config: ServeModelsConfig, host: ModelHost, lifecycle: Lifecycle, ring: KeyRing
) -> ASGIApp:
    """The application. Requests to `PASSED_ENDPOINTS` and `--pass-path` are passed on."""
    own = OwnRoutes(host, lifecycle, PASSED_ENDPOINTS)
    proxy = ModelProxy(host, config.listen.max_body_bytes, config.connections.body_timeout)
    app = Starlette(
        routes=[
            Route("/health", own.health),
            Route("/ready", own.ready),
            Route("/ping", own.ready, methods=["GET", "POST"]),
            Route("/metrics", own.metrics),
            Route("/openapi.json", own.openapi),
            Route("/v1/models", own.models),
            Route("/v1/models/{model:path}", own.model),
            Route("/models/load", own.load, methods=["POST"]),
            Route("/models/unload", own.unload, methods=["POST"]),
            *(
                Route(row.path, proxy, methods=[row.method], name=row.name)
                for row in PASSED_ENDPOINTS
            ),
            *(Route(path, proxy, methods=["POST"]) for path in config.listen.pass_path),
        ],
        exception_handlers={
            ApiError: _refusal,
            ClientDisconnect: _no_client,
            HTTPException: http_error,
        },
    )
    return layered(app, config, lifecycle, ring)


async def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(error, error_shape(request.url.path))


async def _no_client(request: Request, error: Exception) -> Response:
    """It reads no response."""
    del request, error
    return Response(status_code=499)
