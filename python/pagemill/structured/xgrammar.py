"""Grammars that are JSON Schemas, by xgrammar's core: their matchers run without Python."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from pagemill.structured.grammar import Grammar, GrammarError, Reasoning
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

    def compile(self, grammar: Grammar) -> Callable[[Reasoning | None], MatcherFactory]:
        """Factories of matchers of `grammar`, behind some reasoning.

        Raises:
            GrammarError: nothing is valid against its schema, or it is not Unicode.
        """
        assert grammar.schema is not None
        try:
            grammar.schema.encode()
            compiled = self._compiler.compile(grammar.schema)
        except UnicodeEncodeError:
            raise GrammarError("the schema has half a character (a lone surrogate)") from None
        except self._error as error:
            raise GrammarError(str(error).splitlines()[0][:_MAX_MESSAGE_CHARS]) from error
        return functools.partial(_behind, compiled)


def _behind(compiled: MatcherFactory, reasoning: Reasoning | None) -> MatcherFactory:
    if reasoning is None:
        return compiled
    return compiled.with_reasoning(reasoning.openers, reasoning.closers, reasoning.begins_within)
