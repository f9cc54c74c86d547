"""Rules of objects: the named properties in their order, others behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pagemill.structured.json_schema.rules import IMPOSSIBLE, Rules
from pagemill.structured.json_schema.shapes import Key, Objects, Strings
from pagemill.structured.json_schema.spelling import json_text, lark_literal
from pagemill.structured.json_schema.values import ValueGraph

_MAX_COUNTED = 64
"""Objects whose number of properties matters have so many at most."""


class ObjectRules:
    """Writes them. `value` is the rule of a key."""

    def __init__(self, graph: ValueGraph, rules: Rules, value: Callable[[Key], str]) -> None:
        self._graph = graph
        self._rules = rules
        self._value = value

    def rule(self, given: Objects) -> str:
        """The rule of objects that are `given`, which is possible."""
        return self._rules.rule(_ObjectWriter(self, given).body())

    def property(self, name: str, key: Key) -> str:
        """A property of this name."""
        return self._rules.rule(f'{lark_literal(json_text(name))} ":" {self._value(key)}')

    def others(self, given: Objects) -> str | None:
        """Any property that is not named."""
        found = [self._region(given, names, key) for names, key in given.regions]
        kept = list(dict.fromkeys(each for each in found if each is not None))
        return self._rules.rule(" | ".join(kept)) if kept else None

    def special(self, given: Objects) -> str | None:
        """The property that there has to be."""
        return self._region(given, *given.some[0]) if given.some else None

    def sequence(self, body: str) -> str:
        """A rule that says `body`."""
        return self._rules.rule(body)

    def is_possible(self, key: Key) -> bool:
        """Whether anything satisfies `key`."""
        return self._graph.is_possible(key)

    def _region(self, given: Objects, names: Strings, key: Key) -> str | None:
        body = self._graph.unnamed(given, names, key)
        if body is None:
            return None
        return f'{self._rules.terminal(body)} ":" {self._value(key)}'


class _ObjectWriter:
    """Writes one object, from its end to its beginning. What follows depends on how many properties
    there are already, counted as far as that matters."""

    def __init__(self, rules: ObjectRules, given: Objects) -> None:
        self._rules = rules
        self._given = given
        self._named = [n for n, key in given.named.items() if rules.is_possible(key)]
        self._most = given.most
        if given.most is not None:
            self._most = min(given.most, max(_MAX_COUNTED, given.least, len(given.required)))
        self._cap = max(1, given.least, self._most or 0)
        self._others = rules.others(given)
        self._special = rules.special(given)

    def body(self) -> str:
        """The object."""
        counts = range(self._cap, -1, -1)
        after: dict[int, str | None] = {}
        for count in counts:
            after[count] = self._unnamed(count, after.get(count + 1))
        for name in reversed(self._named):
            item = self._rules.property(name, self._given.named[name])
            is_required = name in self._given.required
            after = {c: self._property(c, item, after, is_required=is_required) for c in counts}
        return IMPOSSIBLE if after[0] is None else f'"{{" {after[0]} "}}"'

    def _unnamed(self, count: int, after_one: str | None) -> str | None:
        """Properties that are not named, up to the end."""
        end = None
        if self._special is None:
            end = "" if count >= self._given.least else None
        elif self._may_add(count) and count + 1 >= self._given.least:
            end = _behind(count, self._special)
        if self._others is None or not self._may_add(count):
            return end
        item = _behind(count, self._others)
        if count == self._cap:
            return None if end is None else f"({item})* {end}"
        return self._one_of(end, None if after_one is None else f"{item} {after_one}")

    def _property(
        self, count: int, item: str, after: Mapping[int, str | None], *, is_required: bool
    ) -> str | None:
        """A named property, if it may or has to be there, and all that follows."""
        after_one = after[min(count + 1, self._cap)]
        absent = None if is_required else after[count]
        if not self._may_add(count) or after_one is None:
            return absent
        there = _behind(count, item)
        if absent == after_one:
            return self._rules.sequence(f"({there})? {absent}")
        return self._one_of(f"{there} {after_one}", absent)

    def _one_of(self, *options: str | None) -> str | None:
        possible = [option or '""' for option in options if option is not None]
        return self._rules.sequence(" | ".join(possible)) if possible else None

    def _may_add(self, count: int) -> bool:
        return self._most is None or count < self._most


def _behind(count: int, item: str) -> str:
    """`item`, behind `count` others."""
    return f'"," {item}' if count else item
