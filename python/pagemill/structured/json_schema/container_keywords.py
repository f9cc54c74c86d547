"""Keywords of objects and arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from pagemill.structured.json_schema.errors import SchemaError
from pagemill.structured.json_schema.objects import ObjectAlgebra
from pagemill.structured.json_schema.shapes import (
    ANY,
    NEVER,
    NOTHING,
    OPEN,
    Arrays,
    Contains,
    Evaluated,
    Key,
    Objects,
    Shapes,
    Strings,
    is_never,
)
from pagemill.structured.json_schema.string_language import StringLanguage
from pagemill.structured.json_schema.value_keywords import INEXACT, Schema, count, limited, texts

_MAX_OVERLAPS = 3
"""Patterns of properties of which each subset is looked at."""
Index = Callable[[Any, str], int]
"""The index of a schema inside of another one, at a path from it."""


class ContainerKeywords:
    """What keywords say of parts."""

    def __init__(self, language: StringLanguage, objects: ObjectAlgebra) -> None:
        self._language = language
        self._objects = objects

    def pieces(self, schema: Schema, index: Index, *, holds: bool) -> Iterator[Shapes]:
        """What each keyword allows if it `holds`, or does not.

        Raises:
            SchemaError: a keyword has a value that it cannot have.
        """
        names = self._names(schema, index, holds=holds)
        yield from names if holds else reversed(list(names))  # what is missing tells objects best
        for least, most in _counts(schema, "Properties", holds=holds):
            yield limited(holds=holds, objects=(Objects({}, least=least, most=most),))
        if not schema.keys().isdisjoint(("prefixItems", "items", "additionalItems")):
            yield limited(holds=holds, arrays=tuple(_items(schema, index, holds=holds)))
        if "contains" in schema:
            found_arrays = tuple(_contains(schema, index, holds=holds))
            if found_arrays or not holds:
                yield limited(holds=holds, arrays=found_arrays)
        for least, most in _counts(schema, "Items", holds=holds):
            yield limited(holds=holds, arrays=(Arrays(least=least, most=most),))
        if schema.get("uniqueItems") is True:
            yield limited(holds=True, arrays=(Arrays(is_unique=True),)) if holds else INEXACT

    def _names(self, schema: Schema, index: Index, *, holds: bool) -> Iterator[Shapes]:
        if not schema.keys().isdisjoint(
            ("properties", "patternProperties", "additionalProperties")
        ):
            found = self._properties(schema, index, holds=holds)
            yield limited(holds=holds, objects=tuple(found))
        if "required" in schema and not isinstance(schema["required"], bool):
            names = texts(schema["required"], "required")
            yield limited(holds=holds, objects=tuple(self._required(names, holds=holds)))

    def _required(self, names: list[str], *, holds: bool) -> Iterator[Objects]:
        if holds:
            yield self._objects.requiring(Objects({}), names)
        else:
            yield from (Objects({name: NEVER}) for name in names)

    def _properties(self, schema: Schema, index: Index, *, holds: bool) -> Iterator[Objects]:
        named = {
            name: index(value, f"properties/{name}")
            for name, value in _schemas(schema, "properties").items()
        }
        patterns = {
            pattern: index(value, f"patternProperties/{pattern}")
            for pattern, value in _schemas(schema, "patternProperties").items()
        }
        others = schema.get("additionalProperties", True)
        rest = None if others is True else index(others, "additionalProperties")
        unmatched = frozenset((pattern, False) for pattern in patterns)
        others_key: Key = ANY if rest is None else frozenset({(rest, True)})
        if holds:
            yield Objects(
                {name: self._named(name, each, patterns) for name, each in named.items()},
                OPEN if rest is None and not patterns else tuple(_regions(patterns, others_key)),
                evaluated=Evaluated(
                    frozenset(named), frozenset(patterns), "additionalProperties" in schema
                ),
            )
            return
        values = _schemas(schema, "properties")
        for name, each in sorted(named.items(), key=lambda row: not _is_listed(values[row[0]])):
            yield Objects({name: frozenset({(each, False)})}, required=frozenset({name}))
        for pattern, each in patterns.items():
            names = Strings(patterns=frozenset({(pattern, True)}))
            yield Objects({}, some=((names, frozenset({(each, False)})),))
        if rest is not None:
            names = Strings(excluded=frozenset(named), patterns=unmatched)
            yield Objects({}, some=((names, frozenset({(rest, False)})),))

    def _named(self, name: str, own: int, patterns: Mapping[str, int]) -> Key:
        matched = {(i, True) for p, i in patterns.items() if self._language.matches(p, name)}
        return frozenset({(own, True), *matched})


def _regions(patterns: Mapping[str, int], rest: Key) -> Iterator[tuple[Strings, Key]]:
    """Names by the patterns that match them. With many patterns, names that match several ones
    are left out."""
    most = len(patterns) if len(patterns) <= _MAX_OVERLAPS else 1
    for size in range(1, most + 1):
        for matching in itertools.combinations(patterns, size):
            signs = frozenset((pattern, pattern in matching) for pattern in patterns)
            key = frozenset((patterns[pattern], True) for pattern in matching)
            yield Strings(patterns=signs), key
    if not is_never(rest):
        yield Strings(patterns=frozenset((pattern, False) for pattern in patterns)), rest


def _is_listed(schema: Any) -> bool:
    """Whether it lists values: such properties tell alternatives from each other."""
    return isinstance(schema, dict) and ("const" in schema or "enum" in schema)


def _schemas(schema: Schema, name: str) -> Mapping[str, Any]:
    found = schema.get(name, {})
    if not isinstance(found, dict):
        raise SchemaError(f"`{name}` must be an object of schemas")
    return cast(Mapping[str, Any], found)


def _counts(schema: Schema, what: str, *, holds: bool) -> Iterator[tuple[int, int | None]]:
    least, most = count(schema, f"min{what}"), count(schema, f"max{what}")
    if least:
        yield (least, None) if holds else (0, least - 1)
    if most is not None:
        yield (0, most) if holds else (most + 1, None)


def _items(schema: Schema, index: Index, *, holds: bool) -> Iterator[Arrays]:
    items = schema.get("items")
    name = "items" if isinstance(items, list) else "prefixItems"
    prefix: Any = schema.get(name, [])
    if not isinstance(prefix, list):
        raise SchemaError("`prefixItems` must be a list of schemas")
    first = [index(each, f"{name}/{i}") for i, each in enumerate(cast(list[Any], prefix))]
    after = schema.get("additionalItems", True) if isinstance(items, list) else items
    rest = None
    if after is not None and after is not True:
        rest = index(after, "additionalItems" if isinstance(items, list) else "items")
    if holds:
        is_all = "items" in schema and (not isinstance(items, list) or "additionalItems" in schema)
        yield Arrays(
            tuple(frozenset({(each, True)}) for each in first),
            ANY if rest is None else frozenset({(rest, True)}),
            evaluated=None if is_all else len(first),
        )
        return
    for i, each in enumerate(first):
        yield Arrays((*(ANY,) * i, frozenset({(each, False)})), least=i + 1)
    if rest is not None:
        yield Arrays(contains=(Contains((rest, False), 1, None, len(first)),))


def _contains(schema: Schema, index: Index, *, holds: bool) -> Iterator[Arrays]:
    wanted = (index(schema["contains"], "contains"), True)
    least, most = count(schema, "minContains"), count(schema, "maxContains")
    least = 1 if least is None else least
    if holds:
        yield Arrays(contains=(Contains(wanted, least, most),))
        return
    if least:
        yield Arrays(contains=(Contains(wanted, 0, least - 1),))
    if most is not None:
        yield Arrays(contains=(Contains(wanted, most + 1, None),))


def nothing_but(objects: tuple[Objects, ...]) -> Shapes:
    """Objects only."""
    return replace(NOTHING, objects=objects)
