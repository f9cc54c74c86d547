"""The grammar of JSON that satisfies a schema, in llguidance's Lark.

Objects have their named properties in the order of the schema, others behind them.
"""

from __future__ import annotations

from collections.abc import Iterable

from pagemill.structured.json_schema.array_rules import ArrayRules
from pagemill.structured.json_schema.errors import Budget
from pagemill.structured.json_schema.number_rules import number_rule
from pagemill.structured.json_schema.object_rules import ObjectRules
from pagemill.structured.json_schema.rules import BLANKS, Rules
from pagemill.structured.json_schema.shapes import Key
from pagemill.structured.json_schema.spelling import lark_literal
from pagemill.structured.json_schema.values import ValueGraph

_OPTIONS = '%llguidance {"ignore_once": true}'
"""White space is not repeated."""


class LarkWriter:
    """Writes the rules of keys."""

    def __init__(self, graph: ValueGraph, budget: Budget, *, is_unique: bool) -> None:
        """`is_unique`: each value is spelled in one way."""
        self._graph = graph
        self._is_unique = is_unique
        self._rules = Rules(budget)
        self._names: dict[Key, str] = {}
        self._waiting: list[Key] = []
        self._arrays = ArrayRules(graph, self._rules, self.value)
        self._objects = ObjectRules(graph, self._rules, self.value)

    def grammar(self, root: Key) -> str:
        """The grammar of what satisfies `root`, which is possible."""
        start = self.value(root)
        while self._waiting:
            key = self._waiting.pop()
            self._rules.add(f"{self._names[key]}: {' | '.join(self._alternatives(key))}")
        return "\n".join((_OPTIONS, f"start: {start}", *self._rules.lines, f"%ignore /{BLANKS}/"))

    def value(self, key: Key) -> str:
        """The name of the rule of what satisfies `key`, which is possible."""
        found = self._names.get(key)
        if found is None:
            found = self._names[key] = f"v{len(self._names)}"
            self._waiting.append(key)
        return found

    def _alternatives(self, key: Key) -> Iterable[str]:
        values = self._graph[key]
        words = [*(["null"] if values.null else []), *(str(b).lower() for b in values.booleans)]
        found = list(map(lark_literal, words))
        found += [number_rule(each, is_unique=self._is_unique) for each in values.numbers]
        if values.strings:
            found.append(self._rules.terminal(" | ".join(values.strings)))
        found += [self._arrays.rule(each) for each in values.arrays]
        found += [self._objects.rule(each) for each in values.objects]
        return dict.fromkeys(found)
