"""Definitions of functions as Harmony shows them: types of a TypeScript namespace.

Source: https://cookbook.openai.com/articles/openai-harmony, "Function calling".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_array, as_object

_SCALARS = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}
_MAX_DEPTH = 32


def namespace(tools: Sequence[Mapping[str, Any]]) -> str:
    """Returns the section of the developer's message that describes `tools`."""
    lines = ["# Tools", "", "## functions", "", "namespace functions {", ""]
    for tool in tools:
        function = as_object(tool.get("function")) or tool
        lines += [*_comment(function.get("description")), _declaration(function), ""]
    return "\n".join([*lines, "} // namespace functions"])


def _declaration(function: Mapping[str, Any]) -> str:
    parameters = as_object(function.get("parameters"))
    if parameters is None or not as_object(parameters.get("properties")):
        return f"type {function.get('name')} = () => any;"
    return f"type {function.get('name')} = (_: {_type(parameters, 0)}) => any;"


def _type(schema: Mapping[str, Any], depth: int) -> str:
    if depth > _MAX_DEPTH:
        raise RenderError("the parameters of a tool are nested too deep", "tools")
    if (values := as_array(schema.get("enum"))) is not None:
        return " | ".join(map(_literal, values))
    for key in ("anyOf", "oneOf"):
        if (several := as_array(schema.get(key))) is not None:
            return _union([_type(as_object(one) or {}, depth + 1) for one in several])
    kind = schema.get("type", "object" if "properties" in schema else None)
    # Each kind once, and only two of them look into the schema: the work is linear in its size.
    kinds = dict.fromkeys(map(str, as_array(kind) or [kind]))
    return _union([_of_kind(one, schema, depth) for one in kinds])


def _of_kind(kind: str, schema: Mapping[str, Any], depth: int) -> str:
    if kind == "object":
        return _object(schema, depth)
    if kind == "array":
        items = _type(as_object(schema.get("items")) or {}, depth + 1)
        return f"({items})[]" if " | " in items else f"{items}[]"
    return "null" if kind == "null" else _SCALARS.get(kind, "any")


def _object(schema: Mapping[str, Any], depth: int) -> str:
    properties = as_object(schema.get("properties"))
    if not properties:
        return "object"
    required = as_array(schema.get("required")) or []
    lines = ["{"]
    for name, value in properties.items():
        field = as_object(value) or {}
        lines += _comment(field.get("description"))
        mark = "" if name in required else "?"
        default = f" // default: {_default(field)}" if "default" in field else ""
        lines.append(f"{name}{mark}: {_type(field, depth + 1)},{default}")
    return "\n".join([*lines, "}"])


def _default(field: Mapping[str, Any]) -> str:
    value = field["default"]
    bare = isinstance(value, str) and "enum" in field
    return value if bare else _literal(value)


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _union(types: Sequence[str]) -> str:
    return " | ".join(dict.fromkeys(types)) or "any"


def _comment(text: Any) -> list[str]:
    return [f"// {line}" for line in text.splitlines()] if isinstance(text, str) else []
