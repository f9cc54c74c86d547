"""The OpenAPI document: made from the table of endpoints and the structs of the bodies."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import FastAPI

from pagemill.server.auth import OPEN_PATHS
from pagemill.server.endpoints.models import ModelCard, ModelList
from pagemill.server.endpoints.table import Endpoint
from pagemill.server.errors import RETRY_AFTER_S, TYPE_OF_STATUS, ErrorResponse
from pagemill.server.protocol.chat import ChatChunk, ChatRequest, ChatResponse
from pagemill.server.protocol.completion import CompletionRequest, CompletionResponse
from pagemill.server.protocol.embedding import EmbeddingRequest, EmbeddingResponse

_JSON = "application/json"
_ERRORS_OF_ALL = {403, 408, 431, 500, 503}
_ERRORS_OF_KEYS = {401}
_ERRORS_OF_BODIES = {400, 404, 413, 429, 504}
_ERRORS_OF_PARAMETERS = {404}


@dataclass(frozen=True, slots=True)
class _Bodies:
    """Types of an endpoint's bodies: of the response, the request, and a stream's events."""

    response: Any = dict[str, str]
    request: type | None = None
    event: type | None = None
    media_type: str = _JSON


# By the endpoint's name. An endpoint that is not here takes no body, and answers an object.
_BODIES = {
    "chat_completions": _Bodies(ChatResponse, ChatRequest, ChatChunk),
    "completions": _Bodies(CompletionResponse, CompletionRequest, CompletionResponse),
    "embeddings": _Bodies(EmbeddingResponse, EmbeddingRequest),
    "metrics": _Bodies(str, media_type="text/plain"),
    "model": _Bodies(ModelCard),
    "models": _Bodies(ModelList),
}


def describe(app: FastAPI, endpoints: Sequence[Endpoint]) -> None:
    """Makes `app` describe `endpoints`, whose bodies it does not parse itself."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app, endpoints)
        return app.openapi_schema

    app.openapi = document


def _document(app: FastAPI, endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    used = [_BODIES.get(endpoint.name, _Bodies()) for endpoint in endpoints]
    types = [ErrorResponse, *(kind for bodies in used for kind in _types(bodies))]
    found, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    schemas = dict(zip(types, found, strict=True))
    paths: dict[str, Any] = {}
    for endpoint, bodies in zip(endpoints, used, strict=True):
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(
            endpoint, bodies, schemas, re.findall(r"\{(\w+)\}", path)
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": app.title, "version": app.version},
        "paths": paths,
        "components": {
            "schemas": components,
            "headers": {"X-Request-Id": _header("The id of the request.", "string")},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def _types(bodies: _Bodies) -> Iterator[Any]:
    yield bodies.response
    if bodies.request is not None:
        yield bodies.request
    if bodies.event is not None:
        yield bodies.event


def _operation(
    endpoint: Endpoint, bodies: _Bodies, schemas: dict[Any, Any], parameters: list[str]
) -> dict[str, Any]:
    content = {bodies.media_type: {"schema": schemas[bodies.response]}}
    if bodies.event is not None:
        content["text/event-stream"] = {"schema": schemas[bodies.event]}
    errors = _ERRORS_OF_ALL | (_ERRORS_OF_PARAMETERS if parameters else set())
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": inspect.getdoc(endpoint.load()),
    }
    if parameters:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in parameters
        ]
    if endpoint.path not in OPEN_PATHS:
        errors |= _ERRORS_OF_KEYS
        # Without --api-key none is needed: {} is that alternative.
        operation["security"] = [{"bearer": []}, {"header": []}, {}]
    if bodies.request is not None:
        errors |= _ERRORS_OF_BODIES
        operation["requestBody"] = {
            "required": True,
            "content": {_JSON: {"schema": schemas[bodies.request]}},
        }
    responses = {"200": _response("The answer.", content)}
    for status in sorted(errors):
        error = {_JSON: {"schema": schemas[ErrorResponse]}}
        responses[str(status)] = _response(TYPE_OF_STATUS[status], error)
        if status in RETRY_AFTER_S:
            retry = _header("After how many seconds to try again.", "integer")
            responses[str(status)]["headers"]["Retry-After"] = retry
    operation["responses"] = responses
    return operation


def _response(description: str, content: dict[str, Any]) -> dict[str, Any]:
    headers = {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}}
    return {"description": description, "headers": headers, "content": content}


def _header(description: str, kind: str) -> dict[str, Any]:
    return {"description": description, "schema": {"type": kind}}
