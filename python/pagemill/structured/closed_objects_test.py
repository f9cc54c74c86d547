"""Which objects get no further properties."""

from __future__ import annotations

from typing import Any

import pytest

from pagemill.structured.closed_objects import close_objects

AGE: dict[str, Any] = {"properties": {"age": {"type": "integer"}}}
CLOSED: dict[str, Any] = {**AGE, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "closed"),
    [
        (AGE, CLOSED),
        ({"properties": {"a": AGE}}, {"properties": {"a": CLOSED}, "additionalProperties": False}),
        ({"items": AGE}, {"items": CLOSED}),
        ({"prefixItems": [AGE, True]}, {"prefixItems": [CLOSED, True]}),
        ({"anyOf": [AGE, {"type": "null"}]}, {"anyOf": [CLOSED, {"type": "null"}]}),
        ({"$ref": "#/$defs/a", "$defs": {"a": AGE}}, {"$ref": "#/$defs/a", "$defs": {"a": CLOSED}}),
        ({"allOf": [AGE], "title": "x"}, {"allOf": [CLOSED], "title": "x"}),
        ({"additionalProperties": AGE}, {"additionalProperties": CLOSED}),
    ],
)
def test_objects_that_list_their_properties_are_closed(schema: Any, closed: Any) -> None:
    assert close_objects(schema) == closed
    assert close_objects(closed) == closed


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {**AGE, "additionalProperties": True},
        {**AGE, "additionalProperties": {"type": "string"}},
        {**AGE, "patternProperties": {"^x": {}}},
        {**AGE, "minProperties": 2},
        {**AGE, "required": ["name"]},
        {"allOf": [AGE, {"properties": {"name": {}}}]},
        {"items": AGE, "properties": {"a": {"allOf": [AGE, {}]}}},
        {**AGE, "anyOf": [{"properties": {"name": {}}}, {}]},
        {**AGE, "$ref": "#/$defs/a", "$defs": {"a": AGE}},
        {"enum": [AGE], "const": AGE, "default": AGE, "properties": []},
    ],
)
def test_other_objects_stay_as_they_are(schema: Any) -> None:
    assert close_objects(schema) == schema


def test_deep_objects_stay_as_they_are() -> None:
    schema: dict[str, Any] = AGE
    for _ in range(900):
        schema = {"items": schema}
    assert close_objects(schema) == schema
