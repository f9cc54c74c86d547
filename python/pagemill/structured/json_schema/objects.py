"""Objects of shapes: their intersection, and what their names say of each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from pagemill.structured.json_schema.shapes import (
    ANY,
    NEVER,
    OPEN,
    Evaluated,
    Key,
    Objects,
    Strings,
    is_never,
    smaller,
)
from pagemill.structured.json_schema.string_language import StringLanguage

_MAX_REGIONS = 64


class ObjectAlgebra:
    """Combines objects, whose names may be listed or match patterns."""

    def __init__(self, language: StringLanguage, is_empty: Callable[[Key], bool]) -> None:
        """`is_empty`: whether it is clear that nothing satisfies a key."""
        self._language = language
        self._is_empty = is_empty

    def property(self, given: Objects, name: str) -> Key:
        """The schemas of a property, which need not be named; `NEVER` if it is not allowed."""
        found = given.named.get(name)
        if found is not None:
            return found
        if given.regions is OPEN:
            return ANY
        for names, key in given.regions:
            if self._language.admits(names, name):
                return key
        return NEVER

    def both(self, left: Objects, right: Objects) -> Objects | None:
        """What is in both; None if it is clear that nothing is."""
        least, most = max(left.least, right.least), smaller(left.most, right.most)
        required = left.required | right.required
        if most is not None and max(least, len(required)) > most:
            return None
        for name in required:
            key = self.property(left, name) | self.property(right, name)
            if key not in (left.named.get(name), right.named.get(name)) and self._is_empty(key):
                return None
        named = dict(left.named)
        for name, key in left.named.items():
            if name in right.named or right.regions is not OPEN:
                named[name] = key | self.property(right, name)
        for name, key in right.named.items():
            if name not in left.named:
                named[name] = key if left.regions is OPEN else key | self.property(left, name)
        if left.regions is OPEN or right.regions is OPEN:
            regions = right.regions if left.regions is OPEN else left.regions
        else:
            regions = tuple(self._both_regions(left, right))
        return Objects(
            named,
            regions,
            required,
            least,
            most,
            tuple(dict.fromkeys((*left.some, *right.some))),
            left.evaluated.both(right.evaluated),
        )

    def _both_regions(self, left: Objects, right: Objects) -> list[tuple[Strings, Key]]:
        found = [
            (both, key | other_key)
            for names, key in left.regions
            for other, other_key in right.regions
            if (both := names.both(other)) is not None and not is_never(key | other_key)
        ]
        return found[:_MAX_REGIONS]

    def requiring(self, given: Objects, names: Iterable[str]) -> Objects:
        """`given`, with properties that it has to have."""
        added = {n: self.property(given, n) for n in names if n not in given.named}
        required = given.required.union(names)
        return replace(given, named={**given.named, **added}, required=required)

    def with_some(self, given: Objects) -> list[Objects]:
        """Objects that have the properties `given.some` by name, or at most one of them, `some[0]`,
        in a region. May leave some out."""
        found = [replace(given, some=())]
        for names, key in given.some:
            step: list[Objects] = []
            for each in found:
                for name, value in each.named.items():
                    if self._language.admits(names, name) and not is_never(value):
                        required = self.requiring(each, (name,))
                        step.append(replace(required, named={**required.named, name: value | key}))
                if not each.some:
                    step += [
                        replace(each, some=((both, key | other_key),))
                        for other, other_key in each.regions
                        if (both := names.both(other)) is not None
                    ]
            found = step[:_MAX_REGIONS]
        return found

    def with_unevaluated(self, given: Objects, key: Key) -> Objects | None:
        """`given`, where properties that were not looked at satisfy `key`."""
        seen = given.evaluated
        if seen.everything:
            return given
        patterns = sorted(seen.patterns)
        named = {
            name: value
            if name in seen.names or any(self._language.matches(p, name) for p in patterns)
            else value | key
            for name, value in given.named.items()
        }
        unseen = Strings(
            excluded=seen.names, patterns=frozenset((pattern, False) for pattern in patterns)
        )
        looked_at = [Strings(values=tuple(sorted(seen.names)))] if seen.names else []
        for index, pattern in enumerate(patterns):
            others = frozenset((other, False) for other in patterns[:index])
            looked_at.append(Strings(excluded=seen.names, patterns=others | {(pattern, True)}))
        regions = [
            (both, value | (key if part is unseen else ANY))
            for names, value in given.regions
            for part in (*looked_at, unseen)
            if (both := names.both(part)) is not None
        ]
        kept = [(names, value) for names, value in regions if not is_never(value)]
        if any(is_never(named[name]) for name in given.required):
            return None
        return replace(
            given,
            named=named,
            regions=tuple(kept[:_MAX_REGIONS]),
            evaluated=Evaluated(everything=True),
        )
