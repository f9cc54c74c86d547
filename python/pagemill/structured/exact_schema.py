"""JSON Schemas that xgrammar reads as JSON Schema defines them, and compiles within 0.1 s.

    inexactness({"type": "string", "pattern": "a+"})  # "`pattern` in `#`"

xgrammar ignores what it does not know, and reads the first of several keywords that apply at once.
So each schema has keywords of one kind here, all of them known to be exact (the tests compare with
`jsonschema` and with llguidance). Bounds on sizes are there because its compilation cannot be
interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

Schema = Mapping[str, Any]

_MAX_DEPTH = 16
_MAX_SCHEMAS = 128
_MAX_PROPERTIES = 64  # of one object
_MAX_VALUES = 512  # of all `enum` together
_MAX_TEXT_BYTES = 4096  # UTF-8, of all names and values: 20 us each with 150,000 tokens
_MAX_ITEMS = 64

_ANNOTATIONS = frozenset(
    {
        "$comment",
        "$defs",
        "$schema",
        "default",
        "definitions",
        "deprecated",
        "description",
        "example",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    }
)
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_KEYWORDS: Mapping[str, frozenset[str]] = {
    "array": frozenset({"items", "minItems", "maxItems"}),
    "boolean": frozenset(),
    "integer": _BOUNDS,
    "null": frozenset(),
    "number": _BOUNDS,
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "string": frozenset(),
}  # fmt: skip
"""By the name of the type."""
_MAX_NUMBER = 10**9  # of bounds
_MAX_INTEGER = 2**53  # of values


class _Inexact(Exception):  # noqa: N818  (a result, not an error)
    """`str()` says what is not taken, and where."""


def inexactness(schema: Any) -> str | None:
    """What in `schema` xgrammar would not read exactly, or soon, and where; None if nothing."""
    try:
        _Check(schema).schema(schema, "#", 0, frozenset())
    except _Inexact as found:
        return str(found)
    return None


class _Check:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._num_schemas = 0
        self._num_values = 0
        self._num_text_bytes = 0
        self._checked: set[str] = set()
        """References, by their names."""

    def schema(self, schema: Any, path: str, depth: int, open_: frozenset[str]) -> None:
        """`open_`: references to which `schema` belongs without a value around it."""
        self._num_schemas += 1
        if self._num_schemas > _MAX_SCHEMAS:
            raise _Inexact(f"more than {_MAX_SCHEMAS} schemas")
        if depth > _MAX_DEPTH:
            raise _Inexact(f"schemas in more than {_MAX_DEPTH} others: `{path}`")
        if schema is True:
            return
        if not isinstance(schema, Mapping):
            raise _Inexact(f"`{path}`, which is not an object")
        fields = cast(Schema, schema)
        stated = fields.keys() - _ANNOTATIONS
        if path == "#":
            stated -= {"$id", "id"}  # further in, they change what references refer to
        if "$ref" in stated:
            _only({"$ref"}, stated, path)
            self._reference(fields["$ref"], path, depth, open_)
        elif "anyOf" in stated:
            _only({"anyOf"}, stated, path)
            for index, each in enumerate(_list(fields, "anyOf", path)):
                self.schema(each, f"{path}/anyOf/{index}", depth + 1, open_)
        elif "enum" in stated:
            _only({"enum", "type"}, stated, path)
            self._values(_list(fields, "enum", path), fields.get("type"), path)
        elif "const" in stated:
            _only({"const", "type"}, stated, path)
            self._values([fields["const"]], fields.get("type"), path)
        elif stated:
            self._typed(fields, stated, path, depth)

    def _typed(self, fields: Schema, stated: set[str], path: str, depth: int) -> None:
        if "type" not in stated:
            raise _Inexact(f"`{min(stated)[:64]}` without `type` in `{path}`")
        types = list(_types(fields["type"], path))
        _only({"type"}.union(*(_KEYWORDS[each] for each in types)), stated, path)
        for key in sorted(_BOUNDS & stated):
            _bound(fields[key], "integer" in types, f"{path}/{key}")
        if "array" in types:
            self._array(fields, path, depth)
        if "object" in types:
            self._object(fields, path, depth)

    def _array(self, fields: Schema, path: str, depth: int) -> None:
        for key in ("minItems", "maxItems"):
            _whole(fields.get(key, 0), _MAX_ITEMS, f"{path}/{key}")
        if fields.get("minItems", 0) > fields.get("maxItems", _MAX_ITEMS):
            raise _Inexact(f"`minItems` above `maxItems` in `{path}`")
        self.schema(fields.get("items", True), f"{path}/items", depth + 1, frozenset())

    def _object(self, fields: Schema, path: str, depth: int) -> None:
        properties = fields.get("properties", {})
        if not isinstance(properties, Mapping) or len(cast(Schema, properties)) > _MAX_PROPERTIES:
            raise _Inexact(f"`properties` in `{path}`: at most {_MAX_PROPERTIES} are taken")
        required = _list(fields, "required", path) if "required" in fields else []
        if not all(isinstance(name, str) and name in properties for name in required):
            raise _Inexact(f"`required` in `{path}`, with names that `properties` lacks")
        others = fields.get("additionalProperties", True)
        if properties and others is not False:
            raise _Inexact(f"properties beside those that `{path}/properties` lists")
        if others is not False:
            self.schema(others, f"{path}/additionalProperties", depth + 1, frozenset())
        for name, each in cast(Schema, properties).items():
            self._text(name, path)
            self.schema(each, f"{path}/properties/{name}", depth + 1, frozenset())

    def _reference(self, to: Any, path: str, depth: int, open_: frozenset[str]) -> None:
        parts = to.split("/") if isinstance(to, str) else []
        target: Any = self._root
        for part in parts[1:]:
            target = _fields(target).get(part)
        is_taken = len(parts) == 3 and parts[0] == "#" and parts[1] in {"$defs", "definitions"}
        if not is_taken or not _fields(target) or not parts[2].replace("_", "").isalnum():
            raise _Inexact(f"the reference in `{path}`")
        if to in open_:
            raise _Inexact(f"the reference in `{path}`, which refers to itself")
        if to not in self._checked:
            self._checked.add(to)
            self.schema(target, to, depth + 1, open_ | {to})

    def _values(self, values: list[Any], stated_type: Any, path: str) -> None:
        self._num_values += len(values)
        if self._num_values > _MAX_VALUES:
            raise _Inexact(f"more than {_MAX_VALUES} values of `enum`")
        types = list(_types(stated_type, path)) if stated_type is not None else []
        for value in values:
            found = _type_of(value)
            if found == "string":
                self._text(value, path)
            if found is None or (types and not _belongs(found, types)):
                raise _Inexact(f"the value {value!r:.64} in `{path}`")

    def _text(self, text: str, path: str) -> None:
        if not text.isprintable():
            raise _Inexact(f"a text with control characters in `{path}`")
        self._num_text_bytes += len(text.encode())
        if self._num_text_bytes > _MAX_TEXT_BYTES:
            raise _Inexact(f"names and values of more than {_MAX_TEXT_BYTES} bytes")


def _fields(value: Any) -> Schema:
    return cast(Schema, value) if isinstance(value, Mapping) else {}


def _types(stated: Any, path: str) -> Iterator[str]:
    types: list[Any] = cast(list[Any], stated) if isinstance(stated, list) else [stated]
    if not types or len({*map(str, types)}) < len(types):
        raise _Inexact(f"`type` in `{path}`")
    for each in types:
        if not isinstance(each, str) or each not in _KEYWORDS:
            raise _Inexact(f"`type` in `{path}`")
        yield each


def _type_of(value: Any) -> str | None:
    """The type of a value that is written in one way; None for others."""
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer" if -_MAX_INTEGER < value < _MAX_INTEGER else None
        case str():
            return "string"
        case None:
            return "null"
        case _:
            return None


def _belongs(type_: str, types: list[str]) -> bool:
    return type_ in types or (type_ == "integer" and "number" in types)


def _only(known: set[str], stated: set[str], path: str) -> None:
    if others := sorted(stated - known):
        raise _Inexact(f"`{others[0][:64]}` in `{path}`")


def _list(fields: Schema, key: str, path: str) -> list[Any]:
    value = fields[key]
    if not isinstance(value, list) or not (value or key == "required"):
        raise _Inexact(f"`{key}` in `{path}`")
    return cast(list[Any], value)


def _whole(value: Any, most: int, path: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise _Inexact(f"`{path}`, which is not a number up to {most}")


def _bound(value: Any, is_whole: bool, path: str) -> None:
    """Numbers with two decimals at most: others are not compared exactly."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    steps = 1 if is_whole else 100
    if not is_number or not abs(value) <= _MAX_NUMBER or round(value * steps) / steps != value:
        raise _Inexact(f"`{path}`")
