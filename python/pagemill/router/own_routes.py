"""What the router answers itself: probes, models of all servers, metrics, its description."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pagemill.observe.metrics import CONTENT_TYPE
from pagemill.router.fleet import Fleet, Server
from pagemill.router.headers import to_server
from pagemill.router.metrics import RouterMetrics
from pagemill.router.upstream import TimeLimits, UpstreamError
from pagemill.server.access.caller import Caller, Scope
from pagemill.server.endpoints.endpoint import Endpoint
from pagemill.server.endpoints.table import endpoint_named
from pagemill.server.errors import ApiError
from pagemill.server.http_answer import error_response
from pagemill.server.lifecycle import Lifecycle, Phase
from pagemill.server.openapi import document
from pagemill.server.protocol.model import ModelCard, ModelList, model_list

_OWN = ("health", "metrics", "models", "openapi", "ping", "ping_post", "ready")
_MAX_ANSWER_BYTES = 2**20
_LIMITS = TimeLimits(2.0, 5.0)


class OwnRoutes:
    """Handlers of routes that no single server answers."""

    def __init__(
        self,
        fleet: Fleet,
        lifecycle: Lifecycle,
        metrics: RouterMetrics,
        passed: tuple[Endpoint, ...],
    ) -> None:
        """`passed`: the endpoints whose requests are passed on."""
        self._fleet = fleet
        self._rows = (*passed, *(endpoint_named(name) for name in _OWN))
        self._lifecycle = lifecycle
        self._metrics = metrics

    async def health(self, request: Request) -> Response:
        """200 while the router lives."""
        del request
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """200 while a request would be passed on."""
        del request
        if self._lifecycle.phase is Phase.DRAINING:
            return error_response(ApiError(503, "The router is draining."))
        if not self._fleet.available:
            return error_response(ApiError(503, "No server is ready."))
        return JSONResponse({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        """Prometheus text; needs the scope `metrics` if the router checks keys."""
        caller: Caller = request.state.caller
        try:
            caller.require(Scope.METRICS)
        except ApiError as error:
            return error_response(error)
        return Response(self._metrics.render(), headers={"content-type": CONTENT_TYPE})

    async def openapi(self, request: Request) -> Response:
        """The routes of the router; those that it passes on need a server that has them."""
        del request
        return Response(document(self._rows), media_type="application/json")

    async def models(self, request: Request) -> Response:
        """The models of all servers that are available, each name once."""
        servers = self._fleet.available
        if not servers:
            return error_response(ApiError(503, "No server is ready."))
        answers = await asyncio.gather(*(_models(server, request) for server in servers))
        lists = [answer for answer in answers if isinstance(answer, ModelList)]
        if not lists:
            refused = next((each for each in answers if isinstance(each, Response)), None)
            return refused or error_response(ApiError(502, "No server answered."))
        cards: dict[str, ModelCard] = {}
        for each in lists:
            for card in each.data:
                cards.setdefault(card.id, card)
        merged = model_list(list(cards.values()))
        return Response(msgspec.json.encode(merged), media_type="application/json")


async def _models(server: Server, request: Request) -> ModelList | Response | None:
    """What `server` answers to the client: a list, a refusal, or None for nothing."""
    upstream = server.upstream
    headers = to_server(
        request.headers.raw,
        host=upstream.host,
        client=request.client.host if request.client is not None else "",
        request_id=request.state.request_id,
        size=0,
    )
    try:
        reply = await upstream.send("GET", "/v1/models", headers, limits=_LIMITS)
        body = await reply.body(_MAX_ANSWER_BYTES)
        if reply.status == 200:
            return msgspec.json.decode(body, type=ModelList)
    except (UpstreamError, msgspec.MsgspecError):
        return None
    return Response(body, reply.status, media_type="application/json")
