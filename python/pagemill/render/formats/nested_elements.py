"""Arguments written as one element each, whose elements are fields or items: MiniMax M3."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from pagemill.render.formats.format import CallWriter, MalformedError, WholeBody
from pagemill.render.formats.typed_values import as_json, items, parameter, type_names

MARK = "]<]minimax[>["
"""What is written before every tag."""

_MAX_DEPTH = 64
_TAG = re.compile(r"<(/?)([^<>]+)>(.*)", re.DOTALL)


@dataclass(slots=True)
class _Element:
    name: str
    text: str = ""
    children: list[_Element] = field(default_factory=list["_Element"])


class NestedElements(WholeBody):
    """Reads the arguments of a call whose name is known, up to a marker."""

    def close(self, calls: CallWriter) -> None:
        """See `format.BodyReader`."""
        schema = calls.schema
        values = {
            child.name: _value(child, parameter(schema, child.name))
            for child in _parsed(self.text).children
        }
        calls.arguments(json.dumps(values, ensure_ascii=False))
        calls.end()


def _parsed(text: str) -> _Element:
    root = _Element("")
    open_elements = [root]
    before, *tags = text.split(MARK)
    if before.strip():
        raise MalformedError
    for tag in tags:
        found = _TAG.match(tag)
        if found is None:
            raise MalformedError
        is_end, name, behind = found.groups()
        if is_end:
            if len(open_elements) == 1 or open_elements.pop().name != name:
                raise MalformedError
        else:
            if len(open_elements) > _MAX_DEPTH:
                raise MalformedError
            element = _Element(name)
            open_elements[-1].children.append(element)
            open_elements.append(element)
        open_elements[-1].text += behind
    if len(open_elements) != 1:
        raise MalformedError
    return root


def _value(element: _Element, schema: Any) -> Any:
    types = type_names(schema)
    children = element.children
    if not children:
        if not element.text.strip() and types & {"object", "array"}:
            return {} if "object" in types else []
        return json.loads(as_json(element.text, types))
    if "array" in types or all(child.name == "item" for child in children):
        return [_value(child, items(schema)) for child in children]
    fields: dict[str, list[Any]] = {}
    for child in children:
        fields.setdefault(child.name, []).append(_value(child, parameter(schema, child.name)))
    values = {name: each if len(each) > 1 else each[0] for name, each in fields.items()}
    if text := element.text.strip():
        values["$text"] = text
    return values
