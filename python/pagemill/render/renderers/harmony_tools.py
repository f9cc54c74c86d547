"""Definitions of functions as Harmony shows them: types of a TypeScript namespace.

Source: https://cookbook.openai.com/articles/openai-harmony, "Function calling", and what the
package openai-harmony writes. Where that loses what a schema says (`anyOf`, choices that are no
strings, choices of an array's items), this says it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_array, as_object

_SCALARS = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}
_MAX_DEPTH = 32
_INDENT = "    "


def namespace(tools: Sequence[Mapping[str, Any]]) -> str:
    """Returns the section of the developer's message that describes `tools`."""
    lines = ["# Tools", "", "## functions", "", "namespace functions {", ""]
    for tool in tools:
        function = as_object(tool.get("function")) or tool
        lines += [*_comment(function.get("description")), _declaration(function), ""]
    return "\n".join([*lines, "} // namespace functions"])


def _declaration(function: Mapping[str, Any]) -> str:
    parameters = as_object(function.get("parameters"))
    if parameters is None:
        return f"type {function.get('name')} = () => any;"
    description = parameters.get("description")
    about = f"// {' '.join(description.split())}\n" if isinstance(description, str) else ""
    return f"type {function.get('name')} = (_: {about}{_type(parameters, '', 0)}) => any;"


def _type(schema: Mapping[str, Any], indent: str, depth: int) -> str:
    """A type whose own lines, behind the first one, begin with `indent`."""
    return " | ".join(dict.fromkeys(_types(schema, indent, depth))) or "any"


def _types(schema: Mapping[str, Any], indent: str, depth: int) -> list[str]:
    """The types of which it is the union."""
    if depth > _MAX_DEPTH:
        raise RenderError("the parameters of a tool are nested too deep", "tools")
    if (values := as_array(schema.get("enum"))) is not None:
        return list(map(_literal, values))
    if (several := as_array(schema.get("anyOf"))) is not None:
        found = (_types(as_object(one) or {}, indent, depth + 1) for one in several)
        return [each for types in found for each in types]
    kind = schema.get("type", "object" if "properties" in schema else None)
    # Each kind once, and only two of them look into the schema: the work is linear in its size.
    kinds = dict.fromkeys(map(str, as_array(kind) or [kind]))
    if schema.get("nullable") is True:
        kinds["null"] = None
    return [_of_kind(one, schema, indent, depth) for one in kinds]


def _of_kind(kind: str, schema: Mapping[str, Any], indent: str, depth: int) -> str:
    if kind == "object":
        return _object(schema, indent, depth)
    if kind == "array":
        if "items" not in schema:
            return "Array<any>"
        types = dict.fromkeys(_types(as_object(schema.get("items")) or {}, indent, depth + 1))
        items = " | ".join(types) or "any"
        return f"({items})[]" if len(types) > 1 else f"{items}[]"
    return "null" if kind == "null" else _SCALARS.get(kind, "any")


def _object(schema: Mapping[str, Any], indent: str, depth: int) -> str:
    properties = as_object(schema.get("properties")) or {}
    required = as_array(schema.get("required")) or []
    lines = ["{"]
    for name, value in properties.items():
        field = as_object(value) or {}
        lines += [f"{indent}{line}" for line in _about(field)]
        mark = "" if name in required else "?"
        variants = as_array(field.get("oneOf"))
        if variants is not None:
            lines.append(f"{indent}{name}{mark}:")
            lines += [_variant(as_object(each) or {}, indent, depth + 1) for each in variants]
            lines.append(f"{indent},")
            continue
        default = f" // default: {_default(field)}" if "default" in field else ""
        lines.append(f"{indent}{name}{mark}: {_type(field, indent + _INDENT, depth + 1)},{default}")
    return "\n".join([*lines, f"{indent}}}"])


def _variant(schema: Mapping[str, Any], indent: str, depth: int) -> str:
    """One of several types, on a line of its own."""
    notes = [" ".join(_text(schema, "description").split())]
    if "default" in schema:
        notes.append(f"default: {_default(schema)}")
    about = " ".join(filter(None, notes))
    return f"{indent} | {_type(schema, f'{indent}   ', depth)}{f' // {about}' if about else ''}"


def _about(field: Mapping[str, Any]) -> Iterator[str]:
    """Comments in front of a field."""
    if title := _text(field, "title"):
        yield from [*_comment(title), "//"]
    yield from _comment(field.get("description"))
    if examples := as_array(field.get("examples")):
        yield from ["// Examples:", *(f"// - {_literal(each)}" for each in examples)]
    if "oneOf" in field and "default" in field:
        yield f"// default: {_default(field)}"


def _default(field: Mapping[str, Any]) -> str:
    value = field["default"]
    bare = isinstance(value, str) and "enum" in field
    return value if bare else _literal(value)


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _comment(text: Any) -> list[str]:
    return [f"// {line}" for line in text.splitlines()] if isinstance(text, str) else []
