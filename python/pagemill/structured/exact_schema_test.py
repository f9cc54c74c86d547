"""Which schemas xgrammar may have, and what is said of the others."""

from __future__ import annotations

from typing import Any

import pytest

from pagemill.structured.exact_schema import inexactness

Schema = dict[str, Any]
_SELF: Schema = {"$ref": "#/$defs/a"}


def closed(**properties: Any) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"description": "anything", "$defs": {"unused": {"not": {}}}},
        {"enum": ["a/b", 1, True, None, 'a "quoted" \\ text', "é"], "default": 1},
        {"const": 3, "type": "number"},
        {"type": ["string", "null"], "title": "A name"},
        {"type": "integer", "minimum": -3, "exclusiveMaximum": 10**9},
        {"type": "number", "minimum": 0.25, "maximum": 1.0},
        {"type": "array", "items": {"anyOf": [{"type": "null"}, closed(a={})]}, "maxItems": 64},
        {"$id": "https://example.com/a.json", "type": "object"},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {**closed(**{"a": {"type": "string"}, "b c": True}), "required": ["a"]},
        {**_SELF, "$defs": {"a": closed(child=_SELF, others={"type": "array", "items": _SELF})}},
    ],
)
def test_exact_schemas(schema: Any) -> None:
    assert inexactness(schema) is None


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        (False, "`#`, which is not an object"),
        ({"type": "string", "pattern": "a+"}, "`pattern` in `#`"),
        (closed(a=closed(b={"type": "string", "maxLength": 3})), "`maxLength` in `#/properties/a/"),
        ({"type": "object", "properties": {"a": {}}}, "beside those that `#/properties` lists"),
        ({**closed(a={}), "required": ["b"]}, "`required` in `#`"),
        ({"type": "object", "required": ["b"]}, "`required` in `#`"),
        (
            {"properties": {}, "additionalProperties": False},
            "`additionalProperties` without `type`",
        ),
        ({"type": "objec"}, "`type` in `#`"),
        ({"type": ["string", "string"]}, "`type` in `#`"),
        ({"type": []}, "`type` in `#`"),
        ({"enum": []}, "`enum` in `#`"),
        ({"enum": [1, "a"], "type": "string"}, "the value 1 in `#`"),
        ({"enum": [True], "type": "integer"}, "the value True in `#`"),
        ({"const": 1.5}, "the value 1.5 in `#`"),
        ({"const": {"a": 1}}, "the value"),
        ({"const": "a\nb"}, "control characters in `#`"),
        ({"anyOf": [{}], "type": "string"}, "`type` in `#`"),
        (closed(a={"$id": "b.json"}), "`$id` without `type` in `#/properties/a`"),
        ({"oneOf": [{}]}, "`oneOf` without `type` in `#`"),
        ({"type": "array", "items": False}, "`#/items`"),
        ({"type": "array", "minItems": 65}, "`#/minItems`"),
        ({"type": "array", "minItems": 3, "maxItems": 2}, "`minItems` above `maxItems`"),
        ({"type": "integer", "exclusiveMinimum": True}, "`#/exclusiveMinimum`"),
        ({"type": "integer", "minimum": 0.5}, "`#/minimum`"),
        ({"type": "number", "maximum": 1e-7}, "`#/maximum`"),
        ({"type": "number", "maximum": float("nan")}, "`#/maximum`"),
        (_SELF, "the reference in `#`"),
        ({"$ref": "other.json"}, "the reference in `#`"),
        ({"$ref": 3}, "the reference in `#`"),
        ({**_SELF, "$defs": {"a": {"anyOf": [_SELF, {}]}}}, "which refers to itself"),
        ({"anyOf": [{}] * 200}, "more than 128 schemas"),
        ({"enum": list(range(600))}, "more than 512 values"),
        ({"enum": ["x" * 3000, "é" * 1000]}, "more than 4096 bytes"),
        (closed(**{f"k{i}": {} for i in range(65)}), "at most 64"),
    ],
)
def test_what_is_not_exact_and_where(schema: Any, found: str) -> None:
    assert found in str(inexactness(schema))


def test_nested_schemas_are_bounded() -> None:
    schema: Schema = {}
    for _ in range(16):
        schema = {"type": "array", "items": schema}
    assert inexactness(schema) is None
    assert "in more than 16 others: `#/items" in str(
        inexactness({"type": "array", "items": schema})
    )
