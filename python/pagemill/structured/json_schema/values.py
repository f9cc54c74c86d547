"""Which sets of schemas can be satisfied, and by what: shapes without those that have no value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from pagemill.structured.json_schema.errors import Budget
from pagemill.structured.json_schema.schema_shapes import SchemaShapes
from pagemill.structured.json_schema.shapes import (
    Arrays,
    Key,
    Numbers,
    Objects,
    Shapes,
    Strings,
    is_never,
)
from pagemill.structured.json_schema.spelling import decimal, json_text

MAX_FINITE = 64
"""Values of items that are counted one by one; as many as a parameter of a rule has bits."""
_MAX_CONTAINS = 4
"""Arrays with more schemas in `contains` are not written."""


@dataclass(frozen=True, slots=True)
class Values:
    """What satisfies a key. `strings`: bodies of terminals."""

    null: bool
    booleans: frozenset[bool]
    numbers: tuple[Numbers, ...]
    strings: tuple[str, ...]
    arrays: tuple[Arrays, ...]
    objects: tuple[Objects, ...]


class ValueGraph:
    """The values of a schema's root, and of all keys that can be reached from there."""

    def __init__(self, shapes: SchemaShapes, budget: Budget) -> None:
        """Raises:
        SchemaError: a schema is none, or cannot be used, or is too large.
        """
        self._shapes = shapes
        self._budget = budget
        self._all: dict[Key, Values] = {}
        self._possible: set[Key] = set()
        self._explore()
        self._find_possible()

    def __getitem__(self, key: Key) -> Values:
        """The values of a key that is possible; all parts of them are possible, too."""
        found = self._all[key]
        return replace(
            found,
            arrays=tuple(each for each in found.arrays if self._is_possible_array(each)),
            objects=tuple(each for each in found.objects if self._is_possible_object(each)),
        )

    def is_possible(self, key: Key) -> bool:
        """Whether anything satisfies `key`."""
        return key in self._possible

    def shapes(self, key: Key) -> Shapes:
        """The shapes of a key."""
        return self._shapes.of(key)

    def parts(self, key: Key) -> Iterator[Key]:
        """The keys of what is in values of `key`."""
        return _parts(self._all[key])

    def needs_check(self, given: Arrays) -> bool:
        """Whether the items have to be distinct, and the grammar does not say it."""
        return given.is_unique and given.most != 1 and self.distinct_values(given) is None

    def distinct_values(self, given: Arrays) -> list[str] | None:
        """The values of which the items of an array of distinct ones are, if a rule says that."""
        if not given.is_unique or given.prefix or given.has_contains():
            return None
        return self.finite(given.rest) if self.is_possible(given.rest) else []

    def unnamed(self, given: Objects, names: Strings, key: Key) -> str | None:
        """The body of a terminal of `names` that `given` does not name; None if it has no property
        of such a name that satisfies `key`."""
        unnamed = names.both(Strings(excluded=frozenset(given.named)))
        if unnamed is None or not self.is_possible(key):
            return None
        return self._shapes.language.terminal(unnamed)

    def finite(self, key: Key) -> list[str] | None:
        """All values as JSON, if they are few and none has parts."""
        found = self._all[key]
        if found.arrays or found.objects:
            return None
        texts = ["null"] * found.null + [str(each).lower() for each in sorted(found.booleans)]
        shapes = self._shapes.of(key)
        for number in found.numbers:
            if number.least is None or number.least != number.most:
                return None
            texts.append(decimal(number.least))
        for strings in shapes.strings:
            values = self._shapes.language.values(strings)
            if values is None:
                return None
            texts += map(json_text, values)
        distinct = list(dict.fromkeys(texts))
        return distinct if len(distinct) <= MAX_FINITE else None

    def _explore(self) -> None:
        waiting = [self._shapes.root]
        while waiting:
            key = waiting.pop()
            if key not in self._all:
                self._budget.spend(2)
                found = self._all[key] = self._values(self._shapes.of(key))
                waiting += _parts(found)

    def _values(self, shapes: Shapes) -> Values:
        terminals = (self._shapes.language.terminal(each) for each in shapes.strings)
        objects = [
            each for given in shapes.objects for each in self._shapes.objects.with_some(given)
        ]
        return Values(
            shapes.null,
            shapes.booleans,
            tuple(each for each in shapes.numbers if not each.is_empty()),
            tuple(dict.fromkeys(each for each in terminals if each is not None)),
            shapes.arrays,
            tuple(objects),
        )

    def _find_possible(self) -> None:
        """Adds keys until no more can be satisfied: of recursive ones those that have an end."""
        users: dict[Key, list[Key]] = {}
        for key, values in self._all.items():
            for part in set(_parts(values)):
                users.setdefault(part, []).append(key)
        waiting = list(self._all)
        while waiting:
            key = waiting.pop()
            if key not in self._possible and self._has_value(self._all[key]):
                self._budget.spend()
                self._possible.add(key)
                waiting += users.get(key, ())

    def _has_value(self, values: Values) -> bool:
        return bool(
            values.null
            or values.booleans
            or values.numbers
            or values.strings
            or any(map(self._is_possible_array, values.arrays))
            or any(map(self._is_possible_object, values.objects))
        )

    def _is_possible_array(self, given: Arrays) -> bool:
        if len(given.contains) > _MAX_CONTAINS:
            return False
        needed = range(min(given.least, len(given.prefix) + 1))
        if not all(self.is_possible(given.item(i)) for i in needed):
            return False
        if given.is_unique and given.least > 1 and not given.prefix:
            finite = self.finite(given.rest)
            return finite is None or given.least <= len(finite)
        return True

    def _is_possible_object(self, given: Objects) -> bool:
        if not all(self.is_possible(given.named[name]) for name in given.required):
            return False
        if given.some and self.unnamed(given, *given.some[0]) is None:
            return False
        if given.least <= len(given.required):
            return True
        is_open = any(self.unnamed(given, *region) is not None for region in given.regions)
        return is_open or given.least <= sum(map(self.is_possible, given.named.values()))


def _parts(values: Values) -> Iterator[Key]:
    """The keys of items and properties."""
    for array in values.arrays:
        choices: list[tuple[Key, ...]] = []
        for contains in array.contains[:_MAX_CONTAINS]:
            index, holds = contains.literal
            choices.append(
                (frozenset(), frozenset({(index, holds)}), frozenset({(index, not holds)}))
            )
        for item in (*array.prefix, array.rest):
            yield from (item.union(*chosen) for chosen in product(*choices))
    for each in values.objects:
        yield from (key for key in each.named.values() if not is_never(key))
        yield from (key for _, key in each.regions)
        yield from (key for _, key in each.some)
