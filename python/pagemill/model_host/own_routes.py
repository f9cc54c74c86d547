"""What a host of models answers itself: probes, the list of models, metrics, its description, and
an operator's requests to load and unload a model."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pagemill.model_host import operations
from pagemill.model_host.host import ModelHost
from pagemill.model_host.hosted_model import ModelState
from pagemill.model_host.metrics import HostMetrics
from pagemill.model_host.proxy import send_to, unanswered
from pagemill.observe.metrics import CONTENT_TYPE
from pagemill.router.upstream import UpstreamError
from pagemill.server.access.caller import Caller, Scope
from pagemill.server.admission import read_body
from pagemill.server.endpoints.endpoint import Endpoint
from pagemill.server.endpoints.table import endpoint_named
from pagemill.server.errors import ApiError
from pagemill.server.lifecycle import Lifecycle, Phase
from pagemill.server.openapi import document
from pagemill.server.protocol.decode import decode_fields, decode_object
from pagemill.server.protocol.hosted_models import RULES, HostedModelRequest
from pagemill.server.protocol.model import ModelName

_OWN = ("health", "metrics", "openapi", "ping", "ping_post", "ready")
_MAX_REQUEST_BYTES = 4096
_MAX_METRICS_BYTES = 2**24


class OwnRoutes:
    """Handlers of routes that no model answers. Each refusal is an ApiError, which the application
    turns into a response."""

    def __init__(self, host: ModelHost, lifecycle: Lifecycle, passed: tuple[Endpoint, ...]) -> None:
        """`passed`: the endpoints whose requests are passed on."""
        self._host = host
        self._lifecycle = lifecycle
        self._metrics = HostMetrics(host)
        self._rows = (*passed, *(endpoint_named(name) for name in _OWN), *operations.ROWS)

    async def health(self, request: Request) -> Response:
        """200 while the process lives."""
        del request
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """200 when each model that is kept was started, or has failed to."""
        del request
        if self._lifecycle.phase is Phase.DRAINING:
            raise ApiError(503, "The server is draining.")
        for model in self._host.models:
            if model.config.keep and not (model.counts.starts or model.counts.failures):
                raise ApiError(503, "A model that is kept is being loaded.")  # no key: no name
        return JSONResponse({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        """Prometheus text, with `?model=NAME` that of the model's own process, which is not loaded
        for it. Needs the scope `metrics`."""
        caller: Caller = request.state.caller
        caller.require(Scope.METRICS)
        name = request.query_params.get("model")
        if name is None:
            return Response(self._metrics.render(), headers={"content-type": CONTENT_TYPE})
        model = self._host.named(name, caller)
        if model.state is not ModelState.LOADED:
            raise ApiError(503, f"The model `{model.name}` is {model.state}: it has no metrics.")
        try:
            reply = await send_to(model, request)
            body = await reply.body(_MAX_METRICS_BYTES)
        except UpstreamError as error:
            raise unanswered(model, error) from error
        return Response(body, reply.status, headers={"content-type": CONTENT_TYPE})

    async def openapi(self, request: Request) -> Response:
        """All routes; those that are passed on need a model that has them."""
        del request
        return Response(document(self._rows), media_type="application/json")

    async def models(self, request: Request) -> Response:
        """See `operations.list_models`."""
        return _json(operations.list_models(self._host, request.state.caller))

    async def model(self, request: Request) -> Response:
        """See `operations.retrieve`."""
        name = ModelName(request.path_params["model"])
        return _json(operations.retrieve(self._host, name, request.state.caller))

    async def load(self, request: Request) -> Response:
        """See `operations.load`."""
        return _json(await operations.load(self._host, *await _operation(request)))

    async def unload(self, request: Request) -> Response:
        """See `operations.unload`."""
        return _json(await operations.unload(self._host, *await _operation(request)))


async def _operation(request: Request) -> tuple[HostedModelRequest, Caller]:
    """The body of an operator's request, and its caller.

    Raises:
        ApiError: 403: the caller is no operator; 400: it is no such body.
    """
    caller: Caller = request.state.caller
    caller.require(Scope.ADMIN)
    body = decode_object(await read_body(request, _MAX_REQUEST_BYTES))
    return decode_fields(body, HostedModelRequest, RULES), caller


def _json(body: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
