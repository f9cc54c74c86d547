"""Grammars that are JSON Schemas, by xgrammar's core: their matchers run without Python."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

from pagemill.structured.expansion import closed_schema
from pagemill.structured.grammar import Grammar, GrammarError, Reasoning
from pagemill.structured.matcher import Compiled
from pagemill.structured.token_table import TokenTable

if TYPE_CHECKING:
    from pagemill._native import MatcherFactory

_MAX_MESSAGE_CHARS = 500


class XgrammarBackEnd:
    """Compiles schemas for one vocabulary. Thread-safe; the GIL is free meanwhile."""

    def __init__(self, tokens: TokenTable) -> None:
        """Sorts the tokens: 50 ms for 150,000."""
        from pagemill import _native

        self._compiler = _native.SchemaCompiler(tokens.texts(), list(tokens.eos_token_ids), tokens)
        self._error = _native.StatusError

    def compile(self, grammar: Grammar) -> Compiled:
        """`grammar`, which `table.choose` gave to this back end.

        Raises:
            GrammarError: nothing is valid against its schema, or it is not Unicode.
        """
        assert grammar.sole_schema is not None
        schema = json.dumps(closed_schema(grammar.sole_schema), ensure_ascii=False)
        try:
            schema.encode()
            compiled = self._compiler.compile(schema)
        except UnicodeEncodeError:
            raise GrammarError("the schema has half a character (a lone surrogate)") from None
        except self._error as error:
            raise GrammarError(str(error).splitlines()[0][:_MAX_MESSAGE_CHARS]) from error
        return Compiled(functools.partial(_behind, compiled), len(schema))


def _behind(compiled: MatcherFactory, reasoning: Reasoning | None) -> MatcherFactory:
    if reasoning is None:
        return compiled
    return compiled.with_reasoning(reasoning.openers, reasoning.closers, reasoning.begins_within)
