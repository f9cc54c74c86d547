"""Schemas: what their grammars admit and refuse, and that `jsonschema` accepts what is written."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from jsonschema import Draft202012Validator, validators

from pagemill.structured.compiler import GrammarCompiler
from pagemill.structured.grammar import GrammarError, json_schema
from pagemill.structured.json_schema.formats import FORMATS
from pagemill.structured.testing.byte_tokenizer import admits, byte_vocabulary
from pagemill.structured.testing.walks import random_walk

_DRAFT_7 = "http://json-schema.org/draft-07/schema#"
_DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
NODE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"next": {"$ref": "#/$defs/node"}, "value": {"type": "integer"}},
        }
    },
}
SHAPE = {
    "type": "object",
    "oneOf": [
        {
            "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}},
            "required": ["kind", "r"],
        },
        {
            "properties": {"kind": {"const": "square"}, "a": {"type": "number"}},
            "required": ["kind", "a"],
        },
    ],
}

# (name, schema, JSON that is admitted, JSON that is not)
CASES: list[tuple[str, Any, list[str], list[str]]] = [
    ("const with a type", {"type": "string", "const": "a"}, ['"a"'], ['"b"', "1"]),
    ("enum with a length", {"enum": ["a", "bcd", 1], "maxLength": 2}, ['"a"', "1"], ['"bcd"']),
    ("enum with a pattern", {"enum": ["a", "b"], "pattern": "^a"}, ['"a"'], ['"b"']),
    ("const object", {"const": {"a": [1, {}]}}, ['{"a":[1,{}]}'], ["{}", '{"a":[1]}']),
    (
        "allOf",
        {"allOf": [{"minimum": 2}, {"maximum": 4}, {"type": "integer"}]},
        ["2", "4"],
        ["1", "5"],
    ),
    (
        "oneOf that overlaps",
        {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
        ["1", "2.5"],
        ["3", "1.5"],
    ),
    (
        "oneOf told apart by a name",
        SHAPE,
        ['{"kind":"circle","r":1}'],
        ['{"kind":"circle","a":1}', "{}"],
    ),
    (
        "anyOf",
        {"anyOf": [{"type": "null"}, {"minLength": 2, "type": "string"}]},
        ["null", '"ab"'],
        ['"a"'],
    ),
    ("not a type", {"not": {"type": ["string", "object"]}}, ["1", "[]"], ['"a"', "{}"]),
    ("not a pattern", {"type": "string", "not": {"pattern": "^a"}}, ['"ba"', '""'], ['"ab"']),
    ("not required", {"type": "object", "not": {"required": ["a"]}}, ['{"b":1}'], ['{"a":1}']),
    (
        "if",
        {"if": {"type": "string"}, "then": {"maxLength": 1}, "else": {"type": "null"}},
        ['"a"', "null"],
        ['"ab"', "1"],
    ),
    (
        "dependencies",
        {"$schema": _DRAFT_7, "type": "object", "dependencies": {"a": ["b"]}},
        ['{"b":1}', '{"a":1,"b":1}'],
        ['{"a":1}'],
    ),
    (
        "dependentSchemas",
        {"type": "object", "dependentSchemas": {"a": {"minProperties": 2}}},
        ['{"a":1,"b":1}', "{}"],
        ['{"a":1}'],
    ),
    (
        "propertyNames",
        {"type": "object", "propertyNames": {"pattern": "^[a-c]+$"}},
        ['{"ab":1}', "{}"],
        ['{"d":1}'],
    ),
    (
        "patternProperties",
        {
            "type": "object",
            "patternProperties": {"^n_": {"type": "integer"}},
            "additionalProperties": False,
        },
        ['{"n_a":1}'],
        ['{"n_a":"x"}', '{"b":1}'],
    ),
    ("maxProperties", {"type": "object", "maxProperties": 1}, ["{}", '{"a":1}'], ['{"a":1,"b":2}']),
    (
        "contains",
        {"type": "array", "contains": {"minimum": 5}, "maxContains": 1},
        ["[3,5]", "[5]"],
        ["[3]", "[5,6]", "[]"],
    ),
    (
        "prefixItems",
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
        ["[]", '[1,"a"]'],
        ['["a"]', '[1,"a",2]'],
    ),
    (
        "items as a list",
        {
            "$schema": _DRAFT_7,
            "type": "array",
            "items": [{"type": "integer"}],
            "additionalItems": {"type": "null"},
        },
        ["[1,null]"],
        ["[1,1]"],
    ),
    (
        "distinct enum",
        {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True},
        ["[]", '["b","a"]'],
        ['["a","a"]'],
    ),
    (
        "distinct strings",
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        ['["a","b"]', '["ab","a"]'],
        ['["a","a"]', '["a" , "b","a"]'],
    ),
    (
        "distinct values",
        {"type": "array", "uniqueItems": True},
        ["[1,2,true,null]", '[{"a":1},{"a":2}]', "[[1],[2]]"],
        ["[1,1]", '[{"a":1},{"a":1}]', "[[1],[ 1 ]]", "[1,2,1]"],
    ),
    (
        "distinct where few are left",
        {
            "type": "array",
            "items": {"pattern": "^(ab|cd|x+)$", "type": "string"},
            "uniqueItems": True,
        },
        ['["ab","cd","x","xx"]'],
        ['["ab","ab"]'],
    ),
    (
        "unevaluatedProperties",
        {"type": "object", "allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False},
        ['{"a":1}'],
        ['{"b":1}'],
    ),
    (
        "unevaluatedItems",
        {"type": "array", "allOf": [{"prefixItems": [True]}], "unevaluatedItems": False},
        ["[1]"],
        ["[1,2]"],
    ),
    ("recursion", NODE, ['{"next":{"value":1}}'], ['{"next":1}', '{"other":1}']),
    (
        "oneOf told apart by patterns of names",
        {
            "type": "object",
            "oneOf": [
                {"patternProperties": {"^a": True}, "additionalProperties": False},
                {"patternProperties": {"^b": True}, "additionalProperties": False},
            ],
        },
        ['{"a":1}', '{"b":1}'],
        ["{}", '{"a":1,"b":1}'],
    ),
    (
        "distinct objects",
        {"type": "array", "uniqueItems": True},
        ['[{"a":1,"b":2},{"b":2}]'],
        ['[{"a":1,"b":2},{"b":2,"a":1}]'],
    ),
    (
        "large bounds",
        {"type": "integer", "maximum": 2**64 - 1},
        ["18446744073709551615", "-1"],
        ["18446744073709551616"],
    ),
    ("large numbers", {"type": "integer", "minimum": 2**70}, ["1180591620717411303424"], ["1"]),
    (
        "an anchor",
        {"$ref": "#a", "$defs": {"x": {"$anchor": "a", "type": "null"}}},
        ["null"],
        ["1"],
    ),
    (
        "an identifier",
        {"$id": "http://x/y", "$ref": "z", "$defs": {"x": {"$id": "z", "type": "null"}}},
        ["null"],
        ["1"],
    ),
    ("a metaschema", {"$ref": _DRAFT_7}, ['{"type":"string"}', "true"], ['{"type":"strin"}', "1"]),
    ("lookahead", {"type": "string", "pattern": "^(?!foo)[a-z]+$"}, ['"fo"', '"bar"'], ['"foob"']),
    ("word boundary", {"type": "string", "pattern": r"^x*\bab\b$"}, ['"ab"'], ['"xab"']),
    ("escapes", {"type": "string", "pattern": '^["\\\\\n]+$'}, [r'"\"\\\n"'], ['"a"']),
    (
        "multiples",
        {"type": "number", "multipleOf": 0.5, "exclusiveMinimum": 0},
        ["0.5", "2"],
        ["0.3", "0"],
    ),
    (
        "a part that is not known",
        {"type": "object", "properties": {"a": {"$ref": "http://x/y"}, "b": {"type": "null"}}},
        ["{}", '{"b":null}'],
        ['{"a":1}'],
    ),
    ("a format", {"type": "string", "format": "date"}, ['"2024-02-29"'], ['"2023-02-29"']),
    (
        "a format that is an annotation",
        {"$schema": _DRAFT_2020, "type": "string", "format": "date"},
        ['"2023-02-29"'],
        ["1"],
    ),
    ("true and 1", {"enum": [True, 0]}, ["true", "0"], ["1", "false"]),
]


_NAMES = [case[0] for case in CASES]


@pytest.fixture(name="compiler", scope="module")
def _compiler() -> GrammarCompiler:
    return GrammarCompiler(byte_vocabulary)


@pytest.mark.parametrize(("schema", "good", "bad"), [case[1:] for case in CASES], ids=_NAMES)
def test_what_a_schema_admits(
    compiler: GrammarCompiler, schema: Any, good: list[str], bad: list[str]
) -> None:
    grammar = json_schema(schema)
    assert [text for text in good if not admits(compiler, grammar, text)] == []
    assert [text for text in bad if admits(compiler, grammar, text)] == []


@pytest.mark.parametrize("schema", [case[1] for case in CASES], ids=_NAMES)
def test_what_is_written_is_valid(compiler: GrammarCompiler, schema: Any) -> None:
    validator = validators.validator_for(schema, default=Draft202012Validator)(schema)
    begin = compiler.factory(json_schema(schema))
    rng = random.Random(1)
    ended = 0
    for _ in range(12):
        walk = random_walk(begin, rng)
        assert not walk.is_dead, walk.text
        if walk.is_ended:
            ended += 1
            assert list(validator.iter_errors(json.loads(walk.text))) == []
    assert ended


# The checkers refuse 4606 in front of a pointer, and a bracket in a template.
@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"relative-json-pointer", "uri-template"}))
def test_texts_of_a_format(compiler: GrammarCompiler, name: str) -> None:
    schema = {"type": "string", "format": name}
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    begin = compiler.factory(json_schema(schema))
    rng = random.Random(2)
    walks = [random_walk(begin, rng, free=20) for _ in range(20)]
    assert not any(walk.is_dead for walk in walks)
    texts = [json.loads(walk.text) for walk in walks if walk.is_ended]
    assert [text for text in texts if not validator.is_valid(text)] == []


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "objec"}, "#: `type` 'objec' is none of null, boolean"),
        ({"properties": {"a": {"type": 1}}}, "#/properties/a: `type` must be"),
        ({"properties": {"a": 1}}, "#/properties/a: a schema must be"),
        ({"minLength": -1}, "#: `minLength` must not be negative"),
        ({"type": "integer", "minimum": 10**4000}, "`minimum` leaves only numbers beyond 1e"),
        ({"multipleOf": 0}, "#: `multipleOf` must be positive"),
        ({"$ref": "#/nope"}, "leads nowhere"),
        ({"$ref": "http://x/y"}, "none is fetched"),
        ({"$ref": "#"}, "refers to itself"),
        ({"type": "string", "pattern": r"(a)\1"}, "`\\\\1` is not known"),
        (False, "no JSON"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "no JSON"),
        ({"type": "array", "items": {"enum": [1]}, "uniqueItems": True, "minItems": 2}, "no JSON"),
    ],
)
def test_what_is_refused(compiler: GrammarCompiler, schema: Any, message: str) -> None:
    with pytest.raises(GrammarError, match=message):
        compiler.prepare(json_schema(schema))
