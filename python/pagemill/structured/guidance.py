"""Grammars of all kinds, by llguidance: it fills a mask in 10 to 50 us, mostly."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pagemill.structured.deep_stack import call_with_deep_stack
from pagemill.structured.distinct_items import DistinctItems
from pagemill.structured.expansion import Expanded
from pagemill.structured.grammar import Grammar, GrammarError, Reasoning
from pagemill.structured.json_trace import Paths
from pagemill.structured.matcher import Compiled, GrammarMatcher, first_line
from pagemill.structured.token_table import TokenTable
from pagemill.structured.token_texts import TokenTexts

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_MAX_ROW = 16_000
"""What may come next at one place of a grammar: two things for each optional property."""


class GuidanceBackEnd:
    """Compiles grammars for one vocabulary. Thread-safe."""

    def __init__(self, tokens: TokenTable, expand: Callable[[Grammar], Expanded]) -> None:
        """`expand` makes rules of schemas."""
        self._tokens = tokens
        self._expand = expand
        self._tokenizer = _tokenizer(tokens)
        self._ends = frozenset(tokens.eos_token_ids)
        self._lock = threading.Lock()
        self._texts: TokenTexts | None = None
        """Made for the first grammar that needs it."""

    def compile(self, grammar: Grammar) -> Compiled:
        """`grammar`, compiled. May take a second.

        Raises:
            GrammarError: it is no grammar, or too large a one.
        """
        expanded = self._expand(grammar)
        matcher = call_with_deep_stack(lambda: _compile(self._tokenizer, expanded.text))
        num_chars = len(expanded.text) + sum(map(len, grammar.schemas))
        if expanded.distinct is None:
            return Compiled(lambda reasoning: self._factory(matcher, reasoning, None), num_chars)
        paths, texts = Paths(json.loads(expanded.distinct)), self._token_texts()
        return Compiled(
            lambda reasoning: self._factory(
                matcher, reasoning, lambda: DistinctItems(paths, texts)
            ),
            num_chars,
        )

    def _factory(
        self,
        matcher: LLMatcher,
        reasoning: Reasoning | None,
        new_distinct: Callable[[], DistinctItems] | None,
    ) -> Callable[[], GrammarMatcher]:
        def begin() -> GrammarMatcher:
            distinct = None if new_distinct is None else new_distinct()
            return GrammarMatcher(matcher.deep_copy(), self._ends, reasoning, distinct)

        return begin

    def _token_texts(self) -> TokenTexts:
        texts = self._texts or TokenTexts(self._tokens.texts())
        with self._lock:
            self._texts = self._texts or texts
            return self._texts


def _tokenizer(tokens: TokenTable) -> LLTokenizer:
    import llguidance

    wrapper: Any = llguidance.TokenizerWrapper(tokens)
    return llguidance.LLTokenizer(
        wrapper, n_vocab=len(tokens.tokens), eos_token=list(tokens.eos_token_ids)
    )


def _compile(tokenizer: LLTokenizer, text: str) -> LLMatcher:
    import llguidance

    limits = llguidance.LLParserLimits(max_items_in_row=_MAX_ROW, verbose_errors=False)
    matcher = llguidance.LLMatcher(tokenizer, text, log_level=0, limits=limits)
    if matcher.is_error():
        raise GrammarError(first_line(matcher.get_error()))
    return matcher
