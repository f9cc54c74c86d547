"""JSON Schemas in which an object has the properties that are listed, and no others.

    schema = close_objects({"type": "object", "properties": {"age": {"type": "integer"}}})

By JSON Schema an object may have further properties unless `additionalProperties` says otherwise.
Clients that leave it out, such as those that make schemas of classes, mean the listed properties;
a small model that may add others often adds them without end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

Schema = Mapping[str, Any]

_MAX_DEPTH = 64
"""Deeper objects stay as they are."""
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_LISTED = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SINGLE = frozenset({"items", "additionalProperties"})
_OTHER_PROPERTIES = frozenset({"additionalProperties", "patternProperties", "minProperties"})
"""Keywords with which an object may have, or needs, properties that are not listed."""
_COMBINING = frozenset({"not", "if", "dependentSchemas", "unevaluatedProperties"})
_ELSEWHERE = frozenset({"allOf", "anyOf", "oneOf", "$ref"})
"""Keywords whose schemas may list an object's properties."""


def close_objects(schema: Schema) -> Schema:
    """Returns `schema` with `additionalProperties: false` in objects that list their `properties`.

    What is valid against the result is valid against `schema`. A schema that combines the
    properties of several objects, with `allOf` or the like, is returned as it is.
    """
    if any(map(_combines, _all_schemas(schema))):
        return schema
    return cast(Schema, _closed(schema, 0))


def _combines(schema: Schema) -> bool:
    """True if the properties of an object are not all listed in one place."""
    keywords = schema.keys()
    is_object = "properties" in keywords or "required" in keywords
    parts = schema.get("allOf")
    return bool(
        _COMBINING & keywords
        or (is_object and _ELSEWHERE & keywords)
        or (isinstance(parts, list) and len(cast(list[Any], parts)) > 1)
    )


def _all_schemas(schema: Any) -> Iterator[Schema]:
    """Yields `schema` and the schemas in it."""
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            found = cast(Schema, each)
            yield found
            for key, value in found.items():
                waiting += _values(key, value)


def _values(key: str, value: Any) -> list[Any]:
    """The schemas that a keyword has."""
    if key in _NAMED and isinstance(value, Mapping):
        return list(cast(Schema, value).values())
    if key in _LISTED and isinstance(value, list):
        return cast(list[Any], value)
    return [value] if key in _SINGLE else []


def _closed(schema: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth == _MAX_DEPTH:
        return cast(Any, schema)
    given = cast(Schema, schema)
    result = {key: _closed_values(key, value, depth + 1) for key, value in given.items()}
    if _lists_its_properties(given):
        result["additionalProperties"] = False
    return result


def _closed_values(key: str, value: Any, depth: int) -> Any:
    values = [_closed(each, depth) for each in _values(key, value)]
    if key in _NAMED and isinstance(value, Mapping):
        return dict(zip(cast(Schema, value), values, strict=True))
    if key in _LISTED and isinstance(value, list):
        return values
    return values[0] if values else value


def _lists_its_properties(schema: Schema) -> bool:
    properties, required = schema.get("properties"), schema.get("required", [])
    return (
        isinstance(properties, Mapping)
        and not _OTHER_PROPERTIES & schema.keys()
        and isinstance(required, list)
        and all(name in properties for name in cast(list[Any], required))
    )
