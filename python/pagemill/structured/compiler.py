"""Grammars to matchers of outputs, by llguidance: masks of tokens in 10 to 50 us, mostly."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pagemill.structured.grammar import Grammar, GrammarError, Reasoning
from pagemill.structured.vocabulary import Vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_MAX_KEPT = 64
_MAX_KEPT_CHARS = 2**22
_MAX_MESSAGE_CHARS = 500
_NO_TOKEN = "NoExtensionBias"  # llguidance: no token of the vocabulary may come next


class GrammarCompiler:
    """Makes matchers for one model. Thread-safe; keeps the latest grammars.

    `open_vocabulary` is called once, for the first grammar: a model that is asked for none pays
    nothing.
    """

    def __init__(self, open_vocabulary: Callable[[], Vocabulary] | None = None) -> None:
        """`open_vocabulary` may be set later, before the first grammar."""
        self.open_vocabulary = open_vocabulary
        self._lock = threading.Lock()
        self._tokenizer: LLTokenizer | None = None
        self._kept: OrderedDict[str, LLMatcher] = OrderedDict()
        self._num_kept_chars = 0

    def prepare(self, grammar: Grammar) -> bool:
        """Compiles `grammar`; False if it was kept. May take a second: call it in a thread.

        Raises:
            GrammarError: it is no grammar, or too large a one.
        """
        return self._compiled(grammar)[1]

    def factory(self, grammar: Grammar) -> Callable[[], GrammarMatcher]:
        """Makes the matchers of outputs (`engine.token_matcher.TokenMatcherFactory`).

        Raises:
            GrammarError: see `prepare`.
        """
        compiled, _ = self._compiled(grammar)
        assert self._tokenizer is not None
        ends = frozenset(self._tokenizer.eos_tokens)
        return lambda: GrammarMatcher(compiled.deep_copy(), ends, grammar.reasoning)

    def _compiled(self, grammar: Grammar) -> tuple[LLMatcher, bool]:
        """The compiled grammar, and whether it is new."""
        with self._lock:
            kept = self._kept.get(grammar.text)
            if kept is not None:
                self._kept.move_to_end(grammar.text)
                return kept, False
            tokenizer = self._opened_tokenizer()
        compiled = _compile(tokenizer, grammar.text)
        with self._lock:
            if grammar.text not in self._kept:
                self._kept[grammar.text] = compiled
                self._num_kept_chars += len(grammar.text)
            while len(self._kept) > _MAX_KEPT or self._num_kept_chars > _MAX_KEPT_CHARS:
                text, _ = self._kept.popitem(last=False)
                self._num_kept_chars -= len(text)
        return compiled, True

    def _opened_tokenizer(self) -> LLTokenizer:
        if self._tokenizer is None:
            if self.open_vocabulary is None:
                raise GrammarError("this engine has no vocabulary to constrain outputs with")
            self._tokenizer = _tokenizer(self.open_vocabulary())
        return self._tokenizer


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


class _Tokens:
    """A vocabulary as `llguidance.TokenizerWrapper` wants it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tokenizer = vocabulary.tokenizer
        self.eos_token_id = vocabulary.eos_token_ids[0]
        self.bos_token_id = None
        known = self._tokenizer.token_bytes
        ids = range(vocabulary.vocab_size)
        self.tokens = [known[index] for index in ids]
        markers = vocabulary.marker_ids
        self.special_token_ids = [i for i in ids if i in markers or known.is_special(i)]
        self._special = frozenset(self.special_token_ids)

    def __call__(self, text: str | bytes) -> list[int]:
        """Tokens that are exactly `text`, none of them special; none if the tokenizer writes
        something else, as for bytes that no token has."""
        if isinstance(text, bytes):
            text = text.decode()
        found = self._encode(text)
        known = self._tokenizer.token_bytes
        if markers := self._special.intersection(found):
            found = self._encode_around([known[token].decode() for token in markers], text)
        return found if b"".join(known[token] for token in found) == text.encode() else []

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False, parse_special=False)

    def _encode_around(self, markers: Sequence[str], text: str) -> list[int]:
        """The markers are written as text, each behind its first character in a token of its own:
        a tokenizer knows some, that are not special to it, in any text."""
        within = [f"(?<={re.escape(each[:1])})(?={re.escape(each[1:])})" for each in markers]
        return [token for part in re.split("|".join(within), text) for token in self._encode(part)]


def _tokenizer(vocabulary: Vocabulary) -> LLTokenizer:
    import llguidance

    wrapper: Any = llguidance.TokenizerWrapper(_Tokens(vocabulary))
    return llguidance.LLTokenizer(
        wrapper, n_vocab=vocabulary.vocab_size, eos_token=list(vocabulary.eos_token_ids)
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
