"""One schema: what its keywords say together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, cast

from pagemill.structured.json_schema.container_keywords import nothing_but
from pagemill.structured.json_schema.dialects import NEWEST, Dialect
from pagemill.structured.json_schema.documents import Located
from pagemill.structured.json_schema.errors import SchemaError
from pagemill.structured.json_schema.shapes import (
    ANY,
    EVERYTHING,
    NEVER,
    NOTHING,
    Arrays,
    Literal,
    Objects,
    Shapes,
    union,
    without_evaluation,
)
from pagemill.structured.json_schema.value_keywords import (
    INEXACT,
    Schema,
    limited,
    texts,
    value_pieces,
    value_shapes,
)

if TYPE_CHECKING:
    from pagemill.structured.json_schema.schema_shapes import SchemaShapes

_MAX_TRACKED = 4
"""Options of an `anyOf` of which each subset is looked at, for `unevaluatedProperties`."""
_SINCE = {
    "$dynamicRef": 2020, "$recursiveRef": 2019, "const": 6, "contains": 6,
    "dependentRequired": 2019, "dependentSchemas": 2019, "if": 7, "maxContains": 2019,
    "minContains": 2019, "prefixItems": 2020, "propertyNames": 6, "unevaluatedItems": 2019,
    "unevaluatedProperties": 2019,
}  # fmt: skip
"""The draft that has a keyword first; others ignore it."""


@dataclass(frozen=True, slots=True)
class Source:
    """A schema, or one of `options`."""

    located: Located
    path: str
    options: tuple[Literal, ...] = ()


class SchemaView:
    """One schema, as its keywords are looked at."""

    def __init__(self, shapes: SchemaShapes, schema: Schema, source: Source) -> None:
        self._shapes = shapes
        self._source = source
        self._place = source.located.place
        draft, ignored = self._place.dialect.draft, self._place.dialect.ignored
        alone = draft <= 7 and "$ref" in schema
        known = {k: v for k, v in schema.items() if _SINCE.get(k, 0) <= draft and k not in ignored}
        self._schema: Schema = {"$ref": schema["$ref"]} if alone else known

    def pieces(self, *, holds: bool) -> Iterator[Shapes]:
        """What each keyword allows if it `holds`, or does not."""
        schema = self._schema
        yield from value_pieces(schema, holds=holds)
        if "const" in schema:
            yield self._values([schema["const"]], holds=holds)
        if "enum" in schema:
            if not isinstance(schema["enum"], list):
                raise SchemaError("`enum` must be a list")
            yield self._values(cast(list[Any], schema["enum"]), holds=holds)
        yield from self._shapes.containers.pieces(schema, self.index, holds=holds)
        if "propertyNames" in schema:
            yield self._property_names(holds=holds)
        for name, dependency in self._dependencies():
            present = nothing_but((self._shapes.objects.requiring(Objects({}), (name,)),))
            if holds:
                absent = replace(EVERYTHING, objects=(Objects({name: NEVER}),))
                yield union((absent, self._both(present, self._dependency(dependency, True))))
            else:
                yield self._both(present, self._dependency(dependency, False))
        yield from self._references(holds=holds)
        yield from self._combinations(holds=holds)
        if not holds and not schema.keys().isdisjoint(
            ("unevaluatedProperties", "unevaluatedItems")
        ):
            yield INEXACT

    def index(self, schema: Any, path: str) -> int:
        """See `container_keywords.Index`."""
        located = self._shapes.documents.inside(schema, self._place)
        return self._shapes.index_of(located, f"{self._source.path}/{path}")

    def with_unevaluated(self, given: Shapes) -> Shapes:
        """`given`, with what is demanded of parts that no keyword looked at."""
        if "unevaluatedProperties" in self._schema:
            key = frozenset(
                {(self.index(self._schema["unevaluatedProperties"], "unevaluatedProperties"), True)}
            )
            found = [self._shapes.objects.with_unevaluated(each, key) for each in given.objects]
            given = replace(given, objects=tuple(each for each in found if each is not None))
        if "unevaluatedItems" in self._schema:
            rest = (self.index(self._schema["unevaluatedItems"], "unevaluatedItems"), True)
            arrays = [self._with_unevaluated_items(each, rest) for each in given.arrays]
            given = replace(given, arrays=tuple(arrays))
        return given

    def _with_unevaluated_items(self, given: Arrays, rest: Literal) -> Arrays:
        if given.evaluated is None:
            return given
        if given.contains and self._place.dialect.draft > 2019:
            seen = [each.literal for each in given.contains if each.literal[1]]
            rest = self._shapes.any_of([rest, *seen])
        length = max(len(given.prefix), given.evaluated)
        prefix = [
            given.item(i) | (frozenset({rest}) if i >= given.evaluated else ANY)
            for i in range(length)
        ]
        return replace(given, prefix=tuple(prefix), rest=given.rest | {rest}, evaluated=None)

    def _literal(self, schema: Any, path: str, *, holds: bool) -> Shapes:
        return self._shapes.of_literal((self.index(schema, path), holds))

    def _both(self, left: Shapes, right: Shapes) -> Shapes:
        return self._shapes.all_of(iter((left, right)))

    def _values(self, values: Sequence[Any], *, holds: bool) -> Shapes:
        found: list[Shapes] = []
        for value in values:
            shapes = value_shapes(value, holds=holds)
            if shapes is None:
                made = _constant(value)
                self._shapes.keep(made)
                place = replace(self._place, dialect=Dialect(NEWEST))
                made_at = self._shapes.index_of(Located(made, place), self._source.path)
                shapes = self._shapes.of_literal((made_at, holds))
            found.append(shapes)
        return union([NOTHING, *found]) if holds else self._shapes.all_of(iter(found))

    def _property_names(self, *, holds: bool) -> Shapes:
        names = self._literal(self._schema["propertyNames"], "propertyNames", holds=holds)
        if holds:
            regions = tuple((each, frozenset[Literal]()) for each in names.strings)
            objects: tuple[Objects, ...] = (Objects({}, regions),)
        else:
            objects = tuple(
                Objects({}, some=((each, frozenset[Literal]()),)) for each in names.strings
            )
        return replace(limited(holds=holds, objects=objects), is_exact=names.is_exact)

    def _dependencies(self) -> Iterator[tuple[str, Any]]:
        for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
            found = self._schema.get(keyword, {})
            if not isinstance(found, dict):
                raise SchemaError(f"`{keyword}` must be an object")
            yield from cast(Mapping[str, Any], found).items()

    def _dependency(self, dependency: Any, holds: bool) -> Shapes:
        if isinstance(dependency, str):
            dependency = [dependency]
        if not isinstance(dependency, list):
            return self._literal(dependency, "dependencies", holds=holds)
        names = texts(cast(Any, dependency), "dependencies")
        if holds:
            needed = self._shapes.objects.requiring(Objects({}), names)
            return limited(holds=True, objects=(needed,))
        return nothing_but(tuple(Objects({name: NEVER}) for name in names))

    def _references(self, *, holds: bool) -> Iterator[Shapes]:
        documents = self._shapes.documents
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            reference = self._schema.get(keyword)
            if reference is None:
                continue
            if not isinstance(reference, str):
                raise SchemaError(f"`{keyword}` must be a string")
            if keyword == "$ref":
                found = documents.resolve(reference, self._place)
            elif keyword == "$dynamicRef":
                found = documents.resolve_dynamic(reference, self._place)
            else:
                found = documents.resolve_recursive(self._place)
            path = reference if reference.startswith("#") else f"{self._source.path}/{keyword}"
            yield self._shapes.of_literal((self._shapes.index_of(found, path), holds))

    def _combinations(self, *, holds: bool) -> Iterator[Shapes]:
        schema = self._schema
        for index in self._listed("allOf"):
            yield self._shapes.of_literal((index, holds))
        if "anyOf" in schema:
            options = self._listed("anyOf")
            yield self._any_of(options) if holds else self._none_of(options)
        if "oneOf" in schema:
            options = self._listed("oneOf")
            yield self._one_of(options) if holds else self._not_one_of(options)
        if "not" in schema:
            yield without_evaluation(self._literal(schema["not"], "not", holds=not holds))
        if "if" in schema:
            yield self._condition(holds=holds)

    def _listed(self, name: str) -> list[int]:
        found = self._schema.get(name, [])
        if not isinstance(found, list):
            raise SchemaError(f"`{name}` must be a list of schemas")
        return [self.index(e, f"{name}/{i}") for i, e in enumerate(cast(list[Any], found))]

    def _any_of(self, options: list[int]) -> Shapes:
        found = [self._shapes.of_literal((index, True)) for index in options]
        if self._shapes.tracks_evaluation and len(options) <= _MAX_TRACKED:
            for size in range(len(options), 1, -1):
                for several in combinations(options, size):
                    both = (self._shapes.of_literal((index, True)) for index in several)
                    found.append(self._shapes.all_of(both))
        return union([NOTHING, *found])

    def _none_of(self, options: list[int]) -> Shapes:
        return self._shapes.all_of(self._shapes.of_literal((i, False)) for i in options)

    def _one_of(self, options: list[int]) -> Shapes:
        found: list[Shapes] = []
        for position, index in enumerate(options):
            others = options[:position] + options[position + 1 :]
            overlapping = [i for i in others if not self._shapes.are_disjoint(index, i)]
            parts = [(index, True), *((i, False) for i in overlapping)]
            found.append(self._shapes.all_of(map(self._shapes.of_literal, parts)))
        return union([NOTHING, *found])

    def _not_one_of(self, options: list[int]) -> Shapes:
        found = [self._none_of(options)]
        for pair in combinations(options, 2):
            if not self._shapes.are_disjoint(*pair):
                parts = (self._shapes.of_literal((index, True)) for index in pair)
                found.append(self._shapes.all_of(parts))
        return union(found)

    def _condition(self, *, holds: bool) -> Shapes:
        condition = self._literal(self._schema["if"], "if", holds=True)
        opposite = self._literal(self._schema["if"], "if", holds=False)
        then = self._literal(self._schema.get("then", True), "then", holds=holds)
        otherwise = self._literal(self._schema.get("else", True), "else", holds=holds)
        return union((self._both(condition, then), self._both(opposite, otherwise)))


def _constant(value: Any) -> Mapping[str, Any]:
    """The schema of an array or an object."""
    if isinstance(value, list):
        items = cast(list[Any], value)
        return {
            "type": "array",
            "prefixItems": [{"const": item} for item in items],
            "minItems": len(items),
            "maxItems": len(items),
        }
    fields = cast(Mapping[str, Any], value)
    return {
        "type": "object",
        "properties": {name: {"const": field} for name, field in fields.items()},
        "required": list(fields),
        "additionalProperties": False,
    }
