"""The router as an ASGI application: its routes, behind the layers that servers have, too."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from pagemill.config import RouteConfig
from pagemill.router.fleet import Fleet
from pagemill.router.front import http_error, layered
from pagemill.router.hints import HintReader
from pagemill.router.metrics import RouterMetrics
from pagemill.router.own_routes import OwnRoutes
from pagemill.router.proxy import Proxy
from pagemill.server.access.key_ring import KeyRing
from pagemill.server.endpoints.table import PASSED_ENDPOINTS
from pagemill.server.lifecycle import Lifecycle


def create_app(
    config: RouteConfig,
    fleet: Fleet,
    hints: HintReader,
    lifecycle: Lifecycle,
    ring: KeyRing,
) -> ASGIApp:
    """The application. Requests to `PASSED_ENDPOINTS` and `--pass-path` are passed on."""
    own = OwnRoutes(fleet, lifecycle, RouterMetrics(fleet, config.router.policy), PASSED_ENDPOINTS)
    proxy = Proxy(fleet, hints, config.listen.max_body_bytes)
    app = Starlette(
        routes=[
            Route("/health", own.health),
            Route("/ready", own.ready),
            Route("/ping", own.ready, methods=["GET", "POST"]),
            Route("/metrics", own.metrics),
            Route("/openapi.json", own.openapi),
            Route("/v1/models", own.models),
            *(
                Route(row.path, proxy, methods=[row.method], name=row.name)
                for row in PASSED_ENDPOINTS
            ),
            *(Route(path, proxy, methods=["POST"]) for path in config.listen.pass_path),
        ],
        exception_handlers={HTTPException: http_error},
    )
    return layered(app, config, lifecycle, ring)
