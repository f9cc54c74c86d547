"""Values that a model writes as plain text, as JSON of the type that the tool's schema wants."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, cast

_MAX_VARIANTS = 16
_MAX_REFERENCES = 8
_INTEGER = re.compile(r"[+-]?[0-9]{1,300}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WORDS = {"true": True, "1": True, "false": False, "0": False}


def type_names(schema: Any) -> frozenset[str]:
    """The types that a value of `schema` may have; empty if the schema does not say."""
    fields = _fields(schema)
    declared = fields.get("type")
    if isinstance(declared, str):
        return frozenset({declared})
    if isinstance(declared, list):
        return frozenset(each for each in cast(list[Any], declared) if isinstance(each, str))
    for key in ("anyOf", "oneOf"):
        if isinstance(fields.get(key), list):
            variants = cast(list[Any], fields[key])[:_MAX_VARIANTS]
            # Variants of variants are not followed.
            named = [type_names({"type": _fields(each).get("type")}) for each in variants]
            return frozenset[str]().union(*named) if all(named) else frozenset()
    choices = fields.get("enum")
    if isinstance(choices, list) and choices:
        are_strings = all(isinstance(each, str) for each in cast(list[Any], choices))
        return frozenset({"string"}) if are_strings else frozenset()
    return frozenset()


def parameter(schema: Any, key: str) -> Any:
    """The schema of parameter, or property, `key`; None if there is none. One that refers to a
    definition of `schema` is that definition."""
    found = _fields(_fields(schema).get("properties")).get(key)
    for _ in range(_MAX_REFERENCES):
        reference = _fields(found).get("$ref")
        if not (isinstance(reference, str) and reference.startswith("#/")):
            break
        found = schema
        for part in reference[2:].split("/"):
            found = _fields(found).get(part)
    return found


def items(schema: Any) -> Any:
    """The schema of an array's items; None if there is none."""
    return _fields(schema).get("items")


def unwrapped(written: str, schema: Any) -> str | None:
    """The arguments of a call as JSON, if `written`, the JSON of its only one, holds them all: an
    object, or its text, that has the parameters that `schema` requires and no unknown ones."""
    value = _parsed(written)
    if isinstance(value, str):
        value = _parsed(value)
    if not isinstance(value, dict):
        return None
    fields = cast(dict[str, Any], value)
    required, known = _fields(schema).get("required"), _fields(schema).get("properties")
    needed = cast(list[Any], required) if isinstance(required, list) else []
    if (
        not all(str(name) in fields for name in needed)
        or not fields.keys() <= _fields(known).keys()
    ):
        return None
    return json.dumps(fields, ensure_ascii=False)


def as_json(text: str, types: frozenset[str]) -> str:
    """`text` as JSON of the first of `types` that it fits: null, integer, number, boolean, object,
    array; else as a string. Without types, JSON stays JSON and everything else is a string."""
    word = text.strip()
    if not types:
        value = _parsed(word)
        return json.dumps(text, ensure_ascii=False) if value is _NO_VALUE else word
    if "null" in types and word.lower() in ("null", "none"):
        return "null"
    if "integer" in types or "number" in types:
        number = _number(word, "number" in types)
        if number is not None:
            return number
    if "boolean" in types and word.lower() in _WORDS:
        return json.dumps(_WORDS[word.lower()])
    value = _parsed(word) if types & {"object", "array"} else _NO_VALUE
    if (isinstance(value, dict) and "object" in types) or (
        isinstance(value, list) and "array" in types
    ):
        return word
    return json.dumps(text, ensure_ascii=False)


def _fields(value: Any) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


def _number(word: str, may_have_fraction: bool) -> str | None:
    if _INTEGER.fullmatch(word):
        return str(int(word))
    number = float(word) if _NUMBER.fullmatch(word) else math.inf
    if not math.isfinite(number):
        return None
    if number.is_integer() and abs(number) < 2**53:
        return str(int(number))
    return json.dumps(number) if may_have_fraction else None


_NO_VALUE = object()


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _NO_VALUE


def _refuse(text: str) -> Any:
    raise ValueError(text)
