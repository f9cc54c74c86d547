"""The list of models, and an operator's requests to load and unload one; knows nothing of HTTP."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from pagemill.model_host.host import ModelHost
from pagemill.model_host.hosted_model import HostedModel, ModelState
from pagemill.server.access.caller import Caller, Scope
from pagemill.server.endpoints.endpoint import Endpoint, Transport
from pagemill.server.protocol.hosted_models import (
    HostedModelCard,
    HostedModelList,
    HostedModelRequest,
    HostedModelState,
    HostedModelStatus,
)
from pagemill.server.protocol.model import ModelCard, ModelName


def list_models(host: ModelHost, caller: Caller) -> HostedModelList:
    """The names that the caller may use, each with the status of its model."""
    cards = [card for model in host.models for card in _cards(model, caller)]
    first, last = (cards[0].id, cards[-1].id) if cards else (None, None)
    return HostedModelList(data=cards, first_id=first, last_id=last)


def retrieve(host: ModelHost, body: ModelName, caller: Caller) -> HostedModelCard:
    """One of them.

    Raises:
        ApiError: 404: there is none.
    """
    model = host.named(body.model, caller)
    return next(card for card in _cards(model, caller) if card.id == body.model)


async def load(host: ModelHost, body: HostedModelRequest, caller: Caller) -> HostedModelState:
    """Loads a model; the answer comes when that is done.

    Raises:
        ApiError: 404: there is none; 503: it cannot be loaded.
    """
    model = host.named(body.model, caller)
    await host.load(model)
    return HostedModelState(model=model.name, status=_status(model))


async def unload(host: ModelHost, body: HostedModelRequest, caller: Caller) -> HostedModelState:
    """Stops a model, whose running requests may finish; the answer comes when its process has
    ended.

    Raises:
        ApiError: 404: there is none; 409: it is kept.
    """
    model = host.named(body.model, caller)
    await host.unload(model)
    return HostedModelState(model=model.name, status=_status(model))


def _cards(model: HostedModel, caller: Caller) -> Iterator[HostedModelCard]:
    """Those of the names of `model` that the caller may use."""
    known = {} if model.ready is None else {card.id: card for card in model.ready.cards}
    for name in model.config.all_names:
        if caller.may_use(name):
            root = model.config.serve.engine.model.model or name
            unknown = ModelCard(id=name, created=0, root=root, max_model_len=0, display_name=name)
            fields = structs.asdict(known.get(name, unknown))
            yield HostedModelCard(**fields, status=_status(model))


def _status(model: HostedModel) -> HostedModelStatus:
    reason = model.waits_for if model.state is ModelState.LOADING else model.reason
    return HostedModelStatus(model.state.value, reason)


def _row(handler: str, method: str, path: str, request: str, response: str) -> Endpoint:
    is_operation = method == "POST"
    return Endpoint(
        name=f"hosted_{handler}",
        method=method,
        path=path,
        handler=f"{__name__}:{handler}",
        scope=Scope.ADMIN if is_operation else Scope.KEY,
        transport=Transport.JSON if is_operation else Transport.PATH,
        request=request,
        response=f"hosted_models:{response}",
    )


_REQUEST = "hosted_models:HostedModelRequest"
ROWS = (
    _row("list_models", "GET", "/v1/models", "", "HostedModelList"),
    _row("retrieve", "GET", "/v1/models/{model}", "model:ModelName", "HostedModelCard"),
    _row("load", "POST", "/models/load", _REQUEST, "HostedModelState"),
    _row("unload", "POST", "/models/unload", _REQUEST, "HostedModelState"),
)
"""What the description of the API says of them."""
