"""Grammars to matchers of outputs, by llguidance: masks of tokens in 10 to 50 us, mostly."""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pagemill.structured.deep_stack import call_with_deep_stack
from pagemill.structured.distinct_items import DistinctItems
from pagemill.structured.expansion import Expanded, expand
from pagemill.structured.grammar import Grammar, GrammarError
from pagemill.structured.json_trace import Paths
from pagemill.structured.matcher import GrammarMatcher, first_line
from pagemill.structured.token_texts import TokenTexts
from pagemill.structured.vocabulary import Vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_MAX_KEPT = 64
_MAX_KEPT_CHARS = 2**22
_MAX_ROW = 16_000
"""What may come next at one place of a grammar: two things for each optional property."""
_Key = tuple[str, tuple[str, ...]]


class GrammarCompiler:
    """Makes matchers for one model. Thread-safe; keeps the latest grammars.

    `open_vocabulary` is called once, for the first grammar: a model that is asked for none pays
    nothing.
    """

    def __init__(
        self,
        open_vocabulary: Callable[[], Vocabulary] | None = None,
        expand: Callable[[Grammar], Expanded] = expand,
    ) -> None:
        """`open_vocabulary` may be set later, before the first grammar. `expand`: what makes rules
        of schemas."""
        self._expand = expand
        self.open_vocabulary = open_vocabulary
        self._lock = threading.Lock()
        self._tokenizer: LLTokenizer | None = None
        self._tokens: _Tokens | None = None
        self._texts: TokenTexts | None = None
        """Made for the first grammar that needs it."""
        self._kept: OrderedDict[_Key, _Compiled] = OrderedDict()
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

        def begin() -> GrammarMatcher:
            return GrammarMatcher(
                compiled.matcher.deep_copy(), ends, grammar.reasoning, compiled.new_distinct()
            )

        return begin

    def _compiled(self, grammar: Grammar) -> tuple[_Compiled, bool]:
        """The compiled grammar, and whether it is new."""
        key = (grammar.text, grammar.schemas)
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
                return kept, False
            tokenizer, tokens = self._opened_tokenizer()
        expanded = self._expand(grammar)
        matcher = call_with_deep_stack(lambda: _compile(tokenizer, expanded.text))
        compiled = _Compiled(matcher, len(expanded.text) + sum(map(len, grammar.schemas)))
        if expanded.distinct is not None:
            compiled.paths = Paths(json.loads(expanded.distinct))
            compiled.texts = self._token_texts(tokens)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = compiled
                self._num_kept_chars += compiled.num_chars
            while len(self._kept) > _MAX_KEPT or self._num_kept_chars > _MAX_KEPT_CHARS:
                _, dropped = self._kept.popitem(last=False)
                self._num_kept_chars -= dropped.num_chars
        return compiled, True

    def _token_texts(self, tokens: _Tokens) -> TokenTexts:
        texts = self._texts or TokenTexts(tokens.texts())
        with self._lock:
            self._texts = self._texts or texts
            return self._texts

    def _opened_tokenizer(self) -> tuple[LLTokenizer, _Tokens]:
        if self._tokenizer is None or self._tokens is None:
            if self.open_vocabulary is None:
                raise GrammarError("this engine has no vocabulary to constrain outputs with")
            self._tokens = _Tokens(self.open_vocabulary())
            self._tokenizer = _tokenizer(self._tokens)
        return self._tokenizer, self._tokens


@dataclass(slots=True)
class _Compiled:
    """A grammar. `paths` and `texts`: those of `DistinctItems`, if it needs it."""

    matcher: LLMatcher
    num_chars: int
    paths: Paths | None = None
    texts: TokenTexts | None = None

    def new_distinct(self) -> DistinctItems | None:
        """What an output needs beside the matcher."""
        if self.paths is None or self.texts is None:
            return None
        return DistinctItems(self.paths, self.texts)


class _Tokens:
    """A vocabulary as `llguidance.TokenizerWrapper` wants it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tokenizer = vocabulary.tokenizer
        self.vocab_size = vocabulary.vocab_size
        self.eos_token_ids = vocabulary.eos_token_ids
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

    def texts(self) -> list[bytes]:
        """The bytes of each token; none of those that no text spells."""
        return [b"" if i in self._special else token for i, token in enumerate(self.tokens)]

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False, parse_special=False)

    def _encode_around(self, markers: Sequence[str], text: str) -> list[int]:
        """The markers are written as text, each behind its first character in a token of its own:
        a tokenizer knows some, that are not special to it, in any text."""
        within = [f"(?<={re.escape(each[:1])})(?={re.escape(each[1:])})" for each in markers]
        return [token for part in re.split("|".join(within), text) for token in self._encode(part)]


def _tokenizer(tokens: _Tokens) -> LLTokenizer:
    import llguidance

    wrapper: Any = llguidance.TokenizerWrapper(tokens)
    return llguidance.LLTokenizer(
        wrapper, n_vocab=tokens.vocab_size, eos_token=list(tokens.eos_token_ids)
    )


def _compile(tokenizer: LLTokenizer, text: str) -> LLMatcher:
    import llguidance

    limits = llguidance.LLParserLimits(max_items_in_row=_MAX_ROW, verbose_errors=False)
    matcher = llguidance.LLMatcher(tokenizer, text, log_level=0, limits=limits)
    if matcher.is_error():
        raise GrammarError(first_line(matcher.get_error()))
    return matcher
