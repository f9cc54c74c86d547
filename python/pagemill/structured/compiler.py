"""Grammars to matchers of outputs, by the back ends of `table`.

llguidance fills a mask in 10 to 50 us, mostly.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

import numpy as np

from pagemill.structured import table
from pagemill.structured.grammar import Grammar, GrammarError, Reasoning
from pagemill.structured.token_table import TokenTable
from pagemill.structured.vocabulary import Vocabulary
from pagemill.structured.xgrammar import XgrammarBackEnd

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from pagemill._native import TokenMatcher

_MAX_KEPT = 64
_MAX_KEPT_CHARS = 2**22
_MAX_MESSAGE_CHARS = 500
_NO_TOKEN = "NoExtensionBias"  # llguidance: no token of the vocabulary may come next

Factory = Callable[[], "GrammarMatcher | TokenMatcher"]
Compiled = Callable[[Reasoning | None], Factory]
"""Makes matchers that begin behind some reasoning."""


class GrammarCompiler:
    """Makes matchers for one model. Thread-safe; keeps the latest grammars.

    `open_vocabulary` is called once, for the first grammar: a model that is asked for none pays
    nothing. `back_end`: `auto`, or the one of `table` that every grammar has to go to.
    """

    def __init__(
        self, open_vocabulary: Callable[[], Vocabulary] | None = None, back_end: str = "auto"
    ) -> None:
        """`open_vocabulary` may be set later, before the first grammar."""
        self.open_vocabulary = open_vocabulary
        self._back_end = back_end
        self._lock = threading.Lock()
        self._tokens: TokenTable | None = None
        self._tokenizer: LLTokenizer | None = None
        self._xgrammar: XgrammarBackEnd | None = None
        self._kept: OrderedDict[str, Compiled] = OrderedDict()
        self._num_kept_chars = 0

    def prepare(self, grammar: Grammar) -> bool:
        """Compiles `grammar`; False if it was kept. May take a second: call it in a thread.

        Raises:
            GrammarError: it is no grammar, too large a one, or none for the back end that the
                option names.
        """
        return self._compiled(grammar)[1]

    def factory(self, grammar: Grammar) -> Factory:
        """Makes the matchers of outputs (`engine.token_matcher.TokenMatcherFactory`).

        Raises:
            GrammarError: see `prepare`.
        """
        return self._compiled(grammar)[0](grammar.reasoning)

    def _compiled(self, grammar: Grammar) -> tuple[Compiled, bool]:
        """The compiled grammar, and whether it is new."""
        with self._lock:
            kept = self._kept.get(grammar.text)
            if kept is not None:
                self._kept.move_to_end(grammar.text)
                return kept, False
        back_end = table.choose(grammar, self._back_end)
        with self._lock:
            compile_ = self._opened(back_end)
        compiled = compile_(grammar)
        with self._lock:
            if grammar.text not in self._kept:
                self._kept[grammar.text] = compiled
                self._num_kept_chars += len(grammar.text)
            while len(self._kept) > _MAX_KEPT or self._num_kept_chars > _MAX_KEPT_CHARS:
                text, _ = self._kept.popitem(last=False)
                self._num_kept_chars -= len(text)
        return compiled, True

    def _opened(self, back_end: str) -> Callable[[Grammar], Compiled]:
        """What compiles grammars of `back_end`."""
        if self._tokens is None:
            if self.open_vocabulary is None:
                raise GrammarError("this engine has no vocabulary to constrain outputs with")
            self._tokens = TokenTable(self.open_vocabulary())
        if back_end == table.XGRAMMAR:
            if self._xgrammar is None:
                self._xgrammar = XgrammarBackEnd(self._tokens)
            return self._xgrammar.compile
        if self._tokenizer is None:
            self._tokenizer = _tokenizer(self._tokens)
        tokenizer, ends = self._tokenizer, frozenset(self._tokens.eos_token_ids)
        return lambda grammar: _matchers(_compile(tokenizer, grammar.text), ends)


class GrammarMatcher:
    """The state of one output. Implements `engine.token_matcher.TokenMatcher`."""

    def __init__(
        self, matcher: LLMatcher, eos_token_ids: Container[int], reasoning: Reasoning | None
    ) -> None:
        """Begins an output."""
        self._matcher = matcher
        self._ends = eos_token_ids
        self._openers = reasoning.openers if reasoning is not None else ()
        self._closers = reasoning.closers if reasoning is not None else ()
        self._begins_within = reasoning is not None and reasoning.begins_within
        self._num_accepted = 0
        self._begun_at = -1 if self._begins_within else 0
        """How many tokens were accepted before the constraint began; -1 while it has not."""

    def fill_mask(self, mask: np.ndarray) -> None:
        """See `TokenMatcher`."""
        if self._begun_at < 0:
            mask.fill(0xFFFFFFFF)
            return
        self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if self._matcher.is_error():
            error = _first_line(self._matcher.get_error())
            if error != _NO_TOKEN:
                raise RuntimeError(f"the grammar failed: {error}")
            mask.fill(0)
        if self._may_open:
            for opener in self._openers:
                mask[opener // 32] |= np.uint32(1 << opener % 32)

    def accept(self, token_id: int) -> bool:
        """See `TokenMatcher`."""
        if self._begun_at < 0:
            accepted = True
            if token_id in self._closers:
                self._begun_at = self._num_accepted + 1
        elif self._may_open and token_id in self._openers:
            accepted = True
            self._begun_at = -1
        elif token_id in self._ends:
            accepted = self._matcher.is_accepting() and self._matcher.consume_token(token_id)
        else:
            accepted = self._matcher.try_consume_tokens([token_id]) == 1
        self._num_accepted += accepted
        return accepted

    def rollback(self, num_tokens: int) -> None:
        """See `TokenMatcher`."""
        constrained = self._num_accepted - self._begun_at if self._begun_at >= 0 else 0
        if taken_back := min(num_tokens, constrained):
            self._matcher.rollback(taken_back)
        self._num_accepted -= num_tokens
        if self._num_accepted == 0:
            self._begun_at = -1 if self._begins_within else 0
        elif self._num_accepted < self._begun_at:
            self._begun_at = -1

    def forced(self, most: int) -> list[int]:
        """See `TokenMatcher`."""
        return self._matcher.compute_ff_tokens()[:most] if self._begun_at >= 0 else []

    @property
    def _may_open(self) -> bool:
        return self._num_accepted == 0


def _matchers(compiled: LLMatcher, ends: Container[int]) -> Compiled:
    return lambda reasoning: lambda: GrammarMatcher(compiled.deep_copy(), ends, reasoning)


def _tokenizer(tokens: TokenTable) -> LLTokenizer:
    import llguidance

    wrapper: Any = llguidance.TokenizerWrapper(tokens)
    return llguidance.LLTokenizer(
        wrapper, n_vocab=len(tokens.tokens), eos_token=list(tokens.eos_token_ids)
    )


def _compile(tokenizer: LLTokenizer, text: str) -> LLMatcher:
    import llguidance

    limits = llguidance.LLParserLimits(verbose_errors=False)
    matcher = llguidance.LLMatcher(tokenizer, text, log_level=0, limits=limits)
    if matcher.is_error():
        raise GrammarError(_first_line(matcher.get_error()))
    return matcher


def _first_line(message: str) -> str:
    lines = [line for line in message.splitlines() if line.strip()]
    return lines[0][:_MAX_MESSAGE_CHARS] if lines else "unknown error"
