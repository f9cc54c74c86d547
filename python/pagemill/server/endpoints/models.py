"""`GET /v1/models` and `GET /v1/models/{model}`."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pagemill.server.model_info import ModelInfo
from pagemill.server.state import state_of


class ModelCard(msgspec.Struct):
    """One served name."""

    id: str
    created: int
    root: str
    max_model_len: int
    parent: str | None = None
    object: str = "model"
    owned_by: str = "pagemill"
    permission: list[str] = []


class ModelList(msgspec.Struct):
    """All served names."""

    data: list[ModelCard]
    object: str = "list"


async def list_models(request: Request) -> Response:
    """Every name the model is served under."""
    model = state_of(request).pipeline.model
    cards = [_card(model, name) for name in model.names]
    return Response(msgspec.json.encode(ModelList(cards)), media_type="application/json")


async def retrieve(request: Request) -> Response:
    """One of them."""
    model, name = state_of(request).pipeline.model, request.path_params["model"]
    model.check_name(name)
    return Response(msgspec.json.encode(_card(model, name)), media_type="application/json")


def _card(model: ModelInfo, name: str) -> ModelCard:
    return ModelCard(
        id=name, created=model.created, root=model.root, max_model_len=model.max_model_len
    )
