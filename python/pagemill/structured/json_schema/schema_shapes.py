"""Schemas to shapes: what each schema, and each set of schemas, allows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from pagemill.structured.json_schema.container_keywords import ContainerKeywords
from pagemill.structured.json_schema.documents import (
    Documents,
    FindDocument,
    Located,
    Place,
)
from pagemill.structured.json_schema.errors import (
    Budget,
    CycleError,
    SchemaError,
    TooMuchError,
    UnwritableError,
)
from pagemill.structured.json_schema.objects import ObjectAlgebra
from pagemill.structured.json_schema.schema_view import SchemaView, Source
from pagemill.structured.json_schema.shapes import (
    EVERYTHING,
    FALSE_SCHEMA,
    NOTHING,
    UNKNOWN_SCHEMA,
    Arrays,
    Key,
    Literal,
    Objects,
    Shapes,
    intersection,
    union,
    without_evaluation,
)
from pagemill.structured.json_schema.string_language import StringLanguage
from pagemill.structured.json_schema.value_keywords import (
    INEXACT,
    Schema,
)

_MAX_EMPTY_DEPTH = 4


class SchemaShapes:
    """The shapes of a schema and of its parts."""

    def __init__(self, schema: Any, find_document: FindDocument, budget: Budget, most: int) -> None:
        """`most`: conjunctions that are kept of an intersection."""
        self.language = StringLanguage(budget)
        self.objects = ObjectAlgebra(self.language, self.is_surely_empty)
        self.unwritable: dict[str, str] = {}
        """Why parts of the schema are not written, by their paths."""
        self._budget = budget
        self._most = most
        self.documents = Documents(schema, find_document)
        self.containers = ContainerKeywords(self.language, self.objects)
        root = self.documents.root()
        never = Source(Located(False, root.place), "")
        self._sources = [never, never]
        self._indices: dict[tuple[int, Place], int] = {}
        self._kept: list[Any] = []
        self._of_literals: dict[Literal, Shapes | None] = {
            (FALSE_SCHEMA, True): NOTHING,
            (FALSE_SCHEMA, False): EVERYTHING,
            (UNKNOWN_SCHEMA, True): INEXACT,
            (UNKNOWN_SCHEMA, False): INEXACT,
        }
        self._of_keys: dict[Key, Shapes] = {}
        self._disjoint: dict[tuple[int, int], bool] = {}
        self._num_checks = 0
        """How many checks for emptiness are within each other."""
        self.tracks_evaluation = '"unevaluated' in json.dumps(schema)
        self.root: Key = frozenset({(self.index_of(root, "#"), True)})

    def of(self, key: Key) -> Shapes:
        """What all schemas of `key` allow.

        Raises:
            SchemaError: a schema is none, or cannot be used.
        """
        found = self._of_keys.get(key)
        if found is None:
            self._budget.spend()
            parts = (self.of_literal(literal) for literal in sorted(key))
            found = self._of_keys[key] = self.all_of(parts)
        return found

    def any_of(self, literals: Sequence[Literal]) -> Literal:
        """A schema that one of `literals` satisfies."""
        nowhere = self._sources[FALSE_SCHEMA]
        self._sources.append(replace(nowhere, options=tuple(literals)))
        return len(self._sources) - 1, True

    def is_surely_empty(self, key: Key, depth: int = 0) -> bool:
        """True if nothing satisfies `key`; False also if that is hard to say."""
        if any((index, not holds) in key for index, holds in key):
            return True
        if depth > _MAX_EMPTY_DEPTH or self._num_checks > _MAX_EMPTY_DEPTH:
            return False
        self._num_checks += 1
        try:
            return self._has_surely_nothing(self.of(key), depth)
        except CycleError:  # it is a part of what is looked at just now
            return False
        finally:
            self._num_checks -= 1

    def are_disjoint(self, left: int, right: int) -> bool:
        """True if nothing satisfies both schemas; False also if that is hard to say."""
        if left == right:
            return False
        pair = (min(left, right), max(left, right))
        found = self._disjoint.get(pair)
        if found is None:
            both = self.all_of(self.of_literal((index, True)) for index in pair)
            found = self._disjoint[pair] = self._has_surely_nothing(both, 0)
        return found

    def _has_surely_nothing(self, shapes: Shapes, depth: int) -> bool:
        if not shapes.is_exact or shapes.null or shapes.booleans or shapes.numbers:
            return False
        return (
            all(self.language.terminal(each) is None for each in shapes.strings)
            and all(self._is_empty_array(each, depth) for each in shapes.arrays)
            and all(self._is_empty_object(each, depth) for each in shapes.objects)
        )

    def _is_empty_array(self, given: Arrays, depth: int) -> bool:
        needed = range(min(given.least, len(given.prefix) + 1))
        return any(self.is_surely_empty(given.item(i), depth + 1) for i in needed)

    def _is_empty_object(self, given: Objects, depth: int) -> bool:
        return any(self.is_surely_empty(given.named[n], depth + 1) for n in given.required)

    def keep(self, made: Any) -> None:
        """Keeps a schema that was made up: its identity is not given to another one."""
        self._kept.append(made)

    def index_of(self, located: Located, path: str) -> int:
        """The index of a schema; `path` is one of its places."""
        if located.schema is False:
            return FALSE_SCHEMA
        key = (id(located.schema), located.place)
        found = self._indices.get(key)
        if found is None:
            found = self._indices[key] = len(self._sources)
            self._sources.append(Source(located, path))
            self._budget.spend()
        return found

    def all_of(self, parts: Iterator[Shapes]) -> Shapes:
        """What is in all of `parts`."""
        found = EVERYTHING
        for part in parts:
            self._budget.spend(1 + len(found.objects) * len(part.objects) // 2)
            found = intersection(found, part, self.objects.both, self._most)
            if found.is_empty():
                break
        return found

    def of_literal(self, literal: Literal) -> Shapes:
        """What a schema allows, or its opposite. Raises as `of`."""
        if literal in self._of_literals:
            found = self._of_literals[literal]
            if found is None:
                raise CycleError(f"{self._sources[literal[0]].path}: the schema refers to itself")
            return found
        index, holds = literal
        source = self._sources[index]
        self._of_literals[literal] = None  # while it is looked at
        try:
            found = self._of_source(source, holds=holds)
        except UnwritableError as error:
            self.unwritable.setdefault(source.path, f"{source.path}: {error}")
            found = INEXACT
        except SchemaError as error:
            del self._of_literals[literal]
            if isinstance(error, TooMuchError) or str(error).startswith("#"):
                raise
            raise SchemaError(f"{source.path}: {error}") from None
        self._of_literals[literal] = found
        return found

    def _of_source(self, source: Source, *, holds: bool) -> Shapes:
        if source.options:
            return union([self.of_literal(option) for option in source.options])
        schema = source.located.schema
        if isinstance(schema, bool):
            return EVERYTHING if schema == holds else NOTHING
        if not isinstance(schema, dict):
            raise SchemaError("a schema must be an object or a boolean")
        view = SchemaView(self, cast(Schema, schema), source)
        if not holds:
            return without_evaluation(union([NOTHING, *view.pieces(holds=False)]))
        found = self.all_of(view.pieces(holds=True))
        return view.with_unevaluated(found)
