"""The OpenAPI document, generated from the table of endpoints and the structs of the bodies."""

from __future__ import annotations

import functools
import inspect
import re
from types import UnionType
from typing import Any, get_args

import msgspec

from pagemill import __version__
from pagemill.server.access.caller import Scope
from pagemill.server.endpoints.endpoint import Endpoint, Transport
from pagemill.server.errors import RETRY_AFTER_S, TYPE_OF_STATUS
from pagemill.server.protocol.file import UploadedFile
from pagemill.server.protocol.transcription import UploadedAudio

_JSON = "application/json"
_MEDIA_TYPES = {
    Transport.JSON: _JSON,
    Transport.PATH_AND_JSON: _JSON,
    Transport.FORM: "multipart/form-data",
    Transport.AUDIO_FORM: "multipart/form-data",
}
_ERRORS_OF_ALL = frozenset({403, 408, 431, 500, 503})
_ERRORS_OF_KEYS = frozenset({401})
_ERRORS_OF_BODIES = frozenset({400, 404, 413, 429, 504})
_ERRORS_OF_PARAMETERS = frozenset({400, 404})
_OBJECT = dict[str, Any]
_END_OF_STREAM = "[DONE]"


@functools.lru_cache(maxsize=4)
def document(endpoints: tuple[Endpoint, ...], root_path: str = "") -> bytes:
    """The document that describes `endpoints`, as JSON; their paths come after `root_path`."""
    types: set[Any] = {_OBJECT}
    for endpoint in endpoints:
        errors = endpoint.errors.kind
        types |= {errors, *_answers(endpoint), endpoint.event_type() or errors}
        types.add(_body(endpoint))
    ordered = sorted(types, key=str)
    found, components = msgspec.json.schema_components(
        ordered, schema_hook=_file_schema, ref_template="#/components/schemas/{name}"
    )
    schemas = dict(zip(ordered, found, strict=True))
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", endpoint.path)
        operation = _operation(endpoint, schemas, re.findall(r"\{(\w+)\}", path))
        paths.setdefault(path, {})[endpoint.method.lower()] = operation
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Pagemill", "version": __version__},
            "servers": [{"url": root_path or "/"}],
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
    )


def _body(endpoint: Endpoint) -> Any:
    """The type of a body."""
    if endpoint.transport not in _MEDIA_TYPES:
        return _OBJECT
    body = endpoint.request_type()
    return _OBJECT if body is None else body.kind


def _answers(endpoint: Endpoint) -> tuple[Any, ...]:
    """The types of answers: msgspec describes no union of structs."""
    kind = endpoint.response_type()
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _file_schema(kind: type[Any]) -> dict[str, Any]:
    """The schema of a part that is a file; msgspec knows all other types."""
    if kind not in (UploadedFile, UploadedAudio):
        raise NotImplementedError
    return {"type": "string", "format": "binary"}


def _event(payloads: list[Any]) -> dict[str, Any]:
    """The schema of an event of a stream, whose data is JSON, or what ends some streams."""
    said = {"type": "string", "contentMediaType": _JSON, "contentSchema": {"anyOf": payloads}}
    properties = {
        "event": {"type": "string"},
        "data": {"anyOf": [said, {"const": _END_OF_STREAM}]},
    }
    return {"type": "object", "properties": properties, "required": ["data"]}


def _operation(
    endpoint: Endpoint, schemas: dict[Any, Any], parameters: list[str]
) -> dict[str, Any]:
    answers = [schemas[kind] for kind in _answers(endpoint)]
    answer = answers[0] if len(answers) == 1 else {"anyOf": answers}
    content = {endpoint.media_type: {"schema": answer}}
    if endpoint.binary:
        content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
    event = endpoint.event_type()
    if event is not None:
        payloads = [schemas[event], schemas[endpoint.errors.kind]]
        content["text/event-stream"] = {"schema": _event(payloads)}
    errors = _ERRORS_OF_ALL | set(endpoint.statuses)
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": inspect.getdoc(endpoint.load()),
    }
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in parameters
    ]
    if found := [*in_path, *_query(endpoint, parameters)]:
        errors |= _ERRORS_OF_PARAMETERS
        operation["parameters"] = found
    if endpoint.scope is not Scope.OPEN:
        errors |= _ERRORS_OF_KEYS
        # Without --api-key none is needed: {} is that alternative.
        operation["security"] = [{"bearer": []}, {"header": []}, {}]
    if endpoint.transport in _MEDIA_TYPES:
        errors |= _ERRORS_OF_BODIES
        body = {_MEDIA_TYPES[endpoint.transport]: {"schema": schemas[_body(endpoint)]}}
        operation["requestBody"] = {"required": True, "content": body}
    responses: _OBJECT = {"200": _response("The answer.", content)}
    if endpoint.transport is Transport.WEBSOCKET:
        responses = {"101": {"description": "The connection is a WebSocket from now on."}}
    for status in sorted(errors):
        error = {_JSON: {"schema": schemas[endpoint.errors.kind]}}
        responses[str(status)] = _response(TYPE_OF_STATUS[status], error)
        if status in RETRY_AFTER_S:
            retry = _header("After how many seconds to try again.", "integer")
            responses[str(status)]["headers"]["Retry-After"] = retry
    operation["responses"] = responses
    return operation


def _query(endpoint: Endpoint, in_path: list[str]) -> list[dict[str, Any]]:
    """The parameters of the path's query: fields of the body that are not in the path."""
    body = endpoint.request_type()
    if endpoint.transport in _MEDIA_TYPES or body is None:
        return []
    _, components = msgspec.json.schema_components((body.kind,))
    fields = components[body.kind.__name__]["properties"]
    return [
        {"name": name, "in": "query", "schema": schema}
        for name, schema in fields.items()
        if name not in in_path
    ]


def _response(description: str, content: dict[str, Any]) -> dict[str, Any]:
    headers = {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}}
    return {"description": description, "headers": headers, "content": content}


def _header(description: str, kind: str) -> dict[str, Any]:
    return {"description": description, "schema": {"type": kind}}
