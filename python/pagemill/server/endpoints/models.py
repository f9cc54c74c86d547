"""`GET /v1/models` and `GET /v1/models/{model}`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pagemill.server.caller import Caller
from pagemill.server.protocol.model import ModelCard, ModelList, ModelName, model_list
from pagemill.server.registry import ModelRegistry
from pagemill.server.state import ServerState


async def list_models(server: ServerState, body: dict[str, Any], caller: Caller) -> ModelList:
    """Every name that a request may give."""
    del body
    names = server.models.names_for(caller)
    return model_list([_card(server.models, name, caller) for name in names])


async def retrieve(server: ServerState, body: ModelName, caller: Caller) -> ModelCard:
    """One of them."""
    return _card(server.models, body.model, caller)


def _card(models: ModelRegistry, name: str, caller: Caller) -> ModelCard:
    model = models.resolve(name, caller).model.model
    return ModelCard(
        id=name,
        created=model.created,
        root=model.root,
        max_model_len=model.max_model_len,
        created_at=datetime.fromtimestamp(model.created, UTC).isoformat(),
        display_name=name,
        max_input_tokens=model.max_model_len,
        max_tokens=model.max_model_len,
    )
