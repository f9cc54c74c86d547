"""The OpenAPI document: made from the request structs when somebody asks for it."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from pagemill.server.protocol.chat import ChatRequest, ChatResponse
from pagemill.server.protocol.completion import CompletionRequest, CompletionResponse
from pagemill.server.protocol.embedding import EmbeddingRequest, EmbeddingResponse

_BODIES: dict[str, tuple[type, type]] = {
    "/v1/chat/completions": (ChatRequest, ChatResponse),
    "/v1/completions": (CompletionRequest, CompletionResponse),
    "/v1/embeddings": (EmbeddingRequest, EmbeddingResponse),
}


def describe_bodies(app: FastAPI) -> None:
    """Makes `app` describe the bodies of its routes, which it does not parse itself."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document


def _document(app: FastAPI) -> dict[str, Any]:
    made = get_openapi(title=app.title, version=app.version, routes=app.routes)
    types = [kind for pair in _BODIES.values() for kind in pair]
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    made.setdefault("components", {}).setdefault("schemas", {}).update(components)
    for number, path in enumerate(_BODIES):
        request, response = schemas[2 * number : 2 * number + 2]
        operation = made["paths"][path]["post"]
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": request}},
        }
        operation["responses"]["200"]["content"] = {"application/json": {"schema": response}}
    return made
