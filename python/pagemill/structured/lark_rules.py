"""The parts of a grammar in the language of llguidance, a dialect of Lark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from pagemill.structured import grammar as grammars
from pagemill.structured.grammar import Grammar


class LarkRules:
    """Collects rules, and writes expressions for them.

    Markers are texts that a model writes as one token, which nothing else spells.
    """

    def __init__(self, markers: Mapping[str, int]) -> None:
        """`markers`: the token of each."""
        self._markers = markers
        found = sorted(map(re.escape, markers), key=len, reverse=True)
        self._marker = re.compile("|".join(found) or "(?!)")
        self._rules: list[str] = []
        self._schemas: list[str] = []
        self._terminals: dict[str, str] = {}
        """The name of each terminal, by its pattern."""

    def grammar(self, start: str) -> Grammar:
        """The grammar of what `start`, an expression, says.

        Raises:
            GrammarError: it is too long.
        """
        terminals = (f"{name}: {pattern}" for pattern, name in self._terminals.items())
        found = grammars.lark("\n".join((f"start: {start}", *self._rules, *terminals)))
        return msgspec.structs.replace(found, schemas=tuple(self._schemas))

    def rule(self, expression: str, suffix: str = "") -> str:
        """A rule that says `expression`: its name. `suffix`: text that ends it."""
        name = f"r{len(self._rules)}"
        ended = f"[suffix={quoted(suffix)}]" if suffix else ""
        self._rules.append(f"{name}{ended}: {expression}")
        return name

    def terminal(self, pattern: str) -> str:
        """A terminal that is `pattern`: its name."""
        return self._terminals.setdefault(pattern, f"T{len(self._terminals)}")

    def text(self, text: str) -> str:
        """Exactly this text, in which markers are their tokens."""
        parts: list[str] = []
        at = 0
        for found in self._marker.finditer(text):
            parts += [quoted(text[at : found.start()]), self.token(self._markers[found[0]])]
            at = found.end()
        return " ".join(filter(None, (*parts, quoted(text[at:]))))

    @staticmethod
    def token(token_id: int) -> str:
        """Exactly this token."""
        return f"<[{token_id}]>"

    @staticmethod
    def token_except(token_ids: Iterable[int]) -> str:
        """Any token but these, of which there is one at least."""
        return f"<[^{','.join(map(str, sorted(set(token_ids))))}]>"

    def schema(self, schema: Mapping[str, Any] | bool) -> str:
        """JSON that is valid against `schema`."""
        self._schemas.append(grammars.schema_text(schema))
        return grammars.schema_rule(len(self._schemas) - 1)

    def text_without(self, stops: Iterable[str]) -> str:
        """Any text, also none, that has none of `stops` in it."""
        stopping = [stop for stop in stops if not self._marker.search(stop)]
        pattern = "|".join(sorted(map(_pattern, stopping)))
        without = f" & ~/(?s:.*)({pattern})(?s:.*)/" if pattern else ""
        return self.terminal(f"/(?s:.*)/{without}")

    def text_before(self, stop: str, stops: Iterable[str]) -> str:
        """Any text, also none, and `stop` behind it. It has none of `stops`, one of which is
        `stop`. What is in front of a marker in `stop` is text like any other."""
        text = self.text_without(stops)
        marker = self._marker.search(stop)
        if marker is not None:
            return f"{text}? {self.text(stop[marker.start() :])}"
        return self.rule(text, suffix=stop)


def quoted(text: str) -> str:
    """Text as a literal; nothing for the empty text."""
    return json.dumps(text, ensure_ascii=False) if text else ""


def _pattern(text: str) -> str:
    return re.escape(text).replace("/", r"\/").replace("\n", r"n")
