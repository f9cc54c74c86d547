"""`GET /v1/models` and `GET /v1/models/{model}`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pagemill.server.access.caller import Caller
from pagemill.server.errors import ApiError
from pagemill.server.model_info import ModelInfo
from pagemill.server.protocol.model import ModelCard, ModelList, ModelName, model_list
from pagemill.server.registry import ModelRegistry
from pagemill.server.state import ServerState


async def list_models(server: ServerState, body: dict[str, Any], caller: Caller) -> ModelList:
    """Every name that a request may give: the model's, then those of its adapters."""
    del body
    names = server.models.names_for(caller)
    cards = [_card(server.models, name, caller) for name in names]
    cards += [
        _adapter_card(server.models, adapter) for adapter in await server.models.adapters(caller)
    ]
    return model_list(cards)


async def retrieve(server: ServerState, body: ModelName, caller: Caller) -> ModelCard:
    """One of them."""
    if server.models.resolve(body.model, caller).adapter is None:
        return _card(server.models, body.model, caller)
    for adapter in await server.models.adapters(caller):
        if adapter["name"] == body.model:
            return _adapter_card(server.models, adapter)
    message = f"The model `{body.model[:200]}` does not exist; /v1/models lists those there are."
    raise ApiError(404, message, "model")


def _card(models: ModelRegistry, name: str, caller: Caller) -> ModelCard:
    return _card_of(models, models.resolve(name, caller).model.model, name)


def _adapter_card(models: ModelRegistry, adapter: Mapping[str, Any]) -> ModelCard:
    card = _card_of(models, models.base, adapter["name"])
    card.root, card.parent = adapter["path"], models.base.name
    return card


def _card_of(models: ModelRegistry, model: ModelInfo, name: str) -> ModelCard:
    return ModelCard(
        id=name,
        created=model.created,
        root=model.root,
        max_model_len=model.max_model_len,
        created_at=datetime.fromtimestamp(model.created, UTC).isoformat(),
        display_name=name,
        max_input_tokens=model.max_model_len,
        max_tokens=model.max_model_len,
        input_modalities=("text", *models.media_kinds),
    )
