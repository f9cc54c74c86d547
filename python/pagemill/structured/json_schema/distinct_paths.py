"""Where in a JSON text arrays of distinct items are that the grammar does not keep distinct."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pagemill.structured.json_schema.ecma_regex import parse
from pagemill.structured.json_schema.expressions import has_endless_end
from pagemill.structured.json_schema.shapes import Arrays, Key, Numbers, Objects, Strings
from pagemill.structured.json_schema.values import ValueGraph


def distinct_paths(graph: ValueGraph, root: Key) -> str | None:
    """Nodes of `json_trace.Paths`, as JSON; None if there are no such arrays."""
    keys = _reachable(graph, root)
    leading = _leading(graph, keys)
    if root not in leading:
        return None
    indices = {key: index for index, key in enumerate(k for k in keys if k in leading)}
    return json.dumps([_node(graph, key, indices) for key in indices])


def _reachable(graph: ValueGraph, root: Key) -> list[Key]:
    found = {root: None}
    waiting = [root]
    while waiting:
        for part in graph.parts(waiting.pop()):
            if part not in found and graph.is_possible(part):
                found[part] = None
                waiting.append(part)
    return list(found)


def _leading(graph: ValueGraph, keys: Iterable[Key]) -> set[Key]:
    """The keys from which an array of distinct items can be reached."""
    users: dict[Key, list[Key]] = {}
    waiting: list[Key] = []
    for key in keys:
        for part in set(graph.parts(key)):
            users.setdefault(part, []).append(key)
        if any(graph.needs_check(array) for array in graph[key].arrays):
            waiting.append(key)
    found: set[Key] = set()
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            waiting += users.get(key, ())
    return found


def _node(graph: ValueGraph, key: Key, indices: Mapping[Key, int]) -> Mapping[str, Any]:
    values = graph[key]
    checked = [array for array in values.arrays if graph.needs_check(array)]
    node: dict[str, Any] = {}
    if checked:
        node["u"] = True
        node["a"] = all(_is_ample(graph, array) for array in checked)
    node |= _items(values.arrays, indices)
    node |= _properties(values.objects, indices)
    return {name: value for name, value in node.items() if value}


def _items(arrays: Iterable[Arrays], indices: Mapping[Key, int]) -> Mapping[str, Any]:
    given = list(arrays)
    length = max((len(array.prefix) for array in given), default=0)
    first = [_known((array.item(i) for array in given), indices) for i in range(length)]
    return {"x": first if any(first) else [], "i": _known((a.rest for a in given), indices)}


def _properties(objects: Iterable[Objects], indices: Mapping[Key, int]) -> Mapping[str, Any]:
    given = list(objects)
    others = [key for each in given for _, key in (*each.regions, *each.some)]
    names = dict.fromkeys(name for each in given for name in each.named)
    named: dict[str, list[int]] = {}
    for name in names:
        keys = [each.named[name] for each in given if name in each.named]
        if len(keys) < len(given):
            keys += others
        named[name] = _known(keys, indices)
    return {"p": named if any(named.values()) else {}, "o": _known(others, indices)}


def _known(keys: Iterable[Key], indices: Mapping[Key, int]) -> list[int]:
    return sorted({indices[key] for key in keys if key in indices})


def _is_ample(graph: ValueGraph, given: Arrays) -> bool:
    """Whether there is always an item that is not there yet, however it begins."""
    items = [graph.shapes(key) for key in (*given.prefix, given.rest) if graph.is_possible(key)]
    return all(
        not (item.null or item.booleans or item.arrays or item.objects)
        and all(map(_are_ample_strings, item.strings))
        and all(map(_are_ample_integers, item.numbers))
        for item in items
    )


def _are_ample_strings(given: Strings) -> bool:
    if given.values is not None or given.most is not None or len(given.patterns) > 1:
        return False
    return all(sign and has_endless_end(parse(pattern)) for pattern, sign in given.patterns)


def _are_ample_integers(given: Numbers) -> bool:
    """All of them are, but 0: no other integer begins with it."""
    return given == Numbers(is_integer=True)
