"""Rules of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

from pagemill.structured.json_schema.rules import IMPOSSIBLE, Rules
from pagemill.structured.json_schema.shapes import Arrays, Key, Literal
from pagemill.structured.json_schema.spelling import lark_literal
from pagemill.structured.json_schema.values import ValueGraph

_MAX_ITEMS = 100_000
"""Longer arrays are not written, whatever their bound is."""
_MAX_STATES = 4096


class ArrayRules:
    """Writes them. `value` is the rule of a key."""

    def __init__(self, graph: ValueGraph, rules: Rules, value: Callable[[Key], str]) -> None:
        self._graph = graph
        self._rules = rules
        self._value = value

    def rule(self, given: Arrays) -> str:
        """The rule of arrays that are `given`, which is possible."""
        if given.has_contains():
            inner = _ContainsWriter(self._graph, self._rules, self._value, given).body()
            return self._bracketed(inner)
        distinct = self._graph.distinct_values(given)
        if distinct is not None:
            return self._bracketed(self._distinct(distinct, given))
        return self._bracketed(self._items(given))

    def _bracketed(self, inner: str | None) -> str:
        return self._rules.rule(IMPOSSIBLE if inner is None else f'"[" {inner} "]"')

    def _distinct(self, values: list[str], given: Arrays) -> str | None:
        """Items out of `values`, each at most once: the parameter's bits are those that were."""
        most = len(values) if given.most is None else min(given.most, len(values))
        if not most:
            return ""
        behind = self._rules.new_name()
        item = self._rules.new_name()
        end = f'"" %if bit_count_ge(_, {given.least})'
        self._rules.add(f'{behind}::_: {end} | "," {item}::_ %if bit_count_lt(_, {most})')
        options = (
            f"{lark_literal(value)} {behind}::set_bit({bit}) %if bit_clear({bit})"
            for bit, value in enumerate(values)
        )
        self._rules.add(f"{item}::_: {' | '.join(options)}")
        return f"{item}::0x0" if given.least else f"({item}::0x0)?"

    def _items(self, given: Arrays) -> str | None:
        """Items of the prefix, each of its own kind, and others behind them."""
        length = len(given.prefix)
        found = self._rest(given) if length == 0 else self._others(given, length)
        for index in reversed(range(length)):
            key = given.prefix[index]
            is_allowed = given.most is None or index < given.most
            if is_allowed and self._graph.is_possible(key) and found is not None:
                item = self._value(key) if index == 0 else f'"," {self._value(key)}'
                found = self._rules.rule(f"{item} {found}")
                found += "" if index < given.least else "?"
            else:
                found = None if index < given.least else ""
        return found

    def _rest(self, given: Arrays) -> str | None:
        """Items of one kind."""
        if given.most == 0 or not self._graph.is_possible(given.rest):
            return None if given.least else ""
        more = self._others(given, 1)
        if more is None:
            return None
        found = self._rules.rule(f"{self._value(given.rest)} {more}")
        return found if given.least else f"{found}?"

    def _others(self, given: Arrays, index: int) -> str | None:
        """Items from `index` on, where all are of one kind and others come before them."""
        least = max(given.least - index, 0)
        most = None if given.most is None else min(given.most - index, _MAX_ITEMS)
        if (most is not None and most <= 0) or not self._graph.is_possible(given.rest):
            return None if least else ""
        if least > _MAX_ITEMS:
            return None
        times = f"{{{least},{'' if most is None else most}}}" if least or most else "*"
        return f'("," {self._value(given.rest)}){times}'


_State = tuple[int, tuple[int, ...]]
"""The index of the next item, and how many satisfy each `contains`; both as far as they matter."""


class _ContainsWriter:
    """Writes arrays of which some items satisfy schemas, as an automaton."""

    def __init__(
        self, graph: ValueGraph, rules: Rules, value: Callable[[Key], str], given: Arrays
    ) -> None:
        self._graph = graph
        self._rules = rules
        self._value = value
        self._given = given
        self._contains = [c for c in given.contains if c.least or c.most is not None]
        starts = (each.start for each in self._contains)
        self._last = max(1, len(given.prefix), given.least, given.most or 0, *starts)

    def body(self) -> str | None:
        """What is between the brackets; None if that is nothing, or too much to write."""
        start: _State = (0, (0,) * len(self._contains))
        steps: dict[_State, list[tuple[Key, _State]]] = {}
        waiting: list[_State] = [start]
        while waiting:
            state = waiting.pop()
            if state not in steps:
                steps[state] = list(self._steps(state))
                waiting += (after for _, after in steps[state])
                if len(steps) > _MAX_STATES:
                    return None
        living = self._living(steps)
        if start not in living:
            return None
        names = {state: self._rules.new_name() for state in living}
        for state, name in names.items():
            separator = '"," ' if state[0] else ""
            options = ['""'] if self._may_end(state) else []
            options += [
                f"{separator}{self._value(key)} {names[after]}"
                for key, after in steps[state]
                if after in living
            ]
            self._rules.add(f"{name}: {' | '.join(options)}")
        return names[start]

    def _steps(self, state: _State) -> Iterator[tuple[Key, _State]]:
        """The items that may come next."""
        index, counts = state
        if self._given.most is not None and index >= self._given.most:
            return
        item = self._given.item(index)
        for chosen in product((True, False), repeat=len(self._contains)):
            found = self._choose(index, counts, chosen)
            if found is not None and self._graph.is_possible(item | found[0]):
                yield item | found[0], (min(index + 1, self._last), found[1])

    def _choose(
        self, index: int, counts: tuple[int, ...], chosen: tuple[bool, ...]
    ) -> tuple[Key, tuple[int, ...]] | None:
        """What an item has to satisfy if it counts as `chosen`, and the counts with it."""
        key: set[Literal] = set()
        after = list(counts)
        for position, (each, counted) in enumerate(zip(self._contains, chosen, strict=True)):
            schema, holds = each.literal
            if index < each.start or (each.most is None and counts[position] == each.least):
                if counted:
                    return None  # as if it did not count
            elif counted:
                if counts[position] == each.most:
                    return None
                key.add(each.literal)
                after[position] += 1
            elif each.most is not None:
                key.add((schema, not holds))
        return frozenset(key), tuple(after)

    def _living(self, steps: Mapping[_State, Sequence[tuple[Key, _State]]]) -> set[_State]:
        """The states from which the array can end."""
        before: dict[_State, list[_State]] = {}
        for state, following in steps.items():
            for _, after in following:
                before.setdefault(after, []).append(state)
        living: set[_State] = set()
        waiting = [state for state in steps if self._may_end(state)]
        while waiting:
            state = waiting.pop()
            if state not in living:
                living.add(state)
                waiting += before.get(state, ())
        return living

    def _may_end(self, state: _State) -> bool:
        index, counts = state
        enough = all(c >= each.least for c, each in zip(counts, self._contains, strict=True))
        return enough and index >= self._given.least
