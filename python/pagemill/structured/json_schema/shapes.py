"""What JSON values a schema allows, kind by kind: unions of conjunctions, without references.

The value at a property or an item is a `Key`: schemas that all hold of it. So shapes are finite
for schemas that are recursive.

Shapes may leave valid values out, and never let an invalid one in. `is_exact` is False where they
may have left one out: then that they are empty says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice, product
from math import lcm
from typing import TypeVar

Literal = tuple[int, bool]
"""A schema, by its index, that holds or does not."""
Key = frozenset[Literal]
ANY: Key = frozenset()
FALSE_SCHEMA, UNKNOWN_SCHEMA = 0, 1
"""Indices of the schema of nothing, and of one in a document that is not known."""
NEVER: Key = frozenset({(FALSE_SCHEMA, True)})


def is_never(key: Key) -> bool:
    """Whether `key` says that nothing satisfies it."""
    return (FALSE_SCHEMA, True) in key


MAX_LARGE = 10**40
"""Larger numbers are not written if they have a bound."""
_MAX_UNION = 256
"""Conjunctions of a kind in one union."""
_MAX_PRODUCTS = 1024
"""Pairs of conjunctions of which the intersection is looked at."""
_MAX_COMPARED = 8
"""Parts of a union that are looked for another time; those behind them may be twice in it."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers within bounds. `is_integer`: all are, or none is; None: no matter."""

    least: Fraction | None = None
    most: Fraction | None = None
    is_least_open: bool = False
    is_most_open: bool = False
    multiple_of: Fraction | None = None
    is_integer: bool | None = None

    def both(self, other: Numbers) -> Numbers | None:
        """What is in both; None if nothing is."""
        kinds = {self.is_integer, other.is_integer} - {None}
        if len(kinds) > 1:
            return None
        least, least_open = _tighter(
            (self.least, self.is_least_open), (other.least, other.is_least_open), 1
        )
        most, most_open = _tighter(
            (self.most, self.is_most_open), (other.most, other.is_most_open), -1
        )
        found = Numbers(
            least,
            most,
            least_open,
            most_open,
            _common_multiple(self.multiple_of, other.multiple_of),
            next(iter(kinds), None),
        )
        return None if found.is_empty() else found

    def is_empty(self) -> bool:
        """True if no number is in it."""
        if self.is_integer is False and self.least is not None and self.least == self.most:
            return self.least.denominator == 1 or self.is_least_open or self.is_most_open
        if self.least is None or self.most is None:
            return False
        if self.least == self.most and (self.is_least_open or self.is_most_open):
            return True
        step = self.step()
        if step is None:
            return self.least > self.most
        first = -(-self.least // step)
        last = self.most // step
        first += self.is_least_open and first * step == self.least
        last -= self.is_most_open and last * step == self.most
        return first > last

    def step(self) -> Fraction | None:
        """All are multiples of it."""
        if not self.is_integer:
            return self.multiple_of
        return _common_multiple(self.multiple_of, Fraction(1))


def _tighter(
    left: tuple[Fraction | None, bool], right: tuple[Fraction | None, bool], sign: int
) -> tuple[Fraction | None, bool]:
    if left[0] is None or right[0] is None:
        return right if left[0] is None else left
    if left[0] == right[0]:
        return left[0], left[1] or right[1]
    return max(left, right, key=lambda bound: sign * (bound[0] or 0))


def _common_multiple(left: Fraction | None, right: Fraction | None) -> Fraction | None:
    if left is None or right is None:
        return right if left is None else left
    denominator = lcm(left.denominator, right.denominator)
    whole = lcm(int(left * denominator), int(right * denominator))
    return Fraction(whole, denominator)


@dataclass(frozen=True, slots=True)
class Strings:
    """Strings of a length, and of patterns that match or do not."""

    least: int = 0
    most: int | None = None
    values: tuple[str, ...] | None = None
    excluded: frozenset[str] = frozenset()
    patterns: frozenset[tuple[str, bool]] = frozenset()

    def both(self, other: Strings) -> Strings | None:
        """What is in both; None if it is clear that nothing is."""
        patterns = self.patterns | other.patterns
        if any((pattern, not sign) in patterns for pattern, sign in other.patterns):
            return None
        values = self.values if other.values is None else other.values
        if self.values is not None and other.values is not None:
            allowed = frozenset(other.values)
            values = tuple(value for value in self.values if value in allowed)
        found = Strings(
            max(self.least, other.least),
            smaller(self.most, other.most),
            values,
            self.excluded | other.excluded,
            patterns,
        )
        return None if found.is_clearly_empty() else found

    def is_clearly_empty(self) -> bool:
        """True if its bounds and values leave nothing."""
        if self.most is not None and self.least > self.most:
            return True
        return self.values is not None and not any(
            value not in self.excluded
            and self.least <= len(value) <= (len(value) if self.most is None else self.most)
            for value in self.values
        )


ALL_STRINGS = Strings()


OPEN = ((ALL_STRINGS, ANY),)
"""The region of objects that may have any property."""


@dataclass(frozen=True, slots=True)
class Contains:
    """`least` to `most` of the items from `start` on satisfy `literal`."""

    literal: Literal
    least: int
    most: int | None
    start: int = 0


@dataclass(frozen=True, slots=True)
class Arrays:
    """Arrays. `evaluated`: so many items were looked at, for `unevaluatedItems`; None: all."""

    prefix: tuple[Key, ...] = ()
    rest: Key = ANY
    least: int = 0
    most: int | None = None
    is_unique: bool = False
    contains: tuple[Contains, ...] = ()
    evaluated: int | None = 0

    def item(self, index: int) -> Key:
        """The schemas of an item."""
        return self.prefix[index] if index < len(self.prefix) else self.rest

    def has_contains(self) -> bool:
        """Whether `contains` demands anything."""
        return any(each.least or each.most is not None for each in self.contains)

    def both(self, other: Arrays) -> Arrays | None:
        """What is in both; None if it is clear that nothing is."""
        length = max(len(self.prefix), len(other.prefix))
        prefix = tuple(self.item(i) | other.item(i) for i in range(length))
        least, most = max(self.least, other.least), smaller(self.most, other.most)
        if most is not None and least > most:
            return None
        ends = (self.evaluated, other.evaluated)
        return Arrays(
            prefix,
            self.rest | other.rest,
            least,
            most,
            self.is_unique or other.is_unique,
            tuple(dict.fromkeys((*self.contains, *other.contains))),
            None if None in ends else max(end for end in ends if end is not None),
        )


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Properties that were looked at, for `unevaluatedProperties`."""

    names: frozenset[str] = frozenset()
    patterns: frozenset[str] = frozenset()
    everything: bool = False

    def both(self, other: Evaluated) -> Evaluated:
        """What one of them looked at."""
        return Evaluated(
            self.names | other.names,
            self.patterns | other.patterns,
            self.everything or other.everything,
        )


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects. `named`: properties by name; others are in one of `regions`, or not allowed.
    `some`: for each of these there is a property of that name and value."""

    named: Mapping[str, Key]
    regions: tuple[tuple[Strings, Key], ...] = OPEN
    required: frozenset[str] = frozenset()
    least: int = 0
    most: int | None = None
    some: tuple[tuple[Strings, Key], ...] = ()
    evaluated: Evaluated = Evaluated()


@dataclass(frozen=True, slots=True)
class Shapes:
    """A union, for each kind of values."""

    null: bool = False
    booleans: frozenset[bool] = frozenset()
    numbers: tuple[Numbers, ...] = ()
    strings: tuple[Strings, ...] = ()
    arrays: tuple[Arrays, ...] = ()
    objects: tuple[Objects, ...] = ()
    is_exact: bool = True

    def is_empty(self) -> bool:
        """True if there is no value."""
        return not (
            self.null
            or self.booleans
            or self.numbers
            or self.strings
            or self.arrays
            or self.objects
        )


NOTHING = Shapes()
EVERYTHING = Shapes(
    null=True,
    booleans=frozenset({False, True}),
    numbers=(Numbers(),),
    strings=(ALL_STRINGS,),
    arrays=(Arrays(),),
    objects=(Objects({}),),
)


def smaller(left: int | None, right: int | None) -> int | None:
    """The smaller bound; None is none."""
    if left is None or right is None:
        return right if left is None else left
    return min(left, right)


def union(parts: Iterable[Shapes]) -> Shapes:
    """What is in one of `parts`."""
    found = list(parts)
    if len(found) == 1:
        return found[0]
    numbers, fits_1 = _bounded(part.numbers for part in found)
    strings, fits_2 = _bounded(_joined_values(found))
    arrays, fits_3 = _bounded(part.arrays for part in found)
    objects, fits_4 = _bounded(part.objects for part in found)
    return Shapes(
        any(part.null for part in found),
        frozenset[bool]().union(*(part.booleans for part in found)),
        numbers,
        strings,
        arrays,
        objects,
        all(part.is_exact for part in found) and fits_1 and fits_2 and fits_3 and fits_4,
    )


def _joined_values(parts: Sequence[Shapes]) -> Iterator[Sequence[Strings]]:
    """Strings that are only listed as values join one list."""
    values: dict[str, None] = {}
    for part in parts:
        others: list[Strings] = []
        for each in part.strings:
            if each.values is not None and each == Strings(values=each.values):
                values |= dict.fromkeys(each.values)
            else:
                others.append(each)
        yield others
    if values:
        yield (Strings(values=tuple(values)),)


def _bounded(parts: Iterable[Sequence[_T]]) -> tuple[tuple[_T, ...], bool]:
    found: list[_T] = []
    for part in parts:
        found += [each for each in part if each not in found[:_MAX_COMPARED]]
        if len(found) > _MAX_UNION:
            return tuple(found[:_MAX_UNION]), False
    return tuple(found), True


def intersection(left: Shapes, right: Shapes, objects_both: ObjectsBoth, most: int) -> Shapes:
    """What is in both, with `most` conjunctions of a kind."""
    if left is EVERYTHING or right is EVERYTHING:
        return right if left is EVERYTHING else left
    numbers, fits_1 = _products(left.numbers, right.numbers, Numbers.both, _MAX_UNION)
    strings, fits_2 = _products(left.strings, right.strings, Strings.both, most)
    arrays, fits_3 = _products(left.arrays, right.arrays, Arrays.both, most)
    objects, fits_4 = _products(left.objects, right.objects, objects_both, most)
    return Shapes(
        left.null and right.null,
        left.booleans & right.booleans,
        numbers,
        strings,
        arrays,
        objects,
        left.is_exact and right.is_exact and fits_1 and fits_2 and fits_3 and fits_4,
    )


ObjectsBoth = Callable[[Objects, Objects], Objects | None]


def _products(
    left: Sequence[_T], right: Sequence[_T], both: Callable[[_T, _T], _T | None], most: int
) -> tuple[tuple[_T, ...], bool]:
    found: list[_T] = []
    num_left = len(left) * len(right)
    for one, other in islice(product(left, right), _MAX_PRODUCTS):
        num_left -= 1
        each = both(one, other)
        if each is not None:
            found.append(each)
            if len(found) == most:
                break
    return tuple(found), not num_left


def without_evaluation(given: Shapes) -> Shapes:
    """`given`, as if nothing had been looked at."""
    return replace(
        given,
        arrays=tuple(replace(each, evaluated=0) for each in given.arrays),
        objects=tuple(replace(each, evaluated=Evaluated()) for each in given.objects),
    )
